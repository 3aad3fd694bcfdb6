"""Read, check and change the user's `openclaw.json`."""
