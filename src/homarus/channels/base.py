"""The Channel seam: receive for as long as you live, send when told.

A channel translates between its service and our values, and states what the service can do. All
that must not be got wrong twice is core's: acceptance into the journal, splitting, order, retry
and receipts (intake.py, deliver.py).

A channel is a module of this package, named as its section of the config, with two names:
`Settings`, what the section says of one account (it extends config/channels.ChannelSettings), and
`create(place, settings)`, which makes a Channel and connects to nothing. A library that is not
installed is MissingExtra, raised there.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias, runtime_checkable

from homarus.core.channel_traits import Dialect
from homarus.core.clock import Clock
from homarus.core.message import Address, Inbound, Json, Media, Outbound
from homarus.core.value import dataclass

if TYPE_CHECKING:  # who has no channels does not load what their settings are
    from homarus.config.channels import RetrySettings

TTL_MS: Final = 24 * 3_600_000  # a reply that could not be brought for a day is news to nobody
# Tells the service that a message was read.
Acknowledge: TypeAlias = Callable[[], Awaitable[None]]


class Receive(Protocol):
    """What a channel is given: where it hands over what arrives, and where it left off."""

    async def __call__(
        self,
        inbound: Inbound,
        cursor: Mapping[str, Json] | None = None,
        acknowledge: Acknowledge | None = None,
    ) -> None:
        """Returns when the message is in the journal, or left alone: then the service may be told.

        `cursor` says how far the channel has read with this message; it is stored in the same
        commit. `acknowledge` is called once the message is kept and before it is answered, and
        never for one that is left alone: a stranger does not learn that somebody reads. A service
        that is told by what is read next, or by our answer, needs none. Raises StoreError when
        the message cannot be kept: then the service must offer it again.
        """
        ...

    def connected(self) -> None:
        """The service has let us in."""
        ...

    async def cursor(self) -> Mapping[str, Json] | None:
        """How far this channel had read, by what was stored last."""
        ...

    async def read_to(self, cursor: Mapping[str, Json]) -> None:
        """Store how far the channel has read, where nothing came that could be kept."""
        ...


@dataclass(frozen=True, slots=True)
class Retry:
    """How often one request is tried again that the service refused for now, and how soon."""

    attempts: int = 3
    least_s: float = 0.4
    most_s: float = 30.0
    jitter: float = 0.1

    @classmethod
    def as_set(cls, said: "RetrySettings") -> "Retry":
        """As an account's settings say, else as it is usual."""
        usual = cls()
        return cls(
            usual.attempts if said.attempts is None else said.attempts,
            usual.least_s if said.min_delay_ms is None else said.min_delay_ms / 1000,
            usual.most_s if said.max_delay_ms is None else said.max_delay_ms / 1000,
            usual.jitter if said.jitter is None else said.jitter,
        )


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a service can carry.

    `dialect` is the markup it shows (channels/markup). `by_line`: a message is one line.
    `idempotent`: the same key sent twice is one message there, so an unknown outcome is
    resolved by sending again. `caption_limit` is for words that go with a file; 0 when files and
    words go separately. `media_max_bytes` is 0 where no files can be sent. `typing_s` says how
    long the typing sign lasts. A `Retry` of one attempt: the library tries again by itself.
    """

    text_limit: int = 4_000
    unit: Literal["utf16", "codepoint", "byte"] = "utf16"
    dialect: Dialect = "markdown"
    by_line: bool = False
    idempotent: bool = False
    caption_limit: int = 0
    media_max_bytes: int = 0
    typing_s: float = 5.0
    retry: Retry = Retry()


@dataclass(frozen=True, slots=True)
class Receipt:
    """The service's own id for what it took; "" when it gives none."""

    message_id: str = ""


class Channel(Protocol):
    """One account on one chat service."""

    name: str
    account: str
    capabilities: Capabilities

    async def run(self, receive: Receive) -> None:
        """Hand over what arrives, until cancelled; raise to be restarted."""
        ...

    async def send(self, message: Outbound) -> Receipt:
        """Deliver under `message.key`. SendFailed says whether another try makes sense.

        Any other error, a timeout or a lost connection: it is not known whether it arrived.
        """
        ...


# What only some services can do. Found by isinstance.


@runtime_checkable
class LooksUp(Protocol):
    """A service that can be asked whether something arrived."""

    async def look_up(self, message: Outbound) -> Receipt | None:
        """The receipt of what was sent under this key; None when it never arrived."""
        ...


@runtime_checkable
class Types(Protocol):
    """A service that shows that somebody is typing, for `Capabilities.typing_s` each time."""

    async def show_typing(self, to: Address, *, on: bool) -> None: ...


@runtime_checkable
class Drafts(Protocol):
    """A service that shows a message while it is being written, and forgets it by itself."""

    def can_draft(self, to: Address) -> bool: ...

    async def draft(self, to: Address, key: str, text: str) -> None:
        """Show these words, in the channel's dialect; `key` is the same for one draft."""
        ...


@runtime_checkable
class Edits(Protocol):
    """A service where a message of ours can be changed."""

    async def edit(self, to: Address, message_id: str, text: str) -> None:
        """Changed already is no error. SendFailed(retryable=False) when there is no such one."""
        ...


@runtime_checkable
class Deletes(Protocol):
    """A service where a message can be taken back."""

    async def delete(self, to: Address, message_id: str) -> None: ...


@runtime_checkable
class Reacts(Protocol):
    """A service with reactions; "" takes ours away."""

    async def react(self, to: Address, message_id: str, emoji: str) -> None: ...


@runtime_checkable
class Fetches(Protocol):
    """A service whose files are fetched by the name it gives them."""

    async def fetch(self, media: Media, max_bytes: int) -> bytes:
        """The file, or MediaTooLarge without reading on; other failures are ChannelErrors."""
        ...


@runtime_checkable
class Probes(Protocol):
    """A service that can be asked whether it would let us in."""

    async def probe(self) -> str:
        """Who we are there (`@name`); ChannelError when something is wrong."""
        ...


@runtime_checkable
class Listens(Protocol):
    """A service that calls us. Its requests come by the gateway's port, under `path`.

    `path` is "" when this account does not listen after all.
    """

    @property
    def path(self) -> str: ...

    def admits(self, headers: Mapping[str, str]) -> bool:
        """Whether it is the service that calls. Asked before the body is read; lower-case names."""
        ...

    async def hear(self, headers: Mapping[str, str], body: bytes) -> int:
        """Take what it says; the HTTP status to answer with. Kept before it returns 200."""
        ...


@dataclass(frozen=True, slots=True)
class Place:
    """What an account is made with, beside its settings.

    `commands` are for services that list them to people: name and description. `env` is where a
    credential may stand that the config does not have; `state` is the state directory, for what a
    service gave us and we must show it again.
    """

    channel: str
    account: str
    clock: Clock
    commands: tuple[tuple[str, str], ...] = ()
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    state: Path | None = None
