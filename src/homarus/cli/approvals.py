"""`homarus approvals`: answer questions about tool calls, and edit the rules for commands."""

import asyncio
import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

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
from homarus.config.approvals_snapshot import (
    ApprovalsSnapshot,
    change_approvals,
    check_approvals,
    edit_allowlist,
    read_approvals_snapshot,
)
from homarus.config.paths import Paths
from homarus.core.clock import SystemClock
from homarus.core.errors import UserError
from homarus.core.message import Json
from homarus.core.text import escape_invisible

_MAX_FILE_BYTES: Final = 5_000_000
_ALL_AGENTS: Final = "*"


@click.group("approvals", cls=CommandGroup)
@examples("homarus approvals list", "homarus approvals allow 4f2a91c0", "homarus approvals get")
def command() -> None:
    """Answer questions about tool calls; edit the rules for commands."""


@command.command()
@examples("homarus approvals get", "homarus approvals get --json > rules.json")
@as_json_option
@gateway_options
def get(gateway: GatewayOptions, *, as_json: bool) -> None:
    """Show the rules for commands (exec-approvals.json)."""
    found = asyncio.run(_read_rules(gateway))
    if as_json:
        click.echo(json.dumps(found.to_json(), ensure_ascii=False))
        return
    state = "" if found.exists else " (there is none yet: the defaults hold)"
    click.echo(f"{found.path}{state}")
    _show_rules("defaults", found.file.get("defaults"))
    agents = found.file.get("agents")
    for name, section in (agents if isinstance(agents, Mapping) else {}).items():
        _show_rules("all agents" if name == _ALL_AGENTS else f"agent {name}", section)


@command.command("set")
@examples("homarus approvals set --file rules.json", "homarus approvals set --stdin < rules.json")
@click.option("--file", "file", type=click.Path(dir_okay=False, path_type=Path), metavar="PATH",
              help="Read the rules from a file.")  # fmt: skip
@click.option("--stdin", "from_stdin", is_flag=True, help="Read the rules from standard input.")
@as_json_option
@gateway_options
def set_(gateway: GatewayOptions, file: Path | None, *, from_stdin: bool, as_json: bool) -> None:
    """Replace the rules for commands by those of a JSON file."""
    if (file is None) != from_stdin:
        raise click.UsageError("give either --file or --stdin")
    rules = _parse_rules(sys.stdin.buffer.read(_MAX_FILE_BYTES) if file is None else _read(file))
    checked = check_approvals(rules)
    written = asyncio.run(_change_rules(gateway, lambda _old: checked))
    if as_json:
        click.echo(json.dumps(written.to_json(), ensure_ascii=False))
    else:
        click.echo(f"{written.path} is replaced; the next command follows it.")


@command.group("allowlist", cls=CommandGroup)
@examples("homarus approvals allowlist add ~/bin/deploy --agent main")
def allowlist() -> None:
    """Programs that run without a question."""


@allowlist.command()
@examples("homarus approvals allowlist add '/usr/bin/rg'")
@click.argument("pattern")
@agent_option("Only for this agent.", default="all agents")
@as_json_option
@gateway_options
def add(pattern: str, agent: str | None, gateway: GatewayOptions, *, as_json: bool) -> None:
    """Add PATTERN, the path of a program."""
    now_ms = SystemClock().now_ms()

    def edit(old: ApprovalsSnapshot) -> Mapping[str, Json] | None:
        return edit_allowlist(old.file, agent or _ALL_AGENTS, add=pattern, now_ms=now_ms)

    _edit_list(gateway, edit, "is added", "was there already", pattern, as_json=as_json)


@allowlist.command()
@examples("homarus approvals allowlist remove '/usr/bin/rg'")
@click.argument("pattern")
@agent_option("Only for this agent.", default="all agents")
@as_json_option
@gateway_options
def remove(pattern: str, agent: str | None, gateway: GatewayOptions, *, as_json: bool) -> None:
    """Remove PATTERN, as `approvals get` shows it."""

    def edit(old: ApprovalsSnapshot) -> Mapping[str, Json] | None:
        return edit_allowlist(old.file, agent or _ALL_AGENTS, remove=pattern)

    _edit_list(gateway, edit, "is removed", "was not there", pattern, as_json=as_json)


def _edit_list(
    gateway: GatewayOptions,
    edit: Callable[[ApprovalsSnapshot], Mapping[str, Json] | None],
    done: str,
    unchanged: str,
    pattern: str,
    *,
    as_json: bool,
) -> None:
    is_changed = False

    def track(old: ApprovalsSnapshot) -> Mapping[str, Json] | None:
        nonlocal is_changed
        new = edit(old)
        is_changed = new is not None
        return new

    written = asyncio.run(_change_rules(gateway, track))
    if as_json:
        click.echo(json.dumps({"changed": is_changed, **written.to_json()}, ensure_ascii=False))
    else:
        click.echo(f"{escape_invisible(pattern)} {done if is_changed else unchanged}.")


async def _read_rules(gateway: GatewayOptions) -> ApprovalsSnapshot:
    if not is_gateway_running(gateway):
        return read_approvals_snapshot(Paths.find(os.environ).state)
    async with open_gateway(gateway) as client:
        return _snapshot(await client.call("exec.approvals.get", {}))


async def _change_rules(
    gateway: GatewayOptions, change: Callable[[ApprovalsSnapshot], Mapping[str, Json] | None]
) -> ApprovalsSnapshot:
    """Change the rules through a running gateway, else in the file."""
    if not is_gateway_running(gateway):
        return change_approvals(Paths.find(os.environ).state, change)
    async with open_gateway(gateway) as client:
        old = _snapshot(await client.call("exec.approvals.get", {}))
        new = change(old)
        if new is None:
            return old
        params = {"file": dict(new), "baseHash": old.hash}
        return _snapshot(await client.call("exec.approvals.set", params))


def _snapshot(found: Json) -> ApprovalsSnapshot:
    told = found if isinstance(found, dict) else {}
    path, file = Path(str(told.get("path", ""))), told.get("file")
    rules = file if isinstance(file, dict) else {}
    return ApprovalsSnapshot(path, told.get("exists") is True, str(told.get("hash", "")), rules)


def _show_rules(title: str, section: Json) -> None:
    if not isinstance(section, Mapping):
        return
    rules = (f"{name} {value}" for name, value in section.items() if name != "allowlist")
    click.echo(f"{escape_invisible(title)}: {escape_invisible(', '.join(rules)) or 'no rules'}")
    entries = section.get("allowlist")
    for entry in entries if isinstance(entries, list) else ():
        pattern = entry.get("pattern") if isinstance(entry, Mapping) else entry
        click.echo(f"  {escape_invisible(str(pattern))}")


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_MAX_FILE_BYTES)


def _parse_rules(data: bytes) -> Mapping[str, Json]:
    try:
        found = json.loads(data.decode())
    except (ValueError, RecursionError) as exc:
        raise UserError(
            f"the rules are not JSON: {exc}", fix="homarus approvals get --json"
        ) from exc
    rules = found.get("file", found) if isinstance(found, dict) else None
    if not isinstance(rules, dict):
        raise UserError("the rules are not a JSON object", fix="homarus approvals get --json")
    return rules
