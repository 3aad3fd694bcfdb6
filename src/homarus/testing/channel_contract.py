"""The contract suite of channels: what every adapter guarantees (channels/base.py), as tests.

A package with a channel runs it over its own adapter and its service, or a fake of that:

    import pytest
    from homarus.testing.channel_contract import ChannelContract, OpenPeer

    class TestToyChannel(ChannelContract):
        @pytest.fixture
        def open_peer(self) -> OpenPeer:
            return open_toy_service    # an async context manager of a ChannelPeer

It needs pytest with `asyncio_mode = "auto"` (pytest-asyncio).
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import ClassVar, Protocol, TypeAlias

from homarus.channels.base import Channel, SupportsLookup
from homarus.channels.inbound import InboundPipeline, admit_all
from homarus.channels.supervisor import ChannelSupervisor
from homarus.core.errors import DiskFullError
from homarus.core.message import Address, Outbound
from homarus.core.tasks import task_group
from homarus.store.journal import InboxRecord, Journal
from homarus.testing.clock import FakeClock
from homarus.testing.fakes import RecordingHandler
from homarus.testing.memory_store import MemoryStore

GUARD_S = 60.0
HOSTILE = (
    'tab\t, line\nend, "quotes", <b>&amp;</b>, @everyone, 👩‍👩‍👧 \u202e \x1b[31m, ' + "x" * 3_000
)


class ChannelPeer(Protocol):
    """The other side of a channel: the service, as its own users see it."""

    @property
    def channel(self) -> Channel: ...

    def write(self, text: str, message_id: str, *, chat: str = "chat") -> None:
        """Send a message as the user `person`; the same id again is a redelivery."""
        ...

    def shown(self) -> list[tuple[str, str]]:
        """Return chat and text of what the service accepted, in order."""
        ...


OpenPeer: TypeAlias = Callable[[], AbstractAsyncContextManager[ChannelPeer]]


@asynccontextmanager
async def running(channel: Channel, handler: RecordingHandler) -> AsyncIterator[asyncio.Task[None]]:
    """Run the channel while the block lasts, and yield its task."""

    async def run() -> None:
        with suppress(DiskFullError):
            await channel.run(handler)

    async with task_group() as group:
        task = group.create_task(run())
        yield task
        task.cancel()


def make_outbound(text: str, key: str, chat: str = "chat") -> Outbound:
    """Return a message to a chat of the service."""
    return Outbound(Address("any", chat), text, key)


@dataclass
class EchoProgram:
    """All that the core does for a channel, with an agent that repeats what it gets."""

    journal: Journal
    clock: FakeClock
    supervisor: ChannelSupervisor

    async def until(self, done: Callable[[], bool | Awaitable[bool]]) -> None:
        """Let time pass until a condition holds; the service is real and takes its own."""
        while True:
            found = done()
            if found is True or (not isinstance(found, bool) and await found):
                return
            await self.clock.advance(1)
            await asyncio.sleep(0.002)

    async def is_settled(self) -> bool:
        return not await self.journal.outbox_records("pending", "sending")


@asynccontextmanager
async def run_program(channel: Channel) -> AsyncIterator[EchoProgram]:
    """Run the channel with a journal and a supervisor while the block lasts."""
    async with MemoryStore() as store, task_group() as group:
        clock, journal = FakeClock(), store.journal
        supervisor = ChannelSupervisor(journal, [channel], clock)

        async def answer(record: InboxRecord) -> None:
            assert record.inbound is not None
            replies = supervisor.build_reply(record.inbound, record.id, record.inbound.text)
            async with journal.lease(record.session) as lease, journal.transaction() as transaction:
                transaction.mark_running([record.id], lease, run=record.id)
                transaction.settle([record.id], lease, "answered", at_ms=0)
                transaction.enqueue(*replies)
            supervisor.wake_workers()

        def submit(_session: str, record: InboxRecord) -> None:
            group.create_task(answer(record))

        pipeline = InboundPipeline(
            journal, clock, admit=admit_all(lambda one: one.address.chat), submit=submit
        )
        running_program = group.create_task(supervisor.run(pipeline))
        yield EchoProgram(journal, clock, supervisor)
        running_program.cancel()


class ChannelContract:
    """The tests. `text` is a text that the service carries unchanged."""

    text: ClassVar[str] = HOSTILE

    async def test_channel_inbound_arrives_complete_and_in_order(self, open_peer: OpenPeer) -> None:
        async with asyncio.timeout(GUARD_S), open_peer() as peer:
            handler, channel = RecordingHandler(), peer.channel
            peer.write(self.text, "1")
            peer.write("second", "2", chat="other")
            async with running(channel, handler):
                first, second = await handler.received(2)
            assert (first.id, first.text, first.sender) == ("1", self.text, "person")
            assert first.address == Address(channel.name, "chat", channel.account)
            assert (second.id, second.text, second.address.chat) == ("2", "second", "other")

    async def test_channel_message_not_stored_is_offered_again(self, open_peer: OpenPeer) -> None:
        async with asyncio.timeout(GUARD_S), open_peer() as peer:
            handler = RecordingHandler(DiskFullError("no room"))
            peer.write("hello", "1")
            async with running(peer.channel, handler) as task:
                await asyncio.wait([task])  # it raised, to be restarted
            assert not handler.failures and not handler.got  # it was offered
            async with running(peer.channel, handler):
                await handler.received(1)
            assert handler.ids == ["1"]

    async def test_channel_send_arrives_unchanged_with_receipt(self, open_peer: OpenPeer) -> None:
        async with asyncio.timeout(GUARD_S), open_peer() as peer:
            async with running(peer.channel, RecordingHandler()):
                first = await peer.channel.send(make_outbound(self.text, "k1"))
                second = await peer.channel.send(make_outbound("second", "k2", chat="other"))
            assert peer.shown() == [("chat", self.text), ("other", "second")]
            assert first.message_id and second.message_id and first != second

    async def test_channel_same_key_twice_is_one_message_if_idempotent(
        self, open_peer: OpenPeer
    ) -> None:
        async with asyncio.timeout(GUARD_S), open_peer() as peer:
            async with running(peer.channel, RecordingHandler()):
                first = await peer.channel.send(make_outbound("hello", "k"))
                second = await peer.channel.send(make_outbound("hello", "k"))
            if peer.channel.capabilities.idempotent:
                assert first == second and len(peer.shown()) == 1
            else:
                assert len(peer.shown()) == 2

    async def test_channel_lookup_knows_what_arrived(self, open_peer: OpenPeer) -> None:
        async with asyncio.timeout(GUARD_S), open_peer() as peer:
            channel = peer.channel
            if not isinstance(channel, SupportsLookup):
                return
            async with running(peer.channel, RecordingHandler()):
                receipt = await peer.channel.send(make_outbound("hello", "k"))
                assert await channel.look_up(make_outbound("hello", "k")) == receipt
                assert await channel.look_up(make_outbound("hello", "other")) is None

    async def test_channel_cancelled_ends_and_can_run_again(self, open_peer: OpenPeer) -> None:
        async with asyncio.timeout(GUARD_S), open_peer() as peer:
            for _ in range(3):
                async with running(peer.channel, RecordingHandler()) as task:
                    await asyncio.sleep(0)
                assert task.done()

    async def test_channel_hundred_duplicates_are_answered_once(self, open_peer: OpenPeer) -> None:
        async with asyncio.timeout(GUARD_S), open_peer() as peer:
            for _ in range(100):
                peer.write("hello", "1")
            peer.write("bye", "2", chat="other")
            async with run_program(peer.channel) as program:
                await program.until(lambda: ("other", "bye") in peer.shown())
                await program.until(program.is_settled)
                (record, _) = await program.journal.inbox_records()
            assert record.duplicates == 99
            assert sorted(peer.shown()) == [("chat", "hello"), ("other", "bye")]
