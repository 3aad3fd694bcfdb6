"""Telegram, by its Bot API: long poll or webhook, groups and topics, drafts, buttons, files."""

from typing import TYPE_CHECKING, Final

from homarus.channels.base import Place
from homarus.channels.telegram.settings import Settings
from homarus.channels.telegram.traits import TRAITS

if TYPE_CHECKING:
    from homarus.channels.telegram.adapter import Telegram

LABEL: Final = TRAITS.title

__all__ = ["LABEL", "TRAITS", "Settings", "create"]


def create(place: Place, settings: Settings) -> "Telegram":
    """Return the channel of one bot, not connected. Raises ConfigError without a token."""
    from homarus.channels.telegram.adapter import Telegram

    return Telegram(place, settings)
