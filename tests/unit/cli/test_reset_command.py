"""`homarus reset`: what each scope moves, that nothing is lost, and when it refuses."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from homarus.cli.reset import FOLDER, command
from homarus.core.errors import HomarusError, StateInUseError, UserError
from homarus.store.lock import StateLock

FILES = {
    "openclaw.json": "{}",
    "homarus.json": "{}",
    "state.sqlite": "db",
    "state.sqlite-wal": "log",
    "credentials/telegram/default.json": "token",
    "agents/main/agent/auth-profiles.json": "keys",
    "agents/main/sessions/s.jsonl": "said",
    "devices/paired.json": "devices",
    "workspace/SOUL.md": "soul",
}


@pytest.fixture
def state(home: Path) -> Path:
    state = home / ".openclaw"
    for name, text in FILES.items():
        (state / name).parent.mkdir(parents=True, exist_ok=True)
        (state / name).write_text(text)
    return state


def run(*args: str) -> Result:
    return CliRunner().invoke(command, args, standalone_mode=False)


def told(*args: str) -> Any:
    done = run(*args, "--json")
    assert done.exception is None, done.exception
    return json.loads(done.stdout)


def left(state: Path) -> set[str]:
    return {name for name in FILES if (state / name).exists()}


@pytest.mark.parametrize(
    ("scope", "stays"),
    [
        ("config", {*FILES} - {"openclaw.json", "homarus.json"}),
        ("config+creds+sessions", {"devices/paired.json", "workspace/SOUL.md"}),
        ("full", set[str]()),
    ],
)
def test_reset_moves_its_scope_and_loses_nothing(state: Path, scope: str, stays: set[str]) -> None:
    listed = told("--scope", scope, "--dry-run")
    assert listed["movedTo"] is None and left(state) == {*FILES}
    done = told("--scope", scope, "--yes")
    assert left(state) == stays and done["paths"] == listed["paths"]
    for name in {*FILES} - stays:
        assert (Path(done["movedTo"]) / name).read_text() == FILES[name]
    assert told("--scope", "config", "--yes")["movedTo"] is None


def test_reset_moves_a_workspace_elsewhere_and_later_resets_beside(state: Path, home: Path) -> None:
    other = home / "notes"
    other.mkdir()
    (other / "SOUL.md").write_text("mine")
    config = {"agents": {"defaults": {"workspace": str(other)}}}
    (state / "openclaw.json").write_text(json.dumps(config))
    first = told("--scope", "full", "--yes")
    assert not other.exists()
    assert (Path(first["movedTo"]) / "outside/notes/SOUL.md").read_text() == "mine"
    (state / "openclaw.json").write_text("{}")
    second = told("--scope", "full", "--yes")
    assert second["movedTo"] != first["movedTo"]
    assert len(list((state / FOLDER).iterdir())) == 2


def test_reset_of_a_workspace_that_is_the_home_is_refused(state: Path, home: Path) -> None:
    config = {"agents": {"defaults": {"workspace": str(home)}}}
    (state / "openclaw.json").write_text(json.dumps(config))
    error = run("--scope", "full", "--yes").exception
    assert isinstance(error, HomarusError) and "more than an agent's files" in error.message
    assert left(state) == {*FILES}


def test_reset_while_the_state_is_in_use_is_refused(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("homarus.store.lock.WAIT_S", 0.01)
    lock = StateLock(state)
    try:
        error = run("--scope", "config", "--yes").exception
        assert isinstance(error, StateInUseError) and error.fix == "homarus gateway stop"
        assert left(state) == {*FILES}
    finally:
        lock.release()


@pytest.mark.parametrize(
    ("args", "told"),
    [((), "what to reset"), (("--scope", "config"), "cannot ask here")],
)
def test_reset_that_cannot_ask_moves_nothing(state: Path, args: tuple[str, ...], told: str) -> None:
    error = run(*args).exception
    assert isinstance(error, UserError) and told in error.message and left(state) == {*FILES}


def test_reset_does_not_follow_links(state: Path, home: Path) -> None:
    target = home / "elsewhere"
    target.mkdir()
    (target / "x").write_text("kept")
    (state / "agents/main/sessions/s.jsonl").unlink()
    (state / "agents/main/sessions").rmdir()
    (state / "agents/main/sessions").symlink_to(target)
    done = told("--scope", "config+creds+sessions", "--yes")
    assert (target / "x").read_text() == "kept"
    assert (Path(done["movedTo"]) / "agents/main/sessions").is_symlink()
