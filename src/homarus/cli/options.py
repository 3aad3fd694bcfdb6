"""The options that commands share: one name, one unit and one text for each meaning.

`--limit` is how many, `--session` a session key, `--agent` an agent's id, `--yes` skips a question,
and times are in seconds. Names that were used before still work, and help does not show them.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import click

from homarus.cli import completion_values

F = TypeVar("F", bound=Callable[..., Any])


class OptionDecorator(Protocol):
    """A decorator that adds an option to a command's function."""

    def __call__(self, function: F, /) -> F: ...


class RenamedOption(click.Option):
    """An option that also has names which help does not show."""

    def __init__(self, *args: Any, old_names: Sequence[str] = (), **named: Any) -> None:
        super().__init__(*args, **named)
        self.old_names = tuple(old_names)

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        shown = self.opts
        self.opts = [*shown, *self.old_names]
        try:
            super().add_to_parser(parser, ctx)
        finally:
            self.opts = shown


class Seconds(click.FloatRange):
    """A time in seconds; a number too large to be meant so is refused with the unit."""

    name = "seconds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as exc:
            try:
                guess = f": {float(value):g} milliseconds are {float(value) / 1000:g}"
            except (TypeError, ValueError, OverflowError):
                guess = ""
            self.fail(f"{exc.message.rstrip('.')}; it is in seconds{guess}.", param, ctx)


def agent_option(text: str, name: str = "agent", *, default: str = "") -> OptionDecorator:
    """Return `--agent ID`; `default` describes what holds without it."""
    return click.option(
        "--agent",
        name,
        metavar="ID",
        shell_complete=completion_values.agents,
        show_default=default or None,
        help=text,
    )


def session_option(
    text: str, name: str = "session_key", *, default: str = "the agent's main session"
) -> OptionDecorator:
    """Return `--session KEY`; `default` describes what holds without it."""
    return click.option(
        "--session",
        name,
        cls=RenamedOption,
        old_names=("--session-key",),
        metavar="KEY",
        shell_complete=completion_values.sessions,
        show_default=default,
        help=text,
    )


def model_option(text: str, *, default: str) -> OptionDecorator:
    """Return `--model REF`."""
    return click.option(
        "--model",
        metavar="REF",
        shell_complete=completion_values.models,
        show_default=default,
        help=text,
    )


def channel_option(text: str, **named: Any) -> OptionDecorator:
    """Return `--channel NAME`."""
    complete = completion_values.channels
    return click.option("--channel", metavar="NAME", shell_complete=complete, help=text, **named)


def limit_option(
    text: str,
    maximum: int,
    *,
    default: int | None = None,
    default_text: str = "",
    name: str = "limit",
    old_name: str = "",
) -> OptionDecorator:
    """Return `--limit COUNT`, how many are printed at most."""
    return click.option(
        "--limit",
        name,
        cls=RenamedOption,
        old_names=(old_name,) if old_name else (),
        metavar="COUNT",
        type=click.IntRange(1, maximum),
        default=default,
        show_default=default_text or None,
        help=text,
    )


def timeout_option(
    text: str,
    *,
    default_s: float | None = 10,
    default_text: str = "",
    max_s: float | None = 3600,
    old_name: str = "",
) -> OptionDecorator:
    """Return `--timeout SECONDS`; the command gets `timeout_s`."""
    return click.option(
        "--timeout",
        "timeout_s",
        cls=RenamedOption,
        old_names=(old_name,) if old_name else (),
        metavar="SECONDS",
        type=Seconds(0.001, max_s),
        default=default_s,
        show_default=default_text or None,
        help=text,
    )


def workspace_option(text: str, *, default: str = "") -> OptionDecorator:
    """Return `--workspace DIR`."""
    return click.option(
        "--workspace",
        metavar="DIR",
        shell_complete=completion_values.directories,
        show_default=default or None,
        help=text,
    )


def yes_option(*old_names: str) -> OptionDecorator:
    """Return `--yes`."""
    text = "Do not ask for confirmation."
    return click.option("--yes", cls=RenamedOption, old_names=old_names, is_flag=True, help=text)


channel_argument = click.argument("channel", shell_complete=completion_values.channels)
optional_channel_argument = click.argument(
    "channel", required=False, shell_complete=completion_values.channels
)
provider_argument = click.argument("provider", shell_complete=completion_values.providers)
optional_provider_argument = click.argument(
    "provider", required=False, shell_complete=completion_values.providers
)
