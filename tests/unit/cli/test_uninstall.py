"""`homarus uninstall`: what it removes, what it asks, and what it never touches."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from homarus.agent.workspace import seed_workspace
from homarus.cli import uninstall, uninstall_plan
from homarus.config.paths import Paths
from homarus.store.lock import StateLock
from tests.style.rules import SRC

OURS = (
    "openclaw.json openclaw.json.bak homarus.json state.sqlite state.sqlite-wal gateway.json"
    " gateway.token gateway-hosts.json openclaw.last-good.json .env .openclaw.json.tmp"
    " agents/main/sessions/sessions.json agents/main/sessions/s1.jsonl"
    " agents/main/agent/auth-profiles.json credentials/telegram-pairing.json"
    " credentials/matrix/main.json devices/paired.json identity/device.json media/inbound/a.png"
    " memory/main.homarus.sqlite memory/main.homarus.sqlite-vectors logs/openclaw-2026-11-15.log"
    " gateway/tls/gateway-key.pem wizard.json chat-history.jsonl exec-approvals.json"
    " trash/x-1/agent/auth-profiles.json"
)
THEIRS = "cron/jobs.json canvas/index.html update-check.json memory/main.sqlite"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    for name in [*os.environ]:
        if name.startswith(("OPENCLAW_", "XDG_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setattr(uninstall, "_has_terminal", lambda: True)
    return folder


def fill(folder: Path, names: str) -> None:
    for name in names.split():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("{}")


def make_state(home: Path, config: object = None) -> Path:
    """A state directory with everything in it, its workspace, and downloaded models."""
    state = home / ".openclaw"
    fill(state, OURS)
    (state / "openclaw.json").write_text(json.dumps(config or {}))
    fill(home, ".cache/homarus/models/smollm2.gguf .cache/homarus/models/lists/a.json")
    seed_workspace(state / "workspace")
    return state


def test_uninstall_knows_every_file_of_the_state_directory() -> None:
    """A module that has a file there names it FILE, with that comment, or is listed in OURS."""
    found = set[str]()
    for module in SRC.rglob("*.py"):
        text = module.read_text(encoding="utf-8")
        found |= set(re.findall(r'^FILE\b.*? = "([\w.-]+)"', text, re.MULTILINE))
    known = (*uninstall_plan._OWN, *uninstall_plan._COMMON)
    # These are in a folder of an agent, in its workspace, or in that of a registry.
    below = {"auth-profiles.json", "IDENTITY.md", "tokens.json"}
    assert {"gateway.token", "wizard.json"} <= found
    assert not [name for name in found - below if not uninstall_plan._matches(name, known)]


def run(*args: str, answers: str = "") -> Result:
    return CliRunner().invoke(uninstall.command, args, input=answers)


def contents(folder: Path) -> dict[str, bytes]:
    found = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def test_uninstall_all_leaves_an_empty_home(home: Path) -> None:
    make_state(home)
    done = run("--all", "--yes")
    assert done.exit_code == 0, done.output
    assert list(home.iterdir()) == []
    assert "The program itself is still there" in done.output


def test_uninstall_asks_about_the_workspace_again(home: Path) -> None:
    state = make_state(home)
    done = run(answers="y\nn\n")
    assert "Remove the state and the models? [y/N]" in done.output
    assert "Remove ~/.openclaw/workspace, too?" in done.output
    assert [path.name for path in state.iterdir()] == ["workspace"]
    assert not (home / ".cache").exists()
    assert run(answers="y\n").exit_code == 0
    assert list(home.iterdir()) == []


@pytest.mark.parametrize("answers", ["n\n", "\n", ""])
def test_uninstall_without_consent_removes_nothing(home: Path, answers: str) -> None:
    make_state(home)
    before = contents(home)
    assert run(answers=answers).exit_code == 1
    assert contents(home) == before


def test_uninstall_yes_keeps_workspaces(home: Path) -> None:
    state = make_state(home)
    done = run("--yes")
    assert "~/.openclaw/workspace: --workspace removes it" in done.output
    assert [path.name for path in state.iterdir()] == ["workspace"]


def test_uninstall_without_terminal_needs_yes(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_state(home)
    before = contents(home)
    monkeypatch.setattr(uninstall, "_has_terminal", lambda: False)
    assert "cannot ask here" in str(run().exception)
    assert "cannot ask here" in str(run("--non-interactive").exception)
    assert contents(home) == before


def test_uninstall_dry_run_removes_nothing(home: Path) -> None:
    make_state(home)
    before = contents(home)
    done = run("--all", "--dry-run")
    assert done.exit_code == 0 and "Would be removed:" in done.output
    assert "~/.cache/homarus: downloaded models (2 files, 4 bytes)" in done.output
    assert contents(home) == before


def test_uninstall_in_empty_home_removes_nothing(home: Path) -> None:
    done = run("--all", "--yes")
    assert done.exit_code == 0 and "There is nothing to remove." in done.output
    assert list(home.iterdir()) == []


def test_uninstall_leaves_files_that_it_does_not_know(home: Path) -> None:
    state = make_state(home)
    fill(state, "notes.txt skillet/pan.md")
    done = run("--yes", "--workspace", "--state")
    assert "~/.openclaw/notes.txt: Homarus did not make it" in done.output
    assert sorted(path.name for path in state.iterdir()) == ["notes.txt", "skillet"]


def test_uninstall_removes_completion_scripts_and_names_lines(home: Path) -> None:
    make_state(home)
    script = home / ".config/fish/completions/homarus.fish"
    fill(home, ".config/fish/completions/homarus.fish .config/fish/config.fish")
    script.write_text("complete --no-files --command homarus")
    (home / ".bashrc").write_text('eval "$(homarus completion bash)"\n')
    done = run("--yes")
    assert not script.exists()
    assert "~/.bashrc: delete the line with `homarus completion` in it" in done.output
    assert {".bashrc", ".config/fish/config.fish"} <= contents(home).keys()


# OpenClaw's files


def test_uninstall_in_openclaws_home_removes_only_ours(home: Path) -> None:
    state = make_state(home)
    fill(state, THEIRS)
    done = run("--yes")
    left = contents(state)
    assert set(THEIRS.split()) <= left.keys()
    assert {"openclaw.json", "agents/main/sessions/s1.jsonl", ".env"} <= left.keys()
    assert "workspace/SOUL.md" in left
    assert not [name for name in left if "homarus" in name or name.startswith("state.")]
    assert "~/.openclaw/cron: OpenClaw uses it" in done.output


def test_uninstall_knows_openclaw_by_its_version_in_the_config(home: Path) -> None:
    state = make_state(home, {"meta": {"lastTouchedVersion": "2026.2.17"}})
    run("--yes")
    assert (state / "openclaw.json").exists()
    (state / "openclaw.json").write_text('{"meta": {"lastTouchedVersion": "0.1.0"}}')
    run("--yes")
    assert [path.name for path in state.iterdir()] == ["workspace"]


def test_uninstall_state_of_openclaw_asks_once_more(home: Path) -> None:
    state = make_state(home)
    fill(state, THEIRS)
    run("--state", answers="n\ny\n")
    assert (state / "cron/jobs.json").exists() and not (state / "state.sqlite").exists()
    run("--state", "--yes")
    assert [path.name for path in state.iterdir()] == ["workspace"]


# Folders of the user


def test_uninstall_never_removes_a_home_as_workspace(home: Path) -> None:
    make_state(home, {"agents": {"defaults": {"workspace": "~"}}})
    fill(home, "thesis.txt AGENTS.md projects/a.py")
    done = run("--all", "--yes")
    assert done.exit_code == 0, done.output
    assert {"thesis.txt", "AGENTS.md", "projects/a.py"} <= contents(home).keys()
    assert "its files were there before Homarus used it" in done.output


def test_uninstall_of_a_home_as_workspace_keeps_the_state(home: Path) -> None:
    make_state(home, {"agents": {"defaults": {"workspace": "~"}}})
    seed_workspace(home)
    done = run("--yes", "--workspace")
    assert done.exit_code == 0 and not (home / "SOUL.md").exists()
    assert all((home / ".openclaw" / name).exists() for name in OURS.split())


@pytest.mark.parametrize("workspace", ["/", "/etc", "~/.."])
def test_uninstall_leaves_folders_of_the_system(home: Path, workspace: str) -> None:
    make_state(home, {"agents": {"defaults": {"workspace": workspace}}})
    done = run("--all", "--yes")
    assert done.exit_code == 0, done.output
    assert Path("/etc/passwd").exists() and home.exists()


def test_uninstall_removes_its_files_from_a_folder_of_the_user(home: Path) -> None:
    make_state(home, {"agents": {"defaults": {"workspace": "~/work"}}})
    fill(home, "work/report.txt")
    seed_workspace(home / "work")
    fill(home, "work/memory/2026-11-15.md")
    done = run("--all", "--yes")
    assert list(contents(home / "work")) == ["report.txt"]
    assert "Homarus did not make all of it: report.txt" in done.output


def test_uninstall_removes_a_folder_that_the_workspace_made(home: Path) -> None:
    make_state(home, {"agents": {"defaults": {"workspace": "~/assistant"}}})
    seed_workspace(home / "assistant")
    run("--all", "--yes")
    assert not (home / "assistant").exists()


def test_uninstall_leaves_a_repository_with_commits(home: Path) -> None:
    make_state(home, {"agents": {"defaults": {"workspace": "~/assistant"}}})
    seed_workspace(home / "assistant")
    commit = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "a"]
    subprocess.run([*commit, "--allow-empty"], cwd=home / "assistant", check=True)
    run("--all", "--yes")
    assert [path.name for path in (home / "assistant").iterdir()] == [".git"]


def test_uninstall_with_home_as_state_directory_keeps_the_users_files(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENCLAW_STATE_DIR", str(home))
    fill(home, "logs/mine.txt media/film.mkv agents/smith.txt .env state.sqlite gateway.token")
    run("--all", "--yes")
    kept = {"logs/mine.txt", "media/film.mkv", "agents/smith.txt", ".env"}
    assert contents(home).keys() == kept


def test_uninstall_removes_a_state_directory_of_another_name(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENCLAW_STATE_DIR", str(home / "bot"))
    make_state(home).rename(home / "bot")
    run("--all", "--yes")
    assert list(home.iterdir()) == []


def test_uninstall_keeps_folders_next_to_files_of_the_user(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENCLAW_STATE_DIR", str(home / "projects"))
    fill(home / "projects", "media/film.mkv thesis.txt state.sqlite homarus.json openclaw.json")
    done = run("--all", "--yes")
    assert "~/projects/media: it may be yours" in done.output
    assert contents(home / "projects").keys() == {"media/film.mkv", "thesis.txt", "openclaw.json"}


def test_uninstall_removes_links_and_not_their_targets(home: Path) -> None:
    state = make_state(home)
    fill(home, "photos/a.png elsewhere/main.homarus.sqlite documents/b.txt")
    (state / "media/inbound/link").symlink_to(home / "photos")
    (state / "workspace/docs").symlink_to(home / "documents")
    (state / "credentials/link.json").symlink_to(home / "documents/b.txt")
    run("--all", "--yes")
    kept = {"photos/a.png", "elsewhere/main.homarus.sqlite", "documents/b.txt"}
    assert contents(home).keys() == kept


def test_uninstall_of_linked_state_directory_leaves_the_link(home: Path) -> None:
    state = make_state(home)
    state.rename(home / "disk")
    state.symlink_to(home / "disk")
    (home / "disk/logs/openclaw-2026-11-15.log").unlink()
    (home / "disk/logs").rmdir()
    fill(home, "varlog/openclaw-2026-11-15.log")
    (home / "disk/logs").symlink_to(home / "varlog")
    done = run("--all", "--yes")
    assert "~/.openclaw: it is a link" in done.output
    assert state.is_symlink() and list((home / "disk").iterdir()) == []
    assert contents(home / "varlog")


def test_uninstall_removes_files_that_the_config_puts_elsewhere(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = {
        "logging": {"file": "~/log.jsonl"},
        "agents": {
            "defaults": {"memorySearch": {"store": {"path": "~/indexes/{agentId}.db"}}},
            "list": [{"id": "main", "agentDir": "~/keys"}],
        },
    }
    make_state(home)
    fill(home, "conf/a.json conf/a.json.bak conf/homarus.json conf/other.json keys/mine.txt")
    fill(home, "keys/auth-profiles.json indexes/main.homarus.db indexes/main.db")
    (home / "conf/a.json").write_text(json.dumps(config))
    (home / "log.jsonl").write_text('{"time": "x", "logger": "homarus.app"}\n')
    monkeypatch.setenv("OPENCLAW_CONFIG_PATH", str(home / "conf/a.json"))
    run("--all", "--yes")
    kept = {"conf/other.json", "keys/mine.txt", "indexes/main.db"}
    assert contents(home).keys() == kept
    fill(home, "log.jsonl")
    (home / "conf/a.json").write_text(json.dumps(config))
    run("--all", "--yes")
    assert (home / "log.jsonl").exists()  # not a log of ours


def test_uninstall_with_wrong_config_removes_the_state(home: Path) -> None:
    state = make_state(home)
    (state / "openclaw.json").write_text("{ nonsense")
    done = run("--all", "--yes")
    assert done.exit_code == 0 and "its workspaces are not known" in done.output
    assert list(home.iterdir()) == []


# Profiles, the service and a gateway that runs


def test_uninstall_of_a_profile_keeps_the_others(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_state(home)
    monkeypatch.setenv("OPENCLAW_PROFILE", "work")
    fill(home / ".openclaw-work", OURS)
    (home / ".openclaw-work/openclaw.json").write_text("{}")
    seed_workspace(home / ".openclaw/workspace-work")
    done = run("--all", "--yes")
    assert "~/.openclaw: another profile: homarus uninstall" in done.output
    assert "~/.cache/homarus: .openclaw uses these models, too" in done.output
    assert not (home / ".openclaw-work").exists()
    assert not (home / ".openclaw/workspace-work").exists()
    assert (home / ".openclaw/workspace/SOUL.md").exists()


def test_uninstall_removes_the_files_of_a_service_without_its_manager(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("homarus.cli.gateway_service.platform.system", lambda: "Linux")
    monkeypatch.setattr("homarus.cli.gateway_service.shutil.which", lambda name: None)
    units = home / ".config/systemd/user"
    fill(units, "homarus-gateway.service openclaw-gateway.service")
    (units / "default.target.wants").mkdir()
    (units / "default.target.wants/homarus-gateway.service").symlink_to(
        "../homarus-gateway.service"
    )
    done = run("--service", "--yes")
    assert "could not be stopped" in done.output
    assert [path.name for path in units.iterdir()] == ["openclaw-gateway.service"]
    (units / "openclaw-gateway.service").unlink()
    fill(units, "homarus-gateway.service")
    run("--service", "--yes")
    assert list(home.iterdir()) == []


def test_uninstall_while_another_process_uses_the_state_is_refused(home: Path) -> None:
    state = make_state(home)
    lock = StateLock(state)
    before = contents(home)
    try:
        done = run("--all", "--yes")
        assert "uses the state directory" in str(done.exception)
        assert contents(home) == before
    finally:
        lock.release()


def test_uninstall_reports_what_it_could_not_remove(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_state(home)

    def fail(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("homarus.cli.uninstall_plan.shutil.rmtree", fail)
    done = run("--all", "--yes")
    assert "some of it is still there: Permission denied: " in str(done.exception)
    assert not Paths.find(os.environ).database.exists()
