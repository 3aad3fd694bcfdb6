"""Normalise what a client, a model or a job file says about a cron job.

Several older forms are accepted: delivery fields in the payload, a schedule without its kind,
words in the wrong case. The result has OpenClaw's present form. Values that cannot be understood
stay as they are, for the check of the complete job to name them.
"""

from collections.abc import Callable, Mapping
from typing import Final

from homarus.core.message import Json
from homarus.core.session_keys import normalize_agent_id
from homarus.core.text import one_line
from homarus.schedule.absolute_time import format_iso_ms, parse_absolute_time_ms
from homarus.schedule.schedules import (
    CronSchedule,
    resolve_stagger_ms,
    schedule_kind,
    to_integer,
    to_stagger_ms,
)

_MAX_NAME_CHARS: Final = 60
_PAYLOAD_KINDS: Final = {"agentturn": "agentTurn", "systemevent": "systemEvent"}
_SESSION_TARGETS: Final = frozenset({"main", "isolated"})
_WAKE_MODES: Final = frozenset({"now", "next-heartbeat"})
_DELIVERY_MODES: Final = {
    "none": "none",
    "announce": "announce",
    "webhook": "webhook",
    "deliver": "announce",  # the old word
}
# What a payload had before jobs had a `delivery`.
_OLD_DELIVERY_KEYS: Final = ("deliver", "channel", "provider", "to", "bestEffortDeliver")
_AGENT_TURN_KEYS: Final = ("model", "thinking", "timeoutSeconds", "allowUnsafeExternalContent")


def normalize_job_create(raw: Json) -> dict[str, Json] | None:
    """Return a new job with its defaults; None if the input is not an object."""
    job = normalize_job_patch(raw)
    if job is None:
        return None
    job.setdefault("wakeMode", "now")
    job.setdefault("enabled", True)
    payload, schedule = job.get("payload"), job.get("schedule")
    kind = payload.get("kind") if isinstance(payload, dict) else None
    if "sessionTarget" not in job and kind in ("systemEvent", "agentTurn"):
        job["sessionTarget"] = "main" if kind == "systemEvent" else "isolated"
    if isinstance(schedule, dict):
        _add_schedule_defaults(job, schedule)
    if kind == "agentTurn" and job.get("sessionTarget") == "isolated":
        job.setdefault("delivery", {"mode": "announce"})
    if not job.get("name"):
        job["name"] = _infer_name(payload)
    return job


def _infer_name(payload: Json) -> str:
    """Return a name for a job without one: the start of its text."""
    text = (payload.get("message") or payload.get("text")) if isinstance(payload, dict) else ""
    lines = text.splitlines() if isinstance(text, str) else []
    return one_line(lines[0], _MAX_NAME_CHARS) if lines else "Cron job"


def normalize_job_patch(raw: Json) -> dict[str, Json] | None:
    """Return the changes to a job, without defaults; None if the input is not an object."""
    job = _unwrap(raw)
    if job is None:
        return None
    for key in ("name", "description"):
        if isinstance(job.get(key), str):
            job[key] = job[key].strip()
    _normalize_text(job, "agentId", normalize_agent_id)
    _normalize_text(job, "sessionKey", str)
    _normalize_flag(job, "enabled")
    _normalize_word(job, "sessionTarget", _SESSION_TARGETS)
    _normalize_word(job, "wakeMode", _WAKE_MODES)
    if isinstance(job.get("schedule"), Mapping):
        job["schedule"] = normalize_schedule(job["schedule"])
    _normalize_payload_of(job)
    return job


def _unwrap(raw: Json) -> dict[str, Json] | None:
    """Return the job of a request; a model often wraps it in `job` or `data`."""
    if not isinstance(raw, Mapping):
        return None
    for key in ("data", "job"):
        if isinstance(raw.get(key), Mapping):
            return dict(raw[key])
    return dict(raw)


def _normalize_text(job: dict[str, Json], key: str, normalize: Callable[[str], str]) -> None:
    """Normalise a text or a number; a blank text is removed.

    A null stays: it removes the value from a job.
    """
    value = job.get(key)
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)  # the id of a chat
    if not isinstance(value, str):
        return
    if text := value.strip():
        job[key] = normalize(text)
    else:
        del job[key]


def _normalize_flag(job: dict[str, Json], key: str) -> None:
    value = job.get(key)
    if isinstance(value, str) and value.strip().lower() in {"true", "false"}:
        job[key] = value.strip().lower() == "true"


def _normalize_word(job: dict[str, Json], key: str, words: frozenset[str]) -> None:
    value = job.get(key)
    if isinstance(value, str) and value.strip().lower() in words:
        job[key] = value.strip().lower()


def normalize_schedule(raw: Mapping[str, Json]) -> dict[str, Json]:
    """Return a schedule with its kind and with its time as an ISO text."""
    schedule = dict(raw)
    kind = schedule_kind(raw)
    if kind:
        schedule["kind"] = kind
    if kind == "at":
        at_ms = _at_ms(raw)
        if at_ms is not None:
            schedule["at"] = format_iso_ms(at_ms)
            schedule.pop("atMs", None)
    elif kind == "cron":
        if "expr" not in schedule and isinstance(schedule.get("cron"), str):
            schedule["expr"] = schedule.pop("cron")
        for key in ("expr", "tz"):
            if isinstance(schedule.get(key), str):
                schedule[key] = schedule[key].strip()
        stagger_ms = to_stagger_ms(schedule.get("staggerMs"))
        if stagger_ms is not None:
            schedule["staggerMs"] = stagger_ms
    return schedule


def _at_ms(raw: Mapping[str, Json]) -> int | None:
    for value in (raw.get("at"), raw.get("atMs")):
        if isinstance(value, str) and value.strip():
            return parse_absolute_time_ms(value)
        number = to_integer(value)
        if number is not None and number > 0:
            return parse_absolute_time_ms(str(number))
    return None


def _add_schedule_defaults(job: dict[str, Json], schedule: dict[str, Json]) -> None:
    if schedule.get("kind") == "at":
        job.setdefault("deleteAfterRun", True)
    expr = schedule.get("expr")
    if schedule.get("kind") == "cron" and isinstance(expr, str):
        stagger_ms = resolve_stagger_ms(CronSchedule(expr))
        if stagger_ms and schedule.get("staggerMs") is None:
            schedule["staggerMs"] = stagger_ms


def _normalize_payload_of(job: dict[str, Json]) -> None:
    """Normalise the payload and the delivery, which may be in each other's place."""
    payload = _payload_of(job)
    old: dict[str, Json] = {}
    if payload is not None:
        job["payload"] = payload
        if payload.get("kind") == "agentTurn":
            old = {key: payload[key] for key in _OLD_DELIVERY_KEYS if key in payload}
    if isinstance(job.get("delivery"), Mapping):
        job["delivery"] = _normalize_delivery(job["delivery"])
    elif delivery := _delivery_of(old):
        job["delivery"] = delivery
    else:
        return  # a channel alone stays in the payload: it names no delivery
    for key in old:
        job["payload"].pop(key)


def _payload_of(job: dict[str, Json]) -> dict[str, Json] | None:
    """Return the payload of a job, also of one that has its fields at the top level."""
    payload = _find_payload(job)
    if payload is None:
        return None
    _normalize_payload_kind(payload)
    if payload.get("kind") == "agentTurn":
        for key in (*_AGENT_TURN_KEYS, *_OLD_DELIVERY_KEYS):
            if key in job:
                payload.setdefault(key, job.pop(key))
    for key in ("message", "text"):
        if isinstance(payload.get(key), str):
            payload[key] = payload[key].strip()
    for key in ("model", "thinking"):
        _normalize_text(payload, key, str)
    return payload


def _find_payload(job: dict[str, Json]) -> dict[str, Json] | None:
    raw = job.get("payload")
    if isinstance(raw, Mapping):
        return dict(raw)
    if raw is None and isinstance(job.get("message"), str):
        return {"kind": "agentTurn", "message": job.pop("message")}
    if raw is None and isinstance(job.get("text"), str):
        return {"kind": "systemEvent", "text": job.pop("text")}
    return None


def _normalize_payload_kind(payload: dict[str, Json]) -> None:
    kind = payload.get("kind")
    if isinstance(kind, str):
        payload["kind"] = _PAYLOAD_KINDS.get(kind.strip().lower(), kind.strip())
    elif isinstance(payload.get("message"), str):
        payload["kind"] = "agentTurn"
    elif isinstance(payload.get("text"), str):
        payload["kind"] = "systemEvent"


def _normalize_delivery(raw: Mapping[str, Json]) -> dict[str, Json]:
    delivery = dict(raw)
    mode = delivery.get("mode")
    if isinstance(mode, str):
        delivery["mode"] = _DELIVERY_MODES.get(mode.strip().lower(), mode)
    _normalize_text(delivery, "channel", str.lower)
    for key in ("to", "accountId", "threadId"):
        _normalize_text(delivery, key, str)
    return delivery


def _delivery_of(old: Mapping[str, Json]) -> dict[str, Json]:
    """Return the delivery that old fields of a payload mean; empty if they mean none."""
    if old.get("deliver") is False:
        return {"mode": "none"}
    if old.get("deliver") is not True and not old.get("to"):
        return {}
    delivery = {
        "mode": "announce",
        "channel": old.get("channel") or old.get("provider"),
        "to": old.get("to"),
        "bestEffort": old.get("bestEffortDeliver"),
    }
    return _normalize_delivery({k: value for k, value in delivery.items() if value is not None})
