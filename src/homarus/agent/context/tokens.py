"""Estimate how many tokens something counts, calibrated by the counts of vendors.

A token is about four bytes of UTF-8, in any script. An answer reports the true count of its
prompt; from then on estimates are scaled by the last error. Pure.
"""

import json
import math
from collections.abc import Iterable

from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Image, Json, Message, Part, Text, Thinking, ToolCall, ToolResult
from homarus.providers.base import ModelRequest, ToolSpec

BYTES_PER_TOKEN = 4
IMAGE_BYTES = 8_000  # the size of an image, in bytes of text
_EACH = 16  # per message: its role and framing
_UNMEASURED = 1.2  # margin of an estimate without a measurement,
_MEASURED = 1.05  # and of a scaled one
_MIN_SCALE, _MAX_SCALE = 0.5, 4.0


@dataclass(frozen=True, slots=True)
class TokenMeasurement:
    """The estimate of a prompt, and the vendor's count of it."""

    estimate: int
    counted: int


def estimate_tokens(estimate: int, measured: TokenMeasurement | None = None) -> int:
    """Scale an estimate to the expected count, with a margin."""
    if measured is None or measured.estimate <= 0 or measured.counted <= 0:
        return math.ceil(estimate * _UNMEASURED)
    scale = min(max(measured.counted / measured.estimate, _MIN_SCALE), _MAX_SCALE)
    return math.ceil(estimate * scale * _MEASURED)


def tokens_in(text: str) -> int:
    """Estimate the tokens of a text."""
    return -(-text_bytes(text) // BYTES_PER_TOKEN)


def message_tokens(message: Message) -> int:
    """Estimate the tokens of a message."""
    return -(-message_bytes(message) // BYTES_PER_TOKEN)


def fixed_tokens(system: str, tools: Iterable[ToolSpec]) -> int:
    """Estimate the system prompt and the tools, which come with every request."""
    return tokens_in(system) + sum(tokens_in(_spec(tool)) for tool in tools)


def request_tokens(request: ModelRequest) -> int:
    """Estimate a complete request, with a margin."""
    messages = sum(map(message_tokens, request.messages))
    return estimate_tokens(fixed_tokens(request.system, request.tools) + messages)


def message_bytes(message: Message) -> int:
    """Return the size of a message: its text in UTF-8, and a fixed size per image."""
    return _EACH + sum(map(_part_bytes, message.parts))


def text_bytes(text: str) -> int:
    """Return the length of a text in UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def _part_bytes(part: Part) -> int:
    match part:
        case Text(text) | Thinking(text):
            return text_bytes(text)
        case Image():
            return IMAGE_BYTES
        case ToolCall():
            return len(part.name) + _EACH + text_bytes(_json(part.args))
        case ToolResult():
            return _EACH + sum(map(_part_bytes, part.content))


def _spec(tool: ToolSpec) -> str:
    return f"{tool.name}{tool.description}{_json(tool.parameters)}"


def _json(value: Json) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, default=dict)
    except (ValueError, RecursionError):  # it cannot be sent either
        return ""
