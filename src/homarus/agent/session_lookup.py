"""Find the sessions that the tools of a session reach, and refuse the others by name."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from homarus.agent.commands.context import CommandServices
from homarus.config.agent_settings import agent_ids
from homarus.config.schema import Config
from homarus.core.errors import ToolDeniedError, ToolError, UnknownNameError, UserError
from homarus.core.message import Json
from homarus.core.session_keys import agent_id_of, is_main, is_subagent, normalize_agent_id
from homarus.core.text import one_line
from homarus.policy.session_reach import SessionReach, resolve_reach
from homarus.store.base import SessionRecord, Store
from homarus.store.state_paths import is_session_id
from homarus.tools.tool import SessionReader, ToolContext

MAX_SCANNED: Final = 1_000
_MAX_ANCESTORS: Final = 8
_CURRENT: Final = frozenset({"", "current", "self"})
_FIX: Final = "call sessions_list for the sessions that are reached from here"


def reach_of(config: Config, ctx: ToolContext) -> SessionReach:
    """Return what the session of a tool call reaches."""
    caller = ctx.caller
    if ctx.sandbox is not None and not caller.is_sandboxed:
        caller = replace(caller, is_sandboxed=True)
    return resolve_reach(config, caller)


async def check_reached(sessions: SessionReader | None, reach: SessionReach, key: str) -> None:
    """Raise ToolDeniedError, with the setting that decides it, for a session out of reach."""
    ancestors = await find_ancestors(sessions, key) if sessions else ()
    if reason := reach.refusal(key, ancestors):
        raise ToolDeniedError(f"forbidden: session {one_line(key, 120)}: {reason}", fix=_FIX)


async def find_ancestors(sessions: SessionReader, key: str) -> list[str]:
    """Return the session that started a sub-agent's, the one that started that, and so on."""
    found = list[str]()
    while is_subagent(key) and len(found) < _MAX_ANCESTORS:
        parent = _spawned_by(await sessions.session(key))
        if not parent or parent in found:
            break
        found.append(parent)
        key = parent
    return found


def _spawned_by(record: SessionRecord | None) -> str:
    value = record.data.get("spawnedBy") if record else None
    return value if isinstance(value, str) else ""


async def resolve_session(services: CommandServices, ctx: ToolContext, name: str) -> str:
    """Return the stored key of a session that a model names by its key, a part of it, or its id.

    Raises ToolError for a name that is no key, or one of an agent that does not exist.
    """
    if name.strip().lower() in _CURRENT:
        return ctx.session_key
    if is_session_id(name.strip()) and (
        found := await services.store.sessions(session_id=name.strip(), limit=1)
    ):
        return found[0].key
    try:
        key = services.control.resolve_key(name, ctx.agent)
    except UserError as exc:
        raise ToolError(f"{one_line(name, 120)}: {exc}", fix=_FIX) from None
    if agent_id_of(key) not in agent_ids(services.get_config()):
        raise ToolError(f"session {one_line(key, 120)} is of an unknown agent", fix=_FIX)
    return key


def resolve_main(services: CommandServices, agent: str) -> str:
    """Return the key of the main session of an agent. Raises ToolError for an unknown one."""
    try:
        return services.control.resolve_key(None, agent)
    except UnknownNameError as exc:
        raise ToolError(str(exc), fix="call agents_list for the agents") from None


async def find_labelled(store: Store, reach: SessionReach, label: str, agent: str) -> str:
    """Return the key of the session with a label. Raises ToolError if none is reached."""
    wanted = normalize_agent_id(agent) if agent else None
    for record in await store.sessions(agent=wanted, where={"label": label.strip()}, limit=2):
        if not reach.refusal(record.key, await find_ancestors(store, record.key)):
            return record.key
    raise ToolError(
        f"no session with the label {one_line(label, 64)!r} is reached from here"
        f" (tools.sessions.visibility is {reach.visibility})",
        fix=_FIX,
    )


async def check_exists(store: Store, key: str) -> None:
    """Raise ToolError for a session that is not there; an agent's main session always is."""
    if is_main(key, agent_id_of(key)) or await store.session(key):
        return
    raise ToolError(f"there is no session {one_line(key, 120)}", fix=_FIX)


async def find_reached(store: Store, reach: SessionReach, since_ms: int = 0) -> list[SessionRecord]:
    """Return the sessions that a session reaches and that were used since a time, newest first."""
    found = {each.key: each for each in await _find_tree(store, reach)}
    if reach.visibility in ("agent", "all"):
        agent = reach.agent if reach.visibility == "agent" else None
        others = await store.sessions(agent=agent, since_ms=since_ms, limit=MAX_SCANNED)
        found |= {each.key: each for each in others if not reach.refusal(each.key)}
    used = [each for each in found.values() if each.updated_ms >= since_ms]
    return sorted(used, key=lambda each: each.updated_ms, reverse=True)


async def _find_tree(store: Store, reach: SessionReach) -> list[SessionRecord]:
    own = await store.session(reach.session_key)
    found: Mapping[str, SessionRecord] = {own.key: own} if own else {}
    if reach.visibility == "self":
        return list(found.values())
    pending = [reach.session_key]
    while pending and len(found) < MAX_SCANNED:
        where: Mapping[str, str] = {"spawnedBy": pending.pop()}
        children = await store.sessions(where=where, limit=MAX_SCANNED)
        spawned = (each for each in children if is_subagent(each.key) and each.key not in found)
        new = {each.key: each for each in spawned}
        pending += new
        found = {**found, **new}
    return list(found.values())


def text_field(record: SessionRecord, name: str) -> str:
    """Return a text of a session's entry, in one line; "" if it has none."""
    value: Json = record.data.get(name)
    return one_line(value, 120) if isinstance(value, str) else ""
