"""Import variables that the process lacks from the user's login shell: `env.shellEnv`.

A program that is started by a service manager does not have what `~/.profile` or `~/.zprofile`
exports. With `env.shellEnv.enabled` the shell is run once, when a missing credential or a `${NAME}`
of the config is looked up for the first time, and never for longer than `timeoutMs`. Only such
names are imported, and none replaces a variable that is set.
"""

import contextlib
import io
import logging
import os
import re
import secrets
import selectors
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from homarus.config.variables import iter_references

log = logging.getLogger(__name__)

DEFAULT_TIMEOUT_MS: Final = 15_000
_POLL_S: Final = 0.02
_MAX_BYTES: Final = 1_000_000  # of the output, with what the user's scripts print
_MAX_VALUE_BYTES: Final = 32_768
_CREDENTIAL = re.compile(r"[A-Z][A-Z0-9_]*_(?:KEY|KEY_ID|TOKEN|SECRET|PASSWORD)")
_NAME = re.compile(r"[A-Z_][A-Z0-9_]*")
_PASSED: Final = ("HOME", "USER", "LOGNAME", "SHELL", "PATH", "LANG", "LC_ALL", "TMPDIR")


class ShellEnvironment(Mapping[str, str]):
    """Variables, with those that they lack from the login shell; iteration does not run it."""

    def __init__(self, base: Mapping[str, str], names: frozenset[str], timeout_ms: int) -> None:
        self._base, self._names, self._timeout_ms = base, names, timeout_ms

    def __getitem__(self, name: str) -> str:
        is_wanted = name in self._names or _CREDENTIAL.fullmatch(name)
        if is_wanted and not self._base.get(name) and (value := self.preload().get(name)):
            return value
        return self._base[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._base)

    def __len__(self) -> int:
        return len(self._base)

    def preload(self) -> Mapping[str, str]:
        """Return the variables of the shell; it is run now if it was not before."""
        shell = self._base.get("SHELL") or _login_shell()
        passed = tuple((name, self._base[name]) for name in _PASSED if name in self._base)
        return _read_shell(shell, passed, self._timeout_ms)


def extend_by_shell(tree: Mapping[str, Any], env: Mapping[str, str]) -> Mapping[str, str]:
    """Return the variables, extended by the login shell's if the config enables that."""
    section = tree.get("env")
    rules = section.get("shellEnv") if isinstance(section, dict) else None
    if not isinstance(rules, dict) or rules.get("enabled") is not True:
        return env
    timeout_ms = rules.get("timeoutMs", DEFAULT_TIMEOUT_MS)
    if not isinstance(timeout_ms, int) or timeout_ms < 0:
        return env  # the check of the config reports it
    return ShellEnvironment(env, frozenset(iter_references(tree)), timeout_ms)


def preload_shell(env: Mapping[str, str]) -> None:
    """Run the login shell now, if these variables need it: later it would block the event loop."""
    if isinstance(env, ShellEnvironment):
        env.preload()


def _login_shell() -> str:
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_shell or "/bin/sh"
    except KeyError:  # a user without an entry, as in some containers
        return "/bin/sh"


@lru_cache(4)
def _read_shell(
    shell: str, passed: tuple[tuple[str, str], ...], timeout_ms: int
) -> Mapping[str, str]:
    """Return the variables of a login shell; an empty mapping, with a warning, if it fails."""
    if not Path(shell).is_absolute():
        log.warning("env.shellEnv: the shell %r is no absolute path; nothing is imported", shell)
        return {}
    mark = f"x{secrets.token_hex(16)}"  # a digit would be read as a part of the octal number
    # What the user's scripts print comes before the mark, and is ignored.
    command = [shell, "-l", "-c", f"printf '\\000{mark}\\000'; exec /usr/bin/env -0"]
    try:
        output = _run(command, {**dict(passed), "TERM": "dumb"}, timeout_ms / 1000)
    except (OSError, ValueError) as exc:
        log.warning("env.shellEnv: %s: %s; nothing is imported", shell, exc)
        return {}
    _, found, text = output.rpartition(f"\0{mark}\0".encode())
    if not found:
        log.warning("env.shellEnv: %s did not print its variables; nothing is imported", shell)
    return parse_variables(text) if found else {}


def _run(command: list[str], env: Mapping[str, str], timeout_s: float) -> bytes:
    """Return the output of a command. Raises OSError when it is late, too long or fails.

    The command and what it has started in its session have ended when this returns.
    """
    deadline = time.monotonic() + timeout_s
    read_fd, write_fd = os.pipe()
    with os.fdopen(read_fd, "rb", buffering=0) as pipe:
        try:
            process = subprocess.Popen(  # noqa: S603 - the user's own login shell
                command,
                stdin=subprocess.DEVNULL,
                stdout=write_fd,
                stderr=subprocess.DEVNULL,
                env=env,
                start_new_session=True,
            )
        finally:
            os.close(write_fd)
        try:
            output = _read_until(pipe, process, deadline, timeout_s)
            status = process.wait(max(deadline - time.monotonic(), 0))
        except subprocess.TimeoutExpired:
            raise _late(timeout_s) from None
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if status != 0:
        raise OSError(f"it ended with status {status}")
    return output


def _read_until(
    pipe: io.FileIO, process: "subprocess.Popen[bytes]", deadline: float, timeout_s: float
) -> bytes:
    """Return what is written to a pipe until it is closed, or the process has ended.

    What the user's scripts leave running may hold the pipe open.
    """
    output = bytearray()
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        while (left_s := deadline - time.monotonic()) > 0:
            has_ended = process.poll() is not None
            if not selector.select(0 if has_ended else min(left_s, _POLL_S)):
                if has_ended:
                    return bytes(output)
                continue
            chunk = os.read(pipe.fileno(), 65_536)
            if not chunk:
                return bytes(output)
            output += chunk
            if len(output) > _MAX_BYTES:
                raise OSError("it printed too much")
    raise _late(timeout_s)


def _late(timeout_s: float) -> OSError:
    return OSError(f"it did not end within {timeout_s:g} s (env.shellEnv.timeoutMs)")


def parse_variables(output: bytes) -> dict[str, str]:
    """Parse the output of `env -0`; entries that are no text, or very long, are left out."""
    found: dict[str, str] = {}
    for entry in output.split(b"\0"):
        if len(entry) > _MAX_VALUE_BYTES:
            continue
        with contextlib.suppress(UnicodeDecodeError):
            name, mark, value = entry.decode().partition("=")
            if mark and value.strip() and _NAME.fullmatch(name):
                found[name] = value
    return found
