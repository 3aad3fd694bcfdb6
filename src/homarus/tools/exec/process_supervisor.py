"""The process between us and a command, which runs its plan and ends the complete process tree.

Started as `python -I -S process_supervisor.py CONTROL` in a session of its own; it imports no
module of ours. CONTROL is a socket: it receives the plan (see `run.py`), then `t` (terminate) or
end of file (the gateway is gone or has closed it: kill); the outcome is written to it. The plan
names descriptors that this process inherits: the folder, and the programs as they were hashed.
Standard input, output and error of the commands are those of this process.

A plan with a launch starts that launcher of a sandbox instead (see `sandbox_launcher.py`).

Pipelines and the operators between them are run here, without a shell. A file of the plan that is
not what was hashed is not run, and nothing after it is.

Why a process and not a call between fork and exec: a death signal reaches one process, never its
children, and exists on Linux only; a socket that closes is noticed everywhere, also after kill -9.
On Linux it also adopts what the command leaves behind (a daemon that left the group) and ends it.
"""

import importlib
import json
import os
import select
import signal
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

POLITE_S = 2.0
FINAL_S = 2.0
PR_SET_CHILD_SUBREAPER = 36
SHELL = "/bin/sh"
LENGTH_BYTES = 8
KILLED = 128 + signal.SIGKILL
SIGNALS = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


class ChangedFileError(Exception):
    """A file of the plan is not the one that was hashed."""


class KilledError(Exception):
    """The gateway wants everything to end now."""


def main() -> None:
    """Run the plan, report its outcome, and end everything that it started."""
    control = socket.socket(fileno=int(sys.argv[1]))
    control.set_inheritable(False)
    data = _receive(control, int.from_bytes(_receive(control, LENGTH_BYTES), "big"))
    if not data:
        return  # cancelled before it started
    plan = json.loads(data)
    for fd in plan["fds"]:
        os.set_inheritable(fd, False)  # noqa: FBT003 - the library's parameter
    os.fchdir(plan["folder"])
    if sys.platform == "linux":
        _adopt_orphans()
    if plan["pty"] and not plan["launch"]:  # else the session inside takes it
        _take_terminal()
    runner = _Runner(control, plan["env"])
    outcome = runner.run_launch(plan) if plan["launch"] else runner.run(plan)
    with suppress(OSError):  # the gateway is gone; what is left to do is the same
        control.sendall(json.dumps(outcome).encode())
    if plan["launch"]:  # first: an engine whose helpers are killed leaves cgroups
        _load_launcher().run_cleanup(plan["launch"])
    _kill_children()
    if plan["launch"]:
        _load_launcher().remove_cgroups(plan["launch"])
    os.killpg(0, signal.SIGKILL)  # what is left of the group, which includes this process


def _load_launcher() -> Any:
    """Return the module `sandbox_launcher`, which is beside this one, and compiled."""
    folder = str(Path(__file__).parent)
    if folder not in sys.path:
        sys.path.append(folder)
    return importlib.import_module("sandbox_launcher")


def _receive(control: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        if not (part := control.recv(size - len(data))):
            return b""
        data += part
    return data


def _take_terminal() -> None:
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    # A background process group that writes or reads would be stopped.
    signal.signal(signal.SIGTTOU, lambda *_: None)


class _Runner:
    """Runs one plan and watches the control socket meanwhile."""

    def __init__(self, control: socket.socket, env: dict[str, str]) -> None:
        self._control, self._env = control, env
        self._wake, tell = socket.socketpair()
        tell.settimeout(0.0)
        self._tell = tell
        signal.set_wakeup_fd(tell.fileno(), warn_on_full_buffer=False)
        # Handlers, not SIG_IGN, which a command would inherit: `kill 0` in it is not for us.
        for number in SIGNALS:
            signal.signal(number, lambda *_: None)
        self._deadline: float | None = None
        self._launcher: Any = None

    def run_launch(self, plan: dict[str, Any]) -> tuple[int, str, str]:
        """Return the exit status, why nothing was run, and which limit ended the command."""
        module = _load_launcher()
        self._launcher = module.SandboxLauncher(plan["launch"], self._tell)
        try:
            self._check_control()
            status = self._wait([self._launcher.start()])
        except KilledError:
            return KILLED, "", self._launcher.limit_reason
        except (module.LaunchError, OSError) as exc:
            return 126, str(exc), ""
        return status, "", self._launcher.limit_reason

    def run(self, plan: dict[str, Any]) -> tuple[int, str, str]:
        """Return the exit status as a shell reports it, and why a file was refused, else ""."""
        status = 0
        try:
            if plan["chain"] is None:
                shell = {"argv": ["sh", "-c", plan["command"]], "path": SHELL}
                return self._wait(self._start([shell])), "", ""
            for operator, pipeline in plan["chain"]:
                if (operator == "&&" and status != 0) or (operator == "||" and status == 0):
                    continue
                status = self._wait(self._start(pipeline))
                if self._deadline is not None:
                    break  # it was told to end: no further command starts
        except ChangedFileError as exc:
            return 126, str(exc), ""
        except KilledError:
            return KILLED, "", ""
        return status, "", ""

    def _start(self, pipeline: list[dict[str, Any]]) -> list[int]:
        """Start the commands of a pipeline, and return their process ids."""
        self._check_control()
        for command in pipeline:
            _check_files(command)
        started: list[int] = []
        source = 0
        for number, command in enumerate(pipeline):
            is_last = number == len(pipeline) - 1
            reader, sink = (0, 1) if is_last else os.pipe()
            started.append(self._spawn(command, source, sink))
            if source:
                os.close(source)
            if not is_last:
                os.close(sink)
            source = reader
        return started

    def _check_control(self) -> None:
        if select.select([self._control], [], [], 0)[0]:
            raise KilledError  # it was told to end before this started

    def _spawn(self, command: dict[str, Any], source: int, sink: int) -> int:
        child = os.fork()
        if child == 0:
            _become(command, source, sink, self._env)
        return child

    def _wait(self, children: list[int]) -> int:
        """Return the exit status of the last child when all have ended."""
        running, code = set(children), 0
        while True:
            for child in list(running):
                done, status = os.waitpid(child, os.WNOHANG)
                if done:
                    running.discard(child)
                    if child == children[-1]:
                        code = os.waitstatus_to_exitcode(status)
            if not running:
                return code if code >= 0 else 128 - code
            self._watch()

    def _watch(self) -> None:
        """Wait until a child ends or the gateway wants something. Raises KilledError."""
        left_s = None if self._deadline is None else max(0.0, self._deadline - time.monotonic())
        if left_s is None and self._launcher:
            left_s = self._launcher.poll_s
        ready = select.select([self._control, self._wake], [], [], left_s)[0]
        if self._wake in ready:
            self._wake.recv(4096)
        if self._control in ready and self._control.recv(1) == b"t":
            self._deadline = time.monotonic() + POLITE_S
            self._terminate()
        elif self._control in ready or self._is_over():
            raise KilledError
        elif not ready and self._launcher:
            self._launcher.poll()

    def _is_over(self) -> bool:
        """Return whether the command has to be killed: by its limits, or as it did not end."""
        is_late = self._deadline is not None and time.monotonic() >= self._deadline
        return is_late or bool(self._launcher and self._launcher.limit_reason)

    def _terminate(self) -> None:
        if self._launcher:
            self._launcher.terminate()
            return
        os.killpg(0, signal.SIGTERM)
        _signal_children(signal.SIGTERM)  # those of a terminal have groups of their own


def _become(command: dict[str, Any], source: int, sink: int, env: dict[str, str]) -> None:
    """Replace this process by a command. Does not return."""
    name = command["argv"][0]
    status = 126
    try:
        if source:
            os.dup2(source, 0)
        if sink != 1:
            os.dup2(sink, 1)
        # The interpreter ignores these two; a command must not.
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        by_descriptor = "fd" in command and not command["script"] and os.execve in os.supports_fd
        program = command["fd"] if by_descriptor else command["path"]
        if program is None:
            raise FileNotFoundError
        os.execve(program, command["argv"], env)  # noqa: S606 - what was decided
    except FileNotFoundError:
        status = 127
        os.write(2, f"{name}: not found\n".encode("utf-8", "surrogateescape"))
    except OSError as exc:
        text = f"{name}: cannot be executed: {exc.strerror}\n"
        os.write(2, text.encode("utf-8", "surrogateescape"))
    finally:
        os._exit(status)


def _check_files(command: dict[str, Any]) -> None:
    """Check that the program and the scripts of a command are those that were hashed."""
    for file in command.get("files", ()):
        _check_file(file)


def _check_file(file: dict[str, Any]) -> None:
    """Raise ChangedFileError unless the file has the content that was hashed.

    What is run by its path must be the file behind the descriptor. A script is read again; a
    program only if its size or times changed.
    """
    path, fd = file["path"], file["fd"]
    try:
        found = os.fstat(fd)
        if file["by_path"] or os.execve not in os.supports_fd:
            current = os.stat(path)  # noqa: PTH116 - compared with the descriptor
            if not os.path.samestat(found, current):
                raise ChangedFileError(f"{path} was replaced after it was checked")
        seen = [found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns]
        if file["is_program"] and seen == file["stat"]:
            return
        if _digest(fd) != file["sha256"]:
            raise ChangedFileError(f"{path} was changed after it was checked")
    except OSError as exc:
        raise ChangedFileError(f"{path} cannot be read any more: {exc.strerror}") from exc


def _digest(fd: int) -> str:
    import hashlib

    digest, place = hashlib.sha256(), 0
    while data := os.pread(fd, 1 << 20, place):
        digest.update(data)
        place += len(data)
    return digest.hexdigest()


def _adopt_orphans() -> None:
    import ctypes

    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _kill_children() -> None:
    """Kill our children until there are none.

    A child that dies leaves its own children to us (Linux), so none escapes.
    """
    deadline = time.monotonic() + FINAL_S
    while sys.platform == "linux" and time.monotonic() < deadline:
        _signal_children(signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass
        except ChildProcessError:
            break
        time.sleep(0.002)


def _signal_children(number: int) -> None:
    if sys.platform == "linux":
        for pid in _children(os.getpid()):
            with suppress(OSError):
                os.kill(pid, number)


def _children(parent: int) -> list[int]:
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                fields = (entry / "stat").read_bytes().rpartition(b")")[2].split()
                if int(fields[1]) == parent:
                    found.append(int(entry.name))
    return found


if __name__ == "__main__":
    main()
