"""The guarantees of every channel (channels/base.py), checked on each."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Protocol

import pytest

from homarus.channels.base import Channel, SupportsLookup
from homarus.channels.inbound import InboundPipeline, admit_all
from homarus.channels.supervisor import ChannelSupervisor
from homarus.core.errors import ChannelAuthError, ChannelError, DiskFullError, SendError
from homarus.core.message import Address, Inbound, Outbound
from homarus.store.journal import InboxRecord, Journal
from homarus.testing.clock import FakeClock
from homarus.testing.fakes import ListChannel, RecordingHandler
from homarus.testing.memory_store import MemoryStore
from tests.crash import scripted_channel
from tests.crash.ledger import FLAVOURS, Flavour, LedgerServer, Offer, SendFault
from tests.crash.scripted_channel import ScriptedChannel, make_channel
from tests.waiting import until

GUARD_S = 60.0
HOSTILE = (
    'tab\t, line\nend, "quotes", <b>&amp;</b>, @everyone, 👩‍👩‍👧 \u202e \x1b[31m, ' + "x" * 3_000
)


class Peer(Protocol):
    """The other side of a channel: the service, as its own users see it."""

    @property
    def channel(self) -> Channel: ...

    def write(self, text: str, message_id: str, *, chat: str = "chat") -> None:
        """Send a message as a user."""
        ...

    def shown(self) -> list[tuple[str, str]]:
        """Return chat and text of what the service accepted, in order."""
        ...


class ListPeer:
    def __init__(self) -> None:
        self._inbound: list[Inbound] = []
        self.channel = ListChannel(self._inbound)

    def write(self, text: str, message_id: str, *, chat: str = "chat") -> None:
        self._inbound.append(Inbound(message_id, Address("list", chat), "person", text))

    def shown(self) -> list[tuple[str, str]]:
        return [(sent.address.chat, sent.text) for sent in self.channel.sent]


class LedgerPeer:
    def __init__(self, ledger: LedgerServer, channel: ScriptedChannel) -> None:
        self.ledger, self.channel = ledger, channel

    def write(self, text: str, message_id: str, *, chat: str = "chat") -> None:
        self.ledger.offer(Offer(text=text, id=message_id, chat=chat, sender="person"))

    def shown(self) -> list[tuple[str, str]]:
        return [(send.chat, send.text) for send in self.ledger.records.sends]


@asynccontextmanager
async def ledger_peer(flavour: Flavour) -> AsyncIterator[LedgerPeer]:
    async with LedgerServer(flavour) as ledger:
        yield LedgerPeer(ledger, await asyncio.to_thread(make_channel, ledger.url))


@asynccontextmanager
async def run_ledger(flavour: Flavour) -> AsyncIterator[LedgerPeer]:
    async with asyncio.timeout(GUARD_S), ledger_peer(flavour) as peer:
        yield peer


Run = Callable[[], AbstractAsyncContextManager[Peer]]


@pytest.fixture(params=["list", *FLAVOURS])
def run(request: pytest.FixtureRequest) -> Run:
    @asynccontextmanager
    async def main() -> AsyncIterator[Peer]:
        async with asyncio.timeout(GUARD_S):
            if request.param == "list":
                yield ListPeer()
                return
            async with ledger_peer(request.param) as peer:
                yield peer

    return main


class Slow(RecordingHandler):
    """Store nothing before the test opens the gate."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.gate = asyncio.Event(), asyncio.Event()

    async def __call__(self, *args: Any, **named: Any) -> None:
        self.asked.set()
        await self.gate.wait()
        await super().__call__(*args, **named)


@asynccontextmanager
async def running(channel: Channel, desk: RecordingHandler) -> AsyncIterator[asyncio.Task[None]]:
    """Run the channel while the block lasts, and yield its task."""

    async def live() -> None:
        with suppress(DiskFullError):
            await channel.run(desk)

    async with asyncio.TaskGroup() as group:
        task = group.create_task(live())
        yield task
        task.cancel()


def out(text: str, key: str, chat: str = "chat") -> Outbound:
    return Outbound(Address("any", chat), text, key)


async def test_channel_inbound_arrives_complete_and_in_order(run: Run) -> None:
    async with run() as peer:
        desk, channel = RecordingHandler(), peer.channel
        peer.write(HOSTILE, "1")
        peer.write("second", "2", chat="other")
        async with running(channel, desk):
            first, second = await desk.received(2)
        assert (first.id, first.text, first.sender) == ("1", HOSTILE, "person")
        assert first.address == Address(channel.name, "chat", channel.account)
        assert (second.id, second.text, second.address.chat) == ("2", "second", "other")


async def test_channel_message_not_stored_is_offered_again(run: Run) -> None:
    async with run() as peer:
        desk = RecordingHandler(DiskFullError("no room"))
        peer.write("hello", "1")
        async with running(peer.channel, desk) as task:
            await asyncio.wait([task])  # it raised, to be restarted
        assert not desk.failures and not desk.got  # it was offered
        async with running(peer.channel, desk):
            await desk.received(1)
        assert desk.ids == ["1"]


async def test_channel_send_arrives_unchanged_with_receipt(run: Run) -> None:
    async with run() as peer:
        async with running(peer.channel, RecordingHandler()):
            first = await peer.channel.send(out(HOSTILE, "k1"))
            second = await peer.channel.send(out("second", "k2", chat="other"))
        assert peer.shown() == [("chat", HOSTILE), ("other", "second")]
        assert first.message_id and second.message_id and first != second


async def test_channel_same_key_twice_is_one_message_if_idempotent(run: Run) -> None:
    async with run() as peer:
        async with running(peer.channel, RecordingHandler()):
            first = await peer.channel.send(out("hello", "k"))
            second = await peer.channel.send(out("hello", "k"))
        if peer.channel.capabilities.idempotent:
            assert first == second and len(peer.shown()) == 1
        else:
            assert len(peer.shown()) == 2


async def test_channel_lookup_knows_what_arrived(run: Run) -> None:
    async with run() as peer:
        channel = peer.channel
        if not isinstance(channel, SupportsLookup):
            return
        async with running(peer.channel, RecordingHandler()):
            receipt = await peer.channel.send(out("hello", "k"))
            assert await channel.look_up(out("hello", "k")) == receipt
            assert await channel.look_up(out("hello", "other")) is None


async def test_channel_cancelled_ends_and_can_run_again(run: Run) -> None:
    async with run() as peer:
        for _ in range(3):
            async with running(peer.channel, RecordingHandler()) as task:
                await asyncio.sleep(0)
            assert task.done()


@pytest.mark.parametrize("flavour", FLAVOURS)
async def test_channel_acknowledges_after_message_is_stored(flavour: Flavour) -> None:
    async with run_ledger(flavour) as peer:
        desk = Slow()
        peer.write("hello", "1")
        message = peer.ledger.records.messages["1"]
        async with running(peer.channel, desk):
            await desk.asked.wait()
            assert message.acked_s == 0
            desk.gate.set()
            await until(lambda: message.acked_s > 0)
            peer.write("more", "2")
            await desk.received(2)
        assert desk.kept == {"offset": 3}
        async with running(peer.channel, desk):  # it resumes at its cursor
            peer.write("last", "3")
            assert [one.id for one in await desk.received(3)] == ["1", "2", "3"]


@pytest.mark.parametrize(
    ("trouble", "kind", "retryable", "after_s"),
    [
        (SendFault(taken=False, status=429, after_s=7), SendError, True, 7.0),
        (SendFault(taken=False, status=429), SendError, True, None),
        (SendFault(taken=False, status=400), SendError, False, None),
        (SendFault(taken=False, status=401), ChannelAuthError, None, None),
        (SendFault(taken=True, status=500), ChannelError, None, None),
        (SendFault(taken=True, status=0), ChannelError, None, None),
        (SendFault(taken=False, status=0), ChannelError, None, None),
    ],
    ids=str,
)
async def test_channel_errors_map_to_send_outcomes(
    trouble: SendFault, kind: type[Exception], retryable: bool | None, after_s: float | None
) -> None:
    async with run_ledger("plain") as peer:
        peer.ledger.records.faults.append(trouble)
        async with running(peer.channel, RecordingHandler()):
            with pytest.raises(ChannelError) as caught:
                await peer.channel.send(out("hello", "k"))
        assert type(caught.value) is kind
        assert getattr(caught.value, "retryable", None) is retryable
        assert getattr(caught.value, "after_s", None) == after_s


async def test_channel_unsent_message_may_be_resent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scripted_channel, "READY_S", 0.01)
    async with run_ledger("plain") as peer:
        with pytest.raises(SendError) as caught:
            await peer.channel.send(out("hello", "k"))  # it is not connected
        assert caught.value.retryable
        async with LedgerServer() as gone:
            nowhere = ScriptedChannel(gone.url)
        async with nowhere._connected():
            with pytest.raises(SendError) as caught:
                await nowhere.send(out("hello", "k"))
        assert caught.value.retryable


@dataclass
class Program:
    """All that the core does for a channel, with an agent that echoes."""

    journal: Journal
    clock: FakeClock
    delivery: ChannelSupervisor

    async def until(self, done: Callable[[], bool | Awaitable[bool]]) -> None:
        """Let time pass until a condition holds; the service is real and takes its own."""
        while True:
            found = done()
            if found is True or (not isinstance(found, bool) and await found):
                return
            await self.clock.advance(1)
            await asyncio.sleep(0.002)

    async def settled(self) -> bool:
        return not await self.journal.outbox_records("pending", "sending")


@asynccontextmanager
async def program(channel: Channel) -> AsyncIterator[Program]:
    async with MemoryStore() as store, asyncio.TaskGroup() as group:
        clock, journal = FakeClock(), store.journal
        delivery = ChannelSupervisor(journal, [channel], clock)

        async def answer(row: InboxRecord) -> None:
            assert row.inbound is not None
            parcels = delivery.build_reply(row.inbound, row.id, row.inbound.text)
            async with journal.lease(row.session) as lease, journal.transaction() as transaction:
                transaction.mark_running([row.id], lease, run=row.id)
                transaction.settle([row.id], lease, "answered", at_ms=0)
                transaction.enqueue(*parcels)
            delivery.wake_workers()

        def submit(_session: str, row: InboxRecord) -> None:
            group.create_task(answer(row))

        pipeline = InboundPipeline(
            journal, clock, admit=admit_all(lambda one: one.address.chat), submit=submit
        )
        live = group.create_task(delivery.run(pipeline))
        yield Program(journal, clock, delivery)
        live.cancel()


async def test_channel_hundred_duplicates_are_answered_once(run: Run) -> None:
    async with run() as peer:
        for _ in range(100):
            peer.write("hello", "1")
        peer.write("bye", "2", chat="other")
        async with program(peer.channel) as core:
            await core.until(lambda: ("other", "bye") in peer.shown())
            await core.until(core.settled)
            (row, _) = await core.journal.inbox_records()
        assert row.duplicates == 99
        assert sorted(peer.shown()) == [("chat", "hello"), ("other", "bye")]


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("taken", [True, False])
async def test_channel_lost_response_causes_no_duplicate(flavour: Flavour, taken: bool) -> None:
    async with run_ledger(flavour) as peer:
        peer.ledger.records.faults.append(SendFault(taken=taken, status=0))
        peer.write("hello", "1")
        async with program(peer.channel) as core:
            await core.until(lambda: bool(peer.ledger.records.attempts))
            await core.until(core.settled)
            (parcel,) = await core.journal.outbox_records()
        if flavour == "plain":
            assert parcel.state == "unknown" and len(peer.shown()) == taken
        else:
            assert parcel.state == "sent" and parcel.receipt == "s1"
            assert peer.shown() == [("chat", "hello")]


async def test_channel_long_reply_arrives_in_order_from_busy_service() -> None:
    async with asyncio.timeout(GUARD_S), LedgerServer("plain", text_limit=20) as ledger:
        channel = await asyncio.to_thread(make_channel, ledger.url)
        ledger.records.faults.append(SendFault(taken=False, status=429, times=2))
        marks = tuple(f"{{nonce}}.{n}" for n in range(4))
        message = ledger.offer(Offer(text="\n".join(marks), marks=marks))
        async with program(channel) as core:
            await core.until(lambda: len(ledger.records.sends) == 4)
            await core.until(core.settled)
        assert [send.text for send in ledger.records.sends] == list(message.marks)
        assert ledger.records.verdict()["answered"] == [message.id]
        assert [attempt.status for attempt in ledger.records.attempts[:3]] == [429, 429, 200]
