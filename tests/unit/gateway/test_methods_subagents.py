"""The `subagents.*` methods, the rows of sub-agents' sessions, and what stops them."""

from pathlib import Path
from typing import Any

import pytest

from homarus.core.errors import UserError
from homarus.store.subagents import SubagentRecord, list_subagents
from homarus.testing.fakes import Hang
from tests.unit.gateway.app_harness import Harness, answer, run

PARENT = "agent:main:main"


async def spawn(it: Harness, count: int = 1) -> list[SubagentRecord]:
    """Start sub-agents whose model is asked; return their records, oldest first."""
    for number in range(count):
        await it.send(f"/subagents spawn main Count lamps {number}", f"spawn-{number}")
        it.clock.step(1)
    await it.asked(count)
    return await list_subagents(it.store)


async def statuses(it: Harness) -> list[str]:
    return [one.status for one in await list_subagents(it.store)]


async def test_subagents_list_info_and_log_show_the_stored_state(tmp_path: Path) -> None:
    async with run(tmp_path, Hang()) as it:
        [record] = await spawn(it)
        listed = await it.ask("subagents.list", {}, "read")
        assert (listed["total"], listed["recent"]) == (1, [])
        [row] = listed["active"]
        assert (row["index"], row["runId"], row["status"]) == (1, record.run_id, "running")
        assert row["requesterSessionKey"] == PARENT
        assert (await it.ask("subagents.list", sessionKey="other"))["total"] == 0
        info = await it.ask("subagents.info", {"target": "1"}, "read")
        assert info["subagent"]["sessionKey"] == record.child_key
        assert "Task: Count lamps 0" in info["text"]
        log = await it.ask("subagents.log", {"target": record.run_id[:8]}, "read")
        [line] = log["messages"]
        assert line["role"] == "user" and "Count lamps 0" in line["text"]
        await it.ask("subagents.kill", target="all")


async def test_subagents_kill_stops_one_or_all(tmp_path: Path) -> None:
    async with run(tmp_path, Hang(), Hang(), Hang()) as it:
        first, *_ = await spawn(it, 3)
        killed = await it.ask("subagents.kill", {"target": first.run_id}, "write")
        assert (killed["status"], killed["killed"]) == ("ok", 1)
        assert await statuses(it) == ["killed", "running", "running"]
        assert (await it.ask("subagents.kill", target="all"))["killed"] == 2
        assert await statuses(it) == ["killed"] * 3
        with pytest.raises(UserError, match="there is no sub-agent 'nosuch'"):
            await it.ask("subagents.kill", target="nosuch")


async def test_subagents_steer_and_send_reach_the_child(tmp_path: Path) -> None:
    answers = answer("North only."), answer("Noted."), answer("The third.")
    async with run(tmp_path, Hang(), *answers) as it:
        await spawn(it)
        steer = {"target": "1", "message": "Only the north.", "idempotencyKey": "s-1"}
        assert (await it.ask("subagents.steer", steer, "write"))["status"] == "accepted"
        await it.asked(3)  # the child, steered; and its parent, which is told the result
        assert await statuses(it) == ["done"]
        params = {"target": "1", "message": "Which one?", "idempotencyKey": "q-1"}
        sent = await it.ask("subagents.send", params, "write")
        assert (sent["status"], sent["text"]) == ("ok", "The third.")
        again = await it.ask("subagents.send", params, "write")
        assert again["status"] == "accepted" and len(it.model.requests) == 4, "asked once"


async def test_session_rows_of_subagents_have_parent_depth_and_status(tmp_path: Path) -> None:
    async with run(tmp_path, Hang()) as it:
        [record] = await spawn(it)
        await it.ask("sessions.patch", key=record.child_key, label="lamps")
        listed = await it.ask("sessions.list", spawnedBy=PARENT)
        [row] = listed["sessions"]
        assert (row["key"], row["label"]) == (record.child_key, "lamps")
        assert (row["spawnedBy"], row["spawnDepth"], row["status"]) == (PARENT, 1, "running")
        assert (await it.ask("sessions.list", spawnedBy="agent:main:x"))["sessions"] == []
        found = await it.ask("sessions.resolve", label="lamps", spawnedBy=PARENT)
        assert found["key"] == record.child_key
        await it.ask("subagents.kill", target="all")
        shown = (await it.ask("sessions.describe", key=record.child_key))["session"]
        assert shown["status"] == "killed"
        assert shown["endedAt"] >= shown["startedAt"] and shown["spawnedBy"] == PARENT


STOPS: dict[str, dict[str, Any]] = {
    "chat.abort": {"sessionKey": PARENT},
    "chat.send": {"sessionKey": PARENT, "message": "stop", "idempotencyKey": "stop-1"},
    "sessions.reset": {"key": PARENT},
}


@pytest.mark.parametrize("method", STOPS)
async def test_stop_of_a_parent_stops_its_subagents(method: str, tmp_path: Path) -> None:
    async with run(tmp_path, Hang(), Hang()) as it:
        await spawn(it, 2)
        result = await it.ask(method, STOPS[method])
        assert await statuses(it) == ["killed", "killed"]
        if method != "sessions.reset":
            assert (result["aborted"], result["runIds"]) == (True, [])
            assert result["subagentsStopped"] == 2


async def test_delete_of_a_parent_stops_its_subagents(tmp_path: Path) -> None:
    key = "agent:main:work"
    async with run(tmp_path, Hang()) as it:
        await it.send("/subagents spawn main Count", "spawn-1", key)
        await it.asked(1)
        await it.ask("sessions.delete", key=key)
        assert await statuses(it) == ["killed"]


async def test_abort_of_one_run_stops_subagents_only_if_it_is_active(tmp_path: Path) -> None:
    async with run(tmp_path, Hang(), Hang()) as it:
        await spawn(it)
        params = {"sessionKey": PARENT, "message": "Think", "idempotencyKey": "think-1"}
        await it.ask("chat.send", params)
        await it.asked(2)
        other = await it.ask("chat.abort", sessionKey=PARENT, runId="other")
        assert other == {"ok": True, "aborted": False, "runIds": []}
        assert await statuses(it) == ["running"]
        stopped = await it.ask("chat.abort", sessionKey=PARENT, runId="think-1")
        assert (stopped["runIds"], stopped["subagentsStopped"]) == (["think-1"], 1)
        assert await statuses(it) == ["killed"]
