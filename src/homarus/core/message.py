"""Messages of people, models and tools, and the chats they come from and go to.

Frozen values. `sessions/transcript.py` encodes them for the transcript, and each provider and
channel adapter for its own wire format.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Final, Literal, TypeAlias

from homarus.core.fast_dataclass import dataclass, replace

Json: TypeAlias = Any  # a JSON value: what json.loads returns
Role: TypeAlias = Literal["user", "assistant", "tool"]
StopReason: TypeAlias = Literal["stop", "length", "toolUse", "error", "aborted"]
# Which commands a sender may give: all, all but the owner's, none; "": commands are not parsed.
Authority: TypeAlias = Literal["", "owner", "authorised", "stranger"]
# A gateway request, a command in the chat, a newer message (queue mode `interrupt`), or a person's
# message that a heartbeat must not delay.
StoppedBy: TypeAlias = Literal["rpc", "stop-command", "interrupt", "preempt"]
ProvenanceKind: TypeAlias = Literal["external_user", "inter_session", "internal_system"]
ChatKind: TypeAlias = Literal["direct", "group", "channel"]
MediaKind: TypeAlias = Literal["image", "audio", "voice", "video", "document", "sticker"]


@dataclass(frozen=True, slots=True)
class Text:
    """Text; `signature` is sent back to providers that require it."""

    text: str
    signature: str = ""


@dataclass(frozen=True, slots=True)
class Thinking:
    """A model's reasoning; `signature` is sent back to providers that require it."""

    text: str
    signature: str = ""


@dataclass(frozen=True, slots=True)
class Image:
    """An image in base64."""

    data: str
    mime: str


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A model's request to run a tool.

    `broken` is argument text that was not a JSON object; `signature` is sent back to providers
    that require it.
    """

    id: str
    name: str
    args: Mapping[str, Json]
    broken: str = ""
    signature: str = ""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of a tool call; `details` are for clients and are never sent to the model."""

    call_id: str
    name: str
    content: tuple[Text | Image, ...]
    is_error: bool = False
    details: Mapping[str, Json] | None = None

    @property
    def text(self) -> str:
        return "\n".join(part.text for part in self.content if isinstance(part, Text))


Part: TypeAlias = Text | Thinking | Image | ToolCall | ToolResult


@dataclass(frozen=True, slots=True)
class Usage:
    """The tokens of one model call; `input` excludes tokens read from or written to the cache."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0
    cost: float = 0.0

    @property
    def prompt(self) -> int:
        return self.input + self.cache_read + self.cache_write

    @property
    def total(self) -> int:
        return self.prompt + self.output

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.input + other.input,
            self.output + other.output,
            self.cache_read + other.cache_read,
            self.cache_write + other.cache_write,
            self.reasoning + other.reasoning,
            self.cost + other.cost,
        )


@dataclass(frozen=True, slots=True)
class StopInfo:
    """The run that a user stopped, and by which means."""

    run_id: str
    by: StoppedBy


@dataclass(frozen=True, slots=True)
class Origin:
    """The model that wrote an assistant message, its usage, and why it stopped."""

    api: str
    provider: str
    model: str
    stop: StopReason = "stop"
    usage: Usage = field(default_factory=Usage)
    error: str = ""
    stopped: StopInfo | None = None
    code: str = ""  # of the error


@dataclass(frozen=True, slots=True)
class InputProvenance:
    """Where a user message comes from, as the client that sent it says.

    The source is another session, or a tool of it that sent the message on a channel.
    """

    kind: ProvenanceKind
    session_key: str = ""
    channel: str = ""
    tool: str = ""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Message:
    """A role and typed parts. A tool message holds exactly one ToolResult."""

    role: Role
    parts: tuple[Part, ...]
    at_ms: int = 0
    origin: Origin | None = None
    provenance: InputProvenance | None = None

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.parts if isinstance(part, Text))

    @property
    def thinking(self) -> str:
        return "".join(part.text for part in self.parts if isinstance(part, Thinking))

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        return tuple(part for part in self.parts if isinstance(part, ToolCall))


def user_message(text: str, *images: Image, at_ms: int = 0) -> Message:
    """Make a user message."""
    return Message("user", (Text(text), *images), at_ms)


@dataclass(frozen=True, slots=True)
class Address:
    """The chat that a message came from and its reply goes to."""

    channel: str
    chat: str
    account: str = "default"
    thread: str | None = None


@dataclass(frozen=True, slots=True)
class HeartbeatOptions:
    """What is different in the run of a heartbeat.

    An answer of `HEARTBEAT_OK` and at most `ack_max_chars` characters is an acknowledgement; the
    chat gets it with `shows_ok`, and other answers with `shows_alerts`. `last_alert` is an alert
    that is not sent again. `session` is set for a heartbeat with a session of its own, which has no
    history: the session whose notices it is about. With `is_light`, HEARTBEAT.md is the only
    workspace file in the prompt.
    """

    ack_max_chars: int = 30
    shows_ok: bool = False
    shows_alerts: bool = True
    last_alert: str = ""
    session: str = ""
    is_light: bool = False
    suppresses_tool_errors: bool = False


@dataclass(frozen=True, slots=True)
class ClientTool:
    """A function of a client: the model may call it, and the client runs it."""

    name: str
    description: str
    parameters: Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """What a program adds to its run, which answers its message and no other.

    The model is offered `tools` besides the agent's, which `disables_tools` leaves out; a call of
    one of them ends the run. `results` are the results of such calls of an earlier run, `history`
    is the conversation before the message, for a session without one: both are messages in the
    transcript's format. `params` are for the model: temperature, top_p, stop and max_tokens.
    """

    tools: tuple[ClientTool, ...] = ()
    disables_tools: bool = False
    results: tuple[Mapping[str, Json], ...] = ()
    history: tuple[Mapping[str, Json], ...] = ()
    params: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Options for the one run that answers; None uses the session's or agent's setting."""

    model: str | None = None
    thinking: str | None = None
    timeout_s: float | None = None
    verbose: str | None = None
    reasoning: str | None = None
    # The chat that gets the reply instead of the sender's: channel, chat, account, thread.
    deliver_to: tuple[str, ...] = ()
    extra_system_prompt: str = ""  # is added to the system prompt of this run
    provenance: InputProvenance | None = None
    # How the commands of the run are judged: `/exec` and `/elevated` of the owner's message.
    exec_host: str | None = None
    exec_security: str | None = None
    exec_ask: str | None = None
    elevated: str | None = None
    skill: str = ""  # the skill that the message invokes, by its command
    # The text after that command, if the command calls a tool without asking the model.
    skill_input: str | None = None
    # Kind and origin of the untrusted content that the session which sends this has read.
    taint: tuple[tuple[str, str], ...] = ()
    lane: str = ""  # the lane whose width limits the run; "" is that of its session
    heartbeat: HeartbeatOptions | None = None  # of the run of a heartbeat
    client: ClientOptions | None = None  # of the run of a program that must have its own answer


@dataclass(frozen=True, slots=True)
class Media:
    """A file that is received or sent with a message.

    `ref` is the service's id of it, `path` the local file, `problem` why it could not be
    downloaded.
    """

    kind: MediaKind = "document"
    mime: str = ""
    name: str = ""
    size: int = 0
    ref: str = ""
    path: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class InboundMetadata:
    """What the service reports about a message besides its text, before any access check.

    Names are for display only; access is decided by ids. `title` is the group's name, `name` and
    `handle` are the sender's. `mentioned`: the message mentions us; `mentions_others`: it mentions
    others; `detects_mentions` is False where the service cannot tell. `reply_to` is the message
    it replies to, whose text is `quoted` and which was ours if `replies_to_us`; `quotes_others`:
    all the same, neither we nor the sender wrote all of the quotation. `forwarded` is the original
    author, `via_bot` the bot that supplied the text; `is_press`: the text is the label
    of a button that the sender pressed, and `approval` the id and the decision when the button
    answers an approval. `parent` is the chat of a thread, `album` the id of a group
    of messages. `holder` is who has the sender's name, where names change hands. `is_limited`: a
    client of the gateway sent it whose scopes are not those of the owner, or a session whose
    messages are not.
    `guild`, `team` and `roles` are how some services group people. `guild_slug` is the name of the
    guild as the config may write it, where no other guild of the account has it; `slugs` are such
    names of the chat and its parent, which are unique in their guild.
    """

    kind: ChatKind = "direct"
    title: str = ""
    name: str = ""
    handle: str = ""
    is_bot: bool = False
    mentioned: bool = False
    mentions_others: bool = False
    detects_mentions: bool = True
    reply_to: str = ""
    replies_to_us: bool = False
    quoted: str = ""
    forwarded: str = ""
    parent: str = ""
    album: str = ""
    guild: str = ""
    team: str = ""
    roles: tuple[str, ...] = ()
    via_bot: str = ""
    is_press: bool = False
    holder: str = ""
    approval: str = ""
    is_limited: bool = False
    guild_slug: str = ""
    slugs: tuple[str, ...] = ()
    quotes_others: bool = False

    @property
    def is_foreign_text(self) -> bool:
        """Whether others wrote the text: it has none of the sender's authority.

        The buttons of an approval are ours alone: pressing one is the sender's own decision.
        """
        return bool(self.forwarded or self.via_bot or (self.is_press and not self.approval))


DIRECT: Final = InboundMetadata()
# Channels without an outbox: their clients see the run's events and its transcript.
HEARTBEAT_CHANNEL: Final = "heartbeat"
NO_OUTBOX_CHANNELS: Final = frozenset({"webchat", "agent", "cli", "wake", HEARTBEAT_CHANNEL})


@dataclass(frozen=True, slots=True)
class Inbound:
    """A message as a channel received it; `run_id` is the id that its run must have, if any.

    `authority` says which commands its sender may give. `group_history` is the text of the group
    since our last reply. `copy_for` is the agent, when several agents each get a copy.
    `matched_by` is the rule by which a chat was routed to its session.
    """

    id: str
    address: Address
    sender: str
    text: str
    images: tuple[Image, ...] = ()
    at_ms: int = 0
    options: RunOptions = field(default_factory=RunOptions)
    run_id: str = ""
    authority: Authority = ""
    metadata: InboundMetadata = DIRECT
    media: tuple[Media, ...] = ()
    group_history: str = ""
    copy_for: str = ""
    matched_by: str = ""

    @property
    def is_internal(self) -> bool:
        """Whether a session of ours sent it, or the program itself: no person wrote it."""
        source = self.options.provenance
        return source is not None and source.kind != "external_user"

    @property
    def is_heartbeat(self) -> bool:
        """Whether it starts a heartbeat, which no message of a person may wait for."""
        return self.options.heartbeat is not None

    @property
    def needs_own_run(self) -> bool:
        """Whether a run must answer it alone: it neither steers nor is merged or dropped."""
        return self.options.client is not None


@dataclass(frozen=True, slots=True)
class Button:
    """A button under a message: a press sends the visible label as the presser's message.

    `data` identifies the button to the service, and is never the text of a message.
    """

    label: str
    data: str


@dataclass(frozen=True, slots=True)
class Poll:
    """A question that the members of a chat vote on; `duration_s` 0: it stays open."""

    question: str
    options: tuple[str, ...]
    duration_s: int = 0
    is_multiple: bool = False  # several options may be chosen


@dataclass(frozen=True, slots=True)
class TextStyle:
    """A style of a range of a text, in UTF-16 units; `name` is the service's."""

    start: int
    length: int
    name: str


@dataclass(frozen=True, slots=True)
class Extras:
    """What a sent message has besides its text.

    `reply_to` is the message it replies to, `replaces` a message of ours that it edits; `buttons`
    are rows of buttons. A message with a `poll` is that poll. `recipient` is the holder of the
    chat's name that it is for: it is not delivered to another. `styles` are those of the text,
    where the service has no markup; `subject` is for services whose messages have one.
    `thread_title`: the message starts a thread of that title. `thread_from` is the outbox record
    whose new thread the message goes to. `thread_on` is the message that a reply answers, under
    which the service may start a thread for it.
    """

    reply_to: str = ""
    replaces: str = ""
    media: tuple[Media, ...] = ()
    as_voice: bool = False
    buttons: tuple[tuple[Button, ...], ...] = ()
    silent: bool = False
    recipient: str = ""
    poll: Poll | None = None
    styles: tuple[TextStyle, ...] = ()
    subject: str = ""
    thread_title: str = ""
    thread_from: str = ""
    thread_on: str = ""


NO_EXTRAS: Final = Extras()


@dataclass(frozen=True, slots=True)
class Outbound:
    """A message for a channel to send; `key` is its idempotency key, equal in every retry.

    `text` is in the channel's dialect (`Capabilities.dialect`) and within its length limit.
    `started_ms` is when the first attempt started that may have arrived, 0 if none did.
    """

    address: Address
    text: str
    key: str = ""
    extras: Extras = NO_EXTRAS
    started_ms: int = 0


def redirect_reply(inbound: Inbound) -> Inbound:
    """Return the message as one of the chat that gets its reply.

    Such a reply quotes nothing, and neither does the reply to a message that no person wrote.
    """
    if to := inbound.options.deliver_to:
        channel, chat, account, thread = to
        return replace(inbound, id="", address=Address(channel, chat, account, thread or None))
    return replace(inbound, id="") if inbound.is_internal else inbound
