"""Decide what senders, sessions and tool calls may do."""
