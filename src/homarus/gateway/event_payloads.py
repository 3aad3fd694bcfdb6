"""The payloads of the events that clients receive, as types.

The gateway builds payloads as plain dictionaries; these types say what is in them. The types of the
control UI are generated from here, and a test compares them with the events of real runs. Nothing
imports this at run time.
"""

from typing import Any, Literal, NotRequired, TypeAlias

from typing_extensions import TypedDict

Fields: TypeAlias = dict[str, Any]


class TextPart(TypedDict):
    """Text of a message."""

    type: Literal["text"]
    text: str


class ThinkingPart(TypedDict):
    """Reasoning of a model."""

    type: Literal["thinking"]
    thinking: str


class ImagePart(TypedDict):
    """An image; its data is loaded with `chat.message.get` and `index`."""

    type: Literal["image"]
    mimeType: str
    omitted: bool
    bytes: int
    index: NotRequired[int]


class MediaPart(TypedDict):
    """A file that the message names; an image is loaded with `chat.message.get` and `media`."""

    type: Literal["media"]
    path: str


class ToolCallPart(TypedDict):
    """A tool call of the model."""

    type: Literal["toolCall"]
    id: str
    name: str
    arguments: Fields


MessagePart: TypeAlias = TextPart | ThinkingPart | ImagePart | MediaPart | ToolCallPart


class ChatMessage(TypedDict):
    """The message of a `chat` event."""

    role: str
    content: list[MessagePart]
    timestamp: int
    stopReason: NotRequired[str]


class ChatEvent(TypedDict):
    """`chat`: the text so far of a run, then exactly one end."""

    runId: str
    sessionKey: str
    seq: int
    state: Literal["delta", "final", "aborted", "error"]
    message: NotRequired[ChatMessage]
    errorMessage: NotRequired[str]
    stopReason: NotRequired[str]
    deltaText: NotRequired[str]
    replace: NotRequired[bool]


class LifecycleData(TypedDict):
    """Start, fallback, end or error of a run."""

    phase: Literal["start", "fallback", "end", "error"]
    startedAt: NotRequired[int]
    endedAt: NotRequired[int]
    thinkingLevel: NotRequired[str]
    aborted: NotRequired[bool]
    error: NotRequired[str]
    attempts: NotRequired[list[Fields]]
    provider: NotRequired[str]
    model: NotRequired[str]
    reason: NotRequired[str]
    next: NotRequired[str]
    waitMs: NotRequired[int]


class TextData(TypedDict):
    """Text or reasoning: the complete text so far, and what is new."""

    text: str
    delta: str
    mediaUrls: NotRequired[list[str]]


class ToolOutputPayload(TypedDict):
    """What a tool returned, or has returned so far."""

    content: list[TextPart]
    details: NotRequired[Fields]


class ToolData(TypedDict):
    """One phase of a tool call."""

    phase: Literal["start", "update", "result"]
    name: str
    toolCallId: str
    args: NotRequired[Fields]
    partialResult: NotRequired[ToolOutputPayload]
    result: NotRequired[ToolOutputPayload]
    isError: NotRequired[bool]
    meta: NotRequired[str]


class CompactionData(TypedDict):
    """Start or end of a compaction."""

    phase: Literal["start", "end"]
    willRetry: NotRequired[bool]


class ErrorData(TypedDict):
    """An error that does not end the run, or a gap in its events."""

    message: NotRequired[str]
    reason: NotRequired[str]
    expected: NotRequired[int]
    received: NotRequired[int]


class _AgentFields(TypedDict):
    runId: str
    seq: int
    ts: int
    sessionKey: str


class LifecycleEvent(_AgentFields):
    """`agent` with stream `lifecycle`."""

    stream: Literal["lifecycle"]
    data: LifecycleData


class TextEvent(_AgentFields):
    """`agent` with stream `assistant` or `thinking`."""

    stream: Literal["assistant", "thinking"]
    data: TextData


class ToolEvent(_AgentFields):
    """`agent` with stream `tool`."""

    stream: Literal["tool"]
    data: ToolData


class CompactionEvent(_AgentFields):
    """`agent` with stream `compaction`."""

    stream: Literal["compaction"]
    data: CompactionData


class ErrorEvent(_AgentFields):
    """`agent` with stream `error`."""

    stream: Literal["error"]
    data: ErrorData


AgentEvent: TypeAlias = LifecycleEvent | TextEvent | ToolEvent | CompactionEvent | ErrorEvent


class ApprovalPayload(TypedDict):
    """`exec.approval.requested`: a call that waits for a person.

    `request` has `title`, `detail`, `reason`, `always`, `tool`, `toolCallId`, `agentId`,
    `sessionKey` and more.
    """

    id: str
    request: Fields
    createdAtMs: int
    expiresAtMs: int


class ApprovalResolvedPayload(TypedDict):
    """`exec.approval.resolved`: an approval was answered, or expired."""

    id: str
    decision: str | None
    resolvedBy: str | None
    ts: int


class QuestionPayload(TypedDict):
    """`question.requested`: a question of an agent."""

    id: str
    questions: list[Fields]
    agentId: NotRequired[str | None]
    sessionKey: NotRequired[str | None]
    createdAtMs: int
    expiresAtMs: int
    status: NotRequired[str]


class QuestionResolvedPayload(TypedDict):
    """`question.resolved`: a question was answered, dismissed, or expired."""

    id: str
    status: NotRequired[str]
    answers: NotRequired[Fields | None]


class DevicePairRequested(TypedDict):
    """`device.pair.requested`: a device that wants to connect."""

    requestId: str
    deviceId: str
    displayName: NotRequired[str | None]
    platform: NotRequired[str | None]
    clientId: NotRequired[str | None]
    role: NotRequired[str | None]
    scopes: NotRequired[list[str] | None]
    remoteIp: NotRequired[str | None]
    ts: NotRequired[int]


class DevicePairResolved(TypedDict):
    """`device.pair.resolved`: a device was approved or rejected."""

    requestId: str
    deviceId: str
    decision: str
    ts: int


class SessionsChanged(TypedDict):
    """`sessions.changed`: a session has a new state; `session` is its row, null when deleted."""

    sessionKey: str
    agentId: str
    ts: int
    session: Fields | None
    phase: NotRequired[str]
    reason: NotRequired[str]
    runId: NotRequired[str]


class SessionMessage(TypedDict):
    """`session.message`: a message was added to a transcript."""

    sessionKey: str
    agentId: str
    message: Fields
    messageId: str
    messageSeq: int
    session: Fields | None


class CronEvent(TypedDict):
    """`cron`: a job was added, changed or removed, or a run of it started or finished."""

    jobId: str
    action: str
    runAtMs: NotRequired[int]
    status: NotRequired[str]
    error: NotRequired[str]
    summary: NotRequired[str]
    sessionKey: NotRequired[str]
    durationMs: NotRequired[int]
    nextRunAtMs: NotRequired[int]


class TickPayload(TypedDict):
    """`tick`: the connection is alive."""

    ts: int


class ShutdownPayload(TypedDict):
    """`shutdown`: the gateway stops."""

    reason: str
    restartExpectedMs: NotRequired[int | None]


# Event → the type of its payload. Events that are not listed have an object of no fixed shape.
PAYLOADS: dict[str, Any] = {
    "agent": AgentEvent,
    "chat": ChatEvent,
    "cron": CronEvent,
    "device.pair.requested": DevicePairRequested,
    "device.pair.resolved": DevicePairResolved,
    "exec.approval.requested": ApprovalPayload,
    "exec.approval.resolved": ApprovalResolvedPayload,
    "question.requested": QuestionPayload,
    "question.resolved": QuestionResolvedPayload,
    "session.message": SessionMessage,
    "sessions.changed": SessionsChanged,
    "shutdown": ShutdownPayload,
    "tick": TickPayload,
}
