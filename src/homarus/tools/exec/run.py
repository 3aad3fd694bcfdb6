"""Run one command text with `sh -c`, verbatim, and leave no process behind.

The command runs under a supervisor (see `process_supervisor.py`). However this coroutine ends, by
the command's end, a timeout or cancellation, everything the command started has ended with it;
when the gateway is killed, the supervisor does the same.
"""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import BinaryIO

from homarus.core.errors import ToolError
from homarus.core.fast_dataclass import dataclass
from homarus.tools.exec.output import OutputBuffer, ProgressThrottle

MAX_OUTPUT_CHARS = 200_000
_CHUNK_BYTES = 65_536
_ENDING_S = 10.0  # longer than the supervisor's own timeout
_DRAIN_S = 1.0
_SUPERVISOR = Path(__file__).with_name("process_supervisor.py")


@dataclass(frozen=True, slots=True)
class CommandResult:
    """How a command ended; `exit_code` is None when it was killed before it could report one."""

    exit_code: int | None
    timed_out: bool
    output: str
    duration_ms: int


async def run_command(
    command: str,
    *,
    folder_fd: int,
    env: Mapping[str, str],
    timeout_s: float,
    show: Callable[[str], None],
) -> CommandResult:
    """Run the command to its end or its timeout."""
    loop = asyncio.get_running_loop()
    started_s = loop.time()
    output = OutputBuffer(MAX_OUTPUT_CHARS)
    process = _SupervisedProcess(command, folder_fd, env)
    try:
        async with asyncio.TaskGroup() as tasks:
            pump = tasks.create_task(_pump(process.output, output, ProgressThrottle(show)))
            exit_code, timed_out = await _wait(process.control, timeout_s)
            duration_ms = round((loop.time() - started_s) * 1000)
            if exit_code is None:
                process.kill()
            # A process that escaped (not on Linux) may hold the pipe open for ever.
            await asyncio.wait([pump], timeout=_DRAIN_S)
            pump.cancel()
    finally:
        await process.end()
    return CommandResult(exit_code, timed_out, output.text, duration_ms)


async def _wait(control: socket.socket, timeout_s: float) -> tuple[int | None, bool]:
    """Return the exit code from the supervisor, and whether the command had to be ended."""
    with suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            return await _exit_code(control), False
    with suppress(TimeoutError, OSError):
        control.send(b"t")
        async with asyncio.timeout(_ENDING_S):
            return await _exit_code(control), True
    return None, True


async def _exit_code(control: socket.socket) -> int | None:
    try:
        data = await asyncio.get_running_loop().sock_recv(control, 16)
    except ConnectionError:
        return None
    return int(data) if data else None


async def _pump(pipe: BinaryIO, output: OutputBuffer, progress: ProgressThrottle) -> None:
    """Read the command's output until its pipe is closed."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=_CHUNK_BYTES)
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    try:
        while True:
            try:
                async with asyncio.timeout(progress.due_in_s(loop.time())):
                    data = await reader.read(_CHUNK_BYTES)
            except TimeoutError:
                progress.flush(loop.time())
                continue
            if not data:
                break
            progress.add(output.add(data), loop.time())
    finally:
        transport.close()
        progress.add(output.add(b"", final=True), loop.time())
        progress.flush(loop.time())


class _SupervisedProcess:
    """A supervisor process, our end of its control socket, and the command's output pipe."""

    def __init__(self, command: str, folder_fd: int, env: Mapping[str, str]) -> None:
        try:
            with ExitStack() as ours, ExitStack() as theirs:
                self.control, control = socket.socketpair()
                ours.enter_context(self.control)
                theirs.enter_context(control)
                read_fd, write_fd = os.pipe()
                self.output: BinaryIO = os.fdopen(read_fd, "rb", buffering=0)
                ours.enter_context(self.output)
                theirs.callback(os.close, write_fd)
                words = [
                    "-I",
                    "-S",
                    str(_SUPERVISOR),
                    str(control.fileno()),
                    str(folder_fd),
                    command,
                ]
                self._process = subprocess.Popen(  # noqa: S603 - what a person approved
                    [sys.executable, *words],
                    stdin=subprocess.DEVNULL,
                    stdout=write_fd,
                    stderr=subprocess.STDOUT,
                    env=env,
                    pass_fds=(control.fileno(), folder_fd),
                    start_new_session=True,
                )
                ours.pop_all()  # success: `end` closes them
        except OSError as exc:
            raise ToolError(f"the command could not be started: {exc.strerror}") from exc
        self.control.settimeout(0.0)

    async def end(self) -> None:
        """End whatever still runs."""
        self.control.close()
        await asyncio.to_thread(self._reap)
        self.output.close()

    def kill(self) -> None:
        """Kill the group, in case the command stopped or killed its supervisor."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def _reap(self) -> None:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_ENDING_S)
        self.kill()
        self._process.wait()
