"""A part of a session's transcript as clients see it, with bounded sizes.

Transcripts are read from their end, only as far as requested. Stored content is not trusted: a
message of any shape, from any program, becomes something small that can be shown. A client that
pages through a transcript gets the id of every message, and can load one message as a whole.
"""

import json
from collections.abc import Mapping, Sequence

from homarus.agent.reply.reply_parser import split_media
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
MAX_WHOLE_CHARS = 4_000_000  # of each text of a message that is requested by its id
_CUT = "\n…(cut)…"
_TOO_LARGE = "[message left out: too large to show]"
_SHOWN_FIELDS = (
    "api", "provider", "model", "stopReason", "errorMessage", "toolCallId", "toolName",
    "idempotencyKey",
)  # fmt: skip
_ABORT_FIELDS = {"aborted": bool, "origin": str, "runId": str}
_PAGE_ENTRIES = 50  # entries read in addition to the requested messages
_MAX_READ = 50_000


async def newest_path(
    store: Store, session_id: str, messages: int, before: str | None = None
) -> list[TranscriptEntry]:
    """Return the end of the session's path, with up to this many messages in it.

    With `before`, return the part that ends before this entry: empty when the path lacks it.
    """
    leaf = await store.leaf(session_id)
    count = messages * 2 + _PAGE_ENTRIES
    while True:
        entries = await store.entries(session_id, limit=count, newest=True)
        path = EntryTree(entries, leaf).path()
        if before is not None:
            path = path[: next((n for n, entry in enumerate(path) if entry.id == before), 0)]
        found = sum(entry.type == "message" for entry in path)
        is_complete = len(entries) < count or count >= _MAX_READ
        if leaf is None or is_complete or (found >= messages and path):
            return path
        count *= 4


async def find_entry(store: Store, session_id: str, entry_id: str) -> TranscriptEntry | None:
    """Return an entry of the session's transcript by its id."""
    count = 4 * _PAGE_ENTRIES
    while True:
        entries = await store.entries(session_id, limit=count, newest=True)
        found = next((entry for entry in reversed(entries) if entry.id == entry_id), None)
        if found or len(entries) < count or count >= _MAX_READ:
            return found
        count *= 4


def show_history(
    path: Sequence[TranscriptEntry], limit: int, max_chars: int | None = None
) -> list[Json]:
    """Return the newest messages of a path, oldest first, within the budget.

    With `max_chars`, the length of a text, they have what a client needs to load the rest:
    `__openclaw.id`, and `__openclaw.truncated` when something was left out.
    """
    shown: list[Json] = []
    left = MAX_BYTES
    for entry in reversed(path):
        message = show_entry(entry, max_chars)
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


def has_older(path: Sequence[TranscriptEntry], messages: Sequence[Json]) -> bool:
    """Return whether there are messages before these, which have ids and are the path's end."""
    first = messages[0]["__openclaw"]["id"] if messages else ""
    for entry in path if messages else ():
        if entry.id == first:
            return path[0].parent is not None
        if show_entry(entry) is not None:
            return True
    return False


def show_entry(entry: TranscriptEntry, max_chars: int | None = None) -> dict[str, Json] | None:
    """Return one entry for a client; None when it is no message.

    With `max_chars`, a text is cut there, and the message and its images can be referred to.
    """
    marker: dict[str, Json] = {} if max_chars is None else {"id": entry.id}
    if entry.type == "compaction":
        content = [{"type": "text", "text": "Compaction"}]
        shown: dict[str, Json] = {"role": "system", "content": content, "timestamp": entry.at_ms}
        return {**shown, "__openclaw": {"kind": "compaction", **marker}}
    message = entry.data.get("message") if entry.type == "message" else None
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        return None
    role = message["role"][:40]
    stored = _parts(message.get("content"))
    if max_chars is None:
        parts = [_show_part(part, role, MAX_TEXT_CHARS) for part in stored[:MAX_PARTS]]
    else:
        parts = _show_parts(stored, role, max_chars)
        if len(stored) > MAX_PARTS or any(_is_cut(part, max_chars) for part in stored):
            marker["truncated"] = True
    shown = {"role": role, "content": [part for part in parts if part]}
    if marker:
        shown["__openclaw"] = marker
    shown |= _fields(message)
    shown["timestamp"] = _stamp(message.get("timestamp")) or entry.at_ms
    return shown


def _show_parts(stored: list[Json], role: str, max_chars: int) -> list[dict[str, Json] | None]:
    """Return the parts of a message, with what a client needs to load their files."""
    parts = [_show_part(part, role, max_chars) for part in stored[:MAX_PARTS]]
    for index, part in enumerate(parts):
        if part and part["type"] == "image":
            part["index"] = index
    if role == "assistant":
        parts += [media for part in parts if part for media in _move_media(part)]
    return parts


def _fields(message: Mapping[str, Json]) -> dict[str, Json]:
    """Return the fields of a stored message that clients see."""
    shown: dict[str, Json] = {}
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
    return shown


def images_of(entry: TranscriptEntry) -> dict[int, str]:
    """Return the base64 data of the images in an entry's message, by the index of their part."""
    message = entry.data.get("message") if entry.type == "message" else None
    stored = _parts(message.get("content"))[:MAX_PARTS] if isinstance(message, dict) else []
    found = {
        index: part.get("data")
        for index, part in enumerate(stored)
        if isinstance(part, dict) and part.get("type") == "image"
    }
    return {index: data for index, data in found.items() if isinstance(data, str)}


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


def _show_part(part: Json, role: str, max_chars: int) -> dict[str, Json] | None:
    if isinstance(part, str):
        part = {"type": "text", "text": part}
    if not isinstance(part, dict):
        return None
    match part.get("type"):
        case "text":
            text = _str(part.get("text"))
            text = strip_envelope(text) if role == "user" else text
            return {"type": "text", "text": _cut(text, max_chars)}
        case "thinking":
            return {"type": "thinking", "thinking": _cut(_str(part.get("thinking")), max_chars)}
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


def _move_media(part: dict[str, Json]) -> list[dict[str, Json]]:
    """Remove the `MEDIA:` lines of a text, and return the files that they name."""
    if part["type"] != "text" or "MEDIA:" not in part["text"]:
        return []
    part["text"], paths = split_media(part["text"])[:2]
    return [{"type": "media", "path": path} for path in paths[:MAX_PARTS]]


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
    if marker := message.get("__openclaw"):
        fields["__openclaw"] = {**marker, "truncated": True}
        if "toolCallId" in message:
            fields["toolCallId"] = message["toolCallId"]
    return {**fields, "content": [{"type": "text", "text": _TOO_LARGE}]}


def _cut(text: str, max_chars: int) -> str:
    return text if len(text) <= max_chars else text[:max_chars] + _CUT


def _is_cut(part: Json, max_chars: int) -> bool:
    """Return whether a stored part has a text that is longer than is shown."""
    if isinstance(part, str):
        return len(part) > max_chars
    return isinstance(part, dict) and len(_str(part.get("text"))) > max_chars


def _str(value: Json) -> str:
    return value if isinstance(value, str) else ""


def _stamp(value: Json) -> int:
    """Return a time that another program may have written, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0
    return int(value) if 0 <= value <= MAX_INT else 0
