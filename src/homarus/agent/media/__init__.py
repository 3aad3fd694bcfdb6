"""What models are asked about the files of messages, and about pictures that tools name."""
