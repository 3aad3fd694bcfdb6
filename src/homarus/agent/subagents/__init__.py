"""Sub-agents: sessions that work on a task for another session, and report to it."""
