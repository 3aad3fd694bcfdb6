"""The options that `homarus cron add` and `homarus cron edit` share."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from homarus.cli.options import (
    RenamedOption,
    agent_option,
    channel_option,
    model_option,
    timeout_option,
)

F = TypeVar("F", bound=Callable[..., Any])
_MAX_TURN_S = 6 * 3600


def job_options(function: F) -> F:
    """Add the options that describe a job; the command gets them by the names of `cron_draft`."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def _flag(name: str, to: str, text: str) -> Any:
    return click.option(name, to, is_flag=True, default=None, help=text)


def _text(name: str, to: str, metavar: str, text: str) -> Any:
    return click.option(name, to, metavar=metavar, help=text)


_OPTIONS: tuple[Any, ...] = (
    _text("--name", "name", "TEXT", "The name of the job."),
    _text("--description", "description", "TEXT", "A description for people."),
    _text("--at", "at", "TIME", "Run once: an ISO time (UTC without an offset), or in as 20m."),
    _text("--every", "every", "DURATION", "Run again and again, as 10m or 2h."),
    _text("--cron", "cron", "EXPR", "Run at the times of a cron expression of 5 or 6 fields."),
    _text("--tz", "tz", "ZONE", "The time zone of --cron and --at, as Europe/Berlin."),
    _text("--stagger", "stagger", "DURATION", "Delay the runs of --cron by up to this, as 5m."),
    _flag("--exact", "exact", "Do not delay the runs of --cron."),
    _text("--system-event", "system_event", "TEXT", "Leave a line for the main session."),
    _text("--message", "message", "TEXT", "Ask the agent this, in a session of its own."),
    click.option(
        "--session",
        "target",
        metavar="TARGET",
        type=click.Choice(["main", "isolated"]),
        show_default="main for an event, isolated for a message",
        help="Where it runs: main or isolated.",
    ),
    click.option(
        "--wake",
        metavar="MODE",
        type=click.Choice(["now", "next-heartbeat"]),
        help="When an event is looked at: now or next-heartbeat.",
    ),
    agent_option("The agent of the job.", default="the default agent"),
    click.option(
        "--to-session",
        "key",
        cls=RenamedOption,
        old_names=("--session-key",),
        metavar="KEY",
        help="The session that gets the event.",
    ),
    model_option("The model of the turn.", default="the agent's model"),
    _text("--thinking", "thinking", "LEVEL", "The thinking level of the turn."),
    timeout_option(
        "After how many seconds the turn is stopped.",
        default_s=None,
        default_text="600",
        max_s=_MAX_TURN_S,
        old_name="--timeout-seconds",
    ),
    click.option(
        "--announce",
        cls=RenamedOption,
        old_names=("--deliver",),
        is_flag=True,
        default=None,
        help="Send the answer to a chat.",
    ),
    _flag("--no-deliver", "no_deliver", "Send the answer nowhere."),
    _text("--webhook", "webhook", "ADDRESS", "Post the answer to this address."),
    channel_option("The chat service of the answer; last is that of the last chat."),
    _text("--to", "to", "CHAT", "The chat of the answer: a person, a group, a number."),
    _text("--account", "account", "ID", "The account that sends the answer."),
    _text("--thread-id", "thread", "THREAD", "The thread of the chat."),
    click.option(
        "--best-effort-deliver/--no-best-effort-deliver",
        "best_effort",
        default=None,
        help="Whether a job may succeed without its delivery.",
    ),
    _flag("--delete-after-run", "deletes", "Remove a job that runs once after it succeeded."),
    _flag("--keep-after-run", "keeps", "Keep it, disabled."),
    click.option(
        "--misfire",
        metavar="POLICY",
        type=click.Choice(["skip", "once", "all"]),
        show_default="the setting cron.misfire",
        help="What happens with missed times: skip, once or all.",
    ),
)
