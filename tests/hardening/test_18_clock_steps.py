"""A step of the wall clock neither delays nor expires a reply; every expiry is told to the chat.

Waits are measured by the monotonic clock; the times in the journal are corrected when a step is
detected, while the program runs and at its next start.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from homarus.channels.base import TTL_MS, Capabilities, InboundHandler, Receipt, SendRetryPolicy
from homarus.channels.outbox_worker import EXPIRED_NOTICE, POLL_INTERVAL_S, OutboxWorker
from homarus.channels.supervisor import ChannelSupervisor
from homarus.core.clock import ClockStepDetector, SystemClock
from homarus.core.errors import SendError
from homarus.core.message import Address, Outbound
from homarus.core.retry import Backoff
from homarus.sessions.backlog import list_backlog
from homarus.store import clock_rebase
from homarus.store.journal import Journal, OutboxRecord
from homarus.store.sqlite import open_store
from homarus.testing.clock import FakeClock
from homarus.testing.memory_store import MemoryStore
from tests.waiting import settle, until

DAY_S = 86_400.0
GUARD_S = 30.0


class FailingChannel:
    """A channel that refuses for now while `is_down`."""

    name, account = "svc", "default"
    capabilities = Capabilities(retry=SendRetryPolicy(attempts=1))

    def __init__(self, after_s: float | None = None) -> None:
        self.is_down, self.after_s = True, after_s
        self.asked = 0
        self.sent: list[str] = []

    async def run(self, receive: InboundHandler) -> None:
        await asyncio.Event().wait()

    async def send(self, message: Outbound) -> Receipt:
        self.asked += 1
        if self.is_down:
            raise SendError("later", retryable=True, after_s=self.after_s)
        self.sent.append(message.text)
        return Receipt("m")


@asynccontextmanager
async def sending(channel: FailingChannel) -> AsyncIterator[tuple[Journal, FakeClock]]:
    """Run a worker with one pending reply that was refused once."""
    clock = FakeClock()
    async with asyncio.timeout(GUARD_S), MemoryStore() as store:
        now_ms = clock.now_ms()
        reply = OutboxRecord("r:0", "r", Address("svc", "a"), "hi", now_ms, now_ms + TTL_MS)
        async with store.journal.transaction() as transaction:
            transaction.enqueue(reply)
        backoff = Backoff(first_s=10, factor=1, max_s=10, jitter=0)
        worker = OutboxWorker(channel, store.journal, clock, backoff=backoff)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(worker.run())
            await until(lambda: channel.asked)
            await settle()
            yield store.journal, clock
            task.cancel()


@pytest.mark.parametrize("step_s", [-DAY_S, -3_600.0, 3_600.0, 2 * DAY_S, 4_000 * DAY_S])
async def test_clock_step_keeps_delay_and_reply(step_s: float) -> None:
    channel = FailingChannel()
    async with sending(channel) as (journal, clock):
        clock.step(step_s)
        await clock.advance(9)
        assert channel.asked == 1, "the retry waits its time"
        channel.is_down = False
        await clock.advance(2)
        assert channel.sent == ["hi"]
        (reply,) = await journal.outbox_records()
        assert reply.state == "sent"


async def test_service_retry_after_holds_over_clock_step() -> None:
    channel = FailingChannel(after_s=600)
    async with sending(channel) as (_journal, clock):
        clock.step(3_600)
        await clock.advance(599)
        assert channel.asked == 1
        channel.is_down = False
        await clock.advance(POLL_INTERVAL_S)
        assert channel.sent == ["hi"]


async def test_forward_step_over_a_day_expires_nothing_later_either() -> None:
    channel = FailingChannel()
    async with sending(channel) as (journal, clock):
        clock.step(3 * DAY_S)
        await clock.advance(DAY_S / 2)
        (reply,) = await journal.outbox_records()
        assert reply.state == "pending"
        channel.is_down = False
        await clock.advance(60)
        assert channel.sent == ["hi"]


async def test_expired_reply_is_told_to_its_chat_once() -> None:
    channel = FailingChannel()
    async with sending(channel) as (journal, clock):
        async with journal.transaction() as transaction:
            now_ms = clock.now_ms()
            second = OutboxRecord("r:1", "r", Address("svc", "a"), "more", now_ms, now_ms + TTL_MS)
            transaction.enqueue(second)
        await clock.advance(DAY_S + 60)
        states = {r.id: r.state for r in await journal.outbox_records()}
        assert states == {"r:0": "dead", "r:1": "dead", "r:expired": "pending"}
        channel.is_down = False
        await clock.advance(60)
        assert channel.sent == [EXPIRED_NOTICE]


async def test_expired_notice_of_unreachable_chat_is_stuck_not_repeated() -> None:
    channel = FailingChannel()
    async with sending(channel) as (journal, clock):
        await clock.advance(3 * DAY_S)
        stuck = await list_backlog(journal, clock.now_ms(), stuck=True)
        assert {row["id"]: row["state"] for row in stuck["parcels"]} == {
            "r:0": "dead",
            "r:expired": "dead",
        }


async def test_delayed_reply_is_not_held_up_by_step_backwards() -> None:
    """A reply that was enqueued with a delay, as `humanDelay` does."""
    channel, clock = FailingChannel(), FakeClock()
    channel.is_down = False
    async with asyncio.timeout(GUARD_S), MemoryStore() as store:
        supervisor = ChannelSupervisor(store.journal, (channel,), clock)
        worker = supervisor.accounts[0].worker
        now_ms = clock.now_ms()
        reply = OutboxRecord(
            "r:0", "r", Address("svc", "a"), "hi", now_ms, now_ms + TTL_MS, not_before_ms=now_ms + 5
        )
        async with store.journal.transaction() as transaction:
            transaction.enqueue(reply)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(worker.run())
            await settle()
            clock.step(-DAY_S)
            await clock.advance(POLL_INTERVAL_S + 1)
            assert channel.sent == ["hi"]
            task.cancel()


def test_detector_reports_each_step_once_and_no_drift() -> None:
    clock = FakeClock()
    steps = ClockStepDetector(clock)
    clock.step(1.5)
    assert steps.take_step_ms() == 0
    clock.step(3_600)
    assert steps.take_step_ms() == 3_601_500
    assert steps.take_step_ms() == 0
    clock.step(-7_200)
    assert steps.take_step_ms() == -7_200_000
    assert ClockStepDetector(SystemClock()).take_step_ms() == 0


class BootTimes:
    """The clocks that the store reads at a start."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.boot_id, self.boot_ms, self.now_ms = "boot-1", 1_000_000, 1_800_000_000_000
        monkeypatch.setattr(clock_rebase, "_boot_id", lambda: self.boot_id)
        monkeypatch.setattr(clock_rebase, "_boot_ms", lambda: self.boot_ms)
        monkeypatch.setattr(clock_rebase, "_now_ms", lambda: self.now_ms)

    def advance(self, wall_s: float, boot_s: float) -> None:
        self.now_ms += round(wall_s * 1000)
        self.boot_ms += round(boot_s * 1000)


async def times_after_restart(
    state: Path, times: BootTimes, wall_s: float, boot_id: str
) -> tuple[float, float]:
    """Enqueue a reply that is retried in 10 s, and return its waits after a restart 5 s later."""
    async with open_store(state) as store:
        now_ms = times.now_ms
        reply = OutboxRecord("r:0", "r", Address("svc", "a"), "hi", now_ms, now_ms + TTL_MS)
        async with store.transaction() as transaction:
            transaction.enqueue(reply)
        async with store.journal.lease("x") as lease, store.transaction() as transaction:
            transaction.send_started("r:0", lease)
            transaction.send_ended("r:0", lease, "pending", not_before_ms=now_ms + 10_000)
    times.advance(wall_s, 5)
    times.boot_id = boot_id
    async with open_store(state) as store:
        (found,) = await store.journal.outbox_records()
    return (found.not_before_ms - times.now_ms) / 1000, (found.expires_ms - times.now_ms) / 1000


@pytest.mark.parametrize(
    ("wall_s", "boot_id", "waits"),  # until the retry and until the expiry
    [
        (5, "boot-1", (5, DAY_S - 5)),
        (5 - 3_600, "boot-1", (5, DAY_S + 3_595)),
        (5 + 2 * DAY_S, "boot-1", (5 - 2 * DAY_S, DAY_S - 5)),
        (2 * DAY_S, "boot-2", (10 - 2 * DAY_S, -DAY_S)),  # the machine was off: it did expire
        (-3_600, "boot-2", (10, DAY_S + 3_600)),  # a clock without a battery
    ],
    ids=["no step", "backwards", "forwards", "reboot", "reboot backwards"],
)
async def test_start_corrects_times_by_step_since_last_start(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    wall_s: float,
    boot_id: str,
    waits: tuple[float, float],
) -> None:
    times = BootTimes(monkeypatch)
    assert await times_after_restart(tmp_path, times, wall_s, boot_id) == waits


async def test_step_detected_while_running_is_not_corrected_again_at_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = BootTimes(monkeypatch)
    async with open_store(tmp_path) as store:
        now_ms = times.now_ms
        reply = OutboxRecord("r:0", "r", Address("svc", "a"), "hi", now_ms, now_ms + TTL_MS)
        async with store.transaction() as transaction:
            transaction.enqueue(reply)
        times.advance(2 * DAY_S + 5, 5)
        await store.journal.shift_times(round(2 * DAY_S * 1000))
    times.advance(5, 5)
    async with open_store(tmp_path) as store:
        (found,) = await store.journal.outbox_records()
    assert found.expires_ms - times.now_ms == TTL_MS - 10_000
