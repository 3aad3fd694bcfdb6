"""Run an approved command: its environment, its process tree, its output."""
