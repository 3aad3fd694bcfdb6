"""The books of one run: which messages it answers, and that every save says so to the journal.

A run answers the message it began with, those merged with it, and those that steered it. Each
thing it saves is one unit with what the journal must know: that the run still holds its lease, a
call that has its result, a message taken along, and at the end the outcome and the reply's
parcels. What another run has taken over meanwhile, this one can no longer write.
"""

import logging
from collections.abc import Callable, Sequence
from typing import TypeAlias

from homarus.agent.letters import Letters, Pack
from homarus.agent.tally import Call, spent
from homarus.core.errors import LeaseLost, StoreError
from homarus.core.faults import fault
from homarus.core.message import Message, ToolReturn
from homarus.core.text import one_line
from homarus.plugins.caller import Hooks
from homarus.sessions.session import Also, Session
from homarus.store.base import Entry, Spent, Store, Unit
from homarus.store.journal import Accepted, Lease, Parcel

log = logging.getLogger(__name__)

# Told of messages whose end could not be written down: somebody must come back to them.
Stranded: TypeAlias = Callable[[Sequence[str]], None]

_MAX_WHY_CHARS = 300


class Books:
    """What one run owes, and under which lease."""

    def __init__(
        self,
        store: Store,
        rows: Sequence[Accepted],
        lease: Lease,
        *,
        pack: Pack,
        posted: Callable[[], None],
        now_ms: Callable[[], int],
        hooks: Hooks,
        stranded: Stranded,
    ) -> None:
        self.letters = Letters(rows[0], lease, pack=pack, hooks=hooks, now_ms=now_ms)
        self._stranded = stranded
        self._store, self._journal, self._lease = store, store.journal, lease
        self._posted, self._now_ms = posted, now_ms
        self._first = rows[0]
        self._ids = [row.id for row in rows]
        self._runs = {row.run or row.id for row in rows}  # those that have worked on them
        self._open_calls: frozenset[str] = frozenset()
        self._taken: dict[int, Accepted] = {}  # by the identity of the message it became
        self._spent: list[Spent] = []  # calls of models, not yet written down

    @property
    def run(self) -> str:
        return self._first.id

    @property
    def attempt(self) -> str:
        """A name for this attempt at the run that no other has."""
        return f"{self.run}:{self._lease.token}"

    def note_call(self, call: Call) -> None:
        """A model was asked: the next unit says so."""
        self._spent.append(spent(call, self.run, self._first.session, self._now_ms()))

    def begin(self, session: Session) -> Also:
        """They are being answered; with a question's entry, that is where they stand."""
        session_id = session.session_id

        def also(unit: Unit, entries: Sequence[Entry]) -> None:
            entry = entries[-1].id if entries else ""
            unit.start(self._ids, self._lease, run=self.run, session_id=session_id, entry=entry)
            for call_id in self._open_calls:  # perhaps of a run by another name
                unit.call_started(self.run, self._lease, call_id)

        return also

    def take(self, row: Accepted, message: Message) -> Message:
        """A message that steers this run: it is answered by it from its save on."""
        if row.id:  # else it steers, and is answered by a run of its own
            self._taken[id(message)] = row
        return message

    async def save(self, session: Session, messages: Sequence[Message]) -> None:
        """Add to the transcript what the run has made or been told; what is sent goes with it."""
        parcels = await self.letters.save(messages)
        calls, self._spent = self._spent, []

        def also(unit: Unit, entries: Sequence[Entry]) -> None:
            unit.hold(self._ids, self._lease)
            unit.add_spent(*calls)
            for message, entry in zip(messages, entries, strict=True):
                self._note(unit, session, message, entry)
            unit.post(*parcels)

        await session.append(*messages, also=also)
        self._post(parcels)
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
        found = [await self._journal.calls(run) for run in self._runs]
        self._open_calls = frozenset().union(*found)
        return self._open_calls

    async def finish(self, session: Session, reply: Message) -> None:
        """The answer, its outcome and its parcels, in one commit."""
        outcome, parcels = await self.letters.finish(reply)
        calls, self._spent = self._spent, []

        def also(unit: Unit, entries: Sequence[Entry]) -> None:
            reply_id, at_ms = entries[-1].id, self._now_ms()
            unit.settle(self._ids, self._lease, outcome, at_ms=at_ms, reply=reply_id)
            unit.add_spent(*calls)
            unit.post(*parcels)

        await session.append(reply, also=also)
        fault("reply.saved")
        self._post(parcels)

    def _post(self, parcels: Sequence[Parcel]) -> None:
        self.letters.posted()
        if parcels:
            self._posted()

    async def report(self, why: str, told: str) -> None:
        """There is no answer: the sender is told `told`, and the journal why.

        That goes for what steered the run at its end, too, whether it was saved or not.
        """
        ids = [*self._ids, *(row.id for row in self._taken.values())]
        parcels = await self.letters.fail(told)
        try:
            async with self._store.commit() as unit:
                # It may be one of an earlier process, that ends before it was taken over.
                unit.start(ids, self._lease, run=self.run)
                unit.settle(
                    ids,
                    self._lease,
                    "reported",
                    at_ms=self._now_ms(),
                    why=one_line(why, _MAX_WHY_CHARS),
                )
                unit.add_spent(*self._spent)
                unit.post(*parcels)
        except LeaseLost:
            return  # whoever has it now will say how it ended
        except StoreError:
            log.exception("run %s ended, and that could not be written down", self.run)
            self._stranded(ids)
            return
        self._post(parcels)
