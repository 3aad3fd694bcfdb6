"""An IRC account on a scriptable server; real servers are in tests/peers."""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from homarus.channels import irc
from homarus.channels.base import (
    Acknowledge,
    Capabilities,
    ChannelContext,
    Receipt,
    SendRetryPolicy,
    SupportsProbe,
)
from homarus.channels.irc.adapter import IrcChannel
from homarus.channels.irc.connection import IrcTimings, TokenBucket
from homarus.channels.irc.message import fold_name
from homarus.channels.irc.settings import IrcSettings
from homarus.core.channel_event import InboundEvent
from homarus.core.clock import SystemClock
from homarus.core.errors import ChannelAuthError, ChannelError, DiskFullError, SendError
from homarus.core.message import Address, Inbound, Json, Outbound
from homarus.testing.clock import FakeClock
from tests.unit.channels.irc_server import (
    GUARD_S,
    HOST,
    Desk,
    Server,
    channel,
    running,
    serving,
)
from tests.unit.net.test_http_client import make_certificate, tls

BOB = ":Bob!~bob@Some.Where"
MODERN = "message-tags server-time account-tag sasl=PLAIN echo-message"


@asynccontextmanager
async def run(caps: str = "", support: str = "CASEMAPPING=rfc1459") -> AsyncIterator[Server]:
    async with asyncio.timeout(GUARD_S), serving(caps=caps, support=support) as server:
        yield server


def out(text: str, chat: str = "bob") -> Outbound:
    return Outbound(Address("irc", chat), text, "key")


async def hear(server: Server, *lines: str | bytes, count: int = 0) -> list[Inbound]:
    """Return the messages of these lines, on an account in #room."""
    desk = Desk()
    async with running(channel(server, channels=["#room"]), desk):
        await server.heard("JOIN")
        server.tell(*lines, f"{BOB} PRIVMSG bot :the end")
        return (await desk.received(count + 1))[:-1]


# Registration


async def test_irc_connect_registers_and_joins_channels() -> None:
    async with run() as server:
        account = channel(
            server, nick="bot", realname="A Bot", channels=["#a", "#b key", "#c"], password="pw"
        )
        async with running(account, Desk()):
            await server.heard("JOIN")
        assert server.said[:4] == ["CAP LS :302", "PASS :pw", "NICK :bot", "USER bot 0 * :A Bot"]
        assert await server.heard("JOIN") == "JOIN #b,#a,#c :key"
        assert await server.heard("QUIT")


async def test_irc_connect_requests_only_used_capabilities() -> None:
    async with run(caps=MODERN) as server:
        async with running(channel(server), Desk()):
            asked = await server.heard("CAP REQ")
            await server.heard("CAP :END")
        assert asked == "CAP REQ :account-tag message-tags server-time"


async def test_irc_capability_list_in_parts_or_refused_is_handled() -> None:
    async with run(caps="some") as server:
        server.answers["CAP"] = lambda words: {
            "LS": [f":{HOST} CAP * LS * :server-time", f":{HOST} CAP * LS :x account-tag"],
            "REQ": [f":{HOST} CAP * NAK :account-tag server-time"],
            ":END": server.welcome(),
        }[words[1]]
        account = channel(server)
        async with running(account, Desk()):
            assert await server.heard("CAP REQ") == "CAP REQ :account-tag server-time"
            await account.send(out("hi"))


async def test_irc_nick_in_use_is_regained_later() -> None:
    async with run() as server:
        named = server.answers["NICK"]

        def refuse(words: list[str]) -> list[str]:
            if words[1] == ":bot" and len([s for s in server.said if s == "NICK :bot"]) < 3:
                return [f":{HOST} 433 {server.nick} bot :Nickname is already in use"]
            return [*named(words), *([] if server.nick != "bot_" else server.welcome())]

        server.answers |= {"NICK": refuse, "USER": lambda _: []}
        account = channel(server)
        async with running(account, Desk()):
            await server.heard("NICK :bot", times=4)  # bot, bot_, bot and bot again
            await account.send(out("hi"))
            assert await account.probe() == "bot"
        assert [s for s in server.said if s.startswith("NICK")][:2] == ["NICK :bot", "NICK :bot_"]


async def test_irc_all_nicks_in_use_raises_retryable_error() -> None:
    async with run() as server:
        server.answers |= {"NICK": lambda words: [f":{HOST} 433 * x :taken"], "USER": lambda _: []}
        with pytest.raises(ChannelError, match="taken"):
            await channel(server).run(Desk())
        assert len([s for s in server.said if s.startswith("NICK")]) == 4


@pytest.mark.parametrize(
    "line",
    [
        f":{HOST} 464 * :Password incorrect",
        f":{HOST} 465 * :You are banned from this server",
        f":{HOST} 463 * :Your host isn't among the privileged",
        f":{HOST} 432 * b :Erroneous nickname",
        "ERROR :Access denied: Bad password?",
        "ERROR :Closing Link: 1.2.3.4 (K-Lined)",
        "ERROR :Closing Link: (You are banned from this server)",
    ],
)
async def test_irc_refused_registration_stops_channel(line: str) -> None:
    async with run() as server:
        server.answers["USER"] = lambda _: [line]
        with pytest.raises(ChannelAuthError):
            await channel(server).run(Desk())


async def test_irc_ban_while_connected_stops_channel() -> None:
    async with run() as server:
        server.answers["JOIN"] = lambda _: ["ERROR :Closing Link: (G-Lined: spam)"]
        with pytest.raises(ChannelAuthError):
            await channel(server, channels=["#a"]).run(Desk())


@pytest.mark.parametrize("line", ["ERROR :Closing Link: (Too many connections)", "ERROR :Bye"])
async def test_irc_other_disconnect_is_retryable(line: str) -> None:
    async with run() as server:
        server.answers["USER"] = lambda _: [line]
        with pytest.raises(ChannelError) as caught:
            await channel(server).run(Desk())
        assert not isinstance(caught.value, ChannelAuthError)


async def test_irc_unreachable_server_is_retryable() -> None:
    async with run() as server:
        server.port = 1
        with pytest.raises(ChannelError, match="cannot be reached"):
            await channel(server).run(Desk())


async def test_irc_untrusted_certificate_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate = make_certificate(tmp_path)
    async with asyncio.timeout(GUARD_S), serving(tls=tls(tmp_path)) as server:
        with pytest.raises(ChannelError, match="not trusted"):
            await channel(server, tls=True).run(Desk())
        assert not server.said
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        account = channel(server, tls=True, password="pw")
        async with running(account, Desk()):
            await account.send(out("hi"))
        assert "PASS :pw" in server.said
    async with asyncio.timeout(GUARD_S), serving() as server:
        with pytest.raises(ChannelError, match="does not speak TLS"):
            await channel(server, tls=True).run(Desk())


async def test_irc_nickserv_identify_precedes_joins() -> None:
    async with run() as server:
        serv = {"password": "pw", "register": True, "registerEmail": "a@b"}
        async with running(channel(server, nickserv=serv, channels=["#a"]), Desk()):
            await server.heard("JOIN")
        told = server.said.index("PRIVMSG NickServ :IDENTIFY pw")
        assert server.said[told - 1] == "PRIVMSG NickServ :REGISTER pw a@b"
        assert told < server.said.index("JOIN :#a")


async def test_irc_nickserv_recovers_nick_in_use() -> None:
    async with run() as server:
        server.answers["NICK"] = lambda words: (
            [f":{HOST} 433 * bot :taken"] if words[1] == ":bot" else server.welcome()
        )
        server.answers["USER"] = lambda _: []
        async with running(channel(server, nickserv={"password": "pw", "service": "NS"}), Desk()):
            assert await server.heard("PRIVMSG NS :IDENTIFY") == "PRIVMSG NS :IDENTIFY bot pw"
            assert await server.heard("PRIVMSG NS :GHOST") == "PRIVMSG NS :GHOST bot pw"


async def test_irc_password_is_read_from_file(tmp_path: Path) -> None:
    (tmp_path / "pw").write_text("from file\r\nmore\n", encoding="utf-8")
    async with run() as server:
        async with running(channel(server, passwordFile=str(tmp_path / "pw")), Desk()):
            assert await server.heard("PASS") == "PASS :from file"
        for file in ("none", "empty"):
            (tmp_path / "empty").touch()
            with pytest.raises(ChannelAuthError, match="password file"):
                await channel(server, passwordFile=str(tmp_path / file)).run(Desk())


async def test_irc_password_of_environment_is_for_default_account() -> None:
    env = {"IRC_PASSWORD": "from env", "IRC_NICKSERV_PASSWORD": "serv env"}
    async with run() as server:
        given = {"host": "127.0.0.1", "port": server.port, "tls": False, "nick": "bot"}
        for name in ("other", "default"):
            place = ChannelContext("irc", name, SystemClock(), env=env)
            assert await IrcChannel(place, IrcSettings.read(given)).probe() == "bot"
            if name == "other":
                assert not [s for s in server.said if s.startswith(("PASS", "PRIVMSG"))]
        assert await server.heard("PASS") == "PASS :from env"
        assert await server.heard("PRIVMSG") == "PRIVMSG NickServ :IDENTIFY serv env"


async def test_irc_refused_join_is_retried_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        async with run() as server:
            entered = server.answers["JOIN"]
            server.answers["JOIN"] = lambda words: (
                [f":{HOST} 474 bot #room :Cannot join channel (+b)"]
                if len([s for s in server.said if s.startswith("JOIN")]) < 4
                else entered(words)
            )
            account = channel(server, channels=["#room"])
            async with running(account, Desk()):
                await account.send(out("hi", "#Room"))  # it waits until we have joined
            assert server.said.index("PRIVMSG #Room :hi") > server.said.index("JOIN :#room")
    assert [r.getMessage() for r in caplog.records] == [
        "127.0.0.1 does not let us into #room: Cannot join channel (+b) (474)"
    ]


async def test_irc_kicked_bot_rejoins_after_delay() -> None:
    async with run() as server:
        account = channel(server, channels=["#room"])
        async with running(account, Desk()):
            await server.heard("JOIN")
            server.tell(f"{BOB} KICK #room bot :out")
            await server.heard("JOIN", times=2)
            await account.send(out("hi", "#room"))


# Receiving


async def test_irc_direct_message_is_received() -> None:
    async with run() as server:
        (got,) = await hear(server, f"{BOB} PRIVMSG bot :héllo \x0304you\x03", count=1)
        assert got.address == Address("irc", "bob", "default")
        assert (got.text, got.sender) == ("héllo you", "bob!~bob@some.where")
        occasion = got.metadata
        assert (occasion.kind, occasion.name, occasion.handle) == ("direct", "Bob", "Bob")
        assert not occasion.mentioned and not occasion.is_bot and occasion.title == ""


async def test_irc_channel_message_is_received_with_mention() -> None:
    async with run(support="CASEMAPPING=rfc1459 CHANTYPES=# STATUSMSG=@+") as server:
        first, second = await hear(
            server, f"{BOB} PRIVMSG #Room :Bot: hi", f"{BOB} PRIVMSG @#Room :robots", count=2
        )
        assert {first.address.chat, second.address.chat} == {"#room"}
        assert first.metadata.kind == second.metadata.kind == "group"
        assert first.metadata.title == "#Room" and first.sender == "bob!~bob@some.where"
        assert (first.metadata.mentioned, second.metadata.mentioned) == (True, False)


async def test_irc_action_is_received_and_ctcp_ignored() -> None:
    async with run() as server:
        (got,) = await hear(
            server,
            f"{BOB} PRIVMSG bot :\x01VERSION\x01",
            f"{BOB} PRIVMSG bot :\x01DCC SEND passwd 1 2 3\x01",
            f"{BOB} NOTICE bot :do not answer this",
            f"{BOB} NOTICE #room :bot: nor this",
            ":bot!~bot@host.test PRIVMSG #room :our own words, by a bouncer",
            f":{HOST} PRIVMSG bot :a server speaks",
            ":NickServ!services@s PRIVMSG bot :You are now identified",
            f"{BOB} PRIVMSG bot :\x02\x03",
            f"{BOB} PRIVMSG bot",
            f"{BOB} INVITE bot #elsewhere",
            f"{BOB} PRIVMSG bot :\x01ACTION waves\x01",
            count=1,
        )
        assert got.text == "* Bob waves"
        assert not [s for s in server.said if s.startswith(("NOTICE", "PRIVMSG", "JOIN :#else"))]


async def test_irc_repeated_text_is_two_messages_and_latin1_is_decoded() -> None:
    async with run() as server:
        raw = "PRIVMSG bot :grüß".encode("latin-1")
        got = await hear(server, *[f"{BOB} ".encode() + raw] * 3, count=3)
        assert {one.text for one in got} == {"grüß"} and len({one.id for one in got}) == 3


async def test_irc_message_tags_give_id_time_and_account() -> None:
    async with run(caps=MODERN) as server:
        tags = "@msgid=abc;time=2026-11-15T16:12:38.123Z;account=Alice;bot"
        first, second, third = await hear(
            server,
            f"{tags} {BOB} PRIVMSG bot :hi",
            f"@account=* {BOB} PRIVMSG bot :hi",
            f"@msgid={'x' * 200};account=a!b@c {BOB} PRIVMSG bot :hi",
            count=3,
        )
        assert (first.id, first.at_ms, first.sender) == ("abc", 1794759158123, "alice")
        assert first.address.chat == "bob" and first.metadata.is_bot
        assert second.sender == third.sender == "bob!~bob@some.where"
        assert len(third.id) == 32 and third.id != second.id


LISTED: dict[str, Any] = {
    "allowFrom": ["Bob", "irc:Carl[x]", "Dan\\!~Dan@Home"],
    "groups": {"#room": {"allowFrom": ["ann"]}},
}


@pytest.mark.parametrize(
    ("caps", "tags", "source", "sender"),
    [
        ("", "", "Bob!~x@evil", "bob"),  # the owner listed the bare nick
        ("", "", "ANN!~a@b", "ann"),
        ("", "", "CARL{X}!~c@d", "carl[x]"),  # as the owner spelled it
        ("", "", "dan|!~dan@home", "dan\\!~dan@home"),
        ("", "", "dan|!~dan@evil", "dan|!~dan@evil"),
        ("", "", "eve!~x@evil", "eve!~x@evil"),
        ("", "@account=bob ", "eve!~x@evil", "eve!~x@evil"),  # a tag that is not authenticated
        (MODERN, "", "Bob!~x@evil", "bob!~x@evil"),  # another user of the nick is not bob
        (MODERN, "@account=bob ", "anything!~x@evil", "bob"),
        (MODERN, "@account=eve ", "Bob!~x@evil", "eve"),
    ],
)
async def test_irc_sender_id_follows_account_or_mask(
    caps: str, tags: str, source: str, sender: str
) -> None:
    async with run(caps=caps) as server:
        desk = Desk()
        async with running(channel(server, **LISTED, dmPolicy="allowlist"), desk):
            await server.heard("CAP :END" if caps else "USER")
            server.tell(f"{tags}:{source} PRIVMSG bot :hi")
            (got,) = await desk.received()
        assert got.sender == sender and got.address.chat == fold_name(source.partition("!")[0])


async def test_irc_message_not_stored_is_offered_again_in_order_by_next_run() -> None:
    async with run() as server:
        default, desk, account = (
            server.answers["USER"],
            Desk(DiskFullError("no room")),
            channel(server),
        )
        said = [f"{BOB} PRIVMSG bot :first", f"{BOB} PRIVMSG bot :second"]
        server.answers["USER"] = lambda _: [*server.welcome(), *said]
        with pytest.raises(DiskFullError):
            await account.run(desk)
        assert not desk.got
        server.answers["USER"] = default
        async with running(account, desk):
            got = await desk.received(2)
        assert [one.text for one in got] == ["first", "second"]


async def test_irc_slow_store_does_not_block_connection() -> None:
    """The handler may send on the same connection."""
    async with run() as server:
        account = channel(server)

        class Answering(Desk):
            async def __call__(
                self,
                event: InboundEvent,
                cursor: Mapping[str, Json] | None = None,
                acknowledge: Acknowledge | None = None,
            ) -> None:
                await account.send(out("an answer", event.address.chat))
                await super().__call__(event, cursor, acknowledge)

        desk = Answering()
        async with running(account, desk):
            await server.heard("USER")
            server.tell(f"{BOB} PRIVMSG bot :hi")
            await desk.received()
        assert "PRIVMSG bob :an answer" in server.said


# Sending


async def test_irc_send_is_confirmed_by_server_reply() -> None:
    async with run() as server:
        pong, held = server.answers["PING"], list[list[str]]()

        def hold(words: list[str]) -> list[str]:
            held.append(words)
            return []

        server.answers["PING"] = hold
        account = channel(server)
        async with running(account, Desk()), asyncio.TaskGroup() as group:
            sending = group.create_task(account.send(out("hello")))
            await server.heard("PING :homarus-")
            server.tell(f":{HOST} PONG {HOST} :something-else", f"{BOB} PONG x :y")
            server.tell("PING :sync")
            await server.heard("PONG :sync")  # earlier lines have been read
            assert not sending.done()
            server.tell(*pong(held[0]))
            assert await sending == Receipt()
        at = server.said.index("PRIVMSG bob :hello")
        assert server.said[at + 1].startswith("PING")


@pytest.mark.parametrize("number", ["401", "404", "477", "531"])
async def test_irc_refused_send_is_not_retried(number: str) -> None:
    async with run() as server:
        server.answers["PRIVMSG"] = lambda words: (
            [f":{HOST} {number} bot {words[1]} :No"] if words[1] == "bob" else []
        )
        account = channel(server)
        async with running(account, Desk()), asyncio.TaskGroup() as group:
            other = group.create_task(account.send(out("hi", "ann")))
            with pytest.raises(SendError, match=rf"No \({number}\)") as caught:
                await account.send(out("hi", "Bob".lower()))
            assert not caught.value.retryable
            await other  # it was for another line


async def test_irc_send_throttled_by_server_is_retryable() -> None:
    async with run() as server:
        server.answers["PRIVMSG"] = lambda words: [f":{HOST} 439 bot {words[1]} :Too fast"]
        account = channel(server)
        async with running(account, Desk()):
            with pytest.raises(SendError) as caught:
                await account.send(out("hi"))
            assert caught.value.retryable


async def test_irc_server_busy_reply_fails_pending_send_of_command() -> None:
    async with run() as server:
        server.answers["PRIVMSG"] = lambda _: [f":{HOST} 263 bot PRIVMSG :Wait a while"]
        account = channel(server)
        async with running(account, Desk()):
            with pytest.raises(SendError, match="263") as caught:
                await account.send(out("hi"))
            assert caught.value.retryable


async def test_irc_line_too_long_reply_fails_pending_send() -> None:
    async with run() as server:
        server.answers["PRIVMSG"] = lambda _: [f":{HOST} 417 bot :Input line was too long"]
        account = channel(server)
        async with running(account, Desk()):
            with pytest.raises(SendError) as caught:
                await account.send(out("hi"))
            assert not caught.value.retryable


async def test_irc_connection_lost_during_send_leaves_outcome_unknown() -> None:
    async def body(server: Server) -> None:
        server.answers["PING"] = lambda _: []
        account = channel(server)
        async with asyncio.TaskGroup() as group:
            living = group.create_task(survive(account))
            sending = group.create_task(survive_send(account))
            await server.heard("PING :homarus-")
            server.hang_up()
            error = await sending
            assert type(error) is ChannelError
            assert type(await living) is ChannelError

    async def survive(account: IrcChannel) -> ChannelError:
        with pytest.raises(ChannelError) as caught:
            await account.run(Desk())
        return caught.value

    async def survive_send(account: IrcChannel) -> ChannelError:
        with pytest.raises(ChannelError) as caught:
            await account.send(out("hi"))
        return caught.value

    async with run() as server:
        await body(server)


async def test_irc_missing_confirmation_leaves_outcome_unknown() -> None:
    async with run() as server:
        server.answers["PING"] = lambda _: []
        account = channel(server, pace=IrcTimings(answer_s=0.05))
        async with running(account, Desk()):
            with pytest.raises(ChannelError, match="did not confirm") as caught:
                await account.send(out("hi"))
            assert not isinstance(caught.value, SendError)


async def test_irc_send_before_connection_is_retryable() -> None:
    async with run() as server:
        account = channel(server, pace=IrcTimings(ready_s=0.05), channels=["#room"])
        with pytest.raises(SendError, match="not connected") as caught:
            await account.send(out("hi"))
        assert caught.value.retryable
        server.answers["JOIN"] = lambda _: [f":{HOST} 475 bot #room :Cannot join channel (+k)"]
        async with running(account, Desk()):
            await server.heard("JOIN")
            with pytest.raises(SendError, match="not in #room") as caught:
                await account.send(out("hi", "#room"))
            assert caught.value.retryable
        assert not [s for s in server.said if s.startswith("PRIVMSG")]


@pytest.mark.parametrize(
    ("chat", "text"),
    [
        ("bob\r\nQUIT", "hi"),
        ("bob,#room", "hi"),
        ("bob eve", "hi"),
        ("", "hi"),
        (":bob", "hi"),
        ("$*.test", "hi"),
        ("bob", "hi\r\nQUIT :x"),
        ("bob", "hi\nOPER"),
        ("bob", "a\0b"),
        ("bob", "x" * 500),
        ("bob", "é" * 250),
    ],
)
async def test_irc_send_of_several_lines_is_refused(chat: str, text: str) -> None:
    async with run() as server:
        account = channel(server)
        async with running(account, Desk()):
            with pytest.raises(SendError) as caught:
                await account.send(out(text, chat))
            assert not caught.value.retryable
            await account.send(out("still here"))
        assert [s for s in server.said if s.startswith(("PRIVMSG", "QUIT", "OPER"))] == [
            "PRIVMSG bob :still here",
            "QUIT :bye",
        ]


async def test_irc_message_of_full_limit_fits_longest_prefix() -> None:
    async with run() as server:
        mask = f"{'u' * 11}@{'h' * 63}"
        server.answers["JOIN"] = lambda words: [f":{server.nick}!{mask} JOIN {words[1]}"]
        room = "#" + "r" * 63
        account = channel(server, nick="n" * 20, channels=[room], textChunkLimit=4_000)
        text = "x" * account.capabilities.text_limit
        async with running(account, Desk()):
            await account.send(out(text, room))
        line = f":{'n' * 20}!{mask} PRIVMSG {room} :{text}\r\n"
        assert 500 < len(line) <= 512


def test_irc_capabilities_follow_settings() -> None:
    place = ChannelContext("irc", "work", SystemClock())
    made = irc.create(place, settings())
    assert (made.name, made.account) == ("irc", "work")
    assert made.capabilities == Capabilities(350, "byte", "irc", by_line=True)
    assert irc.create(place, settings(textChunkLimit=200)).capabilities.text_limit == 200
    patient = irc.create(place, settings(retry={"attempts": 7, "minDelayMs": 100}))
    assert patient.capabilities.retry == SendRetryPolicy(attempts=7, min_delay_s=0.1)


async def test_irc_lines_are_sent_within_rate_limit() -> None:
    clock = FakeClock(patient=False)
    bucket = TokenBucket(IrcTimings(burst=3, every_s=2.0), clock)
    for _ in range(5):
        await bucket.acquire()
    assert clock.slept == [2.0, 2.0]
    await clock.advance(100.0)  # at most one burst is saved up
    for _ in range(4):
        await bucket.acquire()
    assert clock.slept == [2.0, 2.0, 2.0]


# Connection


async def test_irc_silent_server_is_pinged_then_disconnected() -> None:
    async with run() as server:
        server.answers["PING"] = lambda _: []
        with pytest.raises(ChannelError, match="nothing came"):
            await channel(server, pace=IrcTimings(idle_s=0.1)).run(Desk())
        assert "PING :still-there" in server.said


async def test_irc_server_that_answers_ping_stays_connected() -> None:
    async with run() as server:
        account = channel(server, pace=IrcTimings(idle_s=6.0))
        async with running(account, Desk()) as task:
            await server.heard("PING :still-there")
            await account.send(out("hi"))
            assert not task.done()


async def test_irc_ping_is_answered_with_its_text() -> None:
    async with run() as server, running(channel(server), Desk()):
        await server.heard("USER")
        server.tell("PING :a b c")
        assert await server.heard("PONG") == "PONG :a b c"


async def test_irc_endless_line_is_not_read_forever() -> None:
    async with run() as server:
        server.answers["USER"] = lambda _: ["x" * 100_000]
        with pytest.raises(ChannelError, match="no end"):
            await channel(server).run(Desk())


async def test_irc_malformed_lines_are_ignored() -> None:
    async with run() as server:
        commands = ["JOIN", "PART", "KICK", "NICK", "CAP", "PONG", "005", "396", "401", "433"]
        commands += ["474", "001", "PRIVMSG", "NOTICE", "INVITE", "FAIL", "999"]
        lines = [f":bot!b@c {each}" for each in commands] + [f":bot {each} :" for each in commands]
        await hear(server, *lines, b"\xff\xfe\x00", "@;;= :", ":", "@a")


async def test_irc_probe_reports_login() -> None:
    async with run() as server:
        account = channel(server)
        assert isinstance(account, SupportsProbe)
        assert await account.probe() == "bot"
        assert await server.heard("QUIT")
        async with running(account, Desk()):
            await account.send(out("hi"))
            assert await account.probe() == "bot"
        assert len([s for s in server.said if s.startswith("USER")]) == 2


# Settings


def settings(**more: object) -> IrcSettings:
    return IrcSettings.read({"host": "irc.example", "nick": "bot", **more})


def test_irc_default_port_follows_tls() -> None:
    assert (settings().tls, settings().actual_port) == (True, 6697)
    assert settings(tls=False).actual_port == 6667
    assert settings(tls=False, port=7000).actual_port == 7000


def test_irc_settings_accept_all_keys_of_openclaw() -> None:
    made = settings(
        username="u",
        realname="A Bot",
        passwordFile="~/pw",
        nickserv={"enabled": False, "service": "NS", "passwordFile": "x", "register": True},
        channels=["#a", "#b key"],
        capabilities=["x"],
        configWrites=False,
        heartbeat={"showOk": True},
        dmPolicy="allowlist",
        allowFrom=["bob", 5],
        groups={"#a": {"requireMention": False}},
        mentionPatterns=["hey"],
        mediaMaxMb=1,
        blockStreaming=True,
    )
    assert made.channels == ("#a", "#b key") and made.nickserv.register_


@pytest.mark.parametrize(
    "wrong",
    [
        {"nick": "a b"},
        {"nick": "#a"},
        {"nick": ""},
        {"host": ""},
        {"port": 0},
        {"port": 70_000},
        {"password": "a\r\nQUIT"},
        {"realname": "a\nb"},
        {"username": "a b"},
        {"channels": ["room"]},
        {"channels": ["#a,#b"]},
        {"channels": ["#a k1 k2"]},
        {"channels": ["#a "]},
        {"nickserv": {"password": "a\nb"}},
        {"nickserv": {"service": "a b"}},
        {"nickserv": {"other": 1}},
        {"nosuch": 1},
    ],
)
def test_irc_settings_reject_invalid_values(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        settings(**wrong)


def test_irc_password_is_hidden_and_plaintext_use_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    made = settings(password="hunter2", nickserv={"password": "hunter3"}, tls=False)
    assert "hunter" not in repr(made)
    irc.create(ChannelContext("irc", "default", SystemClock()), made)
    assert "in the clear" in caplog.text and "hunter" not in caplog.text
