"""Sanitize one message for sending: no empty parts, lone surrogates or oversized results. Pure.

A message that needs no change stays the same object: adapters cache what they made of it.
"""

import json
from collections.abc import Mapping
from dataclasses import replace

from homarus.core.message import Image, Json, Message, Part, Text, Thinking, ToolCall, ToolResult
from homarus.core.text import clip_middle


def is_single_result(message: Message) -> bool:
    """Return whether a tool message is valid: it has a single result."""
    if message.role != "tool":
        return True
    return len(message.parts) == 1 and isinstance(message.parts[0], ToolResult)


def truncate_result(message: Message, max_chars: int) -> Message:
    """Return a tool message whose text has at most `max_chars`, with a marker where it is cut."""
    (result,) = (part for part in message.parts if isinstance(part, ToolResult))
    if sum(len(part.text) for part in result.content if isinstance(part, Text)) <= max_chars:
        return message
    content: list[Text | Image] = []
    left = max_chars
    for part in result.content:
        if isinstance(part, Text):
            content.append(Text(clip_middle(part.text, left)))
            left = max(0, left - len(part.text))
        else:
            content.append(part)
    return replace(message, parts=(replace(result, content=tuple(content)),))


def sanitize_message(message: Message) -> Message | None:
    """Return the message without what vendors refuse; None when nothing is left."""
    parts = tuple(
        sanitized for part in message.parts if (sanitized := _sanitize_part(part)) is not None
    )
    if message.role == "assistant" and all(isinstance(part, Thinking) for part in parts):
        return None  # an answer without text or calls
    if not parts:
        return message  # an empty user message: the adapter substitutes a text
    same = len(parts) == len(message.parts) and all(map(_is_same, parts, message.parts))
    return message if same else replace(message, parts=parts)


def _sanitize_part(part: Part) -> Part | None:
    match part:
        case Text(text):
            return (part if _encodes(text) else Text(_encodable(text))) if text.strip() else None
        case Thinking(text, signature):
            if _encodes(text):
                return part if text or signature else None
            return Thinking(_encodable(text))  # its signature is valid for the exact text only
        case Image(data, mime):
            return part if data and mime else None
        case ToolCall(args=args):
            return part if _is_plain(args) else replace(part, args=_plain(args))
        case ToolResult():
            return _sanitize_result(part)


def _sanitize_result(result: ToolResult) -> ToolResult:
    content: list[Text | Image] = []
    for part in result.content:
        sanitized = _sanitize_part(part)
        if isinstance(sanitized, Text | Image):
            content.append(sanitized)
    same = len(content) == len(result.content) and all(map(_is_same, content, result.content))
    return result if same else replace(result, content=tuple(content))


def _is_same(one: Part, other: Part) -> bool:
    return one is other


def _encodes(text: str) -> bool:
    """Whether a text has no lone surrogate, which UTF-8 cannot encode."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _encodable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def _is_plain(args: Mapping[str, Json]) -> bool:
    try:
        return _encodes(json.dumps(args, ensure_ascii=False, default=dict))
    except (ValueError, RecursionError):
        return False


def _plain(args: Mapping[str, Json]) -> dict[str, Json]:
    """Return the arguments as valid JSON; empty when they cannot be encoded."""
    try:
        text = json.dumps(args, ensure_ascii=False, default=dict)
        decoded: dict[str, Json] = json.loads(_encodable(text))
    except (ValueError, RecursionError):
        return {}
    return decoded
