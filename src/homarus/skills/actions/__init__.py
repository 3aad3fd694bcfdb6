"""Actions of skills: typed tools that a skill declares in `actions.json`."""
