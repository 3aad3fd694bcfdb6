"""Install, remove, start and stop the gateway as a service of the machine.

On Linux it is a systemd user unit, on macOS a launchd agent, controlled by their own commands
(`systemctl --user`, `launchctl`); gateway/service_unit.py defines what they run.
"""

import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeAlias

from homarus.config.load import load_config
from homarus.config.paths import Paths, shorten
from homarus.core.atomic_file import write_atomic
from homarus.core.errors import UserError
from homarus.core.fast_dataclass import dataclass
from homarus.core.private_files import make_private_dir
from homarus.core.text import one_line
from homarus.gateway.client import find_running_gateway
from homarus.gateway.service_unit import (
    STOP_S,
    ServiceDefinition,
    launchd_label,
    launchd_plist,
    make_service,
    systemd_unit,
    unit_name,
)

_RUN_MANUALLY: Final = "run `homarus gateway run` yourself, or from whatever starts programs here"
_WAIT_S: Final = STOP_S + 30
_SECRETS: Final = ("_API_KEY", "_TOKEN", "_PASSWORD", "_SECRET")


@dataclass(frozen=True, slots=True)
class Systemd:
    """A systemd user unit."""

    name: str
    file: Path

    @classmethod
    def find(cls, paths: Paths, env: Mapping[str, str]) -> "Systemd":
        named = env.get("XDG_CONFIG_HOME", "")
        config = Path(named) if named.startswith("/") else paths.home / ".config"
        name = unit_name(paths.profile)
        return cls(name, config / "systemd" / "user" / name)

    def text(self, program: ServiceDefinition) -> str:
        """Return the text of its file."""
        return systemd_unit(program)

    def check(self) -> None:
        """Raise a UserError, with an alternative, when it cannot be used here."""
        if not shutil.which("systemctl"):
            raise UserError("this machine has no systemd (no systemctl)", fix=_RUN_MANUALLY)
        if _run(["systemctl", "--user", "show-environment"]).returncode:
            raise UserError(
                "systemd does not run for this user here",
                fix="log in as this user (not by su or sudo), after `loginctl enable-linger` if "
                f"need be; or {_RUN_MANUALLY}",
            )

    def enable(self) -> None:
        """Load the file and start the service, now and at every login."""
        _query(["systemctl", "--user", "daemon-reload"])
        _query(["systemctl", "--user", "enable", self.name])
        _query(["systemctl", "--user", "restart", self.name])

    def remove(self) -> None:
        """Stop and disable the service."""
        _query(["systemctl", "--user", "disable", "--now", self.name])
        self.file.unlink(missing_ok=True)
        _query(["systemctl", "--user", "daemon-reload"])

    def start(self) -> None:
        # A unit that failed too often does not start before this.
        _run(["systemctl", "--user", "reset-failed", self.name])
        _query(["systemctl", "--user", "start", self.name])

    def stop(self) -> None:
        """Stop until it is started again, or until the next login."""
        _query(["systemctl", "--user", "stop", self.name])

    def state(self) -> str:
        """Return its state: active, inactive, failed …; "" when it is unknown."""
        if not shutil.which("systemctl"):
            return ""
        return _first_word(_run(["systemctl", "--user", "is-active", self.name]))

    def notes(self) -> tuple[str, ...]:
        """Return what the user should know after an install."""
        if not shutil.which("loginctl"):
            return ()
        found = _run(["loginctl", "show-user", str(os.getuid()), "-p", "Linger", "--value"])
        lingers = found.returncode or _first_word(found) == "yes"
        return () if lingers else ("It ends when you log out; `loginctl enable-linger` keeps it.",)


@dataclass(frozen=True, slots=True)
class Launchd:
    """A launchd agent; its methods mean the same as those of `Systemd`."""

    name: str
    file: Path

    @classmethod
    def find(cls, paths: Paths) -> "Launchd":
        name = launchd_label(paths.profile)
        return cls(name, paths.home / "Library" / "LaunchAgents" / f"{name}.plist")

    @property
    def _domain(self) -> str:
        return f"gui/{os.getuid()}"

    @property
    def _target(self) -> str:
        return f"{self._domain}/{self.name}"

    def text(self, program: ServiceDefinition) -> str:
        return launchd_plist(program)

    def check(self) -> None:
        if not shutil.which("launchctl"):
            raise UserError("this machine has no launchd (no launchctl)", fix=_RUN_MANUALLY)
        if _run(["launchctl", "print", self._domain]).returncode:
            raise UserError(
                "launchd does not run for this user here",
                fix=f"log in at the machine itself as this user; or {_RUN_MANUALLY}",
            )

    def enable(self) -> None:
        self.stop()
        _query(["launchctl", "enable", self._target])
        _query(["launchctl", "bootstrap", self._domain, str(self.file)])

    def remove(self) -> None:
        self.stop()
        self.file.unlink(missing_ok=True)

    def start(self) -> None:
        if self._is_loaded():
            _query(["launchctl", "kickstart", self._target])
        else:
            _query(["launchctl", "bootstrap", self._domain, str(self.file)])

    def stop(self) -> None:
        # launchd restarts it whenever it ends: only an unloaded agent stays down. This command
        # may fail while the gateway shuts down, so the state is checked afterwards.
        deadline = time.monotonic() + _WAIT_S
        while self._is_loaded():
            if time.monotonic() > deadline:
                raise UserError(f"{self.name} has not stopped in {_WAIT_S} s", fix="try again")
            if _run(["launchctl", "bootout", self._target]).returncode:
                time.sleep(0.5)

    def state(self) -> str:
        if not shutil.which("launchctl"):
            return ""
        return "active" if self._is_loaded() else "inactive"

    def _is_loaded(self) -> bool:
        return not _run(["launchctl", "print", self._target]).returncode

    def notes(self) -> tuple[str, ...]:
        return ()


ServiceBackend: TypeAlias = Systemd | Launchd


def find_service_backend(paths: Paths, env: Mapping[str, str]) -> ServiceBackend:
    """Return the service backend of this machine."""
    match platform.system():
        case "Linux":
            return Systemd.find(paths, env)
        case "Darwin":
            return Launchd.find(paths)
        case other:
            raise UserError(f"{other} has neither systemd nor launchd", fix=_RUN_MANUALLY)


def find_installed(paths: Paths, env: Mapping[str, str]) -> ServiceBackend | None:
    """Return the backend of the installed gateway service; None when it is not installed."""
    try:
        keeper = find_service_backend(paths, env)
    except UserError:
        return None
    return keeper if keeper.file.exists() else None


def install(port: int | None, *, force: bool) -> tuple[ServiceBackend, list[str]]:
    """Install and start the service; returns what the user should know."""
    env, paths = os.environ, Paths.find(os.environ)
    keeper = find_service_backend(paths, env)
    program = make_service(sys.executable, paths, env, port)
    text = keeper.text(program)
    before = keeper.file.read_text("utf-8", "replace") if keeper.file.exists() else None
    if before not in {None, text} and not force:
        raise UserError(
            f"{shorten(keeper.file, paths.home)} is there already, and says something else",
            fix="--force replaces it; --profile NAME makes another beside it",
        )
    keeper.check()
    running = find_running_gateway(paths)
    if running and keeper.state() != "active":
        raise UserError(
            f"process {running.pid} serves {shorten(paths.state, paths.home)} already",
            fix="homarus gateway stop ends it; then install",
        )
    notes = _missing(paths, program)
    make_private_dir(keeper.file.parent)
    make_private_dir(paths.logs)
    write_atomic(keeper.file, text.encode())
    keeper.enable()
    return keeper, [*notes, *keeper.notes()]


def uninstall() -> ServiceBackend | None:
    """Stop and remove the service; None when it is not installed."""
    keeper = find_installed(Paths.find(os.environ), os.environ)
    if keeper is None:
        return None
    keeper.check()
    keeper.remove()
    return keeper


def remove_files(paths: Paths, env: Mapping[str, str]) -> ServiceBackend | None:
    """Remove the service's files where its manager does not run; None when it has none."""
    keeper = find_installed(paths, env)
    if keeper is None:
        return None
    keeper.file.unlink(missing_ok=True)
    (keeper.file.parent / "default.target.wants" / keeper.name).unlink(missing_ok=True)
    return keeper


def remove_empty_folders(file: Path, home: Path) -> None:
    """Remove the folders of a service's file that are empty, below the home."""
    with suppress(OSError):
        (file.parent / "default.target.wants").rmdir()
    folder = file.parent
    while folder != home and folder.is_relative_to(home):
        try:
            folder.rmdir()
        except OSError:  # it has other files
            return
        folder = folder.parent


def require_service() -> ServiceBackend:
    """Return the backend of the installed service; raises UserError when there is none."""
    keeper = find_installed(Paths.find(os.environ), os.environ)
    if keeper is None:
        raise UserError(
            "the gateway is not installed here",
            fix="homarus gateway install keeps one running; homarus gateway run runs one",
        )
    keeper.check()
    return keeper


def _missing(paths: Paths, program: ServiceDefinition) -> list[str]:
    """Return what would prevent a start, and the variables that only this shell has."""
    loaded = load_config(paths, dict(program.environment) | {"HOME": str(paths.home)})
    only = sorted(
        name
        for name, value in os.environ.items()
        if value and name.endswith(_SECRETS) and name not in loaded.env
    )
    if not only:
        return []
    file = shorten(paths.state / ".env", paths.home)
    return [f"Only this shell has {', '.join(only)}: put what the gateway needs into {file}."]


def _query(argv: Sequence[str]) -> None:
    done = _run(argv)
    if done.returncode:
        message = one_line(done.stderr.strip() or done.stdout.strip() or "it did not say why", 300)
        raise UserError(f"`{' '.join(argv)}` failed: {message}", fix=_RUN_MANUALLY)


def _run(argv: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    try:
        return subprocess.run(  # noqa: S603 - fixed words and our own names, no shell
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            text=True,
            errors="replace",
            timeout=_WAIT_S,
        )
    except subprocess.TimeoutExpired:
        raise UserError(
            f"`{' '.join(argv)}` has not ended in {_WAIT_S} s", fix="try again"
        ) from None


def _first_word(done: "subprocess.CompletedProcess[str]") -> str:
    return one_line(done.stdout.strip(), 40)
