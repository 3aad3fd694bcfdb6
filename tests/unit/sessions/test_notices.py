"""Notices: stored in the caller's transaction, loaded after a restart, bounded."""

import asyncio

import pytest

from homarus.core.message import Address, Inbound
from homarus.sessions.notices import MAX_NOTICES, RECORD_KIND, Notices, prepend_notices
from homarus.testing.memory_store import MemoryStore

KEY = "agent:main:main"


async def test_planned_notice_is_stored_and_survives_a_restart() -> None:
    store, notices = MemoryStore(), Notices()
    planned = notices.plan(KEY, "water the\nplants", 5, source="cron:j1", wake_mode="now")
    assert notices.pending(KEY) == ()
    async with store.transaction() as transaction:
        planned.write(transaction)
    planned.publish()
    restarted = Notices()
    await restarted.load(store)
    assert restarted.pending(KEY) == notices.pending(KEY) == (planned.notice,)
    assert planned.notice.text == "water the plants"
    assert (planned.notice.source, planned.notice.wake_mode) == ("cron:j1", "now")


async def test_notices_load_in_the_order_of_their_times() -> None:
    store, notices = MemoryStore(), Notices()
    for at_ms in (3, 1, 2):
        await notices.save(store, KEY, f"n{at_ms}", at_ms)
    restarted = Notices()
    await restarted.load(store)
    assert [notice.text for notice in restarted.pending(KEY)] == ["n1", "n2", "n3"]


async def test_repeated_notice_is_neither_stored_nor_added() -> None:
    store, notices = MemoryStore(), Notices()
    await notices.save(store, KEY, "same", 1)
    await notices.save(store, KEY, "same", 2)
    assert len(await store.records(RECORD_KIND)) == len(notices.pending(KEY)) == 1


async def test_notice_over_the_limit_deletes_the_record_of_the_oldest(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store, notices = MemoryStore(), Notices()
    for number in range(MAX_NOTICES + 3):
        await notices.save(store, KEY, f"n{number}", number)
    stored = await store.records(RECORD_KIND)
    assert {data["text"] for data in stored.values()} == {
        notice.text for notice in notices.pending(KEY)
    }
    assert len(stored) == MAX_NOTICES
    assert caplog.text.count("has 20 notices: that of a client is dropped") == 3


async def test_notices_of_a_chat_are_dropped_before_those_of_a_job() -> None:
    store, notices = MemoryStore(), Notices()
    planned = notices.plan(KEY, "water the plants", 0, source="cron:j1")
    for one in (
        planned,
        *(
            notices.plan(KEY, f"reaction {at_ms}", at_ms, source="chat", wake_mode="next-message")
            for at_ms in range(MAX_NOTICES + 5)
        ),
    ):
        async with store.transaction() as transaction:
            one.write(transaction)
        one.publish()
    kept = [notice.text for notice in notices.pending(KEY)]
    assert len(kept) == MAX_NOTICES and kept[0] == "water the plants"
    assert kept[-1] == f"reaction {MAX_NOTICES + 4}" and await texts(store) == {*kept}


async def texts(store: MemoryStore) -> set[str]:
    return {str(data["text"]) for data in (await store.records(RECORD_KIND)).values()}


async def test_notices_stored_at_once_do_not_come_back(caplog: pytest.LogCaptureFixture) -> None:
    store, notices = MemoryStore(), Notices()
    planned = [notices.plan(KEY, f"n{at_ms}", at_ms) for at_ms in range(MAX_NOTICES + 5)]
    async with asyncio.TaskGroup() as group:  # none is published before all are stored

        async def commit(number: int) -> None:
            async with store.transaction() as transaction:
                planned[number].write(transaction)

        for number in range(len(planned)):
            group.create_task(commit(number))
    for one in planned:
        one.publish()
    assert len(notices.pending(KEY)) == MAX_NOTICES and caplog.text.count("is dropped") == 5
    claimed = notices.claim(KEY)
    async with store.transaction() as transaction:
        claimed.delete(transaction)
    assert await texts(store) == set()


async def test_notices_without_room_after_a_restore_do_not_come_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store, notices = MemoryStore(), Notices()
    for at_ms in range(MAX_NOTICES):
        await notices.save(store, KEY, f"old{at_ms}", at_ms)
    claimed = notices.claim(KEY)
    await notices.save(store, KEY, "new1", 100)
    notices.restore(claimed)  # the heartbeat that had them has failed
    assert "that of a client is dropped" in caplog.text
    await notices.save(store, KEY, "new2", 101)
    kept = {notice.text for notice in notices.pending(KEY)}
    assert await texts(store) == kept and len(kept) == MAX_NOTICES and "new1" in kept


async def test_surplus_of_an_earlier_process_is_deleted_when_loaded() -> None:
    store = MemoryStore()
    for number in range(2):  # each queue knows only its own
        notices = Notices()
        for at_ms in range(MAX_NOTICES):
            await notices.save(store, KEY, f"n{number} {at_ms}", number * 100 + at_ms)
    restarted = Notices()
    await restarted.load(store)
    assert await texts(store) == {notice.text for notice in restarted.pending(KEY)}
    assert len(await texts(store)) == MAX_NOTICES


def test_notices_are_lines_before_the_message() -> None:
    notices = Notices()
    notices.add(KEY, "first", 0)
    notices.add(KEY, "second", 0)
    lines = prepend_notices(notices.claim(KEY).notices, "hello").splitlines()
    assert [line.rpartition("] ")[2] for line in lines] == ["first", "second", "", "hello"]


async def test_claimed_notices_are_restored_before_newer_ones() -> None:
    store, notices = MemoryStore(), Notices()
    await notices.save(store, KEY, "one", 1)
    claimed = notices.claim(KEY)
    assert notices.pending(KEY) == ()
    await notices.save(store, KEY, "two", 2)
    notices.restore(claimed)
    assert [notice.text for notice in notices.pending(KEY)] == ["one", "two"]
    async with store.transaction() as transaction:
        notices.claim(KEY).delete(transaction)
    assert await store.records("notice") == {}


async def test_held_notices_stay_with_a_heartbeat_until_it_is_settled() -> None:
    store, notices = MemoryStore(), Notices()
    await notices.save(store, KEY, "one", 1)
    inbound = Inbound("beat", Address("heartbeat", KEY), "owner", "x", run_id="beat")
    await store.journal.accept(KEY, inbound, at_ms=1)
    claimed = notices.claim(KEY)
    async with store.transaction() as transaction:
        claimed.hold(transaction, "beat")
    again = Notices()
    await again.load(store)
    assert again.pending(KEY) == () and again.find_held("beat") == claimed
    async with store.journal.lease("inbox") as lease, store.transaction() as transaction:
        transaction.settle(["beat"], lease, "silent", at_ms=2, why="preempted")
    await again.release_settled(store)
    assert [notice.text for notice in again.pending(KEY)] == ["one"]
    later = Notices()
    await later.load(store)
    assert [notice.text for notice in later.pending(KEY)] == ["one"]
