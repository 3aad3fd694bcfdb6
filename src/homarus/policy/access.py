"""Who is heard in a chat: who is on a list, whether a message is meant for us, who gives orders.

Pure: a channel says what it knows about a message, the config what it asks for. People are told
apart by the ids of their service, compared whole. A name is never an id: anybody can take one.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final, Literal, TypeAlias

from homarus.core.value import dataclass

Ungrouped: TypeAlias = Literal["allow", "deny", "configured"]

EVERYONE: Final = "*"
# How a list may say which service an id is of, beside that service's own name.
_PREFIXES: Final[Mapping[str, tuple[str, ...]]] = {
    "telegram": ("tg",),
    "googlechat": ("google-chat", "gchat"),
    "imessage": ("imsg",),
}
_BY_PHONE: Final = frozenset({"signal", "sms", "voice", "whatsapp"})
_CASELESS: Final = frozenset({"email", "imessage", "irc", "xmpp"})
_PHONE: Final = re.compile(r"\+?[0-9][0-9 ().-]{2,30}", re.ASCII)
_NUMBER: Final = re.compile(r"-?[0-9]{1,20}", re.ASCII)
_MATRIX: Final = re.compile(r"([@!#][^:\s]+):([^\s]+)")
_MAX_ID_CHARS = 300
_SERVICES: Final = frozenset(
    {"bluebubbles", "discord", "email", "feishu", "googlechat", "imessage", "irc", "line", "matrix",
     "mattermost", "msteams", "nostr", "signal", "slack", "sms", "telegram", "tg", "tlon", "twitch",
     "whatsapp", "xmpp", "zalo"}
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Roll:
    """One list of people: whether it is set at all, and whether the sender is on it."""

    is_set: bool
    has_sender: bool


def person_id(channel: str, text: str) -> str:
    """An id as lists are compared; "" for what is none on this service, such as a name.

    `telegram:42`, `tg:42` and `42` are the same person on Telegram, and nobody elsewhere.
    """
    named = text.strip()
    if not named or len(named) > _MAX_ID_CHARS:
        return ""
    head, colon, rest = named.partition(":")
    prefix = head.lower()
    if colon and rest and (prefix == channel or prefix in _PREFIXES.get(channel, ())):
        named = rest.strip()
    elif colon and prefix in _SERVICES:
        return ""  # of another service
    if named.lower().startswith("user:"):
        named = named[5:].strip()
    return _own_form(channel, named)


def _own_form(channel: str, named: str) -> str:
    if channel == "telegram":
        return named if _NUMBER.fullmatch(named) else ""
    if channel in _BY_PHONE and _PHONE.fullmatch(named):
        return "+" + re.sub(r"[^0-9]", "", named)
    if channel == "matrix":
        found = _MATRIX.fullmatch(named)
        return f"{found[1]}:{found[2].lower()}" if found else ""
    return named.lower() if channel in _CASELESS else named


def is_named(channel: str, sender: str, entries: Iterable[str]) -> bool:
    """Whether a list has this person, by their id and not by a `*`."""
    known = person_id(channel, sender)
    return bool(known) and any(person_id(channel, entry) == known for entry in entries)


def is_listed(channel: str, sender: str, entries: Iterable[str]) -> bool:
    """Whether a list has this person, or everybody. Who has no id is on no list."""
    listed = tuple(entries)
    if not person_id(channel, sender):
        return False
    return EVERYONE in listed or is_named(channel, sender, listed)


def is_heard_in_group(
    policy: Literal["open", "disabled", "allowlist"],
    people: Roll | None,
    *,
    group: Literal["", "by-id", "by-star"],
) -> bool:
    """Whether somebody in a group is heard, once they speak to us.

    `group` is how the config names the group, if at all. `people` is the list that holds there,
    None when there is none: then everybody is heard in a group that is named by its id, and nobody
    in one that is there by `*` alone, into which any stranger could invite us.
    """
    if policy == "disabled" or (people is not None and not people.has_sender):
        return False
    if policy == "open":
        return True
    return group == "by-id" or (group == "by-star" and people is not None)


@dataclass(frozen=True, slots=True)
class Mention:
    """What is known of how a message of a group addresses us.

    `detectable` is False where the service does not tell mentions, `implied` says that it answers
    us, `elsewhere` that somebody is mentioned.
    """

    required: bool = True
    detectable: bool = True
    mentioned: bool = False
    implied: bool = False
    elsewhere: bool = False


def is_addressed(mention: Mention) -> bool:
    """Whether it speaks to us, by name or as an answer."""
    return mention.mentioned or mention.implied


def is_passed_over(mention: Mention) -> bool:
    """Whether it is none of our business: we can tell that it does not speak to us."""
    return mention.required and mention.detectable and not is_addressed(mention)


def is_order(mention: Mention, *, is_command: bool, may_command: bool) -> bool:
    """Whether it needs no mention: a command to nobody else, by somebody who may give one."""
    unnamed = mention.required and not mention.mentioned and not mention.elsewhere
    return unnamed and is_command and may_command


def may_command(rolls: Iterable[Roll], *, grouped: bool, otherwise: Ungrouped = "allow") -> bool:
    """Whether a sender's commands are obeyed: one of the lists that are set must have them.

    Without access groups (`grouped`), `otherwise` decides: `configured` asks the lists if there
    are any.
    """
    called = [roll for roll in rolls if roll.is_set]
    on_one = any(roll.has_sender for roll in called)
    if grouped:
        return on_one
    return {"allow": True, "deny": False, "configured": on_one or not called}[otherwise]
