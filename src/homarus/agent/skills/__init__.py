"""The skills of conversations: what a run is offered and uses of them, and their commands."""
