"""Skills in the prompts of sessions: the list, the snapshot, and when they change."""

import asyncio
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from homarus.agent.prompt.preview import preview_prompt
from homarus.config.load import load_config
from homarus.core.message import Address, Inbound, InboundMetadata
from tests.unit.agent.skill_builders import MAIN, open_stage, write_skill

EXPECTED = """<available_skills>
  <skill>
    <name>weather</name>
    <description>Forecasts &amp; rain.</description>
    <location>~/.openclaw/workspace/skills/weather/SKILL.md</location>
  </skill>
</available_skills>"""


async def test_workspace_skill_is_listed_with_a_short_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_skill(tmp_path / ".openclaw/workspace/skills", "weather", "Forecasts & rain.")
    async with open_stage(tmp_path, monkeypatch) as stage:
        await stage.say("hi")
        assert EXPECTED in stage.systems()[-1]
        snapshot = await stage.snapshot()
        assert snapshot["prompt"] == EXPECTED and snapshot["skills"] == [{"name": "weather"}]
        report: Any = (await stage.app.control.load(MAIN)).record.data["systemPromptReport"]
        (entry,) = report["skills"]["entries"]
        assert entry["name"] == "weather" and report["skills"]["promptChars"] > 100
        preview = await preview_prompt(stage.app.preview, MAIN)
        assert EXPECTED in preview.prompt.text


async def test_prompt_is_the_same_bytes_until_the_next_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write_skill(tmp_path / ".openclaw/skills", "weather", "Forecasts.")
    load = {"load": {"watchDebounceMs": 0}}
    async with open_stage(tmp_path, monkeypatch, skills=load) as stage:
        await stage.say("one")
        (stage.managed / "weather" / "notes.txt").write_text("unrelated")
        (stage.workspace / "todo.txt").write_text("unrelated")
        await stage.say("two")
        file.write_text("---\nname: weather\ndescription: Storms.\n---\n")
        write_skill(stage.managed, "tides")
        await stage.say("three")
        first, second, third = stage.systems()
        assert first == second == third and "Forecasts." in first
        await stage.say("/new")
        await stage.say("four")
        assert "Storms." in stage.systems()[-1] and "<name>tides</name>" in stage.systems()[-1]
        await stage.say("five", "agent:main:other")
        assert "Storms." in stage.systems()[-1]
        await stage.say("six")
        assert stage.systems()[-1] == stage.systems()[-3]


async def test_skill_without_watch_is_seen_after_a_reload(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_skill(tmp_path / ".openclaw/skills", "weather")
    load = {"load": {"watch": False, "watchDebounceMs": 0}}
    async with open_stage(tmp_path, monkeypatch, skills=load) as stage:
        await stage.say("one")
        write_skill(stage.managed, "tides")
        await stage.say("two", "agent:main:two")
        assert "tides" not in stage.systems()[-1]
        await stage.app.reload(stage.app.loaded)
        await stage.say("three", "agent:main:three")
        assert "<name>tides</name>" in stage.systems()[-1]


async def test_skill_that_is_switched_off_leaves_a_running_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("weather", "tides"):
        write_skill(tmp_path / ".openclaw/skills", name)
    async with open_stage(tmp_path, monkeypatch) as stage:
        await stage.say("one")
        assert "<name>tides</name>" in stage.systems()[-1]
        file = tmp_path / ".openclaw" / "openclaw.json"
        config = json.loads(file.read_text())
        config["skills"]["entries"] = {"tides": {"enabled": False}}
        file.write_text(json.dumps(config))
        await stage.app.reload(load_config(stage.app.paths, dict(stage.app.loaded.env)))
        await stage.say("two")
        system = stage.systems()[-1]
        assert "<name>tides</name>" not in system and "<name>weather</name>" in system


@pytest.mark.parametrize(
    ("own", "chat", "expected"),
    [
        (None, (None, None), ["tides", "weather"]),
        (["weather"], (None, None), ["weather"]),
        ([], (None, None), []),
        (None, (["tides"], None), ["tides"]),
        (None, (["tides"], ["weather"]), ["weather"]),
        (["weather"], (["tides"], None), []),
        (["weather", "tides"], (["tides", "more"], None), ["tides"]),
        (None, ([], None), []),
    ],
)
async def test_lists_of_agent_group_and_topic_narrow_the_skills(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: Any, chat: Any, expected: Any
) -> None:
    group, topic = chat
    for name in ("weather", "tides"):
        write_skill(tmp_path / ".openclaw/skills", name)
    settings = {"skills": group} if group is not None else {}
    settings |= {"topics": {"7": {"skills": topic}}} if topic is not None else {}
    telegram = {"enabled": False, "groups": {"-100": settings}}
    listed = [{"id": "main", **({} if own is None else {"skills": own})}]
    agents, channels = {"list": listed}, {"telegram": telegram}
    async with open_stage(tmp_path, monkeypatch, agents=agents, channels=channels) as stage:
        key = "agent:main:telegram:group:-100:topic:7"
        address = Address("telegram", "-100", thread="7")
        given = Inbound("m1", address, "5", "hi", metadata=InboundMetadata(kind="group"))
        await stage.app.control.ask(key, given)
        system = stage.systems()[-1]
        assert re.findall(r"<name>(.*)</name>", system) == expected
        assert ("<available_skills>" in system) == bool(expected)
        snapshot = await stage.snapshot(key)
        assert [each["name"] for each in snapshot["skills"]] == expected
        commands = [each.name for each in stage.app.skill_ports.commands(key, given)]
        assert commands == expected


async def test_skills_without_room_are_named_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(4):
        write_skill(tmp_path / ".openclaw/skills", f"skill-{number}")
    limits = {"limits": {"maxSkillsInPrompt": 2}}
    async with open_stage(tmp_path, monkeypatch, skills=limits) as stage:
        await stage.say("hi")
        assert stage.systems()[-1].count("<skill>") == 2
        logged = capsys.readouterr().err
        assert "no room for 2 skills: skill-2, skill-3" in logged
        await stage.say("again")
        assert "no room" not in capsys.readouterr().err  # the snapshot is taken once
        assert (await stage.use("read", path="~/.openclaw/skills/skill-3/SKILL.md")).endswith(
            "Do it."
        )


async def test_skills_are_imported_by_preload_and_yaml_by_need(tmp_path: Path) -> None:
    code = """
import asyncio, sys
from homarus.process import open_app

async def main():
    async with open_app({"HOME": sys.argv[1], "PATH": "/usr/bin"}) as app:
        print(sorted(name for name in sys.modules if
            name.startswith("homarus.skills.") and not name.endswith("loader")))
        await app.preload()
        print("homarus.skills.find" in sys.modules, "yaml" in sys.modules)

asyncio.run(main())
"""
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", code, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    # The headers of bundled skills are so simple that no parser of YAML is needed.
    assert done.stdout.split("\n")[:2] == ["[]", "True False"], done.stdout + done.stderr
