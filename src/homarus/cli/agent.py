"""`homarus agent`: send one message, print the answer, exit."""

import asyncio
import json
import select
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from homarus.cli.command_group import examples
from homarus.cli.gateway_options import (
    GatewayOptions,
    as_json_option,
    gateway_options,
    is_gateway_running,
    warn,
)
from homarus.cli.options import (
    agent_option,
    channel_option,
    model_option,
    session_option,
    timeout_option,
)
from homarus.cli.session_client import ChatAnswer, open_session_client
from homarus.core.errors import UserError
from homarus.core.message import Json, RunOptions
from homarus.core.text import escape_controls

if TYPE_CHECKING:
    from homarus.cli.approval_prompt import ApprovalPrompt

STDIN = "-"  # the message that stands for what is piped in
INPUT_S = 3.0


@click.command("agent")
@examples(
    'homarus agent "What is on my list today?"',
    'git diff | homarus agent "Review this" --agent work --json',
    'homarus agent "Good morning" --deliver --channel telegram --to 1234',
)
@click.argument("message", metavar="[MESSAGE]", nargs=-1)
@click.option("-m", "--message", "option", help="The same as MESSAGE; nothing is read from a pipe.")
@agent_option("The agent that answers.", "agent_id", default="the default agent")
@session_option("The session to continue.")
@model_option("The model of this answer.", default="the session's")
@click.option("--thinking", metavar="LEVEL", help="off, minimal, low, medium, high or xhigh.")
@timeout_option(
    "Seconds until the answer is stopped.",
    default_s=None,
    default_text="agents.defaults.timeoutSeconds",
    max_s=None,
)
@click.option("--deliver", is_flag=True, help="Also send the answer to a chat.")
@click.option("--to", metavar="CHAT", show_default="the last one", help="The chat to send to.")
@channel_option("The channel of the chat.")
@click.option("--reply-channel", metavar="NAME", help="The channel; overrides --channel.")
@click.option("--reply-to", metavar="CHAT", help="The chat; overrides --to.")
@click.option("--reply-account", metavar="ID", help="The account that sends it.")
@click.option("--local", is_flag=True, help="Run in this process, without a gateway.")
@gateway_options
@as_json_option
def command(
    message: tuple[str, ...],
    option: str | None,
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
    """Send one message to an agent and print its answer.

    MESSAGE is one argument, in quotes. What is piped in is the message, or is added to MESSAGE;
    `-` waits for standard input, also at a terminal.
    """
    text = _read_message(message, option)
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
    for line in fallback_lines(answer.payload):
        warn(line)
    if answer.aborted:
        raise click.Abort
    if as_json:
        click.echo(json.dumps(answer.payload, ensure_ascii=False))
        return
    click.echo(answer.text)
    for path in _media_paths(answer.payload):
        warn(f"homarus: the answer names a file: {path}")


def _read_message(words: tuple[str, ...], option: str | None) -> str:
    """Return the message: the argument or the option, with what is piped in."""
    if words and option is not None:
        raise click.UsageError("the message is given twice: as MESSAGE and with --message")
    given = [word for word in words if word != STDIN] if option is None else [option]
    if len(given) > 1:
        raise click.UsageError("MESSAGE is one argument: put it in quotes")
    # A script's --message must not take the lines that the script itself reads.
    reads = option == STDIN if option is not None else STDIN in words or not sys.stdin.isatty()
    text = "" if option == STDIN or not given else given[0]
    if reads and text and STDIN not in words and not _has_input():
        warn(f"homarus: nothing was piped in within {INPUT_S:g} s: only MESSAGE is sent")
        reads = False
    piped = _read_stdin() if reads else ""
    if not (text.strip() or piped.strip()):
        if reads or given:
            raise click.UsageError("the message is empty")
        raise click.UsageError('there is no message: homarus agent "…", or pipe one in')
    return f"{text}\n\n{piped}" if text.strip() and piped.strip() else text or piped


def _has_input() -> bool:
    """Wait for the first byte or the end of standard input, which may be a pipe left open."""
    try:
        return bool(select.select([sys.stdin], [], [], INPUT_S)[0])
    except (OSError, ValueError):  # it has no descriptor: reading it does not block
        return True


def _read_stdin() -> str:
    return sys.stdin.buffer.read().decode("utf-8", "replace")


def _media_paths(payload: Mapping[str, Json]) -> list[str]:
    """Return the paths and URLs of the files that an answer names."""
    result = payload.get("result")
    payloads = result.get("payloads") if isinstance(result, dict) else None
    named = [path for reply in payloads or () for path in reply.get("mediaUrls") or ()]
    return [escape_controls(str(path)) for path in named]


def fallback_lines(payload: Mapping[str, Json]) -> list[str]:
    """Return a line for each model in whose place another one answered."""
    result = payload.get("result")
    meta = (result.get("meta") if isinstance(result, dict) else None) or {}
    lines = list[str]()
    for failed in meta.get("attempts") or ():
        model, then = f"{failed['provider']}/{failed['model']}", str(failed["next"])
        if then.partition(" ")[0] != model:  # else the same model was tried again
            lines.append(f"homarus: {failed['error']}; {then} was tried in its place")
    return lines


def _make_prompt() -> "ApprovalPrompt | None":
    """Return what asks the person at the terminal; None where there is no person."""
    if "--json" in sys.argv or not (sys.stdin.isatty() and sys.stdout.isatty()):
        return None
    from homarus.cli.approval_prompt import ApprovalPrompt
    from homarus.cli.terminal import LineReader, TerminalView, colour_wanted

    view = TerminalView(sys.stdout, colour=colour_wanted(sys.stdout))
    return ApprovalPrompt(view, LineReader())


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
    prompt = _make_prompt()
    session = open_session_client(
        gateway, key=key, agent=agent, local=local, prompt=prompt, warn=warn
    )
    async with session as conversation:
        return await conversation.run(text, options, delivery)
