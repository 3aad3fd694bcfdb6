"""What the built-in chat commands are given beyond `plugins/commands.py`."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from homarus.agent.agent import Agent
from homarus.agent.context.compaction import CompactionResult
from homarus.agent.prompt.preview import PromptPreview
from homarus.agent.run import RunOutcome
from homarus.config.schema import Config
from homarus.core.bus import Bus
from homarus.core.clock import Clock
from homarus.core.errors import UserError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Inbound
from homarus.core.session_keys import agent_id_of
from homarus.plugins.commands import CommandContext
from homarus.plugins.hook_runner import Hooks
from homarus.policy.audience import session_readers
from homarus.providers.catalog import ModelInfo
from homarus.providers.model_router import ModelRouter
from homarus.sessions.control import SessionControl
from homarus.sessions.session import Session
from homarus.store.base import Store
from homarus.store.journal import OutboxRecord

if TYPE_CHECKING:  # imported by the first approval
    from homarus.agent.approval_prompts import ChatPrompts
    from homarus.agent.approval_service import ApprovalService


@dataclass(frozen=True, slots=True)
class CommandServices:
    """What the commands and their dispatcher use of the program."""

    get_config: Callable[[], Config]
    get_models: Callable[[], ModelRouter]
    get_agent: Callable[[str], Agent]
    get_restart: Callable[[], Callable[[], None] | None]
    control: SessionControl[RunOutcome]
    store: Store
    bus: Bus
    clock: Clock
    hooks: Hooks
    compact: Callable[[str, str], Awaitable[CompactionResult]]
    preview: Callable[[str], Awaitable[PromptPreview]]
    build_reply: Callable[[Inbound, str, str], Sequence[OutboxRecord]]
    on_enqueued: Callable[[], None]
    get_approval_prompts: "Callable[[], ChatPrompts]"
    get_approvals: "Callable[[], ApprovalService]"


@dataclass(frozen=True, slots=True)
class AgentCommandContext(CommandContext):
    """The context of a built-in command, with the agent, the models and the sessions."""

    services: CommandServices

    @property
    def models(self) -> ModelRouter:
        return self.services.get_models()

    @property
    def control(self) -> SessionControl[RunOutcome]:
        return self.services.control

    @property
    def agent(self) -> Agent:
        return self.services.get_agent(agent_id_of(self.key))

    @property
    def is_for_owner_alone(self) -> bool:
        """Whether the owner gave the command, in a conversation that no other people read."""
        return self.is_owner and session_readers(self.key) != "others"

    async def session(self) -> Session:
        return await self.control.load(self.key)

    async def default_model(self) -> ModelInfo | None:
        """Return the model of a session that chose none; None when no model can be used."""
        return await self._model(self.agent.model)

    async def model(self) -> ModelInfo | None:
        """Return the session's model, else the default; None when no model can be used."""
        return await self._model((await self.session()).model or self.agent.model)

    async def _model(self, ref: str | None) -> ModelInfo | None:
        try:
            return self.models.check(ref or (await self.models.default_model()).ref)
        except UserError:
            return None

    async def thinking(self) -> str:
        """Return the thinking level that a run of the session would use."""
        level, model = (await self.session()).thinking or self.agent.thinking, await self.model()
        return level or (model.default_thinking if model else "off")
