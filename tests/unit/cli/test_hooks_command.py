"""`homarus hooks`: which hooks run, why others do not, and switching them on and off."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from homarus.cli.doctor import command as doctor
from homarus.cli.hooks import command
from homarus.core.errors import UnknownNameError, UserError
from tests.unit.agent.hook_builders import write_hook


def run(*args: str) -> Result:
    return CliRunner().invoke(command, args, standalone_mode=False)


def done(*args: str) -> str:
    result = run(*args)
    assert result.exception is None, result.exception
    return result.output


def config(home: Path) -> dict[str, Any]:
    tree: dict[str, Any] = json.loads((home / ".openclaw" / "openclaw.json").read_text())
    return tree


def write_config(home: Path, tree: dict[str, Any]) -> None:
    (home / ".openclaw").mkdir(exist_ok=True)
    (home / ".openclaw" / "openclaw.json").write_text(json.dumps(tree))


@pytest.fixture
def hooks(home: Path) -> Path:
    """Return the home of four hooks: managed, of the workspace, for Node.js, and broken."""
    write_config(home, {"hooks": {"internal": {"enabled": True}}})
    state = home / ".openclaw"
    write_hook(state / "hooks", "greet")
    write_hook(state / "hooks", "theirs", "export default 1", file="handler.ts")
    (write_hook(state / "hooks", "broken") / "HOOK.md").write_text("nothing\n")
    write_hook(state / "workspace" / "hooks", "local")
    return home


def named(*args: str) -> dict[str, Any]:
    return {each["name"]: each for each in json.loads(done(*args))["hooks"]}


def test_hooks_list_shows_states_and_problems(hooks: Path) -> None:
    for shown in (done("list"), done()):
        assert "✓ ready        greet" in shown and "✗ not runnable theirs" in shown
        assert "- not enabled  local" in shown and "broken/HOOK.md" in shown
        assert "handler.ts" not in shown
    verbose = done("list", "-v")
    assert "handler.ts is for Node.js, which is not started: write a handler.py" in verbose
    assert "theirs" not in done("list", "--eligible")


def test_hooks_list_json_has_openclaws_fields(hooks: Path) -> None:
    found = named("list", "--json")
    greet = found["greet"]
    assert (greet["eligible"], greet["source"], greet["events"]) == (
        True,
        "openclaw-managed",
        ["command"],
    )
    assert found["theirs"]["eligible"] is False and found["theirs"]["reasons"][0]["fix"]
    assert set(named("list", "--eligible", "--json")) >= {"greet", "session-memory"}
    assert "local" not in named("list", "--eligible", "--json")


def test_hooks_info_explains_one_hook(hooks: Path) -> None:
    shown = done("info", "theirs")
    assert "theirs: not runnable" in shown and "It does not run, because:" in shown
    assert "hooks.internal.entries.greet" in done("info", "greet")
    assert json.loads(done("info", "local", "--json"))["state"] == "not enabled"
    with pytest.raises(UnknownNameError, match="gret"):
        raise run("info", "gret").exception or AssertionError


def test_hooks_check_explains_all(hooks: Path) -> None:
    shown = done("check")
    assert "local: not enabled" in shown and "homarus hooks enable local" in shown
    found = json.loads(done("check", "--json"))
    assert found["summary"]["problems"] == 1 and "greet" in found["eligible"]


def test_hooks_enable_workspace_hook_records_its_files(hooks: Path) -> None:
    shown = done("enable", "local")
    assert "local is enabled" in shown and "HOOK.md, handler.py" in shown
    assert config(hooks)["hooks"]["internal"]["entries"]["local"] == {"enabled": True}
    assert named("list", "--json")["local"]["eligible"] is True
    file = hooks / ".openclaw" / "workspace" / "hooks" / "local" / "handler.py"
    file.write_text("def handle(event): evil()\n")
    assert "its files have changed since you enabled it" in done("check")
    assert "its files have changed" in CliRunner().invoke(doctor, []).output
    done("enable", "local")
    assert named("list", "--json")["local"]["eligible"] is True
    done("disable", "local")
    assert config(hooks)["hooks"]["internal"]["entries"]["local"] == {"enabled": False}
    assert named("list", "--json")["local"]["disabled"] is True


def test_hooks_enable_switches_internal_hooks_on(home: Path) -> None:
    write_config(home, {"agents": {"list": [{"id": "main"}]}})
    shown = done("enable", "session-memory")
    assert "Hooks that run now:" in shown and "command-logger" in shown
    internal = config(home)["hooks"]["internal"]
    assert internal == {"enabled": True, "entries": {"session-memory": {"enabled": True}}}
    assert config(home)["agents"] == {"list": [{"id": "main"}]}, "the rest is as it was"


def test_hooks_disable_boot_md_keeps_others_off(home: Path) -> None:
    write_config(home, {})
    assert named("list", "--json")["boot-md"]["eligible"] is True
    done("disable", "boot-md")
    assert config(home)["hooks"]["internal"] == {"entries": {"boot-md": {"enabled": False}}}
    assert not any(each["eligible"] for each in named("list", "--json").values())


def test_hooks_enable_refuses_what_cannot_run(hooks: Path) -> None:
    with pytest.raises(UserError, match=r"handler\.ts is for Node"):
        raise run("enable", "theirs").exception or AssertionError
    assert "entries" not in config(hooks)["hooks"]["internal"]


def test_hooks_help_says_that_packages_are_not_installed() -> None:
    shown = CliRunner().invoke(command, ["--help"]).output
    assert "no `install`" in shown and "Node.js" in shown


def test_doctor_names_hooks_that_do_not_run(hooks: Path) -> None:
    tree = config(hooks)
    tree["hooks"]["internal"]["entries"] = {"gret": {"enabled": True}}
    write_config(hooks, tree)
    shown = CliRunner().invoke(doctor, []).output
    assert "theirs does not run" in shown and "did you mean greet?" in shown
    write_config(hooks, {"hooks": {"internal": {"entries": {"greet": {"enabled": True}}}}})
    assert "hooks.internal.enabled is not true" in CliRunner().invoke(doctor, []).output
