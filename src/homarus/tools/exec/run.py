"""Run a plan exactly as it was decided, and leave no process behind.

The commands run under a supervisor (see `process_supervisor.py`). However a command ends, by
itself, by a timeout or by `end`, everything that it started has ended with it; when the gateway is
killed, the supervisor does the same.
"""

import asyncio
import fcntl
import json
import logging
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, TypeAlias

from homarus.core.errors import ToolError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json
from homarus.tools.exec.command_input import CommandInput
from homarus.tools.exec.executable import HashedFile
from homarus.tools.exec.output import OutputBuffer, ProgressThrottle
from homarus.tools.exec.plan import ExecPlan, SimpleCommand
from homarus.tools.exec.terminal import TerminalFilter

if TYPE_CHECKING:
    from homarus.net.allow_proxy import ProxyAccess
    from homarus.tools.sandbox.base import SandboxLaunch
    from homarus.tools.sandbox.network import SandboxNetwork

log = logging.getLogger(__name__)

MAX_OUTPUT_CHARS = 200_000
TERMINAL_ROWS, TERMINAL_COLUMNS = 30, 120
_CHUNK_BYTES = 65_536
_ENDING_S = 10.0  # longer than the supervisor's own timeout
_DRAIN_S = 1.0
_SUPERVISOR: Final = Path(__file__).with_name("process_supervisor.py")
_LENGTH_BYTES = 8
_Outcome: TypeAlias = tuple[int, str, str]  # exit code, refusal, the limit that was exceeded


@dataclass(frozen=True, slots=True)
class CommandResult:
    """How a command ended; `exit_code` is None when it was killed before it could report one.

    `refusal` says which file of the plan was not the one that was decided on: the command was not
    run from there on. `limit_reason` says which limit of its sandbox the command exceeded,
    `accesses` which hosts it requested of the sandbox's proxy.
    """

    exit_code: int | None
    timed_out: bool
    output: str
    duration_ms: int
    refusal: str = ""
    is_killed: bool = False
    timeout_s: float = 0.0
    limit_reason: str = ""
    accesses: "tuple[ProxyAccess, ...]" = ()

    @property
    def is_success(self) -> bool:
        is_ended = self.timed_out or self.refusal or self.is_killed or self.limit_reason
        return self.exit_code == 0 and not is_ended


async def run_plan(
    plan: ExecPlan, *, show: Callable[[str], None] = lambda _text: None
) -> CommandResult:
    """Run the plan to its end or its timeout. The plan stays open."""
    process = _SupervisedProcess(plan)  # what it raises is no failure of the group
    async with asyncio.TaskGroup() as group:
        command = RunningCommand(plan, group, process=process, show=show)
        try:
            return await command.wait()
        finally:
            await command.end()


class RunningCommand:
    """A plan that is being run in a task of `group`, with its output so far.

    `on_text` is called with the output as it arrives, `show` with the newest part of it now and
    then, `on_end` when `result` is there. The plan may be closed as soon as this is made: the
    supervisor has what it needs.
    """

    def __init__(
        self,
        plan: ExecPlan,
        group: asyncio.TaskGroup,
        *,
        process: "_SupervisedProcess | None" = None,
        show: Callable[[str], None] = lambda _text: None,
        on_text: Callable[[str], None] = lambda _text: None,
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        self._timeout_s, self._show, self._on_text = plan.timeout_s, show, on_text
        self._filter = TerminalFilter() if plan.pty else None
        self._output = OutputBuffer(MAX_OUTPUT_CHARS)
        self._process = process or _SupervisedProcess(plan)
        self._killed = self._is_sent = False
        self._launch = plan.launch
        self._started_s = asyncio.get_running_loop().time()
        self._task = group.create_task(self._supervise(encode_plan(plan)), name="command")
        self._task.add_done_callback(lambda _task: on_end())

    @property
    def pid(self) -> int:
        """The id of the supervisor, which is also that of the process group."""
        return self._process.pid

    @property
    def output(self) -> str:
        return self._output.text

    @property
    def accesses(self) -> "tuple[ProxyAccess, ...]":
        """The hosts that it has requested of the sandbox's proxy so far."""
        return self._process.network.accesses if self._process.network else ()

    @property
    def total_chars(self) -> int:
        return self._output.total_chars

    @property
    def result(self) -> CommandResult | None:
        """The result, None while it runs, and when the program ended it."""
        is_done = self._task.done() and not self._task.cancelled()
        return self._task.result() if is_done else None

    async def wait(self) -> CommandResult:
        """Return the result when the command has ended. Cancelling this does not end it."""
        return await asyncio.shield(self._task)

    async def wait_for(self, timeout_s: float) -> CommandResult | None:
        """Return the result, None when the command still runs after the time."""
        await asyncio.wait([self._task], timeout=timeout_s)
        return self.result

    def write(self, data: bytes, *, eof: bool = False) -> None:
        """Send input to the command. Raises ToolError when it has none or does not read it."""
        if self._process.input is None or self._task.done():
            raise ToolError(
                "the command has no input", fix="start it with background: true or pty: true"
            )
        self._process.input.write(data, eof=eof)

    async def end(self) -> CommandResult:
        """Terminate the command if it runs, and return its result."""
        self.terminate()
        return await self.wait()

    def terminate(self) -> None:
        """Ask the supervisor to end the command; it is killed if it does not end soon."""
        if not self._task.done():
            self._killed = True
            if self._is_sent:
                self._process.terminate()

    @property
    def runtime_s(self) -> float:
        """How long it has been running."""
        return asyncio.get_running_loop().time() - self._started_s

    async def _supervise(self, encoded: bytes) -> CommandResult:
        process = self._process
        try:
            async with asyncio.TaskGroup() as tasks:
                pump = tasks.create_task(self._pump())
                proxy = tasks.create_task(process.network.serve()) if process.network else None
                status, timed_out = await self._wait_exit(encoded)
                duration_ms = round(self.runtime_s * 1000)
                if status is None:
                    process.kill()
                if proxy:
                    proxy.cancel()
                # A process that escaped (not on Linux) may hold the pipe open for ever.
                await asyncio.wait([pump], timeout=_DRAIN_S)
                pump.cancel()
        except* OSError:  # the task belongs to the program, which must not end with a command
            log.exception("a command's output could not be read")
            status, timed_out = None, False
            duration_ms = round(self.runtime_s * 1000)
        finally:
            await process.end()
        if status is None and self._launch:  # what the supervisor could not do
            from homarus.tools.exec.sandbox_launcher import clean_up

            await asyncio.to_thread(clean_up, _encode_launch(self._launch))
        code, refusal, limit_reason = status or (None, "", "")
        is_killed = self._killed and not timed_out
        given = (refusal, is_killed, self._timeout_s, limit_reason, self.accesses)
        return CommandResult(code, timed_out, self.output, duration_ms, *given)

    def _mark_sent(self) -> None:
        """Pass on that the command was told to end while its plan was sent."""
        self._is_sent = True
        if self._killed:
            self._process.terminate()

    async def _wait_exit(self, encoded: bytes) -> tuple[_Outcome | None, bool]:
        """Return the outcome from the supervisor, and whether the command took too long."""
        control, loop = self._process.control, asyncio.get_running_loop()
        if self._killed:
            return None, False
        with suppress(TimeoutError):
            async with asyncio.timeout(self._timeout_s):
                with suppress(ConnectionError):
                    await loop.sock_sendall(control, encoded)
                self._mark_sent()
                return await _receive_outcome(control), False
        with suppress(TimeoutError, OSError):
            self._process.terminate()
            async with asyncio.timeout(_ENDING_S):
                return await _receive_outcome(control), True
        return None, True

    async def _pump(self) -> None:
        """Read the command's output until its pipe is closed."""
        loop = asyncio.get_running_loop()
        progress = ProgressThrottle(self._show)
        reader = asyncio.StreamReader(limit=_CHUNK_BYTES)
        transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), self._process.output
        )
        try:
            while True:
                try:
                    async with asyncio.timeout(progress.due_in_s(loop.time())):
                        data = await reader.read(_CHUNK_BYTES)
                except TimeoutError:
                    progress.flush(loop.time())
                    continue
                except OSError:  # EIO: the last process that had the terminal open is gone
                    break
                if not data:
                    break
                progress.add(self._add(data), loop.time())
        finally:
            transport.close()
            progress.add(self._add(b"", final=True), loop.time())
            progress.flush(loop.time())

    def _add(self, data: bytes, *, final: bool = False) -> str:
        text = self._output.decode(data, final=final)
        if self._filter:
            text, replies = self._filter.feed(text, final=final)
            if replies and self._process.input:
                with suppress(ToolError):
                    self._process.input.write(replies.encode())
        self._output.add_text(text)
        self._on_text(text)
        return text


async def _receive_outcome(control: socket.socket) -> _Outcome | None:
    """Return what the supervisor reported; None when it is gone."""
    loop, data = asyncio.get_running_loop(), b""
    with suppress(ConnectionError):
        while part := await loop.sock_recv(control, 4096):
            data += part
            with suppress(ValueError):
                code, refusal, limit_reason = json.loads(data)
                return int(code), str(refusal), str(limit_reason)
    return None


def encode_plan(plan: ExecPlan) -> bytes:
    """Return the plan as the supervisor reads it: its length, then JSON."""
    chain: Json = None
    if plan.chain is not None:
        chain = [
            [operator, [_encode_command(plan, each) for each in pipeline.commands]]
            for operator, pipeline in plan.chain
        ]
    value: dict[str, Json] = {
        "command": plan.command,
        "chain": chain,
        "env": dict(plan.env),
        "folder": plan.folder.fd,
        "pty": plan.pty,
        "fds": list(plan_descriptors(plan)),
        "launch": _encode_launch(plan.launch) if plan.launch else None,
    }
    data = json.dumps(value).encode("ascii")
    return len(data).to_bytes(_LENGTH_BYTES, "big") + data


def _encode_launch(launch: "SandboxLaunch") -> dict[str, Json]:
    return {
        "argv": list(launch.argv),
        "env": dict(launch.env),
        "fds": list(launch.fds),
        "rlimits": [list(each) for each in launch.rlimits],
        "cgroups": [
            {"path": each.path, "settings": [list(pair) for pair in each.settings]}
            for each in launch.cgroups
        ],
        "uses_landlock": launch.uses_landlock,
        "terminates_inside": launch.terminates_inside,
        "cleanup": [list(each) for each in launch.cleanup],
        "disk_folders": list(launch.disk_folders),
        "disk_bytes": launch.disk_bytes,
    }


def _encode_command(plan: ExecPlan, command: SimpleCommand) -> dict[str, Json]:
    """A program is executed by its descriptor, a script by its path, so that it knows its place."""
    program = command.executable
    return {
        "argv": list(command.argv),
        "fd": program.fd,
        "path": program.path,
        "script": program.file.is_script,
        "files": list(_encode_files(plan, command, by_path=program.file.is_script)),
    }


def _encode_files(
    plan: ExecPlan, command: SimpleCommand, *, by_path: bool
) -> Iterator[dict[str, Json]]:
    """Yield the files to check before a command starts, with those of the command in it."""
    program, script = command.executable, command.executable.script
    is_program = not program.file.is_script
    yield _encode_file(program.file, program.path, by_path=by_path, is_program=is_program)
    if script is not None:
        # Relative to the open folder, as the interpreter will open it.
        path = script.path.removeprefix(plan.folder.path.rstrip("/") + "/")
        yield _encode_file(script, path, by_path=True, is_program=False)
    if command.inner is not None:
        yield from _encode_files(plan, command.inner, by_path=True)


def _encode_file(
    file: HashedFile, path: str, *, by_path: bool, is_program: bool
) -> dict[str, Json]:
    return {
        "path": path,
        "fd": file.fd,
        "sha256": file.sha256,
        "stat": list(file.key),
        "by_path": by_path,
        "is_program": is_program,
    }


def plan_descriptors(plan: ExecPlan) -> tuple[int, ...]:
    """Return the descriptors of the plan that its supervisor inherits."""
    files = [file.fd for command in plan.commands() for file in command.files]
    if plan.launch:
        lock = plan.launch.lock_fd
        files += [*plan.launch.fds, *([lock] if lock >= 0 else ())]
    return (plan.folder.fd, *files)


class _SupervisedProcess:
    """A supervisor process, our end of its control socket, its output, input and network."""

    def __init__(self, plan: ExecPlan) -> None:
        self.input: CommandInput | None = None
        self.network: SandboxNetwork | None = None
        try:
            with ExitStack() as ours, ExitStack() as theirs:
                self.control, control = socket.socketpair()
                ours.enter_context(self.control)
                theirs.enter_context(control)
                ours.callback(self._close_input)
                open_streams = self._open_terminal if plan.pty else self._open_pipes
                source, sink = open_streams(plan, ours, theirs)
                if plan.launch and plan.launch.proxy >= 0:
                    self.network = _open_network(plan.launch)
                    ours.callback(self.network.close)
                words = ["-I", "-S", "-X", "utf8", str(_SUPERVISOR), str(control.fileno())]
                self._process = subprocess.Popen(  # noqa: S603 - what was decided
                    [sys.executable, *words],
                    stdin=source,
                    stdout=sink,
                    stderr=sink,
                    env={},
                    pass_fds=(control.fileno(), *plan_descriptors(plan)),
                    start_new_session=True,
                )
                ours.pop_all()  # success: `end` closes them
        except OSError as exc:
            raise ToolError(f"the command could not be started: {exc.strerror}") from exc
        self.pid = self._process.pid
        self.control.settimeout(0.0)

    def _open_terminal(
        self, _plan: ExecPlan, ours: ExitStack, theirs: ExitStack
    ) -> tuple[int, int]:
        """Open a pseudo-terminal; the command's end is returned for input and output."""
        master, slave = os.openpty()
        theirs.callback(os.close, slave)
        self.output: BinaryIO = ours.enter_context(os.fdopen(master, "rb", buffering=0))
        size = struct.pack("HHHH", TERMINAL_ROWS, TERMINAL_COLUMNS, 0, 0)
        fcntl.ioctl(slave, termios.TIOCSWINSZ, size)
        self.input = CommandInput(os.dup(master), is_terminal=True)
        return slave, slave

    def _open_pipes(self, plan: ExecPlan, ours: ExitStack, theirs: ExitStack) -> tuple[int, int]:
        """Open a pipe for the output; the input is the plan's, open if others may write to it."""
        read_fd, sink = os.pipe()
        theirs.callback(os.close, sink)
        self.output = ours.enter_context(os.fdopen(read_fd, "rb", buffering=0))
        if not plan.stdin and not plan.background:
            return subprocess.DEVNULL, sink
        if plan.stdin:
            source = _open_text(plan.stdin)
        else:
            source, write_fd = os.pipe()
            self.input = CommandInput(write_fd)
        theirs.callback(os.close, source)
        return source, sink

    def terminate(self) -> None:
        with suppress(OSError):
            self.control.send(b"t")

    async def end(self) -> None:
        """End whatever still runs."""
        self.control.close()
        self._close_input()
        if self.network:
            self.network.close()
        await asyncio.to_thread(self._reap)
        self.output.close()

    def _close_input(self) -> None:
        if self.input:
            self.input.close()

    def kill(self) -> None:
        """Kill the group, in case the command stopped or killed its supervisor."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def _reap(self) -> None:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_ENDING_S)
        self.kill()
        self._process.wait()


def _open_network(launch: "SandboxLaunch") -> "SandboxNetwork":
    from homarus.tools.sandbox.network import SandboxNetwork  # few sandboxes have one

    return SandboxNetwork(launch)


def _open_text(text: str) -> int:
    """Return a descriptor from which a command reads the text."""
    with tempfile.TemporaryFile() as file:
        file.write(text.encode("utf-8", "surrogateescape"))
        file.seek(0)
        return os.dup(file.fileno())
