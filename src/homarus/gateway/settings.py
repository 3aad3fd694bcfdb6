"""The settings of a session that clients may patch: their values and how they are stored."""

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
    """Set a session's label; raises when another session has it."""
    label = await check_label(call, session_key, text)
    await (await call.host.control.load(session_key)).set_label(label)


async def check_label(call: Call, session_key: str, text: str) -> str:
    """Return the label, if no other session has it."""
    label = parse_session_label(text)
    found = await call.host.store.sessions(where={"label": label}, limit=2)
    if any(record.key != session_key for record in found):
        raise InvalidRequest(f"label already in use: {one_line(label)}")
    return label


async def read_patch(call: Call, session: Session, patch: Mapping[str, Json]) -> dict[str, Json]:
    """Return the fields to store for a patch; None removes a field."""
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
    """The origin is set once, and only for sessions that agents open."""
    stored = session.record.data.get(name)
    if value == stored:
        return {}
    if value is None or stored is not None:
        raise InvalidRequest(f"{name} cannot be changed once it is set")
    if not is_subagent(session.key):
        raise InvalidRequest(f"{name} is only for sessions of subagents")
    return {name: value}


async def _model(call: Call, session: Session, value: str | None) -> dict[str, Json]:
    """Return the model choice; the default model is stored as no choice."""
    cleared: dict[str, Json] = {"providerOverride": None, "modelOverride": None}
    if value is None:
        return cleared
    model = call.host.models.check(value)
    usual = await find_defaults(call.host, session.record.agent)
    if (usual.provider, usual.model) == (model.provider, model.id):
        return cleared
    return {"providerOverride": model.provider, "modelOverride": model.id}


async def _model_then(call: Call, session: Session, fields: Mapping[str, Json]) -> str:
    """Return the model that is used once these fields are stored."""
    chosen = session.model
    if "modelOverride" in fields:
        named = fields["modelOverride"]
        chosen = f"{fields['providerOverride']}/{named}" if named else None
    if chosen is None:
        usual = await find_defaults(call.host, session.record.agent)
        chosen = f"{usual.provider}/{usual.model}"
    return chosen
