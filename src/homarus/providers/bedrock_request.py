"""Encode turns as a request of Bedrock's Converse API.

Converse is Anthropic's messages API with other field names, so `AnthropicTurnBuilder` makes the
turns. This module encodes them within Bedrock's limits: the number of pictures and documents, no
blank text, a list of tools wherever there are calls.
"""

import base64
import binascii
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import TypeAlias

from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json, Text, Thinking
from homarus.providers.anthropic_blocks import (
    AnthropicBlock,
    AnthropicTurn,
    AnthropicTurnBuilder,
    ContentBlock,
    FileBlock,
    wire_name,
)
from homarus.providers.anthropic_request import finite_args
from homarus.providers.anthropic_stream import REDACTED
from homarus.providers.conversation import (
    INTERRUPTED,
    NO_OUTPUT,
    NO_TEXT,
    PICTURE_BELOW,
    PICTURES,
    Author,
    CallBlock,
)

API = "bedrock-converse-stream"
# The limits of one request.
MAX_PICTURES = 20
MAX_DOCUMENTS = 5
MAX_DEPTH = 100  # of a tool's input or schema; the library validates it recursively
MARKED_TURNS = 2  # together with tools and system these are the four markers the vendor allows
OLD_FILE = "[An older document was left out: there are too many.]"
OLD_PICTURE = "[An older picture was left out: there are too many.]"


@dataclass(frozen=True, slots=True)
class ResultBlock:
    """The result of a call under the call's id."""

    id: str
    content: tuple[ContentBlock, ...]
    is_error: bool = False


ConverseBlock: TypeAlias = AnthropicBlock | ResultBlock


class _TypedEncoder:
    """Keeps blocks typed: each request encodes them with its own names and limits."""

    def block(self, block: AnthropicBlock) -> ConverseBlock:
        return block

    def result(self, content: Sequence[ContentBlock], *, is_error: bool) -> ConverseBlock:
        return ResultBlock("", tuple(content), is_error)

    def with_call_id(self, encoded: ConverseBlock, call_id: str) -> ConverseBlock:
        return CallBlock(call_id, encoded.call) if isinstance(encoded, CallBlock) else encoded

    def with_result_id(self, encoded: ConverseBlock | None, call_id: str) -> ConverseBlock:
        if isinstance(encoded, ResultBlock):
            return ResultBlock(call_id, encoded.content, encoded.is_error)
        return ResultBlock(call_id, (Text(INTERRUPTED),))


class ConverseTurnBuilder(AnthropicTurnBuilder[ConverseBlock]):
    """Builds the turns of requests to one model."""

    def __init__(self, *, provider: str, model: str, sees_images: bool) -> None:
        author = Author(provider, model, API)
        super().__init__(_TypedEncoder(), author, sees_images=sees_images, unsigned=False)


@dataclass(frozen=True, slots=True)
class ConverseRequest:
    """A request before it is encoded; `fields` are all others.

    `rich` says that the model accepts pictures and an error status in a tool's result. `marker` is
    the cache point to set; empty for none.
    """

    model: str
    system: str
    turns: Sequence[AnthropicTurn[ConverseBlock]]
    tools: Sequence[Mapping[str, Json]]
    rich: bool
    marker: Mapping[str, Json] = field(default_factory=dict)
    fields: Mapping[str, Json] = field(default_factory=dict)


def encode_converse(converse: ConverseRequest) -> dict[str, Json]:
    """Return the request in the form of AWS's library."""
    mark = [{"cachePoint": dict(converse.marker)}] if converse.marker else []
    request: dict[str, Json] = {
        "modelId": converse.model,
        "messages": messages(converse.turns, rich=converse.rich, mark=mark),
    }
    if converse.system.strip():
        request["system"] = [{"text": _encodable(converse.system)}, *mark]
    if converse.tools:
        request["toolConfig"] = {"tools": [*map(_tool, converse.tools), *mark]}
    return {**request, **converse.fields}


def messages(
    turns: Iterable[AnthropicTurn[ConverseBlock]],
    *,
    rich: bool,
    mark: Sequence[Mapping[str, Json]] = (),
) -> list[Json]:
    """Return the turns as messages; `mark` is appended to the last two of the user."""
    names = (f"document {number}" for number in range(1, 1_000_000))
    made: list[Json] = []
    for turn in turns:
        blocks = (*turn.results, *turn.blocks)
        content = [made for block in blocks for made in _block(block, names)]
        if not rich:
            content = list(_plain_results(content))
        made.append({"role": turn.role, "content": content})
    _leave_out(made, "image", MAX_PICTURES, OLD_PICTURE)
    _leave_out(made, "document", MAX_DOCUMENTS, OLD_FILE)
    for message in made:
        _accompany(message["content"])
    for message in [each for each in made if each["role"] == "user"][-MARKED_TURNS:]:
        message["content"] += mark
    return made


def _block(block: ConverseBlock, names: Iterator[str]) -> list[dict[str, Json]]:
    """Return one block in Converse's form; none for what it cannot hold."""
    match block:
        case Text(text):
            return [{"text": _encodable(text)}]
        case Thinking(text, signature) if signature.startswith(REDACTED):
            data = _bytes(_encodable(signature.removeprefix(REDACTED)))
            return [{"reasoningContent": {"redactedContent": data}}] if data else []
        case Thinking(text, signature):
            signed = {"text": _encodable(text), "signature": _encodable(signature)}
            return [{"reasoningContent": {"reasoningText": signed}}]
        case CallBlock(call_id, call):
            given = finite_args(call.args)
            given = encodable(given) if is_shallow(given) else {}
            return [
                {"toolUse": {"toolUseId": call_id, "name": wire_name(call.name), "input": given}}
            ]
        case ResultBlock(call_id, shown, is_error):
            content = [made for inner in shown for made in _block(inner, names)]
            result = {"toolUseId": call_id, "content": content}
            return [{"toolResult": {**result, **({"status": "error"} if is_error else {})}}]
        case FileBlock("image", mime, data):
            kind = mime.removeprefix("image/")
            return [{"image": {"format": kind, "source": {"bytes": _bytes(data)}}}]
        case FileBlock("text", _, data):
            # As text it counts against no limit, and every model reads it.
            return [{"text": data if data.strip() else NO_TEXT}]
        case _:
            source = {"bytes": _bytes(block.data)}
            return [{"document": {"format": "pdf", "name": next(names), "source": source}}]


def _plain_results(content: Iterable[dict[str, Json]]) -> Iterator[dict[str, Json]]:
    """Yield results of text only; their pictures and documents follow the last of them."""
    shown: list[dict[str, Json]] = []
    for block in content:
        result = block.get("toolResult")
        if result is None:
            if shown:
                yield from ({"text": PICTURES}, *shown)
                shown = []
            yield block
            continue
        words = [inner for inner in result["content"] if "text" in inner]
        files = [inner for inner in result["content"] if "text" not in inner]
        shown += files
        below = {"text": PICTURE_BELOW if files else NO_OUTPUT}
        yield {"toolResult": {"toolUseId": result["toolUseId"], "content": words or [below]}}
    if shown:
        yield from ({"text": PICTURES}, *shown)


def _leave_out(made: Iterable[Json], kind: str, most: int, note: str) -> None:
    """Replace all but the newest `most` blocks of a kind by a note."""
    lists = [inner for message in made for inner in _contents(message["content"])]
    places = [(held, at) for held in lists for at, block in enumerate(held) if kind in block]
    for held, at in places[: max(0, len(places) - most)]:
        held[at] = {"text": note}


def _contents(content: list[Json]) -> Iterator[list[Json]]:
    """Yield the lists of blocks in a turn, in display order."""
    for block in content:
        if "toolResult" in block:
            yield block["toolResult"]["content"]
    yield content


def _accompany(content: list[Json]) -> None:
    """Add a text to a turn with a document: the service requires one."""
    if any("document" in block for block in content) and not any("text" in b for b in content):
        content.append({"text": NO_TEXT})


def _tool(raw: Mapping[str, Json]) -> dict[str, Json]:
    is_sound = is_shallow(raw["input_schema"])
    schema = encodable(raw["input_schema"]) if is_sound else {"type": "object"}
    words = _encodable(raw["description"]) if raw["description"].strip() else raw["name"]
    spec = {"name": raw["name"], "description": words, "inputSchema": {"json": schema}}
    return {"toolSpec": spec}


def is_shallow(value: Json) -> bool:
    """Return whether a value is nested no deeper than the library can validate."""
    level: list[Json] = [value]
    for _ in range(MAX_DEPTH):
        inner = [held for each in level for held in _held(each)]
        if not inner:
            return True
        level = inner
    return False


def _held(value: Json) -> Iterable[Json]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _bytes(data: str) -> bytes:
    try:
        return base64.b64decode(data)
    except (binascii.Error, ValueError):
        return b""


def encodable(value: Json) -> Json:
    """Return the value as JSON would carry it: without lone surrogates and infinite numbers."""
    match value:
        case str():
            return _encodable(value)
        case float():
            return value if math.isfinite(value) else None
        case Mapping():
            return {_encodable(name): encodable(item) for name, item in value.items()}
        case list() | tuple():
            return [encodable(item) for item in value]
        case _:
            return value


def _encodable(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")
