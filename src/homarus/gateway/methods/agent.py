"""One run, asked for and waited for, and who it is that answers."""

import asyncio
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field

from homarus.agent.prompt.identity_file import find_identity
from homarus.agent.reply.text import parse_reply
from homarus.agent.run import Outcome
from homarus.channels.roster import find_traits
from homarus.config.resolve import agent_settings, agents
from homarus.core.channel_traits import UNKNOWN_CHANNEL
from homarus.core.errors import InvalidRequest, Unavailable, UserError
from homarus.core.keys import agent_of, classify, normalize_agent_id, parse_agent_key
from homarus.core.message import Json, Usage
from homarus.core.text import one_line
from homarus.gateway.attachments import read_images
from homarus.gateway.avatars import avatar_url
from homarus.gateway.memo import BROKEN, RunFailed
from homarus.gateway.method import Call, Params, method
from homarus.gateway.methods.chat import clean
from homarus.gateway.params import Id, Label, Ms, Name, Seconds
from homarus.gateway.settings import set_label
from homarus.gateway.transcripts import start_afresh
from homarus.gateway.turn import Known, Turn, begin, check_policy, run_key, wishes
from homarus.sessions.commands import parse_command
from homarus.sessions.transcript import read_message
from homarus.store.journal import OPEN, Accepted
from homarus.store.place import is_session_id

_MAX_WAIT_S = 3_600.0
_GREETING = "A new session begins. Greet me in a sentence or two and ask what I would like to do."


class Provenance(Params):
    """Where the client says a message comes from. Noted by nobody: it is the client's word."""

    kind: Literal["external_user", "inter_session", "internal_system"]
    source_session_key: str | None = None
    source_channel: str | None = None
    source_tool: str | None = None


class AgentParams(Params):
    """A message and how to answer it; `idempotency_key` becomes the run's id."""

    message: Annotated[str, Field(min_length=1)]
    agent_id: Name | None = None
    to: str | None = None
    reply_to: str | None = None
    session_id: Name | None = None
    session_key: str | None = None
    thinking: Name | None = None
    model: Name | None = None
    deliver: bool | None = None
    attachments: list[Any] | None = None
    channel: str | None = None
    reply_channel: str | None = None
    account_id: str | None = None
    reply_account_id: str | None = None
    thread_id: str | None = None
    group_id: str | None = None
    group_channel: str | None = None
    group_space: str | None = None
    timeout: Seconds | None = None
    lane: str | None = None
    extra_system_prompt: str | None = None
    input_provenance: Provenance | None = None
    idempotency_key: Id
    label: Label | None = None
    spawned_by: str | None = None


@method("agent", scope="write", params=AgentParams)
async def agent(call: Call, params: AgentParams) -> Json:
    """Run an agent on a message. Answered twice: when it is accepted, and with the result."""
    run_id, memo = params.idempotency_key, call.gateway.memo
    _check_hints(params)
    key = await _key(call, params)
    if memo.runs.is_claimed(run_id):  # the same request came a moment ago
        await memo.runs.prepared(key)
    if (before := memo.answers.get(f"agent:{run_id}")) is not None:
        return before
    text, images = clean(params.message), read_images(params.attachments or ())
    asked = replace(wishes(params.thinking, params.timeout), model=_model(call, params.model))
    accepted = {"runId": run_id, "status": "accepted", "acceptedAt": call.host.clock.now_ms()}
    if going := memo.runs.going(run_id):
        call.accept(accepted)
        return _result(run_id, await _outcome(going.outcome))
    if run_id in call.host.live_runs():
        raise InvalidRequest(f"a run {run_id} is under way")
    with memo.runs.claim(run_id, key):
        await check_policy(call, key)
        spoken = parse_command(text)
        if spoken and spoken.command.name in {"new", "reset"}:
            if await call.host.store.journal.accepted(run_id) is None:  # else that was done then
                await start_afresh(call, key)
            text = spoken.args or _GREETING
        if params.label:
            await set_label(call, key, params.label)
        turn = Turn(key, text, images, run_id, channel="agent", wishes=asked)
        try:
            outcome = await begin(call, turn, lambda found: _remember(call, run_id, found))
        except Known as known:
            return await _known(call, known.row)
        call.accept(accepted)
    return _result(run_id, await _outcome(outcome))


async def _known(call: Call, row: Accepted) -> Json:
    """What became of a message that was accepted before this gateway began."""
    if row.state in OPEN:
        raise Unavailable(f"run {row.id} waits to be taken up; ask again in a moment")
    if row.state in {"reported", "parked"} and row.why != "aborted":
        raise RunFailed(row.id, row.why or BROKEN)
    entries = await call.host.store.entries(row.session_id) if row.reply else ()
    reply = next((read_message(entry) for entry in entries if entry.id == row.reply), None)
    origin = reply.origin if reply else None
    model = f"{origin.provider}/{origin.model}" if origin else ""
    status: Literal["answered", "aborted"] = "answered" if row.reply else "aborted"
    outcome = Outcome(
        row.id, row.session, status, text=reply.text if reply else "", model=model,
        session_id=row.session_id, usage=origin.usage if origin else Usage(),
    )  # fmt: skip
    return _result(row.id, outcome)


def _is_channel(hint: str) -> bool:
    return hint.strip().lower() == "last" or find_traits(hint) is not UNKNOWN_CHANNEL


def _check_hints(params: AgentParams) -> None:
    for hint in (params.channel, params.reply_channel):
        if hint and not _is_channel(hint):
            raise InvalidRequest(f"invalid agent params: unknown channel: {one_line(hint, 40)}")
    if params.deliver:
        raise Unavailable("deliver: replies go to the client that asks; channels are not built")
    if (params.extra_system_prompt or "").strip():
        raise Unavailable("extraSystemPrompt: additions to the system prompt are not built")


def _model(call: Call, named: str | None) -> str | None:
    """The model for this one run: for those who may choose a session's, and one they may name."""
    if named is None:
        return None
    if not call.caller.may("admin"):
        raise InvalidRequest("model: choosing one needs operator.admin")
    try:
        return call.host.models.check(named).ref
    except UserError as exc:
        raise InvalidRequest(f"invalid agent params: {exc}") from None


async def _key(call: Call, params: AgentParams) -> str:
    """The session that is meant: by key, by session id, by agent, else the main one."""
    config = call.host.loaded.config
    wanted = normalize_agent_id(params.agent_id) if params.agent_id else None
    if wanted and wanted not in agents(config):
        shown = one_line(params.agent_id or "", 64)
        raise InvalidRequest(f'invalid agent params: unknown agent id "{shown}"')
    asked = (params.session_key or "").strip()
    if classify(asked) == "malformed_agent":
        raise InvalidRequest(f'invalid agent params: malformed session key "{one_line(asked, 80)}"')
    named = parse_agent_key(asked.lower())
    if wanted and named and named.agent != wanted:
        raise InvalidRequest(
            f'invalid agent params: agent "{wanted}" does not match session key agent'
            f' "{one_line(named.agent, 64)}"'
        )
    if not asked and params.session_id:
        asked = await _by_id(call, params.session_id)
    try:
        return run_key(call, asked or None, wanted)[0]
    except UserError as exc:
        raise InvalidRequest(f"invalid agent params: {exc}") from None


async def _by_id(call: Call, session_id: str) -> str:
    """The session that has this id now; else one that is named by it."""
    if not is_session_id(session_id):
        raise InvalidRequest("invalid agent params: malformed sessionId")
    found = await call.host.store.sessions(session_id=session_id, limit=1)
    return found[0].key if found else session_id


async def _outcome(promise: asyncio.Future[Outcome]) -> Outcome | None:
    """Wait without holding: a client that leaves does not stop the run."""
    await asyncio.wait([promise])
    return None if promise.cancelled() or promise.exception() else promise.result()


def _remember(call: Call, run_id: str, outcome: Outcome | None) -> None:
    try:
        answer = _result(run_id, outcome)
    except RunFailed as exc:
        answer = exc
    chars = len(outcome.text) if outcome else 0
    call.gateway.memo.answers.put(f"agent:{run_id}", answer, chars)


def _result(run_id: str, outcome: Outcome | None) -> Json:
    """The final answer; a run that failed is raised."""
    if outcome is None:
        raise RunFailed(run_id, BROKEN)
    if outcome.error is not None:
        raise RunFailed(run_id, str(outcome.error))
    reply = parse_reply(outcome.text)
    shown = [{"text": reply.text, "mediaUrl": None}] if reply.text else []
    provider, _, model = outcome.model.partition("/")
    meta: dict[str, Json] = {
        "durationMs": outcome.duration_ms,
        "agentMeta": {
            "sessionId": outcome.session_id,
            "provider": provider,
            "model": model,
            **_usage(outcome.usage),
        },
        "aborted": outcome.status == "aborted",
    }
    result = {"payloads": shown, "meta": meta}
    return {"runId": run_id, "status": "ok", "summary": "completed", "result": result}


def _usage(usage: Usage) -> dict[str, Json]:
    last = {
        "input": usage.input,
        "output": usage.output,
        "cacheRead": usage.cache_read,
        "cacheWrite": usage.cache_write,
        "total": usage.total,
    }
    told = {name: count for name, count in last.items() if count or not name.startswith("cache")}
    return {"usage": told, "lastCallUsage": last, "promptTokens": usage.prompt}


class WaitParams(Params):
    """Which run, and for how long."""

    run_id: Id
    timeout_ms: Ms = 30_000


@method("agent.wait", scope="write", params=WaitParams)
async def wait(call: Call, params: WaitParams) -> Json:
    """Wait for a run to end; `timeout` when it has not, or was stopped."""
    timeout_s = min(params.timeout_ms / 1000, _MAX_WAIT_S)
    ended = await call.gateway.memo.runs.wait(params.run_id, timeout_s)
    if ended is None:
        return {"runId": params.run_id, "status": "timeout"}
    told: dict[str, Json] = {
        "runId": ended.run_id,
        "status": ended.status,
        "startedAt": ended.started_ms,
        "endedAt": ended.ended_ms,
    }
    return {**told, "error": ended.error} if ended.error else told


class IdentityParams(Params):
    """Whose identity."""

    agent_id: Name | None = None
    session_key: str | None = None


@method("agent.identity.get", scope="read", params=IdentityParams)
async def identity(call: Call, params: IdentityParams) -> Json:
    """How an agent presents itself: name, avatar, emoji."""
    asked = (params.session_key or "").strip()
    key = call.host.key(asked or None, params.agent_id if not asked else None)
    meant = normalize_agent_id(params.agent_id) if params.agent_id else agent_of(key)
    if asked and meant != agent_of(key):
        raise InvalidRequest(
            f'invalid agent.identity.get params: agent "{meant}" does not match the session key'
        )
    found = call.host.agent(meant)
    own = find_identity(agent_settings(call.host.loaded.config, call.host.paths, found.id))
    name = own.name or found.name
    avatar = avatar_url(found.id, own) or own.avatar or name[:1]
    shown = {"agentId": found.id, "name": name, "avatar": avatar}
    return {**shown, "emoji": own.emoji} if own.emoji else shown
