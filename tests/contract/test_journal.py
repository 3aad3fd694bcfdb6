"""What every journal guarantees about messages (store/journal.py)."""

import asyncio
from contextlib import suppress
from dataclasses import replace

import pytest

from homarus.core.errors import ConflictError, LeaseLostError
from homarus.core.message import Address, Button, Extras, Image, Inbound, Media
from homarus.core.principal import Principal
from homarus.store.journal import (
    OPEN,
    Acceptance,
    Cursor,
    InboxRecord,
    InboxState,
    Journal,
    Lease,
    OutboxRecord,
    OutboxState,
    SettledState,
)
from tests.contract.journals import (
    CHAT,
    HELLO,
    SESSION,
    SETTLED,
    Home,
    Run,
    Scopes,
    accept,
    enqueue,
    lease,
    make_outbox_record,
    reread,
    says,
    send,
    settle,
    start,
)
from tests.contract.leases import check_cancelled_holder_releases, check_that_one_holds


async def test_accept_stores_complete_message(run_journal: Run) -> None:
    kept: list[Acceptance] = []

    async def first(journal: Journal) -> None:
        kept.append(await journal.accept(SESSION, HELLO, at_ms=10))
        assert kept[0].kind == "new"
        row = kept[0].record
        assert row.id and row.place
        assert row == InboxRecord(
            id=row.id,
            session=SESSION,
            channel="telegram",
            account="work",
            message_id="m1",
            sender="ann",
            preview="hello",
            at_ms=10,
            inbound=HELLO,
            place=row.place,
        )

    async def later(journal: Journal) -> None:
        row = kept[0].record
        assert await journal.inbox_record(row.id) == row
        assert list(await journal.inbox_records()) == [row]

    async with run_journal() as journal:
        await first(journal)
    async with run_journal() as journal:
        await later(journal)


async def test_journal_absent_items_read_as_nothing(run_journal: Run) -> None:
    async with run_journal() as journal:
        assert await journal.inbox_record("x") is None
        assert await journal.outbox_record("x") is None
        assert await journal.cursor("x") is None
        assert await journal.open_calls("x") == frozenset()
        assert (
            list(await journal.inbox_records()) == []
            and list(await journal.inbox_records(*OPEN)) == []
        )
        assert list(await journal.outbox_records()) == []
        assert not await journal.retry("x", at_ms=1)
        assert not await journal.discard("x", at_ms=1, why="w")
        assert await journal.prune(10**15) == 0


async def test_accept_same_message_is_duplicate_in_every_state(run_journal: Run) -> None:
    async with run_journal() as journal:
        row = await accept(journal)
        again = await journal.accept(SESSION, replace(HELLO, at_ms=99, sender="ann2"), at_ms=11)
        assert again == Acceptance("duplicate", replace(row, duplicates=1))
        held = await start(journal, row)
        assert (await journal.accept(SESSION, HELLO, at_ms=12)).record.state == "running"
        await settle(journal, row, held)
        last = await journal.accept(SESSION, HELLO, at_ms=13)
        assert last.kind == "duplicate"
        assert (last.record.state, last.record.duplicates, last.record.inbound) == (
            "answered",
            3,
            None,
        )
        assert len(await journal.inbox_records()) == 1


async def test_accept_hundred_concurrent_copies_gives_one_new(run_journal: Run) -> None:
    async with run_journal() as journal:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(journal.accept(SESSION, HELLO, at_ms=n)) for n in range(100)]
        kinds = [task.result().kind for task in tasks]
        assert sorted(kinds) == ["duplicate"] * 99 + ["new"]
        assert [row.duplicates for row in await journal.inbox_records()] == [99]


async def test_accept_same_id_with_other_text_is_parked_conflict(run_journal: Run) -> None:
    async with run_journal() as journal:
        row = await accept(journal, says("one"))
        other = await journal.accept(SESSION, says("two"), at_ms=11)
        third = await journal.accept(SESSION, says("three"), at_ms=12)
        elsewhere = await journal.accept("agent:main:other", says("one"), at_ms=13)
        for conflict, text in ((other, "two"), (third, "three"), (elsewhere, "one")):
            found = conflict.record
            assert (conflict.kind, found.state) == ("conflict", "parked")
            assert found.inbound == says(text) and found.message_id.startswith("m1#")
            assert "m1 was accepted before" in found.why and found.settled_ms == found.at_ms
            assert await journal.inbox_record(found.id) == found
        assert await reread(journal, row) == row
        again = await journal.accept(SESSION, says("two"), at_ms=14)
        assert again == Acceptance("duplicate", replace(other.record, duplicates=1))
        assert len(await journal.inbox_records()) == 4
        assert await journal.retry(other.record.id, at_ms=15)
        assert (await reread(journal, other.record)).state == "accepted"


async def test_accept_same_id_of_other_channel_or_account_is_new(run_journal: Run) -> None:
    async with run_journal() as journal:
        for chat in (
            CHAT,
            replace(CHAT, account="home"),
            replace(CHAT, channel="irc"),
        ):
            await accept(journal, replace(HELLO, address=chat))
        same = await journal.accept(SESSION, replace(HELLO, address=CHAT), at_ms=1)
        assert same.kind == "duplicate"


async def test_accept_message_without_id_is_always_new(run_journal: Run) -> None:
    async with run_journal() as journal:
        for _ in range(3):
            await accept(journal, says("yes", message_id=""))
        assert len({row.message_id for row in await journal.inbox_records()}) == 3


async def test_accept_named_run_becomes_record_id(run_journal: Run) -> None:
    async with run_journal() as journal:
        row = await accept(journal, replace(HELLO, run_id="k1"))
        assert row.id == "k1" and row.inbound == replace(HELLO, run_id="k1")
        assert (
            await journal.accept(SESSION, replace(HELLO, run_id="k1"), at_ms=1)
        ).record.id == "k1"
        stolen = await journal.accept(SESSION, replace(says("x", "m2"), run_id="k1"), at_ms=1)
        assert (stolen.kind, stolen.record.state, stolen.record.message_id) == (
            "conflict",
            "parked",
            "m2",
        )
        assert stolen.record.id != "k1" and "k1" in stolen.record.why
        again = await journal.accept(SESSION, replace(says("x", "m2"), run_id="k1"), at_ms=1)
        assert again.kind == "duplicate" and again.record.id == stolen.record.id


async def test_accept_stores_cursor_with_message(run_journal: Run) -> None:
    async with run_journal() as journal:
        await journal.accept(SESSION, HELLO, at_ms=1, cursor=Cursor("t:work", {"offset": 7}))
        assert await journal.cursor("t:work") == {"offset": 7}
        await journal.accept(SESSION, HELLO, at_ms=2, cursor=Cursor("t:work", {"offset": 8}))
        await journal.accept(SESSION, says("x"), at_ms=3, cursor=Cursor("t:work", {"offset": [9]}))
        await journal.accept(SESSION, says("y", "m2"), at_ms=4)
    async with run_journal() as journal:
        assert await journal.cursor("t:work") == {"offset": [9]}
        assert await journal.cursor("t:home") is None


async def test_inbox_records_are_in_order_of_acceptance(run_journal: Run) -> None:
    async with run_journal() as journal:
        made = [await accept(journal, says(str(n), f"m{n}"), at_ms=100 - n) for n in range(6)]
        other = await journal.accept("agent:main:other", says("x", "mx"), at_ms=1)
        held = await start(journal, made[1], made[4])
        await settle(journal, made[1], held)
        ids = [row.id for row in (*made, other.record)]

        async def found(
            *states: InboxState, session: str | None = None, limit: int | None = None
        ) -> list[int]:
            rows = await journal.inbox_records(*states, session=session, limit=limit)
            return [ids.index(row.id) for row in rows]

        assert await found() == [0, 1, 2, 3, 4, 5, 6]
        assert await found(*OPEN) == [0, 2, 3, 4, 5, 6]
        assert await found("running") == [4]
        assert await found("answered", "running") == [1, 4]
        assert await found("parked") == []
        assert await found(*OPEN, session=SESSION) == [0, 2, 3, 4, 5]
        assert await found(session="agent:main:other") == [6]
        assert await found(limit=2) == [5, 6]
        assert await found("accepted", limit=2, session=SESSION) == [3, 5]
        assert await found(limit=0) == [] and await found(limit=100) == list(range(7))


async def test_mark_running_records_transcript_position(run_journal: Run) -> None:
    async with run_journal() as journal:
        row = await accept(journal)
        await start(journal, row)
        expected = replace(
            row, state="running", run=row.id, session_id="s1", entry="e1", attempts=1
        )
        assert await reread(journal, row) == expected
        later = await lease(journal)
        async with journal.transaction() as transaction:
            transaction.mark_running([row.id, row.id], later, run="r2")
        assert await reread(journal, row) == replace(expected, run="r2", attempts=2)
        async with journal.transaction() as transaction:
            transaction.mark_running([row.id], later, run="r2", session_id="s2", entry="e2")
        assert await reread(journal, row) == replace(
            expected, run="r2", session_id="s2", entry="e2", attempts=2
        )


async def test_cancelled_attempt_is_not_counted(run_journal: Run) -> None:
    async with run_journal() as journal:
        row = await accept(journal)
        lost = await start(journal, row)
        held = await start(journal, row)
        async with journal.transaction() as transaction:
            transaction.cancel_attempt([row.id, "unknown"], lost)  # ignored: not its lease any more
            transaction.cancel_attempt([row.id], held)
        found = await reread(journal, row)
        assert (found.state, found.attempts, found.was_started) == ("running", 1, True)
        await settle(journal, row, held)
        async with journal.transaction() as transaction:
            transaction.cancel_attempt([row.id], held)
        assert (await reread(journal, row)).attempts == 1


async def test_inbox_record_changes_only_under_latest_lease(run_journal: Run) -> None:
    async with run_journal() as journal:
        row = await accept(journal)
        before = await lease(journal)
        first = await start(journal, row)
        async with journal.transaction() as transaction:
            transaction.call_started(row.id, first, "c1")
        unstarted = await lease(journal)
        second = await start(journal, row)
        unstarted_later = await lease(journal)
        now = await reread(journal, row)
        for stale in (before, first, unstarted, unstarted_later):
            with pytest.raises(LeaseLostError):
                async with journal.transaction() as transaction:
                    transaction.check_lease([row.id], stale)
            with pytest.raises(LeaseLostError):
                async with journal.transaction() as transaction:
                    transaction.settle([row.id], stale, "answered", at_ms=1)
            with pytest.raises(LeaseLostError):
                async with journal.transaction() as transaction:
                    transaction.call_started(row.id, stale, "c2")
            with pytest.raises(LeaseLostError):
                async with journal.transaction() as transaction:
                    transaction.call_ended(row.id, stale, "c1")
        for stale in (before, first, unstarted):
            with pytest.raises(LeaseLostError):
                async with journal.transaction() as transaction:
                    transaction.mark_running([row.id], stale, run="r", entry="bad")
        assert await reread(journal, row) == now
        assert await journal.open_calls(row.id) == {"c1"}
        async with journal.transaction() as transaction:
            transaction.check_lease([row.id], second)
        await settle(journal, row, second)


async def test_transaction_without_lease_changes_nothing(run_journal: Run) -> None:
    async with run_journal() as journal:
        row = await accept(journal)
        other = await accept(journal, says("x", "m2"))
        stale = await start(journal, row)
        held = await start(journal, row)
        now = await reread(journal, row)

        async def try_all() -> None:
            async with journal.transaction() as transaction:
                transaction.enqueue(make_outbox_record("p1"))
                transaction.mark_running([other.id], held, run=other.id)
                transaction.settle([row.id], held, "answered", at_ms=1)
                transaction.check_lease([other.id], stale)

        with pytest.raises(LeaseLostError):
            await try_all()
        with pytest.raises(LeaseLostError):
            async with journal.transaction() as transaction:
                transaction.mark_running([other.id, "unknown"], held, run=other.id)
        assert await reread(journal, row) == now
        assert await reread(journal, other) == other
        assert await journal.outbox_record("p1") is None


async def test_transaction_is_invisible_before_end_and_after_error(run_journal: Run) -> None:
    async with run_journal() as journal:
        row = await accept(journal)
        held = await lease(journal)
        with suppress(RuntimeError):
            async with journal.transaction() as transaction:
                transaction.mark_running([row.id], held, run=row.id)
                transaction.enqueue(make_outbox_record("p1"))
                assert await reread(journal, row) == row
                raise RuntimeError
        assert await reread(journal, row) == row
        assert list(await journal.outbox_records()) == []
        async with journal.transaction():
            pass


@pytest.mark.parametrize("state", SETTLED)
async def test_settle_twice_is_refused(run_journal: Run, state: SettledState) -> None:
    async with run_journal() as journal:
        row = await accept(journal)
        held = await start(journal, row)
        await settle(journal, row, held, state, at_ms=77)
        done = await reread(journal, row)
        assert (done.state, done.settled_ms, done.why, done.reply) == (state, 77, "w", "e9")
        assert done.inbound == (HELLO if state == "parked" else None)
        assert (done.preview, done.entry, done.run) == ("hello", "e1", row.id)
        later = await lease(journal)
        for any_lease in (held, later):
            for any_state in SETTLED:
                with pytest.raises(LeaseLostError):
                    await settle(journal, row, any_lease, any_state)
            with pytest.raises(LeaseLostError):
                async with journal.transaction() as transaction:
                    transaction.mark_running([row.id], any_lease, run=row.id)
            with pytest.raises(LeaseLostError):
                async with journal.transaction() as transaction:
                    transaction.check_lease([row.id], any_lease)
        assert await reread(journal, row) == done


async def test_settle_accepted_message_is_allowed(run_journal: Run) -> None:
    async with run_journal() as journal:
        row = await accept(journal)
        await settle(journal, row, await lease(journal), "silent")
        done = await reread(journal, row)
        assert (done.state, done.attempts, done.inbound) == ("silent", 0, None)


async def test_transaction_accepts_a_message_with_its_other_writes(run_journal: Run) -> None:
    async with run_journal() as journal:
        first, news = await accept(journal), replace(says("news", "m2"), run_id="k2")
        held = await start(journal, first)
        async with journal.transaction() as transaction:
            transaction.settle([first.id], held, "answered", at_ms=9)
            transaction.accept("agent:main:other", news, at_ms=9)
        row = await journal.inbox_record("k2")
        assert row is not None and row.inbound == news and row.place > first.place
        assert (row.session, row.state, row.at_ms) == ("agent:main:other", "accepted", 9)
        later = await accept(journal, says("later", "m3"))
        held = await start(journal, later)

        async def accept_again(again: Inbound) -> None:
            async with journal.transaction() as transaction:
                transaction.settle([later.id], held, "answered", at_ms=9)
                transaction.accept("agent:main:other", again, at_ms=10)

        for again in (news, replace(news, run_id="k3"), replace(news, id="m4")):
            with pytest.raises(ConflictError):  # it was accepted before: nothing is changed
                await accept_again(again)
        assert (await reread(journal, later)).state == "running"
        assert len(await journal.inbox_records()) == 3


async def test_settle_messages_of_one_run_together(run_journal: Run) -> None:
    async with run_journal() as journal:
        rows = [await accept(journal, says(str(n), f"m{n}")) for n in range(3)]
        held = await start(journal, *rows)
        assert {row.run for row in await journal.inbox_records("running")} == {rows[0].id}
        async with journal.transaction() as transaction:
            transaction.check_lease([row.id for row in rows], held)
            transaction.settle([row.id for row in rows], held, "answered", at_ms=9, reply="e5")
            transaction.enqueue(make_outbox_record("p1"))
        assert {(row.state, row.reply) for row in await journal.inbox_records()} == {
            ("answered", "e5")
        }
        assert [found.id for found in await journal.outbox_records("pending")] == ["p1"]


async def test_call_is_open_from_start_to_result(run_journal: Run) -> None:
    ids: list[str] = []

    async def first(journal: Journal) -> None:
        row = await accept(journal)
        held = await start(journal, row)
        ids.append(row.id)
        async with journal.transaction() as transaction:
            transaction.call_started(row.id, held, "c1")
            transaction.call_started(row.id, held, "c2")
            transaction.call_started(row.id, held, "c2")
        async with journal.transaction() as transaction:
            transaction.call_ended(row.id, held, "c1")
            transaction.call_ended(row.id, held, "never started")

    async def later(journal: Journal) -> None:
        assert await journal.open_calls(ids[0]) == {"c2"}
        assert await journal.open_calls("another") == frozenset()
        (row,) = await journal.inbox_records()
        held = await start(journal, row)
        assert await journal.open_calls(ids[0]) == {"c2"}
        async with journal.transaction() as transaction:
            transaction.settle([row.id], held, "answered", at_ms=9)
        assert await journal.open_calls(ids[0]) == frozenset()

    async with run_journal() as journal:
        await first(journal)
    async with run_journal() as journal:
        await later(journal)


async def test_parked_message_keeps_calls_until_discarded(run_journal: Run) -> None:
    async with run_journal() as journal:
        row = await accept(journal)
        held = await start(journal, row)
        async with journal.transaction() as transaction:
            transaction.call_started(row.id, held, "c1")
        await settle(journal, row, held, "parked")
        assert await journal.open_calls(row.id) == {"c1"}
        assert await journal.retry(row.id, at_ms=21)
        held = await start(journal, row)
        assert await journal.open_calls(row.id) == {"c1"}
        await settle(journal, row, held, "parked")
        assert await journal.discard(row.id, at_ms=22, why="w")
        assert await journal.open_calls(row.id) == frozenset()


async def test_calls_of_run_are_deleted_with_its_last_message(run_journal: Run) -> None:
    async with run_journal() as journal:
        rows = [await accept(journal, says(str(n), f"m{n}")) for n in range(4)]
        held = await start(journal, *rows)
        run = rows[0].id
        async with journal.transaction() as transaction:
            transaction.call_started(run, held, "c1")
            transaction.settle([rows[0].id, rows[1].id], held, "parked", at_ms=20)
            transaction.settle([rows[2].id], held, "answered", at_ms=20)
        assert await journal.discard(run, at_ms=21, why="w")
        assert await journal.open_calls(run) == {"c1"}
        await settle(journal, rows[3], held)
        assert await journal.open_calls(run) == {"c1"}  # one is parked
        assert await journal.discard(rows[1].id, at_ms=22, why="w")
        assert await journal.open_calls(run) == frozenset()


async def test_retry_parked_message_is_accepted_again(run_journal: Run) -> None:
    async with run_journal() as journal:
        row = await accept(journal)
        held = await start(journal, row)
        assert not await journal.retry(row.id, at_ms=30)
        await settle(journal, row, held, "parked")
        assert await journal.retry(row.id, at_ms=30)
        assert not await journal.retry(row.id, at_ms=30)
        again = await reread(journal, row)
        assert (again.state, again.inbound, again.attempts) == ("accepted", HELLO, 0)
        assert (again.why, again.reply, again.settled_ms) == ("", "", 0)
        assert (again.entry, again.session_id) == ("e1", "s1")
        with pytest.raises(LeaseLostError):  # the run that parked it can no longer write
            await settle(journal, row, held, "answered")
        with pytest.raises(LeaseLostError):
            async with journal.transaction() as transaction:
                transaction.mark_running([row.id], held, run=row.id)
        later = await start(journal, row)
        await settle(journal, row, later)
        assert not await journal.retry(row.id, at_ms=30)


async def test_discard_parked_and_stranded_items(run_journal: Run) -> None:
    async with run_journal() as journal:
        row = await accept(journal)
        assert not await journal.discard(row.id, at_ms=1, why="w")
        await settle(journal, row, await start(journal, row), "parked")
        assert await journal.discard(row.id, at_ms=40, why="not needed")
        gone = await reread(journal, row)
        assert (gone.state, gone.why, gone.settled_ms) == ("reported", "not needed", 40)
        assert gone.inbound is None
        assert not await journal.discard(row.id, at_ms=1, why="w")
        assert not await journal.retry(row.id, at_ms=1)
        await enqueue(
            journal, make_outbox_record("p1"), make_outbox_record("p2"), make_outbox_record("p3")
        )
        await send(journal, "p1", "dead")
        await send(journal, "p2", "unknown")
        assert await journal.discard("p1", at_ms=1, why="w")
        assert await journal.discard("p2", at_ms=1, why="w")
        assert not await journal.discard("p3", at_ms=1, why="w")
        assert [one.id for one in await journal.outbox_records()] == ["p3"]


async def test_prune_deletes_only_finished_items(run_journal: Run) -> None:
    async with run_journal() as journal:
        kept = set[str]()
        for state in SETTLED:
            for at_ms in (10, 50):
                row = await accept(journal, says("x", f"{state}{at_ms}"), at_ms=1)
                await settle(journal, row, await start(journal, row), state, at_ms)
                if at_ms == 50 or state == "parked":
                    kept.add(row.id)
        running, waiting = [await accept(journal, says("x", f"open{n}")) for n in range(2)]
        await start(journal, running)
        kept |= {running.id, waiting.id}
        states: tuple[OutboxState, ...] = ("sent", "unknown", "dead", "pending")
        for parcel_state in states:
            await enqueue(journal, make_outbox_record(f"{parcel_state}1", at_ms=10))
            await enqueue(journal, make_outbox_record(f"{parcel_state}2", at_ms=50))
            await send(journal, f"{parcel_state}1", parcel_state)
            await send(journal, f"{parcel_state}2", parcel_state)
        assert await journal.prune(50) == 4
        assert {row.id for row in await journal.inbox_records()} == kept
        assert (
            len(await journal.outbox_records()) == 7
            and await journal.outbox_record("sent1") is None
        )
        assert await journal.prune(50) == 0
        assert (await journal.accept(SESSION, says("x", "answered10"), at_ms=60)).kind == "new"


async def test_journal_unstorable_text_round_trips(run_journal: Run) -> None:
    odd = 'nul \0, quote ", break \u2028, emoji 😀, half \ud83d'
    told = odd.replace("\0", "\ufffd").replace("\ud83d", "\ufffd")
    async with run_journal() as journal:
        address = Address(odd, odd, odd, odd)
        inbound = Inbound(odd, address, odd, odd, run_id=odd)
        new = await journal.accept(odd, inbound, at_ms=1, cursor=Cursor(odd, {odd: odd}))
        assert new.kind == "new" and new.record.id == told
        found = await journal.inbox_record(odd)
        assert found is not None and found.inbound is not None
        assert (found.id, found.session, found.channel, found.sender) == (told,) * 4
        assert found.inbound.text == odd.replace("\ud83d", "\ufffd")
        assert (await journal.accept(odd, inbound, at_ms=1)).kind == "duplicate"
        assert await journal.cursor(odd) is not None
        assert len(await journal.inbox_records(session=odd)) == 1
        held = await lease(journal, odd)
        async with journal.transaction() as transaction:
            transaction.mark_running([odd], held, run=found.id)
            transaction.call_started(found.id, held, odd)
            transaction.enqueue(OutboxRecord(odd, found.id, address, odd, 1, 2))
            transaction.send_started(odd, held)
            transaction.send_ended(odd, held, "unknown", receipt=odd, why=odd)
        assert await journal.open_calls(found.id) == {told}
        (sent,) = await journal.outbox_records(channel=odd)
        assert (sent.id, sent.text, sent.receipt, sent.why) == (told,) * 4
        assert sent.address == Address(told, told, told, told)
        async with journal.transaction() as transaction:
            transaction.settle([odd], held, "parked", at_ms=1, why=odd)
        assert await journal.discard(odd, at_ms=1, why=odd)
        assert (await reread(journal, found)).why == told


async def test_save_cursor_without_message(run_journal: Run) -> None:
    async with run_journal() as journal:
        async with journal.transaction() as transaction:
            transaction.save_cursor(Cursor("telegram:default", {"offset": 5}))
            transaction.enqueue(make_outbox_record("p1", "who are you?"))
        assert await journal.cursor("telegram:default") == {"offset": 5}
        assert [one.id for one in await journal.outbox_records()] == ["p1"]
        held = await lease(journal, "l")
        with suppress(LeaseLostError):
            async with journal.transaction() as transaction:
                transaction.save_cursor(Cursor("telegram:default", {"offset": 9}))
                transaction.send_started("nothing", held)
        assert await journal.cursor("telegram:default") == {"offset": 5}


async def test_outbox_record_keeps_extras(run_journal: Run) -> None:
    async with run_journal() as journal:
        carried = Extras(
            "7", media=(Media("image", path="a.png"),), buttons=((Button("yes", "/ok"),),)
        )
        await enqueue(
            journal,
            replace(make_outbox_record("p1", "look"), extras=carried),
            make_outbox_record("p2", "words"),
        )
        first, second = await journal.outbox_records()
        assert first.extras == carried and second.extras == Extras()


async def test_journal_large_values_fit(run_journal: Run) -> None:
    async with run_journal() as journal:
        image = Image("a" * 3_000_000, "image/png")
        row = await accept(journal, replace(HELLO, text="wörd " * 100_000, images=(image,)))
        assert len(row.preview) <= 120
        assert await reread(journal, row) == row
        await enqueue(journal, make_outbox_record("p1", "ü" * 500_000))
        found = await journal.outbox_record("p1")
        assert found is not None and len(found.text) == 500_000


async def test_journal_scopes_are_isolated(journal_home: Home) -> None:
    async def body(scopes: Scopes) -> None:
        ann, bob = scopes(Principal("acme", "ann")), scopes(Principal("acme", "bob"))
        one = await accept(ann, replace(HELLO, run_id="k"))
        two = await accept(bob, replace(HELLO, run_id="k"))
        held = await start(ann, one)
        async with ann.transaction() as transaction:
            transaction.call_started("k", held, "c1")
            transaction.enqueue(make_outbox_record("p1"))
        await send(ann, "p1", "dead")
        assert await bob.inbox_record("k") == two and await bob.open_calls("k") == frozenset()
        assert await bob.outbox_record("p1") is None and not await bob.retry("p1", at_ms=1)
        assert not await bob.discard("p1", at_ms=1, why="w")
        with pytest.raises(LeaseLostError):
            async with bob.transaction() as transaction:
                transaction.check_lease(["k"], held)
        await settle(bob, two, await start(bob, two))
        assert await bob.prune(10**15) == 1
        assert [row.state for row in await ann.inbox_records()] == ["running"]
        async with ann.lease("x"), asyncio.timeout(30), bob.lease("x"):
            pass

    async def main() -> None:
        async with journal_home.open() as scopes:
            await body(scopes)

    await main()


async def test_lease_has_one_holder_and_growing_tokens(run_journal: Run) -> None:
    tokens: list[int] = []

    async def body(journal: Journal) -> None:
        tokens.extend(await check_that_one_holds(journal.lease))

    async with run_journal() as journal:
        await body(journal)
    async with run_journal() as journal:
        await body(journal)
    assert tokens == sorted(set(tokens)) and len(tokens) == 24


async def test_lease_of_cancelled_holder_is_released(run_journal: Run) -> None:
    async with run_journal() as journal:
        await check_cancelled_holder_releases(journal.lease, 30)


async def test_journal_reopened_needs_later_start_to_continue(run_journal: Run) -> None:
    kept: list[tuple[InboxRecord, Lease]] = []

    async def first(journal: Journal) -> None:
        row = await accept(journal)
        held = await start(journal, row)
        async with journal.transaction() as transaction:
            transaction.call_started(row.id, held, "c1")
            transaction.enqueue(make_outbox_record("p1"))
            transaction.send_started("p1", held)
        kept.append((await reread(journal, row), held))

    async def later(journal: Journal) -> None:
        row, old = kept[0]
        assert list(await journal.inbox_records(*OPEN)) == [row]
        assert await journal.open_calls(row.id) == {"c1"}
        assert [one.state for one in await journal.outbox_records()] == ["sending"]
        held = await start(journal, row)
        assert held.token > old.token
        with pytest.raises(LeaseLostError):
            await settle(journal, row, old)
        await settle(journal, row, held)

    async with run_journal() as journal:
        await first(journal)
    async with run_journal() as journal:
        await later(journal)
