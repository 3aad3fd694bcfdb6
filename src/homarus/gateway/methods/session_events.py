"""Methods of protocol 4 for sessions: create and describe one, subscribe to their changes."""

from uuid import uuid4

from homarus.core.errors import InvalidRequestError
from homarus.core.message import Json
from homarus.gateway.method import MethodCall, NoParams, Params, method
from homarus.gateway.methods.sessions import load_row_texts
from homarus.gateway.params import Label, Name
from homarus.gateway.run_request import hook_context, resolve_session_key
from homarus.gateway.session_patch import parse_patch
from homarus.gateway.session_rows import newest_session_row
from homarus.gateway.session_subscriptions import MAX_KEYS_PER_CLIENT

_INHERITED = ("providerOverride", "modelOverride", "thinkingLevel", "verboseLevel")


class SessionCreateParams(Params):
    """The new session; without a key it gets one. It takes over the settings of its parent."""

    key: Name | None = None
    agent_id: Name | None = None
    label: Label | None = None
    model: Name | None = None
    thinking_level: Name | None = None
    parent_session_key: Name | None = None
    succeeds_parent: bool = False
    emit_command_hooks: bool = False


@method("sessions.create", scope="write", params=SessionCreateParams)
async def create(call: MethodCall, params: SessionCreateParams) -> Json:
    """Create a session, or return the one that has this key. Nothing is sent to a model."""
    store = call.services.store
    key = resolve_session_key(call, params.key or f"dashboard:{uuid4()}", params.agent_id)
    is_new = await store.session(key) is None
    session = await call.services.control.load(key)
    fields: dict[str, Json] = {}
    if params.parent_session_key and is_new:
        parent = call.services.control.resolve_key(params.parent_session_key)
        if params.emit_command_hooks:
            await call.services.hooks.command(hook_context(call, parent), "new", "")
        record = await store.session(parent)
        fields = {name: record.data[name] for name in _INHERITED if record and name in record.data}
    asked = params.model_dump(
        by_alias=True, exclude_unset=True, include={"label", "model", "thinking_level"}
    )
    await session.update(**fields, **await parse_patch(call, session, asked))
    await call.gateway.sessions.send_change(key, reason="create" if is_new else "patch")
    return {
        "ok": True,
        "key": key,
        "sessionId": session.session_id,
        "entry": dict(session.record.data),
        "runStarted": False,
    }


class SessionDescribeParams(Params):
    """Which session, and how much of it."""

    key: Name
    agent_id: Name | None = None
    include_derived_titles: bool = False
    include_last_message: bool = False


@method("sessions.describe", scope="read", params=SessionDescribeParams)
async def describe(call: MethodCall, params: SessionDescribeParams) -> Json:
    """One session as a row of `sessions.list`, with its active runs; null when there is none."""
    key = resolve_session_key(call, params.key, params.agent_id)
    record = await call.services.store.session(key)
    if record is None:
        return {"session": None}
    row = await newest_session_row(call.services, record)
    texts = await load_row_texts(
        call, record, title=params.include_derived_titles, last=params.include_last_message
    )
    return {"session": {**row, **texts}}


@method("sessions.subscribe", scope="read", params=NoParams)
async def subscribe(call: MethodCall, _params: NoParams) -> Json:
    """Receive `sessions.changed` and `session.message` events until the connection ends."""
    call.gateway.sessions.add(call.caller.conn_id)
    return {"subscribed": True}


@method("sessions.unsubscribe", scope="read", params=NoParams)
async def unsubscribe(call: MethodCall, _params: NoParams) -> Json:
    """End `sessions.subscribe`."""
    call.gateway.sessions.remove(call.caller.conn_id)
    return {"subscribed": False}


class SessionMessagesParams(Params):
    """Whose messages."""

    key: Name
    agent_id: Name | None = None


@method("sessions.messages.subscribe", scope="read", params=SessionMessagesParams)
async def subscribe_messages(call: MethodCall, params: SessionMessagesParams) -> Json:
    """Receive `session.message` events of one session until the connection ends."""
    key = resolve_session_key(call, params.key, params.agent_id)
    if not call.gateway.sessions.add(call.caller.conn_id, key):
        raise InvalidRequestError(
            f"this connection follows {MAX_KEYS_PER_CLIENT} sessions already: "
            "unsubscribe from some, or call sessions.subscribe for all of them"
        )
    return {"subscribed": True, "key": key}


@method("sessions.messages.unsubscribe", scope="read", params=SessionMessagesParams)
async def unsubscribe_messages(call: MethodCall, params: SessionMessagesParams) -> Json:
    """End `sessions.messages.subscribe`."""
    key = resolve_session_key(call, params.key, params.agent_id)
    call.gateway.sessions.remove(call.caller.conn_id, key)
    return {"subscribed": False, "key": key}
