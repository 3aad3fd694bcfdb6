"""`homarus import`: copies sessions, memory, cron jobs and credentials from another home."""
