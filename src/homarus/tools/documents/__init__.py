"""Documents: the text and the pictures of PDF files and web pages, parsed outside the gateway."""
