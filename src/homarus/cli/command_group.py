"""The base class of command groups, and the examples in a command's help."""

import inspect
from collections.abc import Callable, Iterable
from typing import NoReturn, TypeVar

import click

T = TypeVar("T")
_HEADING = "\n\n\b\nExamples:\n"  # \b: click keeps the lines of this paragraph as they are


class CommandGroup(click.Group):
    """A group whose help shows one full line per subcommand; unknown names get suggestions."""

    group_class = type  # a nested group is a CommandGroup as well

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = [(name, command_summary(command)) for name, command in self.visible_commands(ctx)]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)

    def visible_commands(self, ctx: click.Context) -> list[tuple[str, click.Command]]:
        """Return the subcommands that help shows, with their names."""
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        return [(name, one) for name, one in found if one is not None and not one.hidden]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not (
            ctx.resilient_parsing or name.startswith("-") or self.get_command(ctx, name) is not None
        ):
            raise_unknown_command(ctx, name, self.list_commands(ctx))
        return super().resolve_command(ctx, args)


def raise_unknown_command(ctx: click.Context, name: str, names: Iterable[str]) -> NoReturn:
    """Raise UnknownNameError for a mistyped command, with the closest names."""
    from homarus.core.errors import UnknownNameError
    from homarus.core.text import closest_names

    path = ctx.command_path
    nearest = [f"{path} {one}" for one in closest_names(name, names)]
    fix = (
        f"did you mean {' or '.join(nearest)}?" if nearest else f"{path} --help lists the commands"
    )
    raise UnknownNameError("command", name, tuple(nearest), fix=fix)


def examples(*lines: str) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """Add command lines to the help of a command; placed right below `@click.command`."""

    def add(function: Callable[..., T]) -> Callable[..., T]:
        shown = "\n".join(f"  {line}" for line in lines)
        function.__doc__ = f"{inspect.cleandoc(function.__doc__ or '')}{_HEADING}{shown}"
        return function

    return add


def command_help(command: click.Command) -> tuple[str, list[str]]:
    """Return the description of a command, and its examples."""
    text, _, shown = inspect.cleandoc(command.help or "").partition(_HEADING)
    return text, [line.strip() for line in shown.splitlines()]


def command_summary(command: click.Command) -> str:
    """Return the first paragraph of a command's description in one line."""
    return " ".join(command_help(command)[0].split("\n\n")[0].split())
