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
MAX_ROOMS: Final = 200  # the groups that were quiet the longest are dropped
_REMEMBERED: Final = 200  # ids of a group, so that a message is not added twice


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
    ids: deque[str] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))
    takers: deque[str] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))

    def forget_told(self) -> None:
        while self.lines and self.lines[0].number <= self.collected_to:
            self.lines.popleft()


class GroupHistory:
    """Buffer the messages of every group, separately for each agent."""

    def __init__(self, max_rooms: int = MAX_ROOMS) -> None:
        self._rooms: OrderedDict[tuple[Address, str], _GroupBuffer] = OrderedDict()
        self._max_rooms = max_rooms

    def add(self, agent: str, inbound: Inbound, limit: int) -> None:
        """Add a message; the oldest are dropped beyond the limit."""
        if limit <= 0:
            return
        room = self._room(inbound.address, agent)
        if inbound.id in room.ids:
            return
        room.ids.append(inbound.id)
        room.count += 1
        room.lines.append(_BufferedMessage(room.count, inbound.id, _line(inbound)))
        while len(room.lines) > limit:
            room.lines.popleft()

    def collect_for(self, agent: str, inbound: Inbound, limit: int) -> str:
        """Return the messages since our last reply, for a message that will be answered."""
        room = self._rooms.get((inbound.address, agent))
        if room is None or limit <= 0:
            return ""
        if inbound.id != room.collected_by:
            if inbound.id in room.takers:
                return ""  # an old message that is offered again: it has its context
            room.forget_told()
            room.collected_by, room.collected_to = inbound.id, room.count
            room.takers.append(inbound.id)
        upto = [
            one for one in room.lines if one.number <= room.collected_to and one.id != inbound.id
        ]
        return _newest(upto[-limit:])

    def clear_collected(self, address: Address) -> None:
        """Clear what was collected: the reply was sent."""
        for (where, _), room in self._rooms.items():
            if where == address:
                room.forget_told()

    def _room(self, address: Address, agent: str) -> _GroupBuffer:
        room = self._rooms.setdefault((address, agent), _GroupBuffer())
        self._rooms.move_to_end((address, agent))
        while len(self._rooms) > self._max_rooms:
            self._rooms.popitem(last=False)
        return room


def _line(inbound: Inbound) -> str:
    body = inbound.text.strip()
    if len(body) > MAX_LINE_CHARS:
        body = f"{body[: MAX_LINE_CHARS - 1]}…"
    came = " ".join(f"<{media.kind}>" for media in inbound.media)
    passed = "(forwarded) " if inbound.metadata.forwarded else ""
    return f"{sender_label(inbound)}: {passed}{indent(' '.join(filter(None, (body, came))))}"


def _newest(lines: list[_BufferedMessage]) -> str:
    """Return as many of the last messages as fit."""
    chosen, remaining = list[str](), MAX_CHARS
    for one in reversed(lines):
        remaining -= len(one.text)
        if remaining < 0:
            break
        chosen.append(one.text)
    return "\n".join(reversed(chosen))
