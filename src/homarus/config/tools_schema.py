"""The section `tools` of the config: which tools may be used, and the settings of single tools."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol, Self, TypeVar

from pydantic import field_validator, model_validator
from pydantic_core import PydanticCustomError

from homarus.config.media_schema import MediaConfig
from homarus.config.section import ConfigSection, Ids, PositiveInt, StrTuple
from homarus.config.web_schema import WebToolsConfig


class ApplyPatchConfig(ConfigSection):
    """The tool `apply_patch`, which is for models of OpenAI; `allowModels` names some of them.

    With `workspaceOnly: false` it reaches what `write` reaches.
    """

    enabled: bool = False
    workspace_only: bool = True
    allow_models: StrTuple = ()


class ExecConfig(ConfigSection):
    """The `exec` tool.

    A command is in the background after `backgroundMs`; it is listed for `cleanupMs` after its end.
    `safeBins` can only take programs from the list of those that need no entry.
    """

    timeout_sec: PositiveInt = 1800
    background_ms: PositiveInt = 10_000
    cleanup_ms: PositiveInt = 1_800_000
    notify_on_exit: bool = True
    notify_on_exit_empty_success: bool = False
    path_prepend: StrTuple = ()
    safe_bins: StrTuple | None = None
    host: Literal["sandbox", "gateway", "node"] | None = None
    security: Literal["deny", "allowlist", "full"] | None = None
    ask: Literal["off", "on-miss", "always"] | None = None
    apply_patch: ApplyPatchConfig = ApplyPatchConfig.model_construct()


class ElevatedConfig(ConfigSection):
    """Elevated commands: whether there are any, and the senders who may have them, by channel."""

    enabled: bool = True
    allow_from: Mapping[str, Ids] = {}


class FileToolsConfig(ConfigSection):
    """The file tools; they stay in the workspace, except to read what the prompt points at.

    An explicit `true` keeps them from our documentation too. `false` lets the owner's sessions
    read and write every other path, except our state, other workspaces, /proc, /sys and /dev.
    """

    workspace_only: bool = True


class LoopDetectorsConfig(ConfigSection):
    """The patterns of repeated tool calls that are detected."""

    generic_repeat: bool = True
    known_poll_no_progress: bool = True
    ping_pong: bool = True


class LoopDetectionConfig(ConfigSection):
    """When an agent that repeats its tool calls is warned, and when its run is ended."""

    enabled: bool = True
    history_size: PositiveInt = 30
    warning_threshold: PositiveInt = 10
    critical_threshold: PositiveInt = 20
    global_circuit_breaker_threshold: PositiveInt = 30
    detectors: LoopDetectorsConfig = LoopDetectorsConfig.model_construct()


class CrossContextMarkerConfig(ConfigSection):
    """The text around a message from another chat; `{channel}` is the chat's channel."""

    enabled: bool = True
    prefix: str = "[from {channel}] "
    suffix: str = ""


class CrossContextConfig(ConfigSection):
    """Whether an agent may write to another chat than the one it answers."""

    allow_within_provider: bool = True
    allow_across_providers: bool = False
    marker: CrossContextMarkerConfig = CrossContextMarkerConfig.model_construct()


class MessageToolConfig(ConfigSection):
    """The `message` tool; `allowCrossContextSend` lets it write to every chat."""

    allow_cross_context_send: bool = False
    cross_context: CrossContextConfig = CrossContextConfig.model_construct()


class _ToolLists(Protocol):
    @property
    def allow(self) -> Sequence[str] | None: ...

    @property
    def also_allow(self) -> Sequence[str]: ...


L = TypeVar("L", bound=_ToolLists)


def check_one_list(section: L) -> L:
    """Return a section; raise when it has both `allow` and `alsoAllow`."""
    if section.allow and section.also_allow:
        message = "allow and alsoAllow exclude each other; use allow, or profile with alsoAllow"
        raise PydanticCustomError("exclusive", "{message}", {"message": message})
    return section


class ToolFilterConfig(ConfigSection):
    """A filter over tool names: all without `allow`; `deny` wins."""

    allow: StrTuple | None = None
    also_allow: StrTuple = ()
    deny: StrTuple = ()

    @model_validator(mode="after")
    def _has_one_list(self) -> Self:
        return check_one_list(self)


class ToolProfileConfig(ToolFilterConfig):
    """A filter that may start from a profile, which `alsoAllow` extends."""

    profile: Literal["minimal", "coding", "messaging", "full"] | None = None


class SandboxToolsConfig(ConfigSection):
    """The tools in sessions that have a sandbox, in addition to the other filters.

    Without `allow` there is a default list, which `alsoAllow` extends.
    """

    tools: ToolFilterConfig = ToolFilterConfig.model_construct()


class ToolsConfig(ToolProfileConfig):
    """The tools that may be used, for all models or by provider or model."""

    by_provider: Mapping[str, ToolProfileConfig] = {}
    exec: ExecConfig = ExecConfig.model_construct()
    elevated: ElevatedConfig = ElevatedConfig.model_construct()
    fs: FileToolsConfig = FileToolsConfig.model_construct()
    loop_detection: LoopDetectionConfig = LoopDetectionConfig.model_construct()
    sandbox: SandboxToolsConfig = SandboxToolsConfig.model_construct()


class AgentToolsConfig(ToolsConfig):
    """The tool settings of one agent; `policy` is one more filter, or the name of a profile."""

    policy: ToolProfileConfig | None = None

    @field_validator("policy", mode="before")
    @classmethod
    def _from_profile_name(cls, value: Any) -> Any:
        return {"profile": value} if isinstance(value, str) else value


class SubagentToolsConfig(ConfigSection):
    """The tools in the sessions of sub-agents, in addition to the other filters."""

    tools: ToolFilterConfig = ToolFilterConfig.model_construct()


class SessionToolsConfig(ConfigSection):
    """Which other sessions the tools of a session reach.

    `tree` are the session itself and those it started. `agent` and `all` add the sessions of the
    same agent, and of all agents, for the owner's private conversations.
    """

    visibility: Literal["self", "tree", "agent", "all"] = "tree"


class AgentToAgentConfig(ConfigSection):
    """Whether sessions of different agents reach each other, and which agents; `*` is any text.

    Both agents must be allowed. An empty list allows all.
    """

    enabled: bool = False
    allow: StrTuple = ()


class GlobalToolsConfig(ToolsConfig):
    """The tool settings of all agents."""

    web: WebToolsConfig = WebToolsConfig.model_construct()
    media: MediaConfig = MediaConfig.model_construct()

    subagents: SubagentToolsConfig = SubagentToolsConfig.model_construct()
    message: MessageToolConfig = MessageToolConfig.model_construct()
    sessions: SessionToolsConfig = SessionToolsConfig.model_construct()
    agent_to_agent: AgentToAgentConfig = AgentToAgentConfig.model_construct()
