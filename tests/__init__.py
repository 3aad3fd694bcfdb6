"""The tests; a package so that `python -m tests.vectors` finds its parts."""
