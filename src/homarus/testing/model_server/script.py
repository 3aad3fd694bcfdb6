"""The steps of a scripted answer: what the model writes, and what goes wrong on the way.

The first group means the same in every dialect; the second is about bytes and time.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Literal, TypeAlias

from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json


@dataclass(frozen=True, slots=True)
class Say:
    """Text: one piece, or several, with a gap after each."""

    text: str | Sequence[str]
    gap_s: float = 0.0

    @property
    def pieces(self) -> Sequence[str]:
        return (self.text,) if isinstance(self.text, str) else self.text


@dataclass(frozen=True, slots=True)
class Think(Say):
    """Reasoning, in pieces like text."""


@dataclass(frozen=True, slots=True)
class ScriptedCall:
    """One tool call. Arguments given as text are sent as they are, JSON or not."""

    name: str
    args: Mapping[str, Json] | str = field(default_factory=dict)
    id: str = ""


@dataclass(frozen=True, slots=True, init=False)
class CallTools:
    """Tool calls made together; their arguments come in pieces, the calls' pieces in turns."""

    calls: tuple[ScriptedCall, ...]
    piece_chars: int

    def __init__(self, *calls: ScriptedCall, piece_chars: int = 8) -> None:
        object.__setattr__(self, "calls", calls)
        object.__setattr__(self, "piece_chars", piece_chars)


@dataclass(frozen=True, slots=True)
class ReportedUsage:
    """The usage to report. `given` counts the cached ones in."""

    given: int = 0
    answered: int = 0
    cached: int = 0
    reasoning: int = 0


@dataclass(frozen=True, slots=True)
class Stop:
    """How the answer ends; without it, as its content suggests."""

    reason: Literal["stop", "length", "toolUse", "filtered"]


@dataclass(frozen=True, slots=True)
class Fail:
    """Refuse with a status, in the dialect's own words unless `message` has some."""

    status: int
    message: str = ""
    code: str = ""
    retry_after: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None  # exactly this, whatever it is


@dataclass(frozen=True, slots=True)
class Overflow:
    """Refuse because the request does not fit the model."""

    window: int = 8192
    asked: int = 9001


@dataclass(frozen=True, slots=True)
class StreamFault:
    """An error inside a stream that had started well."""

    message: str = "The server had an error while processing your request."
    code: str = "server_error"


@dataclass(frozen=True, slots=True)
class Delay:
    """Wait."""

    seconds: float


@dataclass(frozen=True, slots=True)
class WaitForTest:
    """Wait until the test opens it."""

    opened: asyncio.Event


@dataclass(frozen=True, slots=True)
class HangUntilDisconnect:
    """Send nothing more until the client disconnects."""


@dataclass(frozen=True, slots=True)
class Comments:
    """Keep-alives: `times` of them, or for ever."""

    text: str = "keep-alive"
    times: int | None = None
    every_s: float = 0.01


@dataclass(frozen=True, slots=True)
class Raw:
    """These bytes, in the place of an event."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Replay:
    """A recorded stream: the complete body, without anything of the dialect around it."""

    data: bytes


@dataclass(frozen=True, slots=True)
class LongLine:
    """A line of this many bytes that does not end."""

    size_bytes: int


@dataclass(frozen=True, slots=True)
class Cut:
    """End the connection here: close, reset, or close our half and keep reading."""

    how: Literal["close", "reset", "half-close"] = "close"


@dataclass(frozen=True, slots=True)
class BodyFraming:
    """How the bytes of the body are sent."""

    piece_bytes: int | None = None  # cut everything into pieces of this size
    newline: bytes = b"\n"
    bom: bool = False
    cut_at_byte: int | None = None  # hang up after so many bytes of the body
    framing: Literal["chunked", "close"] = "chunked"
    content_type: str = "text/event-stream"
    end: bool = True  # the dialect's closing events


Content: TypeAlias = Say | Think | CallTools | ReportedUsage | Stop
ScriptStep: TypeAlias = (
    Content
    | Fail
    | Overflow
    | StreamFault
    | Delay
    | WaitForTest
    | HangUntilDisconnect
    | Comments
    | Raw
    | Replay
    | LongLine
    | Cut
    | BodyFraming
)
ScriptedAnswer: TypeAlias = Sequence[ScriptStep]
