"""`homarus sessions`: list the conversations."""

import asyncio
import json
import os
import time
from collections.abc import Mapping, Sequence

import click

from homarus.cli.command_group import examples
from homarus.cli.gateway_options import (
    GatewayOptions,
    as_json_option,
    gateway_options,
    is_gateway_running,
    open_gateway,
)
from homarus.cli.options import agent_option, limit_option
from homarus.config.paths import Paths
from homarus.config.session_store import find_session_store
from homarus.core.message import Json
from homarus.store.base import SessionRecord
from homarus.store.sqlite import open_store

_SHOWN = ("inputTokens", "outputTokens", "totalTokens", "modelProvider", "model")


@click.command("sessions")
@examples("homarus sessions", "homarus sessions --agent work --active 60 --limit 5")
@agent_option("Only sessions of this agent.")
@click.option(
    "--active",
    "minutes",
    metavar="MINUTES",
    type=click.IntRange(min=1),
    help="Only sessions that were active in the last MINUTES.",
)
@limit_option("How many sessions at most.", 10_000, default=10_000)
@as_json_option
@gateway_options
def command(
    agent: str | None, minutes: int | None, limit: int, gateway: GatewayOptions, *, as_json: bool
) -> None:
    """List the sessions of all agents."""
    now_ms = time.time_ns() // 1_000_000
    rows = asyncio.run(_rows(gateway, agent, minutes, now_ms))[:limit]
    if as_json:
        click.echo(json.dumps({"count": len(rows), "sessions": rows}, ensure_ascii=False))
        return
    if not rows:
        click.echo("No sessions yet. homarus chat starts one.")
    for row in rows:
        tokens = row.get("totalTokens")
        used = f"{tokens:>8,} tokens" if isinstance(tokens, int) else " " * 15
        click.echo(f"{age(row['ageMs']):>5}  {used}  {row['key']}  {row.get('model') or ''}")


async def _rows(
    gateway: GatewayOptions, agent: str | None, minutes: int | None, now_ms: int
) -> list[dict[str, Json]]:
    if not is_gateway_running(gateway):
        since_ms = now_ms - minutes * 60_000 if minutes else 0
        records = await read_records(Paths.find(os.environ), agent, since_ms)
        return [_row_of_record(record, now_ms) for record in records]
    params = {"agentId": agent, "activeMinutes": minutes, "limit": 10_000, "includeGlobal": True}
    async with open_gateway(gateway) as client:
        answer = await client.call(
            "sessions.list", {k: v for k, v in params.items() if v is not None}
        )
    listed = answer.get("sessions", ()) if isinstance(answer, dict) else ()
    return [_row(row["key"], row.get("sessionId"), row["updatedAt"], row, now_ms) for row in listed]


async def read_records(paths: Paths, agent: str | None, since_ms: int) -> Sequence[SessionRecord]:
    """Return the stored session records, without a gateway."""
    paths = find_session_store(paths, os.environ)
    async with open_store(paths.state, read_only=True, sessions=paths.session_store) as store:
        return await store.sessions(agent=agent, since_ms=since_ms)


def _row_of_record(record: SessionRecord, now_ms: int) -> dict[str, Json]:
    return _row(record.key, record.session_id, record.updated_ms, record.data, now_ms)


def _row(
    key: str, session_id: Json, updated_ms: int, data: Mapping[str, Json], now_ms: int
) -> dict[str, Json]:
    return {
        "key": key,
        "agentId": key.split(":")[1] if key.startswith("agent:") else "main",
        "sessionId": session_id,
        "updatedAt": updated_ms,
        "ageMs": now_ms - updated_ms,
        **{name: data[name] for name in _SHOWN if name in data},
    }


def age(ms: int) -> str:
    """Return how long ago, in the largest unit that fits."""
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000)):
        if ms >= size:
            return f"{ms // size}{unit}"
    return "now"
