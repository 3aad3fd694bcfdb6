"""Where people talk to us."""
