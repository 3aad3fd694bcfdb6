"""How the program is extended by code that is not in it."""
