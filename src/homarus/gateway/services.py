"""What the gateway is given from outside: the program behind it, as explicit ports."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from homarus.agent.agent import Agent
from homarus.agent.prompt.preview import PreviewServices
from homarus.agent.run import Outcome
from homarus.channels.base import Listens
from homarus.config.load import Loaded
from homarus.config.paths import Paths
from homarus.core.bus import Bus
from homarus.core.clock import Clock
from homarus.core.lanes import Lanes
from homarus.core.value import dataclass
from homarus.plugins.caller import Hooks
from homarus.providers.models import Models
from homarus.sessions.control import SessionControl
from homarus.sessions.notices import Notices
from homarus.sessions.session import Sessions
from homarus.store.base import Store
from homarus.store.journal import Accepted
from homarus.tools.tool import Mail

if TYPE_CHECKING:
    from homarus.channels.switchboard import LineStatus
    from homarus.memory.keeper import AgentMemory


class ChannelControl(Protocol):
    """The running accounts of all channels; channels/switchboard.py implements it."""

    def status(self) -> "tuple[LineStatus, ...]":
        """Return the state of every configured account."""
        ...

    async def probe(self, channel: str, account: str) -> str:
        """Return our name as the service reports it; raises ChannelError when that fails."""
        ...

    async def stop(self, channel: str, account: str) -> None:
        """Stop an account until the next start, or until its settings change."""
        ...

    def listener(self, path: str) -> Listens | None:
        """Return the account whose webhook has this path."""
        ...


class MemoryAccess(Protocol):
    """The memory of every agent."""

    def of(self, agent: str) -> "AgentMemory":
        """Return an agent's memory, loaded at the first call; raises UnknownName."""
        ...


@dataclass(frozen=True, slots=True)
class GatewayServices:
    """Configuration, stores, sessions and channels that the gateway's methods work with.

    `recover` resumes what an earlier process left and then starts the channels; `preload` does
    what the first run would otherwise wait for. `wake_workers` has due replies sent.
    `set_restart` is given what `/restart` calls.
    """

    get_loaded: Callable[[], Loaded]
    get_models: Callable[[], Models]
    paths: Paths
    store: Store
    sessions: Sessions
    control: SessionControl[Outcome]
    bus: Bus
    clock: Clock
    notices: Notices
    lanes: Lanes
    hooks: Hooks
    channels: ChannelControl
    messenger: Mail
    memory: MemoryAccess
    agent: Callable[[str], Agent]
    preview: PreviewServices
    recover: Callable[[], Awaitable[Sequence[tuple[Accepted, asyncio.Future[Outcome]]]]]
    run_maintenance: Callable[[], Awaitable[None]]
    run_boot: Callable[[], Awaitable[None]]
    preload: Callable[[], Coroutine[Any, Any, None]]
    reload: Callable[[Loaded], Awaitable[None]]
    wake_workers: Callable[[], None]
    set_restart: Callable[[Callable[[], None]], None]

    @property
    def loaded(self) -> Loaded:
        """The configuration in use."""
        return self.get_loaded()

    @property
    def models(self) -> Models:
        return self.get_models()
