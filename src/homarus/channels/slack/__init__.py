"""Slack, by socket mode or signed HTTP: channels and threads, buttons, a slash command, files.

The extra `slack` has its library, slack-sdk: socket mode needs it.
"""

from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from homarus.channels.base import ChannelContext
from homarus.channels.slack.settings import SlackSettings as Settings
from homarus.channels.slack.traits import TRAITS
from homarus.core.errors import MissingExtraError

if TYPE_CHECKING:
    from homarus.channels.slack.adapter import SlackChannel

LABEL: Final = TRAITS.title

__all__ = ["LABEL", "TRAITS", "Settings", "create"]


def create(context: ChannelContext, settings: Settings) -> "SlackChannel":
    """Return one account, not connected.

    Raises MissingExtraError without slack-sdk, and ConfigError without its tokens.
    """
    for package in ("slack_sdk", "aiohttp"):
        if find_spec(package) is None:
            raise MissingExtraError("Slack", "slack")
    from homarus.channels.slack.adapter import SlackChannel

    return SlackChannel(context, settings)
