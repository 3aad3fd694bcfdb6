"""The user's `openclaw.json`: read, checked, changed."""
