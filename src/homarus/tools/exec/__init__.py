"""Running a command a person approved: its environment, its process tree, its output."""
