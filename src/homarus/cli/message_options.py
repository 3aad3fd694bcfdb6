"""Which chat a command of `homarus message` is about, and its request to the gateway."""

import asyncio
import json
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, TypeVar
from uuid import uuid4

import click

from homarus.cli.gateway_options import (
    GatewayOptions,
    as_json_option,
    gateway_options,
    is_gateway_running,
    open_gateway,
)
from homarus.cli.options import channel_option
from homarus.core.errors import UserError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json

T = TypeVar("T")
_TIMEOUT_S = 60.0  # a service may take half a minute


@dataclass(frozen=True, slots=True)
class ChatTarget:
    """A chat as it was named on the command line."""

    target: str
    channel: str | None = None
    account: str | None = None
    thread_id: str | None = None

    def encode(self) -> dict[str, Json]:
        """Return the channel and the account, as far as they are given."""
        given = {"channel": self.channel, "accountId": self.account}
        return {name: value for name, value in given.items() if value}


def chat_options(function: Callable[..., T]) -> Callable[..., T]:
    """Add `--target`, `--channel`, `--account` and `--thread-id`, as `target`."""

    @wraps(function)
    def with_target(
        *args: Any,
        target: str,
        channel: str | None,
        account: str | None,
        thread_id: str | None,
        **named: Any,
    ) -> T:
        return function(*args, target=ChatTarget(target, channel, account, thread_id), **named)

    wrapped: Callable[..., T] = with_target
    wrapped = click.option("--thread-id", metavar="ID", help="The thread or topic in the chat.")(
        wrapped
    )
    wrapped = click.option("--account", metavar="ID", help="Which of our accounts there.")(wrapped)
    wrapped = channel_option(
        "The chat service.", show_default="the one that the target belongs to"
    )(wrapped)
    return click.option(
        "--target", metavar="CHAT", required=True,
        help="The chat: an id, CHANNEL:ID, #room or @person.",
    )(wrapped)  # fmt: skip


def action_options(function: Callable[..., T]) -> Callable[..., T]:
    """Add `--json` and the options of a gateway's connection."""
    return as_json_option(gateway_options(function))


def run_action(
    gateway: GatewayOptions,
    action: str,
    target: ChatTarget,
    fields: Mapping[str, Json],
    *,
    as_json: bool,
    text: str = "",
    key: str | None = None,
) -> dict[str, Any]:
    """Return what the gateway answers to an action; print it with --json, else `text`."""
    details = {_camel(name): value for name, value in fields.items() if value not in {None, False}}
    if target.target:
        details["target"] = target.target
    if target.thread_id:
        details["threadId"] = target.thread_id
    params: dict[str, Json] = {"action": action, "params": details, **target.encode()}
    params["idempotencyKey"] = key or uuid4().hex
    found = asyncio.run(call_gateway(gateway, "message.action", params))
    if as_json:
        click.echo(json.dumps(found, ensure_ascii=False))
    elif text:
        click.echo(text)
    return found


async def call_gateway(
    gateway: GatewayOptions, method: str, params: Mapping[str, Json]
) -> dict[str, Any]:
    """Return the answer of a running gateway. Raises UserError when there is none."""
    if not is_gateway_running(gateway):
        raise UserError(
            "chats are reached by the channels of a running gateway",
            fix="start it: homarus gateway",
        )
    async with open_gateway(gateway) as client:
        found = await client.call(method, params, timeout_s=_TIMEOUT_S)
    if not isinstance(found, dict):
        raise UserError("the gateway did not answer as expected")
    return found


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.title() for part in rest)
