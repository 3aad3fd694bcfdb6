"""Make the exchanges between sessions when they are first needed: most programs have none."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from homarus.store.exchanges import KIND

if TYPE_CHECKING:
    from homarus.agent.commands.context import CommandServices
    from homarus.agent.exchange.session_exchanges import SessionExchanges

# Starts a task; None when the program is ending.
Spawn: TypeAlias = Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None] | None]


class ExchangeLoader:
    """The exchanges of a program; `get_accounts` returns the running accounts of channels."""

    def __init__(
        self,
        get_services: "Callable[[], CommandServices]",
        get_accounts: Callable[[], Sequence[tuple[str, str]]],
        spawn: Spawn,
    ) -> None:
        self._get_services, self._get_accounts, self._spawn = get_services, get_accounts, spawn
        self._service: SessionExchanges | None = None

    def __call__(self) -> "SessionExchanges":
        """Return the exchanges of the program."""
        if self._service is None:
            from homarus.agent.exchange.session_exchanges import SessionExchanges

            self._service = SessionExchanges(self._get_services(), self._get_accounts, self._spawn)
        return self._service

    async def recover(self) -> None:
        """Continue the exchanges that an earlier process left; call it after its runs resumed."""
        if found := await self._get_services().store.records(KIND):
            await self().recover(found)
