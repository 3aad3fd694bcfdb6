"""Scheduled jobs in a complete program: events for clients, the status, and the tool."""

import json
from pathlib import Path

from homarus.core.message import Json, ToolCall
from homarus.tools.tool import ToolContext
from tests.unit.gateway.app_harness import Harness, answer, run
from tests.waiting import until

EVENT = {"kind": "systemEvent", "text": "Look"}


def events(it: Harness) -> list[Json]:
    return [payload for name, payload in it.gateway.broadcasts if name == "cron"]


async def test_clients_get_an_event_for_every_change_and_run(tmp_path: Path) -> None:
    async with run(tmp_path) as it:
        schedule = {"kind": "every", "everyMs": 3_600_000}
        job = await it.ask("cron.add", name="look", schedule=schedule, payload=EVENT)
        await it.ask("cron.update", id=job["id"], patch={"name": "look again"})
        assert (await it.ask("cron.run", id=job["id"]))["ran"] is True
        await until(lambda: any(each["action"] == "finished" for each in events(it)))
        await it.ask("cron.remove", id=job["id"])
        assert [each["action"] for each in events(it)] == [
            "added", "updated", "started", "finished", "removed",
        ]  # fmt: skip
        finished = events(it)[3]
        assert (finished["status"], finished["summary"]) == ("ok", "Look")
        assert {each["jobId"] for each in events(it)} == {job["id"]}


async def test_status_counts_jobs_and_names_the_next_run(tmp_path: Path) -> None:
    async with run(tmp_path) as it:
        empty = {"enabled": True, "jobs": 0, "nextWakeAtMs": None}
        assert (await it.ask("status", {}, "read"))["cron"] == empty
        schedule = {"kind": "every", "everyMs": 3_600_000}
        job = await it.ask("cron.add", name="look", schedule=schedule, payload=EVENT)
        shown = (await it.ask("status", {}, "read"))["cron"]
        assert shown == {**empty, "jobs": 1, "nextWakeAtMs": job["state"]["nextRunAtMs"]}


async def test_model_creates_a_reminder_of_its_conversation(tmp_path: Path) -> None:
    tea = {"name": "tea", "schedule": {"everyMs": 60_000}, "text": "Make tea"}
    call = ToolCall("c1", "cron", {"action": "add", **tea})
    async with run(tmp_path, answer(call), answer("I will remind you.")) as it:
        await it.send("Remind me of the tea every minute")
        [job] = (await it.ask("cron.list"))["jobs"]
        assert (job["name"], job["agentId"]) == ("tea", "main")
        assert job["sessionKey"] == "agent:main:main"
        assert job["payload"] == {"kind": "systemEvent", "text": "Make tea"}


async def test_tool_wake_leaves_a_notice_that_is_stored(tmp_path: Path) -> None:
    async with run(tmp_path) as it:
        ctx = ToolContext("agent:main:main", "main", it.app.agent("main").workspace)
        tool = it.app.tools("main").get("cron")
        await tool(ctx, {"action": "wake", "text": "Look at the mail"})
        [notice] = it.app.notices.pending("agent:main:main")
        assert (notice.text, notice.wake_mode) == ("Look at the mail", "next-heartbeat")
        stored = await it.store.records("notice")
        assert "Look at the mail" in json.dumps([*stored.values()])
