"""`homarus sandbox`: the level with its probes, what decides a setting, the list, the removal."""

import fcntl
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from homarus.cli.doctor import command as doctor
from homarus.cli.sandbox import command
from homarus.config.check import check_config
from homarus.config.paths import Paths
from homarus.config.schema import Config
from homarus.policy.workspace_access import FULL_ACCESS
from homarus.tools.sandbox.base import EscapeProbeResult, SandboxLevel, SandboxReport
from homarus.tools.sandbox.folders import make_sandbox_name
from homarus.tools.sandbox.registry import SandboxRegistry
from homarus.tools.sandbox.session_sandbox import SessionSandbox
from tests.unit.tools.sandbox_builders import BrokenSandbox, FakeSandbox

GROUP = "agent:main:telegram:group:-100"
SANDBOXED = {"agents": {"defaults": {"sandbox": {"mode": "all"}}}}
ManagerMaker = Callable[[Paths, Config], SandboxRegistry]


class ProbedSandbox(FakeSandbox):
    """Reports probes, one of which did not hold."""

    async def measure(self, *_: object) -> SandboxReport:
        probes = (
            EscapeProbeResult("mount", has_held=True, detail="refused: EPERM"),
            EscapeProbeResult("fork-bomb", has_held=False, detail="succeeded"),
        )
        return SandboxReport(self.name, "L2", probes, "it does not hold against fork-bomb", "root")


def use(monkeypatch: pytest.MonkeyPatch, backend: FakeSandbox) -> None:
    """Have every manager of sandboxes use this backend under all names."""
    monkeypatch.setattr(SandboxRegistry, "get_backend", lambda _self, _name: backend)


def run(home: Path, config: object, *args: str, given: str | None = None) -> Result:
    (home / ".openclaw/openclaw.json").write_text(json.dumps(config), encoding="utf-8")
    return CliRunner().invoke(command, list(args), input=given)


def make_sandbox(home: Path, config: dict[str, Any], key: str) -> tuple[SessionSandbox, int]:
    """Create the sandbox of a session on disk, and return it with a lock on it."""
    checked = check_config(config).config
    assert checked is not None
    registry = SandboxRegistry(lambda: checked, home / ".openclaw")
    agent = key.split(":")[1]
    sandbox = registry.open(agent, key, home / "workspace", FULL_ACCESS)
    assert sandbox is not None
    sandbox.make_workspace()
    (sandbox.workspace / "notes.txt").write_text("x" * 2048)
    fd = os.open(home / ".openclaw/sandboxes/.data" / sandbox.name / "lock", os.O_RDWR)
    return sandbox, fd


def test_sandbox_probe_prints_each_probe_and_the_level_with_fix(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, ProbedSandbox())
    done = run(home, SANDBOXED, "probe")
    assert done.exit_code == 0
    assert done.output.splitlines() == [
        "✓ mount      mount a file system: refused: EPERM",
        "✗ fork-bomb  start more processes: succeeded",
        "1 of 2 probes held.",
        "bubblewrap: level L2 (L2 is demanded)",
        "  it does not hold against fork-bomb",
        "  → root",
    ]


def test_sandbox_probe_below_the_demanded_level_exits_with_one(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, ProbedSandbox())
    strict = {"agents": {"defaults": {"sandbox": {"mode": "all", "level": "L3"}}}}
    done = run(home, strict, "probe", "--json")
    assert done.exit_code == 1
    found = json.loads(done.output)
    assert found["ok"] is False
    row = found["backends"][0]
    assert (row["level"], row["demanded"], row["fix"]) == ("L2", "L3", "root")
    assert row["probes"][1] == {"name": "fork-bomb", "held": False, "detail": "succeeded"}


def test_sandbox_probe_of_an_unknown_backend_names_the_known(home: Path) -> None:
    done = run(home, {}, "probe", "--backend", "jail")
    assert done.exception is not None
    assert "jail" in str(done.exception)


def test_sandbox_explain_names_the_key_that_decides(home: Path) -> None:
    config = {
        "agents": {
            "defaults": {"sandbox": {"mode": "non-main", "docker": {"pidsLimit": 99}}},
            "list": [{"id": "main", "sandbox": {"workspaceAccess": "ro", "scope": "session"}}],
        },
        "tools": {"sandbox": {"tools": {"deny": ["write"]}}},
    }
    done = run(home, config, "explain", "--session", GROUP)
    assert done.exit_code == 0, done.output
    lines = {" ".join(line.split()) for line in done.output.splitlines()}
    name = make_sandbox_name("session", "main", GROUP)
    assert f"{GROUP}: commands run in the sandbox {name}" in lines
    assert "scope session agents.list[main].sandbox.scope" in lines
    assert "workspace access ro agents.list[main].sandbox.workspaceAccess" in lines
    assert "limit 99 processes agents.defaults.sandbox.docker.pidsLimit" in lines
    assert "level demanded L2 default" in lines
    assert "network none default" in lines
    denied = next(line for line in lines if line.startswith("tools denied by"))
    assert "write" in denied.split(": ")[1].split(", ")
    assert "exec" not in denied.split(": ")[1].split(", ")


def test_sandbox_explain_of_the_main_session_says_on_this_machine(home: Path) -> None:
    config = {"agents": {"defaults": {"sandbox": {"mode": "non-main", "backend": "oci"}}}}
    done = run(home, config, "explain", "--json")
    found = json.loads(done.output)
    assert (found["sandboxed"], found["backend"], found["level"]) == (False, "oci", "L2")
    rows = {row["name"]: row for row in found["settings"]}
    assert rows["backend"]["key"] == "agents.defaults.sandbox.backend"
    assert found["elevated"]["level"] in {"off", "on", "ask", "full"}
    assert "on this machine" in run(home, config, "explain").output


def test_sandbox_explain_narrows_write_access_of_groups(home: Path) -> None:
    config = {"agents": {"defaults": {"sandbox": {"mode": "all", "workspaceAccess": "rw"}}}}
    shown = run(home, config, "explain", "--session", GROUP).output
    assert "ro (rw, narrowed for this conversation)" in shown
    assert "narrowed" not in run(home, config, "explain").output


def test_sandbox_explain_shows_folders_hosts_and_the_image(home: Path) -> None:
    section = {
        "mode": "all",
        "docker": {"image": "tools:1"},
        "network": {"allow": ["example.org"]},
        "readOnlyFolders": ["/srv/data"],
        "workspaceRoot": str(home / "boxes"),
    }
    done = run(home, {"agents": {"defaults": {"sandbox": section}}}, "explain")
    lines = {" ".join(line.split()) for line in done.output.splitlines()}
    prefix = "agents.defaults.sandbox"
    assert f"backend oci {prefix}.docker.image" in lines
    assert f"mount /srv/data, read-only {prefix}.readOnlyFolders" in lines
    network = f"network only example.org, through the gateway's proxy {prefix}.network.allow"
    assert network in lines
    assert any(f"/workspace is {home}/boxes/agent-main-" in line for line in lines)


def test_sandbox_explain_shows_the_network_and_binds_of_containers(home: Path) -> None:
    docker = {"image": "tools:1", "network": "bridge", "binds": ["/srv/data:/data:rw"]}
    config = {"agents": {"defaults": {"sandbox": {"mode": "all", "docker": docker}}}}
    done = run(home, config, "explain")
    lines = {" ".join(line.split()) for line in done.output.splitlines()}
    prefix = "agents.defaults.sandbox.docker"
    assert f"network bridge, without a proxy {prefix}.network" in lines
    assert f"mount /srv/data:/data:rw (SOURCE:TARGET) {prefix}.binds" in lines


def test_sandbox_list_shows_owner_size_and_live_commands(home: Path) -> None:
    sandbox, fd = make_sandbox(home, SANDBOXED, GROUP)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH)
        done = run(home, SANDBOXED, "list")
        assert "1 sandbox:" in done.output
        assert f"{sandbox.name}: bubblewrap, of agent main, 2.0 kB, made now" in done.output
        assert "a command runs in it" in done.output
        row = json.loads(run(home, SANDBOXED, "list", "--json").output)["sandboxes"][0]
        assert (row["name"], row["sizeBytes"], row["live"]) == (sandbox.name, 2048, True)
    finally:
        os.close(fd)
    assert "a command runs" not in run(home, SANDBOXED, "list").output


def test_sandbox_list_without_a_sandbox_says_so(home: Path) -> None:
    assert run(home, {}, "list").output == "There is no sandbox.\n"


def test_sandbox_recreate_without_a_choice_is_refused(home: Path) -> None:
    for args in ((), ("--all", "--agent", "main"), ("--session", GROUP, "--agent", "main")):
        done = run(home, {}, "recreate", *args)
        assert done.exit_code != 0
        assert "which sandboxes" in str(done.exception)


def test_sandbox_recreate_without_force_needs_a_terminal(home: Path) -> None:
    sandbox, fd = make_sandbox(home, SANDBOXED, GROUP)
    os.close(fd)
    done = run(home, SANDBOXED, "recreate", "--all")
    assert "must be confirmed" in str(done.exception)
    assert sandbox.workspace.exists()


def test_sandbox_recreate_with_force_removes_the_files(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox, fd = make_sandbox(home, SANDBOXED, GROUP)
    os.close(fd)
    use(monkeypatch, FakeSandbox())
    done = run(home, SANDBOXED, "recreate", "--all", "--force")
    assert done.exit_code == 0, done.output
    assert f"{sandbox.name} is removed." in done.output
    assert not sandbox.workspace.exists()
    assert run(home, SANDBOXED, "list").output == "There is no sandbox.\n"


def test_sandbox_recreate_leaves_one_with_a_live_command(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    sandbox, fd = make_sandbox(home, SANDBOXED, GROUP)
    use(monkeypatch, FakeSandbox())
    try:
        fcntl.flock(fd, fcntl.LOCK_SH)
        done = run(home, SANDBOXED, "recreate", "--all", "--force")
    finally:
        os.close(fd)
    assert done.exit_code == 1
    assert f"{sandbox.name} stays: a command runs" in done.output
    assert (sandbox.workspace / "notes.txt").exists()


def test_sandbox_recreate_chooses_by_session_and_agent(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config: dict[str, Any] = {
        "agents": {
            "defaults": {"sandbox": {"mode": "all", "scope": "session"}},
            "list": [{"id": "main"}, {"id": "work"}],
        }
    }
    made = {}
    for key in (GROUP, "agent:main:main", "agent:work:main"):
        made[key], fd = make_sandbox(home, config, key)
        os.close(fd)
    use(monkeypatch, FakeSandbox())
    assert run(home, config, "recreate", "--session", GROUP, "--force").exit_code == 0
    left = [key for key, one in made.items() if one.workspace.exists()]
    assert left == ["agent:main:main", "agent:work:main"]
    assert run(home, config, "recreate", "--agent", "work", "--force").exit_code == 0
    assert [key for key, one in made.items() if one.workspace.exists()] == ["agent:main:main"]
    browser = run(home, config, "recreate", "--all", "--browser", "--force")
    assert browser.output == "There is no browser to recreate.\n"
    assert made["agent:main:main"].workspace.exists()


def doctor_rows(home: Path, config: object) -> list[dict[str, str]]:
    (home / ".openclaw/openclaw.json").write_text(json.dumps(config), encoding="utf-8")
    done = CliRunner().invoke(doctor, ["--json"])
    rows = json.loads(done.output)["findings"]
    return [row for row in rows if row["about"] == "agent main" and "sandbox" in row["text"]]


@pytest.mark.parametrize(
    ("level", "demanded", "state"), [("L3", "L2", "ok"), ("L2", "L2", "info"), ("L2", "L3", "bad")]
)
def test_doctor_shows_the_measured_level_of_sandboxes(
    home: Path, monkeypatch: pytest.MonkeyPatch, level: SandboxLevel, demanded: str, state: str
) -> None:
    problem = "" if level == "L3" else "no limits in sandboxes"
    use(monkeypatch, FakeSandbox(level, problem, problem and "use cgroups"))
    section = {"mode": "non-main", "level": demanded}
    rows = doctor_rows(home, {"agents": {"defaults": {"sandbox": section}}})
    assert [row["state"] for row in rows] == [state]
    assert rows[0]["about"] == "agent main" and level in rows[0]["text"]
    assert rows[0]["fix"] == (problem and "use cgroups")
    assert "sessions besides the main one" in rows[0]["text"]


def test_doctor_names_the_missing_program_of_sandboxes(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, BrokenSandbox())
    (home / ".openclaw/openclaw.json").write_text(json.dumps(SANDBOXED), encoding="utf-8")
    done = CliRunner().invoke(doctor, [])
    assert done.exit_code == 1
    assert "commands of all sessions are refused: bwrap is not installed" in done.output
    assert "→ apt-get install bubblewrap" in done.output


def test_doctor_names_settings_that_the_backend_cannot_obey(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, FakeSandbox())
    docker = {"setupCommand": "apt-get update", "containerPrefix": "x-"}
    config = {"agents": {"defaults": {"sandbox": {"mode": "all", "docker": docker}}}}
    rows = {row["state"]: row["text"] for row in doctor_rows(home, config)}
    assert "sandbox.docker.setupCommand cannot be obeyed" in rows["bad"]
    assert "sandbox.docker.containerPrefix has no effect" in rows["note"]


def test_doctor_names_read_only_folders_that_are_missing(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, FakeSandbox())
    section = {"mode": "all", "readOnlyFolders": ["/missing/folder"]}
    rows = doctor_rows(home, {"agents": {"defaults": {"sandbox": section}}})
    (bad,) = [row["text"] for row in rows if "/missing/folder" in row["text"]]
    assert "are refused" in bad and "not an existing folder" in bad


def test_doctor_without_sandbox_mode_measures_nothing(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = FakeSandbox()
    use(monkeypatch, backend)
    assert doctor_rows(home, {}) == []
    assert backend.measured == 0
