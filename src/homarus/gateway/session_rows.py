"""Sessions as rows of lists, built from session records, never from transcripts."""

from collections.abc import Mapping, Sequence
from typing import Final

from homarus.config.agent_settings import default_agent_id, resolve_agent_settings
from homarus.core.errors import UserError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json
from homarus.core.session_keys import GLOBAL_KEY, channel_of, global_key, is_subagent, main_key
from homarus.gateway.params import MAX_INT
from homarus.gateway.services import GatewayServices
from homarus.sessions.chat_fields import display_name
from homarus.sessions.queue_policy import resolve_queue_settings
from homarus.store.base import SessionRecord

# Fields of a record that a row shows unchanged, if they have the right type.
_TEXTS = (
    "label", "displayName", "channel", "groupId", "subject", "groupChannel", "space", "chatType",
    "thinkingLevel", "verboseLevel", "reasoningLevel", "elevatedLevel", "sendPolicy",
    "responseUsage", "lastChannel", "lastTo", "lastAccountId", "spawnedBy",
)  # fmt: skip
_FLAGS = ("systemSent", "abortedLastRun")
_COUNTS = ("inputTokens", "outputTokens")
_OBJECTS = ("origin", "deliveryContext")
_LEVELS = ("thinkingLevel", "verboseLevel", "reasoningLevel", "elevatedLevel")
_MAX_CHARS = 500
# How a sub-agent ended, in the words of the newest protocol; the others are the same.
_STATUSES: Final = {"timed_out": "timeout", "interrupted": "failed", "unknown": "failed"}


@dataclass(frozen=True, slots=True)
class SessionDefaults:
    """The model of a session that chose none; None when there is no model."""

    provider: str | None
    model: str | None
    window: int | None
    reasoning: bool = False


async def resolve_session_defaults(
    services: GatewayServices, agent: str | None = None
) -> SessionDefaults:
    """Return an agent's model, as configured or as available on this machine."""
    config = services.loaded.config
    try:
        named = resolve_agent_settings(
            config, services.paths, agent or default_agent_id(config)
        ).model
        model = services.models.check(named or (await services.models.default_model()).ref)
    except UserError:  # the config names an unknown model: lists are shown all the same
        return SessionDefaults(None, None, None)
    return SessionDefaults(model.provider, model.id, model.window, model.reasoning)


def index_path(services: GatewayServices, agent: str) -> str:
    """Return the file that lists an agent's sessions."""
    return str(services.paths.sessions_index(agent))


def row_kind(record: SessionRecord) -> str:
    """Return the kind of a session."""
    if record.key in {"unknown", GLOBAL_KEY, global_key(record.agent)}:
        return record.key.rpartition(":")[2]
    marks = record.key.split(":")
    is_group = record.data.get("chatType") in {"group", "channel"}
    return "group" if is_group or {"group", "channel"} & {*marks} else "direct"


def session_row(record: SessionRecord, defaults: SessionDefaults) -> dict[str, Json]:
    """Return one row of `sessions.list`."""
    data = dict(record.data)
    data["displayName"] = display_name(data, record.key)
    data.setdefault("channel", channel_of(record.key))
    shown: dict[str, Json] = {"key": record.key, "kind": row_kind(record)}
    shown |= {name: text[:_MAX_CHARS] for name in _TEXTS if (text := _text(data, name))}
    shown |= {name: data[name] for name in _OBJECTS if isinstance(data.get(name), dict)}
    shown["updatedAt"] = record.updated_ms
    if record.session_id:
        shown["sessionId"] = record.session_id
    if depth := _count(data, "spawnDepth"):
        shown["spawnDepth"] = depth
    shown |= _figures(record, defaults)
    shown["modelProvider"] = (
        _text(data, "providerOverride") or _text(data, "modelProvider") or defaults.provider
    )
    return shown


async def newest_session_row(services: GatewayServices, record: SessionRecord) -> dict[str, Json]:
    """Return a row with the fields that clients of the newest protocol expect in addition."""
    defaults = await resolve_session_defaults(services, record.agent)
    row = session_row(record, defaults) | activity(services, record)
    return row | (await find_subagent_fields(services, [record])).get(record.key, {})


async def find_subagent_fields(
    services: GatewayServices, records: Sequence[SessionRecord]
) -> dict[str, dict[str, Json]]:
    """Return what rows of sub-agents' sessions have in addition: how and when they ended."""
    keys = {record.key for record in records if is_subagent(record.key)}
    if not keys:
        return {}
    from homarus.store.subagents import list_subagents  # with the first sub-agent

    found = [one for one in await list_subagents(services.store) if one.child_key in keys]
    return {
        one.child_key: {
            "status": _STATUSES.get(one.status, one.status),
            "startedAt": one.started_ms or one.created_ms,
            **({"endedAt": one.ended_ms, "runtimeMs": one.runtime_ms} if one.ended_ms else {}),
        }
        for one in found
    }


def activity(services: GatewayServices, record: SessionRecord) -> dict[str, Json]:
    """Return whether a session has active runs, and how its last run ended."""
    active: list[Json] = list(services.control.active_runs(record.key))
    queue = services.loaded.config.messages.queue
    ended = "killed" if record.data.get("abortedLastRun") is True else "done"
    return {
        "agentId": record.agent,
        "isMain": record.key == main_key(record.agent),
        "status": "running" if active else ended,
        "hasActiveRun": bool(active),
        "activeRunIds": active,
        "queueDepth": services.control.queue_depth(record.key),
        "queueMode": resolve_queue_settings(queue, channel="webchat", entry=record.data).mode,
    }


def status_row(record: SessionRecord, defaults: SessionDefaults, now_ms: int) -> dict[str, Json]:
    """Return one row of `status`."""
    figures = _figures(record, defaults)
    used, window = figures.pop("totalTokens", None), figures["contextTokens"]
    left = max(0, window - used) if used is not None and window else None
    levels = {name: text for name in _LEVELS if (text := _text(record.data, name))}
    return {
        "agentId": record.agent,
        "key": record.key,
        "kind": row_kind(record),
        "sessionId": record.session_id,
        "updatedAt": record.updated_ms,
        "age": now_ms - record.updated_ms,
        **levels,
        **figures,
        "totalTokens": used,
        "remainingTokens": left,
        "percentUsed": min(999, round(100 * used / window)) if left is not None else None,
        "flags": _flags(record, levels),
    }


def _figures(record: SessionRecord, defaults: SessionDefaults) -> dict[str, Json]:
    data = record.data
    shown: dict[str, Json] = {
        name: data[name] for name in _FLAGS if isinstance(data.get(name), bool)
    }
    shown |= {name: data[name] for name in _COUNTS if _count(data, name) is not None}
    total = _count(data, "totalTokens")
    fresh = total is not None and data.get("totalTokensFresh") is not False
    if fresh:
        shown["totalTokens"] = total
    shown["totalTokensFresh"] = fresh
    shown["model"] = _text(data, "modelOverride") or _text(data, "model") or defaults.model
    shown["contextTokens"] = _count(data, "contextTokens") or defaults.window
    return shown


def _flags(record: SessionRecord, levels: Mapping[str, str]) -> list[str]:
    short = {"thinkingLevel": "think", "verboseLevel": "verbose", "reasoningLevel": "reasoning"}
    flags = [f"{short.get(name, 'elevated')}:{level}" for name, level in levels.items()]
    flags += ["system"] if record.data.get("systemSent") is True else []
    flags += ["aborted"] if record.data.get("abortedLastRun") is True else []
    return [*flags, f"id:{record.session_id}"]


def _text(data: Mapping[str, Json], name: str) -> str | None:
    value = data.get(name)
    return value if isinstance(value, str) and value else None


def _count(data: Mapping[str, Json], name: str) -> int | None:
    """Return a number that another program may have written, or None."""
    value = data.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if 0 <= value <= MAX_INT else None
