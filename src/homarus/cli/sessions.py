"""`homarus sessions`: the conversations there are."""

import asyncio
import json
import os
import time
from collections.abc import Sequence

import click

from homarus.config.paths import Paths
from homarus.core.message import Json
from homarus.store.base import SessionRecord
from homarus.store.sqlite import open_store


@click.command("sessions")
@click.option("--agent", metavar="ID", help="Only this agent's.")
@click.option("--active", "minutes", type=click.IntRange(min=1), help="Only of the last MINUTES.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(agent: str | None, minutes: int | None, *, as_json: bool) -> None:
    """List conversations."""
    now_ms = time.time_ns() // 1_000_000
    since_ms = now_ms - minutes * 60_000 if minutes else 0
    paths = Paths.find(os.environ)
    records = asyncio.run(_records(paths, agent, since_ms))
    if as_json:
        rows = [_row(record, now_ms) for record in records]
        click.echo(json.dumps({"count": len(rows), "sessions": rows}, ensure_ascii=False))
        return
    if not records:
        click.echo("No conversations yet. homarus chat starts one.")
    for record in records:
        tokens = record.data.get("totalTokens")
        used = f"{tokens:>8,} tokens" if isinstance(tokens, int) else " " * 15
        model = record.data.get("model") or ""
        click.echo(f"{_age(now_ms - record.updated_ms):>5}  {used}  {record.key}  {model}")


async def _records(paths: Paths, agent: str | None, since_ms: int) -> Sequence[SessionRecord]:
    async with open_store(paths.state, read_only=True) as store:
        return await store.sessions(agent=agent, since_ms=since_ms)


def _row(record: SessionRecord, now_ms: int) -> dict[str, Json]:
    shown = ("inputTokens", "outputTokens", "totalTokens", "modelProvider", "model")
    return {
        "key": record.key,
        "agentId": record.agent,
        "sessionId": record.session_id,
        "updatedAt": record.updated_ms,
        "ageMs": now_ms - record.updated_ms,
        **{name: record.data[name] for name in shown if name in record.data},
    }


def _age(ms: int) -> str:
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000)):
        if ms >= size:
            return f"{ms // size}{unit}"
    return "now"
