"""The implemented part of `openclaw.json`, as typed values.

A key is added here when it is implemented; until then `known_keys` accepts it with a warning. The
defaults are OpenClaw's unless a decision says otherwise.
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    Strict,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import CoreSchema, PydanticCustomError

from homarus.core.errors import UserError
from homarus.core.units import parse_byte_size, parse_duration_ms

_V = TypeVar("_V")

Thinking: TypeAlias = Literal["off", "minimal", "low", "medium", "high", "xhigh"]
QueueWord: TypeAlias = Literal[
    "steer", "followup", "collect", "steer-backlog", "steer+backlog", "queue", "interrupt"
]
TypingWord: TypeAlias = Literal["never", "instant", "thinking", "message"]

Text: TypeAlias = Annotated[str, Field(min_length=1)]
Count: TypeAlias = Annotated[int, Field(gt=0)]
Wait: TypeAlias = Annotated[int, Field(ge=0)]
Hours: TypeAlias = Annotated[float, Field(gt=0, allow_inf_nan=False)]
# JSON has no tuples: Strict(False) converts a list, and its entries stay strict.
Texts: TypeAlias = Annotated[tuple[str, ...], Strict(strict=False)]
# Ids of people and chats may be numbers in the file; they are converted to text.
Ids: TypeAlias = Annotated[
    tuple[str, ...],
    BeforeValidator(lambda ids: [_id_text(each) for each in ids] if isinstance(ids, list) else ids),
    Strict(strict=False),
]
Share: TypeAlias = Annotated[float, Field(ge=0, le=1)]
Usd: TypeAlias = Annotated[float, Field(gt=0, allow_inf_nan=False)]


def _id_text(value: Any) -> Any:
    return str(value) if type(value) is int else value


def _parsed_by(parse: Callable[[str], object]) -> AfterValidator:
    """Return a validator that rejects a value with the UserError of `parse`."""

    def check(value: _V) -> _V:
        try:
            parse(str(value))
        except UserError as exc:
            raise PydanticCustomError("unit", "{message}", {"message": str(exc)}) from None
        return value

    return AfterValidator(check)


Duration: TypeAlias = Annotated[str, _parsed_by(lambda text: parse_duration_ms(text, "m"))]
# A bare number is in days.
Age: TypeAlias = Annotated[str | int | float, _parsed_by(lambda text: parse_duration_ms(text, "d"))]
Size: TypeAlias = Annotated[str | int | float, _parsed_by(parse_byte_size)]


class Section(BaseModel):
    """An object of the file: camelCase there, snake_case here; unknown keys are refused."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        defer_build=True,  # built once, as part of Config, at the first validation
        alias_generator=to_camel,
        protected_namespaces=(),
    )


class ModelChoice(Section):
    """A model and its fallbacks; a string is a model without fallbacks."""

    primary: Text | None = None
    fallbacks: Texts = ()

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        return {"primary": value} if isinstance(value, str) else value

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {"anyOf": [{"type": "string"}, handler(core_schema)]}


class ModelEntry(Section):
    """The settings of one model in `agents.defaults.models`."""

    alias: str | None = None
    params: Mapping[str, Any] = {}


class ToolNames(Section):
    """A set of tools: all without `allow`; `deny` wins."""

    allow: Texts = ()
    deny: Texts = ()


class SoftTrim(Section):
    """Trim old tool results above `max_chars` to their head and tail."""

    max_chars: Wait = 4_000
    head_chars: Wait = 1_500
    tail_chars: Wait = 1_500


class HardClear(Section):
    """Replace the oldest tool results by a placeholder when trimming is not enough."""

    enabled: bool = True
    placeholder: str = "[Old tool result content cleared]"


class ContextPruning(Section):
    """Shrink old tool results in the context when the provider's cache has expired."""

    mode: Literal["off", "cache-ttl"] | None = None
    ttl: Duration | None = None
    keep_last_assistants: Wait = 3
    soft_trim_ratio: Share = 0.3
    hard_clear_ratio: Share = 0.5
    min_prunable_tool_chars: Wait = 50_000
    tools: ToolNames = ToolNames.model_construct()
    soft_trim: SoftTrim = SoftTrim.model_construct()
    hard_clear: HardClear = HardClear.model_construct()


class MemoryFlush(Section):
    """A silent turn before compaction, in which the agent saves notes to memory."""

    enabled: bool = True
    soft_threshold_tokens: Wait = 4_000
    prompt: Text | None = None
    system_prompt: Text | None = None


class Compaction(Section):
    """When and how older turns are summarised."""

    enabled: bool = True
    mode: Literal["default", "safeguard"] = "safeguard"
    reserve_tokens: Wait = 16_384
    reserve_tokens_floor: Wait = 20_000
    keep_recent_tokens: Wait = 20_000
    max_history_share: Annotated[float, Field(ge=0.1, le=0.9)] = 0.5
    memory_flush: MemoryFlush = MemoryFlush.model_construct()


class Spend(Section):
    """Spend limits in US dollars, for one run and for all runs of a day."""

    per_run_usd: Usd | None = None
    per_day_usd: Usd | None = None


class BlockChunk(Section):
    """How a reply is split into blocks."""

    min_chars: Count = 800
    max_chars: Count = 1_200
    break_preference: Literal["paragraph", "newline", "sentence"] = "paragraph"


class BlockCoalesce(Section):
    """When small blocks of a reply are joined before they are sent."""

    min_chars: Count | None = None
    max_chars: Count | None = None
    idle_ms: Wait | None = None


class HumanDelay(Section):
    """A delay before each further block of a reply, as if a person typed it."""

    mode: Literal["off", "natural", "custom"] | None = None
    min_ms: Wait | None = None
    max_ms: Wait | None = None


class Sandbox(Section):
    """Which sessions must use a sandbox. It is not implemented: their commands are refused."""

    mode: Literal["off", "non-main", "all"] | None = None


class AgentDefaults(Section):
    """The settings of every agent that does not override them."""

    workspace: Text | None = None
    model: ModelChoice = ModelChoice.model_construct()
    models: Mapping[str, ModelEntry] = {}
    timeout_seconds: Count = 600
    max_concurrent: Count = 4
    context_tokens: Count | None = None
    skip_bootstrap: bool = False
    sandbox: Sandbox = Sandbox.model_construct()
    bootstrap_max_chars: Count = 20_000
    bootstrap_total_max_chars: Count = 150_000
    user_timezone: Text | None = None
    envelope_timezone: Text | None = None
    envelope_timestamp: Literal["on", "off"] = "on"
    envelope_elapsed: Literal["on", "off"] = "on"
    thinking_default: Thinking | None = None
    verbose_default: Literal["off", "on", "full"] = "off"
    block_streaming_default: Literal["off", "on"] = "off"
    block_streaming_break: Literal["text_end", "message_end"] = "text_end"
    block_streaming_chunk: BlockChunk = BlockChunk.model_construct()
    block_streaming_coalesce: BlockCoalesce = BlockCoalesce.model_construct()
    human_delay: HumanDelay = HumanDelay.model_construct()
    typing_mode: TypingWord | None = None
    typing_interval_seconds: Count | None = None
    context_pruning: ContextPruning = ContextPruning.model_construct()
    compaction: Compaction = Compaction.model_construct()
    spend: Spend = Spend.model_construct()
    # Not validated here: config/memory.py does, for agents that use memory.
    memory_search: Mapping[str, Any] = {}


class Identity(Section):
    """How an agent presents itself; IDENTITY.md supplies absent values."""

    name: str | None = None
    theme: str | None = None
    emoji: str | None = None
    avatar: str | None = None


class Exec(Section):
    """The `exec` tool."""

    timeout_sec: Count = 1800
    host: Literal["sandbox", "gateway", "node"] | None = None


class Detectors(Section):
    """The patterns of repeated tool calls that are detected."""

    generic_repeat: bool = True
    known_poll_no_progress: bool = True
    ping_pong: bool = True


class LoopDetection(Section):
    """When an agent that repeats its tool calls is warned, and when its run is ended."""

    enabled: bool = True
    history_size: Count = 30
    warning_threshold: Count = 10
    critical_threshold: Count = 20
    global_circuit_breaker_threshold: Count = 30
    detectors: Detectors = Detectors.model_construct()


class Marker(Section):
    """The text around a message from another chat; `{channel}` is the chat's channel."""

    enabled: bool = True
    prefix: str = "[from {channel}] "
    suffix: str = ""


class CrossContext(Section):
    """Whether an agent may write to another chat than the one it answers."""

    allow_within_provider: bool = True
    allow_across_providers: bool = False
    marker: Marker = Marker.model_construct()


class MessageTool(Section):
    """The `message` tool; `allowCrossContextSend` lets it write to every chat."""

    allow_cross_context_send: bool = False
    cross_context: CrossContext = CrossContext.model_construct()


class Tools(Section):
    """The tools that may be used; `deny` wins."""

    allow: Texts | None = None
    deny: Texts = ()
    exec: Exec = Exec.model_construct()
    loop_detection: LoopDetection = LoopDetection.model_construct()


class AllTools(Tools):
    """The tool settings of all agents."""

    message: MessageTool = MessageTool.model_construct()


class GroupChat(Section):
    """Group chats: which names are mentions, and how much group history is included."""

    mention_patterns: Texts | None = None
    history_limit: Count | None = None


class AgentEntry(Section):
    """One agent; absent values come from the defaults."""

    id: Text
    default: bool = False
    name: Text | None = None
    workspace: Text | None = None
    agent_dir: Text | None = None
    model: ModelChoice = ModelChoice.model_construct()
    human_delay: HumanDelay = HumanDelay.model_construct()
    identity: Identity = Identity.model_construct()
    group_chat: GroupChat = GroupChat.model_construct()
    sandbox: Sandbox = Sandbox.model_construct()
    tools: Tools | None = None
    memory_search: Mapping[str, Any] = {}


class Agents(Section):
    """The agents and their defaults."""

    defaults: AgentDefaults = AgentDefaults.model_construct()
    list: Annotated[tuple[AgentEntry, ...], Strict(strict=False)] = ()


class Cost(Section):
    """US dollars per million tokens."""

    input: float = 0.0
    output: float = 0.0
    cache_read: float = 0.0
    cache_write: float = 0.0


class Compat(Section):
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


class ProviderModel(Section):
    """One model of a provider."""

    id: Text
    name: Text | None = None
    api: Text | None = None
    reasoning: bool = False
    input: Annotated[tuple[Literal["text", "image"], ...], Strict(strict=False)] = ("text",)
    cost: Cost = Cost.model_construct()
    context_window: Count | None = None
    max_tokens: Count | None = None
    headers: Mapping[str, str] = {}
    compat: Compat = Compat.model_construct()


class SecretSource(Section):
    """A secret that is read from a variable, a file, or the output of a command."""

    source: Literal["env", "file", "exec"]
    name: Text | None = None
    path: Text | None = None
    command: Texts = ()
    timeout_seconds: Count = 10

    @model_validator(mode="after")
    def _is_complete(self) -> "SecretSource":
        values = {"env": self.name, "file": self.path, "exec": self.command and self.command[0]}
        if not values[self.source]:
            needed = {"env": "name", "file": "path", "exec": "command, a list of words"}
            message = f"source {self.source} needs {needed[self.source]}"
            raise PydanticCustomError("incomplete", "{message}", {"message": message})
        return self


class ProviderEntry(Section):
    """How to reach one provider; `base_url` defaults to the provider's own URL."""

    base_url: Text | None = None
    api_key: str | None = Field(None, repr=False)
    api_key_from: SecretSource | None = None
    auth: Literal["api-key", "aws-sdk", "oauth", "token"] | None = None
    api: Text | None = None
    headers: Mapping[str, str] = Field({}, repr=False)
    auth_header: bool | None = None
    models: Annotated[tuple[ProviderModel, ...], Strict(strict=False)] = ()


class Models(Section):
    """Providers in addition to the built-in ones, or with `replace` instead of them."""

    mode: Literal["merge", "replace"] = "merge"
    providers: Mapping[str, ProviderEntry] = {}


class AuthProfile(Section):
    """Conditions for using a credential of `auth-profiles.json`."""

    provider: Text
    mode: Literal["api_key", "oauth", "token"]
    email: str | None = None


class Cooldowns(Section):
    """The cooldown of a credential without credit, and when its failures expire."""

    billing_backoff_hours: Hours = 5.0
    billing_backoff_hours_by_provider: Mapping[str, Hours] = {}
    billing_max_hours: Hours = 24.0
    failure_window_hours: Hours = 24.0


class LoginClient(Section):
    """The OAuth client for logging in to a provider and refreshing its tokens."""

    client_id: Text | None = None
    client_secret: Text | None = Field(None, repr=False)
    token_url: Text | None = None
    authorize_url: Text | None = None
    device_url: Text | None = None
    redirect_url: Text | None = None
    scopes: Texts = ()


class Auth(Section):
    """Which credentials are used for models, in which order, and how they are refreshed."""

    profiles: Mapping[str, AuthProfile] = {}
    order: Mapping[str, Texts] = {}
    cooldowns: Cooldowns = Cooldowns.model_construct()
    clients: Mapping[str, LoginClient] = {}


class Reset(Section):
    """When a session is reset automatically: daily at an hour, or after being idle."""

    mode: Literal["daily", "idle"] | None = None
    at_hour: Annotated[int, Field(ge=0, le=23)] | None = None
    idle_minutes: Count | None = None


class ResetByType(Section):
    """Reset settings by chat type; `dm` is an alias of `direct`."""

    direct: Reset | None = None
    dm: Reset | None = None
    group: Reset | None = None
    thread: Reset | None = None


class SendMatch(Section):
    """The sessions that a rule matches; an absent condition matches all."""

    channel: str | None = None
    chat_type: Literal["direct", "group", "channel", "dm"] | None = None
    key_prefix: str | None = None
    raw_key_prefix: str | None = None


class SendRule(Section):
    """A rule that allows or denies replies in some sessions."""

    action: Literal["allow", "deny"]
    match: SendMatch = SendMatch.model_construct()


class SendPolicy(Section):
    """The sessions that are answered. A rule that denies wins over one that allows."""

    default: Literal["allow", "deny"] = "allow"
    rules: Annotated[tuple[SendRule, ...], Strict(strict=False)] = ()


class Maintenance(Section):
    """Retention of old sessions: `warn` only logs, `enforce` archives them."""

    mode: Literal["warn", "enforce"] = "warn"
    prune_after: Age | None = None
    prune_days: Count | None = None
    max_entries: Count = 500
    rotate_bytes: Size = "10mb"


class Session(Section):
    """Sessions: their keys, when they are reset, and which are answered.

    The key of the main session is always `main`, as in OpenClaw.
    """

    main_key: Text | None = None
    dm_scope: Literal["main", "per-peer", "per-channel-peer", "per-account-channel-peer"] = "main"
    identity_links: Mapping[str, Texts] = {}
    idle_minutes: Count | None = None
    reset: Reset | None = None
    reset_by_type: ResetByType | None = None
    reset_by_channel: Mapping[str, Reset] = {}
    reset_triggers: Texts = ("/new", "/reset")
    send_policy: SendPolicy = SendPolicy.model_construct()
    maintenance: Maintenance = Maintenance.model_construct()
    typing_mode: TypingWord | None = None
    typing_interval_seconds: Count | None = None


class QueueByChannel(Section):
    """The queue mode of each channel; the key may be any channel's name."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, QueueWord]

    whatsapp: QueueWord | None = None
    telegram: QueueWord | None = None
    discord: QueueWord | None = None
    irc: QueueWord | None = None
    slack: QueueWord | None = None
    mattermost: QueueWord | None = None
    signal: QueueWord | None = None
    imessage: QueueWord | None = None
    msteams: QueueWord | None = None
    webchat: QueueWord | None = None


class Queue(Section):
    """The run queue: what happens to a message that arrives during a run of its session."""

    mode: QueueWord | None = None
    by_channel: QueueByChannel = QueueByChannel.model_construct()
    debounce_ms: Wait | None = None
    debounce_ms_by_channel: Mapping[str, Wait] = {}
    cap: Count | None = None
    drop: Literal["old", "new", "summarize"] | None = None


class InboundWait(Section):
    """The debounce of inbound messages, which are merged while the sender keeps writing."""

    debounce_ms: Wait = 0
    by_channel: Mapping[str, Wait] = {}


class Messages(Section):
    """How messages are received and answered."""

    response_prefix: str | None = None
    queue: Queue = Queue.model_construct()
    inbound: InboundWait = InboundWait.model_construct()
    group_chat: GroupChat = GroupChat.model_construct()
    ack_reaction: str | None = None
    ack_reaction_scope: Literal["group-mentions", "group-all", "direct", "all"] = "group-mentions"
    remove_ack_after_reply: bool = False


class Peer(Section):
    """One chat; without an id, every chat of that kind."""

    kind: Literal["direct", "group", "channel", "dm"]
    id: Text = "*"


class BindingMatch(Section):
    """The messages that a binding matches."""

    channel: Text
    account_id: Text | None = None
    peer: Peer | None = None
    guild_id: Text | None = None
    team_id: Text | None = None
    roles: Texts = ()


class Binding(Section):
    """A rule that routes messages to an agent."""

    agent_id: Text
    match: BindingMatch


class Broadcast(Section):
    """Chats that several agents answer: each key besides `strategy` is a chat id."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Texts]

    strategy: Literal["parallel", "sequential"] = "parallel"


class Commands(Section):
    """Chat commands: which are enabled, and the ids of the people who may use them."""

    restart: bool = False
    native: bool | Literal["auto"] = "auto"
    use_access_groups: bool = True
    owner_allow_from: Ids = ()
    allow_from: Mapping[str, Ids] = {}


class Logging(Section):
    """The log file and its level."""

    level: Literal["silent", "fatal", "error", "warn", "info", "debug", "trace"] = "info"
    file: Text | None = None
    redact_sensitive: Literal["off", "tools"] = "tools"


class RateLimit(Section):
    """The rate limit for failed authentications, and the lockout after it."""

    max_attempts: Count = 10
    window_ms: Count = 60_000
    lockout_ms: Count = 300_000
    exempt_loopback: bool = True


class GatewayAuth(Section):
    """How clients authenticate. Without a mode, the secrets that are set decide."""

    mode: Literal["none", "token", "password", "trusted-proxy"] | None = None
    token: str | None = Field(None, repr=False)
    password: str | None = Field(None, repr=False)
    rate_limit: RateLimit = RateLimit.model_construct()


class ControlUi(Section):
    """The web page of the gateway."""

    enabled: bool = True
    allowed_origins: Texts = ()


class Reload(Section):
    """How a running gateway applies a changed config."""

    mode: Literal["off", "restart", "hot", "hybrid"] = "hybrid"
    debounce_ms: Annotated[int, Field(ge=0)] = 300


class Endpoint(Section):
    """An HTTP endpoint that is disabled by default."""

    enabled: bool = False


class Endpoints(Section):
    """HTTP endpoints besides the web page and `/health`."""

    metrics: Endpoint = Endpoint.model_construct()


class Http(Section):
    """The HTTP server."""

    endpoints: Endpoints = Endpoints.model_construct()


class Gateway(Section):
    """The gateway: its listen address and authentication."""

    port: Annotated[int, Field(gt=0, lt=65_536)] | None = None
    bind: Literal["loopback", "lan", "auto", "custom", "tailnet"] = "loopback"
    custom_bind_host: Text | None = None
    auth: GatewayAuth = GatewayAuth.model_construct()
    control_ui: ControlUi = ControlUi.model_construct()
    trusted_proxies: Texts = ()
    reload: Reload = Reload.model_construct()
    http: Http = Http.model_construct()


class Env(Section):
    """Variables that the process environment lacks: in `vars`, or next to it."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, str]

    vars: Mapping[str, str] = Field({}, repr=False)


class Meta(Section):
    """The version and time of the last write."""

    last_touched_version: str | None = None
    last_touched_at: str | None = None


class Config(Section):
    """`openclaw.json`."""

    schema_: str | None = Field(None, alias="$schema")
    meta: Meta = Meta.model_construct()
    # Written by OpenClaw's setup; preserved and not used.
    wizard: Mapping[str, Any] = {}
    env: Env = Env.model_construct()
    logging: Logging = Logging.model_construct()
    agents: Agents = Agents.model_construct()
    auth: Auth = Auth.model_construct()
    models: Models = Models.model_construct()
    tools: AllTools = AllTools.model_construct()
    session: Session = Session.model_construct()
    messages: Messages = Messages.model_construct()
    commands: Commands = Commands.model_construct()
    bindings: Annotated[tuple[Binding, ...], Strict(strict=False)] = ()
    broadcast: Broadcast = Broadcast.model_construct()
    # Not validated here: config/channels.py does, if there are any.
    channels: Mapping[str, Any] = {}
    # Not validated here: config/memory.py does.
    memory: Mapping[str, Any] = {}
    gateway: Gateway = Gateway.model_construct()
