"""The failure matrix: the program is killed, starved and given bad input."""
