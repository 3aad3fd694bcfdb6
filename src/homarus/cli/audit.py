"""`homarus audit`: what was decided, approved, run and changed, and that no row was edited."""

import asyncio
import json
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

import click

from homarus.cli.command_group import CommandGroup, examples
from homarus.cli.gateway_options import as_json_option
from homarus.cli.options import agent_option, limit_option
from homarus.config.paths import Paths
from homarus.config.session_store import find_session_store
from homarus.core.clock import SystemClock
from homarus.core.errors import UserError
from homarus.core.message import Json
from homarus.core.text import escape_invisible, one_line
from homarus.core.units import parse_duration_ms
from homarus.store.audit import AUDIT_KINDS, AuditAnchor, AuditCheck, AuditEntry, encode_entry
from homarus.store.audit_anchor import ANCHOR_FILE, load_anchor
from homarus.store.audit_changes import import_changes, pending_changes
from homarus.store.lock import lock_holder_pid
from homarus.store.sqlite import SqliteStore, open_store

_MAX_LIMIT: Final = 100_000
_MAX_REASON_CHARS: Final = 200


@click.group("audit", cls=CommandGroup, invoke_without_command=True)
@examples(
    "homarus audit",
    "homarus audit --since 1h --tool exec",
    "homarus audit --since 2026-02-17 --kind config --json",
    "homarus audit verify",
)
@click.option("--since", metavar="TIME", help="Rows since a duration (1h, 7d) or a date.")
@agent_option("Rows of this agent.", default="all agents")
@click.option("--tool", metavar="NAME", help="Rows about this tool.")
@click.option("--kind", type=click.Choice(AUDIT_KINDS), help="Rows of this kind.")
@limit_option("How many rows, the newest.", _MAX_LIMIT, default=100)
@as_json_option
@click.pass_context
def command(
    ctx: click.Context,
    *,
    since: str | None,
    agent: str | None,
    tool: str | None,
    kind: str | None,
    limit: int,
    as_json: bool,
) -> None:
    """Show the audit log, or verify that no row was changed."""
    if ctx.invoked_subcommand:
        return
    since_ms = parse_since_ms(since, SystemClock().now_ms()) if since else 0
    wanted = {"agent": agent, "tool": tool, "kind": kind}
    entries = asyncio.run(_read(Paths.find(os.environ), since_ms, limit, wanted))
    if as_json:
        click.echo(json.dumps([encode_entry(entry) for entry in entries], ensure_ascii=False))
        return
    for entry in entries:
        click.echo(format_entry(entry))
    if not entries:
        click.echo("No rows.")


@command.command()
@examples("homarus audit verify", "homarus audit verify --anchor 512:9f86d081…")
@click.option("--anchor", metavar="SEQ:HASH", help="A row that you wrote down before.")
@as_json_option
def verify(*, anchor: str | None, as_json: bool) -> None:
    """Verify that no row was changed, removed or moved.

    Prints the number and hash of the last row. Who can write the state directory could write a
    whole new log: write the line down on another machine, and give it as --anchor later.
    """
    paths = Paths.find(os.environ)
    given = {"--anchor": _parse_anchor(anchor)} if anchor else {}
    found = check_log(paths, **given)
    last = found.anchor
    if as_json:
        row = {"ok": not found.problem, "seq": last.seq, "hash": last.hash}
        click.echo(json.dumps({**row, "problem": found.problem}))
    elif found.problem:
        click.echo(f"The audit log was changed: {found.problem}.")
        if ANCHOR_FILE in found.problem:
            click.echo(f"If you restored a backup, delete {paths.state / ANCHOR_FILE}.")
    else:
        click.echo(f"{last.seq} rows, none was changed.")
        if last.seq:
            click.echo(f"{last.seq}:{last.hash}")
    raise click.exceptions.Exit(1 if found.problem else 0)


def check_log(paths: Paths, **anchors: AuditAnchor) -> AuditCheck:
    """Check the log of a state directory against itself, its anchor file and what is given."""

    async def check() -> AuditCheck:
        async with _open(paths) as store:
            return await store.check_audit(**{ANCHOR_FILE: load_anchor(paths.state)}, **anchors)

    return asyncio.run(check()) if paths.database.exists() else AuditCheck(AuditAnchor())


def _open(paths: Paths) -> SqliteStore:
    found = find_session_store(paths, os.environ)
    return open_store(paths.state, mirror=False, read_only=True, sessions=found.session_store)


async def _read(
    paths: Paths, since_ms: int, limit: int, wanted: dict[str, str | None]
) -> Sequence[AuditEntry]:
    if paths.state.is_dir() and not lock_holder_pid(paths.state) and pending_changes(paths.state):
        async with open_store(paths.state, mirror=False) as writing:
            await import_changes(writing, paths.state)
    entries: list[AuditEntry] = []
    if paths.database.exists():
        async with _open(paths) as store:
            entries += await store.audit_entries(
                since_ms=since_ms, before_seq=None, limit=limit, **wanted
            )
    if wanted["tool"] is None and wanted["kind"] in {None, "config"}:
        entries += [
            entry
            for entry in pending_changes(paths.state)  # a gateway has not moved them to the log yet
            if entry.at_ms >= since_ms and wanted["agent"] in {None, entry.agent}
        ]
    return entries[-limit:]


def parse_since_ms(text: str, now_ms: int) -> int:
    """Return a time given as a duration before now (`1h`) or as a date in ISO form, local time."""
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        pass
    try:
        return now_ms - parse_duration_ms(text, "s")
    except UserError:
        raise UserError(
            f"{one_line(text, 40)!r} is no time", fix="write 1h, 7d or 2026-02-17"
        ) from None


def _parse_anchor(text: str) -> AuditAnchor:
    seq, _, digest = text.strip().partition(":")
    if not seq.isdecimal() or len(digest) != 64:
        raise UserError(
            f"{one_line(text, 80)!r} is no anchor", fix="give the last line of homarus audit verify"
        )
    return AuditAnchor(int(seq), digest)


def format_entry(entry: AuditEntry) -> str:
    """Return an entry as one line for people."""
    at = datetime.fromtimestamp(entry.at_ms / 1000, UTC).astimezone()
    data = entry.data
    lead = f"{entry.seq or '-':>6}  {at:%Y-%m-%d %H:%M:%S}  {entry.kind:<9}"
    about = " ".join(part for part in (entry.tool, entry.session or entry.agent) if part)
    match entry.kind:
        case "decision":
            text = f"{data.get('action')} by {data.get('rule')}{_place(data)}: {data.get('reason')}"
        case "execution":
            ended = f", exit {data['exitCode']}" if "exitCode" in data else ""
            digest = str(data.get("digest", ""))[:12]
            taken = f"in {data.get('durationMs')} ms{ended}{_place(data)}"
            text = f"{data.get('outcome')} {taken} ({digest})"
        case _:
            named = {key: value for key, value in data.items() if key not in {"hash", "request"}}
            text = "; ".join(f"{key} {_shown(value)}" for key, value in named.items())
    line = escape_invisible(one_line(f"{about}  {text}".strip(), _MAX_REASON_CHARS))
    return f"{lead} {line}"


def _place(data: Mapping[str, Json]) -> str:
    return f", {data['place']}" if data.get("place") else ""


def _shown(value: Json) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {item}" for key, item in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
