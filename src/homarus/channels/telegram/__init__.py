"""Telegram, by its Bot API: long poll or webhook, groups and topics, drafts, buttons, files."""

from typing import TYPE_CHECKING, Final

from homarus.channels.base import ChannelContext
from homarus.channels.telegram.settings import TelegramSettings as Settings
from homarus.channels.telegram.traits import TRAITS

if TYPE_CHECKING:
    from homarus.channels.telegram.adapter import TelegramChannel

LABEL: Final = TRAITS.title

__all__ = ["LABEL", "TRAITS", "Settings", "create"]


def create(context: ChannelContext, settings: Settings) -> "TelegramChannel":
    """Return the channel of one bot, not connected. Raises ConfigError without a token."""
    from homarus.channels.telegram.adapter import TelegramChannel

    return TelegramChannel(context, settings)
