"""Define the protocols between a chat service's adapter and the core.

A channel translates between its service and our values, and states what the service can do. Storing
inbound messages, splitting, order, retries and receipts are done once, by the inbound pipeline and
the supervisor.

A channel is a module of this package, named like its section of the config, with `Settings` (one
account; it extends config/channels.ChannelSettings), `TRAITS` (core/channel_traits.py) and
`create(context, settings)`, which makes a Channel without connecting. `create` raises
MissingExtraError when a library is not installed.
"""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias, runtime_checkable

from homarus.core.channel_event import InboundEvent
from homarus.core.channel_traits import Dialect
from homarus.core.chat_action import ChatAction
from homarus.core.clock import Clock
from homarus.core.errors import ChannelError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Address, Json, Media, Outbound, Poll
from homarus.core.native_command import NativeCommand

if TYPE_CHECKING:  # not imported without channels
    from homarus.config.channels import RetrySettings

TTL_MS: Final = 24 * 3_600_000  # after a day, a reply is of no use to its reader
# Confirms to the service that a message was received.
Acknowledge: TypeAlias = Callable[[], Awaitable[None]]
# Awaited by a channel immediately before it writes a message to its connection.
BeforeWrite: TypeAlias = Callable[[], Awaitable[None]]


class InboundHandler(Protocol):
    """Accept inbound messages and events of one channel, and keep its cursor."""

    async def __call__(
        self,
        event: InboundEvent,
        cursor: Mapping[str, Json] | None = None,
        acknowledge: Acknowledge | None = None,
    ) -> None:
        """Return when the message is in the journal, the event is stored, or it is ignored.

        `cursor` says how far the channel has read with this message; it is stored in the same
        transaction. `acknowledge` is called after the message is stored and before it is answered,
        and never for an ignored message, so that an unknown sender does not learn that the bot
        reads. A service that is acknowledged by the next poll, or by our response, needs none.
        Raises StoreError when the message cannot be stored: then the service must offer it again.
        """
        ...

    def mark_connected(self) -> None:
        """Record that the service accepted the login."""
        ...

    async def load_cursor(self) -> Mapping[str, Json] | None:
        """Return the cursor that was stored last."""
        ...

    async def save_cursor(self, cursor: Mapping[str, Json]) -> None:
        """Store the cursor where there was no message to store it with."""
        ...


@dataclass(frozen=True, slots=True)
class SendRetryPolicy:
    """How often and how soon a request is retried that the service refused temporarily.

    With `only_rate_limits`, that is a refusal because of a rate limit; after any other, the record
    waits for the backoff of the outbox.
    """

    attempts: int = 3
    min_delay_s: float = 0.4
    max_delay_s: float = 30.0
    jitter: float = 0.1
    only_rate_limits: bool = False

    def with_settings(self, settings: "RetrySettings") -> "SendRetryPolicy":
        """Return the policy with what an account's settings say."""
        return SendRetryPolicy(
            self.attempts if settings.attempts is None else settings.attempts,
            self.min_delay_s if settings.min_delay_ms is None else settings.min_delay_ms / 1000,
            self.max_delay_s if settings.max_delay_ms is None else settings.max_delay_ms / 1000,
            self.jitter if settings.jitter is None else settings.jitter,
            self.only_rate_limits,
        )

    @classmethod
    def from_settings(cls, settings: "RetrySettings") -> "SendRetryPolicy":
        """Return the default policy with what an account's settings say."""
        return cls().with_settings(settings)


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What one account of a service can send.

    `dialect` is its markup (channels/markup). `by_line`: a message is one line. `max_lines` is the
    most lines that one should have, 0 for any number. `idempotent`: the
    same key sent twice is one message, so an unknown outcome is resolved by sending again, for
    `idempotent_s` after the first attempt, if the service forgets keys; then by lookup.
    `caption_limit` is for text that goes with a file; 0 when files and text go separately.
    `media_max_bytes` is 0 where no files can be sent; one message has at most `max_files` files.
    It has at most `max_buttons` buttons, in chats of the kind `button_chats`: choices beyond that
    are a numbered list in its text. Without `has_file_buttons`, a message with a file has none, and
    they go with the text before it. `has_subject`: a message has a subject, which is else the first
    line of its text. `has_new_threads`: a send may create a thread, and the rest of a reply goes
    there. `typing_s` is how long the typing indicator lasts. A retry policy of one
    attempt means that the adapter's library retries.
    """

    text_limit: int = 4_000
    unit: Literal["utf16", "codepoint", "byte"] = "utf16"
    dialect: Dialect = "markdown"
    by_line: bool = False
    max_lines: int = 0
    idempotent: bool = False
    idempotent_s: float | None = None
    caption_limit: int = 0
    media_max_bytes: int = 0
    max_files: int = 1
    max_buttons: int = 0
    button_chats: Literal["all", "direct", "group"] = "all"
    has_file_buttons: bool = True
    has_subject: bool = False
    has_new_threads: bool = False
    typing_s: float = 5.0
    retry: SendRetryPolicy = SendRetryPolicy()


@dataclass(frozen=True, slots=True)
class Receipt:
    """The service's id of a sent message, and of the thread that the send created.

    Each is "" when there is none. The rest of the reply is sent to that thread.
    """

    message_id: str = ""
    thread_id: str = ""


class Channel(Protocol):
    """One account on one chat service."""

    name: str
    account: str
    capabilities: Capabilities

    async def run(self, receive: InboundHandler) -> None:
        """Pass inbound messages to the handler until cancelled; raise to be restarted."""
        ...

    async def send(self, message: Outbound) -> Receipt:
        """Send under `message.key`. SendError says whether a retry is useful.

        After any other error, a timeout or a lost connection, the outcome is unknown.
        """
        ...


# Optional abilities, found by isinstance.


@runtime_checkable
class SupportsMarkedSend(Protocol):
    """A channel that reports the moment from which a message may have been delivered.

    Without it, a message counts as handed over as soon as `send` is called.
    """

    async def send_marked(self, message: Outbound, before_write: BeforeWrite) -> Receipt:
        """Send as `send` does, and await `before_write` after every wait, before the first byte.

        It may be awaited more than once, for a call that was refused and takes another form. When
        it raises, nothing is written.
        """
        ...


@runtime_checkable
class SupportsLookup(Protocol):
    """A service that can be queried whether a message arrived."""

    async def look_up(self, message: Outbound) -> Receipt | None:
        """Return the receipt of what was sent under this key, None if it never arrived.

        Raises SendError(retryable=False) when the service cannot say it of this message.
        """
        ...


@runtime_checkable
class SupportsTyping(Protocol):
    """A service with a typing indicator, which lasts `Capabilities.typing_s`."""

    async def show_typing(self, to: Address, *, on: bool) -> None: ...


@runtime_checkable
class SupportsDrafts(Protocol):
    """A service that shows a message while it is being written, and drops it automatically."""

    def can_draft(self, to: Address) -> bool: ...

    async def draft(self, to: Address, key: str, text: str) -> None:
        """Show a text in the channel's dialect; `key` is the same for one draft."""
        ...


@runtime_checkable
class SupportsEdit(Protocol):
    """A service where our messages can be edited."""

    async def edit(self, to: Address, message_id: str, text: str) -> None:
        """Replace the text; an unchanged text is no error.

        Raises SendError(retryable=False) when there is no such message.
        """
        ...


@runtime_checkable
class SupportsDelete(Protocol):
    """A service where our messages can be deleted."""

    async def delete(self, to: Address, message_id: str) -> None: ...


@runtime_checkable
class SupportsReactions(Protocol):
    """A service with reactions; "" removes ours."""

    async def react(self, to: Address, message_id: str, emoji: str) -> None: ...


@runtime_checkable
class SupportsPolls(Protocol):
    """A service with polls: `send` sends a message with `extras.poll` as one."""

    def check_poll(self, to: Address, poll: Poll) -> None:
        """Raise SendError for a poll that the service would refuse."""
        ...


@runtime_checkable
class SupportsChatActions(Protocol):
    """A service with further actions for operators; `TRAITS.chat_actions` names them."""

    async def run_chat_action(self, to: Address, action: ChatAction) -> dict[str, Json]:
        """Do it and return the result as clients get it. Raises ChannelError or SendError.

        Rows of messages have `id`, `sender`, `text` and `timestamp`.
        """
        ...


@runtime_checkable
class SupportsKeyActions(Protocol):
    """A service with end-to-end encryption, whose devices and keys an operator manages."""

    async def run_key_action(self, name: str, params: Mapping[str, Json]) -> dict[str, Json]:
        """Do an action and return the result as clients get it. Raises ChannelError or UserError.

        An account that is not encrypted raises SendError.
        """
        ...


@runtime_checkable
class SupportsUnreadableCount(Protocol):
    """A service with messages that may come before what decrypts them."""

    @property
    def unreadable_count(self) -> int:
        """How many messages are kept until they can be read."""
        ...


@runtime_checkable
class SupportsMediaFetch(Protocol):
    """A service whose files are downloaded by an id."""

    async def fetch(self, media: Media, max_bytes: int) -> bytes:
        """Return the file.

        Raises MediaTooLargeError without reading the rest, and ChannelError for other failures.
        """
        ...


@runtime_checkable
class SupportsProbe(Protocol):
    """A service that can be asked whether the login works."""

    async def probe(self) -> str:
        """Return our name there (`@name`). Raises ChannelError when the login fails."""
        ...


@dataclass(frozen=True, slots=True)
class WebhookRequest:
    """An HTTP request of a service. Header names are in lower case."""

    method: Literal["GET", "POST"]
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class WebhookResponse:
    """The response to a webhook."""

    status: int = 200
    body: bytes = b""
    content_type: str = ""


@runtime_checkable
class SupportsWebhook(Protocol):
    """A service that sends webhooks to the gateway's port, under `path`.

    `path` is "" when this account does not use webhooks.
    """

    @property
    def path(self) -> str: ...

    def verify_request(self, request: WebhookRequest) -> bool:
        """Return whether the service may have sent a request; its body is not read yet.

        A service that signs the body is verified completely by `handle_webhook`.
        """
        ...

    async def handle_webhook(self, request: WebhookRequest) -> WebhookResponse:
        """Handle a webhook; the status is 200 only after messages are stored."""
        ...


@runtime_checkable
class SupportsWebhookAddress(SupportsWebhook, Protocol):
    """A service whose webhooks may come to a listener of their own, not to the gateway's port."""

    @property
    def webhook_address(self) -> tuple[str, int] | None:
        """The host and port of that listener; None when the gateway's port is used."""
        ...


# Opens a listener at a host and port that serves this account's webhook while the block lasts.
# Raises ChannelError when that address cannot be used.
ServeWebhook: TypeAlias = Callable[
    [SupportsWebhook, tuple[str, int]], AbstractAsyncContextManager[None]
]


def refuse_listener(
    _account: SupportsWebhook, _address: tuple[str, int]
) -> AbstractAsyncContextManager[None]:
    """Raise ChannelError: only a gateway has listeners."""
    raise ChannelError("webhooks are received by a gateway", fix="homarus gateway run")


# (the setting of the service) → the commands of skills
ListSkillCommands: TypeAlias = Callable[[bool | Literal["auto"]], tuple[NativeCommand, ...]]


def no_skill_commands(_setting: object) -> tuple[NativeCommand, ...]:
    """Return that there are no commands of skills."""
    return ()


@dataclass(frozen=True, slots=True)
class ChannelContext:
    """What an account is created with besides its settings.

    `commands` are for services that list them; `skill_commands` returns those of skills, and reads
    files. `env` may hold a credential
    that the config does not have. `state` is the state directory, for tokens that a service issued.
    `on_chat_moved` is called with the old and the new id of a chat whose id the service changed;
    `serve_webhook` opens the listener of a webhook that has an address of its own.
    """

    channel: str
    account: str
    clock: Clock
    commands: tuple[NativeCommand, ...] = ()
    skill_commands: ListSkillCommands = no_skill_commands
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    state: Path | None = None
    on_chat_moved: Callable[[str, str], None] = lambda _old, _new: None
    serve_webhook: ServeWebhook = refuse_listener
