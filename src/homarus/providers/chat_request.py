"""Render messages as turns of the chat completions API.

Each tool call is followed by exactly one result, results without a call are dropped, no turn is
empty, and no role has two turns in a row: strict chat templates refuse that. Each message is
encoded once and cached while it lives.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Image, Json, Message, Text, Thinking, ToolCall, ToolResult
from homarus.providers.base import ToolSpec
from homarus.providers.chat_stream import REASONING_FIELDS
from homarus.providers.compat import ChatCompat
from homarus.providers.conversation import (
    INTERRUPTED,
    NO_OUTPUT,
    NO_TEXT,
    PICTURE_BELOW,
    PICTURES,
    SHOWN,
    UNSEEN,
    Author,
    Block,
    CallIds,
    ConversationBuilder,
    ConversationEntry,
    MessageBlocks,
    PlacedCall,
    encode_json,
)
from homarus.providers.openai_schema import fits_strict, parameters
from homarus.providers.render_cache import PrefixCache

GOT_RESULTS = "I have the tool results."
GAP = b"\\n\\n"  # between merged turns, inside a JSON string
# Google's value for a call whose signature is not available.
UNSIGNED = {"extra_content": {"google": {"thought_signature": "skip_thought_signature_validator"}}}

_HEAD = b'{"role":"%b","content":'
_TEXT = b'{"type":"text","text":"%b"}'
_IDS = CallIds(re.compile(r"[A-Za-z0-9_-]{1,40}"))
_MISTRAL_IDS = CallIds(re.compile(r"[A-Za-z0-9]{9}"), digest_chars=9)
_NOT_A_NAME = re.compile(r"[^A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class _ChatTurn:
    """One turn as JSON, empty for none, and the position of its content."""

    role: str
    json: bytes = b""
    start: int = 0  # the content without its quotes or brackets starts here,
    stop: int = 0  # ends here,
    rest: int = 0  # and the fields behind it start here
    has_blocks: bool = False
    pictures: tuple[bytes, ...] = ()  # pictures that a tool's turn cannot contain

    @property
    def content(self) -> bytes:
        return self.json[self.start : self.stop]


@dataclass(frozen=True, slots=True)
class _RenderedPrefix:
    """The encoded prefix of a conversation, and the role it ends with."""

    json: tuple[bytes, ...] = ()
    last: str = ""


_NOTHING = _RenderedPrefix()


class ChatMessageRenderer:
    """Renders messages for one model of one service."""

    def __init__(self, compat: ChatCompat, *, provider: str, model: str, sees_images: bool) -> None:
        self._compat, self._sees_images = compat, sees_images
        ids = _MISTRAL_IDS if compat.mistral_tool_ids else _IDS
        self._conversation = ConversationBuilder(
            self._turn, author=Author(provider, model), ids=ids
        )
        self._begun: PrefixCache[_RenderedPrefix] = PrefixCache()
        self._bridge = _made("assistant", GOT_RESULTS)

    def render(self, messages: Iterable[Message]) -> list[bytes]:
        """Return the turns as JSON: one each, or several joined by commas."""
        every = tuple(messages)
        size, begun = self._begun.find(every) or (0, _NOTHING)
        entries, settled = self._conversation.place(every[size:])
        made = list(begun.json)
        last = begun.last
        if settled:
            runs, role = self._runs(entries[: settled.entries], last)
            if role != "user":
                made += map(_as_one, runs)
                last, entries = role, entries[settled.entries :]
                if made and size + settled.messages >= self._begun.least:
                    made = [b",".join(made)]
                    prefix = _RenderedPrefix(tuple(made), last)
                    self._begun.keep(every[: size + settled.messages], prefix)
        return [*made, *map(_as_one, self._runs(entries, last)[0])]

    def _runs(
        self, entries: Iterable[ConversationEntry[_ChatTurn]], last: str
    ) -> tuple[list[list[_ChatTurn]], str]:
        """Return the turns, with results behind their calls, grouped by neighbours of one role.

        `last` is the role before them; the role they end with is returned as well.
        """
        runs: list[list[_ChatTurn]] = []
        for entry in entries:
            turns = [entry.encoded] if entry.encoded.json else []
            if entry.calls:
                turns += self._results(entry.calls)
            for turn in turns:
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

    def _results(self, calls: Sequence[PlacedCall[_ChatTurn]]) -> list[_ChatTurn]:
        turns: list[_ChatTurn] = []
        pictures: list[bytes] = []
        for call in calls:
            turns.append(call.result or self._result(call.id, call.call.name, INTERRUPTED))
            pictures.extend(call.result.pictures if call.result else ())
        if pictures:
            note = encode_json({"type": "text", "text": PICTURES})
            turns.append(_made("user", [note, *pictures]))
        return turns

    def _turn(self, message: MessageBlocks) -> _ChatTurn:
        if message.result is not None:
            return self._returned(message.call_id, message.result)
        return self._answered(message) if message.role == "assistant" else self._asked(message)

    def _asked(self, message: MessageBlocks) -> _ChatTurn:
        texts = [part.text for part in message.blocks if isinstance(part, Text) and part.text]
        images = [part for part in message.blocks if isinstance(part, Image)]
        if not images or not self._sees_images:
            texts += [UNSEEN] * len(images)
            return _made("user", "\n".join(texts) or NO_TEXT)
        blocks: list[Json] = [{"type": "text", "text": text} for text in texts]
        return _made("user", [encode_json(block) for block in (*blocks, *map(_picture, images))])

    def _answered(self, message: MessageBlocks) -> _ChatTurn:
        content = "".join(map(_spoken, message.blocks))
        rest: dict[str, Json] = {}
        thinking = [part for part in message.blocks if isinstance(part, Thinking) and part.text]
        if thinking and self._compat.thinking_as_text:
            content = "\n\n".join(filter(None, (*(t.text for t in thinking), content)))
        elif thinking and message.is_own and thinking[0].signature in REASONING_FIELDS:
            rest[thinking[0].signature] = "".join(part.text for part in thinking)
        if calls := message.calls:
            rest["tool_calls"] = [self._asked_for(each.id, each.call) for each in calls]
        elif not content:
            return _ChatTurn("assistant")
        return _made("assistant", content, rest)

    def _asked_for(self, call_id: str, call: ToolCall) -> dict[str, Json]:
        # Arguments that were not JSON are not replayed: several services refuse the request.
        arguments = json.dumps(dict(call.args), ensure_ascii=False)
        function = {"name": wire_name(call.name), "arguments": arguments}
        tool_call = {"id": call_id, "type": "function", "function": function}
        return {**tool_call, **UNSIGNED} if self._compat.unsigned_calls else tool_call

    def _returned(self, call_id: str, result: ToolResult) -> _ChatTurn:
        images = [part for part in result.content if isinstance(part, Image)]
        note = [PICTURE_BELOW if self._sees_images else UNSEEN] if images else []
        text = "\n".join(filter(None, (result.text, *note))) or NO_OUTPUT
        pictures = tuple(encode_json(_picture(i)) for i in images) if self._sees_images else ()
        return replace(self._result(call_id, result.name, text), pictures=pictures)

    def _result(self, call_id: str, name: str, text: str) -> _ChatTurn:
        rest = {"tool_call_id": call_id}
        if self._compat.tool_result_name:
            rest["name"] = wire_name(name)
        return _made("tool", text, rest)


def tool_list(tools: Iterable[ToolSpec], *, strict: bool = False) -> bytes:
    """Return the tools a model may call; with `strict` the service enforces what schemas it can."""
    return encode_json([_tool(spec, strict=strict) for spec in tools])


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
) -> _ChatTurn:
    """Encode a turn of text, which may be empty, or of blocks; `rest` are its other fields."""
    head = _HEAD % role.encode()
    has_blocks = not isinstance(content, str)
    if isinstance(content, str):
        value = encode_json(content) if content else b"null"
    else:
        value = b"[" + b",".join(content) + b"]"
    start, end = len(head), len(head) + len(value)
    tail = b"," + encode_json(rest)[1:] if rest else b"}"
    inner = (start + 1, end - 1) if content else (end, end)
    return _ChatTurn(role, head + value + tail, *inner, end, has_blocks)


def _as_one(run: Sequence[_ChatTurn]) -> bytes:
    """Merge turns of one role; of their reasoning, the last is sent."""
    if len(run) == 1:
        return run[0].json
    if any(turn.has_blocks for turn in run):
        blocks = (turn.content if turn.has_blocks else _TEXT % turn.content for turn in run)
        content = b"[" + b",".join(blocks) + b"]"
    else:
        content = b'"' + GAP.join(turn.content for turn in run if turn.content) + b'"'
    last = run[-1]
    return _HEAD % last.role.encode() + content + last.json[last.rest :]


def _spoken(part: Block) -> str:
    """Return a model's text; its own picture becomes a note."""
    return part.text if isinstance(part, Text) else SHOWN if isinstance(part, Image) else ""


def _picture(image: Image) -> dict[str, Json]:
    url = f"data:{image.mime};base64,{image.data}"
    return {"type": "image_url", "image_url": {"url": url}}


def wire_name(name: str) -> str:
    """Return a tool's name in the characters the wire accepts."""
    return _NOT_A_NAME.sub("_", name)[:64] or "unknown"
