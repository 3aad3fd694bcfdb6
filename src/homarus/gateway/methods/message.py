"""Methods for messages in chats: polls, and what operators do with messages and members.

The same rules hold as for `send`: the client is an operator and names the chat itself. Actions
against members need the scope of an administrator.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import Field, ValidationError

from homarus.core.chat_action import CHAT_ACTIONS, ChatAction, ChatActionName
from homarus.core.errors import InvalidRequestError, ToolError, UnavailableError, UserError
from homarus.core.message import Address, Extras, Json, Poll
from homarus.core.session_keys import normalize_account_id
from homarus.gateway.chat_address import find_address
from homarus.gateway.frames import first_error
from homarus.gateway.method import MethodCall, Params, method, missing_scope
from homarus.gateway.params import Id, Name
from homarus.gateway.services import GatewayServices
from homarus.tools.tool import Messenger

MAX_OPTIONS: Final = 12
MAX_POLL_S: Final = 7 * 86_400
MAX_RESULTS: Final = 200
_MODERATION: Final = frozenset({"kick", "ban", "timeout", "role-add", "role-remove"})
_NEEDS_MESSAGE: Final = frozenset({"react", "edit", "delete", "pin", "unpin", "reactions"})
_NEEDS_USER: Final = _MODERATION | {"member-info"}
_NEEDS_TEXT: Final = frozenset({"edit", "search", "sticker-send", "role-add"})
_HAS_NO_CHAT: Final = frozenset({"channel-list"})
ActionName: TypeAlias = ChatActionName | Literal["resolve", "react", "edit", "delete"]
_Text: TypeAlias = Annotated[str, Field(max_length=100_000)]
_Ref: TypeAlias = Annotated[str, Field(max_length=512)]


class PollParams(Params):
    """A poll and its chat; `idempotency_key` ensures that it is sent once."""

    to: Name
    question: Annotated[str, Field(min_length=1, max_length=2_000)]
    options: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=500)]],
        Field(min_length=2, max_length=MAX_OPTIONS),
    ]
    max_selections: Annotated[int, Field(ge=1, le=MAX_OPTIONS)] | None = None
    duration_seconds: Annotated[int, Field(ge=1, le=MAX_POLL_S)] | None = None
    duration_hours: Annotated[int, Field(ge=1, le=MAX_POLL_S // 3600)] | None = None
    silent: bool | None = None
    is_anonymous: bool | None = None
    thread_id: _Ref | None = None
    channel: _Ref | None = None
    account_id: _Ref | None = None
    idempotency_key: Id


@method("poll", scope="admin", params=PollParams, advertised=False)
async def poll(call: MethodCall, params: PollParams) -> Json:
    """Send a poll to a chat, once for one key, and wait a little for the service to take it."""
    if params.is_anonymous is False:
        raise InvalidRequestError("polls that show who voted are not built", fix="leave it out")
    to = find_address(
        call.services.messenger, params.to, params.channel, params.account_id, params.thread_id
    )
    seconds = params.duration_seconds or (params.duration_hours or 0) * 3600
    asked = Poll(params.question, tuple(params.options), seconds, (params.max_selections or 1) > 1)
    run = f"poll:{params.idempotency_key}"
    await _check_reuse(call, run, to)
    try:
        extras = Extras(silent=bool(params.silent))
        result = await call.services.messenger.send_poll(to, asked, extras, run)
    except ToolError as exc:
        raise InvalidRequestError(str(exc)) from exc
    if result.state == "failed":
        raise UnavailableError(f"the poll was not sent: {result.why}")
    return {
        "runId": params.idempotency_key,
        "messageId": result.message_id,
        "channel": to.channel,
        "chatId": to.chat,
        "status": result.state,
    }


class MessageActionParams(Params):
    """An action, and what it is about; `channel` may be in front of the target instead."""

    action: ActionName
    channel: _Ref | None = None
    account_id: _Ref | None = None
    params: dict[str, Json] = Field(default_factory=dict)
    idempotency_key: Id


class ActionDetails(Params):
    """What an action is about."""

    target: _Ref | None = None
    thread_id: _Ref | None = None
    message_id: _Ref | None = None
    message: _Text | None = None
    emoji: Annotated[str, Field(max_length=64)] | None = None
    remove: bool = False
    user_id: _Ref | None = None
    before: _Ref | None = None
    limit: Annotated[int, Field(ge=1, le=MAX_RESULTS)] = 20
    duration_seconds: Annotated[int, Field(ge=1, le=366 * 86_400)] | None = None


@method("message.action", scope="write", params=MessageActionParams)
async def action(call: MethodCall, params: MessageActionParams) -> Json:
    """React to, change and delete messages; read and search a chat; pins, threads and members.

    `resolve` only returns the address that a target names. A repeated key gets the first answer.
    """
    if params.action in _MODERATION and not call.caller.may("admin"):
        raise missing_scope(call.caller, "operator.admin")
    details = _read_details(params)
    services = call.services
    if params.action in _HAS_NO_CHAT:
        to = _any_address(services, params)
    else:
        account = params.account_id
        to = find_address(
            services.messenger, details.target or "", params.channel, account, details.thread_id
        )
    key = f"message.action:{call.caller.device_id}:{params.idempotency_key}"
    if (earlier := call.gateway.answers.get(key)) is not None:
        return earlier
    try:
        result = await _run(services.messenger, to, params, details)
    except (ToolError, UserError) as exc:  # with the fix: a client gets only the message
        raise InvalidRequestError(str(exc)) from exc
    answer = {
        "action": params.action,
        "channel": to.channel,
        "accountId": to.account,
        "to": to.chat,
        "threadId": to.thread,
        **result,
    }
    call.gateway.answers.save(key, answer)
    return answer


async def _run(
    messenger: Messenger, to: Address, params: MessageActionParams, details: ActionDetails
) -> dict[str, Json]:
    message_id, text = details.message_id or "", details.message or ""
    if params.action in CHAT_ACTIONS:
        key = params.idempotency_key
        return await messenger.run_chat_action(
            to,
            ChatAction(
                params.action, message_id, details.user_id or "", text, details.before or "",
                details.limit, details.duration_seconds or 0, details.remove, key,
            ),
        )  # fmt: skip
    emoji = "" if details.remove else details.emoji or ""
    changes: Mapping[str, Callable[[], Awaitable[None]]] = {
        "react": lambda: messenger.react(to, message_id, emoji),
        "edit": lambda: messenger.edit(to, message_id, text),
        "delete": lambda: messenger.delete(to, message_id),
    }
    if change := changes.get(params.action):
        await change()
        return {"messageId": message_id}
    return {}


def _read_details(params: MessageActionParams) -> ActionDetails:
    """Return what the action is about. Raises InvalidRequestError for what it lacks."""
    try:
        details = ActionDetails.model_validate(params.params)
    except ValidationError as exc:
        problem = first_error(exc)
        raise InvalidRequestError(f"invalid message.action params: {problem}") from None
    name = params.action
    lacking = [
        field
        for field, needed, value in (
            ("messageId", _NEEDS_MESSAGE, details.message_id),
            ("userId", _NEEDS_USER, details.user_id),
            ("message", _NEEDS_TEXT, details.message),
        )
        if name in needed and not (value or "").strip()
    ]
    if name == "react" and not details.emoji and not details.remove:
        lacking.append("emoji")
    if lacking:
        raise InvalidRequestError(f"{name} needs {' and '.join(lacking)}")
    return details


async def _check_reuse(call: MethodCall, run: str, to: Address) -> None:
    sent_before = await call.services.store.journal.outbox_record(f"{run}:0")
    if sent_before and sent_before.address != to:
        raise InvalidRequestError("this idempotencyKey was used for another chat")


def _any_address(services: GatewayServices, params: MessageActionParams) -> Address:
    """Return an account, for an action that is not about one chat."""
    wanted = (params.channel or "").strip().lower()
    account = normalize_account_id(params.account_id) if params.account_id else ""
    for channel, own in services.messenger.accounts():
        if wanted in {"", channel} and account in {"", own}:
            return Address(channel, "", own)
    raise InvalidRequestError(
        f"no account of {wanted or 'a channel'} is at work", fix="channels.status shows them"
    )
