"""The methods `agent`, `agent.wait` and `agent.identity.get`."""

import asyncio
from dataclasses import replace
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field

from homarus import __version__
from homarus.agent.commands.catalog import parse_reset
from homarus.agent.prompt.identity_file import find_identity
from homarus.agent.reply.payloads import encode_result, is_answered
from homarus.agent.reply.reply_parser import ParsedReply
from homarus.agent.run import RunOutcome
from homarus.channels.registry import find_traits
from homarus.config.agent_settings import agent_ids, resolve_agent_settings
from homarus.core.channel_traits import UNKNOWN_CHANNEL
from homarus.core.errors import (
    HomarusError,
    InvalidRequestError,
    ToolError,
    UnavailableError,
    UserError,
)
from homarus.core.lanes import WIDTHS
from homarus.core.message import InputProvenance, Json, ProvenanceKind, Usage
from homarus.core.session_keys import agent_id_of, key_form, normalize_agent_id, parse_agent_key
from homarus.core.text import one_line
from homarus.gateway.attachments import max_image_bytes, read_images
from homarus.gateway.avatars import avatar_url
from homarus.gateway.method import MethodCall, Params, method
from homarus.gateway.methods.chat import clean
from homarus.gateway.params import Id, Label, Ms, Name, Seconds
from homarus.gateway.run_request import (
    DuplicateMessageError,
    RunRequest,
    check_policy,
    find_last_chat,
    hook_context,
    parse_run_options,
    resolve_run_session,
    resolve_session_key,
    start_run,
)
from homarus.gateway.run_tracker import CRASHED, RunFailedError
from homarus.gateway.session_patch import origin_fields, set_label
from homarus.sessions.chat_fields import named_group_fields
from homarus.sessions.levels import think_level
from homarus.sessions.transcript import decode_message
from homarus.store.journal import UNSETTLED, InboxRecord
from homarus.store.state_paths import is_session_id

_MAX_WAIT_S = 3_600.0
_MAX_PROMPT_CHARS = 32_000
_DEFAULT_CHANNEL = "whatsapp"
_GREETING = "A new session begins. Greet me in a sentence or two and ask what I would like to do."


SourceName: TypeAlias = Annotated[str, Field(max_length=512)]


class InputProvenanceParams(Params):
    """Where the client says a message comes from; the transcript records it."""

    kind: ProvenanceKind
    source_session_key: SourceName | None = None
    source_channel: SourceName | None = None
    source_tool: SourceName | None = None


class AgentParams(Params):
    """A message and how to answer it; `idempotency_key` becomes the run's id.

    `extra_system_prompt` is added to the system prompt of this run alone.
    """

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
    extra_system_prompt: Annotated[str, Field(max_length=_MAX_PROMPT_CHARS)] | None = None
    input_provenance: InputProvenanceParams | None = None
    idempotency_key: Id
    label: Label | None = None
    spawned_by: str | None = None


def _answer_error(call: MethodCall, raw: Json, error: HomarusError) -> Json:
    """Return an error as a result to OpenClaw's command, None to other clients.

    After any error from the gateway that command runs an agent of its own on the same files.
    """
    caller = call.caller
    if caller.mode != "cli" or caller.version == __version__:  # our own command
        return None
    run_id = raw.get("idempotencyKey") if isinstance(raw, dict) else None
    text = f"The gateway has no answer: {error}"
    payload = {"text": text, "mediaUrl": None, "isError": True}
    meta = {"aborted": True, "error": {"kind": error.code, "message": str(error)}}
    result = {"payloads": [payload], "meta": meta}
    return {"runId": run_id, "status": "error", "summary": text, "result": result}


@method("agent", scope="write", params=AgentParams, answer_error=_answer_error)
async def agent(call: MethodCall, params: AgentParams) -> Json:
    """Run an agent on a message. Answered twice: when it is accepted, and with the result."""
    run_id, runs = params.idempotency_key, call.gateway.runs
    _check_hints(call, params)
    key = await _key(call, params)
    if runs.is_claimed(run_id):  # the same request came a moment ago
        await runs.prepared(key)
    if (cached := call.gateway.answers.get(f"agent:{run_id}")) is not None:
        return cached
    max_bytes = max_image_bytes(call.services.loaded.config)
    text, images = clean(params.message), read_images(params.attachments or (), max_bytes)
    options = parse_run_options(params.thinking, params.timeout)
    options = replace(
        options,
        model=_model(call, params.model),
        extra_system_prompt=clean(params.extra_system_prompt or "").strip(),
        provenance=_provenance(params.input_provenance),
        lane=_lane(params.lane),
    )
    if params.deliver:
        options = replace(options, deliver_to=await _delivery_target(call, params, key))
    accepted = {"runId": run_id, "status": "accepted", "acceptedAt": call.services.clock.now_ms()}
    if pending := runs.find_pending(run_id):
        call.accept(accepted)
        return _result(run_id, await _outcome(pending.outcome))
    if run_id in call.services.control.active_runs():
        raise InvalidRequestError(f"a run {run_id} is under way")
    with runs.claim(run_id, key):
        await check_policy(call, key)
        if parsed := parse_reset(text, call.services.loaded.config.session.reset_triggers):
            if (
                await call.services.store.journal.inbox_record(run_id) is None
            ):  # else it was reset then
                where = hook_context(call, key, run_id)
                await call.services.hooks.command(where, parsed.command.name, parsed.args)
                await call.services.control.reset(key, where, by="rpc")
            text = parsed.args or _GREETING
        await _change_session(call, key, params)
        request = RunRequest(key, text, images, run_id, options=options, is_program=True)
        try:
            outcome = await start_run(call, request, lambda run: _cache(call, run_id, run))
        except DuplicateMessageError as exc:
            return await _duplicate_result(call, exc.row)
        call.accept(accepted)
    return _result(run_id, await _outcome(outcome))


async def _duplicate_result(call: MethodCall, row: InboxRecord) -> Json:
    """Return the result of a message that an earlier process accepted."""
    from homarus.agent.reply.reply_cleaner import clean_message

    if row.state == "suspended":
        fix = "answer it (homarus approvals list), then ask again"
        raise UnavailableError(f"run {row.id} waits for an approval", fix=fix)
    if row.state in UNSETTLED:
        raise UnavailableError(f"run {row.id} waits to be taken up; ask again in a moment")
    if row.state in {"reported", "parked"} and row.why != "aborted":
        raise RunFailedError(row.id, row.why or CRASHED)
    entries = await call.services.store.entries(row.session_id) if row.reply else ()
    message = next((decode_message(entry) for entry in entries if entry.id == row.reply), None)
    reply = clean_message(message) if message else ParsedReply("")
    origin = message.origin if message else None
    model = f"{origin.provider}/{origin.model}" if origin else ""
    status: Literal["answered", "aborted"] = "answered" if row.reply else "aborted"
    outcome = RunOutcome(
        row.id, row.session, status, text=reply.text, model=model,
        session_id=row.session_id, usage=origin.usage if origin else Usage(),
        media=reply.media, reply_to=reply.reply_to, stop=origin.stop if origin else "",
    )  # fmt: skip
    return _result(row.id, outcome)


def _is_channel(call: MethodCall, hint: str) -> bool:
    name = hint.strip().lower()
    if name == "last" or find_traits(hint) is not UNKNOWN_CHANNEL:
        return True
    return any(name == channel for channel, _ in call.services.messenger.accounts())


def _check_hints(call: MethodCall, params: AgentParams) -> None:
    for hint in (params.channel, params.reply_channel):
        if hint and not _is_channel(call, hint):
            raise InvalidRequestError(
                f"invalid agent params: unknown channel: {one_line(hint, 40)}"
            )


def _provenance(given: InputProvenanceParams | None) -> InputProvenance | None:
    if given is None:
        return None
    sources = (given.source_session_key, given.source_channel, given.source_tool)
    return InputProvenance(given.kind, *(clean(source or "").strip() for source in sources))


def _lane(named: str | None) -> str:
    """Return the lane of the run; one of a session would wait for itself, so it is no choice."""
    lane = (named or "").strip().lower()
    if lane and lane not in WIDTHS:
        known = ", ".join(WIDTHS)
        raise InvalidRequestError(
            f"invalid agent params: unknown lane {one_line(lane, 40)!r} (use {known})"
        )
    return "" if lane == "main" else lane


async def _change_session(call: MethodCall, key: str, params: AgentParams) -> None:
    """Save the label, the thinking level, the parent and the group, as OpenClaw does.

    The group of a session that another one started is that one's, unless another is named.
    """
    level = think_level(params.thinking) if params.thinking else None
    fields: dict[str, Json] = {"thinkingLevel": level} if level else {}
    group = {
        "groupId": params.group_id or "",
        "groupChannel": params.group_channel or "",
        "space": params.group_space or "",
    }
    parent = resolve_session_key(call, params.spawned_by) if params.spawned_by else ""
    if parent:
        session = await call.services.control.load(key)
        fields |= origin_fields(session, "spawnedBy", parent)
        record = await call.services.store.session(parent)
        stored = record.data if record else {}
        group = {name: text or str(stored.get(name) or "") for name, text in group.items()}
    if params.label:
        await set_label(call, key, params.label)
    if level or parent or any(group.values()):
        session = await call.services.control.load(key)
        channel = (params.channel or "").strip().lower() if any(group.values()) else ""
        named = channel.removeprefix("last"), *group.values()
        fields |= named_group_fields(session.record.data, *named)
        await session.update(**fields)


async def _delivery_target(call: MethodCall, params: AgentParams, key: str) -> tuple[str, ...]:
    """Return the chat that gets the reply: the given one, else that of the last message."""
    last = await find_last_chat(call, key)
    channel = (params.reply_channel or params.channel or "").strip().lower()
    running = {name for name, _ in call.services.messenger.accounts()}
    # OpenClaw's command names its default channel when it was given none.
    if channel == "last" or (channel == _DEFAULT_CHANNEL and channel not in running):
        channel = ""
    target = (params.reply_to or params.to or "").strip()
    if not target and not channel and last is None:
        raise InvalidRequestError(
            "invalid agent params: deliver: this conversation has no chat to deliver to;"
            " name one (--reply-channel, --reply-to)"
        )
    try:
        to = call.services.messenger.resolve_address(
            target,
            channel=channel,
            account=params.reply_account_id or params.account_id or "",
            thread=params.thread_id or "",
            here=last,
        )
    except (ToolError, UserError) as exc:
        raise InvalidRequestError(f"invalid agent params: deliver: {exc}") from None
    return to.channel, to.chat, to.account, to.thread or ""


def _model(call: MethodCall, named: str | None) -> str | None:
    """Return the model requested for this run; needs the admin scope."""
    if named is None:
        return None
    if not call.caller.may("admin"):
        raise InvalidRequestError("model: choosing one needs operator.admin")
    try:
        return call.services.models.check_typed(named).ref
    except UserError as exc:
        raise InvalidRequestError(f"invalid agent params: {exc}") from None


async def _key(call: MethodCall, params: AgentParams) -> str:
    """Return the session key: by key, session id or agent, else of the main session."""
    config = call.services.loaded.config
    wanted = normalize_agent_id(params.agent_id) if params.agent_id else None
    if wanted and wanted not in agent_ids(config):
        shown = one_line(params.agent_id or "", 64)
        raise InvalidRequestError(f'invalid agent params: unknown agent id "{shown}"')
    asked = (params.session_key or "").strip()
    if key_form(asked) == "malformed_agent":
        raise InvalidRequestError(
            f'invalid agent params: malformed session key "{one_line(asked, 80)}"'
        )
    named = parse_agent_key(asked.lower())
    if wanted and named and named.agent != wanted:
        raise InvalidRequestError(
            f'invalid agent params: agent "{wanted}" does not match session key agent'
            f' "{one_line(named.agent, 64)}"'
        )
    if not asked and params.session_id:
        asked = await _by_id(call, params.session_id)
    try:
        return resolve_run_session(call, asked or None, wanted)[0]
    except UserError as exc:
        raise InvalidRequestError(f"invalid agent params: {exc}") from None


async def _by_id(call: MethodCall, session_id: str) -> str:
    """Return the key of the session with this id; else the id itself, as a name."""
    if not is_session_id(session_id):
        raise InvalidRequestError("invalid agent params: malformed sessionId")
    found = await call.services.store.sessions(session_id=session_id, limit=1)
    return found[0].key if found else session_id


async def _outcome(run: asyncio.Future[RunOutcome]) -> RunOutcome | None:
    """Wait for a run; a client that disconnects does not stop it."""
    await asyncio.wait([run])
    return None if run.cancelled() or run.exception() else run.result()


def _cache(call: MethodCall, run_id: str, outcome: RunOutcome | None) -> None:
    try:
        answer = _result(run_id, outcome)
    except RunFailedError as exc:
        answer = exc
    chars = len(outcome.text) if outcome else 0
    call.gateway.answers.save(f"agent:{run_id}", answer, chars)


def _result(run_id: str, outcome: RunOutcome | None) -> Json:
    """Return the final answer; raises RunFailedError for a run that failed otherwise."""
    if outcome is None:
        raise RunFailedError(run_id, CRASHED)
    if not is_answered(outcome):
        raise RunFailedError(run_id, str(outcome.error), encode_result(run_id, outcome)["result"])
    return encode_result(run_id, outcome)


class RunWaitParams(Params):
    """Which run, and for how long."""

    run_id: Id
    timeout_ms: Ms = 30_000


@method("agent.wait", scope="write", params=RunWaitParams)
async def wait(call: MethodCall, params: RunWaitParams) -> Json:
    """Wait for a run to end; `timeout` when it has not, or was stopped."""
    timeout_s = min(params.timeout_ms / 1000, _MAX_WAIT_S)
    ended = await call.gateway.runs.wait(params.run_id, timeout_s)
    if ended is None:
        return {"runId": params.run_id, "status": "timeout"}
    payload: dict[str, Json] = {
        "runId": ended.run_id,
        "status": ended.status,
        "startedAt": ended.started_ms,
        "endedAt": ended.ended_ms,
    }
    return {**payload, "error": ended.error} if ended.error else payload


class AgentIdentityParams(Params):
    """Which agent, by its id or a session's key."""

    agent_id: Name | None = None
    session_key: str | None = None


@method("agent.identity.get", scope="read", params=AgentIdentityParams)
async def identity(call: MethodCall, params: AgentIdentityParams) -> Json:
    """How an agent presents itself: name, avatar, emoji."""
    asked = (params.session_key or "").strip()
    key = call.services.control.resolve_key(asked or None, params.agent_id if not asked else None)
    meant = normalize_agent_id(params.agent_id) if params.agent_id else agent_id_of(key)
    if asked and meant != agent_id_of(key):
        raise InvalidRequestError(
            f'invalid agent.identity.get params: agent "{meant}" does not match the session key'
        )
    found = call.services.agent(meant)
    own = find_identity(
        resolve_agent_settings(call.services.loaded.config, call.services.paths, found.id)
    )
    name = own.name or found.name
    avatar = avatar_url(found.id, own) or own.avatar or name[:1]
    shown = {"agentId": found.id, "name": name, "avatar": avatar}
    return {**shown, "emoji": own.emoji} if own.emoji else shown
