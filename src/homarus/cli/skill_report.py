"""Print what a skill asks for and what the check of it found."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from homarus.core.errors import UserError
from homarus.core.text import escape_invisible, one_line

if TYPE_CHECKING:
    from homarus.skills.hub.prepared_skill import PreparedSkill
    from homarus.skills.lint import LintFinding, LintReport

_MARKS = {"block": "✗ blocked", "warn": "! warning", "info": "  note"}


def print_report(prepared: "PreparedSkill", *, err: bool = False) -> None:
    """Print a skill's name, what it asks for, and the findings."""
    version = f" {prepared.version}" if prepared.version else ""
    owner = f" by @{prepared.owner}" if prepared.owner else ""
    source = f" from {prepared.registry}" if prepared.registry else ""
    click.echo(f"{prepared.slug}{version}{owner}{source}", err=err)
    needs = prepared.report.needs
    if needs.description:
        click.echo(f"  {escape_invisible(needs.description)}", err=err)
    count = len(prepared.files)
    files = f"{count} file{'' if count == 1 else 's'}"
    click.echo(f"  {files}, fingerprint {prepared.fingerprint[:16]}…", err=err)
    rows = needs.rows()
    click.echo("It asks for:" if rows else "It asks for nothing.", err=err)
    for title, value in rows:
        click.echo(f"  {title:<10} {escape_invisible(value)}", err=err)
    print_findings(prepared.report.findings, err=err)


def print_findings(findings: "Iterable[LintFinding]", *, err: bool = False) -> None:
    """Print findings, one on a line, with the text that was found."""
    for each in findings:
        shown = f": {each.excerpt}" if each.excerpt else ""
        line = f"{_MARKS[each.severity]} {each.place} {each.message} [{each.rule}]{shown}"
        click.echo(one_line(line, 300), err=err)


def check_report(report: "LintReport", verb: str, *, force_unsafe: bool) -> None:
    """Raise UserError for a skill that must not be installed or published."""
    if report.blocks and not force_unsafe:
        first = report.blocks[0]
        more = f" and {len(report.blocks) - 1} more" if len(report.blocks) > 1 else ""
        raise UserError(
            f"it is not {verb}: {first.place} {first.message}{more}",
            fix="if you have read it and want it all the same: --force-unsafe",
        )
