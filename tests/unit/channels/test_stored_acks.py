"""Ack reactions that an earlier process left are removed when their reply was delivered."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from homarus.channels.base import Capabilities, Channel, InboundHandler, Receipt
from homarus.channels.live_replies import LiveReplies
from homarus.channels.stored_acks import StoredAcks
from homarus.config.schema import Config
from homarus.core.message import Address, Inbound, Outbound
from homarus.store.chat_records import ChatRecord
from homarus.store.journal import InboxRecord, OutboxRecord, SettledState
from homarus.testing.clock import FakeClock
from homarus.testing.memory_journal import MemoryJournal
from homarus.testing.memory_store import MemoryStore

GUARD_S = 30.0
CHAT = Address("svc", "42", thread="7")
ASKED = Inbound("m1", CHAT, "ann", "hello")
SESSION = "agent:main:main"


class Reactor:
    """A service with reactions."""

    name, account, capabilities = "svc", "default", Capabilities()

    def __init__(self) -> None:
        self.seen: list[tuple[Address, str, str]] = []

    async def run(self, receive: InboundHandler) -> None:
        """Receive nothing."""

    async def send(self, message: Outbound) -> Receipt:
        return Receipt(message.key)

    async def react(self, to: Address, message_id: str, emoji: str) -> None:
        self.seen.append((to, message_id, emoji))


class Process:
    """One start of the program, on a journal that outlives it."""

    def __init__(
        self, group: asyncio.TaskGroup, journal: MemoryJournal, *, removes: bool = True
    ) -> None:
        self.journal, self.channel, self.clock = journal, Reactor(), FakeClock()
        config = Config.model_validate({"messages": {"removeAckAfterReply": removes}})
        self.live = LiveReplies(
            group,
            self.clock,
            channel=self._find,
            config=lambda: config,
            open_acks=lambda: StoredAcks(journal, self.clock),
        )

    def _find(self, _channel: str, _account: str) -> Channel:
        return self.channel

    async def accept(self, inbound: Inbound = ASKED) -> InboxRecord:
        """Accept a message and add its reaction, as the inbound pipeline does."""
        remembered = self.live.encode_ack(inbound, SESSION)
        accepted = await self.journal.accept(SESSION, inbound, at_ms=1, chat_records=remembered)
        self.live.add_ack_reaction(inbound, "👀")
        await self.clock.advance(1)
        return accepted.record

    async def settle(self, row: InboxRecord, state: SettledState = "answered") -> None:
        """Settle a message; an answered one has two pending parts of a reply."""
        parts = [OutboxRecord(f"{row.id}:{n}", row.id, CHAT, "hi", 1, 1 << 60) for n in range(2)]
        async with self.journal.lease("s") as lease, self.journal.transaction() as transaction:
            transaction.mark_running([row.id], lease, run=row.id)
            transaction.settle([row.id], lease, state, at_ms=2)
            transaction.enqueue(*(parts if state == "answered" else ()))

    async def deliver(self, key: str) -> None:
        async with self.journal.lease("d") as lease, self.journal.transaction() as transaction:
            transaction.send_started(key, lease)
            transaction.send_ended(key, lease, "sent")
        self.live.on_delivered(key)
        await self.clock.advance(1)

    async def stored(self) -> list[ChatRecord]:
        return list(await self.journal.chat_records("ack"))


@asynccontextmanager
async def start(journal: MemoryJournal, *, removes: bool = True) -> AsyncIterator[Process]:
    async with asyncio.timeout(GUARD_S), asyncio.TaskGroup() as group:
        yield Process(group, journal, removes=removes)


async def test_stored_ack_is_removed_after_restart_with_last_part() -> None:
    journal = MemoryStore().journal
    async with start(journal) as first:
        row = await first.accept()
        assert first.channel.seen == [(CHAT, "m1", "👀")] and len(await first.stored()) == 1
    async with start(journal) as second:
        await second.settle(row)
        await second.deliver(f"{row.id}:0")
        assert second.channel.seen == []
        await second.deliver(f"{row.id}:1")
        assert second.channel.seen == [(CHAT, "m1", "")] and not await second.stored()


async def test_stored_ack_of_delivered_reply_is_removed_with_next_reply() -> None:
    journal = MemoryStore().journal
    async with start(journal) as first:
        row = await first.accept()
        await first.settle(row)
        async with journal.lease("d") as lease, journal.transaction() as transaction:
            for part in range(2):  # and it is killed before it removes the reaction
                transaction.send_started(f"{row.id}:{part}", lease)
                transaction.send_ended(f"{row.id}:{part}", lease, "sent")
    async with start(journal) as second:
        second.live.on_delivered("another:0")
        await second.clock.advance(1)
        assert second.channel.seen == [(CHAT, "m1", "")] and not await second.stored()


async def test_stored_ack_of_own_process_is_removed_once_and_forgotten() -> None:
    async with start(MemoryStore().journal) as process:
        row = await process.accept()
        process.live.start([ASKED], row.id, lambda: "", 6.0)
        await process.settle(row)
        await process.deliver(f"{row.id}:0")
        await process.deliver(f"{row.id}:1")
        assert process.channel.seen == [(CHAT, "m1", "👀"), (CHAT, "m1", "")]
        assert not await process.stored()


async def test_stored_ack_of_message_without_reply_stays_on_it() -> None:
    journal = MemoryStore().journal
    async with start(journal) as first:
        await first.settle(await first.accept(), "silent")
    async with start(journal) as second:
        second.live.on_delivered("another:0")
        await second.clock.advance(1)
        assert second.channel.seen == []


async def test_ack_is_not_stored_where_reactions_stay() -> None:
    journal = MemoryStore().journal
    async with start(journal, removes=False) as process:
        row = await process.accept()
        assert not await process.stored()
        await process.settle(row)
        await process.deliver(f"{row.id}:0")
        assert process.channel.seen == [(CHAT, "m1", "👀")]


async def test_damaged_stored_ack_is_ignored() -> None:
    journal = MemoryStore().journal
    async with journal.transaction() as transaction:
        transaction.put_chat_records(
            ChatRecord("ack", "x", "1", 1, {}), ChatRecord("ack", "x", "2", 1, {"to": [1, 2]})
        )
    async with start(journal) as process:
        process.live.on_delivered("another:0")
        await process.clock.advance(1)
        assert process.channel.seen == []
