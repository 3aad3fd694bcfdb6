"""Skill registries: the client of ClawHub's HTTP API, archives, installing, the lock file."""
