"""The process of an MCP server that speaks over its standard input and output.

It runs under the supervisor of commands (tools/exec/process_supervisor.py), in a process group of
its own: when the gateway ends, by kill -9 too, the supervisor notices and ends the server with
everything that it started. The environment is the harmless part of ours and what the config sets;
it reaches the supervisor by a socket, never by arguments. Lines are bounded, and what the server
writes to its standard error is logged within limits.
"""

import asyncio
import json
import logging
import os
import signal
import socket
import sys
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, cast

from homarus.core.errors import ToolError
from homarus.core.text import one_line
from homarus.tools.exec import process_supervisor
from homarus.tools.exec.environment import build_environment
from homarus.tools.mcp.server_settings import McpServerSettings, find_program

log = logging.getLogger(__name__)

MAX_LINE_BYTES: Final = 16 << 20
EXIT_S: Final = 1.0  # for a server to end by itself, after its input was closed
_END_S: Final = 10.0  # longer than the supervisor's own timeouts
_CHUNK_BYTES: Final = 65_536
_LENGTH_BYTES: Final = 8
_MAX_LOGGED_LINES: Final = 200
_MAX_LOGGED_CHARS: Final = 500
_KEPT_LINES: Final = 5
_SUPERVISOR: Final = Path(process_supervisor.__file__)


class LineTooLongError(Exception):
    """A server wrote a line that is longer than a message may be."""


class ServerProcess:
    """A running server: lines in, lines out. `start` makes one, `end` must be called."""

    def __init__(
        self, name: str, process: asyncio.subprocess.Process, control: socket.socket
    ) -> None:
        self._name, self._process, self._control = name, process, control
        self._stdin = cast("asyncio.StreamWriter", process.stdin)
        self._stdout = cast("asyncio.StreamReader", process.stdout)
        self._stderr = cast("asyncio.StreamReader", process.stderr)
        self._buffer = bytearray()
        self._errors: deque[str] = deque(maxlen=_KEPT_LINES)
        self._logged = 0
        self._exit_code: int | None = None
        self._reading_exit = asyncio.Lock()

    @classmethod
    async def start(cls, settings: McpServerSettings, env: Mapping[str, str]) -> "ServerProcess":
        """Start the program of a server. Raises ToolError when that is not possible."""
        program = find_program(settings, env)
        if program is None:
            raise ToolError(
                f"the MCP server {settings.name} cannot be started: there is no program"
                f" {one_line(settings.command, 200)}",
                fix=f"install it, or correct mcp.servers.{settings.name}.command",
            )
        ours, theirs = socket.socketpair()
        try:
            with theirs, _open_folder(settings, env) as folder:
                process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    *("-I", "-S", "-X", "utf8", str(_SUPERVISOR), str(theirs.fileno())),
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.PIPE,
                    limit=_CHUNK_BYTES,
                    env={},
                    pass_fds=(theirs.fileno(), folder),
                    start_new_session=True,
                )
        except OSError as exc:
            ours.close()
            raise ToolError(
                f"the MCP server {settings.name} cannot be started: {exc.strerror or exc}",
                fix=f"check mcp.servers.{settings.name}.cwd",
            ) from exc
        ours.settimeout(0.0)
        server = cls(settings.name, process, ours)
        plan = _encode_plan(settings, program, env, folder)
        with suppress(ConnectionError):  # it ended already: reading shows that
            await asyncio.get_running_loop().sock_sendall(ours, plan)
        return server

    @property
    def pid(self) -> int:
        """The id of the supervisor, which is that of the process group."""
        return self._process.pid

    async def read_line(self) -> bytes | None:
        """Return the next line, None at the end. Raises LineTooLongError."""
        searched = 0
        while (end := self._buffer.find(b"\n", searched)) < 0:
            searched = len(self._buffer)
            if searched > MAX_LINE_BYTES:
                self._buffer.clear()
                raise LineTooLongError
            try:
                data = await self._stdout.read(_CHUNK_BYTES)
            except ConnectionError:
                data = b""
            if not data:
                return None
            self._buffer += data
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return line

    async def write_line(self, line: bytes) -> None:
        """Send one line. Raises ConnectionError when the server no longer reads."""
        self._stdin.write(line + b"\n")
        await self._stdin.drain()

    async def log_errors(self) -> None:
        """Log what the server writes to its standard error, until that is closed."""
        rest = b""
        while data := await self._stderr.read(_CHUNK_BYTES):
            *lines, rest = (rest + data).split(b"\n")
            rest = rest[:_MAX_LOGGED_CHARS]
            for line in lines:
                self._log(line)
        self._log(rest)

    def _log(self, line: bytes) -> None:
        text = one_line(line[:_MAX_LOGGED_CHARS].decode("utf-8", "replace"), _MAX_LOGGED_CHARS)
        if not text.strip():
            return
        self._errors.append(text)
        self._logged += 1
        if self._logged <= _MAX_LOGGED_LINES:
            log.info("MCP server %s: %s", self._name, text)
        if self._logged == _MAX_LOGGED_LINES:
            log.info("MCP server %s: its further output is not logged", self._name)

    async def find_exit_code(self) -> int | None:
        """Return how the program ended, None while it runs."""
        with suppress(TimeoutError, OSError, ValueError):
            async with asyncio.timeout(EXIT_S), self._reading_exit:
                if self._exit_code is None:
                    data = await asyncio.get_running_loop().sock_recv(self._control, 4096)
                    self._exit_code = int(json.loads(data)[0]) if data else None
        return self._exit_code

    @property
    def last_errors(self) -> str:
        """The last lines of its standard error, in one."""
        return one_line(" | ".join(self._errors), 300)

    async def end(self) -> None:
        """End the server and everything it started; it may end by itself first."""
        with suppress(OSError, RuntimeError):
            self._stdin.close()
        try:
            async with asyncio.TaskGroup() as group:
                # A server that is blocked by a full pipe does not end, and neither does the wait.
                drains = [group.create_task(_drain(each)) for each in (self._stdout, self._stderr)]
                await self.find_exit_code()
                with suppress(OSError):
                    self._control.send(b"t")
                with suppress(TimeoutError):
                    async with asyncio.timeout(_END_S if self._exit_code is None else EXIT_S):
                        await self._process.wait()
                self._control.close()  # the supervisor kills what is left
                await self._reap()
                for task in drains:
                    task.cancel()
        finally:
            self._control.close()

    async def _reap(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_END_S):
                await self._process.wait()
                return
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)


async def _drain(stream: asyncio.StreamReader) -> None:
    with suppress(ConnectionError):
        while await stream.read(_CHUNK_BYTES):
            pass


@contextmanager
def _open_folder(settings: McpServerSettings, env: Mapping[str, str]) -> Iterator[int]:
    folder = Path(settings.cwd).expanduser() if settings.cwd else Path(env.get("HOME") or "/")
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield fd
    finally:
        os.close(fd)


def _encode_plan(
    settings: McpServerSettings, program: str, env: Mapping[str, str], folder: int
) -> bytes:
    """Return what the supervisor reads: one command, run by its path."""
    command = {"argv": [settings.command, *settings.args], "path": program}
    plan = {
        "command": "",
        "chain": [["", [command]]],
        "env": build_environment({}, env) | dict(settings.env),
        "folder": folder,
        "pty": False,
        "fds": [folder],
        "launch": None,
    }
    data = json.dumps(plan).encode("ascii")
    return len(data).to_bytes(_LENGTH_BYTES, "big") + data
