"""Chat commands and inline directives: one table for every way in."""
