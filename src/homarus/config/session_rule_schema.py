"""Rules of the config that match sessions: by channel, chat type and prefixes of the key."""

from typing import Literal

from homarus.config.section import ConfigSection


class SendMatch(ConfigSection):
    """The sessions that a rule matches; an absent condition matches all."""

    channel: str | None = None
    chat_type: Literal["direct", "group", "channel", "dm"] | None = None
    key_prefix: str | None = None
    raw_key_prefix: str | None = None


class SendRule(ConfigSection):
    """A rule that allows or denies something, such as replies, in some sessions."""

    action: Literal["allow", "deny"]
    match: SendMatch = SendMatch.model_construct()
