"""Log commands of people."""
