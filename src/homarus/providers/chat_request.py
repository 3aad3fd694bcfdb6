"""Our messages as turns of OpenAI's chat dialect: valid by construction.

Whatever the history holds, each tool call is followed by exactly one result, a result without a
call is left out, no turn is empty, and nobody speaks twice in a row: strict templates refuse that.
What a Message says is made into JSON once and kept while it lives.
"""

import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace

from homarus.core.message import Image, Json, Message, Part, Text, Thinking, ToolCall, ToolReturn
from homarus.core.value import dataclass
from homarus.providers.base import ToolSpec
from homarus.providers.chat_reply import REASONING_FIELDS
from homarus.providers.compat import Compat
from homarus.providers.openai_schema import fits_strict, parameters
from homarus.providers.rendered import Beginnings, Rendered

INTERRUPTED = "[No result: the call was interrupted, and its outcome is unknown.]"
NO_TEXT = "(no text)"
NO_OUTPUT = "(no output)"
UNSEEN = "[A picture was left out: this model cannot see pictures.]"
SHOWN = "[A picture was shown here.]"
PICTURE_BELOW = "(The picture follows in the next message.)"
PICTURES = "Pictures from the tool results above:"
GOT_RESULTS = "I have the tool results."
GAP = b"\\n\\n"  # between turns that became one, inside a JSON string
# Google's own word for a call whose signature is not at hand.
UNSIGNED = {"extra_content": {"google": {"thought_signature": "skip_thought_signature_validator"}}}

_HEAD = b'{"role":"%b","content":'
_TEXT = b'{"type":"text","text":"%b"}'
_ID = re.compile(r"[A-Za-z0-9_-]{1,40}")
_MISTRAL_ID = re.compile(r"[A-Za-z0-9]{9}")
_NOT_A_NAME = re.compile(r"[^A-Za-z0-9_-]+")
_NEVER_REPLAYED = frozenset({"error", "aborted"})


@dataclass(frozen=True, slots=True)
class _Turn:
    """One turn as JSON, empty when there is nothing to send, and where in it the content stands."""

    role: str
    json: bytes = b""
    start: int = 0  # the content without its quotes or brackets begins here,
    stop: int = 0  # ends here,
    rest: int = 0  # and here begins what follows it
    has_blocks: bool = False
    calls: Mapping[str, str] = field(default_factory=dict)  # the calls it makes: id → tool
    answers: str = ""  # the call it is the result of
    pictures: tuple[bytes, ...] = ()  # what a tool's turn cannot hold

    @property
    def content(self) -> bytes:
        return self.json[self.start : self.stop]


@dataclass(slots=True)
class _Results:
    """The place after an assistant's turn where its results go, in the order of its calls."""

    calls: Mapping[str, str]
    turns: dict[str, _Turn] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Cut:
    """A place between messages, and between their turns."""

    messages: int
    turns: int


@dataclass(frozen=True, slots=True)
class _Begun:
    """The beginning of a conversation, and the role it ends with."""

    json: tuple[bytes, ...] = ()
    last: str = ""


_NOTHING = _Begun()


class Turns:
    """Renders messages for one model of one service."""

    def __init__(self, compat: Compat, *, provider: str, model: str, sees_images: bool) -> None:
        self._compat, self._provider, self._model = compat, provider, model
        self._sees_images = sees_images
        self._rendered = Rendered(self._turn)
        self._begun: Beginnings[_Begun] = Beginnings()
        self._bridge = _made("assistant", GOT_RESULTS)

    def render(self, messages: Iterable[Message]) -> list[bytes]:
        """The turns to send, as JSON: one each, or several with commas between them."""
        every = tuple(messages)
        size, begun = self._begun.find(every) or (0, _NOTHING)
        turns, cut = self._placed(every[size:])
        made = list(begun.json)
        last = begun.last
        if cut:  # what stands before the newest question will not change any more
            runs, role = self._runs(turns[: cut.turns], last)
            if role != "user":
                made += map(_as_one, runs)
                last, turns = role, turns[cut.turns :]
                if made and size + cut.messages >= self._begun.least:
                    made = [b",".join(made)]
                    self._begun.keep(every[: size + cut.messages], _Begun(tuple(made), last))
        return [*made, *map(_as_one, self._runs(turns, last)[0])]

    def _placed(self, messages: Iterable[Message]) -> tuple[list[_Turn | _Results], "_Cut | None"]:
        """The turns with places for results, and the last question by which all were there."""
        turns: list[_Turn | _Results] = []
        waiting: dict[str, _Results] = {}
        cut: _Cut | None = None
        for number, message in enumerate(messages):
            turn = self._rendered[message]
            if message.role == "tool":
                results = waiting.pop(turn.answers, None)
                if results is not None:
                    results.turns[turn.answers] = turn
                continue
            if message.role == "user" and not waiting:
                cut = _Cut(number, len(turns))
            if turn.json:
                turns.append(turn)
            if turn.calls:
                results = _Results(turn.calls)
                turns.append(results)
                waiting.update(dict.fromkeys(turn.calls, results))
        return turns, cut

    def _runs(self, turns: Iterable[_Turn | _Results], last: str) -> tuple[list[list[_Turn]], str]:
        """The turns with the results in their places; neighbours of one role stand together.

        `last` is the role before them; the role they end with is returned.
        """
        runs: list[list[_Turn]] = []
        for placed in turns:
            for turn in [placed] if isinstance(placed, _Turn) else self._flat(placed):
                if turn.role == last != "tool" and runs:
                    runs[-1].append(turn)
                    continue
                if last == "tool" and turn.role == "user" and self._bridges:
                    runs.append([self._bridge])
                runs.append([turn])
                last = turn.role
        return runs, last

    @property
    def _bridges(self) -> bool:
        return self._compat.assistant_after_tool_result

    def _flat(self, results: _Results) -> list[_Turn]:
        flat: list[_Turn] = []
        pictures: list[bytes] = []
        for call_id, name in results.calls.items():
            turn = results.turns.get(call_id)
            flat.append(turn or self._result(call_id, name, INTERRUPTED))
            pictures.extend(turn.pictures if turn else ())
        if pictures:
            told = encode({"type": "text", "text": PICTURES})
            flat.append(_made("user", [told, *pictures]))
        return flat

    def _turn(self, message: Message) -> _Turn:
        match message.role:
            case "user":
                return self._asked(message)
            case "assistant":
                return self._answered(message)
            case "tool":
                return self._returned(message)

    def _asked(self, message: Message) -> _Turn:
        texts = [part.text for part in message.parts if isinstance(part, Text) and part.text]
        images = [part for part in message.parts if isinstance(part, Image)]
        if not images or not self._sees_images:
            texts += [UNSEEN] * len(images)
            return _made("user", "\n".join(texts) or NO_TEXT)
        blocks: list[Json] = [{"type": "text", "text": text} for text in texts]
        return _made("user", [encode(block) for block in (*blocks, *map(_picture, images))])

    def _answered(self, message: Message) -> _Turn:
        content = "".join(_spoken(part) for part in message.parts)
        rest: dict[str, Json] = {}
        thinking = [part for part in message.parts if isinstance(part, Thinking) and part.text]
        if thinking and self._compat.thinking_as_text:
            content = "\n\n".join(filter(None, (*(t.text for t in thinking), content)))
        elif thinking and self._wrote(message) and thinking[0].signature in REASONING_FIELDS:
            rest[thinking[0].signature] = "".join(part.text for part in thinking)
        calls: dict[str, ToolCall] = {}
        for call in message.calls:
            calls.setdefault(self._wire_id(call.id), call)
        if calls:
            rest["tool_calls"] = [self._asked_for(*item) for item in calls.items()]
        elif not content:
            return _Turn("assistant")
        made = _made("assistant", content, rest)
        return replace(made, calls={call_id: call.name for call_id, call in calls.items()})

    def _asked_for(self, call_id: str, call: ToolCall) -> dict[str, Json]:
        # Arguments that were not JSON are not repeated: several services refuse the whole request.
        arguments = json.dumps(dict(call.args), ensure_ascii=False)
        function = {"name": wire_name(call.name), "arguments": arguments}
        asked = {"id": call_id, "type": "function", "function": function}
        return {**asked, **UNSIGNED} if self._compat.unsigned_calls else asked

    def _returned(self, message: Message) -> _Turn:
        result = next((part for part in message.parts if isinstance(part, ToolReturn)), None)
        if result is None:
            return _Turn("tool")
        images = [part for part in result.content if isinstance(part, Image)]
        note = [PICTURE_BELOW if self._sees_images else UNSEEN] if images else []
        text = "\n".join(filter(None, (result.text, *note))) or NO_OUTPUT
        pictures = tuple(encode(_picture(i)) for i in images) if self._sees_images else ()
        made = self._result(self._wire_id(result.call_id), result.name, text)
        return replace(made, pictures=pictures)

    def _result(self, call_id: str, name: str, text: str) -> _Turn:
        rest = {"tool_call_id": call_id}
        if self._compat.tool_result_name:
            rest["name"] = wire_name(name)
        return replace(_made("tool", text, rest), answers=call_id)

    def _wrote(self, message: Message) -> bool:
        """Did this very model write it? Reasoning means nothing to another."""
        origin = message.origin
        return (
            origin is not None
            and origin.stop not in _NEVER_REPLAYED
            and (origin.provider, origin.model) == (self._provider, self._model)
        )

    def _wire_id(self, call_id: str) -> str:
        """Another vendor's id in a form this one takes: the same for a call and its result."""
        pattern, size = (_MISTRAL_ID, 9) if self._compat.mistral_tool_ids else (_ID, 24)
        if pattern.fullmatch(call_id):
            return call_id
        return hashlib.sha256(call_id.encode("utf-8", "replace")).hexdigest()[:size]


def encode(value: Json) -> bytes:
    """JSON in as few bytes as it takes; half a surrogate pair becomes a question mark."""
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except ValueError:  # NaN and infinity, which no service takes
        text = json.dumps(_finite(value), ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "replace")


def _finite(value: Json) -> Json:
    match value:
        case float():
            return value if math.isfinite(value) else None
        case Mapping():
            return {name: _finite(held) for name, held in value.items()}
        case list() | tuple():
            return [_finite(held) for held in value]
        case _:
            return value


def tool_list(tools: Iterable[ToolSpec], *, strict: bool = False) -> bytes:
    """The tools a model may call; `strict`: the service enforces the schemas that it can."""
    return encode([_tool(spec, strict=strict) for spec in tools])


def _tool(spec: ToolSpec, *, strict: bool) -> dict[str, Json]:
    schema = parameters(spec.parameters)
    function: dict[str, Json] = {
        "name": spec.name,
        "description": spec.description,
        "parameters": schema,
    }
    if strict:
        function["strict"] = fits_strict(schema)
    return {"type": "function", "function": function}


def _made(
    role: str, content: str | Sequence[bytes], rest: Mapping[str, Json] | None = None
) -> _Turn:
    """A turn of text, which may be none, or of blocks; `rest` are its other fields."""
    head = _HEAD % role.encode()
    has_blocks = not isinstance(content, str)
    if isinstance(content, str):
        value = encode(content) if content else b"null"
    else:
        value = b"[" + b",".join(content) + b"]"
    start, end = len(head), len(head) + len(value)
    tail = b"," + encode(rest)[1:] if rest else b"}"
    inner = (start + 1, end - 1) if content else (end, end)
    return _Turn(role, head + value + tail, *inner, end, has_blocks)


def _as_one(run: Sequence[_Turn]) -> bytes:
    """Turns of one role as one; of their reasoning, the last is told."""
    if len(run) == 1:
        return run[0].json
    if any(turn.has_blocks for turn in run):
        blocks = (turn.content if turn.has_blocks else _TEXT % turn.content for turn in run)
        content = b"[" + b",".join(blocks) + b"]"
    else:
        content = b'"' + GAP.join(turn.content for turn in run if turn.content) + b'"'
    last = run[-1]
    return _HEAD % last.role.encode() + content + last.json[last.rest :]


def _spoken(part: Part) -> str:
    """What a model said; a picture of its own cannot be shown to it."""
    return part.text if isinstance(part, Text) else SHOWN if isinstance(part, Image) else ""


def _picture(image: Image) -> dict[str, Json]:
    url = f"data:{image.mime};base64,{image.data}"
    return {"type": "image_url", "image_url": {"url": url}}


def wire_name(name: str) -> str:
    """A tool's name in letters that the wire takes."""
    return _NOT_A_NAME.sub("_", name)[:64] or "unknown"
