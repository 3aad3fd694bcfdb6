"""The sign that somebody is typing: when it is wanted. Pure; channels/typing.py keeps it alive."""

from typing import Literal, TypeAlias

from homarus.core.event import (
    CompactionStarted,
    Fact,
    RunStarted,
    TextAdded,
    ThinkingAdded,
    ToolProgressed,
    ToolStarted,
)

TypingMode: TypeAlias = Literal["never", "instant", "thinking", "message"]

INTERVAL_S = 6.0


def typing_mode(
    configured: TypingMode | None, *, group: bool, mentioned: bool, heartbeat: bool
) -> TypingMode:
    """When to show the sign: as configured; else at once where a person waits for the answer."""
    if heartbeat:
        return "never"
    if configured:
        return configured
    return "message" if group and not mentioned else "instant"


def is_activity(mode: TypingMode, fact: Fact, *, speaking: bool) -> bool:
    """Whether a fact shows that an answer is being made. Words that may mean silence do not."""
    match fact:
        case _ if mode == "never":
            return False
        case TextAdded():
            return speaking
        case ToolStarted() | ToolProgressed() | CompactionStarted():
            return True
        case ThinkingAdded():
            return mode in ("instant", "thinking")
        case RunStarted():
            return mode == "instant"
        case _:
            return False
