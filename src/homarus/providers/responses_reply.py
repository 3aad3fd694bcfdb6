"""An answer on OpenAI's Responses wire, put together event by event.

Pure: parsed events go in, deltas come out, and at the end there is what the answer says, asks for
and cost. An answer is a list of items; each is announced, told in pieces and told whole at its
end, and all of them once more when the answer ends. What is told whole wins over the pieces, and
what was left out of it (some services end with an empty list) is kept from before.
"""

import json
import uuid
from collections.abc import Mapping, Sequence

from homarus.core.message import (
    Image,
    Json,
    Part,
    StopReason,
    Text,
    Thinking,
    ToolCall,
    Usage,
)
from homarus.providers.base import Delta, TextDelta, ThinkingDelta
from homarus.providers.catalog import Price
from homarus.providers.chat_reply import Malformed, call_of, usage_of

# What its reasoning says in several places is told in paragraphs.
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
_ARGUMENTS = "response.function_call_arguments."


class Reply:
    """One answer, as far as it has come."""

    def __init__(self) -> None:
        self.status = ""  # how it ended: completed, incomplete, failed or cancelled
        self.reason = ""  # why it is incomplete
        self.error: Mapping[str, Json] = {}  # why it failed
        self._items: dict[int, _Item] = {}
        self._usage: Mapping[str, Json] = {}

    def add(self, event: Mapping[str, Json]) -> Sequence[Delta]:
        """Take an event in; what it said is returned."""
        kind = event.get("type")
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
        if not isinstance(kind, str):
            return self._whole(event)
        return self._note(kind, event)

    def message_parts(self) -> tuple[Part, ...]:
        """What was thought, said and asked for, in the order of its items."""
        parts: list[Part] = []
        ids: set[str] = set()
        for index in sorted(self._items):
            part = self._items[index].part()
            if isinstance(part, ToolCall):
                if not part.id or part.id in ids:
                    part = ToolCall(_new_id(), part.name, part.args, part.broken)
                ids.add(part.id)
            if part is not None:
                parts.append(part)
        return tuple(parts)

    def stop(self) -> StopReason:
        """How it ended, in our words."""
        if self.status == "incomplete":
            return "length"
        calls = any(item.kind == "function_call" for item in self._items.values())
        return "toolUse" if calls else "stop"

    def usage(self, price: Price) -> Usage:
        """What it cost: the words of this wire are those of the other, under new names."""
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
        """Events that come once or a few times per item; one that is not known says nothing."""
        if kind in {"response.output_item.added", "response.output_item.done"}:
            told = event.get("item")
            if not isinstance(told, dict):
                raise Malformed("an item is not an object")
            item = self._item(event, str(told.get("type", "")))
            return item.tell(told, whole=kind.endswith("done"))
        if kind.startswith(_ARGUMENTS):
            item = self._item(event, "function_call")
            if kind.endswith("delta"):
                delta = event.get("delta")
                if isinstance(delta, str):
                    item.texts.append(delta)
            else:
                item.tell({"arguments": event.get("arguments"), "name": event.get("name")})
        return ()

    def _item(self, event: Mapping[str, Json], kind: str) -> "_Item":
        """The item that an event is about; one that was never announced begins here."""
        index = event.get("output_index")
        if not isinstance(index, int):
            index = max(self._items, default=0)
        item = self._items.get(index)
        if item is None:
            item = self._items[index] = _Item(kind)
        return item

    def _whole(self, event: Mapping[str, Json]) -> Sequence[Delta]:
        """An answer in one piece, not streamed."""
        if not isinstance(event.get("output"), list):
            raise Malformed("an event has no type")
        return self._end(event, "completed")

    def _end(self, response: Json, status: str) -> Sequence[Delta]:
        """The answer as it is told once more at its end."""
        told = response if isinstance(response, dict) else {}
        own = told.get("status")
        self.status = own if isinstance(own, str) and own in _ENDED else status
        details, error, usage = (
            told.get(name) for name in ("incomplete_details", "error", "usage")
        )
        if isinstance(details, dict):
            self.reason = str(details.get("reason") or "")
        if isinstance(error, dict):
            self.error = error
        if isinstance(usage, dict):
            self._usage = usage
        output = told.get("output")
        said: list[Delta] = []
        for position, item in enumerate(output if isinstance(output, list) else ()):
            if isinstance(item, dict):
                said += self._place(position, item).tell(item, whole=True)
        return said

    def _place(self, position: int, told: Mapping[str, Json]) -> "_Item":
        """The item that was streamed and is told again; or a new one, behind the others."""
        kind, item_id = str(told.get("type", "")), told.get("id")
        for item in self._items.values():
            if item_id and item.told.get("id") == item_id:
                return item
        here = self._items.get(position)
        if here is not None and here.kind == kind and not (item_id and here.told.get("id")):
            return here
        index = position if here is None else max(self._items) + 1
        made = self._items[index] = _Item(kind)
        return made


class _Item:
    """One item of an answer: its pieces, and what was told of it whole."""

    __slots__ = ("is_whole", "kind", "section", "texts", "told")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.texts: list[str] = []
        self.section: tuple[str, Json] = ("", None)
        self.told: dict[str, Json] = {}
        self.is_whole = False

    def tell(self, told: Mapping[str, Json], *, whole: bool = False) -> Sequence[Delta]:
        """Learn what it is; what was not streamed before is returned."""
        self.told.update((name, value) for name, value in told.items() if value)
        self.kind = str(self.told.get("type") or self.kind)
        if not whole:
            return ()
        self.is_whole = True
        streamed = "".join(self.texts)
        text = self.text()
        if self.kind not in {"message", "reasoning"} or not text.startswith(streamed):
            return ()
        rest = text[len(streamed) :]
        if not rest:
            return ()
        self.texts.append(rest)
        return (TextDelta(rest),) if self.kind == "message" else (ThinkingDelta(rest),)

    def text(self) -> str:
        """Its words: as told whole, else as they came."""
        if self.kind == "message":
            told = "".join(_texts(self.told.get("content"), "text", "refusal"))
        else:
            summary = _texts(self.told.get("summary"), "text")
            told = GAP.join([*summary, *_texts(self.told.get("content"), "text")])
        return told or "".join(self.texts)

    def part(self) -> Part | None:
        """What it is in our words; None when it says nothing to us."""
        match self.kind:
            case "message":
                text = self.text()
                return Text(text, self._phase()) if text else None
            case "reasoning":
                text, signature = self.text(), self._signature()
                return Thinking(text, signature) if text or signature else None
            case "function_call":
                return self._call()
            case "image_generation_call" if isinstance(self.told.get("result"), str):
                kind = self.told.get("output_format") or "png"
                return Image(self.told["result"], f"image/{kind}")
            case _:
                return None

    def _call(self) -> ToolCall:
        args = self.told.get("arguments")
        if not isinstance(args, str | dict):
            args = "".join(self.texts)
        call_id = self.told.get("call_id") or self.told.get("id")
        name = self.told.get("name")
        return call_of(
            call_id if isinstance(call_id, str) else "", name if isinstance(name, str) else "", args
        )

    def _signature(self) -> str:
        """The whole item, to be sent back: the service keeps nothing."""
        if not self.is_whole or self.told.get("status") in {"incomplete", "in_progress"}:
            return ""
        kept = {name: value for name, value in self.told.items() if name != "status"}
        return _json({"summary": [], **kept})

    def _phase(self) -> str:
        phase = self.told.get("phase")
        return _json({"v": 1, "id": self.told.get("id"), "phase": phase}) if phase else ""


def _texts(parts: Json, *names: str) -> list[str]:
    found = []
    for part in parts if isinstance(parts, list) else ():
        if isinstance(part, dict):
            found += [part[name] for name in names if isinstance(part.get(name), str)]
    return [text for text in found if text]


def _json(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _new_id() -> str:
    return f"call_{uuid.uuid4().hex[:24]}"
