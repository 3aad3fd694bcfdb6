"""The qmd program as a backend: its collections, its commands, its answers."""
