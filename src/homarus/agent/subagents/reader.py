"""Read sub-agents: those of one session or of all, by the words that name them.

It needs the store alone, so that the command line can use it without a gateway.
"""

from homarus.agent.subagents.log import LogLine, read_log
from homarus.agent.subagents.rows import format_info, list_rows
from homarus.agent.subagents.targets import (
    DEFAULT_RECENT_MINUTES,
    SubagentList,
    arrange_subagents,
    find_target,
)
from homarus.core.clock import Clock
from homarus.core.message import Json
from homarus.store.base import Store
from homarus.store.subagents import SubagentRecord, find_subagent, list_subagents


class SubagentReader:
    """Lists, finds and describes sub-agents."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store, self._clock = store, clock

    async def find_all(
        self, requester: str | None, recent_minutes: int = DEFAULT_RECENT_MINUTES
    ) -> SubagentList:
        """Return the sub-agents that a session started, or all, as they are numbered."""
        records = await list_subagents(self._store, requester=requester)
        return arrange_subagents(records, self._clock.now_ms(), recent_minutes)

    async def list_rows(self, requester: str | None, recent_minutes: int) -> dict[str, Json]:
        """Return the rows of a list: how many, `active` and `recent`."""
        found = await self.find_all(requester, recent_minutes)
        return list_rows(found, self._clock.now_ms())

    async def find(
        self, requester: str | None, word: str, recent_minutes: int = DEFAULT_RECENT_MINUTES
    ) -> SubagentRecord:
        """Return the sub-agent that a word names. Raises UserError when none or several do."""
        return find_target(await self.find_all(requester, recent_minutes), word)

    async def refresh(self, record: SubagentRecord) -> SubagentRecord:
        """Return the record as it is stored now; the given one after it was deleted."""
        return await find_subagent(self._store, record.child_key) or record

    async def describe(self, record: SubagentRecord, *, has_paths: bool = True) -> str:
        """Return everything that is known of a sub-agent; `has_paths`: also where it is stored."""
        session = await self._store.session(record.child_key) if has_paths else None
        file = session.data.get("sessionFile") if session else None
        transcript = file if isinstance(file, str) else ""
        return format_info(record, self._clock.now_ms(), transcript)

    async def read_log(
        self, record: SubagentRecord, limit: int, *, has_tools: bool = False
    ) -> list[LogLine]:
        """Return the newest messages of a sub-agent's transcript, oldest first."""
        session = await self._store.session(record.child_key)
        session_id = session.session_id if session else record.session_id
        return await read_log(self._store, session_id, limit, has_tools=has_tools)
