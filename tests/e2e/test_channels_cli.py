"""`homarus channels` with a running gateway: accounts are added and removed meanwhile."""

from collections.abc import Callable
from typing import Any

from tests.e2e.gateway import Gateway, wait_for
from tests.e2e.program import Home

Start = Callable[..., Gateway]
NOBODY = ("--host", "127.0.0.1", "--port", "9", "--nick", "bot", "--set", "tls=false")


def accounts(home: Home, *args: str) -> dict[str, Any]:
    done = home.run("channels", "status", "--json", *args)
    assert done.status == 0, done.err
    told = done.json
    assert told["gateway"] is True
    return {
        f"{channel}:{row['accountId']}": row
        for channel, rows in told["channelAccounts"].items()
        for row in rows
    }


def test_channels_account_added_and_removed_while_gateway_runs(home: Home, start: Start) -> None:
    gateway = start().wait_ready()
    assert accounts(home) == {}
    assert "No channel is configured" in home.run("channels").out
    done = home.run("channels", "add", "irc", *NOBODY)
    assert (done.status, done.err) == (0, "")
    assert "; the gateway uses it now.\n" in done.out and "pairing approve irc" in done.out

    wait_for(lambda: accounts(home).get("irc:default", {}).get("lastError"))
    row = accounts(home, "--probe", "--timeout", "20")["irc:default"]
    assert row["enabled"] and row["configured"] and not row["connected"]
    assert row["probe"]["ok"] is False and row["probe"]["error"]
    assert "irc:default" in home.run("channels", "status").out
    assert "channel   IRC default: " in home.run("status").out
    wait_for(lambda: "irc:default" in home.run("channels", "logs", "--channel", "irc").out)

    assert "is off" in home.run("channels", "remove", "irc").out
    wait_for(lambda: not accounts(home)["irc:default"]["enabled"])
    assert "is deleted" in home.run("channels", "remove", "irc", "--delete").out
    wait_for(lambda: accounts(home) == {})
    assert gateway.process.poll() is None and "restarting" not in gateway.output


def test_channels_unusable_account_is_refused(home: Home, start: Start) -> None:
    start().wait_ready()
    done = home.run("channels", "add", "telegram", "--token", "abc")
    assert done.status == 2 and "not a token" in done.err
    done = home.run("channels", "logout", "matrix")
    assert done.status == 2 and "not configured" in done.err
    assert accounts(home) == {}
