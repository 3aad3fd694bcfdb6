"""A conversation as a person sees it: send, read back, stop, put in."""

import re
import unicodedata
from typing import Annotated, Any

from pydantic import Field

from homarus.core.errors import InvalidRequest
from homarus.core.keys import agent_of
from homarus.core.message import Json
from homarus.gateway.attachments import read_images
from homarus.gateway.history import newest_path, show_history
from homarus.gateway.memo import BROKEN, RunFailed
from homarus.gateway.method import Call, Params, Scope, method, missing_scope
from homarus.gateway.params import Id, Ms, Name, Words
from homarus.gateway.rows import find_defaults
from homarus.gateway.transcripts import abort_runs, inject, stop_runs
from homarus.gateway.turn import Known, Turn, begin, chat_event, check_policy, run_key, wishes
from homarus.sessions.commands import Spoken, is_abort_request_text, parse_command
from homarus.store.journal import OPEN, Accepted

_CONTROLS = re.compile(r"[\x01-\x08\x0b\x0c\x0e-\x1f\x7f]")
_DEFAULT_LIMIT = 200


class SendParams(Params):
    """A message; `idempotency_key` becomes the run's id."""

    session_key: Name
    message: str
    thinking: Name | None = None
    deliver: bool | None = None
    attachments: list[Any] | None = None
    timeout_ms: Ms | None = None
    idempotency_key: Id


@method("chat.send", scope="write", params=SendParams)
async def send(call: Call, params: SendParams) -> Json:
    """Send a message. Answered at once; the reply comes in `chat` events of the same run."""
    text, images = clean(params.message), read_images(params.attachments or ())
    if not text.strip() and not images:
        raise InvalidRequest("message or attachment required")
    key, _ = run_key(call, params.session_key)
    if is_abort_request_text(text):
        await call.gateway.memo.runs.prepared(key)
        stopped = await abort_runs(call, key, by="stop-command")
        return {"ok": True, "aborted": bool(stopped), "runIds": list(stopped)}
    run_id, memo = params.idempotency_key, call.gateway.memo
    is_going = memo.runs.going(run_id) or memo.runs.is_claimed(run_id)
    if is_going or run_id in call.host.live_runs():
        return {"runId": run_id, "status": "in_flight"}
    spoken = None if images else parse_command(text)
    if spoken:
        _check_right(call, spoken)
    turn = Turn(
        key,
        text,
        images,
        run_id,
        authority="owner" if call.caller.may("admin") else "authorised",
        wishes=wishes(params.thinking, (params.timeout_ms or 0) / 1000),
    )
    with memo.runs.claim(run_id, key):
        if spoken is None:
            await check_policy(call, key)
        try:
            await begin(call, turn)
        except Known as known:
            return _known(known.row)
    return {"runId": run_id, "status": "started"}


def _check_right(call: Call, spoken: Spoken) -> None:
    """Refuse a command that the caller may not give."""
    name, for_owner = spoken.command.name, spoken.command.owner_only
    scope: Scope = "approvals" if name == "approve" else "admin" if for_owner else "write"
    if not call.caller.may(scope):
        raise missing_scope(call.caller, f"operator.{scope}")


def clean(message: str) -> str:
    """The text in one form of Unicode, without characters that only steer a terminal."""
    if "\0" in message:
        raise InvalidRequest("message must not contain null bytes")
    return _CONTROLS.sub("", unicodedata.normalize("NFC", message))


def _known(row: Accepted) -> Json:
    """What became of a message that was accepted before."""
    if row.state in OPEN:
        return {"runId": row.id, "status": "in_flight"}
    if row.state in {"answered", "silent"} or row.why == "aborted":
        return {"runId": row.id, "status": "ok"}
    raise RunFailed(row.id, row.why or BROKEN)


class HistoryParams(Params):
    """Which session, and how much of it."""

    session_key: Name
    limit: Annotated[int, Field(ge=1, le=1000)] = _DEFAULT_LIMIT


@method("chat.history", scope="read", params=HistoryParams)
async def history(call: Call, params: HistoryParams) -> Json:
    """The newest messages of a session; what a live run has said so far follows as events."""
    key = call.host.key(params.session_key)
    record = await call.host.store.session(key)
    shown: dict[str, Json] = {"sessionKey": key, "messages": []}
    if record and record.session_id:
        path = await newest_path(call.host.store, record.session_id, params.limit)
        messages = show_history(path, params.limit)
        shown = {"sessionKey": key, "sessionId": record.session_id, "messages": messages}
    data = record.data if record else {}
    shown["thinkingLevel"] = await _thinking(call, key, data.get("thinkingLevel"))
    if isinstance(verbose := data.get("verboseLevel"), str):
        shown["verboseLevel"] = verbose
    call.gateway.catch_up(key, call.caller)
    return shown


async def _thinking(call: Call, key: str, chosen: Json) -> str:
    """The level in effect, as a run would find it."""
    if isinstance(chosen, str):
        return chosen
    agent, config = agent_of(key), call.host.loaded.config
    if config.agents.defaults.thinking_default:
        return config.agents.defaults.thinking_default
    return "low" if (await find_defaults(call.host, agent)).reasoning else "off"


class AbortParams(Params):
    """Which session; with `run_id`, only that run."""

    session_key: Name
    run_id: Id | None = None


@method("chat.abort", scope="write", params=AbortParams)
async def abort(call: Call, params: AbortParams) -> Json:
    """Stop a session's runs, or one of them. What was said so far stays."""
    key = call.host.key(params.session_key)
    going = call.gateway.memo.runs.going(params.run_id) if params.run_id else None
    if going and going.session_key != key:
        raise InvalidRequest("runId does not match sessionKey")
    await call.gateway.memo.runs.prepared(key)
    stopped = await stop_runs(call, key, params.run_id)
    return {"ok": True, "aborted": bool(stopped), "runIds": list(stopped)}


class InjectParams(Params):
    """What to add to which session."""

    session_key: Name
    message: Words
    label: Annotated[str, Field(max_length=100)] | None = None


@method("chat.inject", scope="admin", params=InjectParams, advertised=False)
async def put_in(call: Call, params: InjectParams) -> Json:
    """Add a note to a session as if the agent had said it; no model is asked."""
    key = call.host.key(params.session_key)
    if await call.host.store.session(key) is None:
        raise InvalidRequest("session not found")
    text = clean(params.message)
    label = " ".join(clean(params.label or "").split())
    entry_id, message = await inject(call, key, f"[{label}]\n\n{text}" if label else text)
    call.gateway.broadcast("chat", chat_event(f"inject-{entry_id}", key, 0, "final", message))
    return {"ok": True, "messageId": entry_id}
