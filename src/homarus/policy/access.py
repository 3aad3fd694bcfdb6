"""Who is heard in a chat: whether a group's message is meant for us, and who may give orders.

Pure: a channel says what it knows about a message, the config what it asks for.
"""

from collections.abc import Iterable
from typing import Literal, TypeAlias

from homarus.core.value import dataclass

Ungrouped: TypeAlias = Literal["allow", "deny", "configured"]


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


@dataclass(frozen=True, slots=True)
class Roll:
    """One list of people: whether it is set at all, and whether the sender is on it."""

    is_set: bool
    has_sender: bool


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
