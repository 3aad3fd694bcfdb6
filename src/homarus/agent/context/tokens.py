"""How many tokens something will count: a guess from its bytes, held to what vendors counted.

A token is about four bytes of UTF-8, in any script. An answer tells what its prompt really
counted; from then on guesses are scaled by how wrong the last one was. Pure.
"""

import json
import math
from collections.abc import Iterable

from homarus.core.message import Image, Json, Message, Part, Text, Thinking, ToolCall, ToolReturn
from homarus.core.value import dataclass
from homarus.providers.base import Request, ToolSpec

BYTES_PER_TOKEN = 4
IMAGE_BYTES = 8_000  # what an image weighs beside text
_EACH = 16  # of a message: its role and its frame
_UNMEASURED = 1.2  # a guess that nothing has confirmed is taken with this margin,
_MEASURED = 1.05  # one that was scaled with this
_LEAST, _MOST = 0.5, 4.0  # no vendor's count is further from a guess than this


@dataclass(frozen=True, slots=True)
class Measured:
    """What a prompt was guessed at, and what the vendor counted."""

    guess: int
    counted: int


def expected(guess: int, measured: Measured | None = None) -> int:
    """What a request of this guess will count, rather too many than too few."""
    if measured is None or measured.guess <= 0 or measured.counted <= 0:
        return math.ceil(guess * _UNMEASURED)
    scale = min(max(measured.counted / measured.guess, _LEAST), _MOST)
    return math.ceil(guess * scale * _MEASURED)


def tokens_in(text: str) -> int:
    """A guess at a text."""
    return -(-text_bytes(text) // BYTES_PER_TOKEN)


def message_tokens(message: Message) -> int:
    """A guess at a message."""
    return -(-message_bytes(message) // BYTES_PER_TOKEN)


def fixed_tokens(system: str, tools: Iterable[ToolSpec]) -> int:
    """What comes with every request: the system prompt and the tools."""
    return tokens_in(system) + sum(tokens_in(_spec(tool)) for tool in tools)


def request_tokens(request: Request) -> int:
    """What a whole request will count, rather too many than too few."""
    messages = sum(map(message_tokens, request.messages))
    return expected(fixed_tokens(request.system, request.tools) + messages)


def message_bytes(message: Message) -> int:
    """What a message weighs: its text in UTF-8, and so much for each image."""
    return _EACH + sum(map(_part_bytes, message.parts))


def text_bytes(text: str) -> int:
    """The length of a text in UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def _part_bytes(part: Part) -> int:
    match part:
        case Text(text) | Thinking(text):
            return text_bytes(text)
        case Image():
            return IMAGE_BYTES
        case ToolCall():
            return len(part.name) + _EACH + text_bytes(_json(part.args))
        case ToolReturn():
            return _EACH + sum(map(_part_bytes, part.content))


def _spec(tool: ToolSpec) -> str:
    return f"{tool.name}{tool.description}{_json(tool.parameters)}"


def _json(value: Json) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, default=dict)
    except (ValueError, RecursionError):  # it cannot be sent either
        return ""
