"""Messages: what a person, a model or a tool said, and where it came from.

Plain frozen values. The transcript's JSON is made from them in `sessions/transcript.py`, a
provider's in its adapter; nothing here knows a wire.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Literal, TypeAlias

from homarus.core.value import dataclass

Json: TypeAlias = Any  # a JSON value: what json.loads returns
Role: TypeAlias = Literal["user", "assistant", "tool"]
StopReason: TypeAlias = Literal["stop", "length", "toolUse", "error", "aborted"]
# What commands in a chat may do: all, what is not for the owner alone, nothing.
Authority: TypeAlias = Literal["", "owner", "authorised", "stranger"]
StoppedBy: TypeAlias = Literal["rpc", "stop-command"]  # by a request, or by a word in the chat


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
class Inbound:
    """A message as a channel received it; `run_id` names the run that answers, if one is asked.

    `authority` is what its sender may do by commands; "" says that none are looked for in it.
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


@dataclass(frozen=True, slots=True)
class Outbound:
    """A message for a channel to send; `key` is the same however often it is tried."""

    address: Address
    text: str
    key: str = ""
