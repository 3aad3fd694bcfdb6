"""The bus: bounded, honest about what was missed, and never in a run's way."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homarus.core.bus import Bus, Subscription
from homarus.core.event import Event, EventData, RunEnded, RunStarted, TextAdded


def event(seq: int, fact: EventData | None = None) -> Event:
    return Event("run", "agent:main:main", seq, seq, fact or RunStarted())


async def read_all(subscription: Subscription) -> list[int]:
    return [item.seq async for item in subscription]


async def test_bus_subscribers_read_every_event_in_order() -> None:
    bus = Bus()
    with bus.subscribe() as one, bus.subscribe() as two:
        for seq in range(1, 6):
            bus.publish(event(seq))
    assert await read_all(one) == await read_all(two) == [1, 2, 3, 4, 5]


def test_bus_publish_without_subscribers_does_nothing() -> None:
    Bus().publish(event(1))


async def test_subscription_waiting_reader_is_woken_by_next_event() -> None:
    bus, seen = Bus(), list[int]()

    async def reader(subscription: Subscription) -> None:
        async for item in subscription:
            seen.append(item.seq)

    with bus.subscribe() as subscription:
        async with asyncio.TaskGroup() as group:
            group.create_task(reader(subscription))
            for seq in (1, 2):
                await asyncio.sleep(0)
                bus.publish(event(seq))
                await asyncio.sleep(0)
                assert seen[-1] == seq
            subscription.close()


async def test_subscription_block_end_ends_waiting_reader() -> None:
    bus = Bus()
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        with bus.subscribe() as subscription:
            group.create_task(read_all(subscription))
            await asyncio.sleep(0)


async def test_subscription_full_counts_missed_and_does_not_block() -> None:
    bus = Bus()
    with bus.subscribe(size=3) as slow, bus.subscribe(size=100) as quick:
        for seq in range(1, 11):
            bus.publish(event(seq))
    assert await read_all(slow) == [8, 9, 10]
    assert slow.missed == 7
    assert await read_all(quick) == list(range(1, 11))
    assert quick.missed == 0


async def test_subscription_full_drops_deltas_before_run_end() -> None:
    bus = Bus()
    with bus.subscribe(size=3) as slow:
        bus.publish(event(1))
        bus.publish(event(2, RunEnded()))
        for seq in range(3, 50):
            bus.publish(event(seq, TextAdded("x")))
    assert await read_all(slow) == [1, 2, 49]
    assert slow.missed == 46


async def test_subscription_closed_ignores_new_events_and_still_ends() -> None:
    subscription = Subscription(1)
    subscription.push(event(1))
    subscription.close()
    subscription.push(event(2))
    assert await read_all(subscription) == [1]
    assert subscription.missed == 0


async def test_subscription_reads_only_events_of_its_block() -> None:
    bus = Bus()
    bus.publish(event(1))
    with bus.subscribe() as subscription:
        bus.publish(event(2))
    bus.publish(event(3))
    assert await read_all(subscription) == [2]


@pytest.mark.parametrize("size", [0, -1])
def test_subscription_size_zero_raises_value_error(size: int) -> None:
    with pytest.raises(ValueError, match="at least one"), Bus().subscribe(size):
        pass


@given(
    st.integers(1, 5),
    st.lists(st.sampled_from([RunStarted(), TextAdded("x"), RunEnded()]), max_size=30),
)
async def test_subscription_read_plus_missed_equals_published(
    size: int, facts: list[EventData]
) -> None:
    bus = Bus()
    with bus.subscribe(size) as subscription:
        for seq, fact in enumerate(facts, 1):
            bus.publish(event(seq, fact))
    seen = await read_all(subscription)
    assert len(seen) == min(size, len(facts))
    assert len(seen) + subscription.missed == len(facts)
    assert seen == sorted(seen)
    kept = sum(not isinstance(fact, TextAdded) for fact in facts)
    if kept < size:  # then every fact that is not a delta had room
        assert sum(not isinstance(facts[seq - 1], TextAdded) for seq in seen) == kept


async def test_subscription_filters_by_run_session_and_kinds() -> None:
    bus = Bus()
    with (
        bus.subscribe(run_id="run") as one_run,
        bus.subscribe(session_key="agent:main:other") as other,
        bus.subscribe(kinds=(TextAdded,)) as texts,
    ):
        bus.publish(event(1))
        bus.publish(event(2, TextAdded("x")))
        bus.publish(Event("else", "agent:main:other", 3, 3, TextAdded("y")))
    assert await read_all(one_run) == [1, 2]
    assert await read_all(other) == [3]
    assert await read_all(texts) == [2, 3]


async def test_subscription_filtered_events_use_no_capacity() -> None:
    bus = Bus()
    with bus.subscribe(size=1, kinds=(RunStarted,)) as reader:
        bus.publish(event(1))
        for seq in range(2, 9):
            bus.publish(event(seq, TextAdded("x")))
    assert await read_all(reader) == [1] and reader.missed == 0


async def test_subscription_to_one_run_ends_with_the_run() -> None:
    bus = Bus()
    async with asyncio.timeout(30):
        with bus.subscribe(run_id="run", kinds=(TextAdded,)) as reader:
            bus.publish(event(1, TextAdded("x")))
            bus.publish(Event("else", "agent:main:main", 2, 2, RunEnded()))
            bus.publish(event(3, TextAdded("y")))
            bus.publish(event(4, RunEnded()))
            bus.publish(event(5, TextAdded("late")))
            assert await read_all(reader) == [1, 3]


def test_bus_reader_of_a_run_gets_its_events_until_it_leaves() -> None:
    bus, got = Bus(), list[Event]()
    leave = bus.follow_run("r1", got.append)
    bus.follow_run("r2", got.append)()
    for run_id in ("r1", "r2", "r1"):
        bus.publish(Event(run_id, "agent:main:main", 1, 1, TextAdded("x")))
    leave()
    leave()
    bus.publish(Event("r1", "agent:main:main", 2, 1, TextAdded("y")))
    assert [event.run_id for event in got] == ["r1", "r1"]
