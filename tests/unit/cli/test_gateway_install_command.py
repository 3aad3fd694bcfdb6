"""`homarus gateway install` and what goes with it, before a systemctl and a launchctl that note
what they are asked."""

import json
import os
import platform
import plistlib
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from homarus.cli.gateway import command
from homarus.core.errors import ConfigError, UserError
from homarus.store.lock import StateLock

# Notes its words; is-active tells what the file `state` says, the file `broken` makes it fail.
SYSTEMCTL = """#!/bin/sh
printf '%s\\n' "$*" >> "$(dirname "$0")/../asked"
cd "$(dirname "$0")/.."
case "$*" in
  *show-environment) test ! -e no-bus ;;
  *is-active*) cat state 2>/dev/null || { test -e no-bus || echo inactive; exit 3; } ;;
  *) test ! -e broken || { echo "Job failed: see 'journalctl'" >&2; exit 1; } ;;
esac
"""
# An agent is loaded while the file `loaded` is there; the first bootout says that it takes a while.
LAUNCHCTL = """#!/bin/sh
printf '%s\\n' "$*" >> "$(dirname "$0")/../asked"
cd "$(dirname "$0")/.."
case "$1 $2" in
  "print gui/"*/*) test -e loaded ;;
  "print gui/"*) test ! -e no-bus ;;
  "bootstrap "*) touch loaded ;;
  "bootout "*) if test -e slow; then rm slow; exit 36; else rm loaded; fi ;;
esac
"""


class Machine:
    """A home, and the tools that are found there."""

    def __init__(self, home: Path, patch: pytest.MonkeyPatch) -> None:
        self.home, self._patch = home, patch
        self.fake = home / "fake"
        (self.fake / "bin").mkdir(parents=True)
        self.be("Linux")
        patch.setenv("PATH", f"{self.fake / 'bin'}:/usr/bin:/bin")

    def be(self, system: str) -> None:
        self._patch.setattr(platform, "system", lambda: system)

    def have(self, name: str, text: str) -> None:
        (self.fake / "bin" / name).write_text(text)
        (self.fake / "bin" / name).chmod(0o755)

    def say(self, name: str, text: str = "") -> None:
        (self.fake / name).write_text(text)

    def asked(self) -> list[str]:
        file = self.fake / "asked"
        lines = file.read_text().splitlines() if file.exists() else []
        file.unlink(missing_ok=True)
        return lines

    @property
    def unit(self) -> Path:
        return self.home / ".config" / "systemd" / "user" / "homarus-gateway.service"


@pytest.fixture
def machine(home: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    for name in list(os.environ):
        if name.endswith(("_API_KEY", "_TOKEN", "_PASSWORD", "_SECRET")):
            monkeypatch.delenv(name)
    machine = Machine(home, monkeypatch)
    machine.have("systemctl", SYSTEMCTL)
    machine.have("launchctl", LAUNCHCTL)
    machine.have("loginctl", "#!/bin/sh\necho yes\n")
    return machine


def run(*args: str) -> Result:
    return CliRunner().invoke(command, args, standalone_mode=False)


def done(*args: str) -> Result:
    result = run(*args)
    assert result.exception is None, result.exception
    return result


def refused(*args: str) -> UserError:
    error = run(*args).exception
    assert isinstance(error, UserError), error
    return error


def test_install_and_uninstall_the_service(machine: Machine) -> None:
    told = done("install", "--port", "18800")
    assert told.stdout == (
        "homarus-gateway.service is installed and started "
        "(~/.config/systemd/user/homarus-gateway.service).\n"
    )
    assert told.stderr == ""
    assert machine.asked() == [
        "--user show-environment",
        "--user daemon-reload",
        "--user enable homarus-gateway.service",
        "--user restart homarus-gateway.service",
    ]
    text = machine.unit.read_text()
    assert (
        f'ExecStart="{sys.executable}" "-P" "-m" "homarus" "gateway" "run" "--port" "18800"' in text
    )
    assert f'Environment="OPENCLAW_STATE_DIR={machine.home}/.openclaw"' in text
    assert [file.name for file in machine.unit.parent.iterdir()] == [machine.unit.name]
    assert json.loads(done("uninstall", "--json").stdout)["name"] == "homarus-gateway.service"
    assert not machine.unit.exists()
    assert machine.asked() == [
        "--user show-environment",
        "--user disable --now homarus-gateway.service",
        "--user daemon-reload",
    ]
    assert done("uninstall").stdout == "The gateway is not installed here.\n"
    assert json.loads(done("uninstall", "--json").stdout) == {"ok": True, "installed": False}


def test_install_of_a_profile_keeps_the_others(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    done("install")
    monkeypatch.setenv("OPENCLAW_PROFILE", "work")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(machine.home / "cfg"))
    done("install")
    unit = machine.home / "cfg" / "systemd" / "user" / "homarus-gateway-work.service"
    assert 'Environment="OPENCLAW_PROFILE=work"' in unit.read_text()
    assert machine.unit.exists()


def test_install_over_a_different_service_needs_force(machine: Machine) -> None:
    done("install")
    done("install")  # the same again is no question
    before = machine.unit.read_text()
    machine.asked()
    error = refused("install", "--port", "7")
    assert "says something else" in error.message and "--force" in error.fix
    assert machine.unit.read_text() == before and machine.asked() == []
    done("install", "--port", "7", "--force")
    assert machine.unit.read_text() != before


def test_install_reports_names_of_secrets_only(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENCLAW_GATEWAY_TOKEN", "s3cret")
    monkeypatch.setenv("OPENAI_API_KEY", "s3cret")
    (machine.home / ".openclaw" / ".env").write_text("OPENAI_API_KEY=s3cret\n")
    told = done("install")
    assert told.stderr == (
        "Only this shell has OPENCLAW_GATEWAY_TOKEN: "
        "put what the gateway needs into ~/.openclaw/.env.\n"
    )
    assert "s3cret" not in told.output + machine.unit.read_text()


def test_install_with_invalid_config_warns_first(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = machine.home / ".openclaw" / "openclaw.json"
    config.write_text('{gateway: {auth: {token: "${MY_WORD}"}}}')
    monkeypatch.setenv("MY_WORD", "only here")
    error = run("install").exception
    assert isinstance(error, ConfigError) and "MY_WORD" in str(error)
    assert not machine.unit.exists()


def test_install_while_a_gateway_runs_is_refused(machine: Machine) -> None:
    state = machine.home / ".openclaw"
    lock = StateLock(state)
    try:
        (state / "gateway.json").write_text(json.dumps({"pid": os.getpid(), "url": "ws://x"}))
        error = refused("install")
        assert f"process {os.getpid()} serves ~/.openclaw already" in error.message
        assert not machine.unit.exists()
        machine.say("state", "active\n")  # it is the installed one
        done("install")
    finally:
        lock.release()


def test_install_without_lingering_explains_it(machine: Machine) -> None:
    machine.have("loginctl", '#!/bin/sh\nprintf "%s " "$@" > "$(dirname "$0")/../who"; echo no\n')
    assert "loginctl enable-linger" in done("install").stderr
    assert (machine.fake / "who").read_text() == f"show-user {os.getuid()} -p Linger --value "
    machine.have("loginctl", "#!/bin/sh\nexit 1\n")
    assert done("install").stderr == ""


def test_install_without_systemd_prints_an_alternative(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.say("no-bus")
    error = refused("install")
    assert "systemd does not run for this user here" in error.message
    assert "loginctl enable-linger" in error.fix and "homarus gateway run" in error.fix
    monkeypatch.setenv("PATH", str(machine.home / "nothing"))
    error = refused("install")
    assert "no systemctl" in error.message and "homarus gateway run" in error.fix
    machine.be("Darwin")
    assert "no launchctl" in refused("install").message
    machine.be("Plan9")
    assert "neither systemd nor launchd" in refused("install").message
    assert not machine.unit.exists()


def test_install_refused_by_systemd_prints_its_message(machine: Machine) -> None:
    machine.say("broken")
    error = refused("install")
    assert error.message == "`systemctl --user daemon-reload` failed: Job failed: see 'journalctl'"


def test_service_is_started_stopped_and_restarted(machine: Machine) -> None:
    assert "not installed" in refused("start").message
    assert "no gateway serves" in refused("stop").message
    assert "no gateway serves" in refused("restart").message
    done("install")
    machine.asked()
    assert done("start").stdout.startswith("homarus-gateway.service is started")
    assert machine.asked() == [
        "--user show-environment",
        "--user reset-failed homarus-gateway.service",
        "--user start homarus-gateway.service",
    ]
    machine.say("state", "active\n")
    assert done("stop").stdout == "Stopped homarus-gateway.service.\n"
    assert machine.asked() == [
        "--user is-active homarus-gateway.service",
        "--user stop homarus-gateway.service",
    ]
    assert done("restart").stdout == "Started homarus-gateway.service.\n"
    assert machine.asked()[-1] == "--user start homarus-gateway.service"
    machine.say("state", "failed\n")
    assert "no gateway serves" in refused("stop").message


def test_status_names_the_service_backend(machine: Machine) -> None:
    assert "homarus gateway run starts one" in run("status").stdout
    assert "service" not in json.loads(run("status", "--json").stdout)
    done("install")
    machine.say("state", "activating\n")
    shown = run("status").stdout
    assert "It is kept by homarus-gateway.service, activating." in shown
    assert "homarus gateway start starts one" in shown
    assert json.loads(run("status", "--json").stdout) == {
        "running": False,
        "service": {
            "name": "homarus-gateway.service",
            "file": str(machine.unit),
            "state": "activating",
        },
    }
    (machine.fake / "state").unlink()
    machine.say("no-bus")
    assert "which cannot be asked" in run("status").stdout


def test_install_on_macos_uses_launchd(machine: Machine) -> None:
    machine.be("Darwin")
    file = machine.home / "Library" / "LaunchAgents" / "ai.homarus.gateway.plist"
    domain = f"gui/{os.getuid()}"
    target = f"{domain}/ai.homarus.gateway"
    done("install")
    assert machine.asked() == [
        f"print {domain}",
        f"print {target}",
        f"enable {target}",
        f"bootstrap {domain} {file}",
    ]
    assert plistlib.loads(file.read_bytes())["Label"] == "ai.homarus.gateway"
    assert (machine.home / ".openclaw" / "logs").is_dir()
    done("start")
    assert machine.asked()[-1] == f"kickstart {target}"
    machine.say("slow")
    assert done("stop").stdout == "Stopped ai.homarus.gateway.\n"
    assert machine.asked().count(f"bootout {target}") == 2
    done("start")
    assert machine.asked()[-1] == f"bootstrap {domain} {file}"
    done("uninstall")
    assert not file.exists() and machine.asked()[-2:] == [f"bootout {target}", f"print {target}"]
    machine.say("no-bus")
    assert "log in at the machine itself" in refused("install").fix
