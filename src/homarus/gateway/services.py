"""What the gateway is given from outside: the program behind it, as explicit ports."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, Protocol

from homarus.agent.agent import Agent
from homarus.agent.approval_ports import ApprovalPorts
from homarus.agent.prompt.preview import PreviewServices
from homarus.agent.run import RunOutcome
from homarus.agent.services import OpenSandbox, no_sandbox
from homarus.agent.skills.ports import SkillPorts
from homarus.channels.base import ServeWebhook, SupportsWebhook
from homarus.config.load import LoadedConfig
from homarus.config.paths import Paths
from homarus.core.bus import Bus
from homarus.core.clock import Clock
from homarus.core.diagnostics import Diagnostics
from homarus.core.errors import UnavailableError
from homarus.core.fast_dataclass import dataclass
from homarus.core.lanes import Lanes
from homarus.core.message import Json
from homarus.plugins.hook_runner import Hooks
from homarus.providers.model_router import ModelRouter
from homarus.schedule.heartbeat_request import RequestHeartbeat, ignore_request
from homarus.schedule.heartbeat_scheduler import HeartbeatScheduler
from homarus.schedule.turn import StartTurn, TurnRequest
from homarus.sessions.control import SessionControl
from homarus.sessions.notices import Notices
from homarus.sessions.session import SessionRepository
from homarus.store.audit import AuditLog
from homarus.store.base import Store, Transaction
from homarus.store.journal import InboxRecord
from homarus.tools.sandbox.sandbox_status import FindReport, no_report
from homarus.tools.tool import Messenger

if TYPE_CHECKING:
    from homarus.agent.approval_service import ApprovalService
    from homarus.agent.direct_calls import DirectCalls
    from homarus.agent.subagents.loader import SubagentLoader
    from homarus.channels.controller import AccountStatus
    from homarus.diagnostics.event_metrics import EventMetrics
    from homarus.gateway.config_watch import ConfigWatcher
    from homarus.memory.agent_memory import AgentMemory
    from homarus.schedule.loader import ScheduleLoader
    from homarus.skills.catalog import SkillCatalog
    from homarus.tools.browser.control import BrowserControl


class ChannelControl(Protocol):
    """The running accounts of all channels; channels/controller.py implements it."""

    def status(self) -> "tuple[AccountStatus, ...]":
        """Return the state of every configured account."""
        ...

    async def probe(self, channel: str, account: str) -> str:
        """Return our name as the service reports it; raises ChannelError when that fails."""
        ...

    async def stop(self, channel: str, account: str) -> None:
        """Stop an account until the next start, or until its settings change."""
        ...

    async def start(self, channel: str, account: str) -> None:
        """Start an account again; `status` has the problem if that fails."""
        ...

    async def run_key_action(
        self, channel: str, account: str, name: str, params: Mapping[str, Json]
    ) -> dict[str, Json]:
        """Do an action with devices or keys; raises ChannelError, or UserError for a key file."""
        ...

    def find_webhook(self, path: str) -> SupportsWebhook | None:
        """Return the account whose webhook has this path on the gateway's port."""
        ...

    def set_webhook_server(self, serve: ServeWebhook) -> None:
        """Set what opens the listeners of webhooks with an address of their own."""
        ...


class MemoryAccess(Protocol):
    """The memory of every agent."""

    def get(self, agent: str) -> "AgentMemory":
        """Return an agent's memory, loaded at the first call; raises UnknownNameError."""
        ...


class StartDiagnostics(Protocol):
    """Starts the diagnostics that the config asks for."""

    def __call__(self, *, has_metrics: bool) -> None: ...


def no_diagnostics(*, has_metrics: bool) -> None:
    """Start nothing."""


async def refuse_turn(_request: TurnRequest, _extra_writes: Callable[[Transaction], None]) -> str:
    """Start no turn; raises UnavailableError."""
    raise UnavailableError("turns of webhooks cannot be started here")


@dataclass(frozen=True, slots=True)
class GatewayServices:
    """Configuration, stores, sessions and channels that the gateway's methods work with.

    `recover` resumes what an earlier process left and then starts the channels; `preload` does
    what the first run would otherwise wait for. `wake_workers` has due replies sent.
    `set_restart` is given what `/restart` calls, `set_config_watcher` what brings a changed config
    into use. `get_approvals` imports the approvals when it is first called; what reaches approvers
    is added to `approval_ports`, which is not. `start_turn` and `request_heartbeat` are what
    webhooks use, `get_direct_calls` what calls a tool without a run. `find_live_trace` returns the
    trace so far of an active run.
    """

    get_loaded: Callable[[], LoadedConfig]
    get_models: Callable[[], ModelRouter]
    paths: Paths
    store: Store
    sessions: SessionRepository
    control: SessionControl[RunOutcome]
    bus: Bus
    clock: Clock
    notices: Notices
    lanes: Lanes
    hooks: Hooks
    channels: ChannelControl
    messenger: Messenger
    memory: MemoryAccess
    agent: Callable[[str], Agent]
    preview: PreviewServices
    recover: Callable[[], Awaitable[Sequence[tuple[InboxRecord, asyncio.Future[RunOutcome]]]]]
    run_schedule: Callable[[], Awaitable[None]]
    run_boot: Callable[[], Awaitable[None]]
    preload: Callable[[], Coroutine[Any, Any, None]]
    reload: Callable[[LoadedConfig], Awaitable[None]]
    wake_workers: Callable[[], None]
    set_restart: Callable[[Callable[[], None]], None]
    get_approvals: "Callable[[], ApprovalService]"
    approval_ports: ApprovalPorts
    heartbeats: HeartbeatScheduler
    audit: AuditLog = field(default_factory=AuditLog)
    diagnostics: Diagnostics = field(default_factory=Diagnostics)
    open_sandbox: OpenSandbox = no_sandbox
    set_config_watcher: "Callable[[ConfigWatcher], None]" = lambda _watcher: None
    find_sandbox_report: FindReport = no_report
    get_browsers: "Callable[[], BrowserControl] | None" = None
    get_skills: "Callable[[], SkillCatalog] | None" = None
    skill_ports: SkillPorts = field(default_factory=SkillPorts)
    subagents: "SubagentLoader | None" = None
    schedules: "ScheduleLoader | None" = None
    start_diagnostics: StartDiagnostics = no_diagnostics
    get_event_metrics: "Callable[[], EventMetrics | None]" = lambda: None
    find_live_trace: Callable[[str], Mapping[str, Json] | None] = lambda _run: None
    start_turn: StartTurn = refuse_turn
    request_heartbeat: RequestHeartbeat = ignore_request
    get_direct_calls: "Callable[[], DirectCalls] | None" = None

    @property
    def loaded(self) -> LoadedConfig:
        """The configuration in use."""
        return self.get_loaded()

    @property
    def models(self) -> ModelRouter:
        return self.get_models()
