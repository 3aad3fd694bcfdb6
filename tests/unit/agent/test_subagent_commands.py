"""Control of sub-agents in the complete program: the tool, and the chat commands."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from homarus.agent.run import RunOutcome
from homarus.core.message import Message, ToolCall
from homarus.providers.base import ModelRequest
from homarus.store.subagents import SubagentRecord
from homarus.testing.fakes import assistant_message
from tests.unit.agent import subagent_harness
from tests.unit.agent.subagent_harness import PARENT, Stage, last_text, spawn_call
from tests.waiting import until

pytestmark = pytest.mark.timeout(60)
OTHER = "agent:main:other"


def answer(text: str, _request: ModelRequest) -> str | Message | None:
    """A parent that starts sub-agents named by its messages; `wait` in a task never ends."""
    if text.startswith("call "):
        _, name, args = text.split(" ", 2)
        return assistant_message(ToolCall("c9", name, json.loads(args)))
    if text.startswith("go "):
        return spawn_call(text, label=text.split()[1])
    if text == "Never end.":
        return None
    if "[Subagent Task]" in text:
        return None if "wait" in text else "There are 42 files."
    return f"Answer to: {text[:40]}"


@asynccontextmanager
async def open_stage(
    home: Path, played: Any = answer, changes: Mapping[str, Any] | None = None
) -> AsyncIterator[Stage]:
    """Open the program, and stop what never ends before it closes."""
    async with subagent_harness.open_stage(home, played, changes) as stage:
        yield stage
        await stage.app.subagents.control().kill(None, "all")


async def command(stage: Stage, text: str, key: str = PARENT, **given: Any) -> str:
    outcome: RunOutcome = await (await stage.say(text, key, authority="owner", **given))
    if outcome.error:
        return f"{outcome.error.message} | {outcome.error.fix}"
    return outcome.text


async def spawn(stage: Stage, name: str, rest: str = "wait", key: str = PARENT) -> SubagentRecord:
    """Have a parent start a sub-agent, and wait until its model is asked, or it has ended."""
    requests = stage.model.requests
    before = len(requests)
    await (await stage.say(f"go {name} {rest}", key))
    [found] = [one for one in await stage.records() if one.label == name]
    if rest == "wait":
        await until(lambda: any("[Subagent Task]" in last_text(one) for one in requests[before:]))
    else:
        await stage.ended()
    return found


async def tool(stage: Stage, key: str = PARENT, **args: Any) -> dict[str, Any]:
    """Have a session's model call the `subagents` tool; return the result that it reads."""
    await (await stage.say(f"call subagents {json.dumps(args)}", key))
    session = await stage.app.control.load(key)
    result = [one for one in session.messages if one.role == "tool"][-1].parts[0]
    text = getattr(result, "text", "")
    found: dict[str, Any] = json.loads(text) if text.startswith("{") else {"error": text}
    return found


async def status(stage: Stage, name: str) -> str:
    [found] = [one for one in await stage.records() if one.label == name]
    return found.status


async def test_subagents_command_lists_describes_and_shows_log(tmp_path: Path) -> None:
    async with open_stage(tmp_path) as stage:
        assert "(none)" in await command(stage, "/subagents")
        done = await spawn(stage, "files", "count")
        await stage.idle()
        running = await spawn(stage, "lamps")
        listed = await command(stage, "/subagents list")
        active, ended = listed.split("Ended in the last 30 min:")
        assert "1. lamps (" in active and f"running · run {running.run_id[:8]}" in active
        assert "2. files (" in ended and "1.2k tokens (in 1.0k / out 200)) done" in ended
        info = await command(stage, "/subagents info files")
        assert f"Session: {done.child_key}" in info and "Status: done" in info
        assert f"Started by: {PARENT}" in info and ".jsonl" in info
        log = await command(stage, "/subagents log 2")
        assert log.endswith("Sub-agent: There are 42 files.") and "go files count" in log
        assert "Sub-agents: 1 active" in await command(stage, "/status")
        assert "(none)" in await command(stage, "/subagents", OTHER)
        assert "has no sub-agents" in await command(stage, "/subagents info files", OTHER)
        assert "does not understand" in await command(stage, "/subagents log 2 many")
        assert "/subagents list · info" in await command(stage, "/subagents shout")


async def test_info_in_a_group_shows_no_path_of_the_machine(tmp_path: Path) -> None:
    group = "agent:main:telegram:group:-100"
    async with open_stage(tmp_path) as stage:
        await spawn(stage, "lamps", key=group)
        info = await command(stage, "/subagents info lamps", group)
        assert "Status: running" in info and str(tmp_path) not in info


@pytest.mark.parametrize("text", ["/kill lamps", "/subagents kill 1", "/kill all", "/kill *"])
async def test_kill_command_stops_subagents_without_announcement(text: str, tmp_path: Path) -> None:
    async with open_stage(tmp_path) as stage:
        await spawn(stage, "lamps")
        assert (await command(stage, text)).startswith("Stopped ")
        assert await status(stage, "lamps") == "killed"
        await stage.idle()
        assert await stage.announcements() == []
        assert await command(stage, "/kill lamps") == "lamps has ended already: killed."
        assert await command(stage, "/kill all") == "No sub-agent is active."
        assert "which sub-agent?" in await command(stage, "/kill")


async def test_kill_command_stops_no_subagents_of_other_sessions(tmp_path: Path) -> None:
    async with open_stage(tmp_path) as stage:
        record = await spawn(stage, "lamps")
        for word in ("all", "lamps", "1", record.run_id, record.child_key):
            await command(stage, f"/kill {word}", OTHER)
        assert await status(stage, "lamps") == "running"


async def test_kill_command_stops_the_children_of_a_child(tmp_path: Path) -> None:
    def nested(text: str, request: ModelRequest) -> str | Message | None:
        if "[Subagent Task] go outer" in text:
            return spawn_call("inner wait", label="inner")
        return answer(text, request)

    changes = {"agents.defaults.subagents.maxSpawnDepth": 2}
    async with open_stage(tmp_path, nested, changes) as stage:
        await (await stage.say("go outer"))
        await until(lambda: stage.model.asked("inner wait"))
        assert await command(stage, "/kill outer") == "Stopped outer, and 1 that it started."
        assert [one.status for one in await stage.records()] == ["killed", "killed"]


@pytest.mark.parametrize("text", ["/steer lamps", "/tell 1", "/subagents steer #1"])
async def test_steer_command_has_a_subagent_go_on_with_the_message(
    text: str, tmp_path: Path
) -> None:
    async with open_stage(tmp_path) as stage:
        await spawn(stage, "lamps")
        assert "goes on with your message" in await command(stage, f"{text} Only the north wing.")
        [record] = await stage.ended()
        assert (record.status, record.result) == ("done", "Answer to: Only the north wing.")
        # The announcement to the parent repeats the answer, and may be asked about by now.
        steered = stage.model.asked("Only the north wing.")[0]
        assert "Your task: go lamps wait" in steered.system, "it was stopped before its answer"
        await stage.idle()
        assert len(await stage.announcements()) == 1
        assert "has ended: done" in await command(stage, "/steer lamps More.")


async def test_steer_command_is_refused_without_target_or_message(tmp_path: Path) -> None:
    async with open_stage(tmp_path) as stage:
        await spawn(stage, "lamps")
        assert "/steer TARGET MESSAGE" in await command(stage, "/steer lamps")
        assert "there is no sub-agent 'boats'" in await command(stage, "/steer boats hurry")
        assert "1 to 4000 characters" in await command(stage, f"/steer lamps {'x' * 4001}")


async def test_send_command_asks_a_subagent_that_has_ended(tmp_path: Path) -> None:
    async with open_stage(tmp_path) as stage:
        await spawn(stage, "files", "count")
        await stage.idle()
        assert await command(stage, "/subagents send files Which?") == "Answer to: Which?"
        [record] = await stage.records()
        assert record.result == "There are 42 files."
        assert len(await stage.announcements()) == 1


async def test_spawn_command_starts_a_subagent_of_the_conversation(tmp_path: Path) -> None:
    async with open_stage(tmp_path) as stage:
        text = "/subagents spawn main Count the files --model other --thinking off"
        reply = await command(stage, text)
        assert reply.startswith("Started a sub-agent of main (run ")
        [record] = await stage.ended()
        assert (record.task, record.requester_key) == ("Count the files", PARENT)
        assert (record.model, record.thinking) == ("bench/other", "off")
        await stage.idle()
        assert len(await stage.announcements()) == 1
        assert "which agent" in await command(stage, "/subagents spawn main")
        assert "not allowed" in await command(stage, "/subagents spawn work Count")


async def test_spawn_command_obeys_a_denied_tool(tmp_path: Path) -> None:
    async with open_stage(tmp_path, answer, {"tools.deny": ["sessions_spawn"]}) as stage:
        reply = await command(stage, "/subagents spawn main Count")
        assert "sessions_spawn" in reply and "policy explain" in reply
        assert await stage.records() == []


async def test_subagents_tool_lists_steers_and_kills_own_children(tmp_path: Path) -> None:
    async with open_stage(tmp_path) as stage:
        record = await spawn(stage, "lamps")
        await spawn(stage, "boats")
        found = await tool(stage)
        assert found["status"] == "ok" and found["total"] == 2 and found["recent"] == []
        assert [row["label"] for row in found["active"]] == ["boats", "lamps"]
        assert found["active"][1]["sessionKey"] == record.child_key
        steered = await tool(stage, action="steer", target="lamps", message="Never end.")
        assert (steered["status"], steered["runId"]) == ("accepted", record.run_id)
        again = await tool(stage, action="steer", target="2", message="And the south.")
        assert "less than 2 s ago" in again["error"]
        killed = await tool(stage, action="kill", target="boats")
        assert (killed["status"], killed["killed"]) == ("ok", 1)
        assert "needs a target" in (await tool(stage, action="kill"))["error"]
        assert "1 to 4000" in (await tool(stage, action="steer", target="1"))["error"]


async def test_subagents_tool_sees_no_children_of_other_sessions(tmp_path: Path) -> None:
    async with open_stage(tmp_path) as stage:
        record = await spawn(stage, "lamps")
        assert (await tool(stage, OTHER))["total"] == 0
        for word in ("all", "1", "lamps", record.child_key):
            await tool(stage, OTHER, action="kill", target=word)
            await tool(stage, OTHER, action="steer", target=word, message="Stop it.")
        assert await status(stage, "lamps") == "running"
        assert "Stop it." not in str(stage.model.requests[-1].messages[-1])


async def test_subagents_tool_list_ends_at_recent_minutes(tmp_path: Path) -> None:
    async with open_stage(tmp_path) as stage:
        await spawn(stage, "files", "count")
        await stage.idle()
        for given in (30, 1440, 99_999, -5):
            found = await tool(stage, recentMinutes=given)
            assert [row["label"] for row in found["recent"]] == ["files"]
