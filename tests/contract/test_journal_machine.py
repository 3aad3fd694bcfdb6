"""A state machine: any sequence of operations on a journal, also under stale leases.

Leases are taken and never released by those who think they have them, so that every write is
tried under leases that are old, current, or of another holder; between any two steps the process
may end, and the journal is opened again from what is on disk.
"""

import asyncio
import tempfile
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from homarus.core.errors import LeaseLostError
from homarus.core.message import Address, Inbound
from homarus.core.principal import OWNER
from homarus.store.journal import (
    OPEN,
    InboxRecord,
    InboxState,
    Journal,
    JournalTransaction,
    Lease,
    OutboxRecord,
    OutboxState,
    SettledState,
)
from tests.contract.journals import KINDS, Home, memory_home, postgres_home, sqlite_home

SESSION = "agent:main:main"
CHAT = Address("telegram", "42")
DONE: tuple[SettledState, ...] = ("answered", "silent", "reported")

pick = st.integers(0, 11)
outcomes = st.sampled_from([*DONE, "parked"])
endings = st.sampled_from(["sent", "unknown", "dead", "pending"])


@dataclass
class ModelRow:
    """The expected state of a message."""

    id: str
    name: str
    text: str
    state: InboxState = "accepted"
    token: int = 0
    attempts: int = 0
    duplicates: int = 0
    settled_ms: int = 0
    beside: bool = False  # another had its id first
    calls: set[str] = field(default_factory=set)

    def open_to(self, token: int) -> bool:
        return self.state in OPEN and self.token <= token

    def held_by(self, token: int) -> bool:
        return self.state == "running" and self.token == token

    def seen(self) -> tuple[object, ...]:
        kept = self.state in {*OPEN, "parked"}
        return self.id, self.state, self.attempts, self.duplicates, self.settled_ms, kept

    @staticmethod
    def look(row: InboxRecord) -> tuple[object, ...]:
        kept = row.inbound is not None
        return row.id, row.state, row.attempts, row.duplicates, row.settled_ms, kept


@dataclass
class Sent:
    """The expected state of an outbox record."""

    id: str
    at_ms: int
    state: OutboxState = "pending"
    token: int = 0
    attempts: int = 0


class Machine(RuleBasedStateMachine):
    """A journal and a model of it."""

    def __init__(self, home: Home, done: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self.home, self.done = home, done
        self.rows: list[ModelRow] = []
        self.outbox: list[Sent] = []
        self.leases: list[Lease] = []
        self.outcomes: dict[str, int] = {}
        self.now_ms = 0
        self.runner = asyncio.Runner()
        self.opened = AsyncExitStack()
        self.journal: Journal = self.do(self.open())
        self.take_lease()

    def do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.runner.run(work)

    async def open(self) -> Journal:
        return (await self.opened.enter_async_context(self.home.open()))(OWNER)

    def teardown(self) -> None:
        self.do(self.opened.aclose())
        self.runner.close()
        self.done()

    def tick(self) -> int:
        self.now_ms += 1
        return self.now_ms

    def tries(self, allowed: bool, step: Callable[[JournalTransaction], None]) -> bool:
        """Run a transaction that must be accepted, or refused completely."""

        async def commit() -> bool:
            try:
                async with self.journal.transaction() as transaction:
                    step(transaction)
                    transaction.enqueue()
            except LeaseLostError:
                return False
            return True

        taken: bool = self.do(commit())
        assert taken == allowed
        return taken

    def row(self, which: int) -> ModelRow:
        return self.rows[which % len(self.rows)]

    def sent_record(self, which: int) -> Sent:
        return self.outbox[which % len(self.outbox)]

    def lease(self, which: int) -> Lease:
        """Return a lease, mostly one of the last."""
        return self.leases[-1 - which % min(len(self.leases), 4)]

    @rule()
    def take_lease(self) -> None:
        async def take() -> Lease:
            async with self.journal.lease("session:x") as lease:
                return lease

        lease = self.do(take())
        assert all(lease.token > other.token for other in self.leases)
        self.leases.append(lease)

    @rule(name=st.sampled_from("abc"), text=st.sampled_from("xyz"), at_once=st.integers(1, 3))
    def accept(self, name: str, text: str, at_once: int) -> None:
        inbound = Inbound(name, CHAT, "ann", text)

        async def offer() -> list[tuple[str, InboxRecord]]:
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(self.journal.accept(SESSION, inbound, at_ms=now))
                    for now in [self.tick()] * at_once
                ]
            return [(task.result().kind, task.result().record) for task in tasks]

        got = self.do(offer())
        named = [row for row in self.rows if row.name == name]
        first = all(row.beside for row in named)  # its id is free, or free again
        same = [row for row in named if row.text == text and not (first and row.beside)]
        same.sort(key=lambda row: row.beside)  # what has the id itself is found first
        expected = {"duplicate"} if same else {"new"} if first else {"conflict"}
        assert {kind for kind, _ in got} - {"duplicate"} == expected - {"duplicate"}
        assert sum(kind == "duplicate" for kind, _ in got) == at_once - (not same)
        assert len({row.id for _, row in got}) == 1
        if not same:
            same = [ModelRow(got[0][1].id, name, text)]
            if not first:
                same[0] = replace(same[0], beside=True, state="parked", settled_ms=self.now_ms)
            same[0].duplicates = -1
            self.rows += same
        assert same[0].id == got[0][1].id
        same[0].duplicates += at_once

    @precondition(lambda self: self.rows)
    @rule(which=pick, under=pick)
    def start(self, which: int, under: int) -> None:
        row, lease = self.row(which), self.lease(under)
        if self.tries(
            row.open_to(lease.token), lambda u: u.mark_running([row.id], lease, run=row.id)
        ):
            row.attempts += row.state == "accepted" or row.token != lease.token
            row.state, row.token = "running", lease.token

    @precondition(lambda self: self.rows)
    @rule(which=pick, under=pick)
    def hold(self, which: int, under: int) -> None:
        row, lease = self.row(which), self.lease(under)
        self.tries(
            row.held_by(lease.token), lambda transaction: transaction.check_lease([row.id], lease)
        )

    @precondition(lambda self: self.rows)
    @rule(which=pick, under=pick, state=outcomes)
    def settle(self, which: int, under: int, state: SettledState) -> None:
        """Settle with an outbox record, which must not be stored when the settlement is refused."""
        row, lease = self.row(which), self.lease(under)
        reply = Sent(f"p{self.tick()}", self.now_ms)
        allowed = row.held_by(lease.token) or (row.state == "accepted" and row.token <= lease.token)

        def step(transaction: JournalTransaction) -> None:
            transaction.enqueue(
                OutboxRecord(reply.id, row.id, CHAT, "hi", reply.at_ms, self.now_ms + 50)
            )
            transaction.settle([row.id], lease, state, at_ms=self.now_ms)

        if self.tries(allowed, step):
            row.state, row.token, row.settled_ms = state, lease.token, self.now_ms
            self.outbox.append(reply)
            if state != "parked":
                row.calls.clear()
                self.outcomes[row.id] = self.outcomes.get(row.id, 0) + 1

    @precondition(lambda self: self.rows)
    @rule(which=pick, under=pick, call=st.sampled_from("12"), ends=st.booleans())
    def call(self, which: int, under: int, call: str, ends: bool) -> None:
        row, lease = self.row(which), self.lease(under)

        def step(transaction: JournalTransaction) -> None:
            (transaction.call_ended if ends else transaction.call_started)(row.id, lease, call)

        if self.tries(row.held_by(lease.token), step):
            row.calls = row.calls - {call} if ends else row.calls | {call}

    @precondition(lambda self: self.outbox)
    @rule(which=pick, under=pick)
    def send(self, which: int, under: int) -> None:
        sent, lease = self.sent_record(which), self.lease(under)
        allowed = sent.state in {"pending", "sending"} and sent.token <= lease.token
        if self.tries(allowed, lambda transaction: transaction.send_started(sent.id, lease)):
            sent.state, sent.token, sent.attempts = "sending", lease.token, sent.attempts + 1

    @precondition(lambda self: self.outbox)
    @rule(which=pick, under=pick, state=endings)
    def end_send(self, which: int, under: int, state: OutboxState) -> None:
        sent, lease = self.sent_record(which), self.lease(under)
        allowed = sent.state == "sending" and sent.token == lease.token
        if self.tries(allowed, lambda transaction: transaction.send_ended(sent.id, lease, state)):
            sent.state = state

    @precondition(lambda self: self.rows)
    @rule(which=pick)
    def retry_message(self, which: int) -> None:
        row = self.row(which)
        assert self.do(self.journal.retry(row.id, at_ms=self.tick())) == (row.state == "parked")
        if row.state == "parked":
            row.state, row.token, row.attempts, row.settled_ms = "accepted", row.token + 1, 0, 0

    @precondition(lambda self: self.outbox)
    @rule(which=pick)
    def retry_outbox_record(self, which: int) -> None:
        sent = self.sent_record(which)
        stranded = sent.state in {"unknown", "dead"}
        assert self.do(self.journal.retry(sent.id, at_ms=self.tick())) == stranded
        if stranded:
            sent.state, sent.token, sent.attempts = "pending", sent.token + 1, 0

    @precondition(lambda self: self.rows)
    @rule(which=pick)
    def discard_message(self, which: int) -> None:
        row, now = self.row(which), self.tick()
        parked = row.state == "parked"
        assert self.do(self.journal.discard(row.id, at_ms=now, why="w")) == parked
        if parked:
            row.state, row.settled_ms = "reported", now
            row.calls.clear()
            self.outcomes[row.id] = self.outcomes.get(row.id, 0) + 1

    @precondition(lambda self: self.outbox)
    @rule(which=pick)
    def discard_outbox_record(self, which: int) -> None:
        sent = self.sent_record(which)
        stranded = sent.state in {"unknown", "dead"}
        assert self.do(self.journal.discard(sent.id, at_ms=self.tick(), why="w")) == stranded
        if stranded:
            self.outbox.remove(sent)

    @rule(back=st.integers(0, 5))
    def prune(self, back: int) -> None:
        before = self.now_ms - back
        rows = [row for row in self.rows if row.state in DONE and row.settled_ms < before]
        sent = [one for one in self.outbox if one.state == "sent" and one.at_ms < before]
        assert self.do(self.journal.prune(before)) == len(rows) + len(sent)
        self.rows = [row for row in self.rows if row not in rows]
        self.outbox = [one for one in self.outbox if one not in sent]

    @rule()
    def close_and_reopen(self) -> None:
        async def again() -> Journal:
            await self.opened.aclose()
            return await self.open()

        self.journal = self.do(again())

    @invariant()
    def check_journal_matches_model(self) -> None:
        async def look() -> tuple[Any, ...]:
            calls = [(row.id, set(await self.journal.open_calls(row.id))) for row in self.rows]
            return (
                await self.journal.inbox_records(),
                await self.journal.inbox_records(*OPEN),
                calls,
                await self.journal.outbox_records(),
                await self.journal.outbox_records("pending"),
            )

        rows, still_open, calls, outbox, pending = self.do(look())
        assert [ModelRow.look(row) for row in rows] == [row.seen() for row in self.rows]
        assert [row for row in rows if row.state in OPEN] == still_open
        assert calls == [(row.id, row.calls) for row in self.rows]
        seen = [(one.id, one.state, one.attempts) for one in outbox]
        assert seen == [(one.id, one.state, one.attempts) for one in self.outbox]
        assert [one for one in outbox if one.state == "pending"] == pending

    @invariant()
    def nothing_has_two_outcomes(self) -> None:
        assert all(count == 1 for count in self.outcomes.values())


@pytest.mark.parametrize("kind", KINDS)
def test_journal_guarantees_hold_for_any_sequence(
    kind: str, request: pytest.FixtureRequest
) -> None:
    class Fresh(Machine):
        """Each begins with a journal of its own."""

        def __init__(self) -> None:
            if kind == "memory":
                super().__init__(memory_home())
            elif kind == "postgres":
                super().__init__(postgres_home(request.getfixturevalue("postgres_uri")))
            else:
                folder = tempfile.TemporaryDirectory()
                super().__init__(sqlite_home(Path(folder.name)), folder.cleanup)

    run_state_machine_as_test(
        Fresh,
        settings=settings(
            max_examples=60 if kind == "memory" else 25,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
