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

from homarus.core.channel_traits import Dialect
from homarus.core.chat_action import ChatAction
from homarus.core.clock import Clock
from homarus.core.errors import ChannelError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Address, Inbound, Json, Media, Outbound, Poll

if TYPE_CHECKING:  # not imported without channels
    from homarus.config.channels import RetrySettings

TTL_MS: Final = 24 * 3_600_000  # after a day, a reply is of no use to its reader
# Confirms to the service that a message was received.
Acknowledge: TypeAlias = Callable[[], Awaitable[None]]
# Awaited by a channel immediately before it writes a message to its connection.
BeforeWrite: TypeAlias = Callable[[], Awaitable[None]]


class InboundHandler(Protocol):
    """Accept inbound messages of one channel and keep its cursor."""

    async def __call__(
        self,
        inbound: Inbound,
        cursor: Mapping[str, Json] | None = None,
        acknowledge: Acknowledge | None = None,
    ) -> None:
        """Return when the message is in the journal or is ignored.

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
    """How often and how soon a request is retried that the service refused temporarily."""

    attempts: int = 3
    min_delay_s: float = 0.4
    max_delay_s: float = 30.0
    jitter: float = 0.1

    @classmethod
    def from_settings(cls, settings: "RetrySettings") -> "SendRetryPolicy":
        """Return the policy of an account's settings, with defaults for what is not set."""
        default = cls()
        return cls(
            default.attempts if settings.attempts is None else settings.attempts,
            default.min_delay_s if settings.min_delay_ms is None else settings.min_delay_ms / 1000,
            default.max_delay_s if settings.max_delay_ms is None else settings.max_delay_ms / 1000,
            default.jitter if settings.jitter is None else settings.jitter,
        )


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What one account of a service can send.

    `dialect` is its markup (channels/markup). `by_line`: a message is one line. `idempotent`: the
    same key sent twice is one message, so an unknown outcome is resolved by sending again.
    `caption_limit` is for text that goes with a file; 0 when files and text go separately.
    `media_max_bytes` is 0 where no files can be sent. `typing_s` is how long the typing indicator
    lasts. A retry policy of one attempt means that the adapter's library retries.
    """

    text_limit: int = 4_000
    unit: Literal["utf16", "codepoint", "byte"] = "utf16"
    dialect: Dialect = "markdown"
    by_line: bool = False
    idempotent: bool = False
    caption_limit: int = 0
    media_max_bytes: int = 0
    typing_s: float = 5.0
    retry: SendRetryPolicy = SendRetryPolicy()


@dataclass(frozen=True, slots=True)
class Receipt:
    """The service's id of a sent message; "" when it gives none."""

    message_id: str = ""


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
        """Return the receipt of what was sent under this key, None if it never arrived."""
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


@runtime_checkable
class SupportsWebhook(Protocol):
    """A service that sends webhooks to the gateway's port, under `path`.

    `path` is "" when this account does not use webhooks.
    """

    @property
    def path(self) -> str: ...

    def verify_request(self, headers: Mapping[str, str]) -> bool:
        """Return whether the service sent a request, by its headers (lower-case names).

        It is called before the body is read.
        """
        ...

    async def handle_webhook(self, headers: Mapping[str, str], body: bytes) -> int:
        """Handle a webhook and return the HTTP status; 200 only after messages are stored."""
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


# (the setting of the service) → name and description
ListSkillCommands: TypeAlias = Callable[[bool | Literal["auto"]], tuple[tuple[str, str], ...]]


def no_skill_commands(_setting: object) -> tuple[tuple[str, str], ...]:
    """Return that there are no commands of skills."""
    return ()


@dataclass(frozen=True, slots=True)
class ChannelContext:
    """What an account is created with besides its settings.

    `commands` are name and description, for services that list them; `skill_commands` returns those
    of skills, and reads files. `env` may hold a credential
    that the config does not have. `state` is the state directory, for tokens that a service issued.
    `on_chat_moved` is called with the old and the new id of a chat whose id the service changed;
    `serve_webhook` opens the listener of a webhook that has an address of its own.
    """

    channel: str
    account: str
    clock: Clock
    commands: tuple[tuple[str, str], ...] = ()
    skill_commands: ListSkillCommands = no_skill_commands
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    state: Path | None = None
    on_chat_moved: Callable[[str, str], None] = lambda _old, _new: None
    serve_webhook: ServeWebhook = refuse_listener
