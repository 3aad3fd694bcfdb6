"""When heartbeats run, and why they do not."""

import sys
from pathlib import Path
from typing import Any

import pytest

from homarus.schedule.heartbeat_request import HeartbeatRequest
from homarus.testing.fakes import Hang
from tests.unit.gateway.app_harness import answer
from tests.unit.schedule.heartbeat_harness import (
    EVERY_S,
    KEY,
    MODEL,
    HeartbeatHarness,
    checklist,
    heartbeat_world,
)

_OK = answer("HEARTBEAT_OK")
_BEATS = 20
_RUNNER = "homarus.schedule.heartbeat_runner"


def reasons(it: HeartbeatHarness) -> list[Any]:
    return [event.get("reason") for event in it.events]


@pytest.mark.parametrize("tasks", ["", "# Tasks\n\n- [ ]\n* \n", "\ufeff# Later\n"])
async def test_heartbeat_without_content_calls_no_model(
    tmp_path: Path, tasks: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, _RUNNER, raising=False)
    async with heartbeat_world(tmp_path, [], tasks=tasks) as it:
        for _ in range(_BEATS):
            await it.it.clock.advance(EVERY_S)
        assert reasons(it) == ["empty-heartbeat-file"] * _BEATS
        assert it.it.model.requests == [] and _RUNNER not in sys.modules
        assert await it.it.store.records("heartbeat") == {}  # nothing is written
        assert await it.app.store.journal.inbox_records() == []


async def test_heartbeat_reads_checklist_when_it_changes(tmp_path: Path) -> None:
    async with heartbeat_world(tmp_path, [_OK], tasks="") as it:
        await it.beat()
        checklist(tmp_path)
        assert (await it.beat())["status"] == "ok-token"
        (tmp_path / "state/workspace/HEARTBEAT.md").unlink()
        assert (await it.beat())["reason"] == "empty-heartbeat-file"


async def test_heartbeat_outside_active_hours_is_skipped(tmp_path: Path) -> None:
    hours = {"start": "08:00", "end": "22:00", "timezone": "UTC"}  # it is 08:00 when it starts
    settings = {"every": "8h", "activeHours": hours}
    async with heartbeat_world(tmp_path, [_OK] * 4, settings) as it:
        found = [(await it.beat(8 * 3600)).get("reason", "ran") for _ in range(6)]
        assert found == ["ran", "quiet-hours", "ran"] * 2


@pytest.mark.parametrize("every", ["12h", "24h"])
async def test_heartbeat_that_is_due_at_night_runs_in_the_morning(
    tmp_path: Path, every: str
) -> None:
    hours = {"start": "09:00", "end": "10:00", "timezone": "UTC"}  # it is 08:00 when it starts
    async with heartbeat_world(tmp_path, [_OK] * 3, {"every": every, "activeHours": hours}) as it:
        await it.it.clock.advance(24 * 3_600 + 59 * 60)
        assert reasons(it) == ["quiet-hours"] and it.it.model.requests == []
        assert (await it.beat(120))["status"] == "ok-token"


async def test_request_in_quiet_hours_runs_when_they_end(tmp_path: Path) -> None:
    hours = {"start": "09:00", "end": "22:00", "timezone": "UTC"}
    settings = {"every": "12h", "activeHours": hours}
    async with heartbeat_world(tmp_path, [_OK], settings, tasks="") as it:
        await it.it.ask("wake", mode="now", text="Milk is out")
        assert (await it.beat(0.3))["reason"] == "quiet-hours"
        await it.it.clock.advance(3_500)
        assert reasons(it) == ["quiet-hours"] and it.it.model.requests == []
        assert (await it.beat(200))["status"] == "ok-token"


@pytest.mark.parametrize("settings", [{"enabled": False}, {"every": "0m"}])
async def test_disabled_heartbeat_leaves_notice_for_next_message(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    async with heartbeat_world(tmp_path, [], settings) as it:
        await it.it.clock.advance(10 * EVERY_S)
        assert it.events == []
        await it.it.ask("wake", mode="now", text="Milk is out")
        assert (await it.beat(0.3))["reason"] == "disabled"
        assert [notice.text for notice in it.app.notices.pending(KEY)] == ["Milk is out"]


async def test_requests_that_come_together_start_one_heartbeat(tmp_path: Path) -> None:
    async with heartbeat_world(tmp_path, [_OK]) as it:
        for reason in ("retry", "hook:mail", "interval", "cron:1"):
            it.app.heartbeats.request(HeartbeatRequest(reason))
        (pending,) = it.app.heartbeats._pending.values()
        assert pending.request.reason == "hook:mail" and pending.is_interval
        await it.it.clock.advance(0.2)
        assert it.it.model.requests == []
        await it.it.clock.advance(0.1)
        assert (await it.until(1))["status"] == "ok-token"
        assert len(it.it.model.requests) == 1


async def test_suspend_runs_one_heartbeat_and_no_burst(tmp_path: Path) -> None:
    async with heartbeat_world(tmp_path, [_OK] * 3) as it:
        it.it.clock.step(5 * 3600)  # the machine slept: only the wall clock went on
        assert (await it.beat(60))["status"] == "ok-token"
        await it.it.clock.advance(EVERY_S - 90)
        assert len(it.events) == 1
        assert (await it.beat(120))["status"] == "ok-token"


async def test_clock_set_back_does_not_stop_heartbeats(tmp_path: Path) -> None:
    async with heartbeat_world(tmp_path, [_OK] * 3) as it:
        it.it.clock.step(-30 * 86_400)
        await it.it.clock.advance(60)
        assert it.events == []
        assert (await it.beat(EVERY_S))["status"] == "ok-token"


async def test_restart_continues_the_interval(tmp_path: Path) -> None:
    async with heartbeat_world(tmp_path, [_OK]) as it:
        await it.beat()
        last_ms = it.app.clock.now_ms()
        assert (await it.it.store.records("heartbeat"))["main"]["at"] <= last_ms
    async with heartbeat_world(tmp_path, [_OK]) as it:  # its clock starts half an hour earlier
        it.it.clock.step(EVERY_S + 20 * 60)
        await it.it.clock.advance(5 * 60)
        assert it.events == []
        assert (await it.beat(6 * 60))["status"] == "ok-token"


async def test_switch_holds_across_a_restart(tmp_path: Path) -> None:
    async with heartbeat_world(tmp_path, [_OK]) as it:
        assert await it.it.ask("set-heartbeats", enabled=False) == {"ok": True, "enabled": False}
        assert (await it.beat())["reason"] == "disabled"
        assert (await it.it.ask("last-heartbeat"))["reason"] == "disabled"
    async with heartbeat_world(tmp_path, [_OK]) as it:
        assert (await it.it.ask("last-heartbeat")) is None
        row = (await it.it.ask("health", probe=True))["agents"][0]["heartbeat"]
        assert (row["enabled"], row["every"], row["everyMs"]) == (False, "disabled", None)
        await it.it.ask("set-heartbeats", enabled=True)
        assert (await it.beat())["status"] == "ok-token"


async def test_urgent_notice_is_taken_up_when_switched_on(tmp_path: Path) -> None:
    async with heartbeat_world(tmp_path, [_OK], tasks="") as it:
        await it.it.ask("set-heartbeats", enabled=False)
        await it.it.ask("wake", text="Milk is out", mode="next-heartbeat")
        await it.it.ask("wake", text="The house is on fire", mode="now")
        assert (await it.beat(1))["reason"] == "disabled"
        await it.it.ask("set-heartbeats", enabled=True)
        assert (await it.beat(1))["status"] == "ok-token"
        assert "on fire" in str(it.it.model.requests[0].messages)


async def test_health_and_status_show_the_heartbeat(tmp_path: Path) -> None:
    settings = {"every": "15m", "target": "list", "prompt": "Look around.", "model": "mock/mock-1"}
    async with heartbeat_world(tmp_path, [], settings) as it:
        health = await it.it.ask("health", probe=True)
        assert health["heartbeatSeconds"] == 900
        assert health["agents"][0]["heartbeat"] == {
            "enabled": True,
            "every": "15m",
            "everyMs": 900_000,
            "prompt": "Look around.",
            "target": "list",
            "model": "mock/mock-1",
            "ackMaxChars": 30,
        }
        status = await it.it.ask("status")
        (row,) = status["heartbeat"]["agents"]
        assert row == {"agentId": "main", "enabled": True, "every": "15m", "everyMs": 900_000}
        assert "heartbeat" in status["lanes"]


async def test_config_reload_applies_at_once(tmp_path: Path) -> None:
    async with heartbeat_world(tmp_path, [_OK], {"every": "12h"}) as it:
        await it.it.clock.advance(3600)
        config = it.app.loaded.config
        heartbeat = config.agents.defaults.heartbeat.model_copy(update={"every": "30m"})
        defaults = config.agents.defaults.model_copy(update={"heartbeat": heartbeat})
        agents = config.agents.model_copy(update={"defaults": defaults})
        from dataclasses import replace

        await it.app.reload(
            replace(it.app.loaded, config=config.model_copy(update={"agents": agents}))
        )
        assert (await it.until(1))["status"] == "ok-token"


async def test_session_of_another_agent_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    agents = {
        "defaults": {"model": MODEL, "heartbeat": {"session": "agent:ops:main"}},
        "list": [{"id": "main", "default": True}, {"id": "ops"}],
    }
    async with heartbeat_world(tmp_path, [], config={"agents": agents}) as it:
        assert (await it.beat())["reason"] == "disabled"
        assert "name a session of agent main" in caplog.text


async def test_unknown_account_is_skipped_without_a_model_call(tmp_path: Path) -> None:
    settings = {"target": "list", "to": "7", "accountId": "work"}
    async with heartbeat_world(tmp_path, [], settings) as it:
        assert (await it.beat())["reason"] == "unknown-account"
        assert it.it.model.requests == []


async def test_hanging_heartbeat_is_retried_by_no_other(tmp_path: Path) -> None:
    async with heartbeat_world(tmp_path, [Hang()]) as it:
        await it.it.clock.advance(EVERY_S)
        await it.it.asked(1)
        await it.it.clock.advance(EVERY_S + 5)
        assert reasons(it) == ["requests-in-flight"]
        assert len(it.it.model.requests) == 1


async def test_busy_session_is_looked_at_once_in_a_second(tmp_path: Path) -> None:
    async with heartbeat_world(tmp_path, [Hang()]) as it:
        await it.it.clock.advance(EVERY_S)
        await it.it.asked(1)
        await it.it.clock.advance(EVERY_S + 5)
        it.it.clock.slept.clear()
        await it.it.clock.advance(30)
        assert it.it.clock.slept and 0.0 not in it.it.clock.slept
