"""Memory: an index of Markdown notes, and a search that cites lines."""
