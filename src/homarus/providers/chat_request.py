"""Our messages as turns of OpenAI's chat dialect: valid by construction.

Whatever the history holds, each tool call is followed by exactly one result, a result without a
call is left out, and no turn is empty. Each turn is made once, as JSON, and kept while its Message
lives.
"""

import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from homarus.core.message import Image, Json, Message, Text, Thinking, ToolCall, ToolReturn
from homarus.providers.base import ToolSpec
from homarus.providers.chat_reply import REASONING_FIELDS
from homarus.providers.compat import Compat
from homarus.providers.rendered import Rendered

INTERRUPTED = "[No result: the call was interrupted, and its outcome is unknown.]"
NO_TEXT = "(no text)"
NO_OUTPUT = "(no output)"
UNSEEN = "[A picture was left out: this model cannot see pictures.]"
PICTURE_BELOW = "(The picture follows in the next message.)"
PICTURES = "Pictures from the tool results above:"
GOT_RESULTS = "I have the tool results."
# Google's own word for a call whose signature is not at hand.
UNSIGNED = {"extra_content": {"google": {"thought_signature": "skip_thought_signature_validator"}}}

_ID = re.compile(r"[A-Za-z0-9_-]{1,40}")
_MISTRAL_ID = re.compile(r"[A-Za-z0-9]{9}")
_NOT_A_NAME = re.compile(r"[^A-Za-z0-9_-]+")
_NEVER_REPLAYED = frozenset({"error", "aborted"})


@dataclass(frozen=True, slots=True)
class _Turn:
    """One message as JSON; `json` is empty when there is nothing to send."""

    json: bytes = b""
    calls: Mapping[str, str] = field(default_factory=dict)  # the calls it makes: id → tool
    answers: str = ""  # the call it is the result of
    pictures: tuple[bytes, ...] = ()  # what a tool's turn cannot hold


@dataclass(slots=True)
class _Results:
    """The place after an assistant's turn where its results go, in the order of its calls."""

    calls: Mapping[str, str]
    turns: dict[str, _Turn] = field(default_factory=dict)


class Turns:
    """Renders messages for one model of one service."""

    def __init__(self, compat: Compat, *, provider: str, model: str, sees_images: bool) -> None:
        self._compat, self._provider, self._model = compat, provider, model
        self._sees_images = sees_images
        self._rendered = Rendered(self._turn)

    def render(self, messages: Iterable[Message]) -> list[bytes]:
        """The turns to send, each as JSON."""
        turns: list[bytes | _Results] = []
        waiting: dict[str, _Results] = {}
        for message in messages:
            turn = self._rendered[message]
            if message.role == "tool":
                results = waiting.pop(turn.answers, None)
                if results is not None:
                    results.turns[turn.answers] = turn
                continue
            if turn.json:
                if message.role == "user" and turns and isinstance(turns[-1], _Results):
                    turns.extend(self._bridge())
                turns.append(turn.json)
            if turn.calls:
                results = _Results(turn.calls)
                turns.append(results)
                waiting.update(dict.fromkeys(turn.calls, results))
        return [
            part
            for turn in turns
            for part in ([turn] if isinstance(turn, bytes) else self._flat(turn))
        ]

    def _bridge(self) -> list[bytes]:
        if not self._compat.assistant_after_tool_result:
            return []
        return [encode({"role": "assistant", "content": GOT_RESULTS})]

    def _flat(self, results: _Results) -> list[bytes]:
        flat: list[bytes] = []
        pictures: list[bytes] = []
        for call_id, name in results.calls.items():
            turn = results.turns.get(call_id)
            flat.append(turn.json if turn else self._result(call_id, name, INTERRUPTED))
            pictures.extend(turn.pictures if turn else ())
        if pictures:
            flat.extend(self._bridge())
            parts = b",".join((encode({"type": "text", "text": PICTURES}), *pictures))
            flat.append(b'{"role":"user","content":[' + parts + b"]}")
        return flat

    def _turn(self, message: Message) -> _Turn:
        match message.role:
            case "user":
                return _Turn(self._asked(message))
            case "assistant":
                return self._answered(message)
            case "tool":
                return self._returned(message)

    def _asked(self, message: Message) -> bytes:
        texts = [part.text for part in message.parts if isinstance(part, Text) and part.text]
        images = [part for part in message.parts if isinstance(part, Image)]
        if not images or not self._sees_images:
            texts += [UNSEEN] * len(images)
            return encode({"role": "user", "content": "\n".join(texts) or NO_TEXT})
        content: list[Json] = [{"type": "text", "text": text} for text in texts]
        return encode({"role": "user", "content": [*content, *map(_picture, images)]})

    def _answered(self, message: Message) -> _Turn:
        content = message.text
        turn: dict[str, Json] = {"role": "assistant", "content": content or None}
        thinking = [part for part in message.parts if isinstance(part, Thinking) and part.text]
        if thinking and self._compat.thinking_as_text:
            turn["content"] = "\n\n".join(filter(None, (*(t.text for t in thinking), content)))
        elif thinking and self._wrote(message) and thinking[0].signature in REASONING_FIELDS:
            turn[thinking[0].signature] = "".join(part.text for part in thinking)
        calls: dict[str, ToolCall] = {}
        for call in message.calls:
            calls.setdefault(self._wire_id(call.id), call)
        if calls:
            turn["tool_calls"] = [self._asked_for(*item) for item in calls.items()]
        elif not turn["content"]:
            return _Turn()
        return _Turn(encode(turn), {call_id: call.name for call_id, call in calls.items()})

    def _asked_for(self, call_id: str, call: ToolCall) -> dict[str, Json]:
        # Arguments that were not JSON are not repeated: several services refuse the whole request.
        arguments = json.dumps(dict(call.args), ensure_ascii=False)
        function = {"name": wire_name(call.name), "arguments": arguments}
        asked = {"id": call_id, "type": "function", "function": function}
        return {**asked, **UNSIGNED} if self._compat.unsigned_calls else asked

    def _returned(self, message: Message) -> _Turn:
        result = next((part for part in message.parts if isinstance(part, ToolReturn)), None)
        if result is None:
            return _Turn()
        images = [part for part in result.content if isinstance(part, Image)]
        note = [PICTURE_BELOW if self._sees_images else UNSEEN] if images else []
        text = "\n".join(filter(None, (result.text, *note))) or NO_OUTPUT
        call_id = self._wire_id(result.call_id)
        return _Turn(
            self._result(call_id, result.name, text),
            answers=call_id,
            pictures=tuple(encode(_picture(i)) for i in images) if self._sees_images else (),
        )

    def _result(self, call_id: str, name: str, text: str) -> bytes:
        turn = {"role": "tool", "tool_call_id": call_id, "content": text}
        if self._compat.tool_result_name:
            turn["name"] = wire_name(name)
        return encode(turn)

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


def tool_list(tools: Iterable[ToolSpec]) -> bytes:
    """The tools a model may call."""
    return encode(
        [
            {
                "type": "function",
                "function": {
                    "name": spec.name,
                    "description": spec.description,
                    "parameters": dict(spec.parameters),
                },
            }
            for spec in tools
        ]
    )


def _picture(image: Image) -> dict[str, Json]:
    url = f"data:{image.mime};base64,{image.data}"
    return {"type": "image_url", "image_url": {"url": url}}


def wire_name(name: str) -> str:
    """A tool's name in letters that the wire takes."""
    return _NOT_A_NAME.sub("_", name)[:64] or "unknown"
