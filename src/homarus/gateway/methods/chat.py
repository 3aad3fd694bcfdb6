"""The `chat.*` methods: send a message, read the history, stop a run, inject a message."""

import asyncio
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

from pydantic import Field

from homarus.agent.commands.catalog import ParsedCommand, is_abort_request_text, parse_command
from homarus.core.errors import InvalidRequestError, UserError
from homarus.core.message import Authority, Image, Json, Media
from homarus.core.session_keys import agent_id_of
from homarus.gateway.attachments import decode_image
from homarus.gateway.frames import NEWEST_PROTOCOL
from homarus.gateway.history import (
    MAX_TEXT_CHARS,
    MAX_WHOLE_CHARS,
    find_entry,
    has_older,
    images_of,
    newest_path,
    show_entry,
    show_history,
)
from homarus.gateway.method import MethodCall, Params, Scope, method, missing_scope
from homarus.gateway.params import Id, MessageText, Ms, Name
from homarus.gateway.run_request import (
    DuplicateMessageError,
    RunRequest,
    chat_event,
    check_policy,
    find_last_chat,
    hook_context,
    parse_run_options,
    resolve_run_session,
    resolve_session_key,
    start_run,
)
from homarus.gateway.run_tracker import CRASHED, RunFailedError
from homarus.gateway.session_rows import newest_session_row, resolve_session_defaults
from homarus.sessions.transcript import encode_message
from homarus.store.journal import UNSETTLED, InboxRecord

_CONTROLS = re.compile(r"[\x01-\x08\x0b\x0c\x0e-\x1f\x7f]")
_DEFAULT_LIMIT = 200


class ChatSendParams(Params):
    """A message; `idempotency_key` becomes the run's id.

    `session_id` is the transcript that the client shows. As in OpenClaw, the message goes to the
    current one of the session. With `deliver`, the reply is also sent to the chat that the session
    had its last message from, if that was a channel's; a command answers its sender alone.
    """

    session_key: Name
    agent_id: Name | None = None
    session_id: Name | None = None
    message: str
    thinking: Name | None = None
    deliver: bool | None = None
    attachments: list[Any] | None = None
    timeout_ms: Ms | None = None
    idempotency_key: Id


@method("chat.send", scope="write", params=ChatSendParams)
async def send(call: MethodCall, params: ChatSendParams) -> Json:
    """Send a message. Answered at once; the reply comes in `chat` events of the same run."""
    text, (images, media) = clean(params.message), await _read_attachments(call, params)
    if not text.strip() and not images and not media:
        raise InvalidRequestError("message or attachment required")
    key, _ = resolve_run_session(call, params.session_key, params.agent_id)
    run_id, runs = params.idempotency_key, call.gateway.runs
    if is_abort_request_text(text):
        await runs.prepared(key)
        stopped = await call.services.control.stop_and_wait(key, by="stop-command")
        children = await call.services.control.stop_children(key)
        # After the stop, which must not wait for a slow handler.
        await call.services.hooks.command(hook_context(call, key, run_id), "stop", "")
        return _stop_result(stopped, children)
    is_pending = runs.find_pending(run_id) or runs.is_claimed(run_id)
    if is_pending or run_id in call.services.control.active_runs():
        return {"runId": run_id, "status": "in_flight"}
    parsed = None if images or media else parse_command(text)
    if parsed:
        _check_scope(call, parsed)
    options = parse_run_options(params.thinking, (params.timeout_ms or 0) / 1000)
    if params.deliver and parsed is None and (to := await find_last_chat(call, key)):
        options = replace(options, deliver_to=(to.channel, to.chat, to.account, to.thread or ""))
    request = RunRequest(
        key,
        text,
        images,
        run_id,
        authority=_authority(call, parsed),
        options=options,
        media=media,
    )
    with runs.claim(run_id, key):
        if parsed is None:
            await check_policy(call, key)
        try:
            await start_run(call, request)
        except DuplicateMessageError as exc:
            return _duplicate_status(exc.row)
    return {"runId": run_id, "status": "started"}


async def _read_attachments(
    call: MethodCall, params: ChatSendParams
) -> tuple[tuple[Image, ...], tuple[Media, ...]]:
    """Return the images of a message, and its other files, which are stored for the agent."""
    if not params.attachments:
        return (), ()
    from homarus.gateway.attachments import read_files

    config = call.services.loaded.config
    images, files = read_files(params.attachments, config)
    if not files:
        return images, ()
    from homarus.channels.media import MediaDownloader

    folder = MediaDownloader(call.services.paths.state, call.services.clock.now_ms)
    return images, tuple([await asyncio.to_thread(file.save, folder) for file in files])


def _authority(call: MethodCall, parsed: ParsedCommand | None) -> Authority:
    """Return the authority of a message; to answer approvals, their scope is enough."""
    is_answer = parsed is not None and parsed.command.name == "approve"
    scope: Scope = "approvals" if is_answer else "admin"
    return "owner" if call.caller.may(scope) else "authorised"


def _check_scope(call: MethodCall, parsed: ParsedCommand) -> None:
    """Raise when the caller lacks the scope that a command needs."""
    name, for_owner = parsed.command.name, parsed.command.owner_only
    scope: Scope = "approvals" if name == "approve" else "admin" if for_owner else "write"
    if not call.caller.may(scope):
        raise missing_scope(call.caller, f"operator.{scope}")


def clean(message: str) -> str:
    """Return the text in NFC, without terminal control characters."""
    if "\0" in message:
        raise InvalidRequestError("message must not contain null bytes")
    return _CONTROLS.sub("", unicodedata.normalize("NFC", message))


def _duplicate_status(row: InboxRecord) -> Json:
    """Return the state of a message that was accepted before; raises when its run failed."""
    if row.state in UNSETTLED:
        return {"runId": row.id, "status": "in_flight"}
    if row.state in {"answered", "silent"} or row.why == "aborted":
        return {"runId": row.id, "status": "ok"}
    raise RunFailedError(row.id, row.why or CRASHED)


class ChatHistoryParams(Params):
    """Which session, and how much of it.

    With `max_chars` or `before`, every message has its id: `before` one, the older ones are read.
    """

    session_key: Name
    agent_id: Name | None = None
    limit: Annotated[int, Field(ge=1, le=1000)] = _DEFAULT_LIMIT
    max_chars: Annotated[int, Field(ge=1, le=500_000)] | None = None
    before: Name | None = None

    @property
    def text_chars(self) -> int | None:
        """How long a text may be when messages are to have ids; None when they have none."""
        return self.max_chars or (MAX_TEXT_CHARS if self.before else None)


@method("chat.history", scope="read", params=ChatHistoryParams)
async def history(call: MethodCall, params: ChatHistoryParams) -> Json:
    """Return the newest messages of a session; events of the active run so far follow."""
    key = resolve_session_key(call, params.session_key, params.agent_id)
    record = await call.services.store.session(key)
    shown: dict[str, Json] = {"sessionKey": key, "messages": []}
    if record and record.session_id:
        store, limit, session_id = call.services.store, params.limit, record.session_id
        path = await newest_path(store, session_id, limit, params.before)
        messages = show_history(path, limit, params.text_chars)
        shown = {"sessionKey": key, "sessionId": record.session_id, "messages": messages}
        if params.text_chars:
            shown["hasMore"] = has_older(path, messages)
    data = record.data if record else {}
    shown["thinkingLevel"] = await _thinking(call, key, data)
    if isinstance(verbose := data.get("verboseLevel"), str):
        shown["verboseLevel"] = verbose
    is_newest = call.caller.protocol >= NEWEST_PROTOCOL
    if is_newest and record:
        shown["sessionInfo"] = await newest_session_row(call.services, record)
    if is_newest or params.text_chars:
        for message in shown["messages"]:
            call.gateway.runs.add_message_key(key, message)
    if params.before is None:
        call.gateway.catch_up(key, call.caller)
    return shown


class ChatMessageGetParams(Params):
    """One message of a session by its id; with `index` or `media`, one image of it."""

    session_key: Name
    agent_id: Name | None = None
    message_id: Name
    max_chars: Annotated[int, Field(ge=1, le=MAX_WHOLE_CHARS)] = MAX_WHOLE_CHARS
    index: Annotated[int, Field(ge=0)] | None = None
    media: Annotated[str, Field(min_length=1, max_length=4_096)] | None = None


@method("chat.message.get", scope="read", params=ChatMessageGetParams, advertised=False)
async def get_message(call: MethodCall, params: ChatMessageGetParams) -> Json:
    """Return a message whose text `chat.history` has cut, or one of its images."""
    key = resolve_session_key(call, params.session_key, params.agent_id)
    record = await call.services.store.session(key)
    entry = None
    if record and record.session_id:
        entry = await find_entry(call.services.store, record.session_id, params.message_id)
    message = show_entry(entry, params.max_chars) if entry else None
    if entry is None or message is None:
        return {"ok": False, "unavailableReason": "not_found"}
    if params.index is None and params.media is None:
        return {"ok": True, "message": message}
    image = None
    if params.index is not None:
        image = decode_image(images_of(entry).get(params.index, ""))
    elif {"type": "media", "path": params.media} in message["content"]:
        image = await asyncio.to_thread(_read_media, call, key, params.media or "")
    if image is None:
        return {"ok": False, "unavailableReason": "not_visible"}
    return {"ok": True, "image": {"type": "image", "mimeType": image.mime, "data": image.data}}


def _read_media(call: MethodCall, key: str, path: str) -> Image | None:
    """Return an image of the files that the session's tools see; None for any other file."""
    from homarus.agent.context.image_refs import workspace_reader
    from homarus.policy.workspace_access import FULL_ACCESS, session_access

    agent = call.services.agent(agent_id_of(key))
    sandbox = call.services.open_sandbox(agent, key, session_access(key))
    return workspace_reader(agent.workspace, FULL_ACCESS, sandbox)(path)


async def _thinking(call: MethodCall, key: str, data: Mapping[str, Json]) -> str:
    """Return the thinking level that a run would use, with the model of the session."""
    agent, config = agent_id_of(key), call.services.loaded.config
    chosen = data.get("thinkingLevel") or config.agents.defaults.thinking_default
    if isinstance(chosen, str):
        return chosen
    ref = f"{data.get('providerOverride')}/{data.get('modelOverride')}"
    try:
        return call.services.models.check(ref).default_thinking
    except UserError:  # it has no model of its own, or one that is no longer there
        return "low" if (await resolve_session_defaults(call.services, agent)).reasoning else "off"


class ChatAbortParams(Params):
    """Which session; with `run_id`, only that run. No run is a side run that could be kept."""

    session_key: Name
    agent_id: Name | None = None
    run_id: Id | None = None
    preserve_side_runs: bool = False


@method("chat.abort", scope="write", params=ChatAbortParams)
async def abort(call: MethodCall, params: ChatAbortParams) -> Json:
    """Stop a session's runs, or one of them. What was said so far stays."""
    key = resolve_session_key(call, params.session_key, params.agent_id)
    runs = call.gateway.runs
    pending = runs.find_pending(params.run_id) if params.run_id else None
    if pending and pending.session_key != key:
        raise InvalidRequestError("runId does not match sessionKey")
    await runs.prepared(key)
    control = call.services.control
    # A message that only waits did not start the sub-agents.
    is_for_session = params.run_id is None or params.run_id in control.active_runs(key)
    stopped = await control.stop(key, params.run_id, by="rpc")
    return _stop_result(stopped, await control.stop_children(key) if is_for_session else 0)


def _stop_result(stopped: Sequence[str], children: int) -> dict[str, Json]:
    """Return what was stopped: runs, and the sub-agents of the session if it had some."""
    result: dict[str, Json] = {"ok": True, "aborted": bool(stopped or children)}
    result["runIds"] = list(stopped)
    return {**result, "subagentsStopped": children} if children else result


class ChatInjectParams(Params):
    """What to add to which session."""

    session_key: Name
    message: MessageText
    label: Annotated[str, Field(max_length=100)] | None = None


@method("chat.inject", scope="admin", params=ChatInjectParams, advertised=False)
async def inject(call: MethodCall, params: ChatInjectParams) -> Json:
    """Add a note to a session as if the agent had said it; no model is asked."""
    key = call.services.control.resolve_key(params.session_key)
    if await call.services.store.session(key) is None:
        raise InvalidRequestError("session not found")
    text = clean(params.message)
    label = " ".join(clean(params.label or "").split())
    noted = f"[{label}]\n\n{text}" if label else text
    entry_id, message = await call.services.control.inject(key, noted)
    payload = chat_event(f"inject-{entry_id}", key, 0, "final", encode_message(message))
    call.gateway.broadcast("chat", payload)
    return {"ok": True, "messageId": entry_id}
