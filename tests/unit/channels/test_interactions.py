"""Acknowledgements of interactions, in time whatever the handler does."""

import asyncio

import pytest

from homarus.channels.interactions import acknowledge_within
from homarus.core.errors import ChannelError, StoreError


async def test_interaction_is_acknowledged_once_after_the_work() -> None:
    events: list[str] = []

    async def work() -> None:
        events.append("work")

    async def acknowledge() -> None:
        events.append("ack")

    await acknowledge_within(work(), acknowledge)
    assert events == ["work", "ack"]


async def test_interaction_with_slow_work_is_acknowledged_before_it_ends() -> None:
    events: list[str] = []
    acknowledged = asyncio.Event()

    async def work() -> None:
        await acknowledged.wait()
        events.append("work")

    async def acknowledge() -> None:
        events.append("ack")
        acknowledged.set()

    await acknowledge_within(work(), acknowledge, timeout_s=0.01)
    assert events == ["ack", "work"]


async def test_interaction_with_failed_work_is_acknowledged_and_raises() -> None:
    events: list[str] = []

    async def work() -> None:
        raise StoreError("full")

    async def acknowledge() -> None:
        events.append("ack")

    with pytest.raises(StoreError):
        await acknowledge_within(work(), acknowledge)
    assert events == ["ack"]


async def test_interaction_with_failed_acknowledgement_is_stored() -> None:
    events: list[str] = []
    failed = asyncio.Event()

    async def work() -> None:
        await failed.wait()
        await asyncio.sleep(0)
        events.append("work")

    async def acknowledge() -> None:
        failed.set()
        raise ChannelError("it is gone")

    await acknowledge_within(work(), acknowledge, timeout_s=0.01)
    assert events == ["work"]
