"""Methods for the usage of one session: its course over time, and message by message."""

from typing import Annotated

from pydantic import Field

from homarus.core.errors import InvalidRequestError
from homarus.core.message import Json
from homarus.core.text import one_line
from homarus.gateway.history import role_of, text_of
from homarus.gateway.method import MethodCall, Params, method
from homarus.gateway.params import Name
from homarus.gateway.usage_series import UsagePoint, entry_usage, usage_points
from homarus.store.base import TranscriptEntry

_MAX_POINTS = 200
_DEFAULT_LOGS = 200
_MAX_LOGS = 1_000
_MAX_TEXT_CHARS = 2_000


class SessionUsageParams(Params):
    """A session."""

    key: Name


@method("sessions.usage.timeseries", scope="admin", params=SessionUsageParams, advertised=False)
async def timeseries(call: MethodCall, params: SessionUsageParams) -> Json:
    """Tokens and cost of a session over time, with running totals. At most 200 points."""
    session_id = await _session_id(call, params.key)
    entries = await call.services.store.entries(session_id)
    points = usage_points(entries, _MAX_POINTS)
    return {"sessionId": session_id, "points": [_point(point) for point in points]}


class SessionUsageLogParams(SessionUsageParams):
    """A session, and how many of its messages, the newest."""

    limit: Annotated[int, Field(ge=1, le=_MAX_LOGS)] = _DEFAULT_LOGS


@method("sessions.usage.logs", scope="admin", params=SessionUsageLogParams, advertised=False)
async def logs(call: MethodCall, params: SessionUsageLogParams) -> Json:
    """The messages of a session, oldest first, each with its tokens and cost."""
    session_id = await _session_id(call, params.key)
    entries = await call.services.store.entries(session_id)
    found = [row for entry in entries if (row := _log_row(entry))]
    return {"logs": found[-params.limit :]}


async def _session_id(call: MethodCall, key: str) -> str:
    services = call.services
    record = await services.store.session(services.control.resolve_key(key))
    if record is None or not record.session_id:
        raise InvalidRequestError(
            f"there is no session {one_line(key, 120)!r}", fix="sessions.list shows them"
        )
    return record.session_id


def _point(point: UsagePoint) -> dict[str, Json]:
    usage = point.usage
    return {
        "timestamp": point.at_ms,
        "input": usage.input,
        "output": usage.output,
        "cacheRead": usage.cache_read,
        "cacheWrite": usage.cache_write,
        "totalTokens": usage.total,
        "cost": usage.cost,
        "cumulativeTokens": point.total_tokens,
        "cumulativeCost": point.total_cost,
    }


def _log_row(entry: TranscriptEntry) -> dict[str, Json] | None:
    """Return a message with its usage; None for an entry without text and tokens.

    The keys and the two lines before a tool result are OpenClaw's. It leaves out answers that only
    call tools; they are rows here, because they cost something.
    """
    role, text, usage = role_of(entry), text_of(entry), entry_usage(entry)
    if entry.type != "message" or role == "other":
        return None
    if role == "tool":
        name = one_line(str(entry.data["message"].get("toolName") or "?"), 64)
        text = f"[Tool: {name}]\n[Tool Result]\n{text}".rstrip()
    if not text and usage is None:
        return None
    row: dict[str, Json] = {
        "timestamp": entry.at_ms,
        "role": "toolResult" if role == "tool" else role,
        "content": text if len(text) <= _MAX_TEXT_CHARS else f"{text[:_MAX_TEXT_CHARS]}…",
    }
    if usage is not None:
        row |= {"tokens": usage.total, "cost": usage.cost}
    return row
