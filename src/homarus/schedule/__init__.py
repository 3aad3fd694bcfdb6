"""What runs by itself: cron jobs, heartbeats, and turns that no person's message started."""
