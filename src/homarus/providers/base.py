"""The Provider seam: a Request goes in, a stream of deltas comes out and ends in one Message.

What every provider promises (tests/contract/test_provider.py):

- `stream` yields any number of deltas, then exactly one assistant Message, then ends;
- the Message holds everything the deltas said, and its `origin` says who wrote it, how it ended
  and what it cost;
- whatever goes wrong is raised as a ProviderError, whose class says what to do next;
- cancelling the iteration stops the work at the vendor's end too, at once;
- nothing is retried here, and no request or key is ever logged.
"""

from collections.abc import AsyncIterator, Mapping
from dataclasses import field
from typing import Literal, Protocol, TypeAlias

from homarus.core.message import Json, Message
from homarus.core.value import dataclass

ThinkLevel: TypeAlias = Literal["off", "minimal", "low", "medium", "high", "xhigh"]


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as a model sees it; `parameters` is a JSON schema."""

    name: str
    description: str
    parameters: Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class Request:
    """Everything one model call needs. `model` is the vendor's own id, without our prefix."""

    model: str
    system: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    thinking: ThinkLevel = "off"
    max_tokens: int | None = None
    params: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A little more text."""

    text: str


@dataclass(frozen=True, slots=True)
class ThinkingDelta:
    """A little more reasoning."""

    text: str


@dataclass(frozen=True, slots=True)
class Retried:
    """An attempt failed and another follows: what was said so far is void.

    `reason` is the error's code, `then` what is tried next, `wait_s` how long before it is.
    """

    provider: str
    model: str
    reason: str
    error: str
    then: str
    wait_s: float = 0.0


Delta: TypeAlias = TextDelta | ThinkingDelta | Retried


class Provider(Protocol):
    """One way to reach models. See the module's promises.

    `name` is the provider as model refs know it, `api` the wire it speaks.
    """

    name: str
    api: str

    def stream(self, request: Request) -> AsyncIterator[Delta | Message]: ...

    async def close(self) -> None:
        """Let go of connections and memory; the provider is not used again."""
        ...
