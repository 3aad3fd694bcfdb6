"""The events of a run, and their encoding for gateway clients.

An `Event` is event data with its position in one run. `EventEncoder` encodes the events of a run
as protocol payloads `{runId, seq, stream, ts, data, sessionKey}`, whose assistant events repeat
the complete text with each delta.
"""

from collections.abc import Callable, Mapping
from typing import TypeAlias

from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json, Message, ToolCall, ToolResult


@dataclass(frozen=True, slots=True)
class RunStarted:
    """A run started, with this model and thinking level."""

    provider: str = ""
    model: str = ""
    thinking: str = ""


@dataclass(frozen=True, slots=True)
class TextAdded:
    """The model streamed more text for readers; `media` are files that the text named.

    `reply_to` and `reply_to_current` say which message it replies to, as far as that is known.
    """

    delta: str
    media: tuple[str, ...] = ()
    reply_to: str = ""
    reply_to_current: bool = False


@dataclass(frozen=True, slots=True)
class ThinkingAdded:
    """The model streamed more reasoning, in a field for it or in tags of its text."""

    delta: str


@dataclass(frozen=True, slots=True)
class AttemptFailed:
    """A model call failed and another is tried; the text streamed so far is discarded."""

    provider: str
    model: str
    reason: str
    error: str
    then: str
    wait_s: float = 0.0


@dataclass(frozen=True, slots=True)
class ToolStarted:
    """A tool call started."""

    call: ToolCall


@dataclass(frozen=True, slots=True)
class ToolProgressed:
    """A running tool call reported partial output."""

    call: ToolCall
    text: str


@dataclass(frozen=True, slots=True)
class ToolEnded:
    """A tool call ended."""

    result: ToolResult


@dataclass(frozen=True, slots=True)
class MessageSaved:
    """A message was appended to the transcript."""

    message: Message


@dataclass(frozen=True, slots=True)
class CompactionStarted:
    """Compaction started."""


@dataclass(frozen=True, slots=True)
class CompactionEnded:
    """Compaction ended."""

    will_retry: bool = False


@dataclass(frozen=True, slots=True)
class ErrorNoted:
    """An error occurred that does not end the run."""

    message: str


@dataclass(frozen=True, slots=True)
class CommandAnswered:
    """A chat command was executed without a run, or refused for the reason in `error`."""

    text: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class RunEnded:
    """The run ended; `error` is set when it failed, `attempts` are its failed model calls."""

    error: str = ""
    aborted: bool = False
    attempts: tuple[AttemptFailed, ...] = ()


@dataclass(frozen=True, slots=True)
class RunSuspended:
    """The run waits for these approvals: it goes on when they are answered, perhaps days later."""

    approvals: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ApprovalRequested:
    """A person is asked to approve a call; `request` has what approvers see."""

    id: str
    tool: str
    request: Mapping[str, Json]
    created_ms: int
    expires_ms: int


@dataclass(frozen=True, slots=True)
class ApprovalResolved:
    """An approval was answered, expired or was cancelled, as `state` says.

    The decision about a question is its answer.
    """

    id: str
    state: str
    decision: str
    resolved_by: str
    is_question: bool = False


EventData: TypeAlias = (
    RunStarted
    | TextAdded
    | ThinkingAdded
    | AttemptFailed
    | ToolStarted
    | ToolProgressed
    | ToolEnded
    | MessageSaved
    | CompactionStarted
    | CompactionEnded
    | ErrorNoted
    | CommandAnswered
    | RunEnded
    | RunSuspended
    | ApprovalRequested
    | ApprovalResolved
)

# Event data that the protocol has no stream for.
_WITHOUT_STREAM = (
    MessageSaved,
    CommandAnswered,
    RunSuspended,
    ApprovalRequested,
    ApprovalResolved,
)


@dataclass(frozen=True, slots=True)
class Event:
    """Event data with its position in one run.

    `seq` starts at 1 in each run and counts the events that clients see: a gap tells a client
    that events were lost. Event data without a stream has the number of the event before it.
    """

    run_id: str
    session_key: str
    seq: int
    ts_ms: int
    data: EventData


class Emitter:
    """Publishes the events of one run, numbered and with a timestamp."""

    def __init__(
        self,
        run_id: str,
        session_key: str,
        publish: Callable[[Event], None],
        now_ms: Callable[[], int],
    ) -> None:
        self.run_id, self.session_key = run_id, session_key
        self._publish, self._now_ms = publish, now_ms
        self._seq = 0

    def __call__(self, data: EventData) -> None:
        if not isinstance(data, _WITHOUT_STREAM):
            self._seq += 1
        self._publish(Event(self.run_id, self.session_key, self._seq, self._now_ms(), data))


class EventEncoder:
    """Encodes the events of one run, in order, as protocol payloads.

    Event data that the protocol has no stream for is encoded as None.
    """

    def __init__(self) -> None:
        self._text = self._thinking = ""
        self._started_ms = 0

    def encode(self, event: Event) -> dict[str, Json] | None:
        encoded = self._encode(event)
        if encoded is None:
            return None
        stream, data = encoded
        return {
            "runId": event.run_id,
            "seq": event.seq,
            "stream": stream,
            "ts": event.ts_ms,
            "data": data,
            "sessionKey": event.session_key,
        }

    def _encode(self, event: Event) -> tuple[str, dict[str, Json]] | None:
        match event.data:
            case TextAdded() | ThinkingAdded() as added:
                return self._added(added)
            case RunStarted(thinking=level):
                self._started_ms = event.ts_ms
                more = {"thinkingLevel": level} if level else {}
                return "lifecycle", {"phase": "start", "startedAt": event.ts_ms, **more}
            case RunEnded() as ended:
                return "lifecycle", self._ended(event.ts_ms, ended)
            case ToolStarted() | ToolProgressed() | ToolEnded() as data:
                return "tool", _tool_data(data)
            case MessageSaved():
                self._text = self._thinking = ""  # the next assistant message starts empty
                return None
            case AttemptFailed() as failed:
                self._text = self._thinking = ""
                return "lifecycle", {"phase": "fallback", **encode_attempt(failed)}
            case CompactionStarted() | CompactionEnded() as data:
                return "compaction", _compaction_data(data)
            case ErrorNoted(message):
                return "error", {"message": message}
            case CommandAnswered() | RunSuspended() | ApprovalRequested() | ApprovalResolved():
                return None

    def _added(self, added: TextAdded | ThinkingAdded) -> tuple[str, dict[str, Json]]:
        if isinstance(added, ThinkingAdded):
            self._thinking += added.delta
            return "thinking", {"text": self._thinking, "delta": added.delta}
        self._text += added.delta
        files: dict[str, Json] = {"mediaUrls": list(added.media)} if added.media else {}
        return "assistant", {"text": self._text, "delta": added.delta, **files}

    def _ended(self, ts_ms: int, ended: RunEnded) -> dict[str, Json]:
        attempts = [encode_attempt(failed) for failed in ended.attempts]
        more: dict[str, Json] = {"attempts": attempts} if attempts else {}
        if ended.error:
            times = {"startedAt": self._started_ms, "endedAt": ts_ms}
            return {"phase": "error", **times, "error": ended.error, **more}
        if ended.aborted:
            more["aborted"] = True
        return {"phase": "end", "endedAt": ts_ms, **more}


def _compaction_data(data: CompactionStarted | CompactionEnded) -> dict[str, Json]:
    if isinstance(data, CompactionStarted):
        return {"phase": "start"}
    return {"phase": "end", "willRetry": data.will_retry}


def encode_attempt(failed: AttemptFailed) -> dict[str, Json]:
    """Encode a failed attempt for gateway clients and for `--json`."""
    return {
        "provider": failed.provider,
        "model": failed.model,
        "reason": failed.reason,
        "error": failed.error,
        "next": failed.then,
        "waitMs": round(failed.wait_s * 1000),
    }


def _tool_data(data: ToolStarted | ToolProgressed | ToolEnded) -> dict[str, Json]:
    if isinstance(data, ToolEnded):
        result = data.result
        return {
            "phase": "result",
            "name": result.name,
            "toolCallId": result.call_id,
            "isError": result.is_error,
            "result": {
                "content": [{"type": "text", "text": result.text}],
                **({"details": dict(result.details)} if result.details is not None else {}),
            },
        }
    call = data.call
    named: dict[str, Json] = {"name": call.name, "toolCallId": call.id}
    if isinstance(data, ToolStarted):
        return {"phase": "start", **named, "args": dict(call.args)}
    partial = {"content": [{"type": "text", "text": data.text}]}
    return {"phase": "update", **named, "partialResult": partial}
