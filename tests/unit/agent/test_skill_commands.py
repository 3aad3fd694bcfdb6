"""Commands of skills in the complete program: by name, by `/skill`, and as direct tool calls."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from homarus.agent.approval_ports import ApproverIdentity
from homarus.core.message import ToolCall
from tests.unit.agent.skill_builders import MAIN, SECRET, SkillStage, open_stage, write_skill
from tests.waiting import until

FULL_EXEC = {"exec": {"security": "full", "ask": "off"}}
DISPATCH = {"command_dispatch": "tool", "command_tool": "exec", "command_arg_mode": "raw"}


async def last_question(stage: SkillStage, key: str = MAIN) -> str:
    messages = (await stage.app.control.load(key)).messages
    return [each.text for each in messages if each.role == "user"][-1]


async def test_command_of_a_skill_starts_a_run_that_uses_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata = {"openclaw": {"primaryEnv": "WEATHER_KEY"}}
    write_skill(
        tmp_path / ".openclaw/skills", "Weather-Now", metadata=metadata,
        disable_model_invocation="true",
    )  # fmt: skip
    skills = {"entries": {"Weather-Now": {"apiKey": SECRET}}}
    async with open_stage(tmp_path, monkeypatch, skills=skills, tools=FULL_EXEC) as stage:
        call = f"MOCK:tool:exec:{json.dumps({'command': 'echo ${#WEATHER_KEY}'})}§"
        await stage.say(f"/weather_now {call}")
        asked = await last_question(stage)
        path = "~/.openclaw/skills/Weather-Now/SKILL.md"
        assert f"Use the skill Weather-Now: read {path} and follow it.\n\nMOCK" in asked
        assert (await stage.results())[-1].text == str(len(SECRET))
        assert "<available_skills>" not in stage.systems()[-1]  # only people invoke it
        await stage.say(call)  # the model has not read it
        assert (await stage.results())[-1].text == "0"
        await stage.say("/skill weather-now in Oslo")
        assert (await last_question(stage)).endswith("and follow it.\n\nin Oslo")
        assert (await stage.use("read", path=path)).endswith("Do it.")


async def test_skill_command_lists_and_names_what_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / ".openclaw/skills"
    write_skill(root, "weather", "Forecasts.")
    write_skill(root, "status", "Another status.")
    write_skill(root, "hidden", user_invocable="false")
    async with open_stage(tmp_path, monkeypatch) as stage:
        listed = await stage.say("/skill")
        lines = ["/status_2 [input] - Another status.", "/weather [input] - Forecasts."]
        assert listed.splitlines() == ["Skills:", *lines]
        commands = await stage.say("/commands")
        assert "\n".join(["Skills:", *lines]) in commands and "/skill <name>" in commands
        with pytest.raises(AssertionError, match=r"unknown skill 'wether'.*weather"):
            await stage.say("/skill wether now")
        with pytest.raises(AssertionError, match="unknown skill 'hidden'"):
            await stage.say("/skill hidden")
        await stage.say("/hidden and more")
        assert (await last_question(stage)).endswith("/hidden and more")
        await stage.say("/weather now", authority="stranger")
        assert (await last_question(stage)).endswith("/weather now")


async def test_dispatched_command_calls_the_tool_without_a_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_skill(tmp_path / ".openclaw/skills", "say", **DISPATCH)
    async with open_stage(tmp_path, monkeypatch, tools=FULL_EXEC) as stage:
        assert await stage.say("/say echo one  two") == "one two"
        assert stage.server.requests == []
        session = await stage.app.control.load(MAIN)
        parts = [part for message in session.messages for part in message.parts]
        (call,) = [part for part in parts if isinstance(part, ToolCall)]
        assert (call.name, call.args) == ("exec", {"command": "echo one  two"})
        await stage.app.audit.write()
        rows = await stage.app.store.audit_entries()
        kinds = [row.kind for row in rows if row.tool == "exec"]
        assert kinds == ["decision", "execution"], kinds
        await stage.say("and now the model")
        assert len(stage.server.requests) == 1


@pytest.mark.parametrize("answer", ["allow-once", "deny"])
async def test_dispatched_command_is_asked_about_as_any_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    write_skill(tmp_path / ".openclaw/skills", "say", **DISPATCH)
    async with open_stage(tmp_path, monkeypatch) as stage:
        approver = stage.answer_questions(answer)
        reply = await stage.say("/say touch made.txt")
        assert len(approver.asked) == 1 and "touch made.txt" in approver.asked[0]
        assert (stage.workspace / "made.txt").exists() == (answer == "allow-once")
        assert ("denied" in reply) == (answer == "deny") and stage.server.requests == []


async def test_dispatched_command_waits_suspended_for_its_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_skill(tmp_path / ".openclaw/skills", "say", **DISPATCH)
    async with open_stage(tmp_path, monkeypatch, approvals={"waitSeconds": 0}) as stage:
        stage.app.approval_ports.reach.append(lambda _record: True)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(stage.say("/say touch made.txt"))
            await until(lambda: stage.app.control.has_suspended(MAIN))
            (record,) = await stage.app.approvals().list_pending()
            await stage.app.approvals().resolve(record.id, "allow-once", ApproverIdentity("anna"))
        assert (stage.workspace / "made.txt").exists() and stage.server.requests == []
        assert task.result() and len(await stage.results()) == 1


async def test_dispatched_command_for_a_denied_tool_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_skill(tmp_path / ".openclaw/skills", "say", **DISPATCH)
    write_skill(tmp_path / ".openclaw/skills", "odd", **{**DISPATCH, "command_tool": "nothing"})
    async with open_stage(tmp_path, monkeypatch, tools={"deny": ["exec"]}) as stage:
        assert "denied" in await stage.say("/say true")
        with pytest.raises(AssertionError, match="calls the tool nothing, which this"):
            await stage.say("/odd x")


async def test_skill_message_does_not_steer_a_running_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_skill(tmp_path / ".openclaw/skills", "say", **DISPATCH)
    async with open_stage(tmp_path, monkeypatch, tools=FULL_EXEC) as stage:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(stage.say(f"/say echo {n}")) for n in range(3)]
        assert sorted(task.result() for task in tasks) == ["0", "1", "2"]


@pytest.mark.parametrize(
    ("common", "setting", "is_listed"),
    [
        ({}, "auto", True),
        ({"nativeSkills": False}, "auto", False),
        ({"nativeSkills": False}, True, True),
        ({"nativeSkills": True}, False, False),
        ({"native": False}, "auto", False),
    ],
)
async def test_native_commands_follow_the_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, common: Any, setting: Any, is_listed: bool
) -> None:
    local = {"openclaw": {"invocation": {"allowRemote": False}}}
    write_skill(tmp_path / ".openclaw/skills", "weather", "Forecasts.")
    write_skill(tmp_path / ".openclaw/skills", "private", metadata=local)
    write_skill(tmp_path / ".openclaw/workspace-ops/skills", "deploy")
    agents = {"list": [{"id": "main"}, {"id": "ops"}]}
    async with open_stage(tmp_path, monkeypatch, agents=agents, commands=common) as stage:
        expected = [("weather", "Forecasts."), ("deploy", "About deploy.")]
        found = stage.app.skill_ports.native_commands(setting)
        assert [(each.name, each.description) for each in found] == (expected if is_listed else [])
        assert all([option.name for option in each.options] == ["input"] for each in found)
