"""`homarus skills deps` and `install --deps`: what is shown, asked, installed and checked again."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from homarus.cli import skill_dependencies
from homarus.cli.skills import command
from homarus.core.errors import UnknownNameError, UserError
from tests.unit.skills.install_builders import BREW, add_program, write_install_skill

pytestmark = pytest.mark.timeout(60)


class TypedAnswer:
    """A person at the terminal who types one answer; stands in for the prompt."""

    def __init__(self, decision: str) -> None:
        self.decision, self.shown = decision, list[str]()

    async def decide(self, title: str, detail: str, *, offers_always: bool) -> str:
        assert not offers_always
        self.shown.append(f"{title}\n{detail}")
        return self.decision


@pytest.fixture
def skill(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of programs, with a stand-in for brew that makes the missing one."""
    folder = home / "bin"
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    add_program(folder, "brew", f"echo brewing; cp {folder}/brew {folder}/prog")
    write_install_skill(home / ".openclaw" / "skills", BREW)
    return folder


def answer(monkeypatch: pytest.MonkeyPatch, decision: str) -> TypedAnswer:
    person = TypedAnswer(decision)
    monkeypatch.setattr(skill_dependencies, "_make_prompt", lambda **_named: person)
    return person


def run(*args: str) -> Result:
    return CliRunner().invoke(command, args, standalone_mode=False)


@pytest.mark.parametrize("args", [("deps", "helper"), ("install", "helper", "--deps")])
def test_deps_that_are_allowed_are_installed_and_checked(
    skill: Path, monkeypatch: pytest.MonkeyPatch, args: tuple[str, ...]
) -> None:
    person = answer(monkeypatch, "allow-once")
    result = run(*args)
    assert result.exception is None, result.exception
    assert "  brewing\ninstalled\nhelper can be used\n" in result.output
    assert "    brew install prog" in person.shown[0] and (skill / "prog").exists()


def test_deps_that_are_denied_are_not_installed(
    skill: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer(monkeypatch, "deny")
    result = run("deps", "helper")
    assert isinstance(result.exception, UserError) and "was denied by" in str(result.exception)
    assert "helper cannot be used yet\n  the program prog is not on the PATH" in result.output
    assert not (skill / "prog").exists()


def test_deps_without_a_person_are_shown_and_refused(skill: Path) -> None:
    result = run("deps", "helper")
    assert "command: brew install prog" in result.output
    assert "no approver can be reached" in str(result.exception)
    assert not (skill / "prog").exists()


def test_deps_dry_run_shows_everything_and_asks_nothing(
    skill: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    person = answer(monkeypatch, "allow-once")
    result = run("deps", "helper", "--dry-run")
    assert result.exception is None and "command: brew install prog" in result.output
    assert person.shown == [] and not (skill / "prog").exists()


def test_deps_as_json_is_one_object(skill: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch, "allow-once")
    result = run("deps", "helper", "--json", "--id", "brew")
    report: dict[str, Any] = json.loads(result.output)
    assert report["eligible"] is True and report["reasons"] == []
    assert report["results"] == [
        {"id": "brew", "ok": True, "message": "installed", "stdout": "brewing\n", "stderr": "",
         "code": 0}
    ]  # fmt: skip


def test_deps_of_a_skill_that_lacks_nothing_does_nothing(skill: Path) -> None:
    add_program(skill, "prog", "true")
    result = run("deps", "helper")
    assert "There is nothing to install for helper." in result.output
    assert result.exception is None


def test_deps_of_an_unknown_skill_suggest_the_nearest(skill: Path) -> None:
    assert isinstance(run("deps", "helpr").exception, UnknownNameError)
