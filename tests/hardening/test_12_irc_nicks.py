"""An answer on IRC does not go to a nick that changed hands.

A reply is for the user who wrote, by mask or account, and a WHOIS right before it shows who has the
nick now. This holds after a restart too: the reply's record names its recipient.
"""

import asyncio

import pytest

from homarus.channels.base import Capabilities
from homarus.channels.irc.client import is_same_holder
from homarus.channels.outbound import build_outbox_records, with_reply_to
from homarus.config.channels import AccountSettings
from homarus.core.errors import SendError
from homarus.core.message import Address, Extras, Inbound, Outbound
from homarus.store.journal_codec import decode_extras, encode_extras
from tests.unit.channels.irc_server import GUARD_S, HOST, Desk, Server, channel, running, serving

ANN = ":ann!~ann@home.test"
REPLY = Address("irc", "ann")


def whois(server: Server, mask: str = "~ann home.test", account: str = "") -> None:
    """Let the server say who has the nick."""

    def answer(words: list[str]) -> list[str]:
        nick = words[1].lstrip(":")
        lines = [f":{HOST} 311 bot {nick} {mask} * :Somebody"]
        if account:
            lines.append(f":{HOST} 330 bot {nick} {account} :is logged in as")
        return [*lines, f":{HOST} 318 bot {nick} :End of /WHOIS list."]

    server.answers["WHOIS"] = answer


def reply_to(inbound: Inbound) -> Outbound:
    """Return the reply as it is sent after a restart: from its stored record."""
    extras = with_reply_to(inbound, Extras(), AccountSettings(), 0)
    (record,) = build_outbox_records(
        "r",
        "the secret",
        inbound.address,
        Capabilities(),
        AccountSettings(),
        at_ms=1,
        extras=extras,
    )
    stored = decode_extras(encode_extras(record.extras))
    return Outbound(record.address, record.text, record.id, stored)


async def received(server: Server, line: str) -> Inbound:
    """Return a message that was received before the restart."""
    desk = Desk()
    async with running(channel(server, channels=["#room"]), desk):
        await server.heard("JOIN")
        server.tell(line)
        (got,) = await desk.received(1)
    return got


def sent(server: Server) -> list[str]:
    return [line for line in server.said if line.startswith("PRIVMSG")]


async def test_irc_reply_to_same_holder_is_sent() -> None:
    async with asyncio.timeout(GUARD_S), serving() as server:
        got = await received(server, f"{ANN} PRIVMSG bot :hi")
        assert got.metadata.holder == "~ann@home.test"
        whois(server)
        account = channel(server)
        async with running(account, Desk()):
            for _ in range(3):
                await account.send(reply_to(got))
        assert sent(server) == ["PRIVMSG ann :the secret"] * 3
        assert len([line for line in server.said if line.startswith("WHOIS")]) == 1


@pytest.mark.parametrize("mask", ["~ann evil.test", "~eve home.test"])
async def test_irc_reply_to_nick_of_another_user_is_refused(mask: str) -> None:
    async with asyncio.timeout(GUARD_S), serving() as server:
        got = await received(server, f"{ANN} PRIVMSG bot :hi")
        whois(server, mask, account="eve")
        account = channel(server)
        async with running(account, Desk()):
            with pytest.raises(SendError, match="another user has the nick ann") as refused:
                await account.send(reply_to(got))
        assert not refused.value.retryable and sent(server) == []


async def test_irc_reply_follows_account_to_new_host() -> None:
    async with asyncio.timeout(GUARD_S), serving(caps="account-tag message-tags") as server:
        got = await received(server, f"@account=Ann {ANN} PRIVMSG bot :hi")
        whois(server, "~ann mobile.test", account="ann")
        account = channel(server)
        async with running(account, Desk()):
            await account.send(reply_to(got))
        assert sent(server) == ["PRIVMSG ann :the secret"]


async def test_irc_message_of_tool_is_checked_by_last_writer() -> None:
    async with asyncio.timeout(GUARD_S), serving() as server:
        whois(server, "~eve evil.test")
        account, desk = channel(server, channels=["#room"]), Desk()
        async with running(account, desk):
            await server.heard("JOIN")
            server.tell(f"{ANN} PRIVMSG bot :hi")
            await desk.received(1)
            with pytest.raises(SendError, match="another user"):
                await account.send(Outbound(REPLY, "the secret", "k"))
            await account.send(Outbound(Address("irc", "bob"), "hello", "k2"))  # never wrote to us
        assert sent(server) == ["PRIVMSG bob :hello"]


@pytest.mark.parametrize(
    "line", [f"{ANN} NICK :away", ":eve!~eve@evil.test NICK :ann", f"{ANN} QUIT"]
)
async def test_irc_nick_change_ends_an_earlier_check(line: str) -> None:
    async with asyncio.timeout(GUARD_S), serving() as server:
        got = await received(server, f"{ANN} PRIVMSG bot :hi")
        whois(server)
        account = channel(server)
        async with running(account, Desk()):
            await account.send(reply_to(got))
            whois(server, "~eve evil.test")
            server.tell(line)
            await account.probe()
            with pytest.raises(SendError, match="another user"):
                await account.send(reply_to(got))


async def test_irc_unanswered_check_sends_nothing() -> None:
    async with asyncio.timeout(GUARD_S), serving() as server:
        got = await received(server, f"{ANN} PRIVMSG bot :hi")
        server.answers["WHOIS"] = lambda words: [f":{HOST} 401 bot {words[1]} :No such nick"]
        account = channel(server)
        async with running(account, Desk()):
            with pytest.raises(SendError, match="No such nick"):
                await account.send(reply_to(got))
            server.answers["WHOIS"] = lambda _: [f":{HOST} 263 bot WHOIS :Try again"]
            with pytest.raises(SendError, match="Try again") as busy:
                await account.send(reply_to(got))
        assert busy.value.retryable and sent(server) == []


def test_irc_holder_is_same_by_mask_or_account() -> None:
    assert is_same_holder("~ann@home ann", "~ann@home")
    assert is_same_holder("~ann@far ann", "~ann@home ann")
    assert not is_same_holder("~ann@far ann", "~ann@home")
    assert not is_same_holder("~ann@far", "~ann@home")
