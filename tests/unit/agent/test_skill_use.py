"""What a run does with a skill: read it, run its programs, and be given its variables."""

import json
import os
import socket
from pathlib import Path

import pytest

from homarus.core.untrusted import wrap_untrusted
from tests.unit.agent.skill_builders import MAIN, SECRET, open_stage, write_skill
from tests.unit.tools.sandbox_builders import FakeSandbox

ENTRY = {"apiKey": SECRET, "env": {"WEATHER_UNITS": "metric"}}
FULL_EXEC = {"exec": {"security": "full", "ask": "off"}}
METADATA = {"openclaw": {"primaryEnv": "WEATHER_KEY"}}
PRINT = 'printf "%s|%s" "$WEATHER_KEY" "$WEATHER_UNITS"'
OTHER = "agent:main:other"


def make_weather(home: Path) -> Path:
    file = write_skill(home / ".openclaw/skills", "weather", metadata=METADATA, body="Look up.")
    (file.parent / "references").mkdir()
    (file.parent / "references" / "units.md").write_text("metric or imperial\n")
    script = file.parent / "forecast.sh"
    script.write_text('#!/bin/sh\ntest -n "$WEATHER_KEY" && echo "key of ${#WEATHER_KEY}"\n')
    script.chmod(0o755)
    return file


async def test_listed_skill_and_its_files_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_weather(tmp_path)
    tools = {"fs": {"workspaceOnly": True}}
    async with open_stage(tmp_path, monkeypatch, tools=tools) as stage:
        folder = "~/.openclaw/skills/weather"
        assert (await stage.use("read", path=f"{folder}/SKILL.md")).endswith("Look up.")
        assert await stage.use("read", path=f"{folder}/references/units.md") == "metric or imperial"
        listed = await stage.use("ls", path=f"{stage.managed}/weather")
        assert listed.split() == ["SKILL.md", "forecast.sh", "references/"]
        for outside in (f"{folder}/../../openclaw.json", "~/.openclaw/skills", "~/.openclaw"):
            assert "outside the workspace" in await stage.use("read", path=outside)
        refused = await stage.use("write", path=f"{folder}/SKILL.md", content="x")
        assert "outside the workspace" in refused


async def test_skill_that_is_not_offered_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_weather(tmp_path)
    skills = {"entries": {"weather": {"enabled": False}}}
    async with open_stage(tmp_path, monkeypatch, skills=skills) as stage:
        path = "~/.openclaw/skills/weather/SKILL.md"
        assert "outside the workspace" in await stage.use("read", path=path)


async def test_commands_get_the_variables_once_the_skill_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_weather(tmp_path)
    skills = {"entries": {"weather": ENTRY}}
    async with open_stage(tmp_path, monkeypatch, skills=skills, tools=FULL_EXEC) as stage:
        assert await stage.use("exec", command=PRINT) == "|"
        await stage.use("read", path="~/.openclaw/skills/weather/SKILL.md")
        assert await stage.use("exec", command=PRINT) == "***|metric"
        script = "~/.openclaw/skills/weather/forecast.sh"
        assert await stage.use("exec", command=script) == f"key of {len(SECRET)}"
        assert await stage.use("exec", OTHER, command=PRINT) == "|"  # another session
        assert "WEATHER_KEY" not in os.environ
        await stage.say("/new")
        assert await stage.use("exec", command=PRINT) == "|"


async def test_key_is_in_no_transcript_request_or_audit_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make_weather(tmp_path)
    skills = {"entries": {"weather": ENTRY}}
    async with open_stage(tmp_path, monkeypatch, skills=skills, tools=FULL_EXEC) as stage:
        await stage.use("read", path="~/.openclaw/skills/weather/SKILL.md")
        await stage.use("exec", command='echo "$WEATHER_KEY" > key.txt; env')
        await stage.use("read", path="key.txt")
        assert (stage.workspace / "key.txt").read_text().strip() == SECRET  # the command had it
        await stage.app.audit.write()
        (stage.workspace / "key.txt").unlink()
        sent = json.dumps([each.body for each in stage.server.requests])
        assert SECRET not in sent and "***" in sent
    config = tmp_path / ".openclaw" / "openclaw.json"
    files = [file for file in tmp_path.rglob("*") if file.is_file() and file != config]
    assert not [file for file in files if SECRET.encode() in file.read_bytes()]
    assert SECRET not in capsys.readouterr().err


async def test_variable_that_changes_programs_is_not_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    metadata = {"openclaw": {"primaryEnv": "LD_PRELOAD"}}
    write_skill(tmp_path / ".openclaw/skills", "weather", metadata=metadata)
    entry = {"apiKey": SECRET, "env": {"PATH": "/elsewhere", "no good": "x", "OK": "1"}}
    skills = {"entries": {"weather": entry}}
    async with open_stage(tmp_path, monkeypatch, skills=skills, tools=FULL_EXEC) as stage:
        await stage.use("read", path="~/.openclaw/skills/weather/SKILL.md")
        shown = await stage.use("exec", command='echo "$OK$LD_PRELOAD"; echo "$PATH"')
        assert shown.splitlines()[0] == "1" and "/elsewhere" not in shown
        logged = capsys.readouterr().err
        assert logged.count("LD_PRELOAD") == 1 and SECRET not in logged


async def test_compaction_does_not_forget_that_a_skill_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_weather(tmp_path)
    skills = {"entries": {"weather": ENTRY}}
    async with open_stage(tmp_path, monkeypatch, skills=skills, tools=FULL_EXEC) as stage:
        await stage.use("read", path="~/.openclaw/skills/weather/SKILL.md")
        for number in range(6):
            await stage.say(f"more {number} " + "x" * 20_000)
        reply = await stage.say("/compact")
        results = await stage.results()
        assert not [each for each in results if "Look up." in each.text], reply
        assert await stage.use("exec", command=PRINT) == "***|metric"
        await stage.say("/new")
        assert "skillsRead" not in (await stage.app.control.load(MAIN)).record.data


async def test_sandboxed_session_reads_and_runs_a_skill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = make_weather(tmp_path)
    own = write_skill(tmp_path / ".openclaw/workspace/skills", "own", body="Mine.")
    skills = {"entries": {"weather": ENTRY}}
    agents = {"defaults": {"sandbox": {"mode": "non-main"}}}
    async with open_stage(tmp_path, monkeypatch, skills=skills, agents=agents) as stage:
        fake = FakeSandbox()
        stage.app.sandboxes()._backends["bubblewrap"] = fake
        await stage.say("hi", OTHER)
        system = stage.systems()[-1]
        assert f"<location>{file}</location>" in system and f"<location>{own}</location>" in system
        assert (await stage.use("read", OTHER, path=str(file))).endswith("Look up.")
        assert (await stage.use("read", OTHER, path=str(own))).endswith("Mine.")
        assert await stage.use("exec", OTHER, command=PRINT) == "***|metric"
        mounts = {mount.target: mount for spec in fake.prepared for mount in spec.mounts}
        for folder in (file.parent, own.parent):
            assert not mounts[str(folder)].is_writable
        refused = await stage.use("write", OTHER, path=str(file), content="x")
        assert "outside the workspace" in refused and file.read_text() != "x"


async def test_question_names_the_variables_and_not_their_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_weather(tmp_path)
    skills = {"entries": {"weather": ENTRY}}
    async with open_stage(tmp_path, monkeypatch, skills=skills) as stage:
        await stage.use("read", path="~/.openclaw/skills/weather/SKILL.md")
        approver = stage.answer_questions("deny")
        await stage.use("exec", command="python3 -c 1")
        (shown,) = approver.asked
        assert "variables of skills that this run uses: WEATHER_KEY, WEATHER_UNITS" in shown
        assert SECRET not in shown and "metric" not in shown


@pytest.mark.parametrize(
    ("tier", "is_allowed"), [(".openclaw/skills", True), (".openclaw/workspace/skills", False)]
)
async def test_programs_of_installed_skills_run_without_a_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tier: str, is_allowed: bool
) -> None:
    metadata = {"openclaw": {"requires": {"bins": ["hostname"]}}}
    write_skill(tmp_path / tier, "names", metadata=metadata)
    approvals = {"version": 1, "defaults": {"autoAllowSkills": True}}
    async with open_stage(tmp_path, monkeypatch) as stage:
        (tmp_path / ".openclaw" / "exec-approvals.json").write_text(json.dumps(approvals))
        approver = stage.answer_questions("deny")
        shown = await stage.use("exec", command="hostname")
        assert (shown == socket.gethostname()) == (not approver.asked) == is_allowed
        call = f"MOCK:tool:exec:{json.dumps({'command': 'hostname'})}§"
        await stage.say(f"{wrap_untrusted('a page', 'web', 'https://a.example')} {call}", OTHER)
        assert approver.asked and ("untrusted content" in approver.asked[-1]) == is_allowed


async def test_skill_for_local_use_is_not_offered_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = {"openclaw": {"invocation": {"allowRemote": False}, "primaryEnv": "WEATHER_KEY"}}
    write_skill(tmp_path / ".openclaw/skills", "weather", metadata=local)
    write_skill(tmp_path / ".openclaw/skills", "tides")
    skills, path = {"entries": {"weather": ENTRY}}, "~/.openclaw/skills/weather/SKILL.md"
    group = "agent:main:telegram:group:-100"
    async with open_stage(tmp_path, monkeypatch, skills=skills, tools=FULL_EXEC) as stage:
        await stage.use("read", path=path)
        assert "<name>weather</name>" in stage.systems()[-1]
        assert await stage.use("exec", command=PRINT) == "***|metric"
        # The same session, and a sender who is not its owner.
        call = f"MOCK:tool:exec:{json.dumps({'command': PRINT})}§"
        await stage.say(call, authority="authorised")
        assert (await stage.results())[-1].text == "|"
        assert "<name>weather</name>" not in stage.systems()[-1]
        assert "<name>tides</name>" in stage.systems()[-1]
        assert "outside the workspace" in await stage.use("read", group, path=path)
        assert "<name>weather</name>" not in stage.systems()[-1]
        assert "<name>tides</name>" in stage.systems()[-1]
        await stage.say("again")
        assert "<name>weather</name>" in stage.systems()[-1]
