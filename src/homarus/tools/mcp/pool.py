"""The connections to MCP servers, one for each, shared by all agents and opened on first use.

A connection that fails is opened again at the next use; after the second failure in a row only when
a growing delay has passed, so that a broken server does not take the time of every run.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

from homarus.core.errors import ToolError
from homarus.core.fast_dataclass import dataclass
from homarus.core.retry import Backoff
from homarus.core.tasks import run_contained
from homarus.tools.mcp.connection import McpConnection
from homarus.tools.mcp.server_settings import McpServerSettings
from homarus.tools.mcp.tool_pins import ServerListing

if TYPE_CHECKING:
    from homarus.tools.mcp.sdk_session import McpSession

log = logging.getLogger(__name__)

BACKOFF: Final = Backoff(first_s=2.0, max_s=120.0, jitter=0.2)


@dataclass(slots=True)
class _Failures:
    """The failures of one server in a row, the last of them, and when it may be tried again."""

    count: int
    error: str
    retry_at_s: float


class McpPool:
    """Opens, shares and closes connections; its tasks belong to `group`.

    `on_listing` is called with a server's settings and what it has, whenever that has been listed.
    """

    def __init__(
        self,
        group: asyncio.TaskGroup,
        get_env: Callable[[], Mapping[str, str]],
        on_listing: Callable[[McpServerSettings, ServerListing], None],
        *,
        backoff: Backoff = BACKOFF,
    ) -> None:
        self._group: asyncio.TaskGroup = group
        self._get_env, self._on_listing = get_env, on_listing
        self._backoff = backoff
        self._connections: dict[str, McpConnection] = {}
        self._failures: dict[str, _Failures] = {}
        self._is_stopped = False

    @property
    def connections(self) -> tuple[McpConnection, ...]:
        """The connections that are open, or being opened."""
        return tuple(each for each in self._connections.values() if each.is_open)

    async def connect(self, settings: McpServerSettings) -> None:
        """Return when there is a connection. Raises ToolError."""
        await self._get(settings).wait_ready()

    @asynccontextmanager
    async def session(self, settings: McpServerSettings) -> "AsyncIterator[McpSession]":
        """Return a session for one call. Raises ToolError."""
        async with self._get(settings).use() as session:
            yield session
        self._failures.pop(settings.key, None)

    def _get(self, settings: McpServerSettings) -> McpConnection:
        key = settings.key
        found = self._connections.get(key)
        if found and found.is_open:
            return found
        self._check_backoff(settings)
        if self._is_stopped:
            raise ToolError("the program is ending: no MCP server is started")
        report = partial(self._on_listing, settings)
        made = McpConnection(settings, self._get_env(), report)
        self._connections[key] = made
        run = run_contained(
            f"MCP server {settings.name}", made.run, partial(self._record_failure, made)
        )
        task = self._group.create_task(run, name=f"mcp {settings.name}")
        task.add_done_callback(lambda _task: self._forget(key, made))
        return made

    def _check_backoff(self, settings: McpServerSettings) -> None:
        failures = self._failures.get(settings.key)
        if failures is None or failures.count < 2:
            return
        wait_s = failures.retry_at_s - asyncio.get_running_loop().time()
        if wait_s > 0:
            raise ToolError(
                f"{failures.error}; it failed {failures.count} times in a row, and is tried again"
                f" in {wait_s:.0f} s"
            )

    def _record_failure(self, connection: McpConnection, exc: Exception) -> None:
        key = connection.settings.key
        before = self._failures.get(key)
        count = before.count + 1 if before and not connection.is_used else 1
        retry_at_s = asyncio.get_running_loop().time() + self._backoff.delay_s(count)
        self._failures[key] = _Failures(count, str(exc), retry_at_s)

    def _forget(self, key: str, connection: McpConnection) -> None:
        connection.is_closed = True
        if self._connections.get(key) is connection:
            del self._connections[key]

    def keep_only(self, servers: Iterable[McpServerSettings]) -> None:
        """Stop the connections of other servers: the config has changed."""
        keys = {settings.key for settings in servers}
        for key, connection in list(self._connections.items()):
            if key not in keys:
                connection.stop()
        self._failures = {key: each for key, each in self._failures.items() if key in keys}

    def stop(self) -> None:
        """Stop all connections, and open no more."""
        self._is_stopped = True
        for connection in list(self._connections.values()):
            connection.stop()
