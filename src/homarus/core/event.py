"""Events: facts about a run, in the past tense, and the shape clients see them in.

An `Event` is a fact with its place in one run. `Payloads` turns the events of a run into the
wire's envelopes `{runId, seq, stream, ts, data, sessionKey}`; it alone knows that the wire's
assistant events repeat the whole text with each delta.
"""

from collections.abc import Callable
from typing import TypeAlias

from homarus.core.message import Json, Message, ToolCall, ToolReturn
from homarus.core.value import dataclass


@dataclass(frozen=True, slots=True)
class RunStarted:
    """A run left its lane and began."""

    provider: str = ""
    model: str = ""


@dataclass(frozen=True, slots=True)
class TextAdded:
    """The model wrote a little more."""

    delta: str


@dataclass(frozen=True, slots=True)
class ThinkingAdded:
    """The model thought a little more."""

    delta: str


@dataclass(frozen=True, slots=True)
class AttemptFailed:
    """A model or credential failed and another is tried; what was said so far is void."""

    provider: str
    model: str
    reason: str
    error: str
    then: str
    wait_s: float = 0.0


@dataclass(frozen=True, slots=True)
class ToolStarted:
    """A tool began."""

    call: ToolCall


@dataclass(frozen=True, slots=True)
class ToolProgressed:
    """A running tool has something to show."""

    call: ToolCall
    text: str


@dataclass(frozen=True, slots=True)
class ToolEnded:
    """A tool finished."""

    result: ToolReturn


@dataclass(frozen=True, slots=True)
class MessageSaved:
    """A message entered the transcript."""

    message: Message


@dataclass(frozen=True, slots=True)
class CompactionStarted:
    """The history is being summarised."""


@dataclass(frozen=True, slots=True)
class CompactionEnded:
    """The history was summarised."""

    will_retry: bool = False


@dataclass(frozen=True, slots=True)
class ErrorNoted:
    """Something went wrong that does not end the run."""

    message: str


@dataclass(frozen=True, slots=True)
class CommandAnswered:
    """A command in a chat was obeyed, or refused: `error` says why. No run was made of it."""

    text: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class RunEnded:
    """The run is over; `error` says why when it failed, `attempts` what failed on the way."""

    error: str = ""
    aborted: bool = False
    attempts: tuple[AttemptFailed, ...] = ()


Fact: TypeAlias = (
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
)

# What the wire has no stream for.
_UNSEEN = (ThinkingAdded, MessageSaved, CommandAnswered)


@dataclass(frozen=True, slots=True)
class Event:
    """One fact with its place in one run.

    `seq` starts at 1 in each run and counts what the wire shows: to a client a gap means loss. A
    fact with no stream of its own carries the number of the one before it.
    """

    run_id: str
    session_key: str
    seq: int
    ts_ms: int
    fact: Fact


class Emitter:
    """Numbers and stamps the facts of one run."""

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

    def __call__(self, fact: Fact) -> None:
        if not isinstance(fact, _UNSEEN):
            self._seq += 1
        self._publish(Event(self.run_id, self.session_key, self._seq, self._now_ms(), fact))


class Payloads:
    """The wire's view of one run: feed it that run's events in order.

    A fact the wire has no stream for gives None.
    """

    def __init__(self) -> None:
        self._text = ""
        self._started_ms = 0

    def of(self, event: Event) -> dict[str, Json] | None:
        view = self._view(event)
        if view is None:
            return None
        stream, data = view
        return {
            "runId": event.run_id,
            "seq": event.seq,
            "stream": stream,
            "ts": event.ts_ms,
            "data": data,
            "sessionKey": event.session_key,
        }

    def _view(self, event: Event) -> tuple[str, dict[str, Json]] | None:
        match event.fact:
            case TextAdded(delta):
                self._text += delta
                return "assistant", {"text": self._text, "delta": delta}
            case RunStarted():
                self._started_ms = event.ts_ms
                return "lifecycle", {"phase": "start", "startedAt": event.ts_ms}
            case RunEnded() as ended:
                return "lifecycle", self._ended(event.ts_ms, ended)
            case ToolStarted() | ToolProgressed() | ToolEnded() as fact:
                return "tool", _tool_data(fact)
            case MessageSaved():
                self._text = ""  # the next assistant message starts afresh
                return None
            case AttemptFailed() as failed:
                self._text = ""
                return "lifecycle", {"phase": "fallback", **attempt_data(failed)}
            case CompactionStarted() | CompactionEnded() as fact:
                return "compaction", _compaction_data(fact)
            case ErrorNoted(message):
                return "error", {"message": message}
            case ThinkingAdded() | CommandAnswered():
                return None

    def _ended(self, ts_ms: int, ended: RunEnded) -> dict[str, Json]:
        tried = [attempt_data(failed) for failed in ended.attempts]
        more: dict[str, Json] = {"attempts": tried} if tried else {}
        if ended.error:
            times = {"startedAt": self._started_ms, "endedAt": ts_ms}
            return {"phase": "error", **times, "error": ended.error, **more}
        if ended.aborted:
            more["aborted"] = True
        return {"phase": "end", "endedAt": ts_ms, **more}


def _compaction_data(fact: CompactionStarted | CompactionEnded) -> dict[str, Json]:
    if isinstance(fact, CompactionStarted):
        return {"phase": "start"}
    return {"phase": "end", "willRetry": fact.will_retry}


def attempt_data(failed: AttemptFailed) -> dict[str, Json]:
    """A failed attempt as clients and `--json` see it."""
    return {
        "provider": failed.provider,
        "model": failed.model,
        "reason": failed.reason,
        "error": failed.error,
        "next": failed.then,
        "waitMs": round(failed.wait_s * 1000),
    }


def _tool_data(fact: ToolStarted | ToolProgressed | ToolEnded) -> dict[str, Json]:
    if isinstance(fact, ToolEnded):
        result = fact.result
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
    call = fact.call
    named: dict[str, Json] = {"name": call.name, "toolCallId": call.id}
    if isinstance(fact, ToolStarted):
        return {"phase": "start", **named, "args": dict(call.args)}
    partial = {"content": [{"type": "text", "text": fact.text}]}
    return {"phase": "update", **named, "partialResult": partial}
