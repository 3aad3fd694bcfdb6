"""What the gateway needs of the program behind it. `app.App` is one; tests have smaller ones."""

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from homarus.agent.agent import Agent
from homarus.agent.run import Outcome
from homarus.channels.base import Listens
from homarus.config.load import Loaded
from homarus.config.paths import Paths
from homarus.core.bus import Bus
from homarus.core.clock import Clock
from homarus.core.lanes import Lanes
from homarus.core.message import Inbound, StoppedBy
from homarus.plugins.caller import Hooks
from homarus.providers.models import Models
from homarus.sessions.notices import Notices
from homarus.sessions.session import Session, Sessions
from homarus.store.base import Store
from homarus.store.journal import Acceptance, Accepted
from homarus.tools.registry import Registry
from homarus.tools.tool import Mail

if TYPE_CHECKING:
    from homarus.channels.switchboard import LineStatus
    from homarus.memory.keeper import AgentMemory


class Switchboard(Protocol):
    """The chat channels at work: channels/switchboard.py has the real one."""

    def status(self) -> "tuple[LineStatus, ...]":
        """Every account the config names, and how it is."""
        ...

    async def probe(self, channel: str, account: str) -> str:
        """Who we are there, as the service says; ChannelError when something is wrong."""
        ...

    async def stop(self, channel: str, account: str) -> None:
        """Until the next start, or until its settings change."""
        ...

    def listener(self, path: str) -> Listens | None:
        """The account that services call under this path."""
        ...


class Remembers(Protocol):
    """What agents remember."""

    def of(self, agent: str) -> "AgentMemory":
        """An agent's; UnknownName when there is no such agent. Loaded when it is asked for."""
        ...


class Host(Protocol):
    """The program: its configuration, its sessions, and a way to hand messages in."""

    loaded: Loaded
    paths: Paths
    models: Models
    store: Store
    sessions: Sessions
    bus: Bus
    clock: Clock
    notices: Notices
    lanes: Lanes
    hooks: Hooks
    restart: Callable[[], None] | None  # begins the process anew, once something serves it

    @property
    def switchboard(self) -> Switchboard: ...

    @property
    def mail(self) -> Mail: ...

    @property
    def memories(self) -> Remembers: ...

    def agent(self, agent_id: str) -> Agent:
        """An agent with its workspace in place; UnknownName when there is none."""
        ...

    def tools(self, agent_id: str) -> Registry:
        """The tools an agent may use."""
        ...

    def key(self, asked: str | None = None, agent: str | None = None) -> str:
        """The session a client means, in the form it is stored under."""
        ...

    async def session(self, key: str) -> Session: ...

    async def warm(self) -> None:
        """Do aside, once it is ready, what the first run would otherwise wait for."""
        ...

    async def accept(self, key: str, inbound: Inbound) -> Acceptance:
        """Take a message in for good; one that was taken before is not run again."""
        ...

    async def boot(self) -> None:
        """Have every agent do what its BOOT.md says."""
        ...

    def put(self, key: str, row: Accepted) -> asyncio.Future[Outcome]:
        """Have a message answered; the future is done when the run that answers it is."""
        ...

    def nudge(self) -> None:
        """Replies are due again: have them carried."""
        ...

    async def maintain(self) -> None:
        """Keep the sessions in order, until cancelled."""
        ...

    async def recover(self) -> Sequence[tuple[Accepted, asyncio.Future[Outcome]]]:
        """Go on with what was accepted before this program began, and not settled."""
        ...

    def abort(
        self, key: str, run_id: str | None = None, *, by: StoppedBy | None = None
    ) -> Sequence[str]:
        """Stop what a session is doing; the ids of the runs that were stopped.

        `by` is how a person said so; the transcript tells it.
        """
        ...

    def live_runs(self, key: str | None = None) -> Sequence[str]:
        """The ids of the runs under way."""
        ...

    async def reload(self, loaded: Loaded) -> None:
        """Use another config from now on; live runs end with the one they began with."""
        ...
