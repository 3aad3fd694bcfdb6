"""Diagnostic events: operational facts about runs, queues and webhooks, for logs and metrics.

They are separate from the events of a run (event.py), which are for clients. Without a listener
publishing is one `if`: the caller checks `is_active` before it makes an event.

    if diagnostics.is_active:
        diagnostics.publish(LaneDequeued("main", 0, wait_ms))

`encode_diagnostic` returns an event with OpenClaw's type and field names. Its eight kinds are model
usage, webhooks, messages, session states, stuck sessions, lanes, attempts at runs, and the
heartbeat. `RunTraced`, `DeliveryAttempted` and `MemorySearched` are ours, and have no encoding.
"""

from collections.abc import Callable, Mapping
from dataclasses import field, fields
from functools import partial
from typing import Final, Literal, TypeAlias

from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json
from homarus.core.tasks import call_contained

SessionActivity: TypeAlias = Literal["idle", "processing", "waiting"]


@dataclass(frozen=True, slots=True)
class ModelUsed:
    """A model call ended; `error` is set when it failed."""

    session_key: str
    channel: str
    provider: str
    model: str
    usage: Mapping[str, int]  # input, output, cacheRead, cacheWrite, total
    cost_usd: float
    duration_ms: int
    ttfb_ms: int | None = None
    context: Mapping[str, int] = field(default_factory=dict)  # limit and used, in tokens
    error: str = ""


@dataclass(frozen=True, slots=True)
class WebhookReceived:
    """A request to a webhook came in."""

    channel: str


@dataclass(frozen=True, slots=True)
class WebhookProcessed:
    """A request to a webhook was answered."""

    channel: str
    duration_ms: int


@dataclass(frozen=True, slots=True)
class WebhookFailed:
    """A request to a webhook was refused, or failed."""

    channel: str
    error: str


@dataclass(frozen=True, slots=True)
class MessageQueued:
    """A message waits for its run; `queue_depth` counts it."""

    session_key: str
    channel: str
    source: str
    queue_depth: int


@dataclass(frozen=True, slots=True)
class MessageProcessed:
    """The run of a message ended."""

    channel: str
    message_id: str
    session_key: str
    duration_ms: int
    outcome: Literal["completed", "skipped", "error"]
    reason: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class SessionStateChanged:
    """A session became idle, started a run, or waits for a person."""

    session_key: str
    prev_state: SessionActivity
    state: SessionActivity
    queue_depth: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class SessionStuck:
    """A session has been in a state for longer than the warning threshold."""

    session_key: str
    state: SessionActivity
    age_ms: int
    queue_depth: int = 0


@dataclass(frozen=True, slots=True)
class LaneEnqueued:
    """A task waits for a place in a lane."""

    lane: str
    queue_size: int


@dataclass(frozen=True, slots=True)
class LaneDequeued:
    """A task got a place in a lane."""

    lane: str
    queue_size: int
    wait_ms: int


@dataclass(frozen=True, slots=True)
class RunAttempted:
    """An attempt at a run started."""

    session_key: str
    run_id: str
    attempt: int


@dataclass(frozen=True, slots=True)
class DiagnosticsSummarized:
    """The heartbeat of the diagnostics: what is under way, and the webhooks since the start."""

    webhooks: Mapping[str, int]  # received, processed, errors
    active: int
    waiting: int
    queued: int


@dataclass(frozen=True, slots=True)
class RunTraced:
    """An attempt at a run ended; `data` is its trace as the journal has it. Ours."""

    run: str
    session_key: str
    channel: str
    outcome: str
    data: Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class DeliveryAttempted:
    """An attempt to send an outbox record ended in this state. Ours."""

    run: str
    record_id: str
    channel: str
    state: str
    started_ms: int
    ended_ms: int
    why: str = ""


@dataclass(frozen=True, slots=True)
class MemorySearched:
    """A search in an agent's memory ended. Ours."""

    agent: str
    duration_ms: int


Diagnostic: TypeAlias = (
    ModelUsed
    | WebhookReceived
    | WebhookProcessed
    | WebhookFailed
    | MessageQueued
    | MessageProcessed
    | SessionStateChanged
    | SessionStuck
    | LaneEnqueued
    | LaneDequeued
    | RunAttempted
    | DiagnosticsSummarized
    | RunTraced
    | DeliveryAttempted
    | MemorySearched
)
# OpenClaw's type of each event; the others have none.
DIAGNOSTIC_TYPES: Final[Mapping[type, str]] = {
    ModelUsed: "model.usage",
    WebhookReceived: "webhook.received",
    WebhookProcessed: "webhook.processed",
    WebhookFailed: "webhook.error",
    MessageQueued: "message.queued",
    MessageProcessed: "message.processed",
    SessionStateChanged: "session.state",
    SessionStuck: "session.stuck",
    LaneEnqueued: "queue.lane.enqueue",
    LaneDequeued: "queue.lane.dequeue",
    RunAttempted: "run.attempt",
    DiagnosticsSummarized: "diagnostic.heartbeat",
}
DiagnosticListener: TypeAlias = Callable[[Diagnostic, int], object]


class Diagnostics:
    """Publishes diagnostic events to listeners; one that raises is logged and affects nothing."""

    def __init__(self, now_ms: Callable[[], int] = lambda: 0) -> None:
        self._now_ms = now_ms
        self._listeners: tuple[DiagnosticListener, ...] = ()
        self.is_active = False

    def publish(self, event: Diagnostic) -> None:
        """Give an event and its time to every listener."""
        at_ms = self._now_ms()
        for listener in self._listeners:
            call_contained("a listener of diagnostics", partial(listener, event, at_ms))

    def add_listener(self, listener: DiagnosticListener) -> None:
        """Call a listener with every event from now on; it must not block."""
        self._listeners = (*self._listeners, listener)
        self.is_active = True

    def remove_listener(self, listener: DiagnosticListener) -> None:
        """Stop calling a listener."""
        self._listeners = tuple(each for each in self._listeners if each != listener)
        self.is_active = bool(self._listeners)


def encode_diagnostic(event: Diagnostic, seq: int, at_ms: int) -> dict[str, Json] | None:
    """Return an event as OpenClaw's object; None for one of ours. Unset fields are left out."""
    kind = DIAGNOSTIC_TYPES.get(type(event))
    if kind is None:
        return None
    data: dict[str, Json] = {"type": kind, "seq": seq, "ts": at_ms}
    for each in fields(event):
        value = getattr(event, each.name)
        if value not in ("", None, {}):
            data[_wire_name(each.name)] = dict(value) if isinstance(value, Mapping) else value
    return data


def _wire_name(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)
