"""Normalise a conversation into typed blocks, the part that is the same for every wire.

`ConversationBuilder` splits each Message into blocks once, pairs every tool call with its result,
drops results without a call, gives call ids the form a wire accepts, and decides whether the
model that is called wrote a message itself. A wire module encodes the blocks of one message at
a time; the encoded form is cached while the message lives. `alternate` groups the entries into
turns that change between user and assistant.
"""

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Generic, Literal, TypeAlias, TypeVar

from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Image, Json, Message, Text, Thinking, ToolCall, ToolResult
from homarus.providers.render_cache import RenderCache

T = TypeVar("T")

# Texts that stand for what a conversation does not hold or a model cannot take.
INTERRUPTED = "[No result: the call was interrupted, and its outcome is unknown.]"
NO_TEXT = "(no text)"
NO_OUTPUT = "(no output)"
UNSEEN = "[A picture was left out: this model cannot see pictures.]"
SHOWN = "[A picture was shown here.]"
PICTURE_BELOW = "(The picture follows in the next message.)"
PICTURES = "Pictures from the tool results above:"
GO_ON = "Go on."

_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)
_NOT_REPLAYED_STOPS = frozenset({"error", "aborted"})

Speaker: TypeAlias = Literal["user", "assistant"]


@dataclass(frozen=True, slots=True)
class Author:
    """The model a request goes to: signatures and reasoning are sent back to their author only.

    An empty `api` accepts every wire; messages up to `after_ms` count as another author's.
    """

    provider: str
    model: str
    api: str = ""
    after_ms: int = -1

    def wrote(self, message: Message) -> bool:
        """Return whether this model completed the message."""
        origin = message.origin
        return (
            origin is not None
            and origin.stop not in _NOT_REPLAYED_STOPS
            and (origin.provider, origin.model) == (self.provider, self.model)
            and (not self.api or self.api == origin.api)
            and message.at_ms > self.after_ms
        )


@dataclass(frozen=True, slots=True)
class CallIds:
    """The form in which a wire accepts call ids.

    An id that does not match `pattern` is replaced by `prefix` and a digest, the same for a call
    and its result; without a pattern every id is accepted. What follows `cut_at` in an id is not
    part of it. With `keeps_repeats` an id that occurs twice in one message stands for two calls.
    """

    pattern: re.Pattern[str] | None = None
    prefix: str = ""
    digest_chars: int = 24
    cut_at: str = ""
    keeps_repeats: bool = False

    def normalize(self, call_id: str) -> str:
        own = call_id.partition(self.cut_at)[0] if self.cut_at else call_id
        if self.pattern is None or self.pattern.fullmatch(own):
            return own
        digest = hashlib.sha256(call_id.encode("utf-8", "replace")).hexdigest()
        return self.prefix + digest[: self.digest_chars]


class UniqueIds:
    """The ids used in one request; a repeated id gets a number."""

    def __init__(self, max_chars: int, separator: str) -> None:
        self._max_chars, self._separator = max_chars, separator
        self._used: dict[str, int] = {}

    def add(self, item_id: str) -> bool:
        """Record an id; return False when it is in use."""
        if item_id in self._used:
            return False
        self._used[item_id] = 1
        return True

    def claim(self, item_id: str) -> str:
        """Record and return the id, with the first free number behind it when it is in use."""
        unique, used = item_id, self._used
        while unique in used:
            used[item_id] += 1
            unique = f"{item_id[: self._max_chars]}{self._separator}{used[item_id]}"
        used[unique] = 1
        return unique


@dataclass(frozen=True, slots=True)
class CallBlock:
    """A tool call under the id it has on the wire."""

    id: str
    call: ToolCall


Block: TypeAlias = Text | Thinking | Image | CallBlock


@dataclass(slots=True)
class MessageBlocks:
    """One message as blocks. `result` is set in a tool message, `is_own` in the model's own."""

    role: Literal["user", "assistant", "tool"]
    blocks: Sequence[Block] = ()
    calls: Sequence[CallBlock] = ()  # those among the blocks
    is_own: bool = False
    api: str = ""  # the wire the message was written over
    result: ToolResult | None = None
    call_id: str = ""  # of the call that `result` answers


class PlacedCall(Generic[T]):
    """A call in one request: its id there, and its encoded result; None when it has none."""

    __slots__ = ("call", "id", "result")

    def __init__(self, block: CallBlock) -> None:
        self.call = block.call
        self.id = block.id
        self.result: T | None = None


class ConversationEntry(Generic[T]):
    """A user's or assistant's message in one request, encoded, with its calls."""

    __slots__ = ("calls", "encoded", "role")

    def __init__(self, role: Speaker, encoded: T, calls: Sequence[PlacedCall[T]] = ()) -> None:
        self.role, self.encoded, self.calls = role, encoded, calls


@dataclass(frozen=True, slots=True)
class SettledPrefix:
    """The part before the last user message that no unanswered call precedes: it is final."""

    messages: int
    entries: int


class _CachedMessage(Generic[T]):
    """What is the same in every request: an entry and its calls, or a result."""

    __slots__ = ("call_id", "calls", "entry", "result")

    def __init__(
        self,
        entry: ConversationEntry[T] | None,
        calls: Sequence[CallBlock] = (),
        call_id: str = "",
        result: T | None = None,
    ) -> None:
        self.entry, self.calls, self.call_id, self.result = entry, calls, call_id, result


class ConversationBuilder(Generic[T]):
    """Places messages into requests to one model; `encode` serialises one message's blocks."""

    def __init__(
        self, encode: Callable[[MessageBlocks], T], *, author: Author, ids: CallIds
    ) -> None:
        self._encode, self._author, self._ids = encode, author, ids
        self._cache: RenderCache[_CachedMessage[T]] = RenderCache(self._read)

    def place(
        self, messages: Iterable[Message]
    ) -> tuple[list[ConversationEntry[T]], "SettledPrefix | None"]:
        """Return the entries to send, each call with its result, and the prefix that is final.

        A result belongs to the nearest call before it with its id; without one it is dropped.
        """
        entries: list[ConversationEntry[T]] = []
        unanswered: dict[str, list[PlacedCall[T]]] = {}
        settled_messages, settled_entries = -1, 0
        cache = self._cache
        for number, message in enumerate(messages):
            cached = cache[message]
            entry = cached.entry
            if entry is None:
                waiting = unanswered.get(cached.call_id)
                if waiting and cached.result is not None:
                    waiting.pop(0).result = cached.result
                    if not waiting:
                        del unanswered[cached.call_id]
                continue
            if not unanswered and entry.role == "user":
                settled_messages, settled_entries = number, len(entries)
            if cached.calls:
                calls: list[PlacedCall[T]] = [PlacedCall(block) for block in cached.calls]
                entry = ConversationEntry(entry.role, entry.encoded, calls)
                for call in calls:
                    unanswered.pop(call.id, None)
                for call in calls:
                    unanswered.setdefault(call.id, []).append(call)
            entries.append(entry)
        if settled_messages < 0:
            return entries, None
        return entries, SettledPrefix(settled_messages, settled_entries)

    def _read(self, message: Message) -> _CachedMessage[T]:
        if message.role == "tool":
            result = next((part for part in message.parts if isinstance(part, ToolResult)), None)
            if result is None:
                return _CachedMessage(None)
            call_id = self._ids.normalize(result.call_id)
            blocks = MessageBlocks("tool", result=result, call_id=call_id)
            return _CachedMessage(None, (), call_id, self._encode(blocks))
        if message.role == "user":
            user_parts = [p for p in message.parts if not isinstance(p, ToolCall | ToolResult)]
            return _CachedMessage(
                ConversationEntry("user", self._encode(MessageBlocks("user", user_parts)))
            )
        answered = self._answered(message)
        return _CachedMessage(
            ConversationEntry("assistant", self._encode(answered)), answered.calls
        )

    def _answered(self, message: Message) -> MessageBlocks:
        blocks: list[Block] = []
        calls: list[CallBlock] = []
        ids: set[str] = set()
        for part in message.parts:
            if isinstance(part, ToolCall):
                call_id = self._ids.normalize(part.id)
                if call_id in ids and not self._ids.keeps_repeats:
                    continue
                ids.add(call_id)
                call = CallBlock(call_id, part)
                calls.append(call)
                blocks.append(call)
            elif not isinstance(part, ToolResult):
                blocks.append(part)
        api = message.origin.api if message.origin else ""
        return MessageBlocks("assistant", blocks, calls, self._author.wrote(message), api)


class ConversationTurn(Generic[T]):
    """Neighbouring entries of one role. `answers` is the entry whose calls a user turn answers."""

    __slots__ = ("answers", "entries", "role")

    def __init__(
        self,
        role: Speaker,
        entries: list[ConversationEntry[T]],
        answers: ConversationEntry[T] | None = None,
    ) -> None:
        self.role, self.entries, self.answers = role, entries, answers


def alternate(
    entries: Iterable[ConversationEntry[T]], *, opening: T, closing: T, empty: T
) -> list[ConversationTurn[T]]:
    """Group entries into turns that alternate; the first and the last turn are the user's.

    `opening`, `closing` and `empty` are the user's words where the conversation has none: before
    a first turn of the model, behind its last turn, and when there is no entry at all. A turn
    with calls is followed by the user's turn that answers them.
    """
    turns: list[ConversationTurn[T]] = []
    last = None
    for entry in entries:
        if last is None or last.role != entry.role:
            if last is None and entry.role == "assistant":
                turns.append(ConversationTurn("user", [ConversationEntry("user", opening)]))
            last = ConversationTurn(entry.role, [entry])
            turns.append(last)
        else:
            last.entries.append(entry)
        if entry.calls:
            last = ConversationTurn("user", [], entry)
            turns.append(last)
    if last is None or last.role == "assistant":
        # Most models refuse to continue a sentence that another began.
        turns.append(
            ConversationTurn("user", [ConversationEntry("user", closing if turns else empty)])
        )
    return turns


def encode_json(value: Json) -> bytes:
    """Encode compactly as UTF-8; lone surrogates are replaced, NaN and infinity become null."""
    try:
        text = _ENCODER.encode(value)
    except ValueError:  # NaN and infinity, which no service accepts
        text = _ENCODER.encode(_finite(value))
    return text.encode("utf-8", "replace")


def _finite(value: Json) -> Json:
    match value:
        case float():
            return value if math.isfinite(value) else None
        case Mapping():
            return {name: _finite(item) for name, item in value.items()}
        case list() | tuple():
            return [_finite(item) for item in value]
        case _:
            return value
