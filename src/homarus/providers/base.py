"""The Provider protocol: a ModelRequest in, a stream of deltas and one Message out.

What every provider guarantees (tests/contract/test_provider.py):

- `stream` yields any number of deltas, then exactly one assistant Message, then ends;
- the Message contains everything the deltas did, and its `origin` has the model, the stop reason
  and the usage;
- every failure is raised as a ProviderError, whose class decides what happens next;
- cancelling the iteration stops the vendor's work as well, at once;
- a provider does not retry, and never logs a request or a key.

What a service sends may be longer than any answer, or no valid Unicode: `AnswerFilter` checks it
for all of them, in `FallbackProvider`.
"""

from collections.abc import AsyncIterator, Mapping
from dataclasses import field
from typing import Final, Literal, Protocol, TypeAlias, runtime_checkable

from homarus.core.errors import ProviderError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json, Message

ThinkLevel: TypeAlias = Literal["off", "minimal", "low", "medium", "high", "xhigh"]


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as it is declared to a model; `parameters` is a JSON schema."""

    name: str
    description: str
    parameters: Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """The input of one model call. `model` is the vendor's id, without our prefix."""

    model: str
    system: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    thinking: ThinkLevel = "off"
    max_tokens: int | None = None
    params: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of the answer's text."""

    text: str


@dataclass(frozen=True, slots=True)
class ThinkingDelta:
    """A piece of the model's reasoning."""

    text: str


NOT_TRIED: Final = "provider.not_tried"


@dataclass(frozen=True, slots=True)
class AttemptRetried:
    """An attempt failed and another follows: earlier deltas are void.

    `reason` is the error's code, or `NOT_TRIED` for a model that cannot be called now; `then` is
    the next attempt, `wait_s` the delay before it.
    """

    provider: str
    model: str
    reason: str
    error: str
    then: str
    wait_s: float = 0.0


Delta: TypeAlias = TextDelta | ThinkingDelta | AttemptRetried


@runtime_checkable
class SupportsPendingError(Protocol):
    """A provider that can say why the call under way has no answer yet."""

    def pending_error(self) -> ProviderError | None: ...


class Provider(Protocol):
    """An adapter that calls models; see the module's guarantees.

    `name` is the provider's id in model refs, `api` the wire format.
    """

    name: str
    api: str

    def stream(self, request: ModelRequest) -> AsyncIterator[Delta | Message]: ...

    async def close(self) -> None:
        """Release connections and memory; the provider is not used again."""
        ...
