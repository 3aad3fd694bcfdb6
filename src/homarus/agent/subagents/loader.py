"""Make the service of sub-agents when the first one is started, or an earlier process left some."""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import TYPE_CHECKING, Final

from homarus.core.session_keys import is_subagent
from homarus.sessions.run_end import RunEnd, WriteEnd, write_nothing
from homarus.store.base import Store

if TYPE_CHECKING:
    from homarus.agent.subagents.control import SubagentControl
    from homarus.agent.subagents.subagent_service import SubagentService, SubagentServices

_SWEEP_S: Final = 60.0


class SubagentLoader:
    """Returns the service when called; nothing of it is imported before."""

    def __init__(self, store: Store, get_services: "Callable[[], SubagentServices]") -> None:
        self._store, self._get_services = store, get_services
        self._service: SubagentService | None = None

    def __call__(self) -> "SubagentService":
        """Return the service of sub-agents."""
        if self._service is None:
            from homarus.agent.subagents.subagent_service import SubagentService

            self._service = SubagentService(self._get_services())
        return self._service

    def control(self) -> "SubagentControl":
        """Return what lists, messages and stops sub-agents for people, models and programs."""
        return self().control

    def settling(self, end: RunEnd) -> AbstractAsyncContextManager[WriteEnd]:
        """Add the end of a sub-agent to the transaction that settles its message."""
        if not is_subagent(end.session_key):
            return nullcontext(write_nothing)
        return self().settling(end)

    def settling_unanswered(
        self, key: str, ids: Sequence[str], reason: str
    ) -> AbstractAsyncContextManager[WriteEnd]:
        """Do the same for messages that get no run."""
        return self.settling(RunEnd(key, ids, reason=reason))

    async def recover(self) -> None:
        """Take care of the sub-agents that an earlier process left."""
        if await self._store.records("subagent"):
            await self().recover()

    async def stop_children(self, requester: str) -> int:
        """Stop the sub-agents of a session, and theirs; return how many were stopped."""
        if self._service is None and not await self._store.records("subagent"):
            return 0
        return await self().kill_all(requester)

    def sweep_interval_s(self) -> float:
        """Return how often ended sub-agents are archived; 0 while there are none."""
        return _SWEEP_S if self._service and self._service.has_ended else 0.0

    async def sweep(self) -> None:
        """Archive the ended sub-agents that are due; the scheduler calls it."""
        if self._service:
            await self._service.sweep()
