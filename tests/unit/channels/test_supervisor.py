import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest

from homarus.channels.base import Capabilities, Channel, InboundHandler, Receipt
from homarus.channels.inbound import InboundPipeline, admit_all
from homarus.channels.supervisor import (
    NOTICE_MS,
    RESTART,
    ChannelSupervisor,
    unknown_delivery_notice,
)
from homarus.core.errors import ChannelAuthError, ChannelError, DiskFullError, UserError
from homarus.core.message import DIRECT, Address, Inbound, InboundMetadata, Outbound
from homarus.core.retry import Backoff
from homarus.store.chat_records import ChatRecord
from homarus.store.journal import Acceptance, Cursor, InboxRecord, OutboxRecord
from homarus.testing.clock import START_MS, FakeClock
from homarus.testing.fakes import ListChannel
from homarus.testing.memory_journal import MemoryJournal
from homarus.testing.memory_store import MemoryStore
from tests.waiting import settle

GUARD_S = 30.0
CHAT = Address("svc", "chat")
EVERY_TEN_S = Backoff(first_s=10, factor=1, jitter=0)
UNITS = ("utf16", "codepoint", "byte")


def message(message_id: str = "1", chat: str = "chat") -> Inbound:
    return Inbound(message_id, Address("svc", chat), "person", f"question {message_id}")


class Carrier:
    """A channel that passes on a list of messages and keeps running; sends fail as scripted."""

    account = "default"

    def __init__(self, *inbound: Inbound, name: str = "svc", idempotent: bool = False) -> None:
        self.name, self.capabilities = name, Capabilities(idempotent=idempotent)
        self.inbound = inbound
        self.starts = 0
        self.handed: list[str] = []
        self.run_trouble: list[Exception] = []
        self.send_trouble: list[Exception] = []
        self.sent: list[Outbound] = []
        self.connected = False

    async def run(self, receive: InboundHandler) -> None:
        self.starts += 1
        if self.run_trouble:
            raise self.run_trouble.pop(0)
        self.connected = True
        try:
            for one in self.inbound:
                await receive(one)
                self.handed.append(one.id)
            await asyncio.Event().wait()
        finally:
            self.connected = False

    async def send(self, message: Outbound) -> Receipt:
        await asyncio.sleep(0)
        assert self.connected
        if self.send_trouble:
            raise self.send_trouble.pop(0)
        self.sent.append(message)
        return Receipt(str(len(self.sent)))


class TightJournal(MemoryJournal):
    """A journal whose disk is full for a number of writes."""

    full = 0

    async def accept(
        self,
        session: str,
        inbound: Inbound,
        *,
        at_ms: int,
        cursor: Cursor | None = None,
        chat_records: Sequence[ChatRecord] = (),
    ) -> Acceptance:
        if self.full:
            self.full -= 1
            raise DiskFullError("no room")
        return await super().accept(
            session, inbound, at_ms=at_ms, cursor=cursor, chat_records=chat_records
        )


@dataclass
class Harness:
    """Running channels over a journal in memory; every message is answered by its text."""

    journal: TightJournal
    clock: FakeClock
    delivery: ChannelSupervisor
    running: asyncio.Task[None]

    async def settle(self) -> None:
        await settle(100)


@asynccontextmanager
async def at_work(
    channels: Sequence[Channel], *, full: int = 0, restart: Backoff = EVERY_TEN_S
) -> AsyncIterator[Harness]:
    @asynccontextmanager
    async def stage() -> Any:
        async with MemoryStore() as store, asyncio.TaskGroup() as group:
            journal = TightJournal.__new__(TightJournal)
            journal.__dict__.update(store.journal.__dict__)
            journal.full = full
            clock = FakeClock()
            delivery = ChannelSupervisor(journal, channels, clock, restart=restart)

            async def answer(session: str, row: InboxRecord) -> None:
                assert row.inbound is not None
                records = delivery.build_reply(row.inbound, row.id, f"answer to {row.inbound.text}")
                lease_name = f"session:{session}"
                async with journal.lease(lease_name) as lease, journal.transaction() as unit:
                    unit.mark_running([row.id], lease, run=row.id)
                    unit.settle([row.id], lease, "answered", at_ms=0)
                    unit.enqueue(*records)
                delivery.wake_workers()

            def submit(session: str, row: InboxRecord) -> None:
                group.create_task(answer(session, row))

            pipeline = InboundPipeline(
                journal, clock, admit=admit_all(lambda one: one.address.chat), submit=submit
            )
            running = group.create_task(delivery.run(pipeline))
            yield Harness(journal, clock, delivery, running)
            running.cancel()

    async with asyncio.timeout(GUARD_S), stage() as made:
        await made.settle()
        yield made


def test_unknown_delivery_notice_is_one_record_and_not_for_old_ones() -> None:
    unknown = [
        OutboxRecord(f"r{n}:0", f"r{n}", CHAT, "words", START_MS + n, START_MS + n, "unknown")
        for n in (1, 2)
    ]
    (notice,) = unknown_delivery_notice(unknown, at_ms=START_MS + 10)
    assert notice.id == "r2:notice" and notice.address == CHAT
    assert "words" not in notice.text and "svc" in notice.text
    assert unknown_delivery_notice(unknown, at_ms=START_MS + 5 + NOTICE_MS) == []
    assert unknown_delivery_notice([], at_ms=0) == []


async def test_supervisor_message_is_received_answered_and_delivered() -> None:
    channel = ListChannel([Inbound("1", Address("list", "c"), "person", "hello")])
    async with at_work([channel]) as stage:
        (row,) = await stage.journal.inbox_records("answered")
        (sent,) = channel.sent
        assert (sent.address.chat, sent.text) == ("c", "answer to hello")
        assert sent.key == f"{row.id}:0"
        (record,) = await stage.journal.outbox_records("sent")
        assert record.receipt == "1"


async def test_supervisor_reply_to_unreachable_chat_builds_no_records() -> None:
    async with at_work([ListChannel()]) as stage:
        nobody = Inbound("1", Address("webchat", "c"), "person", "hello")
        assert stage.delivery.build_reply(nobody, "r", "reply") == []


async def test_supervisor_reply_in_group_names_message_for_its_thread() -> None:
    service = Carrier()
    service.capabilities = Capabilities(has_new_threads=True)
    group = InboundMetadata("channel")
    async with at_work([service]) as stage:
        for metadata, thread, expected in (
            (group, None, "7"),
            (group, "3", ""),
            (DIRECT, None, ""),
        ):
            address = Address("svc", "chat", thread=thread)
            inbound = Inbound("7", address, "person", "hello", metadata=metadata)
            (record,) = stage.delivery.build_reply(inbound, "r", "reply")
            assert record.extras.thread_on == expected


async def test_supervisor_second_channel_with_same_account_is_refused() -> None:
    async with MemoryStore() as store:
        with pytest.raises(UserError, match="two channels are called list:default"):
            ChannelSupervisor(store.journal, [ListChannel(), ListChannel()], FakeClock())


async def test_supervisor_store_error_restarts_channel_which_rereads_message() -> None:
    service = Carrier(message())
    async with at_work([service], full=2) as stage:
        assert service.starts == 1 and service.handed == [] and service.sent == []
        await stage.clock.advance(9)
        assert service.starts == 1  # no busy loop
        await stage.clock.advance(1)
        assert service.starts == 2 and service.handed == []
        await stage.clock.advance(10)
        await stage.settle()
        assert service.handed == ["1"]
        assert [one.text for one in service.sent] == ["answer to question 1"]


async def test_supervisor_failing_channel_is_restarted_alone() -> None:
    broken, sound = Carrier(message()), Carrier(message("2"), name="other")
    sound.inbound = (Inbound("2", Address("other", "c"), "person", "two"),)
    broken.run_trouble = [ChannelError("connection lost"), KeyError("a bug")]
    async with at_work([broken, sound]) as stage:
        assert [one.text for one in sound.sent] == ["answer to two"] and broken.sent == []
        await stage.clock.advance(20)
        await stage.settle()
        assert broken.starts == 3 and len(broken.sent) == 1 and sound.starts == 1


async def test_row_33_channel_away_for_an_hour_is_back_within_a_minute() -> None:
    away = Carrier(message())
    away.run_trouble = [ChannelError("connection lost")] * 1_000
    async with at_work([away], restart=RESTART) as stage:
        await stage.clock.advance(3_600)
        await stage.settle()
        assert away.sent == [] and 60 <= away.starts < 100  # it tries once a minute
        away.run_trouble.clear()
        await stage.clock.advance(RESTART.max_s * (1 + RESTART.jitter))
        await stage.settle()
        assert [one.text for one in away.sent] == ["answer to question 1"]


@pytest.mark.parametrize("place", ["run_trouble", "send_trouble"])
async def test_supervisor_auth_error_stops_its_channel_alone_and_is_logged(
    place: str, caplog: pytest.LogCaptureFixture
) -> None:
    refused, sound = Carrier(message()), Carrier(name="other")
    sound.inbound = (Inbound("2", Address("other", "c"), "person", "two"),)
    getattr(refused, place).append(ChannelAuthError("token revoked", fix="make a new one"))
    async with at_work([refused, sound]) as stage:
        await stage.clock.advance(1_000)
        await stage.settle()
        assert refused.starts == 1 and refused.sent == [] and not refused.connected
        problems = {line.name: line.problem for line in stage.delivery.accounts}
        assert problems == {
            "svc:default": "token revoked (make a new one)",
            "other:default": "",
        }
        assert len(sound.sent) == 1
        waiting = await stage.journal.outbox_records("pending")
        assert len(waiting) == (1 if place == "send_trouble" else 0)
    assert "channel svc:default stopped: token revoked" in caplog.text


async def test_supervisor_unknown_delivery_is_announced_once_to_chat() -> None:
    service = Carrier(message("1"))
    service.send_trouble = [ChannelError("no answer")]
    async with at_work([service]) as stage:
        assert service.sent == []
        for number in itertools.count(2):
            inbound = message(str(number), chat="chat" if number < 4 else "elsewhere")
            records = stage.delivery.build_reply(inbound, f"run{number}", f"reply {number}")
            async with stage.journal.transaction() as unit:
                unit.enqueue(*records)
            if number == 4:
                break
        stage.delivery.wake_workers()
        await stage.settle()
        texts = [one.text for one in service.sent if one.address.chat == "chat"]
        assert len(texts) == 3 and texts[1:] == ["reply 2", "reply 3"]
        assert "whether an earlier reply of mine arrived" in texts[0]
        assert "question" not in texts[0] and "answer" not in texts[0]
        others = [one.text for one in service.sent if one.address.chat == "elsewhere"]
        assert others == ["reply 4"]


async def test_supervisor_unknown_delivery_before_start_is_announced() -> None:
    service = Carrier()
    async with MemoryStore() as store:
        clock, journal = FakeClock(), store.journal
        for run, chat in (("r1", "chat"), ("r2", "other")):
            record = OutboxRecord(f"{run}:0", run, replace(CHAT, chat=chat), "w", START_MS, 1 << 60)
            async with journal.lease("x") as lease, journal.transaction() as unit:
                unit.enqueue(record)
                unit.send_started(record.id, lease)
                unit.send_ended(record.id, lease, "unknown", why="no answer")
        delivery = ChannelSupervisor(journal, [service], clock)
        pipeline = InboundPipeline(
            journal, clock, admit=admit_all(lambda _: "s"), submit=lambda *_: None
        )
        async with asyncio.timeout(GUARD_S), asyncio.TaskGroup() as group:
            running = group.create_task(delivery.run(pipeline))
            for _ in range(50):
                await asyncio.sleep(0)
            assert await journal.retry("r2:0", at_ms=START_MS)
            delivery.wake_workers()
            for _ in range(50):
                await asyncio.sleep(0)
            assert [one.key for one in service.sent] == ["r2:0"]
            told = delivery.build_reply(message(), "r3", "reply")
            assert [one.id for one in told] == ["r1:notice", "r3:0"]
            silent = delivery.build_reply(message(chat="other"), "r4", "reply")
            assert [one.id for one in silent] == ["r4:0"]
            running.cancel()


async def test_supervisor_stop_keeps_channel_connected_until_due_records_sent() -> None:
    service = Carrier()
    async with at_work([service]) as stage:
        async with stage.journal.transaction() as unit:
            unit.enqueue(*stage.delivery.build_reply(message(), "r", "the last word"))
        stage.running.cancel()
        await asyncio.wait([stage.running])
        assert [one.text for one in service.sent] == ["the last word"]
        assert not service.connected


async def test_supervisor_reply_during_restart_uses_last_known_capabilities() -> None:
    service = Carrier()
    service.capabilities = Capabilities(40, "byte", "irc", by_line=True)
    async with at_work([service]) as stage:
        before = stage.delivery.build_reply(message(), "r", "**one**\ntwo")
        await stage.delivery.remove_account("svc", "default")
        assert stage.delivery.find_account("svc", "default") is None and not service.connected
        between = stage.delivery.build_reply(message(), "r", "**one**\ntwo")
        assert between == before and len(before) == 2
        async with stage.journal.transaction() as unit:
            unit.enqueue(*between)
        stage.delivery.add_account(service)
        await stage.settle()
        assert [one.key for one in service.sent] == ["r:0", "r:1"] and service.starts == 2


async def test_supervisor_remove_account_waits_for_send_under_way() -> None:
    gate = asyncio.Event()

    class Slow(Carrier):
        async def send(self, message: Outbound) -> Receipt:
            await gate.wait()
            return await super().send(message)

    service = Slow()
    async with at_work([service]) as stage:
        async with stage.journal.transaction() as unit:
            unit.enqueue(*stage.delivery.build_reply(message(), "r", "the answer"))
        stage.delivery.wake_workers()
        await stage.settle()
        async with asyncio.TaskGroup() as group:
            closing = group.create_task(stage.delivery.remove_account("svc", "default"))
            await stage.settle()
            assert not closing.done()  # and a disconnected service sends nothing
            gate.set()
        assert not service.connected and [one.text for one in service.sent] == ["the answer"]
        stage.delivery.add_account(service)
        await stage.settle()
        assert [one.state for one in await stage.journal.outbox_records()] == ["sent"]
        assert len(service.sent) == 1
