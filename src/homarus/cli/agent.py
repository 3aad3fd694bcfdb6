"""`homarus agent`: send one message, print the answer, exit."""

import asyncio
import json
import sys

import click

from homarus.cli.gateway_options import GatewayOptions, as_json_option, gateway_options, warn
from homarus.cli.session_client import ChatAnswer, open_session_client
from homarus.core.message import RunOptions


@click.command("agent")
@click.option("-m", "--message", required=True, help="What to ask; `-` reads standard input.")
@click.option("--agent", "agent_id", metavar="ID", help="The agent to ask.")
@click.option("--session-key", metavar="KEY", help="The conversation to go on with.")
@click.option("--model", metavar="REF", help="Use this model for this answer.")
@click.option("--thinking", metavar="LEVEL", help="off, minimal, low, medium, high or xhigh.")
@click.option("--timeout", "timeout_s", type=click.FloatRange(min=0.001), help="Seconds to wait.")
@click.option("--local", is_flag=True, help="Run in this process, without a gateway.")
@gateway_options
@as_json_option
def command(
    message: str,
    agent_id: str | None,
    session_key: str | None,
    model: str | None,
    thinking: str | None,
    timeout_s: float | None,
    gateway: GatewayOptions,
    *,
    local: bool,
    as_json: bool,
) -> None:
    """Ask an agent one thing and print its answer."""
    text = sys.stdin.read() if message == "-" else message
    if not text.strip():
        raise click.UsageError("--message is empty")
    options = RunOptions(model=model, thinking=thinking, timeout_s=timeout_s)
    answer = asyncio.run(_ask(text, session_key, agent_id, options, gateway, local=local))
    if answer.aborted:
        raise click.Abort
    click.echo(json.dumps(answer.payload, ensure_ascii=False) if as_json else answer.text)


async def _ask(
    text: str,
    key: str | None,
    agent: str | None,
    options: RunOptions,
    gateway: GatewayOptions,
    *,
    local: bool,
) -> ChatAnswer:
    session = open_session_client(gateway, key=key, agent=agent, local=local, warn=warn)
    async with session as conversation:
        return await conversation.run(text, options)
