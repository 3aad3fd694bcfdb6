"""Save the end of a conversation as a note."""
