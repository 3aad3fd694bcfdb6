"""Heartbeats of the real gateway, with a bot on Telegram's fake and the scripted model."""

import asyncio
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.contract.channel_peers import TelegramPeer
from tests.e2e.gateway import Gateway, change, connect_client, wait_for
from tests.e2e.program import Home

Start = Callable[..., Gateway]
ALERT = "Rain is near."


@pytest.fixture
def telegram() -> Iterator[TelegramPeer]:
    peer = TelegramPeer()
    yield peer
    peer.close()


def open_gateway(
    home: Home, start: Start, telegram: TelegramPeer, prompt: str, **more: Any
) -> Gateway:
    """Start a gateway whose heartbeat reaches the last chat every second: that of Ann."""
    heartbeat = {"every": "1s", "prompt": prompt, **more}
    defaults = json.loads((home.state / "openclaw.json").read_text())["agents"]["defaults"]
    change(
        home,
        channels=dict(telegram.section()),
        agents={"defaults": {**defaults, "heartbeat": heartbeat}},
    )
    home.workspace.mkdir(parents=True, exist_ok=True)
    (home.workspace / "HEARTBEAT.md").write_text("- look at the sky\n")
    telegram.write("T#e2e MOCK:say:Hello.§")
    gateway = start().wait_ready()
    wait_for(lambda: "Hello." in shown(telegram))
    return gateway


def shown(telegram: TelegramPeer) -> list[str]:
    return [one.text for one in telegram.shown()]


def last(home: Home) -> Any:
    return home.run("system", "heartbeat", "last", "--json").json


def test_heartbeat_alert_reaches_telegram_once(
    home: Home, start: Start, telegram: TelegramPeer
) -> None:
    open_gateway(home, start, telegram, f"T#e2e MOCK:say:{ALERT}§")
    wait_for(lambda: ALERT in shown(telegram))
    wait_for(lambda: (last(home) or {}).get("reason") == "duplicate")
    assert shown(telegram) == ["Hello.", ALERT]
    out = home.run("system", "heartbeat", "last").out
    assert "skipped (duplicate) to telegram " in out


def test_heartbeat_ack_reaches_no_chat(home: Home, start: Start, telegram: TelegramPeer) -> None:
    gateway = open_gateway(home, start, telegram, "T#e2e MOCK:say:HEARTBEAT_OK§")

    async def listen() -> Any:
        async with connect_client(gateway) as (_client, events):
            return await events.wait(lambda name, p: name == "heartbeat" and "silent" in p)

    found = asyncio.run(listen())
    assert (found["status"], found["silent"]) == ("ok-token", True)
    assert shown(telegram) == ["Hello."]
    assert home.run("system", "heartbeat", "disable").out == "Heartbeats are off.\n"
    wait_for(lambda: last(home).get("reason") == "disabled")
    assert home.run("system", "heartbeat", "enable", "--json").json == {"ok": True, "enabled": True}
    wait_for(lambda: last(home)["status"] == "ok-token")


def test_heartbeat_in_quiet_hours_calls_no_model(
    home: Home, start: Start, telegram: TelegramPeer
) -> None:
    now = datetime.now(UTC)
    first, end = (f"{now + timedelta(hours=hours):%H:%M}" for hours in (2, 4))
    hours = {"start": first, "end": end, "timezone": "UTC"}
    open_gateway(home, start, telegram, f"T#e2e MOCK:say:{ALERT}§", activeHours=hours)
    wait_for(lambda: (last(home) or {}).get("reason") == "quiet-hours")
    assert shown(telegram) == ["Hello."]
    done = home.run("system", "event", "--text", "Milk is out", "--mode", "now")
    assert done.status == 0 and "outside of the heartbeat's active hours" in done.out
    assert home.run("status", "--json").status == 0
    assert home.run("inbox", "--json").json["messages"] == []  # the notice waits


def test_system_commands_without_gateway_say_what_to_do(home: Home) -> None:
    done = home.run("system", "heartbeat", "last")
    assert done.status == 2 and "no gateway is running" in done.err


def test_system_presence_lists_clients(home: Home, start: Start) -> None:
    start().wait_ready()
    rows = home.run("system", "presence", "--json").json
    assert rows and home.run("system", "presence").out
