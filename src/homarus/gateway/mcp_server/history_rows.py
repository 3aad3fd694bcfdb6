"""Messages of `chat.history` as MCP clients get them: small, and within a size limit."""

import json
from collections.abc import Sequence
from typing import Final

from homarus.core.message import Json

MAX_ROWS_CHARS: Final = 150_000  # clients of the library accept an event of a megabyte
_SPEAKERS: Final = frozenset({"user", "assistant", "system"})
_TOOL_PARTS: Final = frozenset({"toolCall", "toolResult"})


def message_rows(messages: Sequence[Json], limit: int, *, with_tools: bool) -> list[Json]:
    """Return the newest messages, oldest first; the older ones that do not fit are left out."""
    rows, left = list[Json](), MAX_ROWS_CHARS
    for message in reversed(messages):
        row = _row(message, with_tools=with_tools)
        if row is None:
            continue
        left -= len(json.dumps(row, ensure_ascii=False))
        if len(rows) == limit or (left < 0 and rows):
            break
        rows.append(row)
    rows.reverse()
    return rows


def _row(message: Json, *, with_tools: bool) -> dict[str, Json] | None:
    role, parts = message.get("role"), message.get("content") or []
    if role not in _SPEAKERS and not with_tools:
        return None
    texts = [part["text"] for part in parts if part.get("type") == "text" and part.get("text")]
    tools = [part for part in parts if part.get("type") in _TOOL_PARTS] if with_tools else []
    media = [part["type"] for part in parts if part.get("type") in {"image", "media"}]
    if not texts and not tools and not media:
        return None
    row: dict[str, Json] = {"role": role, "text": "\n".join(texts)}
    marker = message.get("__openclaw") or {}
    fields = {
        "id": marker.get("id"),
        "timestamp": message.get("timestamp"),
        "truncated": marker.get("truncated"),
        "toolName": message.get("toolName"),
        "isError": message.get("isError"),
        "toolCalls": tools,
        "attachments": media,
    }
    return row | {name: value for name, value in fields.items() if value}
