"""When a session is reset: daily at an hour, after an idle time, or by a person. Pure.

Freshness is checked when a message arrives; a session without messages is not reset. The default
is daily at 04:00, local time.
"""

import math
from collections.abc import Sequence
from datetime import datetime, timedelta, tzinfo
from typing import Literal, TypeAlias

from homarus.config import schema
from homarus.core.fast_dataclass import dataclass
from homarus.core.session_keys import is_cron, is_subagent
from homarus.store.base import SessionRecord

ResetType: TypeAlias = Literal["direct", "group", "thread"]

AT_HOUR = 4
IDLE_MINUTES = 60
_MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True)
class ResetPolicy:
    """When a session is reset. An idle time, if set, counts in both modes."""

    mode: Literal["daily", "idle"] = "daily"
    at_hour: int = AT_HOUR
    idle_minutes: int | None = None


@dataclass(frozen=True, slots=True)
class Freshness:
    """Whether a session is continued, and the times that decide it."""

    is_fresh: bool
    began_ms: int | None = None  # the last daily reset: it must have been used since
    expires_ms: int | None = None


def reset_type(key: str | None, *, is_group: bool = False, is_thread: bool = False) -> ResetType:
    """Return the kind of session by its key; a caller that knows more of its chat names that."""
    text = (key or "").lower()
    if is_thread or ":thread:" in text or ":topic:" in text:
        return "thread"
    return "group" if is_group or ":group:" in text or ":channel:" in text else "direct"


def reset_policy(
    config: schema.SessionConfig, kind: ResetType, *, own: schema.ResetConfig | None = None
) -> ResetPolicy:
    """Return the reset policy of a kind of session; `own`, of its channel, replaces the others."""
    by_type = None if own else _of_type(config.reset_by_type, kind)
    given = [own] if own else [one for one in (by_type, config.reset) if one]
    idle = None if own else config.idle_minutes
    only_idle = idle is not None and not (config.reset or config.reset_by_type)
    mode = next((one.mode for one in given if one.mode), "idle" if only_idle else "daily")
    at_hour = next((one.at_hour for one in given if one.at_hour is not None), AT_HOUR)
    minutes = next((one.idle_minutes for one in given if one.idle_minutes is not None), idle)
    if minutes is None and mode == "idle":
        minutes = IDLE_MINUTES
    return ResetPolicy(
        mode, _valid_hour(at_hour), None if minutes is None else max(int(minutes), 1)
    )


def _of_type(
    by_type: schema.ResetByTypeConfig | None, kind: ResetType
) -> schema.ResetConfig | None:
    if by_type is None:
        return None
    if kind == "direct":
        return by_type.direct or by_type.dm
    return by_type.group if kind == "group" else by_type.thread


def resolve_reset_policy(
    config: schema.SessionConfig, record: SessionRecord, channel: str = ""
) -> ResetPolicy:
    """Return the reset policy of a session for a message of this channel."""
    is_group = record.data.get("chatType") in ("group", "channel")
    kind = reset_type(record.key, is_group=is_group)
    names = {name.strip().lower(): rule for name, rule in config.reset_by_channel.items()}
    return reset_policy(config, kind, own=names.get(channel.strip().lower()))


def freshness(
    updated_ms: int, now_ms: int, policy: ResetPolicy, zone: tzinfo | None = None
) -> Freshness:
    """Return whether a session is still fresh; without `zone`, in local time."""
    began_ms = last_daily_reset_ms(now_ms, policy.at_hour, zone) if policy.mode == "daily" else None
    expires_ms = None
    if policy.idle_minutes is not None:
        expires_ms = updated_ms + policy.idle_minutes * _MINUTE_MS
    over = (began_ms is not None and updated_ms < began_ms) or (
        expires_ms is not None and now_ms > expires_ms
    )
    return Freshness(not over, began_ms, expires_ms)


def is_stale(record: SessionRecord, now_ms: int, policy: ResetPolicy) -> bool:
    """Return whether the next message resets the session.

    Never for a new session, and never for those of cron jobs and subagents, which end with their
    work.
    """
    if not record.version or is_cron(record.key) or is_subagent(record.key):
        return False
    return not freshness(record.updated_ms, now_ms, policy).is_fresh


def is_fresh(
    config: schema.SessionConfig, record: SessionRecord, channel: str, now_ms: int
) -> bool:
    """Return whether a message of this channel continues the session."""
    return not is_stale(record, now_ms, resolve_reset_policy(config, record, channel))


def last_daily_reset_ms(now_ms: int, at_hour: int, zone: tzinfo | None = None) -> int:
    """Return the time of the last daily reset."""
    now = datetime.fromtimestamp(now_ms / 1000, zone)
    began = now.replace(hour=_valid_hour(at_hour), minute=0, second=0, microsecond=0)
    if began > now:
        began -= timedelta(days=1)
    return round(began.timestamp() * 1000)


def _valid_hour(at_hour: float) -> int:
    return min(max(math.floor(at_hour), 0), 23)


def text_after_trigger(text: str, triggers: Sequence[str]) -> str | None:
    """Return the text after a reset trigger; None when the text does not start with one."""
    body = text.strip()
    for trigger in triggers:
        word = trigger.strip()
        if not word or not body.lower().startswith(word.lower()):
            continue
        rest = body[len(word) :]
        if not rest or rest[0].isspace():
            return rest.strip()
    return None
