"""`homarus mcp`: the MCP servers of the configuration, and what their tools are.

The commands work on the files of this machine, with or without a running gateway; it finds what
they change.
"""

import asyncio
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from homarus.cli.command_group import CommandGroup, examples
from homarus.cli.config_client import run_with_config
from homarus.cli.gateway_options import GatewayOptions, as_json_option, with_gateway_config
from homarus.cli.mcp_serve import serve
from homarus.cli.options import yes_option
from homarus.config.load import read_raw, resolve_env
from homarus.config.paths import Paths, shorten
from homarus.config.tree_edit import get_path, set_path, unset_path
from homarus.core.errors import HomarusError, UnknownNameError, UserError
from homarus.core.message import Json
from homarus.core.text import closest_names, escape_invisible, one_line

if TYPE_CHECKING:
    from homarus.config.schema import Config
    from homarus.tools.mcp.record_store import McpRecordStore
    from homarus.tools.mcp.server_settings import McpServerSettings
    from homarus.tools.mcp.tool_pins import ServerListing, ServerRecord

_SERVERS: Final = ("mcp", "servers")


@click.group("mcp", cls=CommandGroup, invoke_without_command=True)
@examples("homarus mcp", "homarus mcp add notes -- uvx notes-server", "homarus mcp serve")
@click.pass_context
def command(ctx: click.Context) -> None:
    """Manage MCP servers, or be one; without a subcommand, list them."""
    if not ctx.invoked_subcommand:
        ctx.invoke(list_)


command.add_command(serve)


@command.command("list")
@examples("homarus mcp list", "homarus mcp list --json")
@as_json_option
def list_(*, as_json: bool) -> None:
    """List the servers, and what is known of their tools; none is started."""
    config = _config()
    rows = [_row(config, name) for name in sorted(config.mcp.servers)]
    if as_json:
        click.echo(json.dumps({"servers": rows}, ensure_ascii=False))
        return
    for row in rows:
        click.echo(f"{row['name']:<20} {escape_invisible(_state(row))}")
        for change in row["pending"]:
            click.echo(f"  {escape_invisible(change)} has changed: homarus mcp test {row['name']}")
    if not rows:
        click.echo("No MCP server is configured: homarus mcp add NAME -- PROGRAM")


def _row(config: "Config", name: str) -> dict[str, Any]:
    from homarus.tools.mcp.server_settings import find_program, resolve_server

    settings, record = resolve_server(config, name), _records().find(name)
    problem = settings.problem
    if not problem and settings.command and find_program(settings, _env()) is None:
        problem = f"there is no program {settings.command}"
    tools = [tool.call_name for tool in record.tools if tool.is_listed] if record else None
    return {
        "name": name,
        "transport": "stdio" if settings.command else "streamable-http",
        "place": settings.place,
        "enabled": config.mcp.servers[name].enabled,
        "problem": problem,
        "tools": tools,
        "pending": [tool.call_name for tool in record.pending] if record else [],
    }


def _state(row: Mapping[str, Any]) -> str:
    if not row["enabled"]:
        return f"off, {row['place']}"
    known = "not seen yet" if row["tools"] is None else f"{len(row['tools'])} tools"
    return f"{row['problem'] or known}, {row['place']}"


@command.command()
@examples(
    "homarus mcp add notes -- uvx notes-server --folder ~/notes",
    "homarus mcp add docs --url https://a.example/mcp --header 'X-Key=${KEY}'",
)
@click.argument("name", metavar="NAME")
@click.argument("program", metavar="[-- PROGRAM…]", nargs=-1)
@click.option("--url", metavar="URL", help="The address of a server that is reached by HTTP.")
@click.option("--env", metavar="NAME=VALUE", multiple=True, help="A variable; repeatable.")
@click.option("--header", metavar="NAME=VALUE", multiple=True, help="An HTTP header; repeatable.")
@click.option("--cwd", metavar="DIR", help="The folder that the program runs in.")
@click.option("--no-test", is_flag=True, help="Do not connect; trust what it has at first use.")
@as_json_option
def add(
    name: str,
    program: Sequence[str],
    url: str | None,
    env: Sequence[str],
    header: Sequence[str],
    cwd: str | None,
    *,
    no_test: bool,
    as_json: bool,
) -> None:
    """Add or replace a server, connect to it, and trust the tools that it has now.

    A value may name a variable, as '${NAME}'. Nothing is saved if the server cannot be used.
    """
    from homarus.config.check import check_config
    from homarus.config.variables import substitute
    from homarus.tools.mcp.server_settings import check_server_name, resolve_server

    check_server_name(name)
    entry: dict[str, Json] = {"url": url} if url else {}
    entry |= {"command": program[0], "args": list(program[1:])} if program else {}
    entry |= {"env": _pairs(env)} if env else {}
    entry |= {"headers": _pairs(header)} if header else {}
    entry |= {"cwd": cwd} if cwd else {}
    if bool(url) == bool(program):
        raise UserError(
            "a server is either a program or --url",
            fix=f"homarus mcp add {name} -- PROGRAM, or homarus mcp add {name} --url URL",
        )
    checked = check_config(substitute({"mcp": {"servers": {name: entry}}}, _env())).config
    if checked is None:
        raise UserError(f"the settings of {name} are not valid")
    listing = None if no_test else _fetch_listing(resolve_server(checked, name))
    changed = run_with_config(
        GatewayOptions(),
        lambda settings: settings.change(lambda tree: set_path(tree, (*_SERVERS, name), entry)),
    )
    _records().remove(name)
    record = _save(name, listing, trust=True) if listing else None
    if as_json:
        report = {"ok": True, "name": name, "path": changed.file}
        click.echo(json.dumps({**report, "tools": _tool_names(record)}, ensure_ascii=False))
        return
    home = Paths.find(os.environ).home
    effect = f"; {changed.effect}" if changed.effect else ""
    click.echo(f"{name} is in {shorten(Path(changed.file), home)}{effect}.")
    if record:
        _print_tools(record)


def _pairs(texts: Sequence[str]) -> dict[str, Json]:
    found: dict[str, Json] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise UserError(f"{one_line(text, 20)!r} is not NAME=VALUE")
        found[key] = value
    return found


@command.command()
@examples("homarus mcp remove files")
@click.argument("name", metavar="NAME")
@yes_option()
@as_json_option
def remove(name: str, *, yes: bool, as_json: bool) -> None:
    """Remove a server, and forget what was trusted of it."""
    _check_known(_config(), name)
    if not yes:
        click.confirm(f"Remove the MCP server {name}?", abort=True, err=True)
    changed = run_with_config(
        GatewayOptions(),
        lambda settings: settings.change(lambda tree: _without(tree, name)),
    )
    _records().remove(name)
    if as_json:
        click.echo(json.dumps({"ok": True, "name": name, "path": changed.file}))
        return
    click.echo(f"{name} is removed.")


def _without(tree: Any, name: str) -> Any:
    """Return the config without a server, and without a section that is empty then."""
    tree = unset_path(tree, (*_SERVERS, name))
    for path in (_SERVERS, _SERVERS[:1]):
        tree = unset_path(tree, path) if get_path(tree, path) == {} else tree
    return tree


@command.command()
@examples("homarus mcp test files", "homarus mcp test files --accept")
@click.argument("name", metavar="NAME")
@click.option("--accept", is_flag=True, help="Trust the tools as the server describes them now.")
@as_json_option
def test(name: str, *, accept: bool, as_json: bool) -> None:
    """Connect to a server, list its tools, and show what has changed since they were trusted."""
    from homarus.tools.mcp.server_settings import resolve_server
    from homarus.tools.mcp.tool_pins import describe_change

    config = _config()
    _check_known(config, name)
    listing = _fetch_listing(resolve_server(config, name))
    record = _save(name, listing, trust=accept)
    changes = {tool.call_name: describe_change(tool) for tool in record.pending}
    if as_json:
        report = {"ok": not changes, "name": name, "server": record.title}
        tools = _tool_names(record)
        click.echo(json.dumps({**report, "tools": tools, "pending": changes}, ensure_ascii=False))
    else:
        _print_tools(record)
        for tool, change in changes.items():
            click.echo(f"\n{tool} is not what was trusted:\n{change}")
        if changes:
            click.echo(f"\nTo trust it: homarus mcp test {name} --accept")
    raise click.exceptions.Exit(1 if changes else 0)


def _check_known(config: "Config", name: str) -> None:
    names = tuple(config.mcp.servers)
    if name not in names:
        raise UnknownNameError("MCP server", name, closest_names(name, names) or names[:3])


def _fetch_listing(settings: "McpServerSettings") -> "ServerListing":
    """Connect, and return what the server has. Raises UserError."""
    from homarus.core.tasks import task_group
    from homarus.tools.mcp.pool import McpPool

    async def fetch() -> "ServerListing":
        found: list[ServerListing] = []
        async with task_group() as group:
            pool = McpPool(group, _env, lambda _settings, listing: found.append(listing))
            try:
                await pool.connect(settings)
            finally:
                pool.stop()
        return found[-1]

    try:
        return asyncio.run(fetch())
    except HomarusError as exc:
        raise UserError(exc.message, fix=exc.fix) from exc


def _save(name: str, listing: "ServerListing", *, trust: bool) -> "ServerRecord":
    from homarus.tools.mcp.tool_pins import merge_listing

    return _records().update(name, lambda known: merge_listing(known, name, listing, trust=trust))


def _print_tools(record: "ServerRecord") -> None:
    listed = [tool for tool in record.tools if tool.is_listed]
    extra = [
        word
        for word, is_there in (
            ("resources", record.has_resources),
            ("prompts", record.has_prompts),
        )
        if is_there
    ]
    more = f", and {' and '.join(extra)}" if extra else ""
    click.echo(f"{record.title or record.server} has {len(listed)} tools{more}:")
    for tool in listed:
        click.echo(f"  {tool.call_name:<32} {one_line(tool.shown.description, 60)}")


def _tool_names(record: "ServerRecord | None") -> list[str]:
    return [tool.call_name for tool in record.tools if tool.is_listed] if record else []


def _records() -> "McpRecordStore":
    from homarus.tools.mcp.record_store import McpRecordStore

    return McpRecordStore(with_gateway_config(Paths.find(os.environ)).state)


def _env() -> Mapping[str, str]:
    paths = with_gateway_config(Paths.find(os.environ))
    env, _ = resolve_env(paths, os.environ, read_raw(paths))
    return env


def _config() -> "Config":
    return run_with_config(GatewayOptions(), lambda settings: settings.config())
