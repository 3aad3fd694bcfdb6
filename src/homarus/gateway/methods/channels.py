"""Methods for chat channels: status, sending, and logout."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, TypeAlias

from pydantic import Field

from homarus.config.agent_settings import default_agent_id
from homarus.config.paths import openclaw_files_dir
from homarus.core.errors import InvalidRequestError, ToolError, UnavailableError
from homarus.core.message import Extras, Json, Media
from homarus.core.session_keys import agent_id_of, normalize_account_id
from homarus.gateway.channel_status import (
    by_channel,
    default_account,
    encode_channels_status,
    probe_all,
)
from homarus.gateway.chat_address import find_address
from homarus.gateway.method import MethodCall, Params, method
from homarus.gateway.params import Id, Ms, Name
from homarus.gateway.services import GatewayServices
from homarus.policy.workspace_access import FULL_ACCESS

DEFAULT_PROBE_S, MAX_PROBE_S = 10.0, 60.0  # default and longest duration of a probe
_OptionalName: TypeAlias = Annotated[str, Field(max_length=512)]  # "" is absent


class ChannelStatusParams(Params):
    """Whether to probe the services, and for how long."""

    probe: bool = False
    timeout_ms: Ms | None = None


@method("channels.status", scope="read", params=ChannelStatusParams)
async def status(call: MethodCall, params: ChannelStatusParams) -> Json:
    """Every channel of the config and how its accounts are; with `probe` the services are asked."""
    services = call.services
    timeout_s = min(params.timeout_ms / 1000, MAX_PROBE_S) if params.timeout_ms else DEFAULT_PROBE_S
    probes = await probe_all(services, timeout_s) if params.probe else {}
    at_ms = services.clock.now_ms()
    return {"ts": at_ms, **encode_channels_status(services, probes, at_ms)}


class ChannelLogoutParams(Params):
    """One account; without a name, the default one."""

    channel: Name
    account_id: _OptionalName | None = None


@method("channels.logout", scope="admin", params=ChannelLogoutParams)
async def logout(call: MethodCall, params: ChannelLogoutParams) -> Json:
    """Stop an account and forget the login it keeps; it signs in anew when it is next begun."""
    services = call.services
    channel, account = _resolve_channel(services, params.channel, params.account_id)
    folder = openclaw_files_dir(services.paths.state) / "credentials" / channel
    file = folder / f"{account}.json"
    if not await asyncio.to_thread(file.is_file):
        raise InvalidRequestError(
            f"{channel}:{account} keeps no login: what lets it in is in the config",
            fix=f"homarus channels remove {channel} --account {account}",
        )
    await services.channels.stop(channel, account)
    with suppress(FileNotFoundError):
        await asyncio.to_thread(file.unlink)
    return {"channel": channel, "accountId": account, "cleared": True}


@method("channels.start", scope="admin", params=ChannelLogoutParams)
async def start(call: MethodCall, params: ChannelLogoutParams) -> Json:
    """Start an account again, also one that was stopped or whose login failed."""
    services = call.services
    channel, account = _resolve_channel(services, params.channel, params.account_id)
    await services.channels.start(channel, account)
    return {"channel": channel, "accountId": account, "started": True}


class ChannelSendParams(Params):
    """A text and its chat; `idempotency_key` ensures that it is sent once."""

    to: Name
    message: Annotated[str, Field(max_length=100_000)] | None = None
    media_url: _OptionalName | None = None
    media_urls: Annotated[list[_OptionalName], Field(max_length=64)] | None = None
    gif_playback: bool | None = None
    channel: _OptionalName | None = None
    account_id: _OptionalName | None = None
    thread_id: _OptionalName | None = None
    session_key: _OptionalName | None = None
    reply_to_id: _OptionalName | None = None
    silent: bool | None = None
    idempotency_key: Id


@method("send", scope="write", params=ChannelSendParams)
async def send(call: MethodCall, params: ChannelSendParams) -> Json:
    """Send a message to a chat, and wait a little for the service to take it.

    The same key is sent once. What the service does not take at once is tried again later:
    `status` is then `queued`. Files are named by their paths in the workspace. With `sessionKey`
    the words are added to that session, as said by its agent.
    """
    services, text = call.services, (params.message or "").strip()
    names = [*([params.media_url] if params.media_url else ()), *(params.media_urls or ())]
    if not text and not names:
        raise InvalidRequestError("message or media required")
    session = services.control.resolve_key(params.session_key) if params.session_key else ""
    if session and await services.store.session(session) is None:
        raise InvalidRequestError("session not found")
    run = f"send:{params.idempotency_key}"
    try:
        to = find_address(
            services.messenger, params.to, params.channel, params.account_id, params.thread_id
        )
        sent_before = await services.store.journal.outbox_record(f"{run}:0")
        if sent_before and sent_before.address != to:
            raise InvalidRequestError("this idempotencyKey was used for another chat")
        extras = Extras(
            reply_to=params.reply_to_id or "",
            media=await _files(services, names, session),
            silent=bool(params.silent),
        )
        result = await services.messenger.send(to, text, extras, run)
    except ToolError as exc:  # the text has the same audience in the session as in the chat
        raise InvalidRequestError(exc.message, fix=exc.fix) from exc
    if result.state == "failed":
        raise UnavailableError(f"the message was not sent: {result.why}")
    if session and text and not sent_before:
        await services.control.inject(session, text)
    return {
        "runId": params.idempotency_key,
        "messageId": result.message_id,
        "channel": to.channel,
        "chatId": to.chat,
        "status": result.state,
    }


async def _files(
    services: GatewayServices, names: Sequence[str], session: str
) -> tuple[Media, ...]:
    if not names:
        return ()
    agent = agent_id_of(session) if session else default_agent_id(services.loaded.config)
    workspace = services.agent(agent).workspace
    # The caller is an operator: it may send every file, and names the chat itself.
    files = await services.messenger.attach(names, workspace, FULL_ACCESS)
    if failed_file := next((file for file in files if file.problem), None):
        raise InvalidRequestError(f"{failed_file.name}: {failed_file.problem}")
    return files


def _resolve_channel(
    services: GatewayServices, channel: str, account: str | None
) -> tuple[str, str]:
    channels = by_channel(services.channels.status())
    name = channel.strip().lower()
    if name not in channels:
        configured = ", ".join(channels) or "none"
        raise InvalidRequestError(
            f"channel {channel!r} is not configured", fix=f"there is {configured}"
        )
    names = [status.account for status in channels[name]]
    selected = normalize_account_id(account) if account else default_account(channels[name])
    if selected not in names:
        raise InvalidRequestError(
            f"{name} has no account {account!r}", fix=f"it has {', '.join(names)}"
        )
    return name, selected
