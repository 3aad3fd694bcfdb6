"""Assemble an answer of the Responses API from its events.

Parsed events go in, deltas come out; at the end the parts, the stop reason and the usage are
available. An answer is a list of items; each is announced, sent in deltas and sent complete at its
end, and all of them again when the answer ends. Complete items replace deltas, and what a final
list lacks (some services end with an empty one) is kept.
"""

import json
import uuid
from collections.abc import Mapping, Sequence

from homarus.core.message import Image, Json, Part, StopReason, Text, Thinking, ToolCall, Usage
from homarus.providers.base import Delta, TextDelta, ThinkingDelta
from homarus.providers.catalog import Price
from homarus.providers.chat_stream import MalformedChunkError, make_tool_call, usage_of

# Sections of reasoning are joined as paragraphs.
GAP = "\n\n"

_ENDS = {
    "response.completed": "completed",
    "response.incomplete": "incomplete",
    "response.failed": "failed",
    "response.cancelled": "cancelled",
}
_ENDED = frozenset(_ENDS.values())
_TEXTS = frozenset({"response.output_text.delta", "response.refusal.delta"})
_THOUGHTS = {
    "response.reasoning_summary_text.delta": "summary_index",
    "response.reasoning_text.delta": "content_index",
}
CALL = "function_call"
_NAMES = ("id", "call_id", "name", "phase")


class ResponsesStreamAssembler:
    """Assembles one streamed answer."""

    def __init__(self) -> None:
        self.finish = ""  # completed, incomplete, failed or cancelled
        self.reason = ""  # why it is incomplete
        self.error: Mapping[str, Json] = {}  # why it failed
        self._items: list[_StreamedItem] = []
        self._by_index: dict[int | None, _StreamedItem] = {}
        self._usage: Mapping[str, Json] = {}

    def add(self, event: Mapping[str, Json]) -> Sequence[Delta]:
        kind = event.get("type")
        if not isinstance(kind, str):
            return self._whole(event)
        if kind in _TEXTS:
            said = event.get("delta")
            if not said or not isinstance(said, str):
                return ()
            self._item(event, "message").texts.append(said)
            return (TextDelta(said),)
        if kind in _THOUGHTS:
            return self._think(event, _THOUGHTS[kind])
        if kind in _ENDS:
            return self._end(event.get("response"), _ENDS[kind])
        return self._note(kind, event)

    @property
    def done(self) -> bool:
        return bool(self.finish)

    def message_parts(self) -> tuple[Part, ...]:
        """Return the reasoning, text, pictures and tool calls in the order of the items."""
        parts: list[Part] = []
        ids: set[str] = set()
        for item in self._items:
            part = item.part()
            if isinstance(part, ToolCall):
                if not part.id or part.id in ids:
                    part = ToolCall(_new_id(), part.name, part.args, part.broken)
                ids.add(part.id)
            if part is not None:
                parts.append(part)
        return tuple(parts)

    def stop(self) -> StopReason:
        if self.finish == "incomplete":
            return "length"
        return "toolUse" if any(item.kind == CALL for item in self._items) else "stop"

    def usage(self, price: Price) -> Usage:
        """Return tokens and cost; the fields are those of chat completions under other names."""
        raw = self._usage
        renamed = {
            "prompt_tokens": raw.get("input_tokens"),
            "completion_tokens": raw.get("output_tokens"),
            "total_tokens": raw.get("total_tokens"),
            "prompt_tokens_details": raw.get("input_tokens_details"),
            "completion_tokens_details": raw.get("output_tokens_details"),
            "cost": raw.get("cost"),
        }
        return usage_of(renamed, price)

    def _think(self, event: Mapping[str, Json], place: str) -> Sequence[Delta]:
        thought = event.get("delta")
        if not thought or not isinstance(thought, str):
            return ()
        item = self._item(event, "reasoning")
        section = (place, event.get(place))
        if item.texts and section != item.section:
            thought = GAP + thought
        item.section = section
        item.texts.append(thought)
        return (ThinkingDelta(thought),)

    def _note(self, kind: str, event: Mapping[str, Json]) -> Sequence[Delta]:
        """Apply an event that occurs a few times per item; unknown ones are ignored."""
        if kind in {"response.output_item.added", "response.output_item.done"}:
            fields = event.get("item")
            if not isinstance(fields, dict):
                raise MalformedChunkError("an item is not an object")
            begins = kind.endswith("added")
            item = self._item_for(event, fields, begins=begins)
            if not begins:
                return item.update(fields)
            item.start(fields)
        elif kind.startswith("response.function_call_arguments."):
            item = self._item(event, CALL)
            if kind.endswith("delta"):
                delta = event.get("delta")
                item.texts.append(delta if isinstance(delta, str) else "")
            elif event.get("arguments"):
                item.fields["arguments"] = event["arguments"]
        return ()

    def _item(self, event: Mapping[str, Json], kind: str) -> "_StreamedItem":
        """Return the item of a delta; one that was not announced starts here."""
        item = self._by_index.get(_index(event))
        return item if item is not None and item.kind == kind else self._begin(event, kind)

    def _item_for(
        self, event: Mapping[str, Json], fields: Mapping[str, Json], *, begins: bool
    ) -> "_StreamedItem":
        """Return the event's item. Some services number all 0, or change an item's id."""
        kind, item = _kind(fields), self._by_index.get(_index(event))
        if item is None or item.kind != kind:
            return self._begin(event, kind)
        another = _differ(item.fields, fields, "id") and (begins or item.is_whole)
        return self._begin(event, kind) if another else item

    def _begin(self, event: Mapping[str, Json], kind: str) -> "_StreamedItem":
        item = _StreamedItem(kind)
        self._items.append(item)
        self._by_index[_index(event)] = item
        return item

    def _whole(self, event: Mapping[str, Json]) -> Sequence[Delta]:
        if not isinstance(event.get("output"), list):
            raise MalformedChunkError("an event has no type")
        if event.get("status") in ("queued", "in_progress"):
            raise MalformedChunkError("it is not there yet")
        return self._end(event, "completed")

    def _end(self, response: Json, status: str) -> Sequence[Delta]:
        """Apply the complete answer of the final event."""
        fields = response if isinstance(response, dict) else {}
        own = fields.get("status")
        self.finish = own if isinstance(own, str) and own in _ENDED else status
        self.reason = str(_object(fields, "incomplete_details").get("reason") or "")
        self.error = _object(fields, "error")
        self._usage = _object(fields, "usage")
        output = fields.get("output")
        rest = list(self._items)
        said: list[Delta] = []
        for again in output if isinstance(output, list) else ():
            if isinstance(again, dict):
                item = _find(rest, again)
                if item is None:
                    item = self._begin({}, _kind(again))
                else:
                    rest.remove(item)
                said += item.update(again)
        return said


class _StreamedItem:
    """One item of an answer: its deltas, and its complete form."""

    __slots__ = ("fields", "is_whole", "kind", "section", "texts")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.texts: list[str] = []
        self.section: tuple[str, Json] = ("", None)
        self.fields: dict[str, Json] = {}
        self.is_whole = False

    def start(self, fields: Mapping[str, Json]) -> None:
        """Record the item's id and kind; its content may be incomplete."""
        self.fields.update((name, fields[name]) for name in _NAMES if fields.get(name))

    def update(self, fields: Mapping[str, Json]) -> Sequence[Delta]:
        """Record the complete item; return the text that was not streamed."""
        self.fields.update((name, value) for name, value in fields.items() if value)
        self.is_whole = True
        if self.kind not in {"message", "reasoning"}:
            return ()
        streamed, text = "".join(self.texts), self.text()
        rest = text[len(streamed) :] if text.startswith(streamed) else ""
        if not rest:
            return ()
        self.texts.append(rest)
        return (TextDelta(rest) if self.kind == "message" else ThinkingDelta(rest),)

    def text(self) -> str:
        """Return its text: the complete one, else the deltas."""
        if self.kind == "message":
            fields = "".join(_texts(self.fields.get("content"), "text", "refusal"))
        else:
            summary = _texts(self.fields.get("summary"), "text")
            fields = GAP.join([*summary, *_texts(self.fields.get("content"), "text")])
        return fields or "".join(self.texts)

    def part(self) -> Part | None:
        """Return its message part, or None."""
        match self.kind:
            case "message":
                text = self.text()
                return Text(text, self._phase()) if text else None
            case "reasoning":
                text, signature = self.text(), self._signature()
                return Thinking(text, signature) if text or signature else None
            case "function_call":
                args = self.fields.get("arguments")
                given = args if isinstance(args, str | dict) else "".join(self.texts)
                call_id = _string(self.fields, "call_id") or _string(self.fields, "id")
                return make_tool_call(call_id, _string(self.fields, "name"), given)
            case "image_generation_call":
                data = _string(self.fields, "result")
                kind = _string(self.fields, "output_format") or "png"
                return Image(data, f"image/{kind}") if data else None
            case _:
                return None

    def _signature(self) -> str:
        """Return the complete item as the signature to send back: the service stores nothing."""
        if not self.is_whole or self.fields.get("status") in ("incomplete", "in_progress"):
            return ""
        kept = {name: value for name, value in self.fields.items() if name != "status"}
        return _json({"type": "reasoning", "summary": [], **kept})

    def _phase(self) -> str:
        phase = _string(self.fields, "phase")
        return _json({"v": 1, "id": _string(self.fields, "id"), "phase": phase}) if phase else ""


def _find(items: Sequence[_StreamedItem], fields: Mapping[str, Json]) -> _StreamedItem | None:
    """Return the matching item: by its id, else the first of its kind."""
    same = [item for item in items if item.kind == _kind(fields)]
    for name in ("id", "call_id"):
        for item in same:
            if fields.get(name) and item.fields.get(name) == fields[name]:
                return item
    return same[0] if same else None


def _index(event: Mapping[str, Json]) -> int | None:
    index = event.get("output_index")
    return index if isinstance(index, int) else None


def _kind(fields: Mapping[str, Json]) -> str:
    return _string(fields, "type")


def _differ(one: Mapping[str, Json], other: Mapping[str, Json], name: str) -> bool:
    return bool(one.get(name) and other.get(name) and one[name] != other[name])


def _string(fields: Mapping[str, Json], name: str) -> str:
    value = fields.get(name)
    return value if isinstance(value, str) else ""


def _object(fields: Mapping[str, Json], name: str) -> Mapping[str, Json]:
    value = fields.get(name)
    return value if isinstance(value, dict) else {}


def _texts(parts: Json, *names: str) -> list[str]:
    found = []
    for part in parts if isinstance(parts, list) else ():
        if isinstance(part, dict):
            found += [part[name] for name in names if isinstance(part.get(name), str)]
    return [text for text in found if text]


def _json(value: Json) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except RecursionError:  # matches no item
        return ""


def _new_id() -> str:
    return f"call_{uuid.uuid4().hex[:24]}"
