"""`homarus help`: the help of the program, or of one command."""

import click

from homarus.cli.command_group import examples, raise_unknown_command


def complete_command(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Return the names that can follow those already on the line."""
    parent = find_command(ctx.find_root(), tuple(ctx.params.get("command") or ()))
    group = parent.command
    names = group.list_commands(parent) if isinstance(group, click.Group) else []
    return [name for name in names if name.startswith(incomplete)]


@click.command("help")
@examples("homarus help", "homarus help models auth add")
@click.argument("command", nargs=-1, shell_complete=complete_command)
@click.pass_context
def command(ctx: click.Context, command: tuple[str, ...]) -> None:
    """Show the help of a command."""
    click.echo(find_command(ctx.find_root(), command).get_help())


def find_command(ctx: click.Context, names: tuple[str, ...]) -> click.Context:
    """Return the context of a command by its path. Raises UnknownNameError with close names."""
    for name in names:
        group = ctx.command
        found = group.get_command(ctx, name) if isinstance(group, click.Group) else None
        if found is None:
            known = group.list_commands(ctx) if isinstance(group, click.Group) else ()
            raise_unknown_command(ctx, name, known)
        ctx = click.Context(found, info_name=name, parent=ctx)
    return ctx
