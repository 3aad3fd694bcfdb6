"""Call the handler of one hook in a process of its own.

A handler is code of another author. What it does to its process (block, loop, exit, use up the
memory, print without end) touches neither the event loop nor another handler: the process is
killed at the deadline, its replies are bounded, and what it prints is logged within limits. The
process is started with the first event and ends after some minutes without one.
"""

import asyncio
import json
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, cast

from homarus.agent.internal_hooks import handler_main
from homarus.agent.internal_hooks.event import HookEvent, HookResult, decode_result
from homarus.agent.internal_hooks.hook_status import HookStatus
from homarus.config.load import LoadedConfig
from homarus.core.clock import Clock
from homarus.core.fast_dataclass import dataclass
from homarus.core.text import one_line
from homarus.tools.exec.environment import build_environment

log = logging.getLogger(__name__)

DEADLINE_S: Final = 5.0
IDLE_S: Final = 120.0
MAX_REPLY_BYTES: Final = 4 << 20
MAX_QUEUED: Final = 32
_MAX_LOGGED_CHARS: Final = 300
_LOG_WINDOW_S: Final = 60.0
_MAX_LOGGED_LINES: Final = 20  # in each window
_END_S: Final = 5.0
_CHUNK_BYTES: Final = 65_536
_MAIN: Final = Path(handler_main.__file__)


class HookCallError(Exception):
    """A handler failed: it raised, or its process ended."""


class HookOverrunError(HookCallError):
    """A handler exceeded a limit: of time, or of what it may write."""


@dataclass(frozen=True, slots=True)
class ProcessServices:
    """What the processes of handlers need: the config with its environment, and where they run."""

    get_loaded: Callable[[], LoadedConfig]
    cwd: Path
    clock: Clock
    spawn: Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None] | None]
    deadline_s: float = DEADLINE_S


class HandlerProcess:
    """Calls one handler, one event after another."""

    def __init__(self, status: HookStatus, services: ProcessServices) -> None:
        self._status, self._services = status, services
        self._source = status.files.source if status.files else ""
        self._process: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()
        self._queued, self._is_closed, self._is_retired = 0, False, False
        self._idle: asyncio.TimerHandle | None = None
        self._attending: asyncio.Task[None] | None = None
        self._window_at, self._logged = 0.0, 0

    @property
    def pid(self) -> int | None:
        """The id of the running process; None without one."""
        return self._process.pid if self._process else None

    async def call(self, event: HookEvent) -> HookResult:
        """Return what the handler made of an event. Raises HookCallError."""
        if self._queued >= MAX_QUEUED:
            raise HookCallError(f"{MAX_QUEUED} events wait for it already: this one is skipped")
        self._queued += 1
        try:
            async with self._turn:
                return await self._call(event)
        finally:
            self._queued -= 1
            if self._is_retired and not self._queued:
                self._kill()

    def retire(self) -> None:
        """End the process after the calls that wait for it: another one takes its place."""
        self._is_retired = True
        if not self._queued:
            self._kill()

    def close(self) -> None:
        """End the process; nothing is called any more."""
        self._is_closed = True
        self._kill()

    async def _call(self, event: HookEvent) -> HookResult:
        if self._is_closed:
            raise HookCallError("it was switched off")
        try:
            async with asyncio.timeout(self._services.deadline_s):
                reply = await self._exchange(event)
        except TimeoutError:
            limit_s = self._services.deadline_s
            raise HookOverrunError(f"it took longer than {limit_s:g} s") from None
        except BaseException:
            self._kill()
            raise
        finally:
            if self._process and self._process.returncode is not None:
                self._process = None
        if error := reply.get("error"):
            raise HookCallError(one_line(str(error), _MAX_LOGGED_CHARS))
        return decode_result(reply)

    async def _exchange(self, event: HookEvent) -> Mapping[str, Any]:
        process = await self._open()
        try:
            stdin = cast("asyncio.StreamWriter", process.stdin)
            stdin.write(_encode(event.encode()))
            await stdin.drain()
            line = await cast("asyncio.StreamReader", process.stdout).readuntil(b"\n")
            reply = json.loads(line)
        except asyncio.CancelledError:
            self._kill()
            raise
        except asyncio.LimitOverrunError:
            self._kill()
            raise HookOverrunError("it wrote more than a reply may have") from None
        except (asyncio.IncompleteReadError, ConnectionError, ValueError):
            self._kill()
            raise HookCallError("its process ended") from None
        self._end_when_idle()
        return reply if isinstance(reply, dict) else {}

    async def _open(self) -> asyncio.subprocess.Process:
        if self._process and self._process.returncode is None:
            return self._process
        hook, services = self._status.hook, self._services
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-P", "-B", "-X", "utf8", str(_MAIN)),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                limit=MAX_REPLY_BYTES,
                env=self._environment(),
                cwd=services.cwd,
                start_new_session=True,
            )
        except OSError as exc:
            raise HookCallError(f"its process cannot be started: {exc.strerror or exc}") from exc
        self._process = process
        first = {
            "path": str(hook.handler),
            "source": self._source,
            "export": hook.export,
            "parent": os.getpid(),
        }
        cast("asyncio.StreamWriter", process.stdin).write(_encode(first))
        self._attending = services.spawn(self._attend(process), f"hook {hook.name}")
        return process

    def _environment(self) -> dict[str, str]:
        """Return the harmless part of ours, what the hook requires, and what its settings set."""
        env, entry = self._services.get_loaded().env, self._status.entry
        required = {name: env[name] for name in self._status.hook.requires.env if name in env}
        return {**build_environment({}, env), **required, **entry.env}

    def _end_when_idle(self) -> None:
        if self._idle:
            self._idle.cancel()
        self._idle = asyncio.get_running_loop().call_later(IDLE_S, self._close_idle)

    def _close_idle(self) -> None:
        if not self._turn.locked():
            self._kill()

    def _kill(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        if process.stdin:
            process.stdin.close()
        self._services.spawn(self._drain(process), f"end of the hook {self._status.hook.name}")
        if self._idle:
            self._idle.cancel()
        if self._attending:  # a process that the handler left behind may hold its output open
            asyncio.get_running_loop().call_later(_END_S, self._attending.cancel)

    async def _attend(self, process: asyncio.subprocess.Process) -> None:
        """Log what the process prints, until it has ended."""
        await self._log_output(cast("asyncio.StreamReader", process.stderr))
        await process.wait()

    async def _drain(self, process: asyncio.subprocess.Process) -> None:
        """Read what a killed process wrote: a pipe that is not read to its end stays open."""
        stdout = cast("asyncio.StreamReader", process.stdout)
        with suppress(TimeoutError, ConnectionError):
            async with asyncio.timeout(_END_S), self._turn:  # a call may still be reading
                while await stdout.read(_CHUNK_BYTES):
                    pass

    async def _log_output(self, stream: asyncio.StreamReader) -> None:
        """Log what the handler prints, so many lines a minute; the rest is dropped."""
        rest = b""
        with suppress(ConnectionError):
            while data := await stream.read(_CHUNK_BYTES):
                *lines, rest = (rest + data).split(b"\n")
                rest = rest[:_MAX_LOGGED_CHARS]
                for line in lines:
                    self._log(line)

    def _log(self, line: bytes) -> None:
        name, now = self._status.hook.name, self._services.clock.monotonic()
        if now - self._window_at >= _LOG_WINDOW_S:
            self._window_at, self._logged = now, 0
        self._logged += 1
        if self._logged <= _MAX_LOGGED_LINES:
            text = line[:_MAX_LOGGED_CHARS].decode("utf-8", "replace")
            log.info("hook %s: %s", name, one_line(text, _MAX_LOGGED_CHARS))
        elif self._logged == _MAX_LOGGED_LINES + 1:
            log.warning("hook %s prints too much: the rest of this minute is not logged", name)


def _encode(request: Mapping[str, Any]) -> bytes:
    return json.dumps(request).encode() + b"\n"
