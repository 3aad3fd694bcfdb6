"""What was written down, found again: an index of Markdown notes and a search that cites lines."""
