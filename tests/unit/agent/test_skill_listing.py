"""Skills in the prompts of sessions: the list, the snapshot, and when they change."""

import json
from pathlib import Path
from typing import Any

import pytest

from homarus.agent.prompt.preview import preview_prompt
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
    from homarus.config.load import load_config

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
