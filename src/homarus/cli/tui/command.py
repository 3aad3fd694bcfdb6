"""`homarus tui`: the full-screen interface."""

import asyncio
import os
import sys
from importlib.util import find_spec

import click

from homarus.cli.command_group import examples
from homarus.cli.gateway_options import GatewayOptions, gateway_options, is_gateway_running
from homarus.cli.options import agent_option, limit_option, session_option, timeout_option
from homarus.core.errors import MissingExtraError, UserError
from homarus.core.fast_dataclass import dataclass

_MAX_HISTORY = 1_000


@dataclass(frozen=True, slots=True)
class TuiOptions:
    """What the command line asks for."""

    gateway: GatewayOptions
    agent_id: str | None = None
    session_key: str | None = None
    message: str | None = None
    thinking: str | None = None
    is_delivering: bool = False
    timeout_s: float | None = None
    history_limit: int = 60
    is_local: bool = False


@click.command("tui")
@examples("homarus tui", "homarus tui --agent work --message 'What is on my list?'")
@agent_option("The agent to talk with.", "agent_id", default="the default agent")
@session_option("The session to open.")
@click.option("-m", "--message", metavar="TEXT", help="Send this message at the start.")
@click.option(
    "--thinking", metavar="LEVEL", help="For your messages: off, minimal, low, medium, high, xhigh."
)
@click.option("--deliver", is_flag=True, help="Send answers to the session's last chat, too.")
@timeout_option("Seconds until an answer is stopped.", default_s=None, default_text="the agent's")
@click.option("--timeout-ms", type=click.IntRange(1), hidden=True, help="The same, in ms.")
@limit_option(
    "How many messages are loaded at first.", _MAX_HISTORY, default=60, old_name="--history-limit"
)
@click.option("--local", is_flag=True, help="Run in this process, without a gateway.")
@gateway_options
def command(
    agent_id: str | None,
    session_key: str | None,
    message: str | None,
    thinking: str | None,
    timeout_s: float | None,
    timeout_ms: int | None,
    limit: int,
    gateway: GatewayOptions,
    *,
    deliver: bool,
    local: bool,
) -> None:
    """Talk with agents in a full-screen interface."""
    check_library()
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UserError("the full-screen interface needs a terminal", fix="homarus chat needs none")
    if timeout_ms is not None and timeout_s is None:
        timeout_s = timeout_ms / 1000
    options = TuiOptions(
        gateway, agent_id, session_key, message, thinking, deliver, timeout_s, limit,
        local or not is_gateway_running(gateway),
    )  # fmt: skip
    from homarus.cli.tui.app import run_tui

    asyncio.run(run_tui(options, os.environ))


def check_library() -> None:
    """Raise MissingExtraError without Textual, with the command that installs it."""
    if find_spec("textual") is None:
        raise MissingExtraError("the full-screen interface", "tui")
