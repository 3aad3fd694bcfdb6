"""The books of one run: which messages it answers, and that every save says so to the journal.

A run answers the message it began with, those merged with it, and those that steered it. Each
thing it saves is one unit with what the journal must know: that the run still holds its lease, a
call that has its result, a message taken along, and at the end the outcome and the reply's
parcels. What another run has taken over meanwhile, this one can no longer write.
"""

import logging
from collections.abc import Callable, Sequence
from typing import TypeAlias

from homarus.agent.replies import parse_reply
from homarus.core.errors import LeaseLost, StoreError
from homarus.core.faults import fault
from homarus.core.message import Inbound, Message, ToolReturn
from homarus.core.text import one_line
from homarus.sessions.session import Also, Session
from homarus.store.base import Entry, Unit
from homarus.store.journal import Accepted, Journal, Lease, Parcel

log = logging.getLogger(__name__)

# A reply for the sender of a message, as parcels; none where nothing has to be carried.
Pack: TypeAlias = Callable[[Inbound, str, str], Sequence[Parcel]]  # the message, the run, the text

EMPTY = "The model gave an empty answer. Ask again, or choose another model."
_MAX_WHY_CHARS = 300


class Books:
    """What one run owes, and under which lease."""

    def __init__(
        self,
        journal: Journal,
        rows: Sequence[Accepted],
        lease: Lease,
        *,
        pack: Pack,
        posted: Callable[[], None],
        now_ms: Callable[[], int],
    ) -> None:
        self._journal, self._lease = journal, lease
        self._pack, self._posted, self._now_ms = pack, posted, now_ms
        self._first = rows[0]
        self._ids = [row.id for row in rows]
        self._taken: dict[int, Accepted] = {}  # by the identity of the message it became

    @property
    def run(self) -> str:
        return self._first.id

    def begin(self, session: Session) -> Also:
        """They are being answered; with a question's entry, that is where they stand."""
        session_id = session.session_id

        def also(unit: Unit, entries: Sequence[Entry]) -> None:
            entry = entries[-1].id if entries else ""
            unit.start(self._ids, self._lease, run=self.run, session_id=session_id, entry=entry)

        return also

    def take(self, row: Accepted, message: Message) -> Message:
        """A message that steers this run: it is answered by it from its save on."""
        if row.id:  # else it steers, and is answered by a run of its own
            self._taken[id(message)] = row
        return message

    async def save(self, session: Session, messages: Sequence[Message]) -> None:
        """Add to the transcript what the run has made or been told."""

        def also(unit: Unit, entries: Sequence[Entry]) -> None:
            unit.hold(self._ids, self._lease)
            for message, entry in zip(messages, entries, strict=True):
                self._note(unit, session, message, entry)

        await session.append(*messages, also=also)
        for message in messages:
            if row := self._taken.pop(id(message), None):
                self._ids.append(row.id)
        if messages[-1].role == "tool":
            fault("tool.saved")

    def _note(self, unit: Unit, session: Session, message: Message, entry: Entry) -> None:
        if row := self._taken.get(id(message)):
            place = {"session_id": session.session_id, "entry": entry.id}
            unit.start([row.id], self._lease, run=self.run, **place)
        for part in message.parts:
            if isinstance(part, ToolReturn):
                unit.call_ended(self.run, self._lease, part.call_id)

    def hold(self, unit: Unit, _entries: Sequence[Entry]) -> None:
        """What is saved counts only while this run holds its lease."""
        unit.hold(self._ids, self._lease)

    async def start_call(self, call_id: str) -> None:
        """A tool that must not run twice is about to begin."""
        async with self._journal.commit() as unit:
            unit.call_started(self.run, self._lease, call_id)
        fault("tool.started")

    async def open_calls(self) -> frozenset[str]:
        """The calls that were begun before this run took over, and have no result."""
        return await self._journal.calls(self.run)

    async def finish(self, session: Session, reply: Message) -> None:
        """The answer, its outcome and its parcels, in one commit."""
        said = parse_reply(reply.text)
        text = said.text or ("" if said.silent or said.media else EMPTY)
        parcels = () if said.silent else self._parcels(text)

        def also(unit: Unit, entries: Sequence[Entry]) -> None:
            unit.settle(
                self._ids,
                self._lease,
                "silent" if said.silent else "answered",
                at_ms=self._now_ms(),
                reply=entries[-1].id,
            )
            unit.post(*parcels)

        await session.append(reply, also=also)
        fault("reply.saved")
        if parcels:
            self._posted()

    async def report(self, why: str, told: str) -> None:
        """There is no answer: the sender is told `told`, and the journal why."""
        parcels = self._parcels(told) if told else ()
        try:
            async with self._journal.commit() as unit:
                # It may be one of an earlier process, that ends before it was taken over.
                unit.start(self._ids, self._lease, run=self.run)
                unit.settle(
                    self._ids,
                    self._lease,
                    "reported",
                    at_ms=self._now_ms(),
                    why=one_line(why, _MAX_WHY_CHARS),
                )
                unit.post(*parcels)
        except LeaseLost:
            return  # whoever has it now will say how it ended
        except StoreError:
            log.exception("run %s ended, and that could not be written down", self.run)
            return
        if parcels:
            self._posted()

    def _parcels(self, text: str) -> Sequence[Parcel]:
        inbound = self._first.inbound
        return self._pack(inbound, self.run, text) if inbound else ()
