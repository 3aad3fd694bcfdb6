"""`homarus hub serve`: a registry of skills with ClawHub's HTTP API, kept in plain files."""
