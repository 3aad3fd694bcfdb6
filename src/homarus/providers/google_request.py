"""Our messages as Gemini's contents: valid by construction.

Whatever the history holds, turns alternate between user and model and begin and end with the
user; a turn with calls is followed by one with exactly their results, in the same order; a result
without a call is left out, and no turn is empty. Each message is made into parts once, as JSON,
and kept while it lives.
"""

import binascii
import hashlib
import re
from collections.abc import Iterable
from dataclasses import field
from typing import Literal, TypeAlias

from homarus.core.message import Image, Json, Message, Part, Text, Thinking, ToolCall, ToolReturn
from homarus.core.value import dataclass
from homarus.providers.base import ToolSpec
from homarus.providers.chat_request import (
    INTERRUPTED,
    NO_OUTPUT,
    NO_TEXT,
    PICTURES,
    UNSEEN,
    encode,
)
from homarus.providers.google_reply import MADE_ID
from homarus.providers.google_schema import parameters
from homarus.providers.rendered import Rendered

API = "google-generative-ai"
BEGAN = "(The beginning of this conversation is not shown.)"
GO_ON = "Go on."
SHOWN = "[A picture was shown here.]"
PICTURES_BELOW = "(See the picture below.)"
LEFT_OUT = "[An attachment was left out: this model cannot read it.]"
# Google's own word for a part whose signature is not at hand.
UNSIGNED = "skip_thought_signature_validator"

_MIMES = frozenset(
    {
        *("image/png", "image/jpeg", "image/webp", "image/heic", "image/heif"),
        *("application/pdf", "text/plain", "text/html", "text/css", "text/csv", "text/markdown"),
        *("audio/wav", "audio/mp3", "audio/mpeg", "audio/aac", "audio/ogg", "audio/flac"),
        *("video/mp4", "video/mpeg", "video/webm", "video/quicktime"),
    }
)
_SAME_MIME = {"image/jpg": "image/jpeg", "audio/x-wav": "audio/wav", "text/md": "text/markdown"}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_.-]+")
_NEVER_REPLAYED = frozenset({"error", "aborted"})

_Role: TypeAlias = Literal["user", "model"]


@dataclass(frozen=True, slots=True)
class _Call:
    """A call of a model's turn, as far as its result must repeat it."""

    name: str
    id: str = ""  # only an id that Google gave


@dataclass(frozen=True, slots=True)
class _Made:
    """One message: what it adds to a turn, the calls it makes, the call it is the result of."""

    parts: tuple[bytes, ...] = ()
    calls: dict[str, _Call] = field(default_factory=dict)
    answers: str = ""
    result: bytes = b""


@dataclass(slots=True)
class _Results:
    """The place behind a turn with calls, where their results go in the order of the calls."""

    calls: dict[str, _Call]
    found: dict[str, _Made] = field(default_factory=dict)

    def parts(self) -> list[bytes]:
        results: list[bytes] = []
        pictures: list[bytes] = []
        for key, call in self.calls.items():
            made = self.found.get(key)
            results.append(_result(call, made.result if made else _NO_RESULT))
            pictures += made.parts if made else ()
        return [*results, encode({"text": PICTURES}), *pictures] if pictures else results


@dataclass(frozen=True, slots=True)
class _Turn:
    role: _Role
    parts: list[bytes | _Results]

    def json(self) -> bytes:
        parts: list[bytes] = []
        for part in self.parts:
            parts += [part] if isinstance(part, bytes) else part.parts()
        return b'{"role":"%b","parts":[%b]}' % (self.role.encode(), b",".join(parts))


class Turns:
    """Renders messages for one model. `signs` when it demands a signature on each call."""

    def __init__(
        self, *, provider: str, model: str, sees_images: bool, draws: bool, signs: bool
    ) -> None:
        self._provider, self._model = provider, model
        self._sees_images, self._draws, self._signs = sees_images, draws, signs
        self._rendered: Rendered[_Made] = Rendered(self._make)

    def render(self, messages: Iterable[Message]) -> list[bytes]:
        """The contents to send, each as JSON."""
        turns: list[_Turn] = []
        waiting: dict[str, _Results] = {}
        for message in messages:
            made = self._rendered[message]
            if message.role == "tool":
                results = waiting.pop(made.answers, None) if made.result else None
                if results is not None:
                    results.found[made.answers] = made
                continue
            _add(turns, "user" if message.role == "user" else "model", *made.parts)
            if made.calls:
                results = _Results(made.calls)
                _add(turns, "user", results)
                waiting.update(dict.fromkeys(made.calls, results))
        if turns and turns[0].role == "model":
            turns.insert(0, _Turn("user", [encode({"text": BEGAN})]))
        if not turns or turns[-1].role == "model":
            turns.append(_Turn("user", [encode({"text": GO_ON if turns else NO_TEXT})]))
        return [turn.json() for turn in turns]

    def _make(self, message: Message) -> _Made:
        match message.role:
            case "user":
                return _Made(self._shown(message.parts) or (encode({"text": NO_TEXT}),))
            case "assistant":
                return self._answered(message)
            case "tool":
                return self._returned(message)

    def _shown(self, parts: Iterable[Part]) -> tuple[bytes, ...]:
        """What a person or a tool showed."""
        shown: list[Json] = []
        for part in parts:
            if isinstance(part, Text) and part.text:
                shown.append({"text": part.text})
            elif isinstance(part, Image):
                shown.append(self._inline(part))
        return tuple(encode(part) for part in shown)

    def _inline(self, image: Image) -> dict[str, Json]:
        if not self._sees_images:
            return {"text": UNSEEN}
        mime = image.mime.partition(";")[0].strip().lower()
        mime = _SAME_MIME.get(mime, mime)
        data = "".join(image.data.split())
        if mime not in _MIMES or not is_base64(data):
            return {"text": LEFT_OUT}
        return {"inlineData": {"mimeType": mime, "data": data}}

    def _answered(self, message: Message) -> _Made:
        own = self._wrote(message)
        from_google = message.origin is not None and message.origin.api == API
        parts: list[Json] = []
        calls: dict[str, _Call] = {}
        for part in message.parts:
            match part:
                case Text(text, signature):
                    parts += _said({"text": text}, signature if own else "")
                case Thinking(text, signature) if own:
                    parts += _thought(text, signature)
                case Image():
                    parts.append(self._drawn(part))
                case ToolCall() if part.id not in calls:
                    given = from_google and not part.id.startswith(MADE_ID)
                    call = _Call(wire_name(part.name), part.id if given else "")
                    parts.append(self._called(part, call, own=own, first=not calls))
                    calls[part.id] = call
                case _:
                    pass
        if not any(_says_something(part) for part in parts):
            return _Made()
        return _Made(tuple(encode(part) for part in parts), calls)

    def _called(self, part: ToolCall, call: _Call, *, own: bool, first: bool) -> dict[str, Json]:
        function: dict[str, Json] = {"name": call.name, "args": dict(part.args)}
        if call.id:
            function["id"] = call.id
        signature = part.signature if own and is_base64(part.signature) else ""
        # Of several calls made together, the first alone is signed.
        signature = signature or (UNSIGNED if self._signs and first else "")
        signed = {"thoughtSignature": signature} if signature else {}
        return {"functionCall": function, **signed}

    def _drawn(self, image: Image) -> dict[str, Json]:
        """A picture in a model's own turn; only a model that draws takes it there."""
        inline = self._inline(image) if self._draws else {}
        if "inlineData" not in inline:
            return {"text": SHOWN}
        return {**inline, "thoughtSignature": UNSIGNED} if self._signs else inline

    def _returned(self, message: Message) -> _Made:
        result = next((part for part in message.parts if isinstance(part, ToolReturn)), None)
        if result is None:
            return _Made()
        images = [self._inline(part) for part in result.content if isinstance(part, Image)]
        pictures = [image for image in images if "inlineData" in image]
        notes = [image["text"] for image in images if "text" in image]
        text = "\n".join(filter(None, (result.text, *notes)))
        said = text or (PICTURES_BELOW if pictures else NO_OUTPUT)
        return _Made(
            tuple(encode(picture) for picture in pictures),
            answers=result.call_id,
            result=encode({"error" if result.is_error else "output": said}),
        )

    def _wrote(self, message: Message) -> bool:
        """Did this very model write it? A signature means nothing to another."""
        origin = message.origin
        return (
            origin is not None
            and origin.stop not in _NEVER_REPLAYED
            and (origin.provider, origin.model) == (self._provider, self._model)
        )


_NO_RESULT = encode({"error": INTERRUPTED})


def tool_list(tools: Iterable[ToolSpec]) -> bytes:
    """The tools a model may call; a second one of the same name is left out."""
    declared: dict[str, Json] = {}
    for spec in tools:
        name = wire_name(spec.name)
        if name in declared:
            continue
        declared[name] = {"name": name, "description": spec.description}
        taken = parameters(spec.parameters)
        if taken is not None:
            declared[name]["parameters"] = taken
    return encode([{"functionDeclarations": list(declared.values())}])


def wire_name(name: str) -> str:
    """A tool's name as Gemini takes it: the same name always, another name never."""
    if _NAME.fullmatch(name):
        return name
    digest = hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()[:8]
    return f"_{_NOT_IN_A_NAME.sub('_', name)[:54]}_{digest}"


def is_base64(text: str) -> bool:
    """Whether Google takes this for bytes."""
    try:
        return bool(text) and bool(binascii.a2b_base64(text, strict_mode=True))
    except ValueError:
        return False


def _add(turns: list[_Turn], role: _Role, *parts: bytes | _Results) -> None:
    """To the turn that is open, if it is this role's."""
    if not parts:
        return
    if turns and turns[-1].role == role:
        turns[-1].parts.extend(parts)
    else:
        turns.append(_Turn(role, list(parts)))


def _said(part: dict[str, Json], signature: str) -> list[Json]:
    if is_base64(signature):
        return [{**part, "thoughtSignature": signature}]
    return [part] if part["text"] else []


def _thought(text: str, signature: str) -> list[Json]:
    """Reasoning goes back only with its signature: without, it tells the model nothing."""
    return _said({"text": text, "thought": True}, signature) if is_base64(signature) else []


def _says_something(part: dict[str, Json]) -> bool:
    return "text" not in part or bool(part["text"] and not part.get("thought"))


def _result(call: _Call, result: bytes) -> bytes:
    named = encode({"name": call.name, **({"id": call.id} if call.id else {})})
    return b'{"functionResponse":%b,"response":%b}}' % (named[:-1], result)
