"""Render messages as the contents of the Gemini API.

Turns alternate between user and model, the first and the last are the user's; a turn with calls is
followed by exactly their results in the same order; results without a call are dropped, and no turn
is empty. Each message is encoded once and cached while it lives.
"""

import binascii
import hashlib
import re
from collections.abc import Iterable, Mapping

from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Image, Json, Message, Text, Thinking, ToolCall, ToolResult
from homarus.providers.base import ToolSpec
from homarus.providers.conversation import (
    GO_ON,
    INTERRUPTED,
    NO_OUTPUT,
    NO_TEXT,
    PICTURES,
    SHOWN,
    UNSEEN,
    Author,
    Block,
    CallBlock,
    CallIds,
    ConversationBuilder,
    ConversationTurn,
    MessageBlocks,
    alternate,
    encode_json,
)
from homarus.providers.google_schema import parameters
from homarus.providers.google_stream import MADE_ID

API = "google-generative-ai"
BEGAN = "(The beginning of this conversation is not shown.)"
PICTURES_BELOW = "(See the picture below.)"
LEFT_OUT = "[An attachment was left out: this model cannot read it.]"
# Google's value for a part whose signature is not available.
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


@dataclass(frozen=True, slots=True)
class _GeminiParts:
    """One message as parts; of a result, its pictures and the response for its call."""

    parts: tuple[bytes, ...] = ()
    calls: tuple[bytes, ...] = ()  # the start of each call's response: its name and id
    result: bytes = b""


class GeminiMessageRenderer:
    """Renders messages for one model. `signs`: it requires a signature on each call."""

    def __init__(
        self, *, provider: str, model: str, sees_images: bool, draws: bool, signs: bool
    ) -> None:
        self._sees_images, self._draws, self._signs = sees_images, draws, signs
        author = Author(provider, model)
        self._conversation = ConversationBuilder(self._make, author=author, ids=CallIds())

    def render(self, messages: Iterable[Message]) -> list[bytes]:
        """Return the contents to send, each as JSON."""
        entries, _ = self._conversation.place(messages)
        entries = [entry for entry in entries if entry.encoded.parts]
        turns = alternate(entries, opening=_OPENING, closing=_CLOSING, empty=_EMPTY)
        return [_turn_json(turn) for turn in turns]

    def _make(self, message: MessageBlocks) -> _GeminiParts:
        if message.result is not None:
            return self._returned(message.result)
        if message.role == "assistant":
            return self._answered(message)
        return _GeminiParts(self._shown(message.blocks) or _EMPTY.parts)

    def _shown(self, parts: Iterable[Block]) -> tuple[bytes, ...]:
        shown: list[Json] = []
        for part in parts:
            if isinstance(part, Text) and part.text:
                shown.append({"text": part.text})
            elif isinstance(part, Image):
                shown.append(self._inline(part))
        return tuple(encode_json(part) for part in shown)

    def _inline(self, image: Image) -> dict[str, Json]:
        if not self._sees_images:
            return {"text": UNSEEN}
        mime = image.mime.partition(";")[0].strip().lower()
        mime = _SAME_MIME.get(mime, mime)
        data = "".join(image.data.split())
        if mime not in _MIMES or not is_base64(data):
            return {"text": LEFT_OUT}
        return {"inlineData": {"mimeType": mime, "data": data}}

    def _answered(self, message: MessageBlocks) -> _GeminiParts:
        own = message.is_own
        parts: list[Json] = []
        calls: list[bytes] = []
        for part in message.blocks:
            match part:
                case Text(text, signature):
                    parts += _signed_part({"text": text}, signature if own else "")
                case Thinking(text, signature) if own:
                    parts += _thought(text, signature)
                case Image():
                    parts.append(self._drawn(part))
                case CallBlock(call_id, call):
                    # Only ids that Google gave are sent back.
                    given = call_id and message.api == API and not call_id.startswith(MADE_ID)
                    named = {"name": wire_name(call.name), **({"id": call_id} if given else {})}
                    parts.append(self._called(call, named, own=own, first=not calls))
                    calls.append(encode_json(named)[:-1])
                case _:
                    pass
        if not any(_says_something(part) for part in parts):
            return _GeminiParts()
        return _GeminiParts(tuple(encode_json(part) for part in parts), tuple(calls))

    def _called(
        self, call: ToolCall, named: Mapping[str, str], *, own: bool, first: bool
    ) -> dict[str, Json]:
        function: dict[str, Json] = {"name": named["name"], "args": dict(call.args)}
        if "id" in named:
            function["id"] = named["id"]
        signature = call.signature if own and is_base64(call.signature) else ""
        # Of several calls made together, only the first needs a signature.
        signature = signature or (UNSIGNED if self._signs and first else "")
        signed = {"thoughtSignature": signature} if signature else {}
        return {"functionCall": function, **signed}

    def _drawn(self, image: Image) -> dict[str, Json]:
        """Return a picture in a model's turn; only a model that draws accepts it there."""
        inline = self._inline(image) if self._draws else {}
        if "inlineData" not in inline:
            return {"text": SHOWN}
        return {**inline, "thoughtSignature": UNSIGNED} if self._signs else inline

    def _returned(self, result: ToolResult) -> _GeminiParts:
        images = [self._inline(part) for part in result.content if isinstance(part, Image)]
        pictures = [image for image in images if "inlineData" in image]
        notes = [image["text"] for image in images if "text" in image]
        text = "\n".join(filter(None, (result.text, *notes)))
        output = text or (PICTURES_BELOW if pictures else NO_OUTPUT)
        return _GeminiParts(
            tuple(encode_json(picture) for picture in pictures),
            result=encode_json({"error" if result.is_error else "output": output}),
        )


def _text(text: str) -> _GeminiParts:
    return _GeminiParts((encode_json({"text": text}),))


_OPENING, _CLOSING, _EMPTY = _text(BEGAN), _text(GO_ON), _text(NO_TEXT)
_PICTURES_NOTE = encode_json({"text": PICTURES})
_NO_RESULT = encode_json({"error": INTERRUPTED})


def tool_list(tools: Iterable[ToolSpec]) -> bytes:
    """Return the tools a model may call; a second one of the same name is dropped."""
    declared: dict[str, Json] = {}
    for spec in tools:
        name = wire_name(spec.name)
        if name in declared:
            continue
        declared[name] = {"name": name, "description": spec.description}
        taken = parameters(spec.parameters)
        if taken is not None:
            declared[name]["parameters"] = taken
    return encode_json([{"functionDeclarations": list(declared.values())}])


def wire_name(name: str) -> str:
    """Return a valid, unique and stable name for a tool."""
    if _NAME.fullmatch(name):
        return name
    digest = hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()[:8]
    return f"_{_NOT_IN_A_NAME.sub('_', name)[:54]}_{digest}"


def is_base64(text: str) -> bool:
    """Return whether the text is valid base64 of at least one byte."""
    try:
        return bool(text) and bool(binascii.a2b_base64(text, strict_mode=True))
    except ValueError:
        return False


def _turn_json(turn: ConversationTurn[_GeminiParts]) -> bytes:
    parts: list[bytes] = []
    if turn.answers is not None:
        pictures: list[bytes] = []
        for head, call in zip(turn.answers.encoded.calls, turn.answers.calls, strict=True):
            result = call.result.result if call.result else _NO_RESULT
            parts.append(b'{"functionResponse":%b,"response":%b}}' % (head, result))
            pictures += call.result.parts if call.result else ()
        if pictures:
            parts += [_PICTURES_NOTE, *pictures]
    for entry in turn.entries:
        parts += entry.encoded.parts
    role = b"user" if turn.role == "user" else b"model"
    return b'{"role":"%b","parts":[%b]}' % (role, b",".join(parts))


def _signed_part(part: dict[str, Json], signature: str) -> list[Json]:
    if is_base64(signature):
        return [{**part, "thoughtSignature": signature}]
    return [part] if part["text"] else []


def _thought(text: str, signature: str) -> list[Json]:
    """Return reasoning if it has a signature: without one the model ignores it."""
    return _signed_part({"text": text, "thought": True}, signature) if is_base64(signature) else []


def _says_something(part: dict[str, Json]) -> bool:
    return "text" not in part or bool(part["text"] and not part.get("thought"))
