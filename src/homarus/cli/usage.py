"""`homarus usage`: what the calls of models used and cost."""

import asyncio
import json
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import click

from homarus.cli.command_group import examples
from homarus.cli.gateway_options import (
    GatewayOptions,
    as_json_option,
    gateway_options,
    is_gateway_running,
    open_gateway,
)
from homarus.cli.options import agent_option
from homarus.cli.text_layout import clip, width
from homarus.core.errors import UserError
from homarus.core.message import Json
from homarus.core.text import escape_invisible
from homarus.gateway.usage_report import MAX_DAYS, UsageGroup, day_range, read_usage

_GROUPS: Final = ("day", "agent", "session", "model", "provider", "channel", "purpose")
_KEYS: Final = {"day": "date", "agent": "agentId", "session": "key"}
_EMPTY: Final = {
    "agent": "(no agent)", "session": "(no session)", "channel": "(no channel)",
    "purpose": "(not recorded)",
}  # fmt: skip
_NUMBERS: Final = ("calls", "in", "cached", "out", "cost")
_BLOCKS: Final = " ▏▎▍▌▋▊▉█"
_MIN_BAR, _MAX_BAR, _MIN_NAME, _MAX_NAME = 8, 40, 12, 48
_CSV: Final = (
    "calls", "failed", "input", "output", "cacheRead", "cacheWrite", "totalTokens", "totalCost",
    "missingCostEntries",
)  # fmt: skip


@click.command("usage")
@examples(
    "homarus usage",
    "homarus usage --by model --days 7",
    "homarus usage --by session --agent work --since 2026-02-01",
    "homarus usage --by day --csv > usage.csv",
)
@click.option("--by", type=click.Choice(_GROUPS), default="day", help="What each row stands for.")
@click.option(
    "--days", metavar="COUNT", type=click.IntRange(1, MAX_DAYS), default=30,
    help="The last COUNT days, today included.",
)  # fmt: skip
@click.option("--since", metavar="DAY", help="From this day on (2026-02-17), instead of --days.")
@click.option("--until", metavar="DAY", show_default="today", help="Up to this day, included.")
@agent_option("Only calls of this agent.")
@click.option("--csv", "as_csv", is_flag=True, help="Print comma-separated values.")
@as_json_option
@gateway_options
def command(
    by: UsageGroup,
    days: int,
    since: str | None,
    until: str | None,
    agent: str | None,
    gateway: GatewayOptions,
    *,
    as_csv: bool,
    as_json: bool,
) -> None:
    """Show tokens, cost and cache hits of model calls.

    Every call counts: answers, failed attempts that used tokens, summaries, images and memory.
    """
    if as_csv and as_json:
        raise click.UsageError("--csv and --json exclude each other")
    found = asyncio.run(fetch_usage(gateway, by, days, since, until, agent))
    if as_json:
        click.echo(json.dumps(found, ensure_ascii=False))
    elif as_csv:
        click.echo(to_csv(found), nl=False)
    else:
        is_terminal = os.isatty(1)
        columns = shutil.get_terminal_size().columns if is_terminal else 0
        click.echo("\n".join(to_table(found, columns)))


async def fetch_usage(
    gateway: GatewayOptions,
    by: UsageGroup = "day",
    days: int = 30,
    since: str | None = None,
    until: str | None = None,
    agent: str | None = None,
) -> dict[str, Json]:
    """Return the totals, from a running gateway or from the store."""
    now_ms = time.time_ns() // 1_000_000
    first, last = day_range(_to_day(since, now_ms), _to_day(until, now_ms), days, now_ms)
    if is_gateway_running(gateway):
        asked: dict[str, Json] = {"by": [by], "startDate": str(first), "endDate": str(last)}
        if agent:
            asked["agentId"] = agent
        async with open_gateway(gateway) as client:
            answer = await client.call("usage.totals", asked)
        return answer if isinstance(answer, dict) else {}
    from homarus.config.paths import Paths
    from homarus.config.session_store import find_session_store
    from homarus.store.sqlite import open_store
    from homarus.store.usage import UsageFilter

    paths = find_session_store(Paths.find(os.environ), os.environ)
    async with open_store(paths.state, read_only=True, sessions=paths.session_store) as store:
        wanted = UsageFilter(str(first), str(last), agent or "")
        return await read_usage(store, [by], wanted, now_ms)


def _to_day(text: str | None, now_ms: int) -> str | None:
    """Return a day of the calendar; `7d` is seven days ago."""
    if text is None:
        return None
    today = datetime.fromtimestamp(now_ms / 1000).astimezone().date()
    named = {"today": 0, "yesterday": 1}.get(text.lower())
    if named is None and text[:-1].isdecimal() and text.endswith("d") and len(text) < 6:
        named = int(text[:-1])
    if named is not None:
        return str(today - timedelta(days=named))
    try:
        return str(datetime.strptime(text, "%Y-%m-%d").date())  # noqa: DTZ007 - only its day is used
    except ValueError:
        raise UserError(
            f"{escape_invisible(text[:40])!r} is not a day",
            fix="use a day such as 2026-02-17, today, yesterday or 7d",
        ) from None


def to_csv(found: Mapping[str, Any]) -> str:
    """Return the rows as comma-separated values, with a header."""
    import csv
    import io

    names = _group_names(found["by"])
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*names, *_CSV])
    for row in found["rows"]:
        writer.writerow([*(_plain_cell(row[name]) for name in names), *(row[n] for n in _CSV)])
    return out.getvalue()


def _plain_cell(text: str) -> str:
    """Return a name that a spreadsheet does not take for a formula."""
    shown = escape_invisible(text)
    return f"'{shown}" if shown.startswith(("=", "+", "-", "@")) else shown


def _group_names(by: Sequence[str]) -> list[str]:
    return [
        name
        for group in by
        for name in (("provider", "model") if group == "model" else (_KEYS.get(group, group),))
    ]


def to_table(found: Mapping[str, Any], columns: int) -> list[str]:
    """Return the rows for people: with bars in a terminal of so many columns, 0 for a pipe."""
    (by,) = found["by"]
    title = f"{found['startDate']} to {found['endDate']}"
    if not found["rows"]:
        return [f"No calls of models from {title}."]
    labels = [_label(by, row) for row in found["rows"]]
    total = found["totals"]
    numbers = [_numbers(row) for row in [*found["rows"], total]]
    sizes = [max(map(len, cells)) for cells in zip(_NUMBERS, *numbers, strict=True)]
    taken = sum(sizes) + 2 * len(sizes)
    longest = max(width(label) for label in [*labels, "total"])
    beside_bar = columns - taken - _MIN_BAR - 2  # for the name, if there is room for a bar
    room = beside_bar if beside_bar >= _MIN_NAME else max(_MIN_NAME, columns - taken)
    room = min(_MAX_NAME, room) if columns else longest
    name_width = min(longest, room)
    bar_width = min(_MAX_BAR, columns - taken - name_width - 2) if columns else 0
    bar_width = bar_width if bar_width >= _MIN_BAR else 0
    measured = "totalCost" if total["totalCost"] else "totalTokens"
    largest = max(row[measured] for row in found["rows"]) or 1
    lines = [_line(by, "", _NUMBERS, sizes, name_width, bar_width)]
    for label, row, cells in zip(labels, found["rows"], numbers, strict=False):
        bar = draw_bar(row[measured] / largest, bar_width)
        lines.append(_line(label, bar, cells, sizes, name_width, bar_width))
    lines.append(_line("total", "", numbers[-1], sizes, name_width, bar_width))
    if total["missingCostEntries"]:
        lines.append(f"{total['missingCostEntries']:,} calls came without a price.")
    return lines


def draw_bar(share: float, columns: int) -> str:
    """Return a bar of eighths of a column; what is not nothing has at least one eighth."""
    if columns <= 0 or share <= 0:
        return ""
    eighths = max(1, round(min(share, 1.0) * columns * 8))
    return "█" * (eighths // 8) + _BLOCKS[eighths % 8].strip()


def _line(
    label: str, bar: str, cells: Sequence[str], sizes: Sequence[int], name: int, bar_width: int
) -> str:
    shown = clip(label, name)
    start = shown + " " * (name - width(shown))
    middle = f"  {bar:<{bar_width}}" if bar_width else ""
    ends = "".join(f"  {cell:>{size}}" for cell, size in zip(cells, sizes, strict=True))
    return f"{start}{middle}{ends}"


def _label(by: str, row: Mapping[str, Any]) -> str:
    if by == "model":
        return escape_invisible(f"{row['provider']}/{row['model']}")
    return escape_invisible(str(row[_KEYS.get(by, by)])) or _EMPTY.get(by, "(unknown)")


def _numbers(row: Mapping[str, Any]) -> tuple[str, ...]:
    prompt = row["input"] + row["cacheRead"] + row["cacheWrite"]
    cached = f"{100 * row['cacheRead'] // prompt}%" if prompt else "-"
    cost = row["totalCost"]
    return (
        f"{row['calls']:,}", short_number(prompt), cached, short_number(row["output"]),
        f"${cost:,.2f}" if cost >= 1 or not cost else f"${cost:.4f}",
    )  # fmt: skip


def short_number(count: int) -> str:
    """Return a number in at most five characters: 950, 12.4k, 3.1M."""
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= size:
            return f"{count / size:.{0 if count >= 100 * size else 1}f}{unit}"
    return str(count)
