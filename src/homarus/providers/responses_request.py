"""Our messages as items of OpenAI's Responses wire: valid by construction.

Whatever the history holds, each call has exactly one output, which follows before anyone else
speaks; an output without a call is left out, and so is reasoning that belongs to nothing. No id
stands twice. Each message is made into items once, as JSON, and kept while it lives.
"""

import hashlib
import json
import re
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import TypeAlias

from homarus.core.message import Image, Json, Message, Text, Thinking, ToolCall, ToolReturn
from homarus.core.value import dataclass
from homarus.providers.base import ToolSpec
from homarus.providers.chat_request import (
    INTERRUPTED,
    NO_OUTPUT,
    NO_TEXT,
    SHOWN,
    UNSEEN,
    encode,
    wire_name,
)
from homarus.providers.openai_schema import fits_strict, parameters
from homarus.providers.rendered import Rendered

PHASES = ("commentary", "final_answer")

_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NEVER_REPLAYED = frozenset({"error", "aborted"})


@dataclass(frozen=True, slots=True)
class _Item:
    """One item as JSON. For a call it is what stands around the id, which is set when placed."""

    json: bytes
    call: str = ""  # the id of the call it makes
    thought: str = ""  # the id of the reasoning it is


@dataclass(frozen=True, slots=True)
class _Output:
    """A tool's result: what stands behind the id in its item."""

    call: str
    json: bytes


@dataclass(frozen=True, slots=True)
class _Outputs:
    """The place after an assistant's items where its outputs go, in the order of its calls."""

    found: dict[str, bytes | None] = field(default_factory=dict)


_Turn: TypeAlias = tuple[_Item, ...] | _Output


class Items:
    """Renders messages for one model of one service."""

    def __init__(self, *, provider: str, model: str, sees_images: bool) -> None:
        self._provider, self._model, self._sees_images = provider, model, sees_images
        self._rendered: Rendered[_Turn] = Rendered(self._turn)
        self._trusted_after_ms = -1  # reasoning that is older is not sent back
        self._sent_back = False

    def render(self, messages: Iterable[Message]) -> list[bytes]:
        """The items to send, each as JSON; never none."""
        page = _Page()
        for message in messages:
            turn = self._rendered[message]
            if isinstance(turn, _Output):
                page.answer(turn)
            else:
                page.place(turn)
        self._sent_back = page.has_thoughts
        return page.items() or [_message("user", [_text(NO_TEXT)])]

    def forget(self, now_ms: int) -> bool:
        """Send no reasoning from before now back any more; False if none was sent."""
        if not self._sent_back:
            return False
        self._trusted_after_ms, self._sent_back = now_ms, False
        self._rendered = Rendered(self._turn)
        return True

    def _turn(self, message: Message) -> _Turn:
        match message.role:
            case "user":
                texts = (part for part in message.parts if isinstance(part, Text | Image))
                content = self._content(texts) or [_text(NO_TEXT)]
                return (_Item(_message("user", content)),)
            case "assistant":
                return tuple(self._answered(message))
            case "tool":
                return self._returned(message)

    def _content(self, parts: Iterable[Text | Image]) -> list[Json]:
        content: list[Json] = []
        for part in parts:
            if isinstance(part, Image):
                content.append(_picture(part) if self._sees_images else _text(UNSEEN))
            elif part.text:
                content.append(_text(part.text))
        return content

    def _answered(self, message: Message) -> Iterable[_Item]:
        """What the model said, in its order; reasoning stands before what it led to, or not."""
        wrote = self._wrote(message)
        thoughts: list[_Item] = []
        said: list[Text] = []
        for part in message.parts:
            if isinstance(part, Thinking):
                thought = _thought(part) if wrote else None
                if thought is not None:
                    yield from _spoken(said, wrote=wrote)
                    thoughts.append(thought)
            elif isinstance(part, ToolCall):
                yield from _spoken(said, wrote=wrote)
                yield from _taken(thoughts)
                yield _asked_for(part)
            elif not isinstance(part, ToolReturn):
                text = part if isinstance(part, Text) else Text(SHOWN)
                if said and said[-1].signature != text.signature:
                    yield from _spoken(said, wrote=wrote)
                if text.text:
                    yield from _taken(thoughts)
                    said.append(text)
        yield from _spoken(said, wrote=wrote)

    def _returned(self, message: Message) -> _Turn:
        result = next((part for part in message.parts if isinstance(part, ToolReturn)), None)
        if result is None:
            return ()
        content = self._content(result.content) or [_text(NO_OUTPUT)]
        pictured = any(part["type"] == "input_image" for part in content)
        output = content if pictured else "\n".join(part["text"] for part in content)
        return _Output(_wire_id(result.call_id), encode(output))

    def _wrote(self, message: Message) -> bool:
        """Did this very model write it? Its reasoning means nothing to another."""
        origin = message.origin
        return (
            origin is not None
            and origin.stop not in _NEVER_REPLAYED
            and message.at_ms > self._trusted_after_ms
            and (origin.provider, origin.model) == (self._provider, self._model)
        )


class _Page:
    """A request's items as they are placed."""

    def __init__(self) -> None:
        self.has_thoughts = False
        self._placed: list[bytes | _Outputs] = []
        self._ids: set[str] = set()  # of calls and of reasoning, as they stand
        self._waiting: dict[str, deque[tuple[_Outputs, str]]] = {}

    def place(self, items: tuple[_Item, ...]) -> None:
        outputs = _Outputs()
        for item in items:
            self._waiting.pop(item.call, None)  # who uses an id again waits alone under it
        for item in items:
            if item.call:
                self._call(item, outputs)
            elif not item.thought or self._is_new(item.thought):
                self.has_thoughts |= bool(item.thought)
                self._placed.append(item.json)
        if outputs.found:
            self._placed.append(outputs)

    def answer(self, output: _Output) -> None:
        waiting = self._waiting.get(output.call)
        if waiting:
            outputs, call_id = waiting.popleft()
            outputs.found[call_id] = output.json

    def items(self) -> list[bytes]:
        flat: list[bytes] = []
        for placed in self._placed:
            if isinstance(placed, bytes):
                flat.append(placed)
            else:
                flat += [_output(*found) for found in placed.found.items()]
        return flat

    def _call(self, item: _Item, outputs: _Outputs) -> None:
        call_id, number = item.call, 1
        while not self._is_new(call_id):
            number += 1
            call_id = f"{item.call[:56]}-{number}"
        head = b'{"type":"function_call","call_id":"' + call_id.encode() + b'",'
        self._placed.append(head + item.json)
        outputs.found[call_id] = None
        self._waiting.setdefault(item.call, deque()).append((outputs, call_id))

    def _is_new(self, item_id: str) -> bool:
        if item_id in self._ids:
            return False
        self._ids.add(item_id)
        return True


def tool_list(tools: Iterable[ToolSpec], *, strict: bool | None) -> bytes:
    """The tools a model may call.

    `strict` True: the service enforces the schemas that it can; None: none; False: it does not
    know the word.
    """
    return encode([_tool(spec, strict=strict) for spec in tools])


def _tool(spec: ToolSpec, *, strict: bool | None) -> dict[str, Json]:
    schema = parameters(spec.parameters)
    made = {"type": "function", "name": spec.name, "description": spec.description}
    if strict is False:
        return {**made, "parameters": schema}
    # What is left unsaid is taken as strict, and refused for most schemas.
    return {**made, "parameters": schema, "strict": bool(strict) and fits_strict(schema)}


def _spoken(said: list[Text], *, wrote: bool) -> Iterable[_Item]:
    """The words so far as one item."""
    if said:
        phase = _phase(said[0].signature) if wrote else None
        yield _Item(_message("assistant", "".join(text.text for text in said), phase))
        said.clear()


def _taken(thoughts: list[_Item]) -> Iterable[_Item]:
    yield from thoughts
    thoughts.clear()


def _thought(part: Thinking) -> _Item | None:
    """The reasoning item that a signature holds, if it can be sent back."""
    item = _object_in(part.signature)
    item_id, secret = item.get("id"), item.get("encrypted_content")
    if (
        item.get("type") != "reasoning"
        or not isinstance(item_id, str)
        or not _ID.fullmatch(item_id)
    ):
        return None
    made = {"type": "reasoning", "id": item_id, "summary": _texts(item, "summary", "summary_text")}
    content = _texts(item, "content", "reasoning_text")
    if secret and isinstance(secret, str):
        made["encrypted_content"] = secret
    elif content:
        made["content"] = content  # only who does not encrypt takes it in the open
    else:
        return None  # nothing is stored: an id alone leads nowhere
    return _Item(encode(made), thought=item_id)


def _texts(item: Mapping[str, Json], name: str, kind: str) -> list[Json]:
    found = item.get(name)
    parts = found if isinstance(found, list) else []
    texts = [part.get("text") for part in parts if isinstance(part, dict)]
    return [{"type": kind, "text": text} for text in texts if isinstance(text, str)]


def _phase(signature: str) -> str | None:
    """The part of an answer that a text was; newer models want to be reminded of it."""
    phase = _object_in(signature).get("phase")
    return phase if phase in PHASES else None


def _object_in(signature: str) -> Mapping[str, Json]:
    if not signature.startswith("{"):
        return {}
    try:
        found = json.loads(signature)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _asked_for(call: ToolCall) -> _Item:
    # Arguments that were not JSON are not repeated: the service refuses the whole request.
    arguments = json.dumps(dict(call.args), ensure_ascii=False)
    rest = encode({"name": wire_name(call.name), "arguments": arguments})
    return _Item(rest[1:], call=_wire_id(call.id))


def _output(call_id: str, output: bytes | None) -> bytes:
    head = b'{"type":"function_call_output","call_id":"' + call_id.encode() + b'","output":'
    return head + (encode(INTERRUPTED) if output is None else output) + b"}"


def _wire_id(call_id: str) -> str:
    """Another vendor's id in a form this one takes: the same for a call and its result."""
    own = call_id.partition("|")[0]  # the original keeps the item's id behind the call's
    if _ID.fullmatch(own):
        return own
    return hashlib.sha256(call_id.encode("utf-8", "replace")).hexdigest()[:24]


def _message(role: str, content: Json, phase: str | None = None) -> bytes:
    made = {"type": "message", "role": role, "content": content}
    return encode({**made, "phase": phase} if phase else made)


def _text(text: str) -> dict[str, Json]:
    return {"type": "input_text", "text": text}


def _picture(image: Image) -> dict[str, Json]:
    url = f"data:{image.mime};base64,{image.data}"
    return {"type": "input_image", "detail": "auto", "image_url": url}
