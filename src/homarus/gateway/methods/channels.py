"""Methods for chat channels: status, sending, and logout."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, TypeAlias

from pydantic import Field

from homarus.config.agent_settings import default_agent_id
from homarus.core.errors import InvalidRequestError, ToolError, UnavailableError, UserError
from homarus.core.message import Address, Extras, Json, Media
from homarus.core.session_keys import agent_id_of, normalize_account_id
from homarus.gateway.channel_status import (
    by_channel,
    default_account,
    encode_channels_status,
    probe_all,
)
from homarus.gateway.method import MethodCall, Params, method
from homarus.gateway.params import Id, Ms, Name
from homarus.gateway.services import GatewayServices

PROBE_S, MOST_S = 10.0, 60.0  # default and longest duration of a probe
_Word: TypeAlias = Annotated[str, Field(max_length=512)]  # may be empty, which means absent


class ChannelStatusParams(Params):
    """Whether to probe the services, and for how long."""

    probe: bool = False
    timeout_ms: Ms | None = None


@method("channels.status", scope="read", params=ChannelStatusParams)
async def status(call: MethodCall, params: ChannelStatusParams) -> Json:
    """Every channel of the config and how its accounts are; with `probe` the services are asked."""
    host = call.host
    timeout_s = min(params.timeout_ms / 1000, MOST_S) if params.timeout_ms else PROBE_S
    probes = await probe_all(host, timeout_s) if params.probe else {}
    at_ms = host.clock.now_ms()
    return {"ts": at_ms, **encode_channels_status(host, probes, at_ms)}


class ChannelLogoutParams(Params):
    """One account; without a name, the default one."""

    channel: Name
    account_id: _Word | None = None


@method("channels.logout", scope="admin", params=ChannelLogoutParams)
async def logout(call: MethodCall, params: ChannelLogoutParams) -> Json:
    """Stop an account and forget the login it keeps; it signs in anew when it is next begun."""
    host = call.host
    channel, account = _resolve_channel(host, params.channel, params.account_id)
    file = host.paths.state / "credentials" / channel / f"{account}.json"
    if not await asyncio.to_thread(file.is_file):
        raise InvalidRequestError(
            f"{channel}:{account} keeps no login: what lets it in is in the config",
            fix=f"homarus channels remove {channel} --account {account}",
        )
    await host.channels.stop(channel, account)
    with suppress(FileNotFoundError):
        await asyncio.to_thread(file.unlink)
    return {"channel": channel, "accountId": account, "cleared": True}


class ChannelSendParams(Params):
    """A text and its chat; `idempotency_key` ensures that it is sent once."""

    to: Name
    message: Annotated[str, Field(max_length=100_000)] | None = None
    media_url: _Word | None = None
    media_urls: Annotated[list[_Word], Field(max_length=64)] | None = None
    gif_playback: bool | None = None
    channel: _Word | None = None
    account_id: _Word | None = None
    session_key: _Word | None = None
    idempotency_key: Id


@method("send", scope="write", params=ChannelSendParams)
async def send(call: MethodCall, params: ChannelSendParams) -> Json:
    """Send a message to a chat, and wait a little for the service to take it.

    The same key is sent once. What the service does not take at once is tried again later:
    `status` is then `queued`. Files are named by their paths in the workspace. With `sessionKey`
    the words are added to that session, as said by its agent.
    """
    host, text = call.host, (params.message or "").strip()
    names = [*([params.media_url] if params.media_url else ()), *(params.media_urls or ())]
    if not text and not names:
        raise InvalidRequestError("message or media required")
    session = host.control.resolve_key(params.session_key) if params.session_key else ""
    if session and await host.store.session(session) is None:
        raise InvalidRequestError("session not found")
    run = f"send:{params.idempotency_key}"
    try:
        to = _address(host, params)
        known = await host.store.journal.outbox_record(f"{run}:0")
        if known and known.address != to:
            raise InvalidRequestError("this idempotencyKey was used for another chat")
        extras = Extras(media=await _files(host, names, session))
        posted = await host.messenger.send(to, text, extras, run)
    except ToolError as exc:  # the text has the same audience in the session as in the chat
        raise InvalidRequestError(exc.message, fix=exc.fix) from exc
    if posted.state == "failed":
        raise UnavailableError(f"the message was not sent: {posted.why}")
    if session and text and not known:
        await host.control.inject(session, text)
    return {
        "runId": params.idempotency_key,
        "messageId": posted.message_id,
        "channel": to.channel,
        "chatId": to.chat,
        "status": posted.state,
    }


def _address(host: GatewayServices, params: ChannelSendParams) -> Address:
    account = normalize_account_id(params.account_id) if params.account_id else ""
    try:
        return host.messenger.resolve_address(
            params.to, channel=params.channel or "", account=account
        )
    except UserError as exc:
        raise InvalidRequestError(exc.message, fix=exc.fix) from exc


async def _files(host: GatewayServices, names: Sequence[str], session: str) -> tuple[Media, ...]:
    if not names:
        return ()
    agent = agent_id_of(session) if session else default_agent_id(host.loaded.config)
    files = await host.messenger.attach(names, host.agent(agent).workspace)
    if lost := next((file for file in files if file.problem), None):
        raise InvalidRequestError(f"{lost.name}: {lost.problem}")
    return files


def _resolve_channel(host: GatewayServices, channel: str, account: str | None) -> tuple[str, str]:
    channels = by_channel(host.channels.status())
    name = channel.strip().lower()
    if name not in channels:
        told = ", ".join(channels) or "none"
        raise InvalidRequestError(f"channel {channel!r} is not configured", fix=f"there is {told}")
    names = [line.account for line in channels[name]]
    meant = normalize_account_id(account) if account else default_account(channels[name])
    if meant not in names:
        raise InvalidRequestError(
            f"{name} has no account {account!r}", fix=f"it has {', '.join(names)}"
        )
    return name, meant
