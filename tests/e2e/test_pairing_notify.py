"""`homarus pairing` with a running gateway: an approved sender is notified, then answered."""

from collections.abc import Callable, Iterator

import pytest

from tests.contract.channel_peers import TelegramPeer
from tests.contract.channel_stage import EVE
from tests.e2e.gateway import Gateway, change, wait_for
from tests.e2e.program import Home

Start = Callable[..., Gateway]
NOTE = "You can talk to me now"


@pytest.fixture
def telegram(home: Home, start: Start) -> Iterator[TelegramPeer]:
    peer = TelegramPeer()
    try:
        change(home, channels=dict(peer.section()))
        start().wait_ready()
        yield peer
    finally:
        peer.close()


def told(telegram: TelegramPeer) -> list[str]:
    return [one.text for one in telegram.shown(who=EVE)]


def ask(home: Home, telegram: TelegramPeer) -> str:
    """Let Eve write and receive a code."""
    telegram.write("hello?", who=EVE)
    wait_for(lambda: told(telegram))
    (asked,) = home.run("pairing", "list", "telegram", "--json").json["requests"]
    assert asked["code"] in told(telegram)[0] and asked["id"] == "666"
    return str(asked["code"])


def test_pairing_approved_sender_is_notified_and_then_answered(
    home: Home, telegram: TelegramPeer
) -> None:
    code = ask(home, telegram)
    done = home.run("pairing", "approve", "telegram", code, "--notify", "--json")
    assert (done.status, done.err) == (0, "") and done.json["notified"] is True
    wait_for(lambda: any(NOTE in text for text in told(telegram)))
    telegram.write("T#e2e MOCK:say:welcome aboard§", who=EVE)
    wait_for(lambda: "welcome aboard" in told(telegram))
    assert len(told(telegram)) == 3  # the code, the note, the answer: each once
    assert home.run("pairing", "list").out == "Nobody waits.\n"


def test_pairing_approval_succeeds_when_sender_cannot_be_notified(
    home: Home, telegram: TelegramPeer
) -> None:
    code = ask(home, telegram)
    change(home, channels={})
    wait_for(lambda: home.run("channels", "status", "--json").json["channelAccounts"] == {})
    done = home.run("pairing", "approve", "telegram", code, "--notify")
    assert done.status == 0 and "They were not told: " in done.err
    assert "666 is heard on telegram from now on." in done.out
