"""The process between us and a command, which ends the complete process tree.

Started as `python -I -S process_supervisor.py CONTROL CWD COMMAND` in a session of its own; it
imports no module of ours. CONTROL is a socket: the exit status is written to it, and `t`
(terminate) or end of file (the gateway is gone or has closed it: kill) is read from it. CWD is a
descriptor, so the command runs in the very directory that was shown to the person.

Why a process and not a call between fork and exec: a death signal reaches one process, never its
children, and exists on Linux only; a socket that closes is noticed everywhere, also after kill -9.
On Linux it also adopts what the command leaves behind (a daemon that left the group) and ends it.
"""

import os
import select
import signal
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path

POLITE_S = 2.0
FINAL_S = 2.0
PR_SET_CHILD_SUBREAPER = 36
SHELL = "/bin/sh"


def main() -> None:
    """Run the command, report its exit status, and end everything that it started."""
    control = socket.socket(fileno=int(sys.argv[1]))
    control.set_inheritable(False)
    os.fchdir(int(sys.argv[2]))
    os.close(int(sys.argv[2]))
    if sys.platform == "linux":
        _adopt_orphans()
    wake, tell = socket.socketpair()
    tell.settimeout(0.0)
    signal.set_wakeup_fd(tell.fileno())
    # Handlers, not SIG_IGN, which the shell would inherit: `kill 0` in a command is not for us.
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, lambda *_: None)
    if select.select([control], [], [], 0)[0]:
        return  # cancelled before it started
    child = os.fork()
    if child == 0:
        _become(sys.argv[3])
    status = _wait(child, control, wake)
    with suppress(OSError):  # the gateway is gone; what is left to do is the same
        control.sendall(str(status).encode())
    _end_all()


def _become(command: str) -> None:
    try:
        # The interpreter ignores these two; a command must not.
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        os.execv(SHELL, ["sh", "-c", command])  # noqa: S606 - the command a person approved
    finally:
        os._exit(127)


def _wait(child: int, control: socket.socket, wake: socket.socket) -> int:
    """Return the child's exit status as a shell reports it."""
    deadline: float | None = None
    while True:
        left_s = None if deadline is None else max(0.0, deadline - time.monotonic())
        ready = select.select([control, wake], [], [], left_s)[0]
        if wake in ready:
            wake.recv(4096)
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code
        if control in ready and control.recv(1) == b"t":
            deadline = time.monotonic() + POLITE_S
            os.killpg(0, signal.SIGTERM)
        elif control in ready or left_s == 0.0:
            return 128 + signal.SIGKILL  # which is what comes next


def _adopt_orphans() -> None:
    import ctypes

    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _end_all() -> None:
    """Kill our children until there are none, then our group, which includes this process.

    A child that dies leaves its own children to us (Linux), so none escapes.
    """
    deadline = time.monotonic() + FINAL_S
    while sys.platform == "linux" and time.monotonic() < deadline:
        for pid in _children(os.getpid()):
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass
        except ChildProcessError:
            break
        time.sleep(0.002)
    os.killpg(0, signal.SIGKILL)


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
