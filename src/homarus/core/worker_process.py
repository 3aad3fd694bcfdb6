"""Call a function in a short-lived process with limits, so that its faults stay there.

A thread could not be stopped, and would share memory and the loop with the gateway. The process has
limits of memory, processor time and wall time, nothing of our environment, and ends with the
gateway (worker_main.py). The file of the function is never imported in this process.
"""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json

_CHUNK_BYTES: Final = 262_144
_LENGTH_BYTES: Final = 4
# The process ends itself this long after our own deadline, which is more precise.
_GRACE_S: Final = 5
_MAIN: Final = Path(__file__).with_name("worker_main.py")


class WorkerError(Exception):
    """A worker process gave no result."""


class WorkerStartError(WorkerError):
    """The operating system started no process."""


class WorkerTimeoutError(WorkerError):
    """The process took longer than the wall time allows."""


class WorkerResultTooLongError(WorkerError):
    """The process wrote more than a result may have."""


class WorkerReplyError(WorkerError):
    """The process wrote what is no result."""


class WorkerExitError(WorkerError):
    """The process ended without a result; a negative status is a signal."""

    def __init__(self, status: int) -> None:
        super().__init__(f"its process ended with status {status}")
        self.status = status


class WorkerRaisedError(WorkerError):
    """The function raised an exception; `kind` is the name of its class."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(f"{kind}: {reason}")
        self.kind = kind


@dataclass(frozen=True, slots=True)
class WorkerLimits:
    """What a worker process may use."""

    memory_bytes: int
    cpu_s: int
    wall_s: float
    max_result_bytes: int


@dataclass(frozen=True, slots=True)
class WorkerCall:
    """A function of a Python file, and what it is called with besides the content.

    `folders` are searched for modules before those of this process, the file's own one after them.
    """

    file: Path
    function: str
    options: Mapping[str, Json]
    folders: tuple[Path, ...] = ()


async def run_worker(call: WorkerCall, content: bytes, limits: WorkerLimits) -> Json:
    """Return what a function returns for a content, called in a process of its own.

    However this ends, the process has ended too. Raises WorkerError.
    """
    worker = _Worker()
    try:
        async with asyncio.timeout(limits.wall_s):
            data = await worker.exchange(
                _encode_header(call, limits), content, limits.max_result_bytes
            )
    except TimeoutError:
        raise WorkerTimeoutError(f"it took longer than {limits.wall_s:g} s") from None
    finally:
        await worker.end()
    return _decode(data)


class _Worker:
    """A worker process, and our end of the socket that is its input and its output."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair()
        try:
            with theirs:
                self._process = subprocess.Popen(  # noqa: S603 - our own program
                    [sys.executable, "-I", "-S", "-B", "-X", "utf8", str(_MAIN)],
                    stdin=theirs.fileno(),
                    stdout=theirs.fileno(),
                    stderr=subprocess.DEVNULL,
                    env={},
                    cwd="/",
                    start_new_session=True,
                )
        except OSError as exc:
            self._socket.close()
            raise WorkerStartError(f"no process could be started: {exc}") from exc
        self._socket.settimeout(0.0)

    async def exchange(self, header: bytes, content: bytes, max_result_bytes: int) -> bytes:
        """Send a request and return the result. Raises WorkerError if there is none."""
        loop, parts, size = asyncio.get_running_loop(), list[bytes](), 0
        with suppress(ConnectionError):  # a worker that ends early says why by its status
            await loop.sock_sendall(self._socket, header)
            await loop.sock_sendall(self._socket, content)
            self._socket.shutdown(socket.SHUT_WR)
        with suppress(ConnectionError):
            while part := await loop.sock_recv(self._socket, _CHUNK_BYTES):
                parts.append(part)
                size += len(part)
                if size > max_result_bytes:
                    raise WorkerResultTooLongError(
                        f"its result has more than {max_result_bytes} bytes"
                    )
        status = await asyncio.to_thread(self._process.wait)
        if status != 0 or not parts:
            raise WorkerExitError(status)
        return b"".join(parts)

    async def end(self) -> None:
        """Kill the process if it still runs, and whatever is in its group."""
        self._socket.close()
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await asyncio.to_thread(self._process.wait)


def _encode_header(call: WorkerCall, limits: WorkerLimits) -> bytes:
    """Return the length of the header and the header as the worker reads it."""
    # Not the current folder, which `python -m` adds: a workspace may hold modules of its own.
    ours = [each for each in sys.path if Path(each).is_absolute() and Path(each) != Path.cwd()]
    header = {
        "file": str(call.file),
        "function": call.function,
        "options": dict(call.options),
        "path": [*map(str, call.folders), *ours, str(call.file.parent)],
        "parent": os.getpid(),
        "limits": {
            "memory_bytes": limits.memory_bytes,
            "cpu_s": limits.cpu_s,
            "wall_s": int(limits.wall_s) + _GRACE_S,
        },
    }
    data = json.dumps(header).encode("ascii")
    return len(data).to_bytes(_LENGTH_BYTES, "big") + data


def _decode(data: bytes) -> Json:
    """Return the result in what a worker wrote. Raises WorkerError for what was raised there."""
    try:
        reply = json.loads(data)
    except (ValueError, RecursionError):
        raise WorkerReplyError("its result is not JSON") from None
    match reply:
        case {"result": result}:
            return result
        case {"error": str(kind), "reason": str(reason)}:
            raise WorkerRaisedError(kind, reason)
        case _:
            raise WorkerReplyError("its result is not what a worker writes")
