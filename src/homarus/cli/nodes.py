"""`homarus nodes`: phones and machines that do commands for the gateway."""

import asyncio
import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import click

from homarus.cli.command_group import CommandGroup, examples
from homarus.cli.gateway_options import GatewayOptions, is_gateway_running, open_gateway
from homarus.cli.message_options import action_options
from homarus.cli.options import Seconds
from homarus.cli.sessions import age
from homarus.core.clock import SystemClock
from homarus.core.errors import UnknownNameError, UserError
from homarus.core.message import Json
from homarus.core.private_files import open_private
from homarus.core.text import closest_names, escape_invisible, one_line

_TIMEOUT_S: Final = 30.0
_MAX_TIMEOUT_S: Final = 600.0
_node = click.option(
    "--node", metavar="NODE", required=True, help="Its id or name; a part is enough."
)
_out = click.option(
    "--out", metavar="FILE", show_default="a new file here", help="Where to save it."
)
_facing = click.option(
    "--facing", type=click.Choice(["front", "back"]), default="front", help="Which camera."
)
_duration = click.option(
    "--duration", "duration_s", metavar="SECONDS", type=Seconds(0.2, 60), default=3,
    help="For how many seconds.",
)  # fmt: skip


@click.group("nodes", cls=CommandGroup)
@examples("homarus nodes status", "homarus nodes notify --node phone --title Dinner")
def command() -> None:
    """List nodes, let them in, and have them do commands."""


@command.command()
@examples("homarus nodes status --connected")
@click.option("--connected", is_flag=True, help="Only those that are connected.")
@click.option(
    "--last-connected", "hours", metavar="HOURS", type=click.FloatRange(min=0.01),
    help="Only those that were approved or connected within so many hours.",
)  # fmt: skip
@action_options
def status(hours: float | None, gateway: GatewayOptions, *, connected: bool, as_json: bool) -> None:
    """Show every node and what it may be asked for."""
    found = _call(gateway, "node.list", {})
    since_ms = SystemClock().now_ms() - hours * 3_600_000 if hours else 0
    rows = [
        row
        for row in found["nodes"]
        if (row["connected"] or not connected) and _last_ms(row) >= since_ms
    ]
    if as_json:
        click.echo(json.dumps({**found, "nodes": rows}, ensure_ascii=False))
        return
    for row in rows:
        _show_node(row)
    if not rows:
        click.echo("No node. A phone or machine becomes one when its app connects.")


@command.command("list")
@examples("homarus nodes list", "homarus nodes list --json")
@action_options
def list_(gateway: GatewayOptions, *, as_json: bool) -> None:
    """List the nodes that wait for an approval, and those that are paired."""
    found = _call(gateway, "node.pair.list", {})
    if as_json:
        click.echo(json.dumps(found, ensure_ascii=False))
        return
    for row in found["pending"]:
        click.echo(f"waits   {_name(row)}: homarus nodes approve {row['requestId'][:8]}")
    for row in found["paired"]:
        click.echo(f"paired  {_name(row)}  {row['nodeId'][:12]}")
    if not (found["pending"] or found["paired"]):
        click.echo("No node is paired, and none waits.")


@command.command()
@examples("homarus nodes pending --json")
@action_options
def pending(gateway: GatewayOptions, *, as_json: bool) -> None:
    """List the nodes that wait for an approval."""
    rows = _call(gateway, "node.pair.list", {})["pending"]
    if as_json:
        click.echo(json.dumps({"pending": rows}, ensure_ascii=False))
        return
    for row in rows:
        click.echo(f"{row['requestId'][:8]}  {_name(row)}")
    if not rows:
        click.echo("None waits.")


@command.command()
@examples("homarus nodes describe --node phone")
@_node
@action_options
def describe(node: str, gateway: GatewayOptions, *, as_json: bool) -> None:
    """Show one node: what it is, and which commands it may be asked for."""
    found = _call(gateway, "node.describe", {"nodeId": _find(gateway, node)})
    if as_json:
        click.echo(json.dumps(found, ensure_ascii=False))
        return
    _show_node(found)
    for name in found["commands"]:
        click.echo(f"  {escape_invisible(name)}")


@command.command()
@examples("homarus nodes approve 4f2a")
@click.argument("request")
@action_options
def approve(request: str, gateway: GatewayOptions, *, as_json: bool) -> None:
    """Approve a node; the start of the request's id is enough."""
    asked = {"requestId": _find_request(gateway, request)}
    _print(_call(gateway, "node.pair.approve", asked), "The node is paired.", as_json)


@command.command()
@examples("homarus nodes reject 4f2a")
@click.argument("request")
@action_options
def reject(request: str, gateway: GatewayOptions, *, as_json: bool) -> None:
    """Reject a node; the start of the request's id is enough."""
    asked = {"requestId": _find_request(gateway, request)}
    _print(_call(gateway, "node.pair.reject", asked), "The node is rejected.", as_json)


@command.command()
@examples('homarus nodes rename --node 4f2a --name "Ann\'s phone"')
@_node
@click.option("--name", metavar="NAME", required=True, help="Its new name.")
@action_options
def rename(node: str, name: str, gateway: GatewayOptions, *, as_json: bool) -> None:
    """Give a node another name."""
    asked = {"nodeId": _find(gateway, node), "displayName": name}
    _print(_call(gateway, "node.rename", asked), "Renamed.", as_json)


@command.command()
@examples("homarus nodes invoke --node phone --command location.get")
@_node
@click.option("--command", "name", metavar="COMMAND", required=True, help="What it is to do.")
@click.option("--params", metavar="JSON", help="The parameters of the command.")
@click.option(
    "--invoke-timeout", "timeout_s", metavar="SECONDS", type=Seconds(0.1, _MAX_TIMEOUT_S),
    default=_TIMEOUT_S, help="How many seconds to wait for the answer.",
)  # fmt: skip
@click.option(
    "--idempotency-key", "key", metavar="KEY", show_default="a new one",
    help="What was done under this key is not done again.",
)  # fmt: skip
@action_options
def invoke(
    node: str,
    name: str,
    params: str | None,
    timeout_s: float,
    key: str | None,
    gateway: GatewayOptions,
    *,
    as_json: bool,
) -> None:
    """Have a node do a command, and print its answer as JSON."""
    try:
        given = json.loads(params) if params else None
    except ValueError as exc:
        raise UserError(f"--params is no JSON: {exc}", fix='such as {"title": "Dinner"}') from exc
    found = _invoke(gateway, node, name, given, timeout_s, key)
    click.echo(json.dumps(found if as_json else found["payload"], ensure_ascii=False))


@command.command()
@examples('homarus nodes notify --node phone --title Dinner --body "It is ready"')
@_node
@click.option("--title", metavar="TEXT", help="The title.")
@click.option("--body", metavar="TEXT", help="The words.")
@click.option("--sound", metavar="NAME", help="The sound.")
@click.option(
    "--priority", type=click.Choice(["passive", "active", "timeSensitive"]), help="How urgent."
)
@action_options
def notify(node: str, gateway: GatewayOptions, *, as_json: bool, **fields: str | None) -> None:
    """Show a notification on a node."""
    if not (fields["title"] or fields["body"]):
        raise UserError("there is nothing to show", fix="give --title or --body")
    _print(_invoke(gateway, node, "system.notify", _given(fields)), "Shown.", as_json)


@command.group()
@examples("homarus nodes camera list --node phone")
def camera() -> None:
    """Take pictures and videos with a node's cameras."""


@camera.command("list")
@examples("homarus nodes camera list --node phone")
@_node
@action_options
def camera_list(node: str, gateway: GatewayOptions, *, as_json: bool) -> None:
    """List the cameras of a node."""
    found = _invoke(gateway, node, "camera.list", None)
    if as_json:
        click.echo(json.dumps(found, ensure_ascii=False))
        return
    payload = found["payload"]
    for row in payload.get("devices", ()) if isinstance(payload, dict) else ():
        shown = [str(row.get(name) or "") for name in ("id", "name", "position")]
        click.echo(one_line("  ".join(shown), 200))


@camera.command("snap")
@examples("homarus nodes camera snap --node phone --facing back --out door.jpg")
@_node
@_facing
@_out
@click.option(
    "--max-width", metavar="PIXELS", type=click.IntRange(1, 10_000), help="At most so wide."
)
@action_options
def camera_snap(
    node: str,
    facing: str,
    out: str | None,
    max_width: int | None,
    gateway: GatewayOptions,
    *,
    as_json: bool,
) -> None:
    """Take a picture and save it in a file."""
    asked = _given({"facing": facing, "maxWidth": max_width, "format": "jpg"})
    _save(_invoke(gateway, node, "camera.snap", asked), out, "jpg", as_json)


@camera.command("clip")
@examples("homarus nodes camera clip --node phone --duration 5 --out door.mp4")
@_node
@_facing
@_out
@_duration
@click.option("--no-audio", is_flag=True, help="Without sound.")
@action_options
def camera_clip(
    node: str,
    facing: str,
    out: str | None,
    duration_s: float,
    gateway: GatewayOptions,
    *,
    no_audio: bool,
    as_json: bool,
) -> None:
    """Record a video and save it in a file."""
    asked: dict[str, Json] = {"facing": facing, "durationMs": round(duration_s * 1000)}
    asked |= {"includeAudio": not no_audio, "format": "mp4"}
    found = _invoke(gateway, node, "camera.clip", asked, _TIMEOUT_S + 2 * duration_s)
    _save(found, out, "mp4", as_json)


@command.group()
@examples("homarus nodes screen record --node mac --duration 5")
def screen() -> None:
    """Record a node's screen."""


@screen.command("record")
@examples("homarus nodes screen record --node mac --duration 5 --out screen.mp4")
@_node
@_out
@_duration
@click.option(
    "--screen", "index", metavar="NUMBER", type=click.IntRange(0, 15), default=0, help="Which."
)
@click.option("--no-audio", is_flag=True, help="Without sound.")
@action_options
def screen_record(
    node: str,
    out: str | None,
    duration_s: float,
    index: int,
    gateway: GatewayOptions,
    *,
    no_audio: bool,
    as_json: bool,
) -> None:
    """Record the screen and save it in a file."""
    asked: dict[str, Json] = {"durationMs": round(duration_s * 1000), "screenIndex": index}
    asked |= {"includeAudio": not no_audio, "format": "mp4"}
    found = _invoke(gateway, node, "screen.record", asked, _TIMEOUT_S + 2 * duration_s)
    _save(found, out, "mp4", as_json)


@command.group()
@examples("homarus nodes location get --node phone")
def location() -> None:
    """Show where a node is."""


@location.command("get")
@examples("homarus nodes location get --node phone --json")
@_node
@click.option(
    "--accuracy", type=click.Choice(["coarse", "balanced", "precise"]), default="balanced",
    help="How exact.",
)  # fmt: skip
@action_options
def location_get(node: str, accuracy: str, gateway: GatewayOptions, *, as_json: bool) -> None:
    """Print the position of a node."""
    found = _invoke(gateway, node, "location.get", {"desiredAccuracy": accuracy})
    click.echo(json.dumps(found if as_json else found["payload"], ensure_ascii=False))


@command.group()
@examples("homarus nodes canvas present --node phone --address https://example.org")
def canvas() -> None:
    """Show pages on a node's canvas."""


@canvas.command("present")
@examples("homarus nodes canvas present --node phone --address https://example.org")
@_node
@click.option("--address", metavar="ADDRESS", help="The page to show.")
@action_options
def canvas_present(
    node: str, address: str | None, gateway: GatewayOptions, *, as_json: bool
) -> None:
    """Show the canvas, with a page."""
    asked = _given({"url": address})
    _print(_invoke(gateway, node, "canvas.present", asked), "Shown.", as_json)


@canvas.command("hide")
@examples("homarus nodes canvas hide --node phone")
@_node
@action_options
def canvas_hide(node: str, gateway: GatewayOptions, *, as_json: bool) -> None:
    """Hide the canvas."""
    _print(_invoke(gateway, node, "canvas.hide", None), "Hidden.", as_json)


@canvas.command("navigate")
@examples("homarus nodes canvas navigate https://example.org --node phone")
@click.argument("address")
@_node
@action_options
def canvas_navigate(address: str, node: str, gateway: GatewayOptions, *, as_json: bool) -> None:
    """Open another page on the canvas."""
    _print(_invoke(gateway, node, "canvas.navigate", {"url": address}), "Opened.", as_json)


@canvas.command("eval")
@examples("homarus nodes canvas eval document.title --node phone")
@click.argument("script")
@_node
@action_options
def canvas_eval(script: str, node: str, gateway: GatewayOptions, *, as_json: bool) -> None:
    """Run JavaScript on the canvas and print its result."""
    found = _invoke(gateway, node, "canvas.eval", {"javaScript": script})
    click.echo(json.dumps(found if as_json else found["payload"], ensure_ascii=False))


@canvas.command("snapshot")
@examples("homarus nodes canvas snapshot --node phone --out canvas.png")
@_node
@_out
@click.option("--jpeg", is_flag=True, help="As JPEG, not as PNG.")
@action_options
def canvas_snapshot(
    node: str, out: str | None, gateway: GatewayOptions, *, jpeg: bool, as_json: bool
) -> None:
    """Save a picture of the canvas in a file."""
    found = _invoke(gateway, node, "canvas.snapshot", {"format": "jpeg" if jpeg else "png"})
    _save(found, out, "jpg" if jpeg else "png", as_json)


@canvas.group()
@examples("homarus nodes canvas a2ui reset --node phone")
def a2ui() -> None:
    """Show the elements of an A2UI file on a node's canvas."""


@a2ui.command("push")
@examples("homarus nodes canvas a2ui push --node phone --jsonl page.jsonl")
@_node
@click.option("--jsonl", metavar="FILE", help="The file of messages.")
@click.option("--text", metavar="TEXT", help="Only a text, instead of a file.")
@action_options
def a2ui_push(
    node: str, jsonl: str | None, text: str | None, gateway: GatewayOptions, *, as_json: bool
) -> None:
    """Send the messages of a file to the canvas."""
    if bool(jsonl) == bool(text):
        raise UserError("what is to be shown is not clear", fix="give either --jsonl or --text")
    content = Path(jsonl).read_text(encoding="utf-8") if jsonl else _text_surface(text or "")
    _print(_invoke(gateway, node, "canvas.a2ui.pushJSONL", {"jsonl": content}), "Sent.", as_json)


@a2ui.command("reset")
@examples("homarus nodes canvas a2ui reset --node phone")
@_node
@action_options
def a2ui_reset(node: str, gateway: GatewayOptions, *, as_json: bool) -> None:
    """Remove every element from the canvas."""
    _print(_invoke(gateway, node, "canvas.a2ui.reset", None), "Removed.", as_json)


def _text_surface(text: str) -> str:
    """Return the A2UI messages of a page with one text."""
    components = [
        {"id": "root", "component": {"Column": {"children": {"explicitList": ["text"]}}}},
        {"id": "text", "component": {"Text": {"text": {"literalString": text}}}},
    ]
    messages = [
        {"surfaceUpdate": {"surfaceId": "main", "components": components}},
        {"beginRendering": {"surfaceId": "main", "root": "root"}},
    ]
    return "\n".join(json.dumps(one, ensure_ascii=False) for one in messages)


def _call(
    gateway: GatewayOptions, method: str, params: Mapping[str, Json], timeout_s: float = 30.0
) -> dict[str, Any]:
    if not is_gateway_running(gateway):
        raise UserError("nodes connect to a running gateway", fix="start it: homarus gateway")

    async def ask() -> Any:
        async with open_gateway(gateway) as client:
            return await client.call(method, params, timeout_s=timeout_s)

    found = asyncio.run(ask())
    if not isinstance(found, dict):
        raise UserError("the gateway did not answer as expected")
    return found


def _invoke(
    gateway: GatewayOptions,
    node: str,
    name: str,
    params: Json,
    timeout_s: float = _TIMEOUT_S,
    key: str | None = None,
) -> dict[str, Any]:
    asked: dict[str, Json] = {
        "nodeId": _find(gateway, node),
        "command": name,
        "timeoutMs": round(timeout_s * 1000),
        "idempotencyKey": key or uuid4().hex,
    }
    if params is not None:
        asked["params"] = params
    return _call(gateway, "node.invoke", asked, timeout_s + 5)


def _find(gateway: GatewayOptions, name: str) -> str:
    """Return the id of a node by a part of its id or name. Raises UnknownNameError."""
    rows = _call(gateway, "node.list", {})["nodes"]
    wanted = name.strip().lower()
    exact = [row for row in rows if wanted in {row["nodeId"], _name(row).lower()}]
    parts = [
        row for row in rows if row["nodeId"].startswith(wanted) or wanted in _name(row).lower()
    ]
    found = exact or parts
    if len(found) == 1:
        return str(found[0]["nodeId"])
    names = [_name(row) for row in rows]
    if not found:
        raise UnknownNameError("node", name, closest_names(name, names) or tuple(names))
    several = ", ".join(row["nodeId"][:12] for row in found)
    raise UserError(
        f"{len(found)} nodes are called {one_line(name, 40)!r}", fix=f"use an id: {several}"
    )


def _find_request(gateway: GatewayOptions, start: str) -> str:
    rows = _call(gateway, "node.pair.list", {})["pending"]
    found = [row["requestId"] for row in rows if row["requestId"].startswith(start)]
    if len(found) != 1:
        problem = "several requests start" if found else "no request of a node starts"
        raise UserError(
            f"{problem} with {one_line(start, 40)!r}", fix="homarus nodes pending lists them"
        )
    return str(found[0])


def _save(found: Mapping[str, Any], out: str | None, kind: str, as_json: bool) -> None:
    """Save the file of an answer, and print its path."""
    payload = found["payload"]
    encoded = payload.get("base64") if isinstance(payload, dict) else None
    try:
        content = base64.b64decode(encoded or "", validate=True)
    except (ValueError, TypeError):
        content = b""
    if not content:
        raise UserError("the node sent no file", fix="homarus nodes describe shows what it may do")
    path = (
        Path(out) if out else Path(f"{found['command'].replace('.', '-')}-{uuid4().hex[:8]}.{kind}")
    )
    with open_private(path, "wb") as file:
        file.write(content)
    if as_json:
        rest = {name: value for name, value in payload.items() if name != "base64"}
        click.echo(json.dumps({**found, "payload": rest, "payloadJSON": None, "path": str(path)}))
    else:
        click.echo(path)


def _given(fields: Mapping[str, Json]) -> dict[str, Json]:
    return {name: value for name, value in fields.items() if value is not None}


def _print(found: Mapping[str, Any], text: str, as_json: bool) -> None:
    click.echo(json.dumps(found, ensure_ascii=False) if as_json else text)


def _show_node(row: Mapping[str, Any]) -> None:
    since = row.get("connectedAtMs")
    state = f"connected for {age(SystemClock().now_ms() - since)}" if since else "not connected"
    kind = one_line(str(row.get("platform") or ""), 40)
    commands = f", {len(row['commands'])} commands" if row["connected"] else ""
    click.echo(f"{_name(row)}  {row['nodeId'][:12]}  {kind}  {state}{commands}")


def _name(row: Mapping[str, Any]) -> str:
    return one_line(str(row.get("displayName") or row["nodeId"][:12]), 60)


def _last_ms(row: Mapping[str, Any]) -> int:
    return int(row.get("connectedAtMs") or row.get("approvedAtMs") or 0)
