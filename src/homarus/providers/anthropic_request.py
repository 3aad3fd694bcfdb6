"""Our messages as turns of Anthropic's messages API: valid by construction.

Whatever the history holds, users and assistants take turns, the first and the last turn are the
user's, each tool call is answered at the beginning of the turn that follows it, ids are unique,
and no turn and no text is empty. Each message is made once, as JSON blocks, and kept while it
lives.
"""

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field

from homarus.core.message import Image, Message, Part, Text, Thinking, ToolCall, ToolReturn
from homarus.core.sniff import HEAD_BYTES, file_mime
from homarus.core.value import dataclass
from homarus.providers.anthropic_reply import REDACTED
from homarus.providers.base import ToolSpec
from homarus.providers.chat_request import INTERRUPTED, NO_OUTPUT, NO_TEXT, UNSEEN, encode
from homarus.providers.rendered import Rendered

API = "anthropic-messages"
BEGINNING = "[The beginning of this conversation is not shown.]"
GO_ON = "Go on."
UNREADABLE = "[A file was left out: its kind cannot be sent to this model.]"
SHOWN = "[A picture was shown here.]"
GONE = "Not available any more."

_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NOT_A_NAME = re.compile(r"[^A-Za-z0-9_-]+")
_NAME_CHARS = 64
_NEVER_REPLAYED = frozenset({"error", "aborted"})
_THINKING = (b'{"type":"thinking"', b'{"type":"redacted_thinking"')
_PICTURES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
# What a tool's schema may not hold at its top.
_NOT_AT_TOP = frozenset({"oneOf", "anyOf", "allOf"})


@dataclass(frozen=True, slots=True)
class _Call:
    """A tool call whose id is settled when the whole conversation is known."""

    id: str
    rest: bytes  # the block without its id

    def json(self, call_id: str) -> bytes:
        return b'{"type":"tool_use","id":' + encode(call_id) + b"," + self.rest[1:]


@dataclass(frozen=True, slots=True)
class _Said:
    """One message as blocks; `plain` leaves its reasoning out."""

    blocks: tuple[bytes | _Call, ...] = ()
    plain: tuple[bytes | _Call, ...] = ()
    answers: str = ""  # the call it is the result of
    result: bytes = b""  # that result, without the call's id


@dataclass(slots=True)
class Turn:
    """One turn to send. `results` are a user's answers to the calls of the turn before."""

    role: str
    blocks: list[bytes] = field(default_factory=list)
    results: dict[str, bytes] = field(default_factory=dict)

    @property
    def thinks_first(self) -> bool:
        return bool(self.blocks) and self.blocks[0].startswith(_THINKING)

    def json(self, marker: bytes = b"") -> bytes:
        """The turn; `marker` goes into its last block."""
        results = [_result(call_id, rest) for call_id, rest in self.results.items()]
        blocks = [*results, *self.blocks]
        if marker:
            blocks[-1] = marked(blocks[-1], marker)
        return b'{"role":"%b","content":[%b]}' % (self.role.encode(), b",".join(blocks))


class Turns:
    """Renders messages for one model of one service.

    `unsigned` says that the model takes its reasoning back without a signature. `api` is the wire
    it is asked over.
    """

    def __init__(
        self, *, provider: str, model: str, sees_images: bool, unsigned: bool, api: str = API
    ) -> None:
        self._api, self._provider, self._model = api, provider, model
        self._sees_images, self._unsigned = sees_images, unsigned
        self._rendered = Rendered(self._said)

    def render(self, messages: Iterable[Message], *, reasoning: bool = True) -> list[Turn]:
        """The turns to send, with or without the model's earlier reasoning."""
        turns: list[Turn] = []
        waiting: dict[str, tuple[Turn, str]] = {}
        used: dict[str, int] = {}
        for message in messages:
            said = self._rendered[message]
            if message.role == "tool":
                if said.answers in waiting:
                    turn, call_id = waiting.pop(said.answers)
                    turn.results[call_id] = said.result
            elif said.plain:
                ids = _add(turns, message.role, said, used, reasoning=reasoning)
                if ids:
                    answer = Turn("user", results=dict.fromkeys(ids.values(), _LOST))
                    turns.append(answer)
                    waiting.update((ours, (answer, theirs)) for ours, theirs in ids.items())
        if not turns or turns[-1].role == "assistant":
            # A model goes on by itself only where it may: most refuse to end another's sentence.
            turns.append(Turn("user", [_text(GO_ON if turns else NO_TEXT)]))
        return turns

    def _said(self, message: Message) -> _Said:
        match message.role:
            case "user":
                blocks = [block for part in message.parts for block in self._shown(part)]
                asked = tuple(blocks) or (_text(NO_TEXT),)
                return _Said(asked, asked)
            case "assistant":
                return self._answered(message)
            case "tool":
                return self._returned(message)

    def _answered(self, message: Message) -> _Said:
        replayed = self._replayed(message)
        calls: dict[str, _Call] = {}
        blocks: list[bytes | _Call] = []
        plain: list[bytes | _Call] = []
        for part in message.parts:
            made: bytes | _Call
            match part:
                case Thinking() if replayed:
                    blocks.append(_thought(part))
                    continue
                case Text(text) if text.strip():
                    made = _text(text)
                case Image():
                    made = _text(SHOWN)  # a model may show one, but not be shown its own
                case ToolCall() if wire_id(part.id) not in calls:
                    made = calls[wire_id(part.id)] = _asked_for(part)
                case _:
                    continue
            blocks.append(made)
            plain.append(made)
        return _Said(tuple(blocks), tuple(plain))

    def _replayed(self, message: Message) -> bool:
        """Does its reasoning go back? Only whole, and only to the very model that thought it."""
        origin = message.origin
        if origin is None or origin.stop in _NEVER_REPLAYED:
            return False
        if (origin.api, origin.provider, origin.model) != (self._api, self._provider, self._model):
            return False
        thoughts = [part for part in message.parts if isinstance(part, Thinking)]
        return self._unsigned or all(part.signature for part in thoughts)

    def _returned(self, message: Message) -> _Said:
        result = next((part for part in message.parts if isinstance(part, ToolReturn)), None)
        if result is None:
            return _Said()
        blocks = [block for part in result.content for block in self._shown(part)]
        only_text = all(block.startswith(b'{"type":"text"') for block in blocks)
        content = b'{"content":[' + b",".join(blocks or [_text(NO_OUTPUT)]) + b"]"
        # A failure may show no picture.
        failed = b',"is_error":true}' if result.is_error and only_text else b"}"
        return _Said(answers=wire_id(result.call_id), result=content + failed)

    def _shown(self, part: Part) -> Iterable[bytes]:
        match part:
            case Text(text) if text.strip():
                return (_text(text),)
            case Image() if not self._sees_images:
                return (_text(UNSEEN),)
            case Image(data, mime):
                return (_file(data, mime),)
            case _:
                return ()


def marked(block: bytes, marker: bytes) -> bytes:
    """A block with a cache marker."""
    return block[:-1] + b',"cache_control":' + marker + b"}"


def opens_with_thought(turns: Sequence[Turn]) -> bool:
    """Tell whether the work under way begins with reasoning, as a model with a budget demands.

    It began with the first turn behind the last question, and goes on as long as there are only
    calls and results. Without work under way there is nothing to demand.
    """
    start = len(turns) - 1
    while start >= 0 and turns[start].results:
        start -= 2
    return start == len(turns) - 1 or turns[start + 1].thinks_first


def called_names(turns: Iterable[Turn]) -> list[str]:
    """The tools that the turns call."""
    calls = (
        json.loads(block)
        for turn in turns
        for block in turn.blocks
        if turn.role == "assistant" and block.startswith(b'{"type":"tool_use"')
    )
    return list(dict.fromkeys(call["name"] for call in calls))


def wire_names(tools: Iterable[ToolSpec]) -> dict[str, ToolSpec]:
    """The tools by the names they get on the wire, each its own."""
    named: dict[str, ToolSpec] = {}
    for spec in tools:
        plain = name = wire_name(spec.name)
        number = 2
        while name in named:
            name = f"{plain[: _NAME_CHARS - 4]}_{number}"
            number += 1
        named[name] = spec
    return named


def tool_list(tools: Mapping[str, ToolSpec], marker: bytes = b"") -> bytes:
    """The tools a model may call; `marker` goes into the last."""
    listed = [
        encode(
            {
                "name": name,
                "description": spec.description,
                "input_schema": {
                    **{k: v for k, v in spec.parameters.items() if k not in _NOT_AT_TOP},
                    "type": "object",
                },
            }
        )
        for name, spec in tools.items()
    ]
    if listed and marker:
        listed[-1] = marked(listed[-1], marker)
    return b"[" + b",".join(listed) + b"]"


def gone_tools(names: Iterable[str]) -> bytes:
    """Tools that were called once and are offered no more: a call is refused without its tool."""
    return tool_list({name: ToolSpec(name, GONE, {}) for name in names})


def wire_id(call_id: str) -> str:
    """Another vendor's id in a form this one takes: the same for a call and its result."""
    if _ID.fullmatch(call_id):
        return call_id
    return "toolu_" + hashlib.sha256(call_id.encode("utf-8", "replace")).hexdigest()[:24]


def wire_name(name: str) -> str:
    """A tool's name in the letters the wire takes."""
    return _NOT_A_NAME.sub("_", name)[:_NAME_CHARS] or "unknown"


def _add(
    turns: list[Turn], role: str, said: _Said, used: dict[str, int], *, reasoning: bool
) -> dict[str, str]:
    """Put a message into the last turn if it is of the same role, else into a new one.

    Returns the ids of its calls: ours, and the one on the wire. Reasoning stands at a turn's own
    beginning or not at all.
    """
    if not turns and role == "assistant":
        turns.append(Turn("user", [_text(BEGINNING)]))
    joins = bool(turns) and turns[-1].role == role
    if not joins:
        turns.append(Turn(role))
    ids: dict[str, str] = {}
    for block in said.blocks if reasoning and not joins else said.plain:
        if isinstance(block, _Call):
            ids[block.id] = _unique(block.id, used)
            turns[-1].blocks.append(block.json(ids[block.id]))
        else:
            turns[-1].blocks.append(block)
    return ids


def _unique(call_id: str, used: dict[str, int]) -> str:
    """An id that some models use again in every answer is told apart by a number."""
    unique = call_id
    while unique in used:
        used[call_id] += 1
        unique = f"{call_id[:50]}_{used[call_id]}"
    used[unique] = 1
    return unique


def _asked_for(call: ToolCall) -> _Call:
    given = dict(call.args)
    try:
        json.dumps(given, allow_nan=False)
    except ValueError:  # a number that JSON does not have
        given = {}
    return _Call(wire_id(call.id), encode({"name": wire_name(call.name), "input": given}))


def _result(call_id: str, rest: bytes) -> bytes:
    return b'{"type":"tool_result","tool_use_id":' + encode(call_id) + b"," + rest[1:]


def _text(text: str) -> bytes:
    return encode({"type": "text", "text": text})


def _thought(part: Thinking) -> bytes:
    if part.signature.startswith(REDACTED):
        data = part.signature.removeprefix(REDACTED)
        return encode({"type": "redacted_thinking", "data": data})
    return encode({"type": "thinking", "thinking": part.text, "signature": part.signature})


def _file(data: str, mime: str) -> bytes:
    """A picture or a document; a note in the place of what cannot be sent."""
    kind = mime.partition(";")[0].strip().lower()
    data = "".join(data.split())
    try:
        content = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        content = b""
    # The service refuses a picture whose label is wrong.
    kind = file_mime(content[:HEAD_BYTES]) or {"image/jpg": "image/jpeg"}.get(kind, kind)
    source = {"type": "base64", "media_type": kind, "data": data}
    if not content:
        return _text(UNREADABLE)
    if kind in _PICTURES:
        return encode({"type": "image", "source": source})
    if kind == "application/pdf":
        return encode({"type": "document", "source": source})
    if kind.startswith("text/"):
        text = content.decode("utf-8", "replace")
        plain = {"type": "text", "media_type": "text/plain", "data": text}
        return encode({"type": "document", "source": plain})
    return _text(UNREADABLE)


_LOST = b'{"content":[' + _text(INTERRUPTED) + b"]}"
