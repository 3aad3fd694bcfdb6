"""Webhooks of other programs: `POST /hooks/…` wakes the agent or starts a run of its own."""
