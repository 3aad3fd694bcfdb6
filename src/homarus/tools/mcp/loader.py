"""The MCP servers of the program, as a source of tools; nothing is loaded without configured ones.

The tools of a server are those of its record, so no server is started to offer them. A server that
was never seen is connected when the first run of an agent that may use it begins: the run waits a
little for what the server has, and later runs find the rest.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from homarus.config.schema import Config
from homarus.core.errors import HomarusError
from homarus.policy.tool_policy import normalize_tool_name
from homarus.tools.sources import ToolSourceContext, reserved_names
from homarus.tools.tool import Tool

if TYPE_CHECKING:
    from homarus.tools.mcp.pool import McpPool
    from homarus.tools.mcp.record_store import McpRecordStore
    from homarus.tools.mcp.server_settings import McpServerSettings
    from homarus.tools.mcp.tool_pins import ServerListing

log = logging.getLogger(__name__)

SOURCE_NAME: Final = "mcp"
DISCOVERY_S: Final = 10.0  # that the first run waits for servers that were never seen
MAX_DISCOVERIES: Final = 4  # at once


class McpLoader:
    """Offers the tools of MCP servers, and has the pool of connections to them."""

    name = SOURCE_NAME

    def __init__(
        self,
        group: asyncio.TaskGroup,
        get_config: Callable[[], Config],
        get_env: Callable[[], Mapping[str, str]],
        state: Path,
        *,
        discovery_s: float = DISCOVERY_S,
    ) -> None:
        self._group: asyncio.TaskGroup = group
        self._get_config, self._get_env = get_config, get_env
        self._state, self._discovery_s = state, discovery_s
        self._pool: McpPool | None = None
        self._store: McpRecordStore | None = None
        self._made: dict[str, tuple[Config, int, Sequence[Tool]]] = {}  # by agent
        self._tried: set[str] = set()  # the keys of servers that were connected for their tools

    @property
    def revision(self) -> int:
        """Return another number after the tools of a server have changed."""
        return self.records.revision if self._get_config().mcp.servers else 0

    @property
    def records(self) -> "McpRecordStore":
        """What is known of the servers."""
        if self._store is None:
            from homarus.tools.mcp.record_store import McpRecordStore

            self._store = McpRecordStore(self._state)
        return self._store

    def get_pool(self) -> "McpPool":
        """Return the connections; the SDK is imported by the first of them."""
        if self._pool is None:
            from homarus.tools.mcp.pool import McpPool

            self._pool = McpPool(self._group, self._get_env, self._save_listing)
        return self._pool

    def _save_listing(self, settings: "McpServerSettings", listing: "ServerListing") -> None:
        from homarus.tools.mcp.tool_pins import merge_listing

        record = self.records.update(
            settings.name, lambda known: merge_listing(known, settings.name, listing)
        )
        for tool in record.pending:
            log.warning(
                "MCP server %s: %s has changed; a person is asked before it is used",
                settings.name,
                tool.call_name,
            )

    def tools(self, context: ToolSourceContext) -> Sequence[Tool]:
        """Return the tools of the servers that an agent may use, as far as these were seen."""
        config, revision = context.config, self.revision
        if not config.mcp.servers:
            return ()
        made = self._made.get(context.agent_id)
        if made is None or made[0] is not config or made[1] != revision:
            made = self._made[context.agent_id] = (config, revision, self._make_tools(context))
        return made[2]

    def _make_tools(self, context: ToolSourceContext) -> Sequence[Tool]:
        from homarus.tools.mcp.server_settings import configured_servers, resolve_server
        from homarus.tools.mcp.server_tools import ServerTools

        tools: list[Tool] = []
        for name, entry in configured_servers(context.config, context.agent_id):
            settings = resolve_server(context.config, name)
            record = None if settings.problem else self.records.find(name)
            if record is None:
                continue
            if normalize_tool_name(name) in reserved_names():
                log.warning("the MCP server %s has the name of a tool: rename it", name)
                continue
            tools += ServerTools(settings, entry, self.records, self.get_pool).make(record)
        return tools

    async def discover(self, agent_id: str) -> None:
        """Connect the servers of an agent that were never seen, and wait a little for them."""
        if not self._get_config().mcp.servers:
            return
        from homarus.tools.mcp.server_settings import configured_servers, resolve_server

        config = self._get_config()
        found = (resolve_server(config, name) for name, _ in configured_servers(config, agent_id))
        unseen = [
            settings
            for settings in found
            if settings.key not in self._tried and self.records.find(settings.name) is None
        ]
        if not unseen:
            return
        self._tried |= {settings.key for settings in unseen}
        limit = asyncio.Semaphore(MAX_DISCOVERIES)
        tasks = [self._group.create_task(self._connect(each, limit)) for each in unseen]
        await asyncio.wait(tasks, timeout=self._discovery_s)

    async def _connect(self, settings: "McpServerSettings", limit: asyncio.Semaphore) -> None:
        async with limit:
            with suppress(HomarusError):  # the pool logs it
                await self.get_pool().connect(settings)

    def reload(self) -> None:
        """Stop the servers that the config no longer has so; the others go on."""
        self._tried.clear()
        if self._pool:
            from homarus.tools.mcp.server_settings import resolve_server

            config = self._get_config()
            servers = config.mcp.servers.items()
            self._pool.keep_only(
                resolve_server(config, name) for name, entry in servers if entry.enabled
            )

    def stop(self) -> None:
        """Stop all servers."""
        if self._pool:
            self._pool.stop()
