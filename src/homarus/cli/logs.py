"""`homarus logs`: the program's log."""

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from homarus.cli.command_group import examples
from homarus.cli.gateway_options import (
    GatewayOptions,
    gateway_options,
    is_gateway_running,
    open_gateway,
)
from homarus.cli.options import Seconds, limit_option
from homarus.core.errors import UnavailableError
from homarus.core.text import escape_invisible

if TYPE_CHECKING:
    from homarus.gateway.client import GatewayClient

Read = Callable[[], Awaitable[tuple[Sequence[str], int]]]
_MAX_BYTES = 1_000_000


@click.command("logs")
@examples("homarus logs --limit 50", "homarus logs --follow")
@limit_option("How many lines at most.", 5_000, default=200)
@click.option("--follow", is_flag=True, help="Continue with new lines until Ctrl-C.")
@click.option(
    "--interval",
    "interval_s",
    metavar="SECONDS",
    type=Seconds(0.1, 60),
    default=1,
    help="Seconds between two polls with --follow.",
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print the stored lines, one JSON object each.",
)
@gateway_options
def command(
    limit: int, interval_s: float, gateway: GatewayOptions, *, follow: bool, as_json: bool
) -> None:
    """Show the log."""
    show = click.echo if as_json else show_line
    asyncio.run(follow_log(gateway, limit, interval_s if follow else None, show))


async def follow_log(
    gateway: GatewayOptions, limit: int, interval_s: float | None, show: Callable[[str], None]
) -> None:
    """Print the log and, with an interval, follow it; the gateway may restart meanwhile."""
    tail = _LogTail(limit, show)
    while True:
        try:
            await tail.poll(gateway, interval_s)
        except UnavailableError:
            if interval_s is None or tail.cursor is None:  # the gateway was never reachable
                raise
            await asyncio.sleep(interval_s)
        else:
            return


class _LogTail:
    """The position up to which the log was printed."""

    def __init__(self, limit: int, show: Callable[[str], None]) -> None:
        self._limit, self._show = limit, show
        self.cursor: int | None = None

    async def poll(self, gateway: GatewayOptions, interval_s: float | None) -> None:
        if not is_gateway_running(gateway):
            await self._repeat(self._from_file, interval_s)
            return
        async with open_gateway(gateway) as client:
            await self._repeat(lambda: self._from_gateway(client), interval_s)

    async def _repeat(self, read: Read, interval_s: float | None) -> None:
        while True:
            lines, self.cursor = await read()
            for line in lines:
                self._show(line)
            if interval_s is None:
                return
            await asyncio.sleep(interval_s)

    async def _from_gateway(self, client: "GatewayClient") -> tuple[Sequence[str], int]:
        params = {} if self.cursor is None else {"cursor": self.cursor}
        answer = await client.call("logs.tail", {"limit": self._limit, **params})
        found = answer if isinstance(answer, dict) else {}
        return [str(line) for line in found.get("lines", ())], int(found.get("cursor", 0))

    async def _from_file(self) -> tuple[Sequence[str], int]:
        """Return the last lines of the file, or those after the cursor."""
        from homarus.cli.config_client import FileConfigClient
        from homarus.config.log_files import find_log_file
        from homarus.config.paths import Paths

        paths = Paths.find(os.environ)
        file = find_log_file(await FileConfigClient(paths).config(), paths.logs)
        return read_tail(file, self.cursor, self._limit)


def read_tail(file: Path, cursor: int | None, limit: int) -> tuple[Sequence[str], int]:
    """Return complete lines from an offset on, or the last ones, and the next offset."""
    from homarus.config.log_files import open_log_to_read

    try:
        with open_log_to_read(file) as opened:
            size = opened.seek(0, os.SEEK_END)
            start = cursor if cursor is not None and cursor <= size else max(0, size - _MAX_BYTES)
            opened.seek(start)
            data = opened.read(_MAX_BYTES)
    except FileNotFoundError:
        return (), 0
    except OSError as exc:
        raise UnavailableError(f"the log {file} cannot be read: {exc.strerror}") from None
    complete, _, _ = data.rpartition(b"\n")
    lines = complete.decode("utf-8", "replace").split("\n") if complete else []
    return (lines if cursor is not None else lines[-limit:]), start + len(complete) + bool(complete)


def show_line(line: str) -> None:
    """Format a line for people: time, level, logger, message. It may not move the cursor."""
    try:
        row = json.loads(line)
        row = row if "message" in row else _from_openclaw(row)
        text = f"{row['time']} {row['level']:<7} {row['logger']}: {row['message']}"
    except (ValueError, LookupError, TypeError, AttributeError):
        text = line
    click.echo(escape_invisible(text))


def _from_openclaw(row: dict[str, Any]) -> dict[str, str]:
    """Return the fields of a line that OpenClaw wrote; its parts are numbered."""
    meta, parts = row["_meta"], [row[key] for key in sorted(row) if key.isdigit()]
    name = str(meta.get("name", ""))
    texts = [part if isinstance(part, str) else json.dumps(part) for part in parts if part != name]
    try:
        name = str(json.loads(name)["subsystem"])
    except (ValueError, LookupError, TypeError):
        name = name or "openclaw"
    level = str(meta["logLevelName"]).lower()
    return {"time": row["time"], "level": level, "logger": name, "message": " ".join(texts)}
