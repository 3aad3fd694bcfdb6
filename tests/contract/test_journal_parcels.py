"""What every journal guarantees about outbox records (store/journal.py)."""

from dataclasses import replace

import pytest

from homarus.core.errors import LeaseLostError
from homarus.core.message import Address
from homarus.store.journal import (
    OutboxState,
)
from tests.contract.journals import (
    Run,
    enqueue,
    lease,
    make_outbox_record,
    send,
)


async def test_outbox_records_are_in_order_of_enqueueing(run_journal: Run) -> None:
    async with run_journal() as journal:
        elsewhere = Address("irc", "#x")
        await enqueue(
            journal,
            make_outbox_record("p1"),
            make_outbox_record("p0", at_ms=5),
            make_outbox_record("i1", chat=elsewhere),
        )
        await enqueue(journal, make_outbox_record("p1", "other words"), make_outbox_record("p2"))

        async def ids(
            *states: OutboxState, channel: str | None = None, limit: int | None = None
        ) -> list[str]:
            found = await journal.outbox_records(*states, channel=channel, limit=limit)
            return [one.id for one in found]

        assert await ids() == ["p1", "p0", "i1", "p2"]
        first = await journal.outbox_record("p1")
        assert first == replace(make_outbox_record("p1"), place=first.place if first else 0)
        second = await journal.outbox_record("i1")
        assert second is not None and second.address == elsewhere
        await send(journal, "p0", "sent", receipt="x7")
        assert await ids("pending") == ["p1", "i1", "p2"]
        assert await ids("pending", channel="telegram") == ["p1", "p2"]
        assert await ids("pending", "sending", channel="telegram", limit=1) == ["p1"]
        assert await ids("sent") == ["p0"] and await ids("dead") == []
        assert await ids(limit=0) == [] and await ids(limit=9) == ["p1", "p0", "i1", "p2"]


async def test_outbox_record_starts_as_pending(run_journal: Run) -> None:
    async with run_journal() as journal:
        odd = replace(
            make_outbox_record("p1"), state="sent", receipt="r", why="w", attempts=9, place=99
        )
        await enqueue(journal, replace(odd, not_before_ms=50))
        found = await journal.outbox_record("p1")
        assert found is not None
        assert found == replace(make_outbox_record("p1"), not_before_ms=50, place=found.place)


@pytest.mark.parametrize("state", ["sent", "unknown", "dead", "pending"])
async def test_outbox_record_is_marked_before_and_after_send(
    run_journal: Run, state: OutboxState
) -> None:
    async with run_journal() as journal:
        await enqueue(journal, make_outbox_record("p1"))
        held = await lease(journal)
        with pytest.raises(LeaseLostError):
            async with journal.transaction() as transaction:
                transaction.send_ended("p1", held, state)
        async with journal.transaction() as transaction:
            transaction.send_started("p1", held)
        (sending,) = await journal.outbox_records("sending")
        assert sending.attempts == 1
        async with journal.transaction() as transaction:
            transaction.send_ended("p1", held, state, receipt="x", why="w", not_before_ms=60)
        ended = await journal.outbox_record("p1")
        assert ended == replace(sending, state=state, receipt="x", why="w", not_before_ms=60)
        if state != "pending":
            with pytest.raises(LeaseLostError):
                async with journal.transaction() as transaction:
                    transaction.send_started("p1", await lease(journal))
        else:
            await send(journal, "p1", "sent")
        with pytest.raises(LeaseLostError):
            async with journal.transaction() as transaction:
                transaction.send_ended("p1", held, "pending")


async def test_outbox_record_is_sent_only_under_latest_lease(run_journal: Run) -> None:
    async with run_journal() as journal:
        await enqueue(journal, make_outbox_record("p1"))
        first = await lease(journal)
        async with journal.transaction() as transaction:
            transaction.send_started("p1", first)
        second = await lease(journal)
        with pytest.raises(LeaseLostError):
            async with journal.transaction() as transaction:
                transaction.send_ended("p1", second, "sent")
        async with journal.transaction() as transaction:
            transaction.send_started("p1", second)  # it was being sent when the first died
        for stale in (first, await lease(journal)):
            with pytest.raises(LeaseLostError):
                async with journal.transaction() as transaction:
                    transaction.send_ended("p1", stale, "sent")
        with pytest.raises(LeaseLostError):
            async with journal.transaction() as transaction:
                transaction.send_started("p1", first)
        with pytest.raises(LeaseLostError):
            async with journal.transaction() as transaction:
                transaction.send_started("p2", second)
        async with journal.transaction() as transaction:
            transaction.send_ended("p1", second, "sent", receipt="r")
        found = await journal.outbox_record("p1")
        assert found is not None and (found.state, found.attempts) == ("sent", 2)


@pytest.mark.parametrize("state", ["dead", "unknown"])
async def test_outbox_stranded_record_can_be_retried(run_journal: Run, state: OutboxState) -> None:
    async with run_journal() as journal:
        await enqueue(journal, make_outbox_record("p1", at_ms=30), make_outbox_record("p2"))
        assert not await journal.retry("p1", at_ms=1000)
        held = await send(journal, "p1", state, why="no")
        assert await journal.retry("p1", at_ms=1000)
        found = await journal.outbox_record("p1")
        assert found is not None
        assert (found.state, found.why, found.attempts, found.not_before_ms) == (
            "pending",
            "",
            0,
            0,
        )
        assert found.expires_ms == 1100  # as long as it had at first
        assert [one.id for one in await journal.outbox_records("pending")] == ["p1", "p2"]
        with pytest.raises(LeaseLostError):
            async with journal.transaction() as transaction:
                transaction.send_started("p1", held)
        await send(journal, "p1", "sent")
        assert not await journal.retry("p1", at_ms=1000)


@pytest.mark.parametrize(
    ("step_ms", "expires_ms", "not_before_ms"), [(1_000, 4_000, 500), (-400, 3_000, 100)]
)
async def test_outbox_times_follow_a_step_of_the_clock(
    run_journal: Run, step_ms: int, expires_ms: int, not_before_ms: int
) -> None:
    async with run_journal() as journal:
        await enqueue(
            journal,
            replace(make_outbox_record("p1"), expires_ms=3_000, not_before_ms=500),
            replace(make_outbox_record("p2"), expires_ms=3_000),
        )
        await send(journal, "p2", "sent")
        await journal.shift_times(step_ms)
        waiting, sent = await journal.outbox_records()
        assert (waiting.expires_ms, waiting.not_before_ms) == (expires_ms, not_before_ms)
        assert (sent.expires_ms, sent.not_before_ms) == (3_000, 0)
