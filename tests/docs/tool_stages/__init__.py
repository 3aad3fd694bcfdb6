"""Where the examples of tools run: each module opens one kind of program for them."""
