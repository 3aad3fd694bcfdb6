"""Keep the group messages that did not address us, as context for the next one that does.

Messages are numbered as they arrive. An answered message collects those before it; they are cleared
when our reply was sent, or when another message is answered. Until then the same message, offered
again because it could not be stored, collects the same ones.
"""

from collections import OrderedDict, deque
from dataclasses import field
from typing import Final

from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Address, Inbound
from homarus.sessions.envelope import indent, sender_label

MAX_LINE_CHARS: Final = 1_000
MAX_CHARS: Final = 16_000  # characters of context for one message
MAX_GROUPS: Final = 200  # the groups that were quiet the longest are dropped
_MAX_IDS: Final = 200  # ids of a group, so that a message is not added twice


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

    def drop_collected(self) -> None:
        while self.lines and self.lines[0].number <= self.collected_to:
            self.lines.popleft()


class GroupHistory:
    """Buffer the messages of every group, separately for each agent."""

    def __init__(self, max_groups: int = MAX_GROUPS) -> None:
        self._groups: OrderedDict[tuple[Address, str], _GroupBuffer] = OrderedDict()
        self._max_groups = max_groups

    def add(self, agent: str, inbound: Inbound, limit: int) -> None:
        """Add a message; the oldest are dropped beyond the limit."""
        if limit <= 0:
            return
        group = self._group(inbound.address, agent)
        if inbound.id in group.ids:
            return
        group.ids.append(inbound.id)
        group.count += 1
        group.lines.append(_BufferedMessage(group.count, inbound.id, _format_line(inbound)))
        while len(group.lines) > limit:
            group.lines.popleft()

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
        return _newest(collected[-limit:])

    def clear_collected(self, address: Address) -> None:
        """Clear what was collected: the reply was sent."""
        for (chat, _), group in self._groups.items():
            if chat == address:
                group.drop_collected()

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
