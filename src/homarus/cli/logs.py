"""`homarus logs`: what the program wrote down about itself."""

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import click

from homarus.cli.reach import Reach, is_running, open_gateway, reach_options
from homarus.core.text import reveal

Read = Callable[[int | None], Awaitable[tuple[Sequence[str], int]]]
_MAX_BYTES = 1_000_000


@click.command("logs")
@click.option("--limit", type=click.IntRange(1, 5_000), default=200, help="How many lines.")
@click.option("--follow", is_flag=True, help="Go on with what is written from now on.")
@click.option(
    "--interval",
    "interval_ms",
    type=click.IntRange(min=100),
    default=1_000,
    help="Milliseconds between two looks.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the lines as they are written.")
@reach_options
def command(
    limit: int,
    interval_ms: int,
    url: str | None,
    token: str | None,
    password: str | None,
    *,
    follow: bool,
    as_json: bool,
) -> None:
    """Show the log of the program."""
    show = click.echo if as_json else _show
    reach = Reach(url, token, password)
    asyncio.run(_read_on(reach, limit, interval_ms / 1000 if follow else None, show))


async def _read_on(
    reach: Reach, limit: int, interval_s: float | None, show: Callable[[str], None]
) -> None:
    if not is_running(reach):
        await _repeat(lambda cursor: _from_file(cursor, limit), interval_s, show)
        return
    async with open_gateway(reach) as link:

        async def read(cursor: int | None) -> tuple[Sequence[str], int]:
            place = {} if cursor is None else {"cursor": cursor}
            told = await link.call("logs.tail", {"limit": limit, **place})
            found = told if isinstance(told, dict) else {}
            return [str(line) for line in found.get("lines", ())], int(found.get("cursor", 0))

        await _repeat(read, interval_s, show)


async def _repeat(read: Read, interval_s: float | None, show: Callable[[str], None]) -> None:
    cursor: int | None = None
    while True:
        lines, cursor = await read(cursor)
        for line in lines:
            show(line)
        if interval_s is None:
            return
        await asyncio.sleep(interval_s)


async def _from_file(cursor: int | None, limit: int) -> tuple[Sequence[str], int]:
    """The last lines of the file, or those since `cursor`."""
    from homarus.config.load import load
    from homarus.config.log import log_file
    from homarus.config.paths import Paths

    return read_tail(log_file(load(Paths.find(os.environ), os.environ).config), cursor, limit)


def read_tail(file: Path, cursor: int | None, limit: int) -> tuple[Sequence[str], int]:
    """Whole lines from a place on, or the last ones; and where the next look begins."""
    try:
        with file.open("rb") as opened:
            size = opened.seek(0, os.SEEK_END)
            start = cursor if cursor is not None and cursor <= size else max(0, size - _MAX_BYTES)
            opened.seek(start)
            data = opened.read(_MAX_BYTES)
    except FileNotFoundError:
        return (), 0
    whole, _, _ = data.rpartition(b"\n")
    lines = whole.decode("utf-8", "replace").split("\n") if whole else []
    return (lines if cursor is not None else lines[-limit:]), start + len(whole) + bool(whole)


def _show(line: str) -> None:
    """A line for people: when, how bad, who, what. It may not move the cursor."""
    try:
        row = json.loads(line)
        told = f"{row['time']} {row['level']:<7} {row['logger']}: {row['message']}"
    except (ValueError, LookupError, TypeError):
        told = line
    click.echo(reveal(told))
