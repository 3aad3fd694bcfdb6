"""The context that a model is sent of a session, kept within its context window."""
