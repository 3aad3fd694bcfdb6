"""The system prompt: the workspace's files and the facts, in sections."""
