"""Tools that operate on nothing of ours: files and commands."""
