"""The newest part of a session's transcript as clients see it, with bounded sizes.

Transcripts are read from their end, only as far as requested. Stored content is not trusted: a
message of any shape, from any program, becomes something small that can be shown.
"""

import json
from collections.abc import Mapping, Sequence

from homarus.core.envelope import strip_envelope
from homarus.core.message import Json
from homarus.core.text import utf16_len
from homarus.gateway.params import MAX_INT
from homarus.sessions.transcript import EntryTree
from homarus.store.base import Store, TranscriptEntry

MAX_BYTES = 6 * 1024 * 1024
MAX_MESSAGE_BYTES = 128 * 1024
MAX_TEXT_CHARS = 12_000
MAX_PARTS = 200
_CUT = "\n…(cut)…"
_TOO_LARGE = "[message left out: too large to show]"
_SHOWN_FIELDS = (
    "api", "provider", "model", "stopReason", "errorMessage", "toolCallId", "toolName",
    "idempotencyKey",
)  # fmt: skip
_ABORT_FIELDS = {"aborted": bool, "origin": str, "runId": str}
_PAGE_ENTRIES = 50  # entries read in addition to the requested messages
_MAX_READ = 50_000


async def newest_path(store: Store, session_id: str, messages: int) -> list[TranscriptEntry]:
    """Return the end of the session's path, with up to this many messages in it."""
    leaf = await store.leaf(session_id)
    count = messages * 2 + _PAGE_ENTRIES
    while True:
        entries = await store.entries(session_id, limit=count, newest=True)
        path = EntryTree(entries, leaf).path()
        found = sum(entry.type == "message" for entry in path)
        is_complete = len(entries) < count or count >= _MAX_READ
        if leaf is None or is_complete or (found >= messages and path):
            return path
        count *= 4


def show_history(path: Sequence[TranscriptEntry], limit: int) -> list[Json]:
    """Return the newest messages of a path, oldest first, within the budget."""
    shown: list[Json] = []
    left = MAX_BYTES
    for entry in reversed(path):
        message = show_entry(entry)
        if message is None:
            continue
        size = len(json.dumps(message))
        if size > MAX_MESSAGE_BYTES:
            message = _placeholder(message)
            size = len(json.dumps(message))
        if size > left or len(shown) == limit:
            break
        shown.append(message)
        left -= size
    shown.reverse()
    return shown


def show_entry(entry: TranscriptEntry) -> dict[str, Json] | None:
    """Return one entry for a client; None when it is no message."""
    if entry.type == "compaction":
        marker = {"role": "system", "content": [{"type": "text", "text": "Compaction"}]}
        return {**marker, "timestamp": entry.at_ms, "__openclaw": {"kind": "compaction"}}
    message = entry.data.get("message") if entry.type == "message" else None
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        return None
    role = message["role"][:40]
    parts = [_show_part(part, role) for part in _parts(message.get("content"))[:MAX_PARTS]]
    shown: dict[str, Json] = {"role": role, "content": [part for part in parts if part]}
    for name in _SHOWN_FIELDS:
        value = message.get(name)
        if isinstance(value, str) and value:
            shown[name] = value[:2_000]
    if isinstance(message.get("isError"), bool):
        shown["isError"] = message["isError"]
    if isinstance(abort := message.get("openclawAbort"), dict):
        fields = {name: abort.get(name) for name, kind in _ABORT_FIELDS.items()
                if isinstance(abort.get(name), kind)}  # fmt: skip
        shown["openclawAbort"] = {
            k: v[:2_000] if isinstance(v, str) else v for k, v in fields.items()
        }
    shown["timestamp"] = _stamp(message.get("timestamp")) or entry.at_ms
    return shown


def text_of(entry: TranscriptEntry) -> str:
    """Return the text of an entry's message; images and calls are named."""
    shown = show_entry(entry)
    texts = [_part_text(part) for part in shown["content"]] if shown else []
    return "\n".join(text for text in texts if text).strip()


def role_of(entry: TranscriptEntry) -> str:
    """Return the role of an entry's message, as `sessions.preview` names it."""
    message = entry.data.get("message")
    role = message.get("role") if isinstance(message, dict) else None
    if role == "toolResult":
        return "tool"
    return role if role in {"user", "assistant", "system"} else "other"


def clip(text: str, max_chars: int) -> str:
    """Return the text cut to a length, with an ellipsis."""
    return text if utf16_len(text) <= max_chars else text[: max(0, max_chars - 3)] + "..."


def _parts(content: Json) -> list[Json]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return content if isinstance(content, list) else []


def _show_part(part: Json, role: str) -> dict[str, Json] | None:
    if isinstance(part, str):
        part = {"type": "text", "text": part}
    if not isinstance(part, dict):
        return None
    match part.get("type"):
        case "text":
            text = _str(part.get("text"))
            return {"type": "text", "text": _cut(strip_envelope(text) if role == "user" else text)}
        case "thinking":
            return {"type": "thinking", "thinking": _cut(_str(part.get("thinking")))}
        case "image":
            data = part.get("data")
            data = data if isinstance(data, str) else ""
            size = len(data) * 3 // 4 - data[-2:].count("=")
            mime = _str(part.get("mimeType"))[:100]
            return {"type": "image", "mimeType": mime, "omitted": True, "bytes": size}
        case "toolCall":
            return _show_call(part)
        case _:
            return None


def _show_call(part: Mapping[str, Json]) -> dict[str, Json]:
    args = part.get("arguments")
    if not isinstance(args, dict) or len(json.dumps(args)) > MAX_TEXT_CHARS:
        args = {"omitted": True} if args else {}
    call_id, name = _str(part.get("id"))[:200], _str(part.get("name"))[:200]
    return {"type": "toolCall", "id": call_id, "name": name, "arguments": args}


def _part_text(part: Mapping[str, Json]) -> str:
    match part["type"]:
        case "text":
            return str(part["text"])
        case "image":
            return "[image]"
        case "toolCall":
            return f"[call {part['name']}]"
        case _:
            return ""


def _placeholder(message: Mapping[str, Json]) -> dict[str, Json]:
    fields = {"role": message["role"], "timestamp": message["timestamp"]}
    return {**fields, "content": [{"type": "text", "text": _TOO_LARGE}]}


def _cut(text: str) -> str:
    return text if len(text) <= MAX_TEXT_CHARS else text[:MAX_TEXT_CHARS] + _CUT


def _str(value: Json) -> str:
    return value if isinstance(value, str) else ""


def _stamp(value: Json) -> int:
    """Return a time that another program may have written, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0
    return int(value) if 0 <= value <= MAX_INT else 0
