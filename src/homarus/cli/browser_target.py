"""Which browser a command of `homarus browser` is for, and its request to the gateway."""

import asyncio
import json
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, TypeVar

import click

from homarus.cli.gateway_options import (
    GatewayOptions,
    as_json_option,
    gateway_options,
    is_gateway_running,
    open_gateway,
)
from homarus.cli.options import agent_option
from homarus.core.errors import UserError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json

T = TypeVar("T")
_TIMEOUT_MS = 90_000


@dataclass(frozen=True, slots=True)
class BrowserTarget:
    """Which gateway, agent and profile a command is for, and how it prints."""

    gateway: GatewayOptions
    agent: str | None
    profile: str | None
    as_json: bool


def browser_options(function: Callable[..., T]) -> Callable[..., T]:
    """Add the options that every command here has; the command gets them as `target`."""

    @wraps(function)
    def with_target(
        *args: Any,
        gateway: GatewayOptions,
        agent: str | None,
        browser_profile: str | None,
        as_json: bool,
        **named: Any,
    ) -> T:
        target = BrowserTarget(gateway, agent, browser_profile, as_json)
        return function(*args, target=target, **named)

    wrapped: Callable[..., T] = as_json_option(gateway_options(with_target))
    wrapped = click.option(
        "--browser-profile",
        metavar="NAME",
        show_default="browser.defaultProfile",
        help="The profile of the browser.",
    )(wrapped)
    return agent_option("Whose browser.", default="the default agent")(wrapped)


tab_option = click.option(
    "--tab", "tab", metavar="ID", show_default="the current one", help="The tab."
)


def request_browser(
    target: BrowserTarget,
    method: str,
    path: str,
    body: Mapping[str, Json] | None = None,
    *,
    query: Mapping[str, Json] | None = None,
    text: str = "",
) -> dict[str, Any]:
    """Return what the gateway answers; print it with --json, else `text`."""
    if not is_gateway_running(target.gateway):
        raise UserError("the browser belongs to the gateway", fix="start it: homarus gateway")
    given: dict[str, Json] = {"profile": target.profile} if target.profile else {}
    params: dict[str, Json] = {"method": method, "path": path, "timeoutMs": _TIMEOUT_MS}
    params["query"] = {**given, **(query or {})}
    if method != "GET":
        params["body"] = {**given, **(body or {})}
    if target.agent:
        params["agentId"] = target.agent

    async def call() -> Any:
        async with open_gateway(target.gateway) as client:
            return await client.call("browser.request", params, timeout_s=_TIMEOUT_MS / 1000 + 5)

    found = asyncio.run(call())
    if not isinstance(found, dict):
        raise UserError("the gateway did not answer as expected")
    if target.as_json:
        click.echo(json.dumps(found, ensure_ascii=False))
    elif text:
        click.echo(text)
    return found
