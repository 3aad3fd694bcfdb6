"""Cron jobs, and their JSON in OpenClaw's format.

`decode_job` reads a job that has its final shape: input of people and models, and older shapes, go
through `job_input.py` first. A field that the program knows has the right type, or the job is
refused: what it would have restricted must not run without it. `encode_job` returns what was read,
with the fields that the program changes: fields it does not know stay as they are.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Final, Literal, TypeAlias

from homarus.core.errors import UserError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json
from homarus.core.text import one_line
from homarus.schedule.schedules import parse_schedule
from homarus.schedule.turn import Delivery, DeliveryMode
from homarus.sessions.notices import WakeMode

SessionTarget: TypeAlias = Literal["main", "isolated"]
MisfirePolicy: TypeAlias = Literal["skip", "once", "all"]
Taint: TypeAlias = tuple[tuple[str, str], ...]  # kind and origin of untrusted content
JobStatus: TypeAlias = Literal["", "ok", "error", "skipped"]
MISFIRE_POLICIES: Final = ("skip", "once", "all")
_MODES: Final[Mapping[str, DeliveryMode]] = {
    "none": "none",
    "announce": "announce",
    "webhook": "webhook",
}


@dataclass(frozen=True, slots=True)
class SystemEventPayload:
    """A line for the agent's main session."""

    text: str


@dataclass(frozen=True, slots=True)
class AgentTurnPayload:
    """A turn in a session of its own. `timeout_s` 0 is the default of jobs.

    `is_unsafe_content_allowed`: the message is not marked as untrusted, even though the job was
    created in a run that had read untrusted content.
    """

    message: str
    model: str = ""
    thinking: str = ""
    timeout_s: float = 0.0
    is_unsafe_content_allowed: bool = False


Payload: TypeAlias = SystemEventPayload | AgentTurnPayload


@dataclass(frozen=True, slots=True)
class JobState:
    """What changes when a job runs. Times and counts that are 0 are not there."""

    next_run_at_ms: int = 0
    running_at_ms: int = 0
    last_run_at_ms: int = 0
    last_status: JobStatus = ""
    last_error: str = ""
    last_duration_ms: int = 0
    consecutive_errors: int = 0
    schedule_error_count: int = 0
    extra: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class JobCreator:
    """Who created a job: the session, and what untrusted content (kind, origin) it had read.

    `source` is `tool`, `client` (the CLI and other programs), `file` (`jobs.json` was edited) or
    `import`. It is stored with the job, not in `jobs.json`.
    """

    source: str = "client"
    session_key: str = ""
    taint: Taint = ()


@dataclass(frozen=True, slots=True)
class Misfire:
    """What happens with slots that were missed, and how old the oldest is that may still run."""

    policy: MisfirePolicy = "once"
    max_age_minutes: int = 24 * 60


@dataclass(frozen=True, slots=True)
class CronJob:
    """A job as it is stored.

    `schedule` is OpenClaw's JSON (`schedules.py` parses it). `agent` and `session_key` are "" for
    the default ones. `delivery` is None where the job does not say. `misfire` None is the setting.
    `definition` is the complete JSON without the state, as it was read.
    """

    id: str
    name: str
    schedule: Mapping[str, Json]
    payload: Payload
    session_target: SessionTarget
    enabled: bool = True
    wake_mode: WakeMode = "now"
    delivery: Delivery | None = None
    agent: str = ""
    session_key: str = ""
    description: str = ""
    deletes_after_run: bool = False
    created_at_ms: int = 0
    updated_at_ms: int = 0
    misfire: Misfire | None = None
    state: JobState = JobState()
    creator: JobCreator = JobCreator()
    definition: Mapping[str, Json] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """The kind of its schedule: `at`, `every` or `cron`."""
        return str(self.schedule.get("kind", ""))


_MAX_NUMBER: Final = 2**53  # larger integers are not exact in JSON
_STATE_KEYS: Final = {
    "next_run_at_ms": "nextRunAtMs",
    "running_at_ms": "runningAtMs",
    "last_run_at_ms": "lastRunAtMs",
    "last_status": "lastStatus",
    "last_error": "lastError",
    "last_duration_ms": "lastDurationMs",
    "consecutive_errors": "consecutiveErrors",
    "schedule_error_count": "scheduleErrorCount",
}
_STATE_NAMES: Final = {key: name for name, key in _STATE_KEYS.items()}


def encode_job(job: CronJob) -> dict[str, Json]:
    """Return a job as OpenClaw's JSON."""
    return {
        **job.definition,
        "id": job.id,
        "enabled": job.enabled,
        "createdAtMs": job.created_at_ms,
        "updatedAtMs": job.updated_at_ms,
        "state": encode_state(job.state),
    }


def encode_state(state: JobState) -> dict[str, Json]:
    """Return the state of a job as OpenClaw's JSON, without what has no value."""
    values = {key: getattr(state, name) for name, key in _STATE_KEYS.items()}
    return {**state.extra, **{key: value for key, value in values.items() if value}}


def decode_job(data: Mapping[str, Json], creator: JobCreator = JobCreator()) -> CronJob:  # noqa: B008 - frozen
    """Return a job from OpenClaw's JSON. Raises UserError that names what is wrong."""
    payload = _decode_payload(data.get("payload"))
    target = data.get("sessionTarget")
    expected = "main" if isinstance(payload, SystemEventPayload) else "isolated"
    if target != expected:
        kind = "a systemEvent" if expected == "main" else "an agentTurn"
        raise UserError(
            f"{kind} cannot run with sessionTarget {target!r}", fix=f"set it to {expected!r}"
        )
    schedule = data.get("schedule")
    if not isinstance(schedule, Mapping):
        raise UserError("the job has no schedule", fix="add at, everyMs or a cron expression")
    parse_schedule(schedule)
    return CronJob(
        id=_text(data, "id"),
        name=_text(data, "name"),
        schedule=schedule,
        payload=payload,
        session_target="main" if expected == "main" else "isolated",
        enabled=_flag(data, "enabled", default=True),
        wake_mode=_decode_wake_mode(data.get("wakeMode")),
        delivery=_decode_delivery(data.get("delivery")),
        agent=_text(data, "agentId"),
        session_key=_text(data, "sessionKey"),
        description=_text(data, "description"),
        deletes_after_run=_flag(data, "deleteAfterRun"),
        created_at_ms=_whole_number(data, "createdAtMs"),
        updated_at_ms=_whole_number(data, "updatedAtMs"),
        misfire=_decode_misfire(data.get("misfire")),
        state=decode_state(data.get("state")),
        creator=creator,
        definition={key: value for key, value in data.items() if key != "state"},
    )


def decode_state(data: Json) -> JobState:
    """Return the state of a job; values of a wrong type are ignored."""
    if not isinstance(data, Mapping):
        return JobState()
    fields: dict[str, Any] = {}
    for key, name in _STATE_NAMES.items():
        if name in {"last_status", "last_error"}:
            value = data.get(key)
            fields[name] = value if isinstance(value, str) else ""
        else:
            fields[name] = _whole_number(data, key)
    if fields["last_status"] not in {"ok", "error", "skipped"}:
        fields["last_status"] = ""
    extra = {key: value for key, value in data.items() if key not in _STATE_NAMES}
    return JobState(**fields, extra=extra)


def _decode_payload(data: Json) -> Payload:
    if not isinstance(data, Mapping):
        raise UserError("the job has no payload", fix="add a systemEvent or an agentTurn")
    match data.get("kind"):
        case "systemEvent" if text := _text(data, "text").strip():
            return SystemEventPayload(text)
        case "agentTurn" if message := _text(data, "message").strip():
            return AgentTurnPayload(
                message,
                _text(data, "model"),
                _text(data, "thinking"),
                _limit(data, "timeoutSeconds"),
                _flag(data, "allowUnsafeExternalContent"),
            )
        case "systemEvent":
            raise UserError("the systemEvent has no text", fix="add the text of the event")
        case "agentTurn":
            raise UserError("the agentTurn has no message", fix="add the message for the agent")
        case kind:
            raise UserError(
                f"unknown payload kind {kind!r}", fix='use "systemEvent" or "agentTurn"'
            )


def _decode_wake_mode(value: Json) -> WakeMode:
    if value in (None, "now"):
        return "now"
    if value == "next-heartbeat":
        return "next-heartbeat"
    raise UserError(f"unknown wakeMode {_shown(value)}", fix="use now or next-heartbeat")


def _decode_delivery(data: Json) -> Delivery | None:
    if data is None:
        return None
    if not isinstance(data, Mapping):
        raise UserError("the delivery is not an object", fix='write for example {"mode": "none"}')
    mode = data.get("mode", "announce")
    if not isinstance(mode, str) or mode not in _MODES:
        raise UserError(
            f"unknown delivery mode {_shown(mode)}", fix="use none, announce or webhook"
        )
    return Delivery(
        _MODES[mode],
        _text(data, "channel") or "last",
        _text(data, "to"),
        _text(data, "accountId"),
        _text(data, "threadId"),
        _flag(data, "bestEffort"),
    )


def _decode_misfire(data: Json) -> Misfire | None:
    if data is None:
        return None
    if not isinstance(data, Mapping):
        raise UserError("misfire is not an object", fix='write for example {"policy": "skip"}')
    policy = data.get("policy", "once")
    if policy not in MISFIRE_POLICIES:
        raise UserError(f"unknown misfire policy {_shown(policy)}", fix="use skip, once or all")
    if data.get("maxAgeMinutes") is None:
        return Misfire(policy)
    return Misfire(policy, int(_limit(data, "maxAgeMinutes")))


def _text(data: Mapping[str, Json], key: str) -> str:
    """Return a text, "" without one. Raises UserError."""
    value = data.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise UserError(f"{key} {_shown(value)} is not a text", fix="write it in quotes")
    return value


def _flag(data: Mapping[str, Json], key: str, *, default: bool = False) -> bool:
    """Return a flag. Raises UserError."""
    value = data.get(key)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise UserError(f"{key} is {_shown(value)}", fix="use true or false")
    return value


def _limit(data: Mapping[str, Json], key: str) -> float:
    """Return a number that limits something, 0 without one. Raises UserError."""
    value = data.get(key)
    if value is None:
        return 0.0
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= value < _MAX_NUMBER:
        raise UserError(
            f"{key} {_shown(value)} is not a number of 0 or more", fix="write for example 60"
        )
    return float(value)


def _whole_number(data: Mapping[str, Json], key: str) -> int:
    """Return a number that a program wrote; 0 for what is none."""
    value = data.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0
    return max(0, int(value)) if value == value and abs(value) < _MAX_NUMBER else 0  # noqa: PLR0124 - NaN


def _shown(value: Json) -> str:
    return one_line(repr(value), 40)
