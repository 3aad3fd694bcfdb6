"""Embedders, which turn text into vectors; each is a module of its own."""
