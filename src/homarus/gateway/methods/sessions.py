"""The `sessions.*` methods: list, preview, resolve, patch, reset, delete and compact."""

import re
from collections.abc import Sequence
from typing import Annotated, Final, Literal

from pydantic import Field

from homarus.config.agent_settings import agent_ids
from homarus.core.errors import InvalidRequestError
from homarus.core.message import Json
from homarus.core.session_keys import is_cron_run, is_main, normalize_agent_id
from homarus.core.text import one_line
from homarus.gateway.frames import NEWEST_PROTOCOL
from homarus.gateway.history import clip, newest_path, role_of, show_entry, text_of
from homarus.gateway.method import MethodCall, Params, method
from homarus.gateway.params import Count, Label, Name, Seconds
from homarus.gateway.run_request import hook_context
from homarus.gateway.session_patch import parse_patch
from homarus.gateway.session_rows import (
    SessionDefaults,
    activity,
    find_subagent_fields,
    index_path,
    resolve_session_defaults,
    session_row,
)
from homarus.sessions.transcript import compaction
from homarus.store.base import SessionRecord, TranscriptEntry
from homarus.store.transcript_codec import archive_suffix

DEFAULT_LIMIT: Final = 200
MAX_LIMIT: Final = 2_000
_MAX_TITLED = 100  # rows whose transcript is read for a title or the last message
_TITLE_CHARS = 60
_LAST_CHARS = 200
_FIRST_ENTRIES = 20
_PREVIEWED_KEYS = 64
_MAX_ITEMS = 50
_MAX_ITEM_CHARS = 2_000


class SessionListParams(Params):
    """Which sessions to show, and how much of each."""

    limit: Count = DEFAULT_LIMIT
    active_minutes: Annotated[int, Field(ge=1, le=100_000_000)] | None = None
    include_global: bool = False
    include_unknown: bool = False
    include_derived_titles: bool = False
    include_last_message: bool = False
    label: Label | None = None
    spawned_by: Name | None = None
    agent_id: Name | None = None
    search: Annotated[str, Field(max_length=200)] = ""


@method("sessions.list", scope="read", params=SessionListParams)
async def list_(call: MethodCall, params: SessionListParams) -> Json:
    """Sessions, the newest first. Without a limit, the newest 200."""
    services, now_ms = call.services, call.services.clock.now_ms()
    limit = min(params.limit, MAX_LIMIT)
    since_ms = now_ms - params.active_minutes * 60_000 if params.active_minutes else 0
    where = {"label": params.label, "spawnedBy": params.spawned_by}
    # Some rows are hidden: a few more are loaded, so that the page is full.
    records = await services.store.sessions(
        agent=normalize_agent_id(params.agent_id) if params.agent_id else None,
        since_ms=since_ms,
        limit=limit + _HIDDEN_ROOM,
        search=params.search.strip(),
        where={name: value for name, value in where.items() if value},
    )
    hidden = {
        *(() if params.include_global else ("global",)),
        *(() if params.include_unknown else ("unknown",)),
    }
    shown = [r for r in records if r.key not in hidden and not is_cron_run(r.key)][:limit]
    defaults = {
        agent: await resolve_session_defaults(services, agent) for agent in {r.agent for r in shown}
    }
    ends = await find_subagent_fields(services, shown)
    is_newest = call.caller.protocol >= NEWEST_PROTOCOL
    rows = [
        session_row(r, defaults[r.agent])
        | (activity(services, r) if is_newest else {})
        | ends.get(r.key, {})
        for r in shown
    ]
    for record, each in list(zip(shown, rows, strict=True))[:_MAX_TITLED]:
        each.update(
            await load_row_texts(
                call,
                record,
                title=params.include_derived_titles,
                last=params.include_last_message,
            )
        )
    own = await resolve_session_defaults(services)
    known = agent_ids(services.loaded.config)
    return {
        "ts": now_ms,
        "path": index_path(services, known[0]) if len(known) == 1 else "(multiple)",
        "count": len(rows),
        "defaults": {
            "modelProvider": own.provider,
            "model": own.model,
            "contextTokens": own.window,
        },
        "sessions": rows,
    }


_HIDDEN_ROOM = 20


async def load_row_texts(
    call: MethodCall, record: SessionRecord, *, title: bool, last: bool
) -> dict[str, Json]:
    """Return title and last message of a row, where they are requested."""
    store, fields = call.services.store, dict[str, Json]()
    if title and (found := await _title(call, record)):
        fields["derivedTitle"] = found
    if last and record.session_id:
        newest = _with_text(await store.entries(record.session_id, limit=10, newest=True))
        if newest:
            fields["lastMessagePreview"] = clip(text_of(newest[-1]), _LAST_CHARS)
    return fields


# Lines that name the files of a message, with their paths on this machine.
_FILE_LINE = re.compile(r"^\[media (?:attached|missing|not described): .*\]$", re.MULTILINE)


async def _title(call: MethodCall, record: SessionRecord) -> str:
    """Return the session's name, else the start of its first user message."""
    for name in ("displayName", "subject"):
        given = record.data.get(name)
        if isinstance(given, str) and given.strip():
            return one_line(given, _TITLE_CHARS)
    if not record.session_id:
        return ""
    first = await call.services.store.entries(record.session_id, limit=_FIRST_ENTRIES)
    asked = [text_of(entry) for entry in first if role_of(entry) == "user"]
    text = next((text for text in asked if text), "")
    return one_line(_FILE_LINE.sub("", text).strip() or text, _TITLE_CHARS)


def _with_text(path: Sequence[TranscriptEntry]) -> list[TranscriptEntry]:
    """Return the entries with text for a person; tool results have none."""
    shown = [entry for entry in path if role_of(entry) in {"user", "assistant", "system"}]
    return [entry for entry in shown if text_of(entry)]


class SessionPreviewParams(Params):
    """Which sessions, and how much of each."""

    keys: Annotated[list[Name], Field(min_length=1, max_length=1_000)]
    limit: Count = 12
    max_chars: Annotated[int, Field(ge=20, le=2**53 - 1)] = 240


@method("sessions.preview", scope="read", params=SessionPreviewParams)
async def preview(call: MethodCall, params: SessionPreviewParams) -> Json:
    """The last few messages of some sessions, each cut short. At most 64 sessions."""
    keys = list(dict.fromkeys(params.keys))[:_PREVIEWED_KEYS]
    limit, chars = min(params.limit, _MAX_ITEMS), min(params.max_chars, _MAX_ITEM_CHARS)
    shown = [await _preview(call, key, limit, chars) for key in keys]
    return {"ts": call.services.clock.now_ms(), "previews": shown}


async def _preview(call: MethodCall, asked: str, limit: int, chars: int) -> dict[str, Json]:
    record = await call.services.store.session(call.services.control.resolve_key(asked))
    if record is None:
        return {"key": asked, "status": "missing", "items": []}
    path = await newest_path(call.services.store, record.session_id, limit)
    told = [entry for entry in path if show_entry(entry) and text_of(entry)][-limit:]
    items = [{"role": role_of(entry), "text": clip(text_of(entry), chars)} for entry in told]
    return {"key": asked, "status": "ok" if items else "empty", "items": items}


class SessionResolveParams(Params):
    """One of: a key, a session id, a label."""

    key: Name | None = None
    session_id: Name | None = None
    label: Label | None = None
    agent_id: Name | None = None
    spawned_by: Name | None = None
    include_global: bool = False
    include_unknown: bool = False


@method("sessions.resolve", scope="admin", params=SessionResolveParams, advertised=False)
async def resolve(call: MethodCall, params: SessionResolveParams) -> Json:
    """The key of the session that is meant."""
    given = [one for one in (params.key, params.session_id, params.label) if one]
    if len(given) != 1:
        raise InvalidRequestError("Provide either key, sessionId or label (not more than one)")
    found = await _resolved(call, params)
    found = [r for r in found if params.include_global or r.key != "global"]
    found = [r for r in found if params.include_unknown or r.key != "unknown"]
    if params.spawned_by:
        found = [r for r in found if r.data.get("spawnedBy") == params.spawned_by]
    if not found:
        raise InvalidRequestError(f"No session found: {one_line(given[0])}")
    if len(found) > 1:
        raise InvalidRequestError(f"Several sessions found: {one_line(given[0])}")
    return {"ok": True, "key": found[0].key}


async def _resolved(call: MethodCall, params: SessionResolveParams) -> list[SessionRecord]:
    store = call.services.store
    agent = normalize_agent_id(params.agent_id) if params.agent_id else None
    if params.key:
        record = await store.session(call.services.control.resolve_key(params.key, agent))
        return [record] if record else []
    if params.session_id:
        return list(await store.sessions(agent=agent, session_id=params.session_id, limit=2))
    return list(await store.sessions(agent=agent, where={"label": params.label or ""}, limit=2))


class SessionPatchParams(Params):
    """What to change; null takes a setting away."""

    key: Name
    label: Label | None = None
    thinking_level: Name | None = None
    verbose_level: Name | None = None
    reasoning_level: Name | None = None
    response_usage: Literal["off", "tokens", "full", "on"] | None = None
    elevated_level: Name | None = None
    exec_host: Name | None = None
    exec_security: Name | None = None
    exec_ask: Name | None = None
    exec_node: Name | None = None
    model: Name | None = None
    spawned_by: Name | None = None
    spawn_depth: Seconds | None = None
    send_policy: Literal["allow", "deny"] | None = None
    group_activation: Literal["mention", "always"] | None = None


@method("sessions.patch", scope="admin", params=SessionPatchParams)
async def patch(call: MethodCall, params: SessionPatchParams) -> Json:
    """Change settings of a session; one that was never used is made."""
    session = await call.services.control.load(call.services.control.resolve_key(params.key))
    asked = params.model_dump(by_alias=True, exclude_unset=True, exclude={"key"})
    await session.update(**await parse_patch(call, session, asked))
    defaults = await resolve_session_defaults(call.services, session.record.agent)
    await call.gateway.sessions.send_change(session.key, reason="patch")
    return {
        "ok": True,
        "path": index_path(call.services, session.record.agent),
        "key": session.key,
        "entry": await _entry(call, session.key),
        "resolved": _in_use(session.model, defaults),
    }


def _in_use(chosen: str | None, defaults: SessionDefaults) -> dict[str, Json]:
    if chosen is None:
        return {"modelProvider": defaults.provider, "model": defaults.model}
    provider, _, model = chosen.rpartition("/") if "/" not in chosen else chosen.partition("/")
    return {"modelProvider": provider or defaults.provider, "model": model}


async def _entry(call: MethodCall, key: str) -> Json:
    """Return a session's entry of `sessions.json`."""
    record = await call.services.store.session(key)
    return dict(record.data) if record else {}


class SessionResetParams(Params):
    """Which session, and why."""

    key: Name
    reason: Literal["new", "reset"] = "reset"


@method("sessions.reset", scope="admin", params=SessionResetParams)
async def reset(call: MethodCall, params: SessionResetParams) -> Json:
    """Stop what a session does and begin a new transcript; the old one is put aside."""
    key = call.services.control.resolve_key(params.key)
    where = hook_context(call, key)
    await call.services.hooks.command(where, params.reason, "")
    session = await call.services.control.reset(key, where, by="rpc")
    await call.services.control.stop_children(key)
    await session.update(inputTokens=0, outputTokens=0, totalTokens=0, totalTokensFresh=True)
    await call.gateway.sessions.send_change(key, reason=params.reason)
    return {"ok": True, "key": key, "entry": await _entry(call, key)}


class SessionDeleteParams(Params):
    """Which session, and whether its transcript is put aside."""

    key: Name
    delete_transcript: bool = True


@method("sessions.delete", scope="admin", params=SessionDeleteParams)
async def delete(call: MethodCall, params: SessionDeleteParams) -> Json:
    """Forget a session. Its transcript is renamed, not removed; a main session stays."""
    key = call.services.control.resolve_key(params.key)
    if any(is_main(key, agent) for agent in agent_ids(call.services.loaded.config)):
        raise InvalidRequestError(f"Cannot delete the main session ({key}).")
    await call.services.control.stop_children(key)
    async with call.services.control.exclusive(key, by="rpc"):
        now_ms, record = call.services.clock.now_ms(), await call.services.store.session(key)
        archived: list[Json] = []
        file = record.data.get("sessionFile") if record and params.delete_transcript else None
        if record and isinstance(file, str) and await call.services.store.leaf(record.session_id):
            archived = [f"{file}.{archive_suffix('deleted', now_ms)}"]
        keep = not params.delete_transcript
        deleted = await call.services.sessions.delete(key, now_ms, keep_transcript=keep)
    await call.gateway.sessions.send_change(key, reason="delete")
    return {"ok": True, "key": key, "deleted": deleted, "archived": archived}


class SessionCompactParams(Params):
    """Which session, and how many of its newest entries stay in view."""

    key: Name
    max_lines: Count = 400


@method("sessions.compact", scope="admin", params=SessionCompactParams)
async def compact(call: MethodCall, params: SessionCompactParams) -> Json:
    """Leave all but the newest entries out of what a model gets. The transcript keeps them."""
    key = call.services.control.resolve_key(params.key)
    record = await call.services.store.session(key)
    answer: dict[str, Json] = {"ok": True, "key": key, "compacted": False}
    if record is None or not record.session_id:
        return {**answer, "reason": "no sessionId"}
    if not await call.services.store.leaf(record.session_id):
        return {**answer, "reason": "no transcript"}
    async with call.services.control.exclusive(key, by="rpc"):
        path = await newest_path(call.services.store, record.session_id, params.max_lines)
        first = _first_kept(path, params.max_lines)
        if first is None:
            return {**answer, "kept": len(path)}
        session = await call.services.control.load(key)
        summary = "Older messages were left out by hand; they are in the transcript."
        await session.append(compaction(summary, first.id, session.context_tokens))
        await session.update(totalTokensFresh=False)  # until the next prompt is counted
        await session.read()
    await call.gateway.sessions.send_change(key, reason="compact")
    return {**answer, "compacted": True, "kept": len(path) - path.index(first)}


def _first_kept(path: Sequence[TranscriptEntry], count: int) -> TranscriptEntry | None:
    """Return the first entry to keep: a user message, so that calls keep their results."""
    if len(path) <= count:
        return None
    asked = (entry for entry in path[-count:] if role_of(entry) == "user")
    return next(asked, None)
