"""Embedders: text to vectors, one file for each way to get them."""
