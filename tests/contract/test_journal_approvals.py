"""What every journal guarantees about approvals and suspended messages (store/journal.py)."""

import asyncio
from dataclasses import replace

import pytest

from homarus.core.errors import ConflictError, LeaseLostError
from homarus.core.principal import Principal
from homarus.store.approvals import ApprovalRecord, ApprovalState
from homarus.store.journal import OPEN, InboxRecord, Journal, Lease
from tests.contract.journals import (
    SESSION,
    Home,
    Run,
    accept,
    lease,
    make_outbox_record,
    reread,
    settle,
    start,
)

RECORD = ApprovalRecord(
    id="a1",
    agent="main",
    session=SESSION,
    run="r1",
    call_id="c1",
    tool="exec",
    requester="telegram:ann",
    digest="d1",
    request={"command": "ls \ud800\0 ü", "always": None},
    created_ms=10,
    expires_ms=1_000,
    extra={"address": {"channel": "telegram"}},
)


async def add(journal: Journal, *records: ApprovalRecord) -> None:
    async with journal.transaction() as transaction:
        for record in records:
            transaction.add_approval(record)


async def allow(journal: Journal, at_ms: int = 20) -> ApprovalRecord | None:
    return await journal.resolve_approval(
        "a1", "allowed", decision="allow-once", by="ann", at_ms=at_ms
    )


async def use(journal: Journal, digest: str = "d1", at_ms: int = 30) -> None:
    async with journal.transaction() as transaction:
        transaction.use_approval("a1", digest, at_ms=at_ms)


async def test_approval_survives_and_is_found_by_call_and_state(run_journal: Run) -> None:
    newer = replace(RECORD, id="a2", request={}, extra={})
    async with run_journal() as journal:
        await add(journal, RECORD, newer, replace(RECORD, id="a3", run="r2", session="s2"))
        with pytest.raises(ConflictError):
            await add(journal, newer)
    async with run_journal() as journal:
        found = await journal.approval("a1")
        assert found and found.request["command"].startswith("ls ")
        assert replace(found, request=RECORD.request) == RECORD
        assert await journal.find_approval("r1", "c1") == newer
        assert await journal.find_approval("r1", "c2") is None
        ids = [one.id for one in await journal.approvals("pending")]
        assert ids == ["a1", "a2", "a3"]
        assert [one.id for one in await journal.approvals(session="s2")] == ["a3"]
        assert [one.id for one in await journal.approvals(limit=2)] == ["a2", "a3"]
        assert not await journal.approvals("allowed") and not await journal.approval("x")


async def test_approvals_of_one_principal_are_not_seen_by_another(journal_home: Home) -> None:
    async with journal_home.open() as scopes:
        await add(scopes(Principal("t", "one")), RECORD)
        other = scopes(Principal("t", "two"))
        assert await other.approval("a1") is None and not await other.approvals()
        assert await allow(other) is None


async def test_only_one_of_two_answers_is_stored(run_journal: Run) -> None:
    async with run_journal() as journal:
        await add(journal, RECORD)
        answers = list[ApprovalRecord | None]()

        async def answer(state: ApprovalState, by: str) -> None:
            answers.append(
                await journal.resolve_approval("a1", state, decision=state, by=by, at_ms=20)
            )

        async with asyncio.TaskGroup() as group:
            group.create_task(answer("allowed", "ann"))
            group.create_task(answer("denied", "bob"))
        (won,) = [one for one in answers if one]
        assert await journal.approval("a1") == won
        assert await allow(journal) is None and (await journal.approval("a1")) == won


async def test_answer_after_the_expiry_and_expiry_before_it_are_refused(run_journal: Run) -> None:
    notice = make_outbox_record("a1:expired")
    async with run_journal() as journal:
        await add(journal, RECORD)
        assert await allow(journal, at_ms=1_000) is None
        early = await journal.resolve_approval("a1", "expired", at_ms=999, outbox=[notice])
        assert early is None and not await journal.outbox_records()
        expired = await journal.resolve_approval("a1", "expired", at_ms=1_000, outbox=[notice])
        assert expired and expired.state == "expired"
        assert [one.id for one in await journal.outbox_records()] == [notice.id]
        again = await journal.resolve_approval("a1", "expired", at_ms=1_001, outbox=[notice])
        assert again is None and await allow(journal) is None


async def test_approval_is_used_once_in_time_for_its_digest(run_journal: Run) -> None:
    async with run_journal() as journal:
        await add(journal, RECORD)
        for attempt in (use(journal), use(journal, "d2")):
            with pytest.raises(ConflictError, match="does not allow"):
                await attempt  # it is pending
        await allow(journal)
        with pytest.raises(ConflictError):
            await use(journal, "d2")
        with pytest.raises(ConflictError):
            await use(journal, at_ms=1_000)
        await use(journal)
        with pytest.raises(ConflictError):
            await use(journal)
        found = await journal.approval("a1")
        assert found and found.used_ms == 30


async def start_with_approval(journal: Journal, run: str, held: Lease) -> None:
    async with journal.transaction() as transaction:
        transaction.call_started(run, held, "c1")
        transaction.use_approval("a1", "d1", at_ms=30)


async def test_call_is_not_started_when_its_approval_cannot_be_used(run_journal: Run) -> None:
    async with run_journal() as journal:
        row = await accept(journal)
        held = await start(journal, row)
        await add(journal, replace(RECORD, run=row.id))
        with pytest.raises(ConflictError):
            await start_with_approval(journal, row.id, held)
        assert not await journal.open_calls(row.id)
        await allow(journal)
        await start_with_approval(journal, row.id, held)
        assert await journal.open_calls(row.id) == {"c1"}


async def test_cancel_approvals_cancels_pending_ones_of_the_runs(run_journal: Run) -> None:
    async with run_journal() as journal:
        await add(journal, RECORD, replace(RECORD, id="a2"), replace(RECORD, id="a3", run="r2"))
        await allow(journal)
        async with journal.transaction() as transaction:
            transaction.cancel_approvals(["r1"], at_ms=50)
        states = {one.id: one.state for one in await journal.approvals()}
        assert states == {"a1": "allowed", "a2": "cancelled", "a3": "pending"}


async def suspend(journal: Journal, row: InboxRecord, held: Lease) -> None:
    async with journal.transaction() as transaction:
        transaction.suspend([row.id], held)


async def test_suspended_message_is_unsettled_and_the_attempt_is_free(run_journal: Run) -> None:
    async with run_journal() as journal:
        row = await accept(journal)
        held = await start(journal, row)
        async with journal.transaction() as transaction:
            transaction.call_started(row.id, held, "c1")
        await suspend(journal, row, held)
        suspended = await reread(journal, row)
        assert (suspended.state, suspended.attempts) == ("suspended", 0)
        assert suspended.inbound and suspended.was_started
        assert not await journal.inbox_records(*OPEN)
        assert [one.id for one in await journal.inbox_records("suspended")] == [row.id]
        with pytest.raises(LeaseLostError):
            await suspend(journal, row, held)
    async with run_journal() as journal:
        later = await start(journal, row)
        assert (await reread(journal, row)).attempts == 1
        assert await journal.open_calls(row.id) == {"c1"}
        with pytest.raises(LeaseLostError):
            await suspend(journal, row, held)
        await settle(journal, row, later)
        assert not await journal.open_calls(row.id)


async def test_suspended_message_may_be_settled_without_a_run(run_journal: Run) -> None:
    async with run_journal() as journal:
        row = await accept(journal)
        await suspend(journal, row, await start(journal, row))
        await settle(journal, row, await lease(journal, "inbox"), "reported")
        assert (await reread(journal, row)).state == "reported"


async def test_prune_deletes_old_approvals_that_are_not_pending(run_journal: Run) -> None:
    async with run_journal() as journal:
        await add(journal, RECORD, replace(RECORD, id="a2"))
        await allow(journal)
        assert await journal.prune(10_000) == 0
        assert await journal.prune(0, approvals_before_ms=20) == 0
        assert await journal.prune(0, approvals_before_ms=21) == 1
        assert [one.id for one in await journal.approvals()] == ["a2"]
