"""`homarus agent`: send one message, print the answer, exit."""

import asyncio
import json
import sys
from collections.abc import Mapping

import click

from homarus.cli.gateway_options import (
    GatewayOptions,
    as_json_option,
    gateway_options,
    is_gateway_running,
    warn,
)
from homarus.cli.session_client import ChatAnswer, open_session_client
from homarus.core.errors import UserError
from homarus.core.message import Json, RunOptions


@click.command("agent")
@click.option("-m", "--message", required=True, help="What to ask; `-` reads standard input.")
@click.option("--agent", "agent_id", metavar="ID", help="The agent to ask.")
@click.option("--session-key", metavar="KEY", help="The conversation to go on with.")
@click.option("--model", metavar="REF", help="Use this model for this answer.")
@click.option("--thinking", metavar="LEVEL", help="off, minimal, low, medium, high or xhigh.")
@click.option("--timeout", "timeout_s", type=click.FloatRange(min=0.001), help="Seconds to wait.")
@click.option("--deliver", is_flag=True, help="Also send the answer to a chat.")
@click.option("--to", metavar="CHAT", help="The chat; without one, where the last message was.")
@click.option("--channel", metavar="NAME", help="The channel of the chat.")
@click.option("--reply-channel", metavar="NAME", help="The same, and wins over --channel.")
@click.option("--reply-to", metavar="CHAT", help="The same, and wins over --to.")
@click.option("--reply-account", metavar="ID", help="The account that sends it.")
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
    deliver: bool,
    to: str | None,
    channel: str | None,
    reply_channel: str | None,
    reply_to: str | None,
    reply_account: str | None,
    local: bool,
    as_json: bool,
) -> None:
    """Send one message to an agent and print its answer."""
    text = sys.stdin.read() if message == "-" else message
    if not text.strip():
        raise click.UsageError("--message is empty")
    options = RunOptions(model=model, thinking=thinking, timeout_s=timeout_s)
    chat = {
        "to": to,
        "channel": channel,
        "replyChannel": reply_channel,
        "replyTo": reply_to,
        "replyAccountId": reply_account,
    }
    delivery: dict[str, Json] = {name: value for name, value in chat.items() if value}
    if delivery and not deliver:
        raise click.UsageError("a chat is only used with --deliver")
    if deliver and (local or not is_gateway_running(gateway)):
        raise UserError("--deliver needs a gateway", fix="start one with homarus gateway run")
    delivery = {"deliver": True, **delivery} if deliver else {}
    answer = asyncio.run(_ask(text, session_key, agent_id, options, gateway, delivery, local=local))
    if answer.aborted:
        raise click.Abort
    click.echo(json.dumps(answer.payload, ensure_ascii=False) if as_json else answer.text)


async def _ask(
    text: str,
    key: str | None,
    agent: str | None,
    options: RunOptions,
    gateway: GatewayOptions,
    delivery: Mapping[str, Json],
    *,
    local: bool,
) -> ChatAnswer:
    session = open_session_client(gateway, key=key, agent=agent, local=local, warn=warn)
    async with session as conversation:
        return await conversation.run(text, options, delivery)
