"""Settings of a session that clients change: what each may be, and what it is stored as."""

from collections.abc import Mapping

from homarus.core.errors import InvalidRequest
from homarus.core.keys import is_subagent
from homarus.core.message import Json
from homarus.core.text import one_line
from homarus.gateway.method import Call
from homarus.gateway.rows import find_defaults
from homarus.sessions.session import Session, parse_session_label
from homarus.sessions.settings import check_thinking, to_field


async def set_label(call: Call, session_key: str, text: str) -> None:
    """Name a session; no two have the same name."""
    label = await check_label(call, session_key, text)
    await (await call.host.control.load(session_key)).set_label(label)


async def check_label(call: Call, session_key: str, text: str) -> str:
    """The label, when no other session has it."""
    label = parse_session_label(text)
    found = await call.host.store.sessions(where={"label": label}, limit=2)
    if any(record.key != session_key for record in found):
        raise InvalidRequest(f"label already in use: {one_line(label)}")
    return label


async def read_patch(call: Call, session: Session, patch: Mapping[str, Json]) -> dict[str, Json]:
    """The fields to store for what a client wants changed. None takes a field away."""
    fields: dict[str, Json] = {}
    for name, value in patch.items():
        if name in {"spawnedBy", "spawnDepth"}:
            fields |= _origin(session, name, value)
        elif name == "model":
            fields |= await _model(call, session, value)
        elif name == "label" and value is not None:
            fields[name] = await check_label(call, session.key, value)
        elif value is None:
            fields[name] = None
        else:
            fields[name] = to_field(name, value)
    if fields.get("thinkingLevel") == "xhigh":
        check_thinking("xhigh", await _model_then(call, session, fields))
    return fields


def _origin(session: Session, name: str, value: Json) -> dict[str, Json]:
    """Who opened a conversation is said once, and only of those that agents open."""
    stored = session.record.data.get(name)
    if value == stored:
        return {}
    if value is None or stored is not None:
        raise InvalidRequest(f"{name} cannot be changed once it is set")
    if not is_subagent(session.key):
        raise InvalidRequest(f"{name} is only for sessions of subagents")
    return {name: value}


async def _model(call: Call, session: Session, value: str | None) -> dict[str, Json]:
    """The choice of a model; the one that would be used anyway is no choice."""
    cleared: dict[str, Json] = {"providerOverride": None, "modelOverride": None}
    if value is None:
        return cleared
    model = call.host.models.check(value)
    usual = await find_defaults(call.host, session.record.agent)
    if (usual.provider, usual.model) == (model.provider, model.id):
        return cleared
    return {"providerOverride": model.provider, "modelOverride": model.id}


async def _model_then(call: Call, session: Session, fields: Mapping[str, Json]) -> str:
    """The model that answers once these fields are stored."""
    chosen = session.model
    if "modelOverride" in fields:
        named = fields["modelOverride"]
        chosen = f"{fields['providerOverride']}/{named}" if named else None
    if chosen is None:
        usual = await find_defaults(call.host, session.record.agent)
        chosen = f"{usual.provider}/{usual.model}"
    return chosen
