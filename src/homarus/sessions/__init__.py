"""Conversations: their keys, settings, transcripts and chat commands."""
