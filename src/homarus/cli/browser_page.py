"""The commands of `homarus browser` that act on tabs and pages."""

import json
from collections.abc import Mapping
from typing import Any, Final

import click

from homarus.cli.browser_target import (
    BrowserTarget,
    browser_options,
    request_browser,
    tab_option,
)
from homarus.cli.command_group import CommandGroup, examples
from homarus.cli.gateway_options import GatewayOptions, as_json_option
from homarus.cli.options import Seconds, limit_option, yes_option
from homarus.core.errors import UserError
from homarus.core.message import Json
from homarus.core.text import escape_invisible, one_line

_ref = click.argument("ref")
_CDP_PORTS: Final = range(18_801, 65_536)
_size = click.IntRange(200, 4_000)


@click.command()
@examples("homarus browser focus t2")
@click.argument("tab")
@browser_options
def focus(tab: str, target: BrowserTarget) -> None:
    """Make a tab the current one."""
    request_browser(target, "POST", "/tabs/focus", {"targetId": tab}, text="Done.")


@click.command()
@examples("homarus browser close t2", "homarus browser close")
@click.argument("tab", required=False)
@browser_options
def close(tab: str | None, target: BrowserTarget) -> None:
    """Close a tab: TAB, or the current one."""
    if tab:
        from urllib.parse import quote

        request_browser(target, "DELETE", f"/tabs/{quote(tab, safe='')}", text="Closed.")
    else:
        _act(target, None, "close", {}, "Closed.")


@click.command()
@examples("homarus browser navigate https://example.org/page")
@click.argument("address")
@tab_option
@browser_options
def navigate(address: str, tab: str | None, target: BrowserTarget) -> None:
    """Open ADDRESS, a URL, in a tab that is open."""
    body: dict[str, Json] = {"url": address, "targetId": tab or ""}
    found = request_browser(target, "POST", "/navigate", body)
    if not target.as_json:
        click.echo(one_line(str(found.get("url") or address), 300))


@click.command()
@examples("homarus browser resize 1280 800")
@click.argument("width", type=_size)
@click.argument("height", type=_size)
@tab_option
@browser_options
def resize(width: int, height: int, tab: str | None, target: BrowserTarget) -> None:
    """Set the size of a page in pixels."""
    _act(target, tab, "resize", {"width": width, "height": height}, "Done.")


@click.command()
@examples("homarus browser click e12", "homarus browser click e12 --double")
@_ref
@click.option("--double", is_flag=True, help="Click twice.")
@click.option(
    "--button", type=click.Choice(["left", "right", "middle"]), default="left", help="Which."
)
@click.option("--modifier", metavar="KEY", multiple=True, help="A key to hold; repeatable.")
@tab_option
@browser_options
def click_(
    ref: str,
    button: str,
    modifier: tuple[str, ...],
    tab: str | None,
    target: BrowserTarget,
    *,
    double: bool,
) -> None:
    """Click an element by its ref in the last snapshot."""
    given: dict[str, Json] = {"ref": ref, "button": button, "doubleClick": double}
    _act(target, tab, "click", {**given, "modifiers": [*modifier]}, "Clicked.")


@click.command("type")
@examples('homarus browser type e12 "hello" --submit')
@_ref
@click.argument("text")
@click.option("--submit", is_flag=True, help="Press Enter afterwards.")
@click.option("--slowly", is_flag=True, help="Key by key.")
@tab_option
@browser_options
def type_(
    ref: str, text: str, tab: str | None, target: BrowserTarget, *, submit: bool, slowly: bool
) -> None:
    """Type a text into an element, instead of what is in it."""
    _act(
        target,
        tab,
        "type",
        {"ref": ref, "text": text, "submit": submit, "slowly": slowly},
        "Typed.",
    )


@click.command()
@examples("homarus browser press Enter", "homarus browser press Control+A --ref e12")
@click.argument("key")
@click.option("--ref", metavar="REF", help="The element that gets the key.")
@tab_option
@browser_options
def press(key: str, ref: str | None, tab: str | None, target: BrowserTarget) -> None:
    """Press a key."""
    _act(target, tab, "press", {"key": key, "ref": ref or ""}, "Pressed.")


@click.command()
@examples("homarus browser hover e12")
@_ref
@tab_option
@browser_options
def hover(ref: str, tab: str | None, target: BrowserTarget) -> None:
    """Move the pointer over an element."""
    _act(target, tab, "hover", {"ref": ref}, "Done.")


@click.command()
@examples("homarus browser drag e12 e15")
@click.argument("start")
@click.argument("end")
@tab_option
@browser_options
def drag(start: str, end: str, tab: str | None, target: BrowserTarget) -> None:
    """Drag one element to another."""
    _act(target, tab, "drag", {"startRef": start, "endRef": end}, "Done.")


@click.command()
@examples("homarus browser select e12 blue")
@_ref
@click.argument("values", nargs=-1, required=True)
@tab_option
@browser_options
def select(ref: str, values: tuple[str, ...], tab: str | None, target: BrowserTarget) -> None:
    """Choose options of a list."""
    _act(target, tab, "select", {"ref": ref, "values": [*values]}, "Chosen.")


@click.command()
@examples("homarus browser fill e12=Ada e15=ada@example.org")
@click.argument("fields", nargs=-1, required=True)
@tab_option
@browser_options
def fill(fields: tuple[str, ...], tab: str | None, target: BrowserTarget) -> None:
    """Fill in a form: REF=VALUE for each field."""
    rows = list[Json]()
    for field in fields:
        ref, equals, value = field.partition("=")
        if not equals or not ref:
            raise UserError(f"{one_line(field, 40)!r} is no REF=VALUE", fix="such as e12=Ada")
        rows.append({"ref": ref, "value": value})
    _act(target, tab, "fill", {"fields": rows}, "Filled in.")


@click.command()
@examples("homarus browser upload e12 photo.jpg")
@_ref
@click.argument("files", nargs=-1, required=True)
@tab_option
@browser_options
def upload(ref: str, files: tuple[str, ...], tab: str | None, target: BrowserTarget) -> None:
    """Give files of the agent's workspace to an element that asks for them."""
    body: dict[str, Json] = {"ref": ref, "paths": [*files], "targetId": tab or ""}
    request_browser(target, "POST", "/hooks/file-chooser", body, text="Uploaded.")


@click.command()
@examples("homarus browser dialog --accept", "homarus browser dialog --dismiss")
@click.option("--accept", is_flag=True, help="Accept it.")
@click.option("--dismiss", is_flag=True, help="Dismiss it.")
@click.option("--text", metavar="TEXT", help="The answer to a question for a text.")
@tab_option
@browser_options
def dialog(
    text: str | None, tab: str | None, target: BrowserTarget, *, accept: bool, dismiss: bool
) -> None:
    """Answer the dialog of a page that is open, or the next one."""
    if accept == dismiss:
        raise UserError("what to answer is not clear", fix="give either --accept or --dismiss")
    body: dict[str, Json] = {"accept": accept, "promptText": text or "", "targetId": tab or ""}
    request_browser(target, "POST", "/hooks/dialog", body, text="Done.")


@click.command()
@examples("homarus browser wait --text Welcome", "homarus browser wait --time 2")
@click.option("--text", metavar="TEXT", help="Until this is on the page.")
@click.option("--text-gone", metavar="TEXT", help="Until this is gone.")
@click.option("--time", "time_s", metavar="SECONDS", type=Seconds(0, 30), help="So many seconds.")
@tab_option
@browser_options
def wait(
    text: str | None,
    text_gone: str | None,
    time_s: float | None,
    tab: str | None,
    target: BrowserTarget,
) -> None:
    """Wait for a text, or for some time."""
    given: dict[str, Json] = {"text": text, "textGone": text_gone}
    given["timeMs"] = None if time_s is None else round(time_s * 1000)
    _act(target, tab, "wait", {n: v for n, v in given.items() if v is not None}, "Done.")


@click.command()
@examples('homarus browser evaluate "() => document.title"')
@click.argument("script")
@click.option("--ref", metavar="REF", help="The element that the function gets.")
@tab_option
@browser_options
def evaluate(script: str, ref: str | None, tab: str | None, target: BrowserTarget) -> None:
    """Run a JavaScript function in a page and print its result as JSON."""
    found = _act(target, tab, "evaluate", {"fn": script, "ref": ref or ""})
    if not target.as_json:
        click.echo(json.dumps(found.get("result"), ensure_ascii=False))


@click.command()
@examples("homarus browser console --level warning")
@click.option(
    "--level", type=click.Choice(["error", "warning", "info"]), help="Only these and graver ones."
)
@limit_option("How many messages at most.", 200, default=50)
@tab_option
@browser_options
def console(level: str | None, limit: int, tab: str | None, target: BrowserTarget) -> None:
    """Print what a page wrote to its console."""
    _show_console(target, tab, level or "", limit)


@click.command()
@examples("homarus browser errors")
@limit_option("How many errors at most.", 200, default=50)
@tab_option
@browser_options
def errors(limit: int, tab: str | None, target: BrowserTarget) -> None:
    """Print the errors of a page."""
    _show_console(target, tab, "error", limit)


@click.command()
@examples("homarus browser pdf")
@tab_option
@browser_options
def pdf(tab: str | None, target: BrowserTarget) -> None:
    """Save a page as PDF in the agent's workspace and print its path."""
    found = request_browser(target, "POST", "/pdf", {"targetId": tab or ""})
    if not target.as_json:
        click.echo(found["path"])


@click.group(cls=CommandGroup, invoke_without_command=True)
@examples("homarus browser cookies", "homarus browser cookies clear")
@tab_option
@browser_options
@click.pass_context
def cookies(ctx: click.Context, tab: str | None, target: BrowserTarget) -> None:
    """List, set and clear cookies; without a subcommand, list them."""
    if ctx.invoked_subcommand:
        return
    found = request_browser(target, "GET", "/cookies", query={"targetId": tab or ""})
    for row in () if target.as_json else found["cookies"]:
        click.echo(f"{one_line(row['domain'], 60)}  {one_line(row['name'], 60)}")


@cookies.command("set")
@examples("homarus browser cookies set theme dark --address https://example.org")
@click.argument("name")
@click.argument("value")
@click.option("--address", metavar="URL", show_default="that of the page", help="For which page.")
@tab_option
@browser_options
def cookies_set(
    name: str, value: str, address: str | None, tab: str | None, target: BrowserTarget
) -> None:
    """Set a cookie."""
    cookie = {"name": name, "value": value, **({"url": address} if address else {})}
    body: dict[str, Json] = {"cookie": cookie, "targetId": tab or ""}
    request_browser(target, "POST", "/cookies/set", body, text="Set.")


@cookies.command("clear")
@examples("homarus browser cookies clear")
@tab_option
@browser_options
def cookies_clear(tab: str | None, target: BrowserTarget) -> None:
    """Remove every cookie of the profile."""
    request_browser(target, "POST", "/cookies/clear", {"targetId": tab or ""}, text="Removed.")


@click.group(cls=CommandGroup)
@examples("homarus browser storage get local")
def storage() -> None:
    """Read, set and clear the storage of a page."""


_area = click.argument("area", metavar="AREA", type=click.Choice(["local", "session"]))


@storage.command("get")
@examples("homarus browser storage get local", "homarus browser storage get local theme")
@_area
@click.argument("key", required=False)
@tab_option
@browser_options
def storage_get(area: str, key: str | None, tab: str | None, target: BrowserTarget) -> None:
    """Print the storage of a page, or one value of it."""
    query: dict[str, Json] = {"targetId": tab or "", **({"key": key} if key else {})}
    found = request_browser(target, "GET", f"/storage/{area}", query=query)
    for name, value in ({} if target.as_json else found.get("values") or {}).items():
        click.echo(f"{one_line(name, 80)}={one_line(str(value), 300)}")


@storage.command("set")
@examples("homarus browser storage set local theme dark")
@_area
@click.argument("key")
@click.argument("value")
@tab_option
@browser_options
def storage_set(area: str, key: str, value: str, tab: str | None, target: BrowserTarget) -> None:
    """Set a value."""
    body: dict[str, Json] = {"key": key, "value": value, "targetId": tab or ""}
    request_browser(target, "POST", f"/storage/{area}/set", body, text="Set.")


@storage.command("clear")
@examples("homarus browser storage clear session")
@_area
@tab_option
@browser_options
def storage_clear(area: str, tab: str | None, target: BrowserTarget) -> None:
    """Remove every value."""
    body: dict[str, Json] = {"targetId": tab or ""}
    request_browser(target, "POST", f"/storage/{area}/clear", body, text="Removed.")


@click.command("create-profile")
@examples("homarus browser create-profile work", "homarus browser create-profile x --json")
@click.argument("name")
@as_json_option
def create_profile(name: str, *, as_json: bool) -> None:
    """Add a browser profile to the configuration."""
    _check_profile_name(name)

    def edit(tree: Any) -> Any:
        if name in _profiles(tree):
            raise UserError(f"there is a profile {name} already")
        used = {one.get("cdpPort") for one in _profiles(tree).values() if isinstance(one, dict)}
        port = next(port for port in _CDP_PORTS if port not in used)
        added = {name: {"cdpPort": port, "color": "#FF4500"}}  # OpenClaw needs both
        return _with_profiles(tree, {**_profiles(tree), **added})

    _change(edit, {"profile": name, "created": True}, f"Profile {name} is there.", as_json)


@click.command("delete-profile")
@examples("homarus browser delete-profile work --yes")
@click.argument("name")
@yes_option()
@as_json_option
def delete_profile(name: str, *, yes: bool, as_json: bool) -> None:
    """Remove a browser profile from the configuration; its folder stays."""
    _check_profile_name(name)
    if not yes:
        click.confirm(f"Remove the profile {name} from the configuration?", abort=True)

    def edit(tree: Any) -> Any:
        if name not in _profiles(tree):
            known = ", ".join(_profiles(tree)) or "none"
            raise UserError(f"there is no profile {name}", fix=f"configured: {known}")
        return _with_profiles(tree, {n: p for n, p in _profiles(tree).items() if n != name})

    _change(edit, {"profile": name, "deleted": True}, f"Profile {name} is removed.", as_json)


def _check_profile_name(name: str) -> None:
    if not name.replace("-", "").isalnum() or not name.isascii() or len(name) > 64:
        raise UserError(
            f"{one_line(name, 40)!r} is no name of a profile",
            fix="use letters, digits and hyphens, 64 at most",
        )


def _profiles(tree: Any) -> Mapping[str, Any]:
    found = (tree.get("browser") or {}).get("profiles")
    return found if isinstance(found, dict) else {}


def _with_profiles(tree: Any, profiles: Mapping[str, Any]) -> Any:
    return {**tree, "browser": {**(tree.get("browser") or {}), "profiles": dict(profiles)}}


def _change(edit: Any, result: Mapping[str, Json], text: str, as_json: bool) -> None:
    from homarus.cli.config_client import run_with_config

    changed = run_with_config(GatewayOptions(), lambda settings: settings.change(edit))
    click.echo(json.dumps({**result, "gateway": changed.effect}) if as_json else text)


def _act(
    target: BrowserTarget, tab: str | None, kind: str, given: Mapping[str, Json], text: str = ""
) -> dict[str, Any]:
    body: dict[str, Json] = {"kind": kind, "targetId": tab or "", **given}
    return request_browser(target, "POST", "/act", body, text=text)


def _show_console(target: BrowserTarget, tab: str | None, level: str, limit: int) -> None:
    query: dict[str, Json] = {"level": level, "limit": limit, "targetId": tab or ""}
    found = request_browser(target, "GET", "/console", query=query)
    for row in () if target.as_json else found["messages"]:
        kind, text = str(row.get("type")), str(row.get("text"))
        click.echo(f"{escape_invisible(kind):<8} {one_line(text, 300)}")


click_.name = "click"
PAGE_COMMANDS: Final[tuple[click.Command, ...]] = (
    click_, close, console, cookies, create_profile, delete_profile, dialog, drag, errors, evaluate,
    fill, focus, hover, navigate, pdf, press, resize, select, storage, type_, upload, wait,
)  # fmt: skip
