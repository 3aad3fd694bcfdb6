"""What a model is sent of a conversation, and how that is kept within its window."""
