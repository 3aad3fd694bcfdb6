"""Searching the web and reading its pages; imported by the first call of a web tool."""
