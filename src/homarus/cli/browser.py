"""`homarus browser`: the browser of an agent, through a running gateway."""

import asyncio
import json
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, TypeVar

import click

from homarus.cli.command_group import CommandGroup, examples
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
from homarus.core.text import one_line

T = TypeVar("T")
_TIMEOUT_MS = 90_000


@dataclass(frozen=True, slots=True)
class BrowserTarget:
    """Which gateway, agent and profile a command is for, and how it prints."""

    gateway: GatewayOptions
    agent: str | None
    profile: str | None
    as_json: bool


@click.group("browser", cls=CommandGroup)
@examples("homarus browser open https://example.org", "homarus browser snapshot")
def command() -> None:
    """Use the browser of an agent through a running gateway."""


def _browser_options(function: Callable[..., T]) -> Callable[..., T]:
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


_tab_option = click.option(
    "--tab", "tab", metavar="ID", show_default="the current one", help="The tab."
)


@command.command()
@examples("homarus browser status", "homarus browser status --json")
@_browser_options
def status(target: BrowserTarget) -> None:
    """Show whether the browser runs, and which program it is."""
    found = _request(target, "GET", "/")
    if target.as_json:
        return
    state = f"running, {found.get('tabs', 0)} tabs" if found.get("running") else "not running"
    click.echo(f"profile {found['profile']}: {state}")
    click.echo(f"program: {found.get('executablePath') or found.get('problem')}")
    click.echo(f"folder: {found['userDataDir']}")


@command.command()
@examples("homarus browser start")
@_browser_options
def start(target: BrowserTarget) -> None:
    """Start the browser; any other command does so too."""
    _request(target, "POST", "/start", text="The browser runs.")


@command.command()
@examples("homarus browser stop")
@_browser_options
def stop(target: BrowserTarget) -> None:
    """Stop the browser; its cookies and storage stay."""
    _request(target, "POST", "/stop", text="The browser is stopped.")


@command.command()
@examples("homarus browser tabs", "homarus browser tabs --json")
@_browser_options
def tabs(target: BrowserTarget) -> None:
    """List the open tabs."""
    found = _request(target, "GET", "/tabs")
    if target.as_json:
        return
    listed = found.get("tabs") or []
    for tab in listed:
        click.echo(f"{tab['targetId']:<4} {one_line(tab['url'], 200)}  {one_line(tab['title'])}")
    if not listed:
        click.echo("No tab is open.")


@command.command("open")
@examples("homarus browser open https://example.org")
@click.argument("address")
@_browser_options
def open_(address: str, target: BrowserTarget) -> None:
    """Open ADDRESS, a URL, in a new tab."""
    found = _request(target, "POST", "/tabs/open", {"url": address})
    if not target.as_json:
        click.echo(f"{found['targetId']}: {one_line(found['title'], 200)}")


@command.command()
@examples("homarus browser snapshot", "homarus browser snapshot --efficient --tab t2")
@_tab_option
@click.option("--efficient", is_flag=True, help="Only what can be clicked or filled in.")
@click.option("--nodes", is_flag=True, help="As nodes with their roles, not as lines.")
@_browser_options
def snapshot(tab: str | None, efficient: bool, nodes: bool, target: BrowserTarget) -> None:
    """Print the elements of a page with their refs."""
    query: dict[str, Json] = {"format": "aria" if nodes else "ai", "targetId": tab or ""}
    if efficient:
        query["mode"] = "efficient"
    found = _request(target, "GET", "/snapshot", query=query)
    if target.as_json:
        return
    if "snapshot" in found:
        click.echo(found["snapshot"])
    for node in found.get("nodes", ()):
        name = one_line(str(node["name"]), 100)
        click.echo(f"{'  ' * node['depth']}{node['role']} {name} {node['ref']}".rstrip())


@command.command()
@examples("homarus browser screenshot", "homarus browser screenshot --full-page")
@_tab_option
@click.option("--full-page", is_flag=True, help="The complete page, not only what is visible.")
@_browser_options
def screenshot(tab: str | None, full_page: bool, target: BrowserTarget) -> None:
    """Save a picture of a page in the agent's workspace and print its path."""
    body: dict[str, Json] = {"fullPage": full_page, "targetId": tab or ""}
    found = _request(target, "POST", "/screenshot", body)
    if not target.as_json:
        click.echo(found["path"])


def _request(
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
