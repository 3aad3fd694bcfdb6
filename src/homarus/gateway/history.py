"""A part of a session's transcript as clients see it, with bounded sizes.

Transcripts are read from their end, only as far as requested. Stored content is not trusted: a
message of any shape, from any program, becomes something small that can be shown. A client that
pages through a transcript gets the id of every message, and can load one message as a whole.
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
MAX_WHOLE_CHARS = 4_000_000  # of each text of a message that is requested by its id
_CUT = "\n…(cut)…"
_TOO_LARGE = "[message left out: too large to show]"
_SHOWN_FIELDS = (
    "api", "provider", "model", "stopReason", "errorMessage", "toolCallId", "toolName",
    "idempotencyKey",
)  # fmt: skip
_USAGE_FIELDS = ("input", "output", "cacheRead", "cacheWrite", "totalTokens")
_PROVENANCE_FIELDS = ("kind", "sourceSessionKey", "sourceChannel", "sourceTool")
_ABORT_FIELDS = {"aborted": bool, "origin": str, "runId": str}
_PAGE_ENTRIES = 50  # entries read in addition to the requested messages
_MAX_READ = 50_000


class _File(str):
    """The path or URL of a file that a reply names; a stored part cannot claim to be one."""

    __slots__ = ()


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
    stored = list(enumerate(_parts(message.get("content"))))
    is_cut = len(stored) > MAX_PARTS
    if role == "assistant":
        stored = _clean(stored, _str(message.get("provider")))
    parts = _show_parts(stored[:MAX_PARTS], role, max_chars or MAX_TEXT_CHARS)
    if max_chars is not None:
        for index, part in parts:
            if part["type"] == "image":
                part["index"] = index
        if is_cut or any(_is_cut(part, max_chars) for _, part in stored):
            marker["truncated"] = True
    shown = {"role": role, "content": [part for _, part in parts]}
    if marker:
        shown["__openclaw"] = marker
    shown |= _fields(message)
    if max_chars is not None:
        shown |= _figures(message)
    shown["timestamp"] = _stamp(message.get("timestamp")) or entry.at_ms
    return shown


def _show_parts(
    stored: Sequence[tuple[int, Json]], role: str, max_chars: int
) -> list[tuple[int, dict[str, Json]]]:
    """Return the parts of a message that are shown, by their index."""
    parts = [(index, _show_part(part, role, max_chars)) for index, part in stored]
    return [(index, part) for index, part in parts if part]


def _clean(stored: list[tuple[int, Json]], provider: str) -> list[tuple[int, Json]]:
    """Return the parts of a model's message with its texts as readers get them.

    Reasoning in a text becomes a part before it, and the files that it names become parts.
    """
    from homarus.agent.reply.reply_cleaner import has_markup, make_reply_cleaner

    texts = [at for at, (_, part) in enumerate(stored) if _text(part) is not None]
    if not any(has_markup(_text(stored[at][1]) or "") for at in texts):
        return stored
    cleaner, cleaned = make_reply_cleaner(provider), list[tuple[int, Json]]()
    for at, (index, part) in enumerate(stored):
        if (text := _text(part)) is None:
            cleaned.append((index, part))
            continue
        found = [cleaner.feed(text), *([cleaner.finish()] if at == texts[-1] else [])]
        visible = "".join(piece.visible for piece in found)
        reasoning = "".join(piece.reasoning for piece in found).strip()
        parts: list[Json] = [{"type": "thinking", "thinking": reasoning}] if reasoning else []
        parts += [{"type": "text", "text": visible}] if visible else []
        parts += [_File(path) for piece in found for path in piece.media[:MAX_PARTS]]
        cleaned += [(index, part) for part in parts]
    return cleaned


def _text(part: Json) -> str | None:
    """Return the text of a part that has one."""
    if isinstance(part, str):
        return part
    is_text = isinstance(part, dict) and part.get("type") == "text"
    return _str(part.get("text")) if is_text else None


def _fields(message: Mapping[str, Json]) -> dict[str, Json]:
    """Return the fields of a stored message that clients see."""
    shown: dict[str, Json] = {}
    for name in _SHOWN_FIELDS:
        value = message.get(name)
        if isinstance(value, str) and value:
            shown[name] = value[:2_000]
    if isinstance(message.get("isError"), bool):
        shown["isError"] = message["isError"]
    if isinstance(source := message.get("provenance"), dict):
        texts = {name: source.get(name) for name in _PROVENANCE_FIELDS}
        shown["provenance"] = {k: v[:2_000] for k, v in texts.items() if isinstance(v, str)}
    if isinstance(abort := message.get("openclawAbort"), dict):
        fields = {name: abort.get(name) for name, kind in _ABORT_FIELDS.items()
                if isinstance(abort.get(name), kind)}  # fmt: skip
        shown["openclawAbort"] = {
            k: v[:2_000] if isinstance(v, str) else v for k, v in fields.items()
        }
    return shown


def _figures(message: Mapping[str, Json]) -> dict[str, Json]:
    """Return the tokens and the cost of a message, and the details of a tool result."""
    shown: dict[str, Json] = {}
    if isinstance(usage := message.get("usage"), dict):
        counts: dict[str, Json] = {k: n for k in _USAGE_FIELDS if (n := _count(usage.get(k)))}
        cost = usage.get("cost")
        if total := _count(cost.get("total") if isinstance(cost, dict) else None):
            counts["cost"] = {"total": total}
        shown |= {"usage": counts} if counts else {}
    details = message.get("details")
    if isinstance(details, dict) and len(json.dumps(details)) <= MAX_TEXT_CHARS:
        shown["details"] = details
    return shown


def _count(value: Json) -> float:
    """Return a number that another program may have written; 0 for anything else."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number and 0 <= value <= MAX_INT else 0


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
    if isinstance(part, _File):
        return {"type": "media", "path": part}
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
    """Return whether a part has a text that is longer than is shown."""
    return len(_text(part) or "") > max_chars


def _str(value: Json) -> str:
    return value if isinstance(value, str) else ""


def _stamp(value: Json) -> int:
    """Return a time that another program may have written, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0
    return int(value) if 0 <= value <= MAX_INT else 0
