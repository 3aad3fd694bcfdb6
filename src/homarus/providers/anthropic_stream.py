"""Assemble an answer of Anthropic's messages API from its events.

Parsed events go in, deltas come out; at the end the parts, the stop reason and the usage are
available. Blocks keep their order and reasoning keeps its signature, because both must be sent back
unchanged. Unknown kinds of blocks and events are ignored: the vendor adds some every year.
"""

import json
import uuid
from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

from homarus.core.message import Json, Part, StopReason, Text, Thinking, ToolCall, Usage
from homarus.providers.base import Delta, TextDelta, ThinkingDelta
from homarus.providers.catalog import Price
from homarus.providers.chat_stream import (
    MalformedChunkError,
    find_object,
    get_object,
    get_text,
    token_count,
)

# Redacted reasoning has no text; its data is stored as its signature. A real signature is base64
# and has no colon.
REDACTED = "redacted:"
# The price of an hour in the cache relative to the default of five minutes.
HOUR_FACTOR = 1.6

_STOPS: dict[str, StopReason] = {"max_tokens": "length", "model_context_window_exceeded": "length"}
_Kind: TypeAlias = Literal["text", "thinking", "redacted", "tool", "other"]
_KINDS: dict[str, _Kind] = {
    "text": "text",
    "thinking": "thinking",
    "redacted_thinking": "redacted",
    "tool_use": "tool",
}


class _AnthropicBlock:
    __slots__ = ("given", "id", "kind", "name", "pieces", "signature")

    def __init__(self, kind: _Kind) -> None:
        self.kind = kind
        self.pieces: list[str] = []  # text, reasoning, or a tool's input as JSON
        self.signature = ""
        self.id = ""
        self.name = ""
        self.given: dict[str, Json] = {}  # input that was complete before any delta


class AnthropicStreamAssembler:
    """Assembles one streamed answer."""

    def __init__(self) -> None:
        self.finish = ""  # the vendor's stop reason
        self.refusal = ""  # the explanation of a refusal
        self.done = False  # the last event was received
        self._blocks: list[_AnthropicBlock] = []
        self._by_index: dict[int, _AnthropicBlock] = {}
        self._usage: dict[str, Json] = {}

    def add(self, event: Mapping[str, Json]) -> Sequence[Delta]:
        match event.get("type"):
            case "content_block_delta":
                return self._add_delta(event)
            case "content_block_start":
                return self._begun(_index(event), get_object(event, "content_block"))
            case "message_start":
                self._note_usage(get_object(event, "message").get("usage"))
            case "message_delta":
                self._note_end(get_object(event, "delta"), event.get("usage"))
            case "message_stop":
                self.done = True
            case "message":
                return self._whole(event)
        return ()

    def message_parts(self, names: Mapping[str, str] | None = None) -> tuple[Part, ...]:
        """Return reasoning, text and tool calls; `names` maps tool names on the wire to ours."""
        seen: set[str] = set()
        parts: list[Part] = []
        for block in self._blocks:
            text = "".join(block.pieces)
            match block.kind:
                case "text" if text:
                    parts.append(Text(text))
                case "thinking" if text or block.signature:
                    parts.append(Thinking(text, block.signature))
                case "redacted" if block.signature:
                    parts.append(Thinking("", REDACTED + block.signature))
                case "tool":
                    known = block.id and block.id not in seen
                    call_id = block.id if known else f"toolu_{uuid.uuid4().hex[:24]}"
                    seen.add(call_id)
                    name = (names or {}).get(block.name, block.name)
                    parts.append(_call(call_id, name, text, block.given))
        return tuple(parts)

    def stop(self) -> StopReason:
        stop = _STOPS.get(self.finish, "stop")
        if stop == "length":
            return stop
        return "toolUse" if any(block.kind == "tool" for block in self._blocks) else "stop"

    def usage(self, price: Price) -> Usage:
        """Return tokens and cost. The vendor's input count excludes tokens of the cache."""
        return usage_of(self._usage, price)

    def _add_delta(self, event: Mapping[str, Json]) -> Sequence[Delta]:
        delta = get_object(event, "delta")
        match delta.get("type"):
            case "text_delta":
                text = get_text(delta, "text")
                self._block(_index(event), "text").pieces.append(text)
                return (TextDelta(text),) if text else ()
            case "thinking_delta":
                text = get_text(delta, "thinking")
                self._block(_index(event), "thinking").pieces.append(text)
                return (ThinkingDelta(text),) if text else ()
            case "signature_delta":
                self._block(_index(event), "thinking").signature = get_text(delta, "signature")
            case "input_json_delta":
                self._add_input(_index(event), get_text(delta, "partial_json"))
        return ()

    def _begun(self, index: int, block: Mapping[str, Json]) -> Sequence[Delta]:
        """Start a block; some services send all of it here."""
        kind = _KINDS.get(str(block.get("type")), "other")
        opened = self._open(index, kind)
        match kind:
            case "text":
                text = get_text(block, "text")
                opened.pieces.append(text)
                return (TextDelta(text),) if text else ()
            case "thinking":
                text = get_text(block, "thinking")
                opened.pieces.append(text)
                opened.signature = get_text(block, "signature")
                return (ThinkingDelta(text),) if text else ()
            case "redacted":
                opened.signature = get_text(block, "data")
            case "tool":
                opened.id, opened.name = get_text(block, "id"), get_text(block, "name")
                given = block.get("input")
                opened.given = given if isinstance(given, dict) else {}
        return ()

    def _whole(self, message: Mapping[str, Json]) -> Sequence[Delta]:
        content = message.get("content")
        if not isinstance(content, list):
            raise MalformedChunkError("content is not a list of blocks")
        said: list[Delta] = []
        for index, block in enumerate(content):
            if not isinstance(block, dict):
                raise MalformedChunkError("a block is not an object")
            said += self._begun(index, block)
        self._note_end(message, message.get("usage"))
        self.done = True
        return said

    def _open(self, index: int, kind: _Kind) -> _AnthropicBlock:
        block = self._by_index[index] = _AnthropicBlock(kind)
        self._blocks.append(block)
        return block

    def _block(self, index: int, kind: _Kind) -> _AnthropicBlock:
        block = self._by_index.get(index)
        return block if block is not None and block.kind == kind else self._open(index, kind)

    def _add_input(self, index: int, piece: str) -> None:
        block = self._by_index.get(index)
        if block is None:
            raise MalformedChunkError("a tool's input without its tool")
        block.pieces.append(piece)

    def _note_end(self, ended: Mapping[str, Json], usage: Json) -> None:
        self.finish = get_text(ended, "stop_reason") or self.finish
        details = ended.get("stop_details")
        if isinstance(details, dict):
            reasons = (details.get("explanation"), details.get("category"))
            self.refusal = next((word for word in reasons if word and isinstance(word, str)), "")
        self._note_usage(usage)

    def _note_usage(self, usage: Json) -> None:
        """Record usage; later counts replace earlier ones, absent ones keep them."""
        if isinstance(usage, dict):
            self._usage.update((name, count) for name, count in usage.items() if count is not None)


def usage_of(raw: Mapping[str, Json], price: Price) -> Usage:
    """Convert the vendor's usage object."""
    given, answered = token_count(raw, "input_tokens"), token_count(raw, "output_tokens")
    cached, written = (
        token_count(raw, "cache_read_input_tokens"),
        token_count(raw, "cache_creation_input_tokens"),
    )
    for_an_hour = min(
        token_count(find_object(raw, "cache_creation"), "ephemeral_1h_input_tokens"), written
    )
    reasoning = token_count(find_object(raw, "output_tokens_details"), "thinking_tokens")
    cost = (
        given * price.input
        + answered * price.output
        + cached * price.cache_read
        + (written + (HOUR_FACTOR - 1) * for_an_hour) * price.cache_write
    ) / 1_000_000
    return Usage(given, answered, cached, written, reasoning, cost)


def _call(call_id: str, name: str, text: str, given: Mapping[str, Json]) -> ToolCall:
    if not text.strip():
        return ToolCall(call_id, name, given)
    try:
        args = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        args = None
    if not isinstance(args, dict):
        return ToolCall(call_id, name, {}, broken=text)
    return ToolCall(call_id, name, args)


def _refuse(word: str) -> Json:
    raise ValueError(f"{word} is not JSON")


def _index(event: Mapping[str, Json]) -> int:
    index = event.get("index")
    return index if isinstance(index, int) else 0
