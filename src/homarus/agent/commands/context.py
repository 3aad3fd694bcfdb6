"""What the built-in chat commands are given beyond `plugins/commands.py`."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Protocol

from homarus.agent.agent import Agent
from homarus.agent.context.compaction import CompactionResult
from homarus.agent.prompt.preview import PromptPreview
from homarus.agent.run import RunOutcome
from homarus.agent.services import OpenSandbox, no_sandbox
from homarus.agent.skills.ports import SkillPorts
from homarus.config.json5_document import KeyPath
from homarus.config.schema import Config
from homarus.core.bus import Bus
from homarus.core.channel_traits import FindTraits
from homarus.core.clock import Clock
from homarus.core.errors import UserError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Address, Inbound, Json
from homarus.core.session_keys import agent_id_of
from homarus.plugins.commands import CommandContext
from homarus.plugins.hook_runner import Hooks
from homarus.policy.audience import session_readers
from homarus.policy.exec_settings import elevated_refusal
from homarus.providers.catalog import ModelInfo
from homarus.providers.model_router import ModelRouter
from homarus.sessions.control import SessionControl
from homarus.sessions.session import Session
from homarus.store.audit import AuditLog
from homarus.store.base import Store
from homarus.store.journal import OutboxRecord
from homarus.tools.registry import ToolRegistry
from homarus.tools.sandbox.sandbox_status import FindReport, no_report

if TYPE_CHECKING:  # imported by the first command
    from homarus.agent.approval_prompts import ChatPrompts
    from homarus.agent.approval_service import ApprovalService
    from homarus.agent.subagents.loader import SubagentLoader
    from homarus.store.approvals import ApprovalRecord
    from homarus.tools.exec.process_table import ProcessTable


class WrittenChange(Protocol):
    """The paths that a change of the config files changed, and those of them without an effect."""

    @property
    def changed(self) -> tuple[str, ...]: ...

    @property
    def unbuilt(self) -> tuple[str, ...]: ...


class ConfigEdits(Protocol):
    """The config files, and the values that replace theirs until the program ends."""

    def read(self) -> Json:
        """Return the tree of the config files, with secrets."""
        ...

    async def write(
        self, chat: Address, change: Callable[[dict[str, Json]], Json]
    ) -> WrittenChange:
        """Change the files for a sender of a chat.

        Raises UserError where `configWrites` forbids it, and UserError and ConfigError for what may
        not be set.
        """
        ...

    def apply(self) -> None:
        """Bring the files into use; a gateway may restart for it."""
        ...

    async def override(self, values: Mapping[KeyPath, Json]) -> None:
        """Replace the overrides; raises UserError and ConfigError for what may not be set."""
        ...


class PairingLists(Protocol):
    """The senders that were approved by pairing; channels/pairing.py implements it."""

    def approved_senders(self, channel: str, account: str) -> tuple[str, ...]:
        """Return the approved senders of an account."""
        ...

    def add_sender(self, channel: str, sender: str, account: str) -> bool:
        """Approve a sender; return whether they were not approved before."""
        ...

    def revoke(self, channel: str, sender: str, account: str) -> bool:
        """Remove a sender; raises UserError for one that is not approved."""
        ...


@dataclass(frozen=True, slots=True)
class CommandServices:
    """What the commands and their dispatcher use of the program.

    `read_exec_rules` returns the contents of the approvals files, `get_overrides` the settings of
    `/debug`, `open_questions` the questions of agents that wait for an answer.
    """

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
    find_traits: FindTraits
    read_exec_rules: Callable[[], Sequence[Mapping[str, Json]]]
    get_config_edits: Callable[[], ConfigEdits]
    get_overrides: Callable[[], Mapping[KeyPath, Json]]
    get_pairings: Callable[[], PairingLists]
    get_tools: Callable[[str], ToolRegistry]
    get_processes: "Callable[[], ProcessTable]"
    audit: AuditLog
    open_questions: "Callable[[], Sequence[ApprovalRecord]]" = tuple
    open_sandbox: OpenSandbox = no_sandbox
    find_sandbox_report: FindReport = no_report
    skills: SkillPorts = field(default_factory=SkillPorts)
    subagents: "SubagentLoader | None" = None


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

    @property
    def elevated_refusal(self) -> str:
        """Which setting keeps the sender from elevated commands; "" when none does."""
        inbound, agent_id = self.inbound, agent_id_of(self.key)
        find_traits, channel = self.services.find_traits, inbound.address.channel
        return elevated_refusal(self.config, agent_id, channel, inbound.sender, find_traits)

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
