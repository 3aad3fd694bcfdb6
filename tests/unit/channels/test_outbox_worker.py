import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import pytest

from homarus.channels import outbox_worker as module
from homarus.channels.base import Capabilities, Channel, InboundHandler, Receipt, SendRetryPolicy
from homarus.channels.discord import rest as discord
from homarus.channels.matrix import api as matrix
from homarus.channels.outbox_worker import (
    FILE_EXTRA_S,
    POLL_INTERVAL_S,
    SEND_TIMEOUT_S,
    OutboxWorker,
)
from homarus.channels.service_client import CONNECT_TIMEOUT_S
from homarus.channels.telegram import api as telegram
from homarus.core import faults
from homarus.core.errors import ChannelAuthError, ChannelError, DiskFullError, SendError, StoreError
from homarus.core.message import NO_EXTRAS, Address, Extras, Media, Outbound
from homarus.core.retry import Backoff
from homarus.store.journal import OutboxRecord, OutboxState
from homarus.testing.clock import START_MS, FakeClock
from homarus.testing.memory_journal import MemoryJournal
from homarus.testing.memory_store import MemoryStore
from tests.waiting import settle

GUARD_S = 30.0
LATER = SendError("busy", retryable=True)
NEVER = SendError("refused", retryable=False)
BROKEN = ChannelError("the connection broke")
CHANGE = Extras(replaces="m7")
Step: TypeAlias = Exception | asyncio.Event | None


class Carrier:
    """A channel with a script for its sends; afterwards it accepts everything."""

    name = "svc"
    account = "default"

    def __init__(self, *script: Step, idempotent: bool = False) -> None:
        self.capabilities = Capabilities(idempotent=idempotent, retry=SendRetryPolicy(attempts=1))
        self.script = list(script)
        self.asked: list[str] = []  # the key of every send
        self.taken: list[str] = []  # the keys of answered sends

    async def run(self, receive: InboundHandler) -> None:
        """Receive nothing."""

    async def send(self, message: Outbound) -> Receipt:
        self.asked.append(message.key)
        step = self.script.pop(0) if self.script else None
        if isinstance(step, Exception):
            raise step
        if step is not None:
            await step.wait()
        self.taken.append(message.key)
        return Receipt(f"id-{message.key}")


class Listed(Carrier):
    """A channel with lookup; `there` is what arrived, or the error of the lookup."""

    def __init__(self, *script: Step) -> None:
        super().__init__(*script)
        self.there: dict[str, str | Exception] = {}
        self.looked = 0

    async def look_up(self, message: Outbound) -> Receipt | None:
        self.looked += 1
        found = self.there.get(message.key)
        if isinstance(found, Exception):
            raise found
        return Receipt(found) if found else None


@dataclass
class Harness:
    journal: MemoryJournal
    clock: FakeClock
    worker: OutboxWorker
    running: asyncio.Task[None]

    async def post(
        self, *ids: str, chat: str = "a", ttl_ms: int = 3_600_000, extras: Extras = NO_EXTRAS
    ) -> None:
        now_ms, to = self.clock.now_ms(), Address("svc", chat)
        posted = (
            OutboxRecord(one, "r", to, one, now_ms, now_ms + ttl_ms, extras=extras) for one in ids
        )
        async with self.journal.transaction() as unit:
            unit.enqueue(*posted)
        self.worker.wake()

    async def state(self, parcel_id: str) -> OutboxState:
        record = await self.journal.outbox_record(parcel_id)
        assert record is not None
        return record.state

    async def until(self, parcel_id: str, state: OutboxState) -> OutboxRecord:
        return await until(self.journal, parcel_id, state)

    async def settle(self) -> None:
        await settle(50)


async def until(journal: MemoryJournal, parcel_id: str, state: OutboxState) -> OutboxRecord:
    while True:
        record = await journal.outbox_record(parcel_id)
        if record and record.state == state:
            return record
        await asyncio.sleep(0)


@asynccontextmanager
async def run_worker(channel: Channel, **options: Any) -> AsyncIterator[Harness]:
    """Run a body next to a worker."""

    @asynccontextmanager
    async def stage() -> Any:
        async with MemoryStore() as store:
            clock = FakeClock()
            backoff = Backoff(first_s=10, factor=2, max_s=100, jitter=0)
            made = OutboxWorker(channel, store.journal, clock, backoff=backoff, **options)
            async with asyncio.TaskGroup() as group:
                running = group.create_task(made.run())
                yield Harness(store.journal, clock, made, running)
                running.cancel()

    async with asyncio.timeout(GUARD_S), stage() as found:
        yield found


async def leave_sending(
    stage: Harness, parcel_id: str, chat: str = "a", extras: Extras = NO_EXTRAS
) -> None:
    """Leave a record as a killed process does."""
    now_ms, to = stage.clock.now_ms(), Address("svc", chat)
    record = OutboxRecord(parcel_id, "r", to, parcel_id, now_ms, now_ms + 3_600_000, extras=extras)
    name = f"outbox:svc:default:{chat}"
    async with stage.journal.lease(name) as lease, stage.journal.transaction() as unit:
        unit.enqueue(record)
        unit.send_started(parcel_id, lease)
    stage.worker.wake()


async def test_worker_records_of_a_chat_are_sent_in_order_with_receipts() -> None:
    service = Carrier()
    async with run_worker(service) as stage:
        await stage.post("1", "2", "3")
        last = await stage.until("3", "sent")
        assert service.taken == ["1", "2", "3"]
        assert (last.receipt, last.attempts) == ("id-3", 1)


async def test_worker_temporary_refusal_is_retried_with_growing_backoff() -> None:
    service = Carrier(*[SendError("busy", retryable=True)] * 4)
    service.capabilities = Capabilities(
        retry=SendRetryPolicy(attempts=3, min_delay_s=0.4, jitter=0.0)
    )
    async with run_worker(service) as stage:
        await stage.post("1")
        for tries, wait_s in enumerate((0.4, 0.8, 40.0, 80.0), 1):
            while (await stage.until("1", "pending")).attempts < tries:
                await stage.settle()
            await stage.clock.advance(wait_s * 0.8)
            assert len(service.asked) == tries
            await stage.clock.advance(wait_s * 0.3)
        await stage.until("1", "sent")


async def test_worker_unconfirmed_edit_is_repeated() -> None:
    service = Carrier(ChannelError("the connection broke"))
    async with run_worker(service) as stage:
        await stage.post("1", extras=CHANGE)
        await stage.settle()
        assert service.asked == ["1"]
        await stage.clock.advance(120)
        await stage.until("1", "sent")
        assert service.asked == ["1", "1"]


@pytest.mark.parametrize(
    ("script", "state", "asked"),
    [
        ((NEVER,), "sent", 2),
        ((NEVER, BROKEN), "unknown", 2),
        ((NEVER, NEVER), "dead", 2),
    ],
)
async def test_worker_edit_of_missing_message_is_sent_as_new_message(
    script: tuple[Exception, ...], state: OutboxState, asked: int
) -> None:
    service = Carrier(*script)
    async with run_worker(service) as stage:
        await stage.post("1", extras=CHANGE)
        await stage.until("1", state)
        assert service.asked == ["1"] * asked


@pytest.mark.parametrize(
    ("service", "state", "asked"),
    [
        (Carrier(NEVER), "unknown", ["1"]),
        (Carrier(NEVER, idempotent=True), "sent", ["1", "1"]),
        (Listed(NEVER), "sent", ["1", "1"]),
    ],
)
async def test_worker_edit_maybe_sent_as_new_message_is_not_sent_again(
    service: Carrier, state: OutboxState, asked: list[str]
) -> None:
    """The process ended during the send, and the message to replace is gone."""
    async with run_worker(service) as stage:
        await leave_sending(stage, "1", extras=CHANGE)
        await stage.until("1", state)
        assert service.asked == asked


async def test_worker_hanging_chat_delays_no_other_chat() -> None:
    gate = asyncio.Event()
    service = Carrier(gate)
    async with run_worker(service) as stage:
        await stage.post("1", "2", chat="a")
        await stage.post("3", chat="b")
        await stage.until("3", "sent")
        assert await stage.state("1") == "sending" and await stage.state("2") == "pending"
        gate.set()
        await stage.until("2", "sent")
        assert service.taken == ["3", "1", "2"]


async def test_worker_concurrency_limit_holds_and_every_chat_is_served() -> None:
    gate = asyncio.Event()
    service = Carrier(*[gate] * 9)
    async with run_worker(service, max_chats=2) as stage:
        for number in range(9):
            await stage.post(str(number), chat=str(number))
        await stage.settle()
        assert service.asked == ["0", "1"]
        gate.set()
        await stage.until("8", "sent")
        assert service.taken == [str(number) for number in range(9)]


async def test_worker_waiting_for_slow_service_does_not_poll() -> None:
    gate = asyncio.Event()
    service = Carrier(gate)
    async with run_worker(service, max_chats=1) as stage:
        await stage.post("1", chat="a")
        await stage.post("2", chat="b")
        await stage.clock.advance(POLL_INTERVAL_S)  # a poll is due while all slots are taken
        before = len(stage.clock.slept)
        await stage.settle()
        assert len(stage.clock.slept) == before and service.asked == ["1"]
        gate.set()
        await stage.until("2", "sent")


async def test_worker_record_enqueued_during_send_to_its_chat_follows() -> None:
    gate = asyncio.Event()
    service = Carrier(gate)
    async with run_worker(service) as stage:
        await stage.post("1")
        await stage.until("1", "sending")
        await stage.post("2")
        await stage.settle()
        assert service.asked == ["1"]
        gate.set()
        await stage.until("2", "sent")
        assert service.taken == ["1", "2"]


async def test_worker_temporary_refusal_keeps_order_of_chat() -> None:
    service = Carrier(LATER, LATER)
    async with run_worker(service) as stage:
        await stage.post("1", "2")
        waiting = await stage.until("1", "pending")
        while not waiting.attempts:
            await asyncio.sleep(0)
            waiting = await stage.until("1", "pending")
        assert waiting.why == "busy" and waiting.not_before_ms == START_MS + 10_000
        await stage.clock.advance(9)
        assert service.asked == ["1"]
        await stage.clock.advance(1)
        assert service.asked == ["1", "1"]
        await stage.clock.advance(19)  # the second backoff is twice as long
        assert service.asked == ["1", "1"]
        await stage.clock.advance(1)
        assert service.taken == ["1", "2"] and await stage.state("2") == "sent"


async def test_worker_retry_after_of_service_is_obeyed() -> None:
    service = Carrier(SendError("slow down", retryable=True, after_s=3))
    async with run_worker(service) as stage:
        await stage.post("1")
        await stage.clock.advance(2.9)
        assert service.asked == ["1"]
        await stage.clock.advance(0.1)
        assert service.taken == ["1"]


async def test_worker_permanent_refusal_is_logged_and_rest_is_sent(
    caplog: pytest.LogCaptureFixture,
) -> None:
    service = Carrier(NEVER)
    async with run_worker(service) as stage:
        await stage.post("1", "2")
        await stage.until("2", "sent")
        dead = await stage.until("1", "dead")
        assert dead.why == "refused" and service.asked == ["1", "2"]
    assert "parcel 1 to svc:default:a was given up: refused" in caplog.text


async def test_worker_expired_record_is_dead_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    service = Carrier(*[LATER] * 3)
    async with run_worker(service) as stage:
        await stage.post("1", ttl_ms=15_000)
        await stage.post("2")
        await stage.clock.advance(14)
        assert service.asked == ["1", "1"] and await stage.state("1") == "pending"
        await stage.clock.advance(1)  # its next attempt would have been at 30
        dead = await stage.until("1", "dead")
        assert "in time" in dead.why
        assert service.asked == ["1", "1", "2"]
    assert "was given up" in caplog.text


@pytest.mark.parametrize(
    "trouble",
    [BROKEN, TimeoutError(), ConnectionResetError("reset"), KeyError("a bug of the adapter")],
    ids=["channel error", "timeout", "reset", "bug"],
)
async def test_worker_unknown_outcome_without_lookup_is_not_resent(
    trouble: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    service = Carrier(trouble)
    async with run_worker(service) as stage:
        await stage.post("1", "2", "3")
        await stage.clock.advance(10)  # after a bug, the chat is tried again later
        unknown = await stage.until("1", "unknown")
        await stage.until("3", "sent")
        await stage.clock.advance(3_600)
        assert service.asked == ["1", "2", "3"] and unknown.why
    assert "it is not sent again" in caplog.text


async def test_worker_send_timeout_leaves_outcome_unknown() -> None:
    service = Carrier(asyncio.Event())
    async with run_worker(service, send_timeout_s=0.01) as stage:
        await stage.post("1", "2")
        await stage.until("1", "unknown")
        await stage.until("2", "sent")


async def test_worker_send_with_file_has_longer_timeout() -> None:
    taken = asyncio.Event()
    service = Carrier(asyncio.Event(), taken)
    async with run_worker(service, send_timeout_s=0.01, file_extra_s=GUARD_S) as stage:
        await stage.post("words")
        await stage.until("words", "unknown")
        file = Extras(media=(Media("video", path="a.mp4"),))
        async with stage.journal.transaction() as unit:
            unit.enqueue(
                OutboxRecord("file", "r", Address("svc", "b"), "", 0, 1 << 60, extras=file)
            )
        stage.worker.wake()
        await stage.until("file", "sending")
        await asyncio.sleep(0.05)
        assert await stage.state("file") == "sending"
        taken.set()
        await stage.until("file", "sent")


def test_worker_timeout_of_files_exceeds_that_of_adapters() -> None:
    upload_s = max(each.UPLOAD_TIMEOUT_S for each in (discord, matrix, telegram))
    assert upload_s + CONNECT_TIMEOUT_S < SEND_TIMEOUT_S + FILE_EXTRA_S


@pytest.mark.parametrize("trouble", [BROKEN, ConnectionResetError("reset"), KeyError("bug")])
async def test_worker_idempotent_service_gets_same_key_again(trouble: Exception) -> None:
    service = Carrier(trouble, idempotent=True)
    async with run_worker(service) as stage:
        await stage.post("1", "2")
        await stage.clock.advance(9)
        assert service.asked == ["1"]
        await stage.clock.advance(1)
        assert service.asked == ["1", "1", "2"] and await stage.state("2") == "sent"


async def test_worker_service_with_lookup_is_queried_before_resend() -> None:
    service = Listed(BROKEN, BROKEN)
    service.there = {"1": "id-seen"}
    async with run_worker(service) as stage:
        await stage.post("1", "2")
        await stage.clock.advance(9)
        assert service.looked == 0 and await stage.state("1") == "sending"
        await stage.clock.advance(1)
        seen = await stage.until("1", "sent")
        assert seen.receipt == "id-seen" and service.asked == ["1", "2"]
        await stage.clock.advance(20)  # the second never arrived
        assert await stage.state("2") == "sent"
        assert service.asked == ["1", "2", "2"] and service.looked == 2


async def test_worker_successive_backoffs_are_awaited_without_polling() -> None:
    """The outcome is unknown, the lookup finds nothing, and the service is busy."""
    service = Listed(BROKEN, LATER)
    async with run_worker(service) as stage:
        await stage.post("1")
        await stage.clock.advance(10)
        assert service.looked == 1 and service.asked == ["1", "1"]
        slept = len(stage.clock.slept)
        await stage.clock.advance(19)
        assert service.asked == ["1", "1"] and len(stage.clock.slept) < slept + 5
        await stage.clock.advance(1)
        assert service.taken == ["1"]


async def test_worker_backoff_is_not_restarted_by_another_record() -> None:
    gate = asyncio.Event()
    service = Carrier(LATER, gate)
    async with run_worker(service) as stage:
        await stage.post("1", chat="a")
        await stage.settle()
        await stage.post("2", chat="b")
        await stage.clock.advance(9)
        gate.set()
        await stage.until("2", "sent")
        await stage.clock.advance(1)
        assert service.taken == ["2", "1"]


@pytest.mark.parametrize("after_s", [0.0, -5.0, float("nan")])
async def test_worker_retry_after_zero_is_not_retried_at_once(after_s: float) -> None:
    service = Carrier(*[SendError("again", retryable=True, after_s=after_s)] * 3)
    async with run_worker(service) as stage:
        await stage.post("1")
        await stage.clock.advance(0.9)
        assert service.asked == ["1"]
        await stage.clock.advance(2.1)
        assert service.taken == ["1"] and len(service.asked) == 4


async def test_worker_failing_lookup_sends_nothing() -> None:
    service = Listed(BROKEN)
    service.there = {"1": ChannelError("no answer")}
    async with run_worker(service) as stage:
        await stage.post("1")
        await stage.clock.advance(1_000)
        assert service.asked == ["1"] and service.looked > 3
        assert await stage.state("1") == "sending"
        service.there = {"1": "id-1"}
        await stage.clock.advance(100)
        assert await stage.state("1") == "sent" and service.asked == ["1"]


@pytest.mark.parametrize(
    ("service", "asked", "state"),
    [
        (Carrier(), ["2"], "unknown"),
        (Carrier(idempotent=True), ["1", "2"], "sent"),
        (Listed(), ["1", "2"], "sent"),
    ],
    ids=["plain", "idempotent", "lookup"],
)
async def test_worker_records_in_sending_state_are_resolved_at_start(
    service: Carrier, asked: list[str], state: OutboxState
) -> None:
    async with run_worker(service) as stage:
        await leave_sending(stage, "1")
        await stage.post("2")
        await stage.until("2", "sent")
        assert await stage.state("1") == state and service.asked == asked


async def test_worker_record_sent_before_kill_is_not_resent_after_lookup() -> None:
    service = Listed()
    service.there = {"1": "id-1"}
    async with run_worker(service) as stage:
        await leave_sending(stage, "1")
        assert (await stage.until("1", "sent")).receipt == "id-1"
        assert service.asked == []


async def test_worker_expired_unknown_outcome_is_not_called_dead() -> None:
    service = Carrier(idempotent=True)
    async with run_worker(service) as stage:
        await stage.settle()
        await leave_sending(stage, "1")
        stage.clock._elapsed_s += 7_200  # the process was down that long
        await stage.until("1", "unknown")
        assert service.asked == []


async def test_worker_auth_error_stops_worker_and_records_stay_pending() -> None:
    refused = ChannelAuthError("token revoked")
    service = Carrier(refused)
    async with MemoryStore() as store:
        worker = OutboxWorker(service, store.journal, FakeClock())
        async with store.journal.transaction() as unit:
            unit.enqueue(*(OutboxRecord(k, "r", Address("svc", k), k, 0, 1 << 60) for k in "12"))
        async with asyncio.timeout(GUARD_S):
            with pytest.raises(ChannelAuthError):
                await worker.run()
        waiting = await store.journal.outbox_record("1")
        assert waiting is not None and waiting.state == "pending"
        service.script.clear()
        async with asyncio.TaskGroup() as group:
            running = group.create_task(worker.run())  # with a new token
            async with asyncio.timeout(GUARD_S):
                await until(store.journal, "1", "sent")
                await until(store.journal, "2", "sent")
            running.cancel()


async def test_worker_auth_error_in_lookup_stops_worker() -> None:
    service = Listed()
    service.there = {"1": ChannelAuthError("token revoked")}
    async with MemoryStore() as store:
        worker = OutboxWorker(service, store.journal, FakeClock())
        async with store.journal.lease("x") as lease, store.journal.transaction() as unit:
            unit.enqueue(OutboxRecord("1", "r", Address("svc", "a"), "1", 0, 1 << 60))
            unit.send_started("1", lease)
        async with asyncio.timeout(GUARD_S):
            with pytest.raises(ChannelAuthError):
                await worker.run()
        record = await store.journal.outbox_record("1")
        assert record is not None and record.state == "sending" and service.asked == []


async def test_worker_cancelled_waits_for_sends_under_way() -> None:
    gate = asyncio.Event()
    service = Carrier(gate)
    async with run_worker(service) as stage:
        await stage.post("1", "2")
        await stage.until("1", "sending")
        stage.running.cancel()
        await stage.settle()
        assert not stage.running.done()
        gate.set()
        await asyncio.wait([stage.running])
        assert stage.running.cancelled()
        assert await stage.state("1") == "sent" and await stage.state("2") == "sent"


async def test_worker_cancelled_after_enqueue_sends_pending_record() -> None:
    async with run_worker(Carrier()) as stage:
        await stage.settle()
        await stage.post("1")
        stage.running.cancel()
        await asyncio.wait([stage.running])
        assert await stage.state("1") == "sent"


async def test_worker_cancelled_ends_after_grace_period(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GRACE_S", 0.01)
    async with run_worker(Carrier(asyncio.Event())) as stage:
        await stage.post("1")
        await stage.until("1", "sending")
        stage.running.cancel()
        await asyncio.wait([stage.running])
        assert await stage.state("1") == "sending"  # the next start resolves it


async def test_worker_journal_read_error_interrupts_no_send() -> None:
    gate = asyncio.Event()
    service = Carrier(gate)

    class Failing(MemoryJournal):
        fails = False

        async def outbox_records(
            self,
            *states: OutboxState,
            channel: str | None = None,
            run: str | None = None,
            limit: int | None = None,
        ) -> Any:
            if self.fails:
                raise StoreError("the disk is away")
            return await super().outbox_records(*states, channel=channel, run=run, limit=limit)

    async with MemoryStore() as store, asyncio.TaskGroup() as group:
        journal = Failing.__new__(Failing)
        journal.__dict__.update(store.journal.__dict__)
        worker = OutboxWorker(service, journal, FakeClock())

        async def run() -> None:
            with pytest.raises(StoreError):
                await worker.run()

        async with asyncio.timeout(GUARD_S), journal.transaction() as unit:
            unit.enqueue(OutboxRecord("1", "r", Address("svc", "a"), "1", 0, 1 << 60))
        running = group.create_task(run())
        async with asyncio.timeout(GUARD_S):
            await until(journal, "1", "sending")
            await asyncio.sleep(0)
            journal.fails = True
            worker.wake()
            await asyncio.sleep(0)
            gate.set()
            await running
        sent = await journal.outbox_record("1")
        assert sent is not None and sent.state == "sent"


@pytest.mark.parametrize(
    ("step", "state", "asked"), [(None, "sent", ["1", "2"]), (LATER, "sent", ["1", "1", "2"])]
)
async def test_worker_failed_journal_write_is_repeated(
    monkeypatch: pytest.MonkeyPatch, step: Step, state: OutboxState, asked: list[str]
) -> None:
    """A full disk makes no unknown outcome of a known one."""
    service = Carrier(step)
    async with run_worker(service) as stage:
        inner, fails = stage.journal.transaction, 3

        def tight() -> Any:
            nonlocal fails
            if service.asked and fails:
                fails -= 1
                raise DiskFullError("no room")
            return inner()

        monkeypatch.setattr(stage.journal, "transaction", tight)
        await stage.post("1", "2")
        await stage.clock.advance(200)
        assert fails == 0 and service.asked == asked
        assert await stage.state("1") == state and await stage.state("2") == "sent"


async def test_worker_without_wakeups_polls_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    async with run_worker(Carrier()) as stage:
        looks = 0
        inner = stage.journal.outbox_records

        async def counted(*states: OutboxState, **asked: Any) -> Any:
            nonlocal looks
            looks += 1
            return await inner(*states, **asked)

        monkeypatch.setattr(stage.journal, "outbox_records", counted)
        await stage.post("1")
        await stage.until("1", "sent")
        await stage.settle()
        assert looks == 1
        await stage.clock.advance(POLL_INTERVAL_S - 1)
        assert looks == 1
        await stage.clock.advance(1)
        assert looks == 2


@pytest.mark.parametrize(
    ("point", "state", "asked"),
    [
        ("deliver.started", "sending", []),
        ("deliver.answered", "sending", ["1"]),
        ("deliver.ended", "sent", ["1"]),
    ],
)
async def test_worker_fault_points_are_where_their_names_say(
    point: str, state: OutboxState, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(faults, "_faults", faults.parse_faults(f"{point}:raise"))
    service = Carrier()
    async with run_worker(service) as stage:
        await stage.post("1", "2")
        await stage.settle()
        assert await stage.state("1") == state and service.asked == asked
        await stage.clock.advance(10)
        assert await stage.state("2") == "sent"
        assert await stage.state("1") == ("sent" if state == "sent" else "unknown")
        assert service.asked == [*asked, "2"]


async def test_worker_records_of_another_account_are_ignored(
    caplog: pytest.LogCaptureFixture,
) -> None:
    service = Carrier()

    with caplog.at_level(logging.WARNING):
        async with run_worker(service) as stage:
            other = Address("svc", "a", account="work")
            async with stage.journal.transaction() as unit:
                unit.enqueue(OutboxRecord("x", "r", other, "x", START_MS, START_MS + 1_000_000))
            await stage.post("1")
            await stage.until("1", "sent")
            await stage.settle()
            assert service.asked == ["1"] and await stage.state("x") == "pending"
    assert caplog.text == ""


async def test_worker_pending_count_follows_state_of_records() -> None:
    gate = asyncio.Event()
    service = Carrier(None, gate)
    async with run_worker(service) as stage:
        await stage.post("1", "2", "3")
        await stage.until("1", "sent")
        await stage.settle()
        assert stage.worker.pending_count == 2
        gate.set()
        await stage.until("3", "sent")
        await stage.settle()
        assert stage.worker.pending_count == 0


async def test_worker_created_thread_is_stored_and_joined_by_later_records() -> None:
    class Forum(Carrier):
        def __init__(self) -> None:
            super().__init__()
            self.threads: list[str | None] = []

        async def send(self, message: Outbound) -> Receipt:
            self.threads.append(message.address.thread)
            receipt = await super().send(message)
            return receipt if message.address.thread else replace(receipt, thread_id="post-1")

    channel = Forum()
    async with run_worker(channel) as stage:
        await stage.post("r:0")
        first = await stage.until("r:0", "sent")
        await stage.post("r:1", extras=Extras(thread_from="r:0"))
        await stage.until("r:1", "sent")
    assert first.address.thread == "post-1"
    assert channel.threads == [None, "post-1"]
