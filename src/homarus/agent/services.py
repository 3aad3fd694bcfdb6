"""The services that every run uses: stores, model access, hooks, and the ports of other packages.

`app_services.py` builds one `RunServices`. Packages that the agent package must not import
(channels) and objects that are built later (the run queue) are passed in as callables.
"""

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, TypeAlias

from homarus.agent.agent import Agent
from homarus.agent.context.model_context import RenderedContextCache
from homarus.agent.prompt.composer import PromptComposer
from homarus.agent.reply.sender import LiveReplyHandle
from homarus.agent.skills.ports import SkillPorts
from homarus.agent.spend_limit import SpendLimiter
from homarus.config.schema import Config
from homarus.core.bus import Bus
from homarus.core.channel_traits import FindTraits
from homarus.core.clock import Clock
from homarus.core.diagnostics import Diagnostics
from homarus.core.errors import UserError
from homarus.core.fast_dataclass import dataclass
from homarus.core.lanes import Lanes
from homarus.core.message import Inbound, Json
from homarus.core.watchdog import GRACE_S, Watchdog
from homarus.plugins.hook_runner import Hooks
from homarus.policy.workspace_access import WorkspaceAccess
from homarus.providers.base import Provider
from homarus.providers.catalog import ModelInfo
from homarus.providers.model_router import ModelSelection
from homarus.sessions.notices import Notices
from homarus.sessions.run_end import OnRunEnd, ignore_run_end
from homarus.sessions.run_queue import QueuePlace
from homarus.sessions.session import Session, SessionRepository
from homarus.store.audit import AuditLog
from homarus.store.base import Store
from homarus.store.journal import BuildReply, InboxRecord
from homarus.tools.registry import ToolRegistry
from homarus.tools.tool import Messenger

if TYPE_CHECKING:  # imported by the first approval, and by the first run that answers a chat
    from homarus.agent.approval_service import ApprovalService
    from homarus.agent.reply.builder import ReplyBuilder
    from homarus.providers.endpoint import ProviderConnection
    from homarus.tools.sandbox.session_sandbox import SessionSandbox

ConnectModel: TypeAlias = Callable[[ModelSelection], Awaitable[tuple[Provider, ModelInfo]]]
# Pops the messages that steer the active run of a session.
PopSteering: TypeAlias = Callable[[str], Sequence[InboxRecord]]
# (session, inbound, thinking level, id of a session that starts with this run, else "")
MakeReplyBuilder: TypeAlias = "Callable[[Session, Inbound, str, str], ReplyBuilder | None]"
# (session key, inbound) → the user message as the model reads it
FormatUserMessage: TypeAlias = Callable[[str, Inbound], str]
# (inbounds, name of the run, current preview text, typing interval in seconds)
StartLiveReply: TypeAlias = Callable[
    [Sequence[Inbound], str, Callable[[], str], float], LiveReplyHandle | None
]
StartTask: TypeAlias = Callable[[Coroutine[None, None, None]], object]
# Receives the ids of messages whose outcome could not be stored, so that they are run again.
OnUnsettled: TypeAlias = Callable[[Sequence[str]], None]
# (agent, provider, the only credential to use or "") → how to reach it. Raises UserError.
ResolveConnection: TypeAlias = "Callable[[str, str, str], Awaitable[ProviderConnection]]"
# (agent, session key, access to files) → the session's sandbox, None for a session without one
OpenSandbox: TypeAlias = "Callable[[Agent, str, WorkspaceAccess], SessionSandbox | None]"


def _no_live_reply(
    _inbounds: Sequence[Inbound], _run: str, _get_preview: Callable[[], str], _interval_s: float
) -> LiveReplyHandle | None:
    return None


async def _no_connection(_agent: str, provider: str, _profile: str) -> "ProviderConnection":
    raise UserError(f"{provider} cannot be reached from here")


def no_sandbox(_agent: Agent, _key: str, _access: WorkspaceAccess) -> None:
    """Return that a session has no sandbox."""


async def no_discovery(_agent_id: str) -> None:
    """Do nothing: all tools are known."""


@dataclass(frozen=True, slots=True)
class RunServices:
    """What a run is given from outside; the same object for every run of the program.

    `make_builder` returns None where the events of a run are its only output, `start_live_reply`
    where the chat cannot show a reply in progress. `is_fresh` says whether a session may be
    continued by a message. A run that ignores its cancellation is abandoned after `grace_s`.
    `is_shutting_down` says whether the program ends in order, so that a cancelled run is no crash.
    `start_task` starts work that no run waits for. `read_exec_rules` reads the approvals files.
    `open_sandbox` returns the sandbox of a session; nothing is created by that. `find_image_model`
    returns a model of the same provider that sees pictures, "" if there is none;
    `resolve_connection` returns how to reach a provider for something else than its models'
    answers. `on_run_end` adds writes to the transaction that settles a run. `discover_tools` waits
    a little for tools of an agent that are not known yet. `get_queue_place` returns how the
    messages of the active run of a session came to it, `get_queue_depth` how many wait.
    """

    sessions: SessionRepository
    store: Store
    bus: Bus
    lanes: Lanes
    clock: Clock
    hooks: Hooks
    watchdog: Watchdog
    spend_limiter: SpendLimiter
    get_agent: Callable[[str], Agent]
    get_tools: Callable[[str], ToolRegistry]
    connect: ConnectModel
    get_approvals: "Callable[[], ApprovalService]"
    pop_steering: PopSteering
    format_message: FormatUserMessage
    make_builder: MakeReplyBuilder
    build_reply: BuildReply
    on_enqueued: Callable[[], None]
    on_unsettled: OnUnsettled
    start_task: StartTask
    find_traits: FindTraits
    get_config: Callable[[], Config] = Config
    start_live_reply: StartLiveReply = _no_live_reply
    messenger: Messenger | None = None
    read_exec_rules: Callable[[], Sequence[Mapping[str, Json]]] = tuple
    is_fresh: Callable[[Session, Inbound], bool] = lambda _session, _inbound: True
    is_shutting_down: Callable[[], bool] = lambda: False
    grace_s: float = GRACE_S
    open_sandbox: OpenSandbox = no_sandbox
    find_image_model: Callable[[str], str] = lambda _ref: ""
    resolve_connection: ResolveConnection = _no_connection
    discover_tools: Callable[[str], Awaitable[None]] = no_discovery
    on_run_end: OnRunEnd = ignore_run_end
    get_queue_place: Callable[[str], QueuePlace | None] = lambda _key: None
    get_queue_depth: Callable[[str], int] = lambda _key: 0
    audit: AuditLog = field(default_factory=AuditLog)
    diagnostics: Diagnostics = field(default_factory=Diagnostics)
    skills: SkillPorts = field(default_factory=SkillPorts)
    notices: Notices = field(default_factory=Notices)
    composer: PromptComposer = field(default_factory=PromptComposer)
    rendered: RenderedContextCache = field(default_factory=RenderedContextCache)
