"""What all clients share: broadcasts, presence, health, goodbye."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from homarus.core.errors import InvalidRequestError, UnavailableError
from homarus.core.event import Emitter, RunEnded, RunStarted, TextAdded
from homarus.gateway.server import DRAIN_S
from homarus.testing.clock import FakeClock
from tests.unit.gateway.harness import play

UI: dict[str, Any] = {"client_id": "openclaw-macos", "mode": "ui"}


async def test_broadcast_has_the_next_number_and_targeted_event_none(tmp_path: Path) -> None:
    async with play(tmp_path) as stage:
        one, two = await stage.enter(), await stage.enter("other")
        stage.gateway.broadcast("chat", {"n": 1})
        stage.gateway.broadcast("chat", {"n": 2})
        who = one.frames[1]["payload"]["server"]["connId"]
        stage.gateway.send(who, "chat", {"n": 3})
        await stage.settle()
        first, second = (frame["seq"] for frame in two.events("chat"))
        assert second == first + 1
        assert [frame.get("seq") for frame in one.events("chat")] == [first, second, None]


@pytest.mark.parametrize(
    ("event", "scopes", "heard"),
    [
        ("chat", ["operator.read"], True),
        ("chat", ["operator.write"], True),
        ("chat", ["operator.approvals"], False),
        ("device.pair.requested", ["operator.read"], False),
        ("device.pair.requested", ["operator.pairing"], True),
        ("exec.approval.requested", ["operator.pairing"], False),
        ("exec.approval.requested", ["operator.approvals"], True),
        ("exec.approval.requested", ["operator.admin"], True),
        ("tick", ["operator.approvals"], True),
        ("shutdown", ["operator.approvals"], True),
    ],
)
async def test_event_reaches_only_clients_with_its_scope(
    tmp_path: Path, event: str, scopes: list[str], heard: bool
) -> None:
    async with play(tmp_path) as stage:
        peer = await stage.enter(scopes=scopes)
        stage.gateway.broadcast(event, {"x": 1})
        await stage.settle()
        assert bool(peer.events(event)) is heard


async def test_presence_changes_are_broadcast(tmp_path: Path) -> None:
    async with play(tmp_path) as stage:
        watcher = await stage.enter("watcher")
        other = await stage.enter("other", **UI)
        other.leave()
        await stage.settle()
        came, went = (frame["payload"]["presence"] for frame in watcher.events("presence"))
        assert came[1]["reason"] == "connect" and went[1]["reason"] == "disconnect"
        versions = [frame["stateVersion"]["presence"] for frame in watcher.events("presence")]
        assert versions[1] == versions[0] + 1


async def test_health_is_collected_on_connect_and_broadcast(tmp_path: Path) -> None:
    async with play(tmp_path) as stage:
        peer = await stage.enter()
        await stage.settle()
        (told,) = peer.events("health")
        assert told["payload"]["ok"] and told["payload"]["defaultAgentId"] == "main"
        assert told["stateVersion"]["health"] == 2
        later = await stage.enter("other")
        assert later.frames[1]["payload"]["snapshot"]["health"]["ok"]
        assert not later.events("health")  # fresh enough


async def test_tick_is_sent_every_thirty_seconds(tmp_path: Path) -> None:
    clock = FakeClock()
    async with play(tmp_path, clock=clock) as stage:
        peer = await stage.enter()
        await clock.advance(95)
        await stage.settle()
        assert len(peer.events("tick")) == 3
        assert len(peer.events("health")) == 2  # at once, and after a minute


async def test_run_reaches_clients_as_agent_and_chat_events(tmp_path: Path) -> None:
    async with play(tmp_path) as stage:
        peer = await stage.enter()
        emit = Emitter(
            "run", "agent:main:main", stage.program.bus.publish, stage.program.clock.now_ms
        )
        emit(RunStarted())
        emit(TextAdded("Hello"))
        await stage.settle()
        late = await stage.enter("late")
        (connection,) = [c for c in stage.gateway.connections if c.id != connection_id(peer)]
        assert connection.caller
        stage.gateway.catch_up("agent:main:main", connection.caller)
        await stage.settle()
        emit(RunEnded())
        await stage.settle()
        assert [e["payload"]["state"] for e in peer.events("chat")] == ["delta", "final"]
        assert late.events("chat")[0]["payload"]["message"]["content"][0]["text"] == "Hello"


def connection_id(peer: object) -> str:
    return str(peer.frames[1]["payload"]["server"]["connId"])  # type: ignore[attr-defined]  # a Peer


async def test_unknown_and_unimplemented_methods_have_different_errors(tmp_path: Path) -> None:
    async with play(tmp_path) as stage:
        with pytest.raises(InvalidRequestError, match="unknown method: x"):
            stage.gateway.method("x")
        with pytest.raises(UnavailableError, match="schedules are not built"):
            stage.gateway.method("cron.list")


async def test_voided_device_token_closes_its_connections_but_one(tmp_path: Path) -> None:
    async with play(tmp_path) as stage:
        mine, spared, other = (
            await stage.enter("a"),
            await stage.enter("a"),
            await stage.enter("b"),
        )
        caller = stage.gateway.connections[0].caller
        assert caller
        stage.authenticator.devices.on_token_voided(
            caller.device_id, "operator", connection_id(spared)
        )
        await stage.settle()
        assert mine.closed == (1008, "device token revoked")
        assert spared.closed is None and other.closed is None


async def test_shutdown_waits_for_active_runs_and_closes_with_1012(tmp_path: Path) -> None:
    clock = FakeClock()
    async with play(tmp_path, clock=clock) as stage:
        peer = await stage.enter()
        stage.program.runs["run"] = "agent:main:main"
        async with asyncio.TaskGroup() as group:
            group.create_task(stage.gateway.stop("gateway stopping", restart_ms=1500))
            await clock.advance(1)
            assert peer.events("shutdown")[0]["payload"] == {
                "reason": "gateway stopping",
                "restartExpectedMs": 1500,
            }
            assert not peer.gone.is_set()
            peer.ask("1", "wait")  # what is no run is still served
            await stage.settle()
            assert peer.answers("1")[0]["ok"]
            stage.program.runs.clear()
            await clock.advance(0.2)
        await stage.settle()
        assert peer.closed == (1012, "service restart") and not stage.program.aborted


async def test_run_that_does_not_end_is_left_to_the_next_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = FakeClock()
    async with play(tmp_path, clock=clock) as stage:
        peer = await stage.enter()
        emit = Emitter("run", "agent:main:main", stage.program.bus.publish, clock.now_ms)
        emit(RunStarted())
        stage.program.runs["run"] = "agent:main:main"
        async with asyncio.TaskGroup() as group:
            group.create_task(stage.gateway.stop("gateway stopping"))
            await clock.advance(DRAIN_S - 1)
            assert not peer.gone.is_set()
            await clock.advance(2)
        await stage.settle()
        assert peer.closed and stage.program.aborted == [], "a run that is stopped has its outcome"
        assert "run run did not end within 10 s" in caplog.text
