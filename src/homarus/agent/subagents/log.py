"""The newest messages of a sub-agent's transcript, for the person who started it."""

from collections.abc import Iterator
from typing import Final

from homarus.config.redaction import redact
from homarus.core.envelope import strip_envelope
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json, Message, ToolCall, ToolResult
from homarus.core.text import clip_middle, one_line
from homarus.sessions.transcript import EntryTree, decode_message
from homarus.store.base import Store

DEFAULT_LIMIT: Final = 20
MAX_LIMIT: Final = 200
_ENTRIES_PER_MESSAGE: Final = 4  # a turn has calls and results next to its texts
_MAX_TEXT_CHARS: Final = 4_000
_MAX_CALL_CHARS: Final = 200
_ROLES: Final = {"user": "Task", "assistant": "Sub-agent", "tool": "Tool"}


@dataclass(frozen=True, slots=True)
class LogLine:
    """A message, a tool call or its result."""

    role: str
    text: str
    at_ms: int

    def to_json(self) -> dict[str, Json]:
        """Return the line as clients get it."""
        return {"role": self.role, "text": self.text, "timestamp": self.at_ms}


async def read_log(
    store: Store, session_id: str, limit: int = DEFAULT_LIMIT, *, has_tools: bool = False
) -> list[LogLine]:
    """Return the last lines of a transcript, oldest first, with secrets left out.

    Tool calls and results are left out unless `has_tools`.
    """
    if not session_id:
        return []
    count = min(limit, MAX_LIMIT) * _ENTRIES_PER_MESSAGE
    entries = await store.entries(session_id, limit=count, newest=True)
    path = EntryTree(entries, await store.leaf(session_id)).path()
    messages = (message for entry in path if (message := decode_message(entry)))
    lines = [line for message in messages for line in _lines(message, has_tools=has_tools)]
    return lines[-min(limit, MAX_LIMIT) :]


def format_log(lines: list[LogLine]) -> str:
    """Return the lines as text."""
    return "\n".join(f"{_ROLES[line.role]}: {line.text}" for line in lines) or "(no messages)"


def _lines(message: Message, *, has_tools: bool) -> Iterator[LogLine]:
    text = strip_envelope(message.text) if message.role == "user" else message.text
    if message.role != "tool" and text.strip():
        shown = clip_middle(redact(text.strip()), _MAX_TEXT_CHARS)
        yield LogLine(message.role, shown, message.at_ms)
    if not has_tools:
        return
    for part in message.parts:
        if isinstance(part, ToolCall):
            called = one_line(redact(f"{part.name} {part.broken or part.args}"), _MAX_CALL_CHARS)
            yield LogLine("tool", f"called {called}", message.at_ms)
        elif isinstance(part, ToolResult):
            failed = "failed: " if part.is_error else ""
            result = one_line(redact(part.text), _MAX_CALL_CHARS)
            yield LogLine("tool", f"{part.name} {failed}{result}", message.at_ms)
