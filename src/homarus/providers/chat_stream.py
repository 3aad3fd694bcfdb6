"""Assemble an answer of the chat completions API from its chunks.

Parsed chunks go in, deltas come out; at the end the parts, the stop reason and the usage are
available. Services deviate from the API in many ways; every variant that is unambiguous is
accepted, others raise MalformedChunkError.
"""

import json
import uuid
from collections.abc import Mapping, Sequence

from homarus.core.message import Json, Part, StopReason, Text, Thinking, ToolCall, Usage
from homarus.providers.base import Delta, TextDelta, ThinkingDelta
from homarus.providers.catalog import Price

REASONING_FIELDS = ("reasoning_content", "reasoning")

_STOPS: dict[str, StopReason] = {
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",
    "tool_calls": "toolUse",
    "function_call": "toolUse",
}


_decode = json.JSONDecoder().raw_decode


class MalformedChunkError(ValueError):
    """A chunk has an invalid shape."""


def parse_object(data: str) -> dict[str, Json]:
    """Parse a chunk into a JSON object; a third faster than json.loads."""
    data = data.strip()
    try:
        chunk, end = _decode(data)
    except (ValueError, RecursionError) as exc:
        raise MalformedChunkError(f"{exc} in {data[:80]!r}") from exc
    if end != len(data) or not isinstance(chunk, dict):
        raise MalformedChunkError(f"{data[:80]!r} is not an object")
    return chunk


class ChatStreamAssembler:
    """Assembles one streamed answer."""

    def __init__(self) -> None:
        self.finish = ""  # the vendor's finish reason
        self.done = False  # the last event was received
        self.whole = False  # the answer was not streamed
        self._text: list[str] = []
        self._thinking: list[str] = []
        self._thinking_field = ""
        self._calls = _PartialToolCalls()
        self._usage: Mapping[str, Json] = {}

    def add(self, chunk: Mapping[str, Json]) -> Sequence[Delta]:
        usage = chunk.get("usage")
        if usage is not None:
            self._note_usage(usage)
        choices = chunk.get("choices")
        if not choices:
            self._note_late(chunk)
            return ()
        if not isinstance(choices, list) or not isinstance(choices[0], dict):
            raise MalformedChunkError("choices are not a list of objects")
        choice = choices[0]
        finish = choice.get("finish_reason")
        if finish:
            self._note_finish(str(finish), chunk, choice)
        delta = choice.get("delta")
        if not delta:
            delta = choice.get("message")
            if not delta:
                return ()
            self.whole = True
        if not isinstance(delta, dict):
            raise MalformedChunkError("a delta is not an object")
        return self._add_delta(delta)

    def message_parts(self) -> tuple[Part, ...]:
        """Return the reasoning, text and tool calls."""
        parts: list[Part] = []
        if self._thinking:
            # The field's name is stored: some services need their reasoning back in the same field.
            parts.append(Thinking("".join(self._thinking), self._thinking_field))
        if self._text:
            parts.append(Text("".join(self._text)))
        return (*parts, *self._calls.made())

    def stop(self) -> StopReason:
        stop = _STOPS.get(self.finish, "stop")
        if stop == "length":
            return stop
        return "toolUse" if self._calls else "stop"

    def usage(self, price: Price) -> Usage:
        """Return tokens and cost. Vendors include cached tokens in the input, we do not."""
        return usage_of(self._usage, price)

    def _add_delta(self, delta: Mapping[str, Json]) -> Sequence[Delta]:
        content = delta.get("content")
        # The shape of nearly all chunks.
        if len(delta) == 1 and content and isinstance(content, str):
            self._text.append(content)
            return (TextDelta(content),)
        said: list[Delta] = []
        for field in REASONING_FIELDS:
            thought = delta.get(field)
            if thought and isinstance(thought, str):
                self._thinking_field = self._thinking_field or field
                self._thinking.append(thought)
                said.append(ThinkingDelta(thought))
                break  # some services send the same text in both
        if content:
            if isinstance(content, str):
                self._text.append(content)
                said.append(TextDelta(content))
            else:
                self._note_blocks(content, said)
        refusal = delta.get("refusal")
        if refusal and isinstance(refusal, str):
            self._text.append(refusal)
            said.append(TextDelta(refusal))
        calls = delta.get("tool_calls")
        if calls:
            self._calls.add(calls)
        return said

    def _note_blocks(self, content: Json, said: list[Delta]) -> None:
        """Read content that is a list of typed blocks (Mistral's reasoning models)."""
        if not isinstance(content, list):
            raise MalformedChunkError("content is neither text nor blocks")
        for block in content:
            text = _text_in(block)
            if not text:
                continue
            if isinstance(block, dict) and block.get("type") == "thinking":
                self._thinking.append(text)
                said.append(ThinkingDelta(text))
            else:
                self._text.append(text)
                said.append(TextDelta(text))

    def _note_finish(self, finish: str, chunk: Json, choice: Mapping[str, Json]) -> None:
        self.finish = finish
        if isinstance(choice.get("usage"), dict):  # Moonshot
            self._note_usage(choice["usage"])
        self._note_late(chunk)

    def _note_late(self, chunk: Mapping[str, Json]) -> None:
        groq = chunk.get("x_groq")
        if isinstance(groq, dict) and isinstance(groq.get("usage"), dict):
            self._note_usage(groq["usage"])

    def _note_usage(self, usage: Json) -> None:
        if isinstance(usage, dict) and usage:
            self._usage = usage


def usage_of(raw: Mapping[str, Json], price: Price) -> Usage:
    """Convert a vendor's usage object."""
    given, answered = token_count(raw, "prompt_tokens"), token_count(raw, "completion_tokens")
    prompt_details = find_object(raw, "prompt_tokens_details")
    cached = token_count(prompt_details, "cached_tokens") or token_count(
        raw, "prompt_cache_hit_tokens"
    )
    written = token_count(prompt_details, "cache_write_tokens")
    reasoning = token_count(find_object(raw, "completion_tokens_details"), "reasoning_tokens")
    if reasoning and given + answered + reasoning == token_count(raw, "total_tokens"):
        answered += reasoning  # xAI counts reasoning separately
    cached = min(cached, given)
    written = min(written, given - cached)
    fresh = given - cached - written
    cost = (
        fresh * price.input
        + answered * price.output
        + cached * price.cache_read
        + written * price.cache_write
    ) / 1_000_000
    if not cost and price == Price() and isinstance(raw.get("cost"), int | float):
        cost = max(float(raw["cost"]), 0.0)  # OpenRouter reports the charge
    return Usage(fresh, answered, cached, written, reasoning, cost)


class _PartialToolCall:
    __slots__ = ("args", "given", "id", "name")

    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.args: list[str] = []
        self.given: dict[str, Json] | None = None  # arguments that were sent as an object


class _PartialToolCalls:
    """Tool calls whose pieces may be interleaved, with or without index and id."""

    def __init__(self) -> None:
        self._all: list[_PartialToolCall] = []
        self._by_index: dict[int, _PartialToolCall] = {}

    def __bool__(self) -> bool:
        return bool(self._all)

    def add(self, pieces: Json) -> None:
        if not isinstance(pieces, list):
            raise MalformedChunkError("tool_calls is not a list")
        for piece in pieces:
            if not isinstance(piece, dict):
                raise MalformedChunkError("a tool call is not an object")
            function = piece.get("function")
            self._add(piece, function if isinstance(function, dict) else {})

    def made(self) -> tuple[ToolCall, ...]:
        seen: set[str] = set()
        made = []
        for call in self._all:
            call_id = (
                call.id if call.id and call.id not in seen else f"call_{uuid.uuid4().hex[:24]}"
            )
            seen.add(call_id)
            made.append(_finished(call, call_id))
        return tuple(made)

    def _add(self, piece: Mapping[str, Json], function: Mapping[str, Json]) -> None:
        call_id, name = _string(piece.get("id")), _string(function.get("name"))
        index = piece.get("index", function.get("index"))
        args = function.get("arguments")
        call = self._find(index, call_id, name)
        if call is None or _is_another(call, call_id, name, args):
            call = _PartialToolCall()
            self._all.append(call)
            if isinstance(index, int):
                self._by_index[index] = call
        call.id = call.id or call_id
        call.name = call.name or name
        if isinstance(args, str):
            call.args.append(args)
        elif isinstance(args, dict):
            call.given = args
        elif args is not None:
            call.args.append(json.dumps(args))

    def _find(self, index: Json, call_id: str, name: str) -> _PartialToolCall | None:
        if isinstance(index, int):
            return self._by_index.get(index)
        for call in self._all:
            if call_id and call.id == call_id:
                return call
        if call_id or name or not self._all:
            return None
        return self._all[-1]


def _is_another(call: _PartialToolCall, call_id: str, name: str, args: Json) -> bool:
    """Return whether a piece at a known index starts another call: some services number all 0."""
    if not name or not call.name:
        return False
    if name != call.name or (call_id and call.id and call_id != call.id):
        return True
    if call_id or not args:
        return False
    # The same name again without an id: the next call, if the arguments so far are complete.
    return call.given is not None or (
        bool(call.args)
        and call.args[-1].rstrip().endswith("}")
        and _object_in("".join(call.args)) is not None
    )


def _finished(call: _PartialToolCall, call_id: str) -> ToolCall:
    return make_tool_call(
        call_id, call.name, "".join(call.args) if call.given is None else call.given
    )


def make_tool_call(call_id: str, name: str, args: str | dict[str, Json]) -> ToolCall:
    """Return a complete call; arguments that are no JSON object are stored as broken."""
    if isinstance(args, dict):
        return ToolCall(call_id, name, args)
    found = _object_in(args) if args.strip() else {}
    return (
        ToolCall(call_id, name, {}, broken=args)
        if found is None
        else ToolCall(call_id, name, found)
    )


def _refuse(word: str) -> Json:
    raise ValueError(f"{word} is not JSON")


def _object_in(text: str) -> dict[str, Json] | None:
    """Parse a JSON object, or one that a model encoded as a JSON string."""
    try:
        value = json.loads(text, parse_constant=_refuse)
        if isinstance(value, str):
            value = json.loads(value, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _text_in(block: Json) -> str:
    if isinstance(block, str):
        return block
    if not isinstance(block, dict):
        return ""
    inner = block.get("text") or block.get("thinking")
    if isinstance(inner, list):
        return "".join(_text_in(part) for part in inner)
    return inner if isinstance(inner, str) else ""


def _string(value: Json) -> str:
    return value if isinstance(value, str) else ""


def find_object(raw: Mapping[str, Json], name: str) -> Mapping[str, Json]:
    """Return a field that is an object; an empty one for any other value."""
    value = raw.get(name)
    return value if isinstance(value, dict) else {}


def get_object(raw: Mapping[str, Json], name: str) -> Mapping[str, Json]:
    """Return a field that must be an object. Raises MalformedChunkError."""
    value = raw.get(name)
    if not isinstance(value, dict):
        raise MalformedChunkError(f"{name} is not an object")
    return value


def get_text(raw: Mapping[str, Json], name: str) -> str:
    """Return a field that must be text or absent. Raises MalformedChunkError."""
    value = raw.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise MalformedChunkError(f"{name} is not text")
    return value


def token_count(raw: Mapping[str, Json], name: str) -> int:
    """Return a field that is a plausible count; 0 for any other value."""
    value = raw.get(name)
    return int(value) if isinstance(value, int | float) and 0 <= value < 1e12 else 0
