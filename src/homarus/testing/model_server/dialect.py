"""What a dialect must tell the server: one file per vendor's wire."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Protocol

from homarus.core.message import Json
from homarus.core.value import dataclass
from homarus.testing.model_server.script import Content, Fail, Overflow, Trouble


@dataclass(frozen=True, slots=True)
class Said:
    """One message of a request, as far as markers care: who, what, and whether it calls tools."""

    role: str  # user, assistant, tool or another
    text: str
    calls: bool = False


@dataclass(frozen=True, slots=True)
class Ask:
    """A request for an answer, whatever its dialect."""

    model: str
    stream: bool
    said: Sequence[Said]
    tools: int
    body_bytes: int
    body: Json
    content_type: str = "text/event-stream"  # of a streamed answer


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error answer."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


class Speaker(Protocol):
    """Writes one streamed answer: each result is a list of whole events."""

    def begin(self) -> list[bytes]: ...

    def say(self, step: Content) -> Iterable[bytes]: ...

    def trouble(self, step: Trouble) -> list[bytes]: ...

    def end(self) -> list[bytes]: ...


class Dialect(Protocol):
    """One vendor's wire."""

    def ask(self, path: str, body: Json, body_bytes: int) -> Ask | None:
        """The request, if it asks this dialect for an answer."""
        ...

    def other(self, method: str, path: str, body: Json) -> Json | None:
        """The answer to this dialect's other methods (models, embeddings)."""
        ...

    def speak(self, ask: Ask) -> Speaker: ...

    def whole(self, ask: Ask, steps: Sequence[Content]) -> bytes:
        """The answer in one piece, for a client that does not stream."""
        ...

    def refuse(self, step: Fail | Overflow) -> Refusal: ...
