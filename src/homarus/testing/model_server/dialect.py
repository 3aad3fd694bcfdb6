"""The interface of a dialect, one module per vendor's wire, and what dialects share."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Protocol

from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json
from homarus.testing.model_server.script import (
    CallTools,
    Content,
    Fail,
    Overflow,
    ReportedUsage,
    Say,
    ScriptedCall,
    Stop,
    StreamFault,
)


@dataclass(frozen=True, slots=True)
class ServerMessage:
    """One message of a request: its role, its text, and whether it calls tools."""

    role: str  # user, assistant, tool or another
    text: str
    calls: bool = False


@dataclass(frozen=True, slots=True)
class ServerRequest:
    """A request for an answer, in any dialect."""

    model: str
    stream: bool
    said: Sequence[ServerMessage]
    tools: int
    body_bytes: int
    body: Json
    content_type: str = "text/event-stream"  # of a streamed answer


@dataclass(frozen=True, slots=True)
class ErrorResponse:
    """An error response."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


class AnswerStreamer(Protocol):
    """Writes one streamed answer: each result is a list of complete events."""

    def begin(self) -> list[bytes]: ...

    def write(self, step: Content) -> Iterable[bytes]: ...

    def write_error(self, step: StreamFault) -> list[bytes]: ...

    def end(self) -> list[bytes]: ...


class Dialect(Protocol):
    """One vendor's wire format."""

    def parse_request(self, path: str, body: Json, body_bytes: int) -> ServerRequest | None:
        """Return the request, or None when it is not for this dialect."""
        ...

    def other(self, method: str, path: str, body: Json) -> Json | None:
        """Return the answer of this dialect's other methods (models, embeddings)."""
        ...

    def make_streamer(self, ask: ServerRequest) -> AnswerStreamer: ...

    def full_response(self, ask: ServerRequest, steps: Sequence[Content]) -> bytes:
        """Return the complete answer, for a client that does not stream."""
        ...

    def error_response(self, step: Fail | Overflow) -> ErrorResponse: ...


def usage_of(ask: ServerRequest, steps: Sequence[Content]) -> ReportedUsage:
    """Return the usage the script reports, or an estimate by the size of request and answer."""
    for step in reversed(steps):
        if isinstance(step, ReportedUsage):
            return step
    pieces = sum(len(step.pieces) for step in steps if isinstance(step, Say))
    return ReportedUsage(max(1, ask.body_bytes // 4), max(1, pieces))


def stop_reason(steps: Sequence[Content], reasons: Mapping[str, str]) -> str:
    """Return the vendor's word for why the answer ended: the script's, or what its steps imply."""
    for step in reversed(steps):
        if isinstance(step, Stop):
            return reasons[step.reason]
    return reasons["toolUse" if any(isinstance(step, CallTools) for step in steps) else "stop"]


def call_input(call: ScriptedCall) -> Json:
    """Return the arguments of a call as a JSON value."""
    return json.loads(call.args) if isinstance(call.args, str) else dict(call.args)


def compact_json(value: Json) -> bytes:
    """Encode a value without blanks."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
