"""What chat commands are given and give back. One function per command makes one of the other.

A command may change the session's entry: it says so in its reply, and that is saved in one unit
with the reply and with the news that the message was answered. What else it does must not matter
when it is done twice: a crash in between makes it begin again.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field
from typing import Protocol, TypeAlias

from homarus.agent.agent import Agent
from homarus.agent.context.compact import Compaction
from homarus.config.load import Loaded
from homarus.config.schema import Config
from homarus.core.bus import Bus
from homarus.core.channel_traits import FindTraits
from homarus.core.clock import Clock
from homarus.core.errors import UserError
from homarus.core.keys import agent_of
from homarus.core.lanes import Lanes
from homarus.core.message import Inbound, Json, StoppedBy
from homarus.core.value import dataclass
from homarus.plugins.caller import Hooks
from homarus.plugins.values import Where
from homarus.providers.catalog import Model
from homarus.providers.models import Models
from homarus.sessions.session import Session
from homarus.store.base import Store
from homarus.tools.registry import Registry


class Program(Protocol):
    """The program as commands use it. `app.App` is one.

    `restart` begins the process anew, where it is one that can.
    """

    loaded: Loaded
    models: Models
    store: Store
    bus: Bus
    clock: Clock
    lanes: Lanes
    hooks: Hooks
    find_traits: FindTraits
    restart: Callable[[], None] | None

    def agent(self, agent_id: str) -> Agent: ...

    def tools(self, agent_id: str) -> Registry: ...

    async def compact(self, key: str, instructions: str = "") -> Compaction:
        """Put the old part of a conversation away."""
        ...

    async def session(self, key: str) -> Session: ...

    def abort(
        self, key: str, run_id: str | None = None, *, by: StoppedBy | None = None
    ) -> Sequence[str]:
        """Stop what a session does and has waiting; the ids of the runs."""
        ...

    def live_runs(self, key: str | None = None) -> Sequence[str]: ...

    def waiting(self, key: str) -> int:
        """How many messages of a session wait for a run."""
        ...


@dataclass(frozen=True, slots=True)
class Order:
    """One command that was given."""

    program: Program
    key: str
    inbound: Inbound
    args: str = ""

    @property
    def config(self) -> Config:
        return self.program.loaded.config

    @property
    def word(self) -> str:
        """The arguments, when one word is all they may be."""
        return self.args.strip().lower()

    @property
    def is_owner(self) -> bool:
        return self.inbound.authority == "owner"

    @property
    def agent(self) -> Agent:
        return self.program.agent(agent_of(self.key))

    @property
    def where(self) -> Where:
        """What hooks are told of it."""
        agent, inbound = self.agent, self.inbound
        workspace = str(agent.workspace)
        return Where(agent.id, self.key, inbound.run_id, workspace, inbound.address.channel)

    async def session(self) -> Session:
        return await self.program.session(self.key)

    async def usual_model(self) -> Model | None:
        """What answers when the session chose nothing; None when nothing can."""
        return await self._model(self.agent.model)

    async def model(self) -> Model | None:
        """What answers the session: its choice, else the usual one; None when nothing can."""
        return await self._model((await self.session()).model or self.agent.model)

    async def _model(self, ref: str | None) -> Model | None:
        models = self.program.models
        try:
            return models.check(ref or (await models.choice()).ref)
        except UserError:
            return None

    async def thinking(self) -> str:
        """How hard its answers are thought about, as a run would find it."""
        said, model = (await self.session()).thinking or self.agent.thinking, await self.model()
        return said or (model.usual_thinking if model else "off")


@dataclass(frozen=True, slots=True)
class Reply:
    """What a command answers.

    `fields` change in the session's entry (None takes one away); `then` is done once that is saved.
    """

    text: str
    fields: Mapping[str, Json] = field(default_factory=dict)
    then: Callable[[], None] | None = None


Answer: TypeAlias = Callable[[Order], Awaitable[Reply]]
