"""Render messages as items of the Responses API.

Each call has exactly one output, directly behind the message that makes it; outputs without a call
and reasoning that led to nothing are dropped. No id occurs twice. Each message is encoded once and
cached while it lives.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TypeAlias

from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Image, Json, Message, Text, Thinking, ToolCall, ToolResult
from homarus.providers.base import ToolSpec
from homarus.providers.chat_request import wire_name
from homarus.providers.conversation import (
    INTERRUPTED,
    NO_OUTPUT,
    NO_TEXT,
    SHOWN,
    UNSEEN,
    Author,
    CallBlock,
    CallIds,
    ConversationBuilder,
    MessageBlocks,
    UniqueIds,
    encode_json,
)
from homarus.providers.openai_schema import fits_strict, parameters

PHASES = ("commentary", "final_answer")

_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
# OpenClaw stores the item's id behind the call's.
_IDS = CallIds(_ID, cut_at="|", keeps_repeats=True)
_UNIQUE_ID_CHARS = 56
_CALL_HEAD = b'{"type":"function_call","call_id":"%b",'
_OUTPUT_HEAD = b'{"type":"function_call_output","call_id":"%b","output":'
_NO_RESULT = encode_json(INTERRUPTED)


@dataclass(frozen=True, slots=True)
class _RequestItem:
    """One item as JSON. A call has its id added when it is placed; a result is output alone."""

    json: bytes
    is_call: bool = False
    thought: str = ""  # the id of the reasoning item


_Items: TypeAlias = tuple[_RequestItem, ...]


class ResponsesItemRenderer:
    """Renders messages for one model of one service."""

    def __init__(self, *, provider: str, model: str, sees_images: bool) -> None:
        self._sees_images = sees_images
        self._author = Author(provider, model)
        self._conversation = self._open()
        self._sent_back = False

    def render(self, messages: Iterable[Message]) -> list[bytes]:
        """Return the items to send, each as JSON; there is at least one."""
        items: list[bytes] = []
        ids = UniqueIds(_UNIQUE_ID_CHARS, "-")
        self._sent_back = False
        entries, _ = self._conversation.place(messages)
        for entry in entries:
            calls = iter(entry.calls)
            for item in entry.encoded:
                if item.is_call:
                    call = next(calls)
                    call.id = ids.claim(call.id)
                    items.append(_CALL_HEAD % call.id.encode() + item.json)
                elif not item.thought:
                    items.append(item.json)
                elif ids.add(item.thought):  # the service refuses reasoning that it gets twice
                    self._sent_back = True
                    items.append(item.json)
            for call in entry.calls:
                output = call.result[0].json if call.result else _NO_RESULT
                items.append(_OUTPUT_HEAD % call.id.encode() + output + b"}")
        return items or [_message("user", [_text(NO_TEXT)])]

    def drop_earlier_reasoning(self, now_ms: int) -> bool:
        """Send reasoning from before now back no more; return False if none was sent."""
        if not self._sent_back:
            return False
        self._author, self._sent_back = replace(self._author, after_ms=now_ms), False
        self._conversation = self._open()
        return True

    def _open(self) -> ConversationBuilder[_Items]:
        return ConversationBuilder(self._items, author=self._author, ids=_IDS)

    def _items(self, message: MessageBlocks) -> _Items:
        if message.result is not None:
            return (self._returned(message.result),)
        if message.role == "assistant":
            return tuple(self._answered(message))
        shown = (part for part in message.blocks if isinstance(part, Text | Image))
        return (_RequestItem(_message("user", self._content(shown) or [_text(NO_TEXT)])),)

    def _content(self, parts: Iterable[Text | Image]) -> list[Json]:
        content: list[Json] = []
        for part in parts:
            if isinstance(part, Image):
                content.append(_picture(part) if self._sees_images else _text(UNSEEN))
            elif part.text:
                content.append(_text(part.text))
        return content

    def _answered(self, message: MessageBlocks) -> Iterable[_RequestItem]:
        """Yield the model's blocks in order; reasoning is sent before what it led to, or not."""
        wrote = message.is_own
        thoughts: list[_RequestItem] = []
        texts: list[Text] = []
        for part in message.blocks:
            if isinstance(part, Thinking):
                thought = _thought(part) if wrote else None
                if thought is not None:
                    yield from _spoken(texts, wrote=wrote)
                    thoughts.append(thought)
            elif isinstance(part, CallBlock):
                yield from _spoken(texts, wrote=wrote)
                yield from _drain(thoughts)
                yield _asked_for(part.call)
            else:
                text = part if isinstance(part, Text) else Text(SHOWN)
                if texts and texts[-1].signature != text.signature:
                    yield from _spoken(texts, wrote=wrote)
                if text.text:
                    yield from _drain(thoughts)
                    texts.append(text)
        yield from _spoken(texts, wrote=wrote)

    def _returned(self, result: ToolResult) -> _RequestItem:
        content = self._content(result.content) or [_text(NO_OUTPUT)]
        has_picture = any(part["type"] == "input_image" for part in content)
        return _RequestItem(
            encode_json(content if has_picture else "\n".join(part["text"] for part in content))
        )


def tool_list(tools: Iterable[ToolSpec], *, strict: bool | None) -> bytes:
    """Return the tools a model may call.

    `strict` True: the service enforces what schemas it can; None: it enforces none; False: it does
    not know the field.
    """
    return encode_json([_tool(spec, strict=strict) for spec in tools])


def _tool(spec: ToolSpec, *, strict: bool | None) -> dict[str, Json]:
    schema = parameters(spec.parameters)
    made = {"type": "function", "name": spec.name, "description": spec.description}
    if strict is False:
        return {**made, "parameters": schema}
    # An absent field means strict, which the service refuses for most schemas.
    return {**made, "parameters": schema, "strict": bool(strict) and fits_strict(schema)}


def _spoken(texts: list[Text], *, wrote: bool) -> Iterable[_RequestItem]:
    """Yield the texts so far as one item, and clear them."""
    if texts:
        phase = _phase(texts[0].signature) if wrote else None
        yield _RequestItem(_message("assistant", "".join(text.text for text in texts), phase))
        texts.clear()


def _drain(thoughts: list[_RequestItem]) -> Iterable[_RequestItem]:
    yield from thoughts
    thoughts.clear()


def _thought(part: Thinking) -> _RequestItem | None:
    """Return the reasoning item that a signature contains, if it can be sent back."""
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
        made["content"] = content  # only services without encryption accept plain reasoning
    else:
        return None  # nothing is stored, so an id alone is useless
    return _RequestItem(encode_json(made), thought=item_id)


def _texts(item: Mapping[str, Json], name: str, kind: str) -> list[Json]:
    found = item.get(name)
    parts = found if isinstance(found, list) else []
    texts = [part.get("text") for part in parts if isinstance(part, dict)]
    return [{"type": kind, "text": text} for text in texts if isinstance(text, str)]


def _phase(signature: str) -> str | None:
    """Return the phase of a text; newer models require it back."""
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


def _asked_for(call: ToolCall) -> _RequestItem:
    # Arguments that were not JSON are not replayed: the service refuses the request.
    arguments = json.dumps(dict(call.args), ensure_ascii=False)
    rest = encode_json({"name": wire_name(call.name), "arguments": arguments})
    return _RequestItem(rest[1:], is_call=True)


def _message(role: str, content: Json, phase: str | None = None) -> bytes:
    made = {"type": "message", "role": role, "content": content}
    return encode_json({**made, "phase": phase} if phase else made)


def _text(text: str) -> dict[str, Json]:
    return {"type": "input_text", "text": text}


def _picture(image: Image) -> dict[str, Json]:
    url = f"data:{image.mime};base64,{image.data}"
    return {"type": "input_image", "detail": "auto", "image_url": url}
