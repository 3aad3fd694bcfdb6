"""`homarus agent`: ask one thing, print the answer, exit."""

import asyncio
import json
import os
import sys
from uuid import uuid4

import click

from homarus.agent.run import Outcome
from homarus.app import open_app
from homarus.core.event import attempt_data
from homarus.core.message import Address, Inbound, Json, Wishes


@click.command("agent")
@click.option("-m", "--message", required=True, help="What to ask; `-` reads standard input.")
@click.option("--agent", "agent_id", metavar="ID", help="The agent to ask.")
@click.option("--session-key", metavar="KEY", help="The conversation to go on with.")
@click.option("--model", metavar="REF", help="Use this model for this answer.")
@click.option("--thinking", metavar="LEVEL", help="off, minimal, low, medium, high or xhigh.")
@click.option("--timeout", "timeout_s", type=click.FloatRange(min=0.001), help="Seconds to wait.")
@click.option("--local", is_flag=True, help="Run in this process, without a gateway.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    message: str,
    agent_id: str | None,
    session_key: str | None,
    model: str | None,
    thinking: str | None,
    timeout_s: float | None,
    *,
    local: bool,
    as_json: bool,
) -> None:
    """Ask an agent one thing and print its answer."""
    del local  # every answer is made in this process until there is a gateway to ask
    text = sys.stdin.read() if message == "-" else message
    if not text.strip():
        raise click.UsageError("--message is empty")
    wishes = Wishes(model=model, thinking=thinking, timeout_s=timeout_s)
    outcome = asyncio.run(_ask(text, agent_id, session_key, wishes))
    if outcome.error:
        raise outcome.error
    if outcome.status == "aborted":
        raise click.Abort
    click.echo(json.dumps(result_json(outcome), ensure_ascii=False) if as_json else outcome.text)


async def _ask(text: str, agent_id: str | None, session_key: str | None, wishes: Wishes) -> Outcome:
    async with open_app(os.environ, warn=lambda line: click.echo(line, err=True)) as app:
        key = app.key(session_key, agent_id)
        address = Address(channel="cli", chat="local")
        at_ms = app.clock.now_ms()
        inbound = Inbound(uuid4().hex, address, "owner", text, at_ms=at_ms, wishes=wishes)
        return await app.ask(key, inbound)


def result_json(outcome: Outcome) -> dict[str, Json]:
    """The answer in the shape the original's command prints."""
    provider, _, model = outcome.model.partition("/")
    usage = outcome.usage
    return {
        "runId": outcome.run_id,
        "status": "ok",
        "summary": "completed",
        "result": {
            "payloads": [{"text": outcome.text, "mediaUrl": None}],
            "meta": {
                "durationMs": outcome.duration_ms,
                "agentMeta": {
                    "sessionId": outcome.session_id,
                    "sessionKey": outcome.session_key,
                    "provider": provider,
                    "model": model,
                    "usage": {
                        "input": usage.input,
                        "output": usage.output,
                        "cacheRead": usage.cache_read,
                        "cacheWrite": usage.cache_write,
                        "total": usage.total,
                    },
                },
                "attempts": [attempt_data(failed) for failed in outcome.attempts],
                "aborted": False,
            },
        },
    }
