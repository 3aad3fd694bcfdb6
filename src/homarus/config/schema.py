"""The implemented part of `openclaw.json`, as typed values.

A key is added here when it is implemented; until then `known_keys` accepts it with a warning. The
defaults are OpenClaw's unless a decision says otherwise.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    Strict,
    model_validator,
)
from pydantic_core import CoreSchema, PydanticCustomError

from homarus.config.browser_schema import BrowserConfig
from homarus.config.cron_schema import CronConfig
from homarus.config.diagnostics_schema import DiagnosticsConfig
from homarus.config.gateway_schema import GatewayConfig
from homarus.config.heartbeat_schema import HeartbeatConfig
from homarus.config.hooks_schema import HooksConfig
from homarus.config.mcp_schema import AgentMcpConfig, McpConfig
from homarus.config.sandbox_schema import SandboxConfig
from homarus.config.section import (
    Age,
    ConfigSection,
    Duration,
    Fraction,
    Hours,
    Ids,
    LogLevelName,
    NonEmptyStr,
    NonNegativeInt,
    PositiveInt,
    ProviderApi,
    QueueModeName,
    Size,
    StrTuple,
    Thinking,
    TypingModeName,
    Usd,
    WholeNumber,
    parsed_by,
)
from homarus.config.session_rule_schema import SendRule
from homarus.config.skills_schema import SkillsConfig
from homarus.config.tools_schema import AgentToolsConfig, GlobalToolsConfig
from homarus.core.regex import check_redaction, compile_search

MAX_REDACT_PATTERNS = 100  # each is searched in every line of the log


class ModelChoiceConfig(ConfigSection):
    """A model and its fallbacks; a string is a model without fallbacks."""

    primary: NonEmptyStr | None = None
    fallbacks: StrTuple = ()

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        return {"primary": value} if isinstance(value, str) else value

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {"anyOf": [{"type": "string"}, handler(core_schema)]}


class ModelEntry(ConfigSection):
    """The settings of one model in `agents.defaults.models`."""

    alias: str | None = None
    params: Mapping[str, Any] = {}


class ToolNamesConfig(ConfigSection):
    """A set of tools: all without `allow`; `deny` wins."""

    allow: StrTuple = ()
    deny: StrTuple = ()


class SoftTrimConfig(ConfigSection):
    """Trim old tool results above `max_chars` to their head and tail."""

    max_chars: NonNegativeInt = 4_000
    head_chars: NonNegativeInt = 1_500
    tail_chars: NonNegativeInt = 1_500


class HardClearConfig(ConfigSection):
    """Replace the oldest tool results by a placeholder when trimming is not enough."""

    enabled: bool = True
    placeholder: str = "[Old tool result content cleared]"


class ContextPruningConfig(ConfigSection):
    """Shrink old tool results in the context when the provider's cache has expired."""

    mode: Literal["off", "cache-ttl"] | None = None
    ttl: Duration | None = None
    keep_last_assistants: NonNegativeInt = 3
    soft_trim_ratio: Fraction = 0.3
    hard_clear_ratio: Fraction = 0.5
    min_prunable_tool_chars: NonNegativeInt = 50_000
    tools: ToolNamesConfig = ToolNamesConfig.model_construct()
    soft_trim: SoftTrimConfig = SoftTrimConfig.model_construct()
    hard_clear: HardClearConfig = HardClearConfig.model_construct()


class MemoryFlushConfig(ConfigSection):
    """A silent turn before compaction, in which the agent saves notes to memory."""

    enabled: bool = True
    soft_threshold_tokens: NonNegativeInt = 4_000
    prompt: NonEmptyStr | None = None
    system_prompt: NonEmptyStr | None = None


class CompactionConfig(ConfigSection):
    """When and how older turns are summarised."""

    enabled: bool = True
    mode: Literal["default", "safeguard"] = "safeguard"
    reserve_tokens: NonNegativeInt = 16_384
    reserve_tokens_floor: NonNegativeInt = 20_000
    keep_recent_tokens: NonNegativeInt = 20_000
    max_history_share: Annotated[float, Field(ge=0.1, le=0.9)] = 0.5
    memory_flush: MemoryFlushConfig = MemoryFlushConfig.model_construct()


class SpendConfig(ConfigSection):
    """Spend limits in US dollars, for one run and for all runs of a day."""

    per_run_usd: Usd | None = None
    per_day_usd: Usd | None = None


class BlockChunkConfig(ConfigSection):
    """How a reply is split into blocks."""

    min_chars: PositiveInt = 800
    max_chars: PositiveInt = 1_200
    break_preference: Literal["paragraph", "newline", "sentence"] = "paragraph"


class BlockCoalesceConfig(ConfigSection):
    """When small blocks of a reply are joined before they are sent."""

    min_chars: PositiveInt | None = None
    max_chars: PositiveInt | None = None
    idle_ms: NonNegativeInt | None = None


class HumanDelayConfig(ConfigSection):
    """A delay before each further block of a reply, as if a person typed it."""

    mode: Literal["off", "natural", "custom"] | None = None
    min_ms: NonNegativeInt | None = None
    max_ms: NonNegativeInt | None = None


class SubagentModelConfig(ConfigSection):
    """The model and the thinking level of sub-agents; absent: those of the starting session."""

    model: ModelChoiceConfig = ModelChoiceConfig.model_construct()
    thinking: NonEmptyStr | None = None


class SubagentsConfig(SubagentModelConfig):
    """How many sub-agents work at once, how deep they may be nested, and when they are archived."""

    max_concurrent: PositiveInt = 8
    max_spawn_depth: Annotated[int, Field(ge=1, le=5)] = 1
    max_children_per_agent: Annotated[int, Field(ge=1, le=20)] = 5
    archive_after_minutes: PositiveInt = 60


class AgentSubagentsConfig(SubagentModelConfig):
    """The sub-agents of one agent: `allow_agents` are the other agents that it may start."""

    allow_agents: StrTuple = ()


class AgentDefaults(ConfigSection):
    """The settings of every agent that does not override them."""

    agent_id: NonEmptyStr | None = None
    workspace: NonEmptyStr | None = None
    repo_root: NonEmptyStr | None = None
    model: ModelChoiceConfig = ModelChoiceConfig.model_construct()
    models: Mapping[str, ModelEntry] = {}
    timeout_seconds: PositiveInt = 600
    max_concurrent: PositiveInt = 4
    context_tokens: PositiveInt | None = None
    skip_bootstrap: bool = False
    media_max_mb: Annotated[float, Field(gt=0)] | None = None
    image_model: ModelChoiceConfig = ModelChoiceConfig.model_construct()
    image_max_dimension_px: PositiveInt | None = None
    sandbox: SandboxConfig = SandboxConfig.model_construct()
    subagents: SubagentsConfig = SubagentsConfig.model_construct()
    bootstrap_max_chars: PositiveInt = 20_000
    bootstrap_total_max_chars: PositiveInt = 150_000
    user_timezone: NonEmptyStr | None = None
    time_format: Literal["auto", "12", "24"] = "auto"
    envelope_timezone: NonEmptyStr | None = None
    envelope_timestamp: Literal["on", "off"] = "on"
    envelope_elapsed: Literal["on", "off"] = "on"
    thinking_default: Thinking | None = None
    verbose_default: Literal["off", "on", "full"] = "off"
    elevated_default: Literal["off", "on", "ask", "full"] | None = None
    block_streaming_default: Literal["off", "on"] = "off"
    block_streaming_break: Literal["text_end", "message_end"] = "text_end"
    block_streaming_chunk: BlockChunkConfig = BlockChunkConfig.model_construct()
    block_streaming_coalesce: BlockCoalesceConfig = BlockCoalesceConfig.model_construct()
    human_delay: HumanDelayConfig = HumanDelayConfig.model_construct()
    typing_mode: TypingModeName | None = None
    typing_interval_seconds: PositiveInt | None = None
    context_pruning: ContextPruningConfig = ContextPruningConfig.model_construct()
    compaction: CompactionConfig = CompactionConfig.model_construct()
    spend: SpendConfig = SpendConfig.model_construct()
    prompt_file_writers: Literal["owner", "everyone"] = "owner"
    heartbeat: HeartbeatConfig = HeartbeatConfig.model_construct()
    # Not validated here: config/memory.py does, for agents that use memory.
    memory_search: Mapping[str, Any] = {}


class IdentityConfig(ConfigSection):
    """How an agent presents itself; IDENTITY.md supplies absent values."""

    name: str | None = None
    creature: str | None = None
    vibe: str | None = None
    theme: str | None = None
    emoji: str | None = None
    avatar: str | None = None


class GroupChatConfig(ConfigSection):
    """Group chats: which names are mentions, and how much group history is included."""

    mention_patterns: StrTuple | None = None
    history_limit: PositiveInt | None = None


class AgentEntry(ConfigSection):
    """One agent; absent values come from the defaults."""

    id: NonEmptyStr
    default: bool = False
    name: NonEmptyStr | None = None
    workspace: NonEmptyStr | None = None
    agent_dir: NonEmptyStr | None = None
    model: ModelChoiceConfig = ModelChoiceConfig.model_construct()
    human_delay: HumanDelayConfig = HumanDelayConfig.model_construct()
    identity: IdentityConfig = IdentityConfig.model_construct()
    group_chat: GroupChatConfig = GroupChatConfig.model_construct()
    sandbox: SandboxConfig = SandboxConfig.model_construct()
    # If any agent has one, the others have no heartbeat.
    heartbeat: HeartbeatConfig | None = None
    subagents: AgentSubagentsConfig = AgentSubagentsConfig.model_construct()
    tools: AgentToolsConfig | None = None
    mcp: AgentMcpConfig = AgentMcpConfig.model_construct()
    # The names of the skills that it may use; absent: all, empty: none.
    skills: StrTuple | None = None
    memory_search: Mapping[str, Any] = {}


class AgentsConfig(ConfigSection):
    """The agents and their defaults."""

    defaults: AgentDefaults = AgentDefaults.model_construct()
    list: Annotated[tuple[AgentEntry, ...], Strict(strict=False)] = ()


class CostConfig(ConfigSection):
    """US dollars per million tokens."""

    input: float = 0.0
    output: float = 0.0
    cache_read: float = 0.0
    cache_write: float = 0.0


class CompatConfig(ConfigSection):
    """How an OpenAI-compatible server differs from OpenAI's."""

    supports_store: bool | None = None
    supports_developer_role: bool | None = None
    supports_reasoning_effort: bool | None = None
    supports_usage_in_streaming: bool | None = None
    supports_strict_mode: bool | None = None
    max_tokens_field: Literal["max_completion_tokens", "max_tokens"] | None = None
    thinking_format: Literal["openai", "zai", "qwen"] | None = None
    requires_tool_result_name: bool | None = None
    requires_assistant_after_tool_result: bool | None = None
    requires_thinking_as_text: bool | None = None
    requires_mistral_tool_ids: bool | None = None


class ProviderModel(ConfigSection):
    """One model of a provider."""

    id: NonEmptyStr
    name: NonEmptyStr | None = None
    api: ProviderApi | None = None
    reasoning: bool = False
    input: Annotated[tuple[Literal["text", "image"], ...], Strict(strict=False)] = ("text",)
    cost: CostConfig = CostConfig.model_construct()
    context_window: WholeNumber | None = None
    max_tokens: WholeNumber | None = None
    headers: Mapping[str, str] = {}
    compat: CompatConfig = CompatConfig.model_construct()


class SecretSourceConfig(ConfigSection):
    """A secret that is read from a variable, a file, or the output of a command."""

    source: Literal["env", "file", "exec"]
    name: NonEmptyStr | None = None
    path: NonEmptyStr | None = None
    command: StrTuple = ()
    timeout_seconds: PositiveInt = 10

    @model_validator(mode="after")
    def _is_complete(self) -> "SecretSourceConfig":
        values = {"env": self.name, "file": self.path, "exec": self.command and self.command[0]}
        if not values[self.source]:
            needed = {"env": "name", "file": "path", "exec": "command, a list of words"}
            message = f"source {self.source} needs {needed[self.source]}"
            raise PydanticCustomError("incomplete", "{message}", {"message": message})
        return self


class ProviderEntry(ConfigSection):
    """How to reach one provider; `base_url` defaults to the provider's own URL."""

    base_url: NonEmptyStr | None = None
    api_key: str | None = Field(None, repr=False)
    api_key_from: SecretSourceConfig | None = None
    auth: Literal["api-key", "aws-sdk", "oauth", "token"] | None = None
    api: ProviderApi | None = None
    headers: Mapping[str, str] = Field({}, repr=False)
    auth_header: bool | None = None
    models: Annotated[tuple[ProviderModel, ...], Strict(strict=False)] = ()


class ModelsConfig(ConfigSection):
    """Providers in addition to the built-in ones, or with `replace` instead of them."""

    mode: Literal["merge", "replace"] = "merge"
    providers: Mapping[str, ProviderEntry] = {}


class AuthProfileConfig(ConfigSection):
    """Conditions for using a credential of `auth-profiles.json`."""

    provider: NonEmptyStr
    mode: Literal["api_key", "oauth", "token"]
    email: str | None = None


class CooldownsConfig(ConfigSection):
    """The cooldown of a credential without credit, and when its failures expire."""

    billing_backoff_hours: Hours = 5.0
    billing_backoff_hours_by_provider: Mapping[str, Hours] = {}
    billing_max_hours: Hours = 24.0
    failure_window_hours: Hours = 24.0


class OAuthClientConfig(ConfigSection):
    """The OAuth client for logging in to a provider and refreshing its tokens."""

    client_id: NonEmptyStr | None = None
    client_secret: NonEmptyStr | None = Field(None, repr=False)
    token_url: NonEmptyStr | None = None
    authorize_url: NonEmptyStr | None = None
    device_url: NonEmptyStr | None = None
    redirect_url: NonEmptyStr | None = None
    scopes: StrTuple = ()


class AuthConfig(ConfigSection):
    """Which credentials are used for models, in which order, and how they are refreshed."""

    profiles: Mapping[str, AuthProfileConfig] = {}
    order: Mapping[str, StrTuple] = {}
    cooldowns: CooldownsConfig = CooldownsConfig.model_construct()
    clients: Mapping[str, OAuthClientConfig] = {}


class ResetConfig(ConfigSection):
    """When a session is reset automatically: daily at an hour, or after being idle."""

    mode: Literal["daily", "idle"] | None = None
    at_hour: Annotated[int, Field(ge=0, le=23)] | None = None
    idle_minutes: PositiveInt | None = None


class ResetByTypeConfig(ConfigSection):
    """Reset settings by chat type; `dm` is an alias of `direct`."""

    direct: ResetConfig | None = None
    dm: ResetConfig | None = None
    group: ResetConfig | None = None
    thread: ResetConfig | None = None


class SendPolicyConfig(ConfigSection):
    """The sessions that are answered. A rule that denies wins over one that allows."""

    default: Literal["allow", "deny"] = "allow"
    rules: Annotated[tuple[SendRule, ...], Strict(strict=False)] = ()


class MaintenanceConfig(ConfigSection):
    """Retention of old sessions: `warn` only logs, `enforce` archives them."""

    mode: Literal["warn", "enforce"] = "warn"
    prune_after: Age | None = None
    prune_days: PositiveInt | None = None
    max_entries: PositiveInt = 500
    rotate_bytes: Size = "10mb"
    usage_retention: Age | Literal[False] = "90d"


class SessionExchangeConfig(ConfigSection):
    """How often two sessions answer each other after one has written to the other."""

    max_ping_pong_turns: Annotated[int, Field(ge=0, le=5)] = 5


class SessionConfig(ConfigSection):
    """Sessions: their keys, when they are reset, and which are answered.

    The key of the main session is always `main`, as in OpenClaw.
    """

    scope: Literal["per-sender", "global"] = "per-sender"
    store: NonEmptyStr | None = None
    main_key: NonEmptyStr | None = None
    dm_scope: Literal["main", "per-peer", "per-channel-peer", "per-account-channel-peer"] = "main"
    identity_links: Mapping[str, StrTuple] = {}
    idle_minutes: PositiveInt | None = None
    reset: ResetConfig | None = None
    reset_by_type: ResetByTypeConfig | None = None
    reset_by_channel: Mapping[str, ResetConfig] = {}
    reset_triggers: StrTuple = ("/new", "/reset")
    send_policy: SendPolicyConfig = SendPolicyConfig.model_construct()
    maintenance: MaintenanceConfig = MaintenanceConfig.model_construct()
    agent_to_agent: SessionExchangeConfig = SessionExchangeConfig.model_construct()
    typing_mode: TypingModeName | None = None
    typing_interval_seconds: PositiveInt | None = None


class QueueByChannelConfig(ConfigSection):
    """The queue mode of each channel; the key may be any channel's name."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, QueueModeName]

    whatsapp: QueueModeName | None = None
    telegram: QueueModeName | None = None
    discord: QueueModeName | None = None
    irc: QueueModeName | None = None
    slack: QueueModeName | None = None
    mattermost: QueueModeName | None = None
    signal: QueueModeName | None = None
    imessage: QueueModeName | None = None
    msteams: QueueModeName | None = None
    webchat: QueueModeName | None = None


class QueueConfig(ConfigSection):
    """The run queue: what happens to a message that arrives during a run of its session."""

    mode: QueueModeName | None = None
    by_channel: QueueByChannelConfig = QueueByChannelConfig.model_construct()
    debounce_ms: NonNegativeInt | None = None
    debounce_ms_by_channel: Mapping[str, NonNegativeInt] = {}
    cap: PositiveInt | None = None
    drop: Literal["old", "new", "summarize"] | None = None


class InboundDebounceConfig(ConfigSection):
    """The debounce of inbound messages, which are merged while the sender keeps writing."""

    debounce_ms: NonNegativeInt = 0
    by_channel: Mapping[str, NonNegativeInt] = {}


class MessagesConfig(ConfigSection):
    """How messages are received and answered."""

    message_prefix: str | None = None
    response_prefix: str | None = None
    suppress_tool_errors: bool = False
    queue: QueueConfig = QueueConfig.model_construct()
    inbound: InboundDebounceConfig = InboundDebounceConfig.model_construct()
    group_chat: GroupChatConfig = GroupChatConfig.model_construct()
    ack_reaction: str | None = None
    ack_reaction_scope: Literal["group-mentions", "group-all", "direct", "all"] = "group-mentions"
    remove_ack_after_reply: bool = False


class PeerConfig(ConfigSection):
    """One chat; without an id, every chat of that kind."""

    kind: Literal["direct", "group", "channel", "dm"]
    id: NonEmptyStr = "*"


class BindingMatchConfig(ConfigSection):
    """The messages that a binding matches."""

    channel: NonEmptyStr
    account_id: NonEmptyStr | None = None
    peer: PeerConfig | None = None
    guild_id: NonEmptyStr | None = None
    team_id: NonEmptyStr | None = None
    roles: StrTuple = ()


class BindingConfig(ConfigSection):
    """A rule that routes messages to an agent."""

    agent_id: NonEmptyStr
    match: BindingMatchConfig


class BroadcastConfig(ConfigSection):
    """Chats that several agents answer: each key besides `strategy` is a chat id."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, StrTuple]

    strategy: Literal["parallel", "sequential"] = "parallel"


class CommandsConfig(ConfigSection):
    """Chat commands: which are enabled, and the ids of the people who may use them."""

    restart: bool = False
    bash: bool = False
    bash_foreground_ms: Annotated[int, Field(ge=0, le=30_000)] = 2_000
    config: bool = False
    debug: bool = False
    native: bool | Literal["auto"] = "auto"
    native_skills: bool | Literal["auto"] = "auto"
    text: bool = True
    use_access_groups: bool = True
    owner_allow_from: Ids = ()
    allow_from: Mapping[str, Ids] = {}


class ApprovalTargetConfig(ConfigSection):
    """A chat that gets the questions about tool calls: its channel, and the chat on it."""

    channel: NonEmptyStr
    to: NonEmptyStr
    account_id: NonEmptyStr | None = None
    thread_id: NonEmptyStr | int | float | None = None


class ApprovalForwardingConfig(ConfigSection):
    """Which chats get questions about tool calls: the one that led to the call, targets, or both.

    Unset, the owner is asked in the chat; `enabled: false` asks in no chat. The filters name the
    agents, and parts or patterns of the session keys, whose questions go to chats.
    """

    enabled: bool | None = None
    mode: Literal["session", "targets", "both"] = "session"
    agent_filter: StrTuple = ()
    session_filter: Annotated[
        tuple[Annotated[str, parsed_by(compile_search)], ...], Strict(strict=False)
    ] = ()
    targets: Annotated[tuple[ApprovalTargetConfig, ...], Strict(strict=False)] = ()


class ApprovalsConfig(ConfigSection):
    """How long an approval can be answered, how long a run waits for it, and who is asked."""

    expiry_seconds: PositiveInt = 86_400
    wait_seconds: NonNegativeInt = 10
    exec: ApprovalForwardingConfig = ApprovalForwardingConfig.model_construct()


class LoggingConfig(ConfigSection):
    """The log file and the console: their levels, and what is redacted in both.

    Without `console_level` the console shows warnings, and nothing below the level of the file.
    """

    level: LogLevelName = "info"
    file: NonEmptyStr | None = None
    console_level: LogLevelName | None = None
    console_style: Literal["pretty", "compact", "json"] | None = None
    redact_sensitive: Literal["off", "tools"] = "tools"
    redact_patterns: Annotated[
        tuple[Annotated[str, parsed_by(check_redaction)], ...],
        Strict(strict=False),
        Field(max_length=MAX_REDACT_PATTERNS),
    ] = ()


class ShellEnvConfig(ConfigSection):
    """Whether missing variables are imported from the login shell, and how long that may take."""

    enabled: bool = False
    timeout_ms: NonNegativeInt = 15_000


class EnvConfig(ConfigSection):
    """Variables that the process environment lacks: in `vars`, or next to it."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, str]

    vars: Mapping[str, str] = Field({}, repr=False)
    shell_env: ShellEnvConfig = ShellEnvConfig.model_construct()


class MetaConfig(ConfigSection):
    """The version and time of the last write."""

    last_touched_version: str | None = None
    last_touched_at: str | None = None


class Config(ConfigSection):
    """`openclaw.json`."""

    schema_: str | None = Field(None, alias="$schema")
    meta: MetaConfig = MetaConfig.model_construct()
    # Written by OpenClaw's setup; preserved and not used.
    wizard: Mapping[str, Any] = {}
    env: EnvConfig = EnvConfig.model_construct()
    logging: LoggingConfig = LoggingConfig.model_construct()
    agents: AgentsConfig = AgentsConfig.model_construct()
    auth: AuthConfig = AuthConfig.model_construct()
    models: ModelsConfig = ModelsConfig.model_construct()
    tools: GlobalToolsConfig = GlobalToolsConfig.model_construct()
    session: SessionConfig = SessionConfig.model_construct()
    messages: MessagesConfig = MessagesConfig.model_construct()
    commands: CommandsConfig = CommandsConfig.model_construct()
    approvals: ApprovalsConfig = ApprovalsConfig.model_construct()
    bindings: Annotated[tuple[BindingConfig, ...], Strict(strict=False)] = ()
    broadcast: BroadcastConfig = BroadcastConfig.model_construct()
    # Not validated here: config/channels.py does, if there are any.
    channels: Mapping[str, Any] = {}
    # Not validated here: config/memory.py does.
    memory: Mapping[str, Any] = {}
    gateway: GatewayConfig = GatewayConfig.model_construct()
    mcp: McpConfig = McpConfig.model_construct()
    browser: BrowserConfig = BrowserConfig.model_construct()
    cron: CronConfig = CronConfig.model_construct()
    skills: SkillsConfig = SkillsConfig.model_construct()
    hooks: HooksConfig = HooksConfig.model_construct()
    diagnostics: DiagnosticsConfig = DiagnosticsConfig.model_construct()
