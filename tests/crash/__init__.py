"""The failure matrix: the program killed, starved and lied to, and what must hold all the same."""
