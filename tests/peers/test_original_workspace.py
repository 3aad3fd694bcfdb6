"""A workspace that OpenClaw made loads unchanged, and a chat leaves it unchanged."""

import json
import os
from pathlib import Path

import pytest

from homarus.agent.prompt.injection import file_names_for
from homarus.agent.prompt.workspace_files import WorkspaceFileReader
from homarus.agent.workspace import read_state
from homarus.testing.model_server import ModelServer, Say
from tests.e2e.program import Home
from tests.peers.gateway import new_home
from tests.peers.install import Original, bare_env

pytestmark = [pytest.mark.peers, pytest.mark.timeout(1200)]  # the first run installs it

EXPECTED = {"AGENTS.md", "SOUL.md", "TOOLS.md", "IDENTITY.md", "USER.md", "HEARTBEAT.md"}


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Return every file below a folder with bytes and modification time, including git's."""
    return {
        str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.is_symlink()
    }


@pytest.fixture
def lived_in(original: Original, tmp_path: Path) -> Path:
    """Return what OpenClaw's `setup` makes, with a memory file added."""
    home, workspace = tmp_path / "original", tmp_path / "workspace"
    home.mkdir()
    done = original.run("setup", "--workspace", str(workspace), env=bare_env(home), cwd=home)
    assert done.status == 0, done.err
    (workspace / "MEMORY.md").write_text("- Ann's boat is called Lobster.\n", encoding="utf-8")
    return workspace


@pytest.fixture
def home(lived_in: Path, model: ModelServer, tmp_path: Path) -> Home:
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "TZ") if name in os.environ}
    ours = tmp_path / "ours"
    ours.mkdir()
    home = new_home(ours, kept, model)
    file = home.state / "openclaw.json"
    config = json.loads(file.read_text(encoding="utf-8"))
    config["agents"]["defaults"]["workspace"] = str(lived_in)
    home.configure(config)
    return home


def test_openclaw_workspace_loads_and_chat_changes_nothing(
    home: Home, lived_in: Path, model: ModelServer
) -> None:
    before = contents(lived_in)
    assert EXPECTED | {"BOOTSTRAP.md"} <= before.keys()
    assert read_state(lived_in).get("bootstrapSeededAt")
    loaded = {
        file.name: file for file in WorkspaceFileReader().load(lived_in, file_names_for("main"))
    }
    for name in EXPECTED:
        assert loaded[name].text == before[name][0].decode().strip() and not loaded[name].missing
    model.script([Say("Ahoy.")])
    done = home.run("agent", "--message", "Hello", "--json")
    assert done.status == 0, done.err
    assert "Ahoy." in done.out
    sent = json.dumps(model.requests[-1].body, ensure_ascii=False)
    assert "Ann's boat is called Lobster." in sent
    assert "BOOTSTRAP.md comes first" in sent
    assert contents(lived_in) == before
    assert home.run("setup").status == 0  # which fills in what is missing, and only that
    after = contents(lived_in)
    assert {name: after[name] for name in before} == before


def test_own_workspace_is_left_unchanged_by_openclaw(
    original: Original, home: Home, model: ModelServer, tmp_path: Path
) -> None:
    workspace = tmp_path / "made-by-us"
    file = home.state / "openclaw.json"
    config = json.loads(file.read_text(encoding="utf-8"))
    config["agents"]["defaults"]["workspace"] = str(workspace)
    home.configure(config)
    model.script([Say("Ahoy.")])
    assert home.run("agent", "--message", "Hello", "--json").status == 0
    (workspace / "BOOTSTRAP.md").unlink()
    before = contents(workspace)
    env = {**home.env, **bare_env(tmp_path / "original")}
    done = original.run("setup", "--workspace", str(workspace), env=env, cwd=tmp_path)
    assert done.status == 0, done.err
    after = contents(workspace)
    assert "BOOTSTRAP.md" not in after
    ours = {name: data for name, (data, _) in before.items() if not name.startswith(".")}
    assert {name: data for name, (data, _) in after.items() if not name.startswith(".")} == ours
