"""What every journal guarantees about traces, attempts to send and the backlog."""

from homarus.store.journal import Journal
from homarus.store.traces import (
    MAX_DELIVERY_ATTEMPTS,
    BacklogCount,
    DeliveryAttempt,
    TraceRecord,
    add_attempt,
)
from tests.contract.journals import (
    HELLO,
    SESSION,
    Run,
    accept,
    enqueue,
    lease,
    make_outbox_record,
    says,
    settle,
    start,
)


async def add(journal: Journal, *records: TraceRecord) -> None:
    async with journal.transaction() as transaction:
        for record in records:
            transaction.add_trace(record)


async def test_traces_are_stored_by_run_and_attempt(run_journal: Run) -> None:
    first = TraceRecord("r1", "s1", 1, 10, {"outcome": "suspended", "text": "a\ud800\0b"})
    second = TraceRecord("r1", "s1", 2, 20, {"outcome": "answered"})
    other = TraceRecord("r2", "s2", 3, 30, {})
    async with run_journal() as journal:
        await add(journal, first, second, other)
        found = await journal.traces(run="r1")
        assert [one.attempt for one in found] == [1, 2] and found[1] == second
        assert [one.run for one in await journal.traces(session="s2")] == ["r2"]
        assert [one.run for one in await journal.traces(limit=2)] == ["r1", "r2"]
        assert list(await journal.traces(run="absent")) == []
        again = TraceRecord("r1", "s1", 2, 21, {"outcome": "failed"})
        await add(journal, again)
        assert (await journal.traces(run="r1"))[-1] == again


async def test_prune_deletes_old_traces_and_keeps_newer(run_journal: Run) -> None:
    async with run_journal() as journal:
        await add(journal, *(TraceRecord(f"r{n}", "s", n, n * 10) for n in range(1, 6)))
        assert await journal.prune(30) == 0
        assert [one.run for one in await journal.traces()] == ["r3", "r4", "r5"]
        await journal.prune(1_000)
        assert list(await journal.traces()) == []


async def test_sending_records_start_and_newest_attempts(run_journal: Run) -> None:
    async with run_journal() as journal:
        await enqueue(journal, make_outbox_record("r1:0"), make_outbox_record("r10:0"))
        held, tries = await lease(journal), tuple[DeliveryAttempt, ...]()
        for number in range(MAX_DELIVERY_ATTEMPTS + 3):
            tries = add_attempt(tries, DeliveryAttempt(number, number + 1, "pending", "busy"))
            async with journal.transaction() as transaction:
                transaction.send_started("r1:0", held, at_ms=number)
                transaction.send_ended("r1:0", held, "pending", why="busy", tries=tries)
        async with journal.transaction() as transaction:
            transaction.send_started("r1:0", held, at_ms=99)
        (record,) = await journal.outbox_records(run="r1")
        assert record.state == "sending" and record.started_ms == 99
        assert record.tries == tries and len(tries) == MAX_DELIVERY_ATTEMPTS
        assert [one.id for one in await journal.outbox_records(run="r10")] == ["r10:0"]
        assert list(await journal.outbox_records(run="r")) == []


async def test_backlog_counts_what_is_not_done(run_journal: Run) -> None:
    async with run_journal() as journal:
        assert list(await journal.backlog()) == []
        await journal.accept(SESSION, HELLO, at_ms=10)
        row = await accept(journal, says("again", "m2"))
        await start(journal, row)
        done = await accept(journal, says("done", "m3"))
        await settle(journal, done, await start(journal, done))
        await enqueue(journal, make_outbox_record("p1", at_ms=7))
        counts = {(each.kind, each.state): each for each in await journal.backlog()}
        assert set(counts) == {("inbox", "accepted"), ("inbox", "running"), ("outbox", "pending")}
        assert counts["outbox", "pending"] == BacklogCount("outbox", "pending", 1, 7)
        assert counts["inbox", "accepted"].oldest_ms == 10
