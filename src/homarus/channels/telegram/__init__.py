"""Telegram, by its Bot API: long poll or webhook, groups and topics, drafts, buttons, files."""

from homarus.channels.telegram.adapter import create
from homarus.channels.telegram.settings import Settings

LABEL = "Telegram"

__all__ = ["LABEL", "Settings", "create"]
