"""Messages between sessions: one writes, the other answers, and a chat may be told."""
