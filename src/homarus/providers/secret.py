"""References to secrets, and how to read them.

A secret is plain text, in a variable, in a file, or printed by a program (`pass`, `op`, a
keychain). Of a file and of a command's output the first line counts. A command runs only when the
config names it, without a shell and with a timeout. Secrets are never logged or put into errors,
which name the place only.
"""

import asyncio
import contextlib
import errno
import os
import re
import signal
import stat
import subprocess
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Literal, TypeAlias

from homarus.config.paths import expand
from homarus.core.errors import AuthError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json
from homarus.core.text import one_line

if TYPE_CHECKING:
    from homarus.config.schema import SecretSourceConfig

MAX_SECRET_BYTES = 64 * 1024
COMMAND_S = 10.0
_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_SHOWN_CHARS = 16  # nothing of a shorter key is shown

SecretKind: TypeAlias = Literal["plain", "env", "file", "exec"]


@dataclass(frozen=True, slots=True)
class SecretRef:
    """One reference. `value` is the secret, the variable or the path; a command is a list."""

    place: SecretKind
    value: str = field(default="", repr=False)
    command: tuple[str, ...] = field(default=(), repr=False)
    timeout_s: float = COMMAND_S

    @property
    def masked(self) -> str:
        """Return the reference for display, a plain secret masked."""
        match self.place:
            case "plain":
                return mask(self.value)
            case "env":
                return f"${{{self.value}}}"
            case "file":
                return f"file {one_line(self.value)}"
            case "exec":
                return f"command {one_line(self.command[0])}"


def mask(key: str) -> str:
    """Return enough of a key to tell it from another."""
    if not key:
        return ""
    return one_line(f"{key[:3]}…{key[-4:]}") if len(key) >= _SHOWN_CHARS else "…"


def parse_secret(text: str) -> SecretRef:
    """Parse a secret from a file: plain, or `${NAME}`."""
    named = _REFERENCE.fullmatch(text.strip())
    return SecretRef("env", named[1]) if named else SecretRef("plain", text.strip())


def secret_from_config(source: "SecretSourceConfig") -> SecretRef:
    """Return the reference that the config gives for a secret."""
    match source.source:
        case "env":
            return SecretRef("env", source.name or "")
        case "file":
            return SecretRef("file", source.path or "")
        case "exec":
            return SecretRef("exec", "", source.command, float(source.timeout_seconds))


def secret_from_profile(entry: Mapping[str, Json]) -> SecretRef | None:
    """Return a profile's reference: a variable or a file. Commands are not run from there."""
    match entry:
        case {"source": "env", "name": str(name)} | {"source": "env", "id": str(name)} if (
            name.strip()
        ):
            return SecretRef("env", name.strip())
        case {"source": "file", "path": str(path)} if path.strip():
            return SecretRef("file", path.strip())
        case _:
            return None


async def fetch_secret(source: SecretRef, env: Mapping[str, str], home: Path) -> str:
    """Return the secret. Raises AuthError when it is missing."""
    match source.place:
        case "plain":
            said = source.value
        case "env":
            said = env.get(source.value, "")
        case "file":
            said = await asyncio.to_thread(_read, expand(source.value, home))
        case "exec":
            said = await _run(source, env)
    lines = said.strip().splitlines()
    secret = lines[0].strip() if lines else ""
    if not secret:
        raise AuthError(f"there is no key in {_place(source)}", fix=_FIXES[source.place])
    if not (secret.isascii() and secret.isprintable()) or " " in secret:
        raise AuthError(f"what is in {_place(source)} is not a key", fix=_FIXES[source.place])
    return secret


_FIXES: Mapping[SecretKind, str] = {
    "plain": "add it again: homarus models auth add",
    "env": "set the variable",
    "file": "put the key, and nothing else, into that file",
    "exec": "run the command by hand: its first line must be the key",
}


def _place(source: SecretRef) -> str:
    return "the credentials file" if source.place == "plain" else source.masked


def _read(path: Path) -> str:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as opened:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise OSError(errno.EINVAL, "it is not a regular file")
            return opened.read(MAX_SECRET_BYTES).decode("utf-8", "replace")
    except (OSError, ValueError) as exc:
        why = getattr(exc, "strerror", None) or "that is no path"
        raise AuthError(
            f"the key in {one_line(str(path))} cannot be read: {why}", fix="check the path"
        ) from exc


async def _run(source: SecretRef, env: Mapping[str, str]) -> str:
    """Return a command's output; the command and its children have ended when this returns."""
    name = one_line(source.command[0])
    read_fd, write_fd = os.pipe()
    pipe = os.fdopen(read_fd, "rb", buffering=0)
    try:
        process = _start(source.command, env, write_fd)
    except (OSError, ValueError) as exc:
        pipe.close()
        why = getattr(exc, "strerror", None) or "that is no command"
        fix = "check apiKeyFrom.command"
        raise AuthError(f"the command {name} could not be started: {why}", fix=fix) from exc
    finally:
        os.close(write_fd)
    try:
        async with asyncio.timeout(source.timeout_s):
            said = await _output(pipe)
            status = await asyncio.to_thread(process.wait)
    except TimeoutError as exc:
        raise AuthError(
            f"the command {name} gave no key within {source.timeout_s:g} s", fix=_FIXES["exec"]
        ) from exc
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    if status != 0:
        raise AuthError(f"the command {name} ended with status {status}", fix=_FIXES["exec"])
    return said.decode("utf-8", "replace")


def _start(
    command: tuple[str, ...], env: Mapping[str, str], stdout: int
) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(  # noqa: S603 - the words of the user's own configuration
        command,
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.DEVNULL,
        env=dict(env),
        start_new_session=True,
    )


async def _output(pipe: BinaryIO) -> bytes:
    """Return the start of what is written to a pipe, until all writers have closed it."""
    reader = asyncio.StreamReader(limit=MAX_SECRET_BYTES)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), pipe
    )
    said = b""
    try:
        while more := await reader.read(MAX_SECRET_BYTES):
            said = (said + more)[:MAX_SECRET_BYTES]
    finally:
        transport.close()
    return said
