"""One connection to an MCP server, run by a task of its own from the first use until it is idle.

The task opens the process or the address, has a session on it, and closes both again. Calls come
from other tasks. How a connection ends (idle, stopped, the server gone, a timeout) is decided here;
whether another one is opened is the pool's decision.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Final

from homarus.core.errors import HomarusError, MissingExtraError, ToolError, ToolTimeoutError
from homarus.core.text import one_line
from homarus.tools.mcp.server_process import ServerProcess
from homarus.tools.mcp.server_settings import McpServerSettings
from homarus.tools.mcp.tool_pins import ServerListing

if TYPE_CHECKING:
    from types import ModuleType

    from homarus.tools.mcp.sdk_session import McpSession

log = logging.getLogger(__name__)

_SDK: Final = "homarus.tools.mcp.sdk_session"
WRITE_S: Final = 10.0  # beyond a request's own timeout: for a server that does not read


async def load_sdk() -> "ModuleType":
    """Import the SDK in a thread: it takes half a second. Raises MissingExtraError."""
    try:
        return await asyncio.to_thread(import_module, _SDK)
    except ModuleNotFoundError as exc:
        if (exc.name or "").startswith("homarus"):
            raise
        raise MissingExtraError("using MCP servers", "mcp") from exc


class McpConnection:
    """A connection of the pool. `run` is its task; `use` is for calls.

    `on_listing` is called with what the server has: once it is connected, and when that changes.
    """

    def __init__(
        self,
        settings: McpServerSettings,
        env: Mapping[str, str],
        on_listing: Callable[[ServerListing], None],
    ) -> None:
        self.settings = settings
        self._env, self._on_listing = env, on_listing
        self._ready: asyncio.Future[McpSession] = asyncio.get_running_loop().create_future()
        self._wake = asyncio.Event()
        self._is_stopping = self._must_list = self._is_lost = False
        self._active = 0
        self._used_at_s = asyncio.get_running_loop().time()
        self.is_closed = False
        self.is_used = False  # a call was successful
        self.pid: int | None = None

    @property
    def is_open(self) -> bool:
        """Return whether new calls may use it."""
        return not self.is_closed and not self._is_stopping

    async def run(self) -> None:
        """Connect, serve calls until it is stopped or idle, and close. Raises ToolError."""
        try:
            async with self._open() as session:
                self._ready.set_result(session)
                await self._serve(session)
        except (HomarusError, OSError, ImportError, ExceptionGroup) as exc:
            failure = _explain(self.settings, exc)
            self._fail_waiting(failure)
            raise failure from exc
        finally:
            self._fail_waiting(_explain(self.settings, asyncio.CancelledError()))
            self.is_closed = True
            self._wake.set()

    def _fail_waiting(self, failure: HomarusError) -> None:
        """Raise a failure where calls wait for the connection."""
        if not self._ready.done():
            self._ready.set_exception(failure)
            self._ready.exception()  # no call may be waiting

    @asynccontextmanager
    async def _open(self) -> "AsyncIterator[McpSession]":
        settings = self.settings
        if settings.problem:
            raise ToolError(
                f"the MCP server {settings.name} cannot be used: {settings.problem}",
                fix=settings.fix,
            )
        sdk = await load_sdk()
        process = await ServerProcess.start(settings, self._env) if settings.command else None
        self.pid = process.pid if process else None
        try:
            async with asyncio.TaskGroup() as group:
                logging_errors = group.create_task(process.log_errors()) if process else None
                async with asyncio.timeout(settings.connect_s) as deadline:
                    async with sdk.open_session(
                        settings, process, on_change=self._mark_changed, on_end=self._mark_lost
                    ) as session:
                        self._on_listing(await session.list_all())
                        deadline.reschedule(None)
                        yield session
                if logging_errors:
                    logging_errors.cancel()
        finally:
            if process:
                await process.end()

    async def _serve(self, session: "McpSession") -> None:
        """Wait until there is nothing more to do; list the tools again when they change."""
        loop = asyncio.get_running_loop()
        while not self._is_stopping:
            idle_s, due_s = self.settings.idle_s, None
            if self._active == 0 and idle_s > 0:
                due_s = self._used_at_s + idle_s - loop.time()
                if due_s <= 0:
                    log.info("MCP server %s is idle: it is stopped", self.settings.name)
                    self._is_stopping = True
                    return
            self._wake.clear()
            try:
                async with asyncio.timeout(due_s):
                    await self._wake.wait()
            except TimeoutError:
                continue
            if self._must_list and not self._is_stopping:
                self._must_list = False
                self._on_listing(await session.list_all())
        if self._is_lost:
            reason = await session.describe_failure() or "it closed the connection"
            raise ToolError(f"the MCP server {self.settings.name} failed: {reason}")

    def _mark_lost(self) -> None:
        self._is_lost = not self._is_stopping
        self.stop()

    def _mark_changed(self) -> None:
        self._must_list = True
        self._wake.set()

    def stop(self) -> None:
        """Have the task close the connection."""
        self._is_stopping = True
        self._wake.set()

    async def wait_ready(self) -> None:
        """Return when it is connected. Raises ToolError when that fails."""
        await asyncio.shield(self._ready)

    @asynccontextmanager
    async def use(self) -> "AsyncIterator[McpSession]":
        """Return the session for one call. Raises ToolError."""
        self._active += 1
        try:
            session = await asyncio.shield(self._ready)
            async with asyncio.timeout(self.settings.request_s + WRITE_S) as deadline:
                yield session
            self.is_used = True
        except TimeoutError as exc:
            if not deadline.expired():
                raise
            self.stop()  # it does not even read
            raise ToolTimeoutError(
                f"the MCP server {self.settings.name} does not read what it is sent"
            ) from exc
        except ToolTimeoutError:
            if self._active == 1:
                self.stop()  # the next call gets a new one
            raise
        finally:
            self._active -= 1
            self._used_at_s = asyncio.get_running_loop().time()
            self._wake.set()


def _explain(settings: McpServerSettings, exc: BaseException) -> HomarusError:
    """Return the one error that says why a connection failed."""
    exc = min(_leaves(exc), key=_rank)
    if isinstance(exc, HomarusError):
        return exc
    name = settings.name
    if isinstance(exc, TimeoutError):
        return ToolTimeoutError(
            f"the MCP server {name} was not ready in {settings.connect_s:g} s",
            fix=f"homarus mcp test {name}, or raise mcp.servers.{name}.connectTimeout",
        )
    if isinstance(exc, asyncio.CancelledError):
        return ToolError(f"the MCP server {name} was stopped before it was ready")
    text = one_line(f"{type(exc).__name__}: {exc}", 200)
    return ToolError(
        f"the MCP server {name} at {settings.place} cannot be reached: {text}",
        fix=f"homarus mcp test {name}",
    )


def _leaves(exc: BaseException) -> Iterator[BaseException]:
    if isinstance(exc, BaseExceptionGroup):
        for each in exc.exceptions:
            yield from _leaves(each)
    else:
        yield exc


def _rank(exc: BaseException) -> int:
    """Return how little an error says: our own say most, a cancellation nothing."""
    if isinstance(exc, HomarusError):
        return 0
    return 2 if isinstance(exc, asyncio.CancelledError) else 1
