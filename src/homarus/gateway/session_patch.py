"""The settings of a session that clients may patch: their values and how they are stored."""

from collections.abc import Mapping

from homarus.core.errors import InvalidRequestError
from homarus.core.message import Json
from homarus.core.session_keys import agent_id_of, is_subagent
from homarus.core.text import one_line
from homarus.gateway.method import MethodCall
from homarus.gateway.session_rows import resolve_session_defaults
from homarus.policy.sandbox_settings import is_sandboxed
from homarus.sessions.session import Session, choice_fields, parse_session_label
from homarus.sessions.session_settings import check_exec_setting, check_thinking, to_stored_value


async def set_label(call: MethodCall, session_key: str, text: str) -> None:
    """Set a session's label; raises when another session has it."""
    label = await check_label(call, session_key, text)
    await (await call.services.control.load(session_key)).set_label(label)


async def check_label(call: MethodCall, session_key: str, text: str) -> str:
    """Return the label, if no other session has it."""
    label = parse_session_label(text)
    found = await call.services.store.sessions(where={"label": label}, limit=2)
    if any(record.key != session_key for record in found):
        raise InvalidRequestError(f"label already in use: {one_line(label)}")
    return label


async def parse_patch(
    call: MethodCall, session: Session, patch: Mapping[str, Json]
) -> dict[str, Json]:
    """Return the fields to store for a patch; None removes a field."""
    fields: dict[str, Json] = {}
    for name, value in patch.items():
        if name in {"spawnedBy", "spawnDepth"}:
            fields |= origin_fields(session, name, value)
        elif name == "model":
            fields |= await _model(call, session, value)
        elif name == "label" and value is not None:
            fields[name] = await check_label(call, session.key, value)
        elif value is None:
            fields[name] = None
        else:
            fields[name] = to_stored_value(name, value)
            has_sandbox = is_sandboxed(
                call.services.loaded.config, agent_id_of(session.key), session.key
            )
            check_exec_setting(name, fields[name], is_sandboxed=has_sandbox)
    if fields.get("thinkingLevel") == "xhigh":
        check_thinking("xhigh", await _model_after(call, session, fields))
    return fields


def origin_fields(session: Session, name: str, value: Json) -> dict[str, Json]:
    """Return the field that says who started a session: set once, and only of a sub-agent's."""
    stored = session.record.data.get(name)
    if value == stored:
        return {}
    if value is None or stored is not None:
        raise InvalidRequestError(f"{name} cannot be changed once it is set")
    if not is_subagent(session.key):
        raise InvalidRequestError(f"{name} is only for sessions of subagents")
    return {name: value}


async def _model(call: MethodCall, session: Session, value: str | None) -> dict[str, Json]:
    """Return the model choice; the default model is stored as no choice."""
    cleared = choice_fields(None, None)
    if value is None:
        return cleared
    model = call.services.models.check_typed(value)
    defaults = await resolve_session_defaults(call.services, session.record.agent)
    if (defaults.provider, defaults.model) == (model.provider, model.id):
        return cleared
    return choice_fields(model.provider, model.id)


async def _model_after(call: MethodCall, session: Session, fields: Mapping[str, Json]) -> str:
    """Return the model that is used once these fields are stored."""
    chosen = session.model
    if "modelOverride" in fields:
        named = fields["modelOverride"]
        chosen = f"{fields['providerOverride']}/{named}" if named else None
    if chosen is None:
        defaults = await resolve_session_defaults(call.services, session.record.agent)
        chosen = f"{defaults.provider}/{defaults.model}"
    return chosen
