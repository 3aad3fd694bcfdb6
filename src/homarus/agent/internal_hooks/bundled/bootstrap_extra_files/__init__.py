"""Add files of the workspace to the prompt."""
