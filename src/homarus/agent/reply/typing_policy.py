"""Decide when the typing indicator is shown. Pure; channels/typing_indicator.py keeps it alive."""

from typing import Literal, TypeAlias

from homarus.core.event import (
    CompactionStarted,
    EventData,
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
    """Return the configured mode, else `instant` where a person waits for the answer."""
    if heartbeat:
        return "never"
    if configured:
        return configured
    return "message" if group and not mentioned else "instant"


def is_activity(mode: TypingMode, data: EventData, *, has_text: bool) -> bool:
    """Return whether an event shows work on an answer. Text that may become silent does not."""
    match data:
        case _ if mode == "never":
            return False
        case TextAdded():
            return has_text
        case ToolStarted() | ToolProgressed() | CompactionStarted():
            return True
        case ThinkingAdded():
            return mode in ("instant", "thinking")
        case RunStarted():
            return mode == "instant"
        case _:
            return False
