"""Decide access by allowlists and mentions.

Senders are identified by the ids of their service, compared completely. A name is never an id:
other people can take it.
"""

from collections.abc import Iterable
from typing import Final, Literal, TypeAlias

from homarus.core.channel_traits import UNKNOWN_CHANNEL, FindTraits
from homarus.core.fast_dataclass import dataclass

CommandDefault: TypeAlias = Literal["allow", "deny", "configured"]

EVERYONE: Final = "*"
_ANY_SERVICE: Final = "user"  # a prefix that says a person, and not of which service
_MAX_ID_CHARS: Final = 300


@dataclass(frozen=True, slots=True)
class AllowlistMatch:
    """Whether an allowlist is set, and whether it has the sender."""

    is_set: bool
    has_sender: bool


def normalize_sender_id(channel: str, text: str, find_traits: FindTraits) -> str:
    """Return a sender's id in the form that is compared, or "" if the service has no such id.

    On Telegram `telegram:42`, `tg:42` and `42` are the same sender, and `discord:42` is none. A
    name is never an id: other people can take it.
    """
    text_id = text.strip()
    if not text_id or len(text_id) > _MAX_ID_CHARS:
        return ""
    traits = find_traits(channel)
    head, colon, rest = text_id.partition(":")
    prefix = head.lower()
    if colon and rest and (prefix == channel or prefix in traits.id_aliases):
        text_id = rest.strip()
    elif colon and prefix != _ANY_SERVICE and find_traits(prefix) is not UNKNOWN_CHANNEL:
        return ""  # an id of another service
    if text_id.lower().startswith(f"{_ANY_SERVICE}:"):
        text_id = text_id[5:].strip()
    return traits.canonical_id(text_id)


def is_named(channel: str, sender: str, entries: Iterable[str], find_traits: FindTraits) -> bool:
    """Return whether a list has the sender by id; a `*` does not count."""
    known = normalize_sender_id(channel, sender, find_traits)
    return bool(known) and any(
        normalize_sender_id(channel, each, find_traits) == known for each in entries
    )


def is_listed(channel: str, sender: str, entries: Iterable[str], find_traits: FindTraits) -> bool:
    """Return whether a list has the sender, by id or by `*`. A sender without an id is on none."""
    listed = tuple(entries)
    if not normalize_sender_id(channel, sender, find_traits):
        return False
    return EVERYONE in listed or is_named(channel, sender, listed, find_traits)


def is_allowed_in_group(
    policy: Literal["open", "disabled", "allowlist"],
    people: AllowlistMatch | None,
    *,
    group: Literal["", "by-id", "by-star"],
) -> bool:
    """Return whether a sender in a group is answered when addressing us.

    `group` is how the config names the group, if at all. `people` is the allowlist that applies,
    None when there is none: then every sender is answered in a group named by its id, and none in a
    group admitted by `*` alone, as anyone could invite the bot there.
    """
    if policy == "disabled" or (people is not None and not people.has_sender):
        return False
    if policy == "open":
        return True
    return group == "by-id" or (group == "by-star" and people is not None)


@dataclass(frozen=True, slots=True)
class MentionState:
    """How a group message addresses us.

    `detectable` is False where the service does not report mentions, `implied` says that it replies
    to us, `elsewhere` that it mentions another user.
    """

    required: bool = True
    detectable: bool = True
    mentioned: bool = False
    implied: bool = False
    elsewhere: bool = False


def is_addressed(mention: MentionState) -> bool:
    """Return whether the message addresses us, by mention or as a reply."""
    return mention.mentioned or mention.implied


def is_unaddressed(mention: MentionState) -> bool:
    """Return whether a mention is required, can be detected, and is missing."""
    return mention.required and mention.detectable and not is_addressed(mention)


def is_unmentioned_command(mention: MentionState, *, is_command: bool, may_command: bool) -> bool:
    """Return whether it is a command by an authorised sender that needs no mention."""
    unnamed = mention.required and not mention.mentioned and not mention.elsewhere
    return unnamed and is_command and may_command


def may_command(
    matches: Iterable[AllowlistMatch], *, grouped: bool, otherwise: CommandDefault = "allow"
) -> bool:
    """Return whether a sender may command: one of the lists that are set must have them.

    Without access groups (`grouped`), `otherwise` decides: `configured` checks the lists if any is
    set.
    """
    configured = [match for match in matches if match.is_set]
    on_one = any(match.has_sender for match in configured)
    if grouped:
        return on_one
    return {"allow": True, "deny": False, "configured": on_one or not configured}[otherwise]
