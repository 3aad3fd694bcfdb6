"""Messages: what a person, a model or a tool said, and where it came from.

Plain frozen values. The transcript's JSON is made from them in `sessions/transcript.py`, a
provider's in its adapter; nothing here knows a wire.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Final, Literal, TypeAlias

from homarus.core.value import dataclass

Json: TypeAlias = Any  # a JSON value: what json.loads returns
Role: TypeAlias = Literal["user", "assistant", "tool"]
StopReason: TypeAlias = Literal["stop", "length", "toolUse", "error", "aborted"]
# What commands in a chat may do: all, what is not for the owner alone, nothing.
Authority: TypeAlias = Literal["", "owner", "authorised", "stranger"]
StoppedBy: TypeAlias = Literal["rpc", "stop-command"]  # by a request, or by a word in the chat
ChatKind: TypeAlias = Literal["direct", "group", "channel"]
MediaKind: TypeAlias = Literal["image", "audio", "voice", "video", "document", "sticker"]


@dataclass(frozen=True, slots=True)
class Text:
    """Words; `signature` is replayed to vendors that demand it."""

    text: str
    signature: str = ""


@dataclass(frozen=True, slots=True)
class Thinking:
    """A model's reasoning; `signature` is replayed to vendors that demand it."""

    text: str
    signature: str = ""


@dataclass(frozen=True, slots=True)
class Image:
    """A picture, base64."""

    data: str
    mime: str


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A model asks for a tool. `broken` holds argument text that was not a JSON object.

    `signature` is replayed to vendors that demand it.
    """

    id: str
    name: str
    args: Mapping[str, Json]
    broken: str = ""
    signature: str = ""


@dataclass(frozen=True, slots=True)
class ToolReturn:
    """What a tool gave back; `details` is for people and programs, never for the model."""

    call_id: str
    name: str
    content: tuple[Text | Image, ...]
    is_error: bool = False
    details: Mapping[str, Json] | None = None

    @property
    def text(self) -> str:
        return "\n".join(part.text for part in self.content if isinstance(part, Text))


Part: TypeAlias = Text | Thinking | Image | ToolCall | ToolReturn


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one model call. `input` excludes what the cache read or wrote."""

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
class Stopped:
    """Which run a person stopped, and how they said so."""

    run_id: str
    by: StoppedBy


@dataclass(frozen=True, slots=True)
class Origin:
    """Which model wrote an assistant message, and how it ended."""

    api: str
    provider: str
    model: str
    stop: StopReason = "stop"
    usage: Usage = field(default_factory=Usage)
    error: str = ""
    stopped: Stopped | None = None


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Message:
    """A role and typed parts. A tool message holds exactly one ToolReturn."""

    role: Role
    parts: tuple[Part, ...]
    at_ms: int = 0
    origin: Origin | None = None

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.parts if isinstance(part, Text))

    @property
    def thinking(self) -> str:
        return "".join(part.text for part in self.parts if isinstance(part, Thinking))

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        return tuple(part for part in self.parts if isinstance(part, ToolCall))


def user(text: str, *images: Image, at_ms: int = 0) -> Message:
    """What a person said."""
    return Message("user", (Text(text), *images), at_ms)


@dataclass(frozen=True, slots=True)
class Address:
    """Where a message came from and where its reply goes."""

    channel: str
    chat: str
    account: str = "default"
    thread: str | None = None


@dataclass(frozen=True, slots=True)
class Wishes:
    """What a sender asks of the one run that answers; None leaves it to session and agent."""

    model: str | None = None
    thinking: str | None = None
    timeout_s: float | None = None
    verbose: str | None = None
    reasoning: str | None = None


@dataclass(frozen=True, slots=True)
class Media:
    """A file that comes or goes with a message.

    `ref` is how its service calls it, `path` where it lies on this machine; what came and could
    not be had says why in `problem`.
    """

    kind: MediaKind = "document"
    mime: str = ""
    name: str = ""
    size: int = 0
    ref: str = ""
    path: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Occasion:
    """What a service tells of a message beside its words: facts, judged by nobody yet.

    Ids decide, names are for show: `title` is the group's, `name` and `handle` the sender's.
    `mentioned`: it speaks to us by name; `elsewhere`: to others; `detects` is False where the
    service cannot tell. `reply_to` is the message it answers, which said `quoted` and was ours
    if `answers_us`. `forwarded` names whose words these are, `parent` the chat a thread hangs
    under, `album` the several messages it is one of. `guild`, `team` and `roles` are what some
    services sort people by.
    """

    kind: ChatKind = "direct"
    title: str = ""
    name: str = ""
    handle: str = ""
    is_bot: bool = False
    is_edit: bool = False
    mentioned: bool = False
    elsewhere: bool = False
    detects: bool = True
    reply_to: str = ""
    answers_us: bool = False
    quoted: str = ""
    forwarded: str = ""
    parent: str = ""
    album: str = ""
    guild: str = ""
    team: str = ""
    roles: tuple[str, ...] = ()


DIRECT: Final = Occasion()
# Ways in whose replies nobody has to carry: they see the run's events and its transcript.
UNCARRIED: Final = frozenset({"webchat", "agent", "cli", "wake"})


@dataclass(frozen=True, slots=True)
class Inbound:
    """A message as a channel received it; `run_id` names the run that answers, if one is asked.

    `authority` is what its sender may do by commands; "" says that none are looked for in it.
    `before` is what was said in the group since our last answer, for context. `copy_for` names the
    agent when several get the same message, each a copy.
    """

    id: str
    address: Address
    sender: str
    text: str
    images: tuple[Image, ...] = ()
    at_ms: int = 0
    wishes: Wishes = field(default_factory=Wishes)
    run_id: str = ""
    authority: Authority = ""
    occasion: Occasion = DIRECT
    media: tuple[Media, ...] = ()
    before: str = ""
    copy_for: str = ""


@dataclass(frozen=True, slots=True)
class Button:
    """Something to press under a message; `data` comes back as the text of a message."""

    label: str
    data: str


@dataclass(frozen=True, slots=True)
class Extras:
    """What a message carries beside its words.

    `reply_to` is the message it answers, `replaces` one of ours whose words it takes the place
    of; `buttons` are rows of them.
    """

    reply_to: str = ""
    replaces: str = ""
    media: tuple[Media, ...] = ()
    as_voice: bool = False
    buttons: tuple[tuple[Button, ...], ...] = ()
    silent: bool = False


NO_EXTRAS: Final = Extras()


@dataclass(frozen=True, slots=True)
class Outbound:
    """A message for a channel to send; `key` is the same however often it is tried.

    `text` is in the channel's own dialect (`Capabilities.dialect`), and fits its limit.
    """

    address: Address
    text: str
    key: str = ""
    extras: Extras = NO_EXTRAS
