"""Assemble an answer of Bedrock's ConverseStream from its events.

Event names with payloads go in, deltas come out; at the end the parts, the stop reason and the
usage are available. Unknown kinds of blocks and events are ignored.
"""

import base64
import binascii
import uuid
from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

from homarus.core.message import Image, Json, Part, StopReason, Text, Thinking, ToolCall, Usage
from homarus.providers.anthropic_stream import REDACTED, usage_of
from homarus.providers.base import Delta, TextDelta, ThinkingDelta
from homarus.providers.catalog import Price
from homarus.providers.chat_stream import (
    MalformedChunkError,
    find_object,
    get_object,
    get_text,
    make_tool_call,
)

_STOPS: dict[str, StopReason] = {"max_tokens": "length", "model_context_window_exceeded": "length"}
_Kind: TypeAlias = Literal["text", "thinking", "redacted", "tool", "image", "other"]


class _ConverseBlock:
    __slots__ = ("data", "id", "kind", "name", "pieces", "signature")

    def __init__(self, kind: _Kind) -> None:
        self.kind = kind
        self.pieces: list[str] = []  # text, reasoning, or a tool's input as JSON
        self.data = bytearray()  # a picture or redacted reasoning
        self.signature = ""
        self.id = ""
        self.name = ""  # the tool's name or the picture's format


class ConverseStreamAssembler:
    """Assembles one streamed answer."""

    def __init__(self) -> None:
        self.finish = ""  # the vendor's stop reason
        self.done = False  # the usage was received, which is the last event
        self._blocks: list[_ConverseBlock] = []
        self._by_index: dict[int, _ConverseBlock] = {}
        self._usage: Mapping[str, Json] = {}

    def add(self, name: str, event: Mapping[str, Json]) -> Sequence[Delta]:
        match name:
            case "contentBlockDelta":
                return self._add_delta(_index(event), get_object(event, "delta"))
            case "contentBlockStart":
                self._begin(_index(event), get_object(event, "start"))
            case "messageStop":
                self.finish = get_text(event, "stopReason") or "end_turn"
            case "metadata":
                self._usage = find_object(event, "usage")
                self.done = bool(self.finish)
        return ()

    def message_parts(self, names: Mapping[str, str] | None = None) -> tuple[Part, ...]:
        """Return the reasoning, text, pictures and tool calls.

        `names` maps tool names on the wire to ours.
        """
        seen: set[str] = set()
        parts: list[Part] = []
        for block in self._blocks:
            if block.kind == "tool":
                parts.append(_call(block, seen, names or {}))
            elif (part := _part(block)) is not None:
                parts.append(part)
        return tuple(parts)

    def stop(self) -> StopReason:
        stop = _STOPS.get(self.finish, "stop")
        if stop == "length":
            return stop
        return "toolUse" if any(block.kind == "tool" for block in self._blocks) else "stop"

    def usage(self, price: Price) -> Usage:
        """Return tokens and cost. The vendor's input count excludes tokens of the cache."""
        details = self._usage.get("cacheDetails")
        kept = filter(_is_for_an_hour, details if isinstance(details, list) else ())
        for_an_hour: Mapping[str, Json] = next(kept, {})
        raw = {
            "input_tokens": self._usage.get("inputTokens"),
            "output_tokens": self._usage.get("outputTokens"),
            "cache_read_input_tokens": self._usage.get("cacheReadInputTokens"),
            "cache_creation_input_tokens": self._usage.get("cacheWriteInputTokens"),
            "cache_creation": {"ephemeral_1h_input_tokens": for_an_hour.get("inputTokens")},
        }
        return usage_of(raw, price)

    def _add_delta(self, index: int, delta: Mapping[str, Json]) -> Sequence[Delta]:
        if "text" in delta:
            text = get_text(delta, "text")
            self._block(index, "text").pieces.append(text)
            return (TextDelta(text),) if text else ()
        if "reasoningContent" in delta:
            return self._thought(index, get_object(delta, "reasoningContent"))
        if "toolUse" in delta:
            block = self._by_index.get(index)
            if block is None:
                raise MalformedChunkError("a tool's input without its tool")
            block.pieces.append(get_text(get_object(delta, "toolUse"), "input"))
        elif "image" in delta:
            source = find_object(get_object(delta, "image"), "source")
            self._block(index, "image").data += _bytes(source, "bytes")
        return ()

    def _thought(self, index: int, thought: Mapping[str, Json]) -> Sequence[Delta]:
        if "redactedContent" in thought:
            self._block(index, "redacted").data += _bytes(thought, "redactedContent")
            return ()
        block = self._block(index, "thinking")
        block.signature += get_text(thought, "signature")
        text = get_text(thought, "text")
        block.pieces.append(text)
        return (ThinkingDelta(text),) if text else ()

    def _begin(self, index: int, start: Mapping[str, Json]) -> None:
        """Start a block; text and reasoning start without this event."""
        tool, image = find_object(start, "toolUse"), find_object(start, "image")
        if tool and not tool.get("type"):  # with a type it is a tool the service runs itself
            block = self._open(index, "tool")
            block.id, block.name = get_text(tool, "toolUseId"), get_text(tool, "name")
        elif image:
            self._open(index, "image").name = get_text(image, "format")
        else:
            self._open(index, "other")

    def _open(self, index: int, kind: _Kind) -> _ConverseBlock:
        block = self._by_index[index] = _ConverseBlock(kind)
        self._blocks.append(block)
        return block

    def _block(self, index: int, kind: _Kind) -> _ConverseBlock:
        block = self._by_index.get(index)
        return block if block is not None and block.kind == kind else self._open(index, kind)


def _part(block: _ConverseBlock) -> Part | None:
    text = "".join(block.pieces)
    match block.kind:
        case "text" if text:
            return Text(text)
        case "thinking" if text or block.signature:
            return Thinking(text, block.signature)
        case "redacted" if block.data:
            return Thinking("", REDACTED + base64.b64encode(block.data).decode())
        case "image" if block.data:
            kind = f"image/{block.name or 'png'}"
            return Image(base64.b64encode(block.data).decode(), kind)
        case _:
            return None


def _call(block: _ConverseBlock, seen: set[str], names: Mapping[str, str]) -> ToolCall:
    known = block.id and block.id not in seen
    call_id = block.id if known else f"tooluse_{uuid.uuid4().hex[:24]}"
    seen.add(call_id)
    return make_tool_call(call_id, names.get(block.name, block.name), "".join(block.pieces))


def _is_for_an_hour(row: Json) -> bool:
    return isinstance(row, dict) and row.get("ttl") == "1h"


def _index(event: Mapping[str, Json]) -> int:
    index = event.get("contentBlockIndex")
    return index if isinstance(index, int) else 0


def _bytes(raw: Mapping[str, Json], name: str) -> bytes:
    try:
        return base64.b64decode(get_text(raw, name))
    except (binascii.Error, ValueError) as exc:
        raise MalformedChunkError(f"{name} is not base64") from exc
