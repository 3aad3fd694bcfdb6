"""`homarus browser`: the browser of an agent, through a running gateway."""

import click

from homarus.cli.browser_page import PAGE_COMMANDS
from homarus.cli.browser_target import (
    BrowserTarget,
    browser_options,
    request_browser,
    tab_option,
)
from homarus.cli.command_group import CommandGroup, examples
from homarus.cli.options import yes_option
from homarus.core.message import Json
from homarus.core.text import one_line


@click.group("browser", cls=CommandGroup)
@examples("homarus browser open https://example.org", "homarus browser snapshot")
def command() -> None:
    """Use the browser of an agent through a running gateway."""


@command.command()
@examples("homarus browser status", "homarus browser status --json")
@browser_options
def status(target: BrowserTarget) -> None:
    """Show whether the browser runs, and which program it is."""
    found = request_browser(target, "GET", "/")
    if target.as_json:
        return
    state = f"running, {found.get('tabs', 0)} tabs" if found.get("running") else "not running"
    click.echo(f"profile {found['profile']}: {state}")
    click.echo(f"program: {found.get('executablePath') or found.get('problem')}")
    click.echo(f"folder: {found['userDataDir']}")


@command.command()
@examples("homarus browser start")
@browser_options
def start(target: BrowserTarget) -> None:
    """Start the browser; any other command does so too."""
    request_browser(target, "POST", "/start", text="The browser runs.")


@command.command()
@examples("homarus browser stop")
@browser_options
def stop(target: BrowserTarget) -> None:
    """Stop the browser; its cookies and storage stay."""
    request_browser(target, "POST", "/stop", text="The browser is stopped.")


@command.command()
@examples("homarus browser tabs", "homarus browser tabs --json")
@browser_options
def tabs(target: BrowserTarget) -> None:
    """List the open tabs."""
    found = request_browser(target, "GET", "/tabs")
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
@browser_options
def open_(address: str, target: BrowserTarget) -> None:
    """Open ADDRESS, a URL, in a new tab."""
    found = request_browser(target, "POST", "/tabs/open", {"url": address})
    if not target.as_json:
        click.echo(f"{found['targetId']}: {one_line(found['title'], 200)}")


@command.command()
@examples("homarus browser snapshot", "homarus browser snapshot --efficient --tab t2")
@tab_option
@click.option("--efficient", is_flag=True, help="Only what can be clicked or filled in.")
@click.option("--nodes", is_flag=True, help="As nodes with their roles, not as lines.")
@browser_options
def snapshot(tab: str | None, efficient: bool, nodes: bool, target: BrowserTarget) -> None:
    """Print the elements of a page with their refs."""
    query: dict[str, Json] = {"format": "aria" if nodes else "ai", "targetId": tab or ""}
    if efficient:
        query["mode"] = "efficient"
    found = request_browser(target, "GET", "/snapshot", query=query)
    if target.as_json:
        return
    if "snapshot" in found:
        click.echo(found["snapshot"])
    for node in found.get("nodes", ()):
        name = one_line(str(node["name"]), 100)
        click.echo(f"{'  ' * node['depth']}{node['role']} {name} {node['ref']}".rstrip())


@command.command()
@examples("homarus browser screenshot", "homarus browser screenshot --full-page")
@tab_option
@click.option("--full-page", is_flag=True, help="The complete page, not only what is visible.")
@browser_options
def screenshot(tab: str | None, full_page: bool, target: BrowserTarget) -> None:
    """Save a picture of a page in the agent's workspace and print its path."""
    body: dict[str, Json] = {"fullPage": full_page, "targetId": tab or ""}
    found = request_browser(target, "POST", "/screenshot", body)
    if not target.as_json:
        click.echo(found["path"])


@command.command("reset-profile")
@examples("homarus browser reset-profile --yes")
@yes_option()
@browser_options
def reset_profile(target: BrowserTarget, *, yes: bool) -> None:
    """Remove the cookies, storage and cache of a profile, after asking."""
    if not yes:
        click.confirm("Remove every cookie and login of this browser profile?", abort=True)
    request_browser(target, "POST", "/reset-profile", text="The profile is empty.")


@command.command()
@examples("homarus browser profiles --json")
@browser_options
def profiles(target: BrowserTarget) -> None:
    """List the profiles of the agent's browser."""
    found = request_browser(target, "GET", "/profiles")
    for row in () if target.as_json else found["profiles"]:
        state = "running" if row.get("running") else "not running"
        click.echo(f"{one_line(str(row.get('name') or row.get('profile')), 60)}  {state}")


for each in PAGE_COMMANDS:
    command.add_command(each)
