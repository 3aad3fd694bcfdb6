"""Encode turns of Anthropic's messages API as JSON."""

import json
from collections.abc import Iterable, Mapping, Sequence

from homarus.core.message import Json, Message, Text, Thinking
from homarus.providers.anthropic_blocks import (
    AnthropicBlock,
    AnthropicTurn,
    AnthropicTurnBuilder,
    ContentBlock,
    FileBlock,
    tool_schemas,
    wire_name,
)
from homarus.providers.anthropic_stream import REDACTED
from homarus.providers.base import ToolSpec
from homarus.providers.conversation import INTERRUPTED, Author, encode_json

API = "anthropic-messages"


class AnthropicMessageRenderer:
    """Renders messages for one model of one service.

    `unsigned` says that the model takes its reasoning back without a signature.
    """

    def __init__(self, *, provider: str, model: str, sees_images: bool, unsigned: bool) -> None:
        author = Author(provider, model, API)
        self._builder: AnthropicTurnBuilder[bytes] = AnthropicTurnBuilder(
            _JsonEncoder(), author, sees_images=sees_images, unsigned=unsigned
        )

    def render(
        self, messages: Iterable[Message], *, reasoning: bool = True
    ) -> list[AnthropicTurn[bytes]]:
        return self._builder.build(messages, reasoning=reasoning)


class _JsonEncoder:
    """Encodes blocks as JSON; those that need an id get it behind their type."""

    def block(self, block: AnthropicBlock) -> bytes:
        match block:
            case Text(text):
                return encode_json({"type": "text", "text": text})
            case Thinking(text, signature) if signature.startswith(REDACTED):
                data = signature.removeprefix(REDACTED)
                return encode_json({"type": "redacted_thinking", "data": data})
            case Thinking(text, signature):
                return encode_json({"type": "thinking", "thinking": text, "signature": signature})
            case FileBlock():
                return encode_json(_file(block))
            case _:
                name = wire_name(block.call.name)
                return encode_json({"name": name, "input": finite_args(block.call.args)})

    def result(self, content: Sequence[ContentBlock], *, is_error: bool) -> bytes:
        blocks = b",".join(map(self.block, content))
        return b'{"content":[' + blocks + (b'],"is_error":true}' if is_error else b"]}")

    def with_call_id(self, encoded: bytes, call_id: str) -> bytes:
        return b'{"type":"tool_use","id":"%b",%b' % (call_id.encode(), encoded[1:])

    def with_result_id(self, encoded: bytes | None, call_id: str) -> bytes:
        rest = (encoded or _LOST)[1:]
        return b'{"type":"tool_result","tool_use_id":"%b",%b' % (call_id.encode(), rest)


def turn_json(turn: AnthropicTurn[bytes], marker: bytes = b"") -> bytes:
    """Return the turn as JSON; `marker` goes into its last block."""
    blocks = [*turn.results, *turn.blocks]
    if marker:
        blocks[-1] = with_cache_marker(blocks[-1], marker)
    return b'{"role":"%b","content":[%b]}' % (turn.role.encode(), b",".join(blocks))


def with_cache_marker(block: bytes, marker: bytes) -> bytes:
    """Return a block with a cache marker."""
    return block[:-1] + b',"cache_control":' + marker + b"}"


def tool_list(tools: Mapping[str, ToolSpec], marker: bytes = b"") -> bytes:
    """Return the tools a model may call as JSON; `marker` goes into the last."""
    listed = [encode_json(schema) for schema in tool_schemas(tools)]
    if listed and marker:
        listed[-1] = with_cache_marker(listed[-1], marker)
    return b"[" + b",".join(listed) + b"]"


def finite_args(args: Mapping[str, Json]) -> dict[str, Json]:
    """Return a call's arguments; none when they hold a number that JSON does not have."""
    given = dict(args)
    try:
        json.dumps(given, allow_nan=False)
    except ValueError:
        return {}
    return given


def _file(file: FileBlock) -> dict[str, Json]:
    encoding = "text" if file.kind == "text" else "base64"
    source = {"type": encoding, "media_type": file.mime, "data": file.data}
    return {"type": "image" if file.kind == "image" else "document", "source": source}


_LOST = b'{"content":[' + encode_json({"type": "text", "text": INTERRUPTED}) + b"]}"
