"""Discord: direct messages, servers with channels, threads, forums, roles, commands and buttons."""

from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from homarus.channels.base import ChannelContext
from homarus.channels.discord.settings import DiscordSettings as Settings
from homarus.channels.discord.traits import TRAITS
from homarus.core.errors import MissingExtraError

if TYPE_CHECKING:
    from homarus.channels.discord.adapter import DiscordChannel

LABEL: Final = TRAITS.title

__all__ = ["LABEL", "TRAITS", "Settings", "create"]


def create(context: ChannelContext, settings: Settings) -> "DiscordChannel":
    """Return the channel of one bot, not connected.

    Raises ConfigError without a token, and MissingExtraError without discord.py.
    """
    if find_spec("discord") is None:
        raise MissingExtraError("Discord", "discord")
    from homarus.channels.discord.adapter import DiscordChannel

    return DiscordChannel(context, settings)
