"""Our IRC account on a real server, with users of an independent client."""

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from homarus.channels.base import ChannelContext
from homarus.channels.irc.adapter import IrcChannel
from homarus.channels.irc.connection import IrcTimings
from homarus.channels.irc.settings import IrcSettings
from homarus.core.clock import SystemClock
from homarus.core.errors import ChannelAuthError, ChannelError, SendError
from homarus.core.message import Address, Outbound
from tests.peers.ircd import Ircd, Person, ngircd, person
from tests.unit.channels.irc_server import Desk
from tests.unit.net.test_http_client import make_certificate

pytestmark = [pytest.mark.peers, pytest.mark.timeout(300)]

GUARD_S = 120.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ircd]:
    with ngircd(tmp_path_factory.mktemp("ngircd")) as server:
        yield server


@pytest.fixture
def alice(server: Ircd) -> Iterator[Person]:
    with person(server.port, "Alice") as alice:
        yield alice


def channel(server: Ircd, *, pace: IrcTimings | None = None, **more: Any) -> IrcChannel:
    given = {"host": "127.0.0.1", "port": server.port, "tls": False, "nick": "homarus", **more}
    place = ChannelContext("irc", "default", SystemClock())
    return IrcChannel(place, IrcSettings.read(given), pace)


@asynccontextmanager
async def at_work(account: IrcChannel, desk: Desk) -> AsyncIterator[asyncio.Task[None]]:
    """Run the account on the server while the block lasts."""
    async with asyncio.timeout(GUARD_S), asyncio.TaskGroup() as group:
        task = group.create_task(account.run(desk))
        yield task
        task.cancel()


async def until(who: Person, done: Callable[[], object]) -> None:
    await asyncio.to_thread(who.wait, done)


def out(text: str, chat: str) -> Outbound:
    return Outbound(Address("irc", chat), text, "key")


async def test_ngircd_person_and_channel_are_received_and_answered(
    server: Ircd, alice: Person
) -> None:
    desk, account = Desk(), channel(server, channels=["#Den"])
    async with at_work(account, desk):
        await account.send(out("hello", "#den"))
        await asyncio.to_thread(alice.join, "#Den")
        alice.say("#Den", "Homarus: \x02are\x02 you there? 👩‍👩‍👧 ünï")
        alice.say("homarus", "and here?")
        alice.say("homarus", "\x01ACTION waves\x01")
        alice.say("homarus", "\x01VERSION\x01")
        alice.do("notice", "homarus", "do not answer")
        alice.say("homarus", "and here?")
        room, direct, action, again = await desk.received(4)
        await account.send(out("in the room", "#den"))
        await account.send(out("here: \x02bold\x02 €", "alice"))
        await until(alice, lambda: alice.messages())
    assert (room.address.chat, room.metadata.kind, room.metadata.mentioned) == (
        "#den", "group", True,
    )  # fmt: skip
    assert room.text == "Homarus: are you there? 👩‍👩‍👧 ünï"
    assert (direct.address.chat, direct.text) == ("alice", "and here?")
    assert direct.sender == "alice!~alice@127.0.0.1" == room.sender
    assert action.text == "* Alice waves"
    assert again.text == direct.text and again.id != direct.id
    assert alice.messages("#Den") == ["in the room"]
    assert alice.messages() == ["here: \x02bold\x02 €"]


async def test_ngircd_message_of_full_limit_arrives_complete(server: Ircd, alice: Person) -> None:
    room = "#" + "r" * 49
    account = channel(server, nick="n" * 30, channels=[room], textChunkLimit=10_000)
    text = "€" * (account.capabilities.text_limit // 3)
    await asyncio.to_thread(alice.join, room)
    async with at_work(account, Desk()):
        await account.send(out(text, room))
        await until(alice, lambda: alice.messages(room))
        with pytest.raises(SendError, match="too long"):
            await account.send(out("x" * 500, room))
        await account.send(out("the end", room))
        await until(alice, lambda: alice.messages(room)[1:])
    assert alice.messages(room) == [text, "the end"]


async def test_ngircd_refused_send_is_reported(server: Ircd, alice: Person) -> None:
    await asyncio.to_thread(alice.join, "#quiet")
    await asyncio.to_thread(alice.silence, "#quiet")
    account = channel(server, channels=["#quiet"])
    async with at_work(account, Desk()):
        for chat in ("nobody", "#nowhere", "#quiet"):
            with pytest.raises(SendError, match="refused") as caught:
                await account.send(out("hi", chat))
            assert not caught.value.retryable
        await account.send(out("hi", "alice"))


async def test_ngircd_text_cannot_inject_line(server: Ircd, alice: Person) -> None:
    account = channel(server)
    async with at_work(account, Desk()) as task:
        for chat, text in (
            ("alice", "hi\r\nQUIT :gone"),
            ("alice\r\nQUIT", "hi"),
            ("alice,homarus", "hi"),
        ):
            with pytest.raises(SendError):
                await account.send(out(text, chat))
        await account.send(out("still here", "alice"))
        assert not task.done()
        await until(alice, lambda: alice.messages())
    assert alice.messages() == ["still here"]


async def test_ngircd_wrong_password_stops_channel_and_right_one_connects(tmp_path: Path) -> None:
    async def main(server: Ircd) -> None:
        for wrong in ("", "guess"):
            with pytest.raises(ChannelAuthError, match="password"):
                await channel(server, password=wrong).run(Desk())
        assert await channel(server, password="right").probe() == "homarus"

    with ngircd(tmp_path, password="right") as server:
        await main(server)


async def test_ngircd_tls_needs_trusted_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate = make_certificate(tmp_path)

    async def main(server: Ircd) -> None:
        with pytest.raises(ChannelError, match="not trusted"):
            await channel(server, tls=True).run(Desk())
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        account = channel(server, tls=True)
        async with at_work(account, Desk()):
            await account.send(out("to myself", "homarus"))
            assert await account.probe() == "homarus"

    with ngircd(tmp_path, certificate=certificate) as server:
        await main(server)


async def test_ngircd_nick_in_use_is_regained_when_free(server: Ircd, alice: Person) -> None:
    account = channel(server, nick="lobster", pace=IrcTimings(again_s=0.2))
    with person(server.port, "lobster"):
        async with at_work(account, Desk()):
            await account.send(out("one", "alice"))
            await until(alice, lambda: alice.saw("message", by="lobster_"))
    async with at_work(account, Desk()):
        await account.send(out("two", "alice"))
        await until(alice, lambda: alice.saw("message", by="lobster"))


async def test_ngircd_nick_is_regained_while_connected(server: Ircd, alice: Person) -> None:
    account = channel(server, nick="crab", channels=["#sea"], pace=IrcTimings(again_s=0.2))
    with person(server.port, "crab") as other:
        async with at_work(account, Desk()):
            await account.send(out("one", "#sea"))
            await asyncio.to_thread(alice.join, "#sea")
            await asyncio.to_thread(other.leave)
            await until(alice, lambda: alice.saw("nick", by="crab_", target="crab"))


async def test_ngircd_kicked_bot_rejoins(server: Ircd, alice: Person) -> None:
    await asyncio.to_thread(alice.join, "#strict")
    account = channel(server, channels=["#strict"], pace=IrcTimings(again_s=0.5))
    async with at_work(account, Desk()):
        await until(alice, lambda: alice.saw("join", by="homarus"))
        alice.do("kick", "#strict", "homarus", "out")
        await until(alice, lambda: len(alice.saw("join", by="homarus")) == 2)
        await account.send(out("sorry", "#strict"))
        await until(alice, lambda: alice.messages("#strict"))


async def test_ngircd_restarted_server_is_reconnected(tmp_path: Path) -> None:
    async def main(server: Ircd) -> None:
        account = channel(server, channels=["#a"])
        for how in (signal.SIGTERM, signal.SIGKILL):
            async with asyncio.TaskGroup() as group:
                ending = group.create_task(end_of(account))
                await account.send(out("hi", "#a"))
                await asyncio.to_thread(server.stop, how)
                assert not isinstance(await ending, ChannelAuthError)
            await asyncio.to_thread(server.start)
        async with at_work(account, Desk()):
            await account.send(out("hi", "#a"))

    with ngircd(tmp_path) as server:
        await main(server)


async def test_ngircd_killed_server_leaves_outcome_unknown(tmp_path: Path) -> None:
    async def main(server: Ircd) -> None:
        account = channel(server)
        async with asyncio.timeout(GUARD_S), asyncio.TaskGroup() as group:
            ending = group.create_task(end_of(account))
            await account.send(out("hi", "homarus"))
            server.freeze()
            sending = group.create_task(end_of_send(account))
            await asyncio.sleep(0.2)  # the kernel has it, and no process reads it
            await asyncio.to_thread(server.stop, signal.SIGKILL)
            assert type(await sending) is ChannelError
            assert type(await ending) is ChannelError

    async def end_of_send(account: IrcChannel) -> ChannelError:
        with pytest.raises(ChannelError) as caught:
            await account.send(out("hi", "homarus"))
        return caught.value

    with ngircd(tmp_path) as server:
        await main(server)


async def test_ngircd_flood_protection_does_not_disconnect(tmp_path: Path) -> None:
    texts = [f"line {number}" for number in range(12)]

    async def main(server: Ircd, alice: Person) -> None:
        account = channel(server)
        async with at_work(account, Desk()) as task:
            for text in texts:
                await account.send(out(text, "alice"))
            await until(alice, lambda: len(alice.messages()) == len(texts))
            assert not task.done()
        assert alice.messages() == texts

    with ngircd(tmp_path, penalty=True) as server, person(server.port, "alice") as alice:
        await main(server, alice)


async def end_of(account: IrcChannel) -> ChannelError:
    """Return how its connection ends."""
    with pytest.raises(ChannelError) as caught:
        await account.run(Desk())
    return caught.value
