"""`homarus tui`: the full-screen interface. Nothing else imports Textual, its library."""
