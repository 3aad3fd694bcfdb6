"""Keep the group messages that did not address us, as context for the next one that does.

Messages are numbered as they arrive. An answered message collects those before it; they are cleared
when our reply was sent, or when another message is answered. Until then the same message, offered
again because it could not be stored, collects the same ones.

Each message and each collection is a record of the journal: the caller stores `take_changes` in the
transaction that moves the cursor. What was cleared is deleted there with the next collection, which
is soon enough: after a restart, what lies before the last collection counts as collected.
"""

from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import field, replace
from typing import Final

from homarus.core.clock import Clock
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Address, Inbound, Json
from homarus.sessions.envelope import indent, sender_label
from homarus.store.chat_records import ChatRecord, chat_key

MAX_LINE_CHARS: Final = 1_000
MAX_CHARS: Final = 16_000  # characters of context for one message
MAX_GROUPS: Final = 200  # the groups that were quiet the longest are dropped
_MAX_IDS: Final = 200  # ids of a group, so that a message is not added twice
_MAX_STORED_IDS: Final = 20  # of those that collected, in a record
_LINE: Final = "line:"  # and the id of the message
_COLLECTED: Final = "collected"


@dataclass(frozen=True, slots=True)
class _BufferedMessage:
    number: int
    id: str
    text: str


@dataclass(slots=True)
class _GroupBuffer:
    lines: deque[_BufferedMessage] = field(default_factory=deque)
    count: int = 0
    collected_to: int = 0  # the last buffered message that was collected
    collected_by: str = ""  # by this message
    ids: deque[str] = field(default_factory=lambda: deque(maxlen=_MAX_IDS))
    collectors: deque[str] = field(default_factory=lambda: deque(maxlen=_MAX_IDS))
    cleared: list[str] = field(default_factory=list)  # ids whose records are still to be deleted

    def drop_collected(self) -> None:
        while self.lines and self.lines[0].number <= self.collected_to:
            self.cleared.append(self.lines.popleft().id)

    def append(self, message_id: str, text: str) -> None:
        self.ids.append(message_id)
        self.count += 1
        self.lines.append(_BufferedMessage(self.count, message_id, text))

    def load(self, record: ChatRecord) -> None:
        """Repeat what a record says: a message, or a collection of those before it."""
        data = record.data or {}
        if record.id.startswith(_LINE):
            self.append(record.id.removeprefix(_LINE), str(data.get("text", "")))
        elif isinstance(collectors := data.get("by"), list) and collectors:
            self.collectors.extend(str(one) for one in collectors)
            self.collected_by, self.collected_to = self.collectors[-1], self.count


class GroupHistory:
    """Buffer the messages of every group, separately for each agent."""

    def __init__(self, clock: Clock, max_groups: int = MAX_GROUPS) -> None:
        self._groups: OrderedDict[tuple[Address, str], _GroupBuffer] = OrderedDict()
        self._clock, self._max_groups = clock, max_groups
        self._changes: list[ChatRecord] = []

    def is_loaded(self, agent: str, address: Address) -> bool:
        """Return whether a group is in memory."""
        return (address, agent) in self._groups

    def load(self, agent: str, address: Address, records: Sequence[ChatRecord]) -> None:
        """Take a group from its records, unless it is in memory already."""
        if (address, agent) not in self._groups:
            group = self._group(address, agent)
            for record in records:
                group.load(record)

    def take_changes(self) -> list[ChatRecord]:
        """Return the records that changed since the last call."""
        changes, self._changes = self._changes, []
        return changes

    def add(self, agent: str, inbound: Inbound, limit: int) -> None:
        """Add a message; the oldest are dropped beyond the limit."""
        if limit <= 0:
            return
        group, text = self._group(inbound.address, agent), _format_line(inbound)
        if inbound.id not in group.ids:
            group.append(inbound.id, text)
        elif not any(
            line.id == inbound.id and line.number > group.collected_to for line in group.lines
        ):
            return
        # Also when it is offered again: it may not have been stored.
        self._change(inbound.address, agent, f"{_LINE}{inbound.id}", {"text": text})
        while len(group.lines) > limit:
            old = group.lines.popleft().id
            self._change(inbound.address, agent, f"{_LINE}{old}", None)

    def amend(self, agent: str, address: Address, message_id: str, edited: Inbound | None) -> None:
        """Replace the text of a buffered message that its sender edited; drop a deleted one.

        `message_id` may lack the chat, which some channels put before it in the id of a message.
        """
        if (address, agent) not in self._groups:
            return
        group = self._groups[address, agent]
        lines = group.lines
        for index, line in enumerate(lines):
            if line.id != message_id and not line.id.endswith(f":{message_id}"):
                continue
            if edited is None:
                del lines[index]
                self._change(address, agent, f"{_LINE}{line.id}", None)
            elif line.text.startswith(f"{sender_label(edited)}: "):
                lines[index] = replace(line, text=_format_line(edited))
                # A record that is written becomes the newest: those after it are written too. One
                # before the last collection stays, as it would count as not collected.
                for one in [*lines][index:] if line.number > group.collected_to else ():
                    self._change(address, agent, f"{_LINE}{one.id}", {"text": one.text})
            return

    def collect_for(self, agent: str, inbound: Inbound, limit: int) -> str:
        """Return the messages since our last reply, for a message that will be answered."""
        group = self._groups.get((inbound.address, agent))
        if group is None or limit <= 0:
            return ""
        if inbound.id != group.collected_by:
            if inbound.id in group.collectors:
                return ""  # an old message that is offered again: it has its context
            group.drop_collected()
            group.collected_by, group.collected_to = inbound.id, group.count
            group.collectors.append(inbound.id)
        collected = [
            message
            for message in group.lines
            if message.number <= group.collected_to and message.id != inbound.id
        ]
        self._store_collection(group, agent, inbound.address)
        return _newest(collected[-limit:])

    def clear_collected(self, address: Address) -> None:
        """Clear what was collected: the reply was sent."""
        for (chat, _), group in self._groups.items():
            if chat == address:
                group.drop_collected()

    def _store_collection(self, group: _GroupBuffer, agent: str, address: Address) -> None:
        """Delete the records of what was cleared, and write which message collected the others."""
        if not group.count:
            return  # nothing was ever added
        for message_id in group.cleared:
            self._change(address, agent, f"{_LINE}{message_id}", None)
        group.cleared.clear()
        self._change(address, agent, _COLLECTED, {"by": [*group.collectors][-_MAX_STORED_IDS:]})

    def _change(
        self, address: Address, agent: str, record_id: str, data: dict[str, Json] | None
    ) -> None:
        chat, at_ms = chat_key(address, agent), self._clock.now_ms()
        self._changes.append(ChatRecord("history", chat, record_id, at_ms, data))

    def _group(self, address: Address, agent: str) -> _GroupBuffer:
        group = self._groups.setdefault((address, agent), _GroupBuffer())
        self._groups.move_to_end((address, agent))
        while len(self._groups) > self._max_groups:
            self._groups.popitem(last=False)
        return group


def _format_line(inbound: Inbound) -> str:
    body = inbound.text.strip()
    if len(body) > MAX_LINE_CHARS:
        body = f"{body[: MAX_LINE_CHARS - 1]}…"
    media_tags = " ".join(f"<{media.kind}>" for media in inbound.media)
    metadata = inbound.metadata
    prefix = "(forwarded) " if metadata.forwarded else "(by a bot) " if metadata.via_bot else ""
    return f"{sender_label(inbound)}: {prefix}{indent(' '.join(filter(None, (body, media_tags))))}"


def _newest(lines: list[_BufferedMessage]) -> str:
    """Return as many of the last messages as fit."""
    texts, remaining = list[str](), MAX_CHARS
    for message in reversed(lines):
        remaining -= len(message.text)
        if remaining < 0:
            break
        texts.append(message.text)
    return "\n".join(reversed(texts))
