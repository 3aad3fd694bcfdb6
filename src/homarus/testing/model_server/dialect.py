"""The interface of a dialect, one module per vendor's wire, and what dialects share."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Protocol

from homarus.core.message import Json
from homarus.core.value import dataclass
from homarus.testing.model_server.script import (
    Call,
    CallTools,
    Content,
    Fail,
    Overflow,
    Say,
    Stop,
    Tokens,
    Trouble,
)


@dataclass(frozen=True, slots=True)
class Said:
    """One message of a request: its role, its text, and whether it calls tools."""

    role: str  # user, assistant, tool or another
    text: str
    calls: bool = False


@dataclass(frozen=True, slots=True)
class Ask:
    """A request for an answer, in any dialect."""

    model: str
    stream: bool
    said: Sequence[Said]
    tools: int
    body_bytes: int
    body: Json
    content_type: str = "text/event-stream"  # of a streamed answer


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error response."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


class Speaker(Protocol):
    """Writes one streamed answer: each result is a list of complete events."""

    def begin(self) -> list[bytes]: ...

    def say(self, step: Content) -> Iterable[bytes]: ...

    def trouble(self, step: Trouble) -> list[bytes]: ...

    def end(self) -> list[bytes]: ...


class Dialect(Protocol):
    """One vendor's wire format."""

    def ask(self, path: str, body: Json, body_bytes: int) -> Ask | None:
        """Return the request, or None when it is not for this dialect."""
        ...

    def other(self, method: str, path: str, body: Json) -> Json | None:
        """Return the answer of this dialect's other methods (models, embeddings)."""
        ...

    def speak(self, ask: Ask) -> Speaker: ...

    def whole(self, ask: Ask, steps: Sequence[Content]) -> bytes:
        """Return the complete answer, for a client that does not stream."""
        ...

    def refuse(self, step: Fail | Overflow) -> Refusal: ...


def usage_of(ask: Ask, steps: Sequence[Content]) -> Tokens:
    """Return the usage the script reports, or an estimate by the size of request and answer."""
    for step in reversed(steps):
        if isinstance(step, Tokens):
            return step
    pieces = sum(len(step.pieces) for step in steps if isinstance(step, Say))
    return Tokens(max(1, ask.body_bytes // 4), max(1, pieces))


def stop_reason(steps: Sequence[Content], reasons: Mapping[str, str]) -> str:
    """Return the vendor's word for why the answer ended: the script's, or what its steps imply."""
    for step in reversed(steps):
        if isinstance(step, Stop):
            return reasons[step.reason]
    return reasons["toolUse" if any(isinstance(step, CallTools) for step in steps) else "stop"]


def call_input(call: Call) -> Json:
    """Return the arguments of a call as a JSON value."""
    return json.loads(call.args) if isinstance(call.args, str) else dict(call.args)


def compact_json(value: Json) -> bytes:
    """Encode a value without blanks."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
