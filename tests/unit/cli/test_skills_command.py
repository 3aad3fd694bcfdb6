"""`homarus skills`: what can be used, what each of the others lacks, and files with mistakes."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from homarus.cli.doctor import command as doctor
from homarus.cli.skills import command
from homarus.core.errors import UnknownNameError
from tests.unit.skills.builders import write_skill

LACKING: dict[str, Any] = {
    "requires": {"bins": ["no-such-bin"], "env": ["X_API_KEY"]},
    "primaryEnv": "X_API_KEY",
    "install": [{"kind": "brew", "formula": "x", "label": "Install x"}],
}


def run(*args: str) -> Result:
    return CliRunner().invoke(command, args, standalone_mode=False)


def done(*args: str) -> str:
    result = run(*args)
    assert result.exception is None, result.exception
    return result.output


@pytest.fixture
def skills(home: Path) -> Path:
    """Return a folder with skills: one ready, one lacking, one disabled, one broken."""
    folder = home / ".openclaw" / "skills"
    write_skill(folder, "ready-one")
    write_skill(folder, "lacking-one", **LACKING)
    write_skill(folder, "disabled-one")
    write_skill(folder, "broken-one", "name: [x]\n")
    config = {
        "skills": {"entries": {"disabled-one": {"enabled": False}}},
        "agents": {"list": [{"id": "main"}, {"id": "two", "skills": ["lacking-one"]}]},
    }
    (home / ".openclaw" / "openclaw.json").write_text(json.dumps(config))
    return folder


def named(payload: str) -> dict[str, Any]:
    return {one["name"]: one for one in json.loads(payload)["skills"] if not one["bundled"]}


def test_skills_list_shows_states_and_problems(skills: Path) -> None:
    for shown in (done("list"), done()):
        assert "✓ ready    ready-one" in shown and "What ready-one does." in shown
        assert "✗ missing  lacking-one" in shown and "- disabled disabled-one" in shown
        assert "broken-one/SKILL.md: its name is not text" in shown
        assert "no-such-bin" not in shown
    verbose = done("list", "-v")
    assert (
        "the program no-such-bin is not on the PATH: homarus skills install lacking-one" in verbose
    )
    assert "homarus config set skills.entries.disabled-one.enabled true" in verbose
    eligible = done("list", "--eligible")
    assert "ready-one" in eligible and "lacking-one" not in eligible


def test_skills_list_json_has_openclaws_fields(skills: Path) -> None:
    entry = named(done("list", "--json"))["lacking-one"]
    assert entry["missing"] == {
        "bins": ["no-such-bin"], "anyBins": [], "env": ["X_API_KEY"], "config": [], "os": [],
    }  # fmt: skip
    assert (entry["eligible"], entry["primaryEnv"]) == (False, "X_API_KEY")
    assert named(done("list", "--json", "--eligible")).keys() == {"ready-one"}
    assert named(done("list", "--json", "--eligible", "--agent", "two")) == {}


def test_skills_info_explains_each_gate(skills: Path) -> None:
    shown = done("info", "lacking-one")
    assert "lacking-one: missing" in shown and "~/.openclaw/skills/lacking-one/SKILL.md" in shown
    assert "Install x [brew-0]" in shown
    assert "the variable X_API_KEY has no value: homarus config set" in shown
    assert json.loads(done("info", "lacking-one", "--json"))["skillKey"] == "lacking-one"
    assert "ready-one: blocked" in (other := done("info", "ready-one", "--agent", "two"))
    assert "the list of the agent's skills leaves it out" in other


def test_skills_info_says_that_allowed_tools_restrict_nothing(skills: Path) -> None:
    text = "description: x\nallowed-tools: Bash(git:*) Read\nlicense: MIT\ncompatibility: Git\n"
    write_skill(skills, "format", text)
    shown = done("info", "format")
    assert "Bash(git:*), Read (its author's list; it restricts nothing)" in shown
    assert "MIT" in shown and "Git" in shown
    assert json.loads(done("info", "format", "--json"))["allowedTools"] == ["Bash(git:*)", "Read"]


def test_skills_info_unknown_name_suggests_the_nearest(skills: Path) -> None:
    error = run("info", "redy-one").exception
    assert isinstance(error, UnknownNameError) and "did you mean ready-one" in error.fix
    error = run("info", "something else").exception
    assert isinstance(error, UnknownNameError) and "homarus skills list" in error.fix


def test_skills_check_explains_every_skill(skills: Path) -> None:
    shown = done("check")
    assert "✗ lacking-one: missing\n    the program no-such-bin" in shown
    assert "- disabled-one: disabled\n    it is switched off in the config: homarus" in shown
    assert "Not read as skills:" in shown
    payload = json.loads(done("check", "--json"))
    assert "ready-one" in payload["eligible"] and payload["disabled"] == ["disabled-one"]
    assert payload["summary"]["problems"] == 1
    missing = {one["name"]: one for one in payload["missingRequirements"]}
    assert missing["lacking-one"]["install"][0]["id"] == "brew-0"


def test_doctor_names_skill_files_with_mistakes_and_unknown_names(skills: Path) -> None:
    config = skills.parent / "openclaw.json"
    named = {
        "skills": {"entries": {"redy-one": {}}, "allowBundled": ["nothing-like-it"]},
        "agents": {"list": [{"id": "main", "skills": ["disabled-ones"]}]},
    }
    config.write_text(json.dumps(named))
    result = CliRunner().invoke(doctor, ["--json"], standalone_mode=False)
    rows = [row for row in json.loads(result.output)["findings"] if row["about"] == "skills"]
    texts = [row["text"] for row in rows]
    assert any("broken-one/SKILL.md: its name is not text" in text for text in texts)
    assert "skills.entries: there is no skill redy-one" in texts
    assert "skills.allowBundled: there is no skill nothing-like-it" in texts
    assert "skills of the agent main: there is no skill disabled-ones" in texts
    assert any("did you mean ready-one" in row["fix"] for row in rows)
    config.write_text("{}")
    (skills / "broken-one" / "SKILL.md").unlink()
    result = CliRunner().invoke(doctor, ["--json"], standalone_mode=False)
    [row] = [row for row in json.loads(result.output)["findings"] if row["about"] == "skills"]
    assert row["state"] == "ok"


def test_skills_texts_of_authors_cannot_control_the_terminal(skills: Path) -> None:
    write_skill(skills, "evil", 'name: evil\ndescription: "a\\e[2Jb\\u202ec"\n')
    for shown in (done("list"), done("info", "evil"), done("check")):
        assert "\x1b" not in shown and "\u202e" not in shown
