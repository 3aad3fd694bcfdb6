"""The connection is opened again after it was lost; a first one that fails is an error."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest

from homarus.cli.tui.link import GatewayLink
from homarus.cli.tui.outbox import Outbox
from homarus.core.errors import InvalidRequestError, UnavailableError
from homarus.core.message import Json
from tests.unit.cli.tui.harness import MAIN, FakeGateway
from tests.waiting import until


class Listener:
    def __init__(self) -> None:
        self.heard: list[str] = []

    def connected(self, hello: Mapping[str, Json]) -> None:
        self.heard.append("connected")

    def received(self, name: str, payload: Json) -> None:
        self.heard.append(name)

    def disconnected(self, reason: str) -> None:
        self.heard.append(reason)


async def test_link_connects_again_after_a_loss() -> None:
    gateway, listener = FakeGateway(), Listener()
    link = GatewayLink(gateway.connect)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(link.run(listener))
        await until(lambda: link.is_connected)
        gateway.send("tick", {})
        await until(lambda: "tick" in listener.heard)
        gateway.stop()
        await until(lambda: not link.is_connected)
        with pytest.raises(UnavailableError):
            await link.call("chat.history", {})
        gateway.is_down = False
        await until(lambda: link.is_connected)
        running.cancel()
    assert listener.heard[:3] == ["connected", "tick", "service restart"]
    assert listener.heard[-1] == "connected"


async def test_link_first_failure_is_raised() -> None:
    gateway = FakeGateway()
    gateway.is_down = True
    with pytest.raises(UnavailableError, match="no gateway answers"):
        await GatewayLink(gateway.connect).run(Listener())


async def test_outbox_message_keeps_its_key_and_its_place() -> None:
    sent: list[str] = []
    is_down = True

    async def call(method: str, params: Mapping[str, Json]) -> Json:
        sent.append(f"{params['idempotencyKey']}")
        if is_down:
            raise UnavailableError("lost")
        return {"status": "started"}

    outbox = Outbox(call, lambda _key: None)
    first = outbox.add(MAIN, "one", ())
    second = outbox.add(MAIN, "two", ())
    await outbox.send_waiting()
    assert (first.state, second.state) == ("waiting", "waiting")
    is_down = False
    await outbox.send_waiting()
    assert sent == [first.run_id, first.run_id, second.run_id]
    assert second.state == "sent"


async def test_outbox_refused_message_is_kept_with_its_reason() -> None:
    async def call(method: str, params: Mapping[str, Json]) -> Json:
        raise InvalidRequestError("send blocked by session policy")

    outbox = Outbox(call, lambda _key: None)
    message = outbox.add(MAIN, "one", ())
    await outbox.send_waiting()
    assert message.state == "refused"
    assert "policy" in message.error


def test_nothing_else_imports_the_library() -> None:
    source = Path(__file__).parents[4] / "src" / "homarus"
    found = [
        str(file.relative_to(source))
        for file in source.rglob("*.py")
        if not file.is_relative_to(source / "cli" / "tui")
        and any(
            word in file.read_text() for word in ("import textual", "from textual", "from rich")
        )
    ]
    assert found == []
