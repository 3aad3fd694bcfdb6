"""The guarantees of every channel (channels/base.py), checked on each."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from homarus.core.errors import ChannelAuthError, ChannelError, SendError
from homarus.core.message import Address, Inbound
from homarus.testing.channel_contract import (
    ChannelContract,
    ChannelPeer,
    OpenPeer,
    make_outbound,
    run_program,
    running,
)
from homarus.testing.fakes import ListChannel, RecordingHandler
from tests.crash import scripted_channel
from tests.crash.ledger import FLAVOURS, Flavour, LedgerServer, Offer, SendFault
from tests.crash.scripted_channel import ScriptedChannel, make_channel
from tests.waiting import until

GUARD_S = 60.0


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


class TestChannels(ChannelContract):
    """The contract suite over two channels of the tests, one of them with three services."""

    @pytest.fixture(params=["list", *FLAVOURS])
    def open_peer(self, request: pytest.FixtureRequest) -> OpenPeer:
        @asynccontextmanager
        async def open_list() -> AsyncIterator[ChannelPeer]:
            yield ListPeer()

        return open_list if request.param == "list" else partial(ledger_peer, request.param)


class Slow(RecordingHandler):
    """Store nothing before the test opens the gate."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.gate = asyncio.Event(), asyncio.Event()

    async def __call__(self, *args: Any, **named: Any) -> None:
        self.asked.set()
        await self.gate.wait()
        await super().__call__(*args, **named)


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
                await peer.channel.send(make_outbound("hello", "k"))
        assert type(caught.value) is kind
        assert getattr(caught.value, "retryable", None) is retryable
        assert getattr(caught.value, "after_s", None) == after_s


async def test_channel_unsent_message_may_be_resent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scripted_channel, "READY_S", 0.01)
    async with run_ledger("plain") as peer:
        with pytest.raises(SendError) as caught:
            await peer.channel.send(make_outbound("hello", "k"))  # it is not connected
        assert caught.value.retryable
        async with LedgerServer() as gone:
            nowhere = ScriptedChannel(gone.url)
        async with nowhere._connected():
            with pytest.raises(SendError) as caught:
                await nowhere.send(make_outbound("hello", "k"))
        assert caught.value.retryable


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("taken", [True, False])
async def test_channel_lost_response_causes_no_duplicate(flavour: Flavour, taken: bool) -> None:
    async with run_ledger(flavour) as peer:
        peer.ledger.records.faults.append(SendFault(taken=taken, status=0))
        peer.write("hello", "1")
        async with run_program(peer.channel) as core:
            await core.until(lambda: bool(peer.ledger.records.attempts))
            await core.until(core.is_settled)
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
        async with run_program(channel) as core:
            await core.until(lambda: len(ledger.records.sends) == 4)
            await core.until(core.is_settled)
        assert [send.text for send in ledger.records.sends] == list(message.marks)
        assert ledger.records.verdict()["answered"] == [message.id]
        assert [attempt.status for attempt in ledger.records.attempts[:3]] == [429, 429, 200]
