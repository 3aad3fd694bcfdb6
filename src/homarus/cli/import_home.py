"""`homarus import`: copy what another home has, without changing it."""

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from homarus.cli import completion_values
from homarus.cli.command_group import examples
from homarus.cli.gateway_options import as_json_option
from homarus.cli.options import workspace_option
from homarus.config.paths import Paths, expand, shorten
from homarus.importing.importer import ImportOptions, import_home
from homarus.importing.report import OUTCOMES, ImportReport, Kind, Outcome

_TITLES: Final[dict[Kind, str]] = {
    "sessions": "sessions",
    "transcripts": "old transcripts",
    "memory": "memory files",
    "cronJobs": "cron jobs",
    "credentials": "credentials",
    "approvedSenders": "approved senders",
}
_OUTCOMES: Final[dict[Outcome, str]] = {
    "imported": "imported",
    "updated": "updated",
    "present": "unchanged",
    "keptBeside": "renamed",
    "conflicts": "conflicts",
    "skipped": "skipped",
}


@click.command("import")
@examples("homarus import ~/old-home/.openclaw --dry-run", "homarus import ~/old-home/.openclaw")
@click.argument("source", metavar="SOURCE", shell_complete=completion_values.directories)
@click.option("--dry-run", is_flag=True, help="Count what would be imported, and import nothing.")
@workspace_option(
    "The workspace of the source's default agent, if it is not in SOURCE.",
    default="as the source's config says",
)
@as_json_option
def command(source: str, workspace: str | None, *, dry_run: bool, as_json: bool) -> None:
    """Copy sessions, memory, jobs and credentials of another home.

    SOURCE is the state directory of OpenClaw, of any version, or a folder that contains it. It is
    only read. Nothing that is here is replaced. An import that was interrupted is continued by the
    same command.
    """
    paths = Paths.find(os.environ)
    options = ImportOptions(
        expand(source, paths.home),
        expand(workspace, paths.home) if workspace else None,
        is_dry_run=dry_run,
    )
    report = asyncio.run(import_home(options, paths, os.environ))
    if as_json:
        click.echo(json.dumps(report.as_json(), ensure_ascii=False))
        return
    for line in _lines(report, paths):
        click.echo(line)


def _lines(report: ImportReport, paths: Paths) -> Iterator[str]:
    source, target = (shorten(Path(one), paths.home) for one in (report.source, report.target))
    yield f"{source} → {target}"
    shown = [name for name in OUTCOMES if name == "imported" or _is_used(report, name)]
    rows = [["", "source", "before", *(_OUTCOMES[name] for name in shown), "after"]]
    for kind, title in _TITLES.items():
        one = report.counts[kind]
        numbers = [one.source, one.before, *(one.outcomes[name] for name in shown), one.after]
        rows.append([title, *map(str, numbers)])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *rest in rows:
        cells = [cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True)]
        yield "  ".join([first.ljust(widths[0]), *cells])
    yield f"Messages in the imported sessions: {report.messages}"
    if report.damaged_lines:
        yield f"Damaged lines that were left out: {report.damaged_lines}"
    titles: dict[str, str] = {str(kind): title for kind, title in _TITLES.items()}
    for note in report.notes:
        yield f"{titles.get(note.kind, note.kind)}: {note.item}: {note.text}"
    if report.left_off:
        yield f"… and {report.left_off} more"
    if report.is_dry_run:
        yield "Nothing was imported."


def _is_used(report: ImportReport, name: Outcome) -> bool:
    return any(one.outcomes[name] for one in report.counts.values())
