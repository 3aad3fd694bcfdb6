"""Arrange a conversation as the turns of Anthropic's messages API, which Converse shares.

Users and assistants alternate, the first and the last turn are the user's, each tool call is
answered at the start of the turn that follows it, ids are unique, and no turn and no text is
empty. An encoder turns the typed blocks into the form of one wire.
"""

import base64
import binascii
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Generic, Literal, Protocol, TypeAlias, TypeVar

from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Image, Json, Message, Part, Text, Thinking
from homarus.core.mime import HEAD_BYTES, sniff_mime
from homarus.providers.base import ToolSpec
from homarus.providers.conversation import (
    GO_ON,
    NO_OUTPUT,
    NO_TEXT,
    SHOWN,
    UNSEEN,
    Author,
    CallBlock,
    CallIds,
    ConversationBuilder,
    ConversationEntry,
    MessageBlocks,
    PlacedCall,
    UniqueIds,
    alternate,
)

B = TypeVar("B")

BEGINNING = "[The beginning of this conversation is not shown.]"
UNREADABLE = "[A file was left out: its kind cannot be sent to this model.]"
GONE = "Not available any more."

_IDS = CallIds(re.compile(r"[A-Za-z0-9_-]{1,64}"), prefix="toolu_")
_UNIQUE_ID_CHARS = 50
_NOT_A_NAME = re.compile(r"[^A-Za-z0-9_-]+")
_NAME_CHARS = 64
_PICTURES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
# Keywords that a tool's schema may not have at its top level.
_NOT_AT_TOP = frozenset({"oneOf", "anyOf", "allOf"})


@dataclass(frozen=True, slots=True)
class FileBlock:
    """A picture or document in base64, or a text document as text."""

    kind: Literal["image", "pdf", "text"]
    mime: str
    data: str


ContentBlock: TypeAlias = Text | FileBlock
AnthropicBlock: TypeAlias = ContentBlock | Thinking | CallBlock


class BlockEncoder(Protocol[B]):
    """Encodes typed blocks for one wire; ids are added for each request."""

    def block(self, block: AnthropicBlock) -> B: ...

    def result(self, content: Sequence[ContentBlock], *, is_error: bool) -> B: ...

    def with_call_id(self, encoded: B, call_id: str) -> B: ...

    def with_result_id(self, encoded: B | None, call_id: str) -> B:
        """Add the call's id to a result; None stands for the result of an interrupted call."""
        ...


@dataclass(slots=True)
class _EncodedMessage(Generic[B]):
    """One message in a wire's form, with and without its reasoning; a result is one block."""

    blocks: Sequence[B] = ()
    plain: Sequence[B] = ()
    call_indexes: Sequence[int] = ()  # of the calls in `blocks`,
    plain_call_indexes: Sequence[int] = ()  # and in `plain`
    called: Sequence[str] = ()  # the tools that it calls, by their names on the wire
    has_thinking_first: bool = False


class AnthropicTurn(Generic[B]):
    """One turn to send. `results` are a user's answers to the calls of the turn before.

    `called` are the tools that it calls, by their names on the wire.
    """

    __slots__ = ("blocks", "called", "has_thinking_first", "results", "role")

    def __init__(self, role: str, results: list[B]) -> None:
        self.role, self.results = role, results
        self.blocks: list[B] = []
        self.has_thinking_first = False
        self.called: Sequence[str] = ()


class AnthropicTurnBuilder(Generic[B]):
    """Builds the turns of requests to one model of one service.

    `unsigned` says that the model takes its reasoning back without a signature.
    """

    def __init__(
        self, encoder: BlockEncoder[B], author: Author, *, sees_images: bool, unsigned: bool
    ) -> None:
        self._encoder = encoder
        self._sees_images, self._unsigned = sees_images, unsigned
        self._conversation = ConversationBuilder(self._encode, author=author, ids=_IDS)
        self._opening = self._text(BEGINNING)
        self._closing = self._text(GO_ON)
        self._empty = self._text(NO_TEXT)

    def build(
        self, messages: Iterable[Message], *, reasoning: bool = True
    ) -> list[AnthropicTurn[B]]:
        entries, _ = self._conversation.place(messages)
        entries = [entry for entry in entries if entry.encoded.plain]
        ids = UniqueIds(_UNIQUE_ID_CHARS, "_")
        turns = []
        for turn in alternate(
            entries, opening=self._opening, closing=self._closing, empty=self._empty
        ):
            answered = turn.answers.calls if turn.answers else ()
            made = AnthropicTurn(turn.role, [self._result(call) for call in answered])
            # Reasoning is accepted only at the start of a turn.
            first = reasoning and turn.role == "assistant"
            for entry in turn.entries:
                encoded = entry.encoded
                if first:
                    made.has_thinking_first = encoded.has_thinking_first
                if entry.calls:
                    made.blocks += self._with_ids(entry, ids, first=first)
                    made.called = encoded.called
                else:
                    made.blocks += encoded.blocks if first else encoded.plain
                first = False
            turns.append(made)
        return turns

    def _with_ids(
        self, entry: ConversationEntry[_EncodedMessage[B]], ids: UniqueIds, *, first: bool
    ) -> list[B]:
        encoded = entry.encoded
        blocks = list(encoded.blocks if first else encoded.plain)
        indexes = encoded.call_indexes if first else encoded.plain_call_indexes
        for index, call in zip(indexes, entry.calls, strict=True):
            call.id = ids.claim(call.id)
            blocks[index] = self._encoder.with_call_id(blocks[index], call.id)
        return blocks

    def _result(self, call: PlacedCall[_EncodedMessage[B]]) -> B:
        encoded = call.result.blocks[0] if call.result else None
        return self._encoder.with_result_id(encoded, call.id)

    def _encode(self, message: MessageBlocks) -> _EncodedMessage[B]:
        if message.result is not None:
            content = self._content(message.result.content) or [Text(NO_OUTPUT)]
            # A failure may show no picture.
            is_error = message.result.is_error and all(isinstance(c, Text) for c in content)
            return _EncodedMessage((self._encoder.result(content, is_error=is_error),))
        if message.role == "user":
            shown = self._content(message.blocks) or [Text(NO_TEXT)]
            encoded = tuple(self._encoder.block(block) for block in shown)
            return _EncodedMessage(encoded, encoded)
        return self._answered(message)

    def _answered(self, message: MessageBlocks) -> _EncodedMessage[B]:
        # Reasoning goes back complete or not at all.
        replays = message.is_own and (
            self._unsigned
            or all(each.signature for each in message.blocks if isinstance(each, Thinking))
        )
        blocks: list[B] = []
        plain: list[B] = []
        indexes: list[int] = []
        plain_indexes: list[int] = []
        has_thinking_first = False
        for block in message.blocks:
            if isinstance(block, Thinking):
                if replays:
                    has_thinking_first = has_thinking_first or not blocks
                    blocks.append(self._encoder.block(block))
                continue
            if isinstance(block, CallBlock):
                indexes.append(len(blocks))
                plain_indexes.append(len(plain))
            elif isinstance(block, Text) and not block.text.strip():
                continue
            # A model may show a picture, but not be shown its own.
            encoded = self._encoder.block(Text(SHOWN) if isinstance(block, Image) else block)
            blocks.append(encoded)
            plain.append(encoded)
        called = [wire_name(block.call.name) for block in message.calls]
        return _EncodedMessage(blocks, plain, indexes, plain_indexes, called, has_thinking_first)

    def _content(self, parts: Iterable[Part | CallBlock]) -> list[ContentBlock]:
        content: list[ContentBlock] = []
        for part in parts:
            if isinstance(part, Text) and part.text.strip():
                content.append(part)
            elif isinstance(part, Image):
                content.append(_file(part) if self._sees_images else Text(UNSEEN))
        return content

    def _text(self, text: str) -> _EncodedMessage[B]:
        encoded = (self._encoder.block(Text(text)),)
        return _EncodedMessage(encoded, encoded)


def opens_with_thought(turns: Sequence[AnthropicTurn[B]]) -> bool:
    """Return whether the work under way starts with reasoning, as a thinking budget requires.

    It started with the first turn behind the last question, and lasts while there are only calls
    and results. Without work under way nothing is required.
    """
    start = len(turns) - 1
    while start >= 0 and turns[start].results:
        start -= 2
    return start == len(turns) - 1 or turns[start + 1].has_thinking_first


def called_names(turns: Iterable[AnthropicTurn[B]]) -> list[str]:
    """Return the names of the tools that the turns call, each once."""
    return list(dict.fromkeys(name for turn in turns for name in turn.called))


def wire_names(tools: Iterable[ToolSpec]) -> dict[str, ToolSpec]:
    """Return the tools by unique names that the wire accepts."""
    named: dict[str, ToolSpec] = {}
    for spec in tools:
        plain = name = wire_name(spec.name)
        number = 2
        while name in named:
            name = f"{plain[: _NAME_CHARS - 4]}_{number}"
            number += 1
        named[name] = spec
    return named


def wire_name(name: str) -> str:
    """Return a tool's name in the characters the wire accepts."""
    return _NOT_A_NAME.sub("_", name)[:_NAME_CHARS] or "unknown"


def tool_schemas(tools: Mapping[str, ToolSpec]) -> list[dict[str, Json]]:
    """Return the tools a model may call, as the messages API declares them."""
    return [
        {
            "name": name,
            "description": spec.description,
            "input_schema": {
                **{k: v for k, v in spec.parameters.items() if k not in _NOT_AT_TOP},
                "type": "object",
            },
        }
        for name, spec in tools.items()
    ]


def gone_tools(names: Iterable[str]) -> dict[str, ToolSpec]:
    """Return tools that were called and are no longer offered: a call needs its tool listed."""
    return {name: ToolSpec(name, GONE, {}) for name in names}


def _file(image: Image) -> ContentBlock:
    """Return a picture or a document; a text in the place of what cannot be sent."""
    kind = image.mime.partition(";")[0].strip().lower()
    data = "".join(image.data.split())
    try:
        content = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        content = b""
    # The service refuses a picture whose label is wrong.
    kind = sniff_mime(content[:HEAD_BYTES]) or {"image/jpg": "image/jpeg"}.get(kind, kind)
    if not content:
        return Text(UNREADABLE)
    if kind in _PICTURES:
        return FileBlock("image", kind, data)
    if kind == "application/pdf":
        return FileBlock("pdf", kind, data)
    if kind.startswith("text/"):
        return FileBlock("text", "text/plain", content.decode("utf-8", "replace"))
    return Text(UNREADABLE)
