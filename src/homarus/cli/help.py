"""`homarus help`: the help of the program or of one command, and what of OpenClaw is not here."""

import json

import click

from homarus.cli.command_group import examples, raise_unknown_command

_UNSUPPORTED = "unsupported"


def complete_command(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Return the names that can follow those already on the line."""
    parent = find_command(ctx.find_root(), tuple(ctx.params.get("command") or ()))
    group = parent.command
    names = group.list_commands(parent) if isinstance(group, click.Group) else []
    names = [*names, *([_UNSUPPORTED] if parent.parent is None else [])]
    return [name for name in names if name.startswith(incomplete)]


@click.command("help")
@examples("homarus help", "homarus help models auth add", "homarus help unsupported")
@click.argument("command", nargs=-1, shell_complete=complete_command)
@click.option("--json", "as_json", is_flag=True, help="Print `unsupported` as one JSON object.")
@click.pass_context
def command(ctx: click.Context, command: tuple[str, ...], *, as_json: bool) -> None:
    """Show the help of a command.

    `homarus help unsupported` lists the commands of OpenClaw that are not here, each with the
    reason and what to use instead.
    """
    if command == (_UNSUPPORTED,):
        show_unsupported(as_json=as_json)
        return
    if as_json:
        raise click.UsageError("--json is for `homarus help unsupported`")
    click.echo(find_command(ctx.find_root(), command).get_help())


def show_unsupported(*, as_json: bool) -> None:
    """Print the commands of OpenClaw that are not here."""
    from homarus.cli.unsupported import UNSUPPORTED

    if as_json:
        rows = [
            {"command": row.path, "reason": row.reason, "instead": row.instead}
            for row in UNSUPPORTED
        ]
        click.echo(json.dumps({"count": len(rows), "commands": rows}, ensure_ascii=False))
        return
    click.echo(f"{len(UNSUPPORTED)} commands of OpenClaw are not here:\n")
    for row in UNSUPPORTED:
        click.echo(f"  {row.path:<26} {row.reason}")
        if row.instead:
            click.echo(f"  {'':<26} → {row.instead}")


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
