"""Durable state: sessions, transcripts, records and the journal."""
