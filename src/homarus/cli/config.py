"""`homarus config`: read, change and check the configuration."""

import json
import os
from collections.abc import Callable
from typing import Any

import click

from homarus.config.document import KeyPath, parse, plain
from homarus.config.edit import get_path, parse_path, set_path, show_path, unset_path
from homarus.config.load import read_raw
from homarus.config.paths import Paths, shorten
from homarus.config.secrets import redact
from homarus.core.errors import ConfigError, UserError

as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


@click.group()
def command() -> None:
    """Read, change and check the configuration."""


@command.command()
@click.argument("path", required=False)
@as_json
def get(path: str | None, as_json: bool) -> None:
    """Print a setting as it is written, or all of them; in sections, secrets are hidden."""
    paths = Paths.find(os.environ)
    tree = read_raw(paths)
    steps = parse_path(path) if path else ()
    try:
        value = get_path(tree, steps)
    except LookupError:
        raise _absent(steps) from None
    if isinstance(value, dict | list):
        value = redact(value, steps)
    if as_json or not isinstance(value, str):
        click.echo(json.dumps(value, indent=2, ensure_ascii=False))
    else:
        click.echo(value)


@command.command("set")
@click.argument("path")
@click.argument("value")
@click.option("--json", "as_json", is_flag=True, help="VALUE must be JSON5; print one JSON object.")
def set_(path: str, value: str, as_json: bool) -> None:
    """Set PATH to VALUE: JSON5 when it can be read so, else the text itself."""
    steps = parse_path(path)
    said = _value(value, strict=as_json)
    _change(lambda tree: set_path(tree, steps, said), f"{show_path(steps)} is set", as_json=as_json)


@command.command()
@click.argument("path")
@as_json
def unset(path: str, as_json: bool) -> None:
    """Remove PATH."""
    steps = parse_path(path)

    def remove(tree: Any) -> Any:
        try:
            return unset_path(tree, steps)
        except LookupError:
            raise _absent(steps) from None

    _change(remove, f"{show_path(steps)} is removed", as_json=as_json)


@command.command()
@as_json
@click.pass_context
def validate(ctx: click.Context, as_json: bool) -> None:
    """Check the configuration and say everything that is wrong with it."""
    paths = Paths.find(os.environ)
    errors, warnings, exists = _examine(paths)
    file = shorten(paths.config, paths.home)
    if as_json:
        issues = [
            {"file": e.file, "line": e.line, "key": e.key, "message": e.reason, "fix": e.fix}
            for e in errors
        ]
        report = {"ok": not errors, "path": str(paths.config), "exists": exists}
        click.echo(
            json.dumps({**report, "issues": issues, "warnings": warnings}, ensure_ascii=False)
        )
    else:
        for error in errors:
            click.echo(str(error), err=True)
        for text in warnings:
            click.echo(f"warning: {text}", err=True)
        if not errors:
            click.echo(f"{file} is valid" if exists else f"{file} does not exist: all defaults")
    ctx.exit(2 if errors else 0)


@command.command()
def schema() -> None:
    """Print the JSON schema of the settings that have an effect."""
    from homarus.config.schema import Config

    click.echo(json.dumps(Config.model_json_schema(), indent=2))


def _examine(paths: Paths) -> tuple[tuple[ConfigError, ...], tuple[str, ...], bool]:
    from homarus.config.load import examine
    from homarus.config.source import read_text

    try:
        examined = examine(paths, os.environ, read_text(paths.config))
    except ConfigError as exc:
        return (exc,), (), True
    return examined.errors, examined.warnings, examined.exists


def _change(change: Callable[[Any], Any], done: str, *, as_json: bool) -> None:
    from homarus.config.write import write

    paths = Paths.find(os.environ)
    written = write(paths, os.environ, change)
    file = shorten(written.file, paths.home)
    if as_json:
        report = {"ok": True, "path": str(written.file), "hash": written.hash}
        click.echo(json.dumps({**report, "changed": written.changed, "unbuilt": written.unbuilt}))
        return
    lost = "" if written.kept_layout else "; its comments were lost, they are in the backup"
    click.echo(f"{done} in {file}{lost}" if written.changed else f"{file} says so already")
    for group in written.unbuilt:
        click.echo(f"warning: {group} is not built yet and has no effect", err=True)


def _value(text: str, *, strict: bool) -> Any:
    try:
        return plain(parse(text))
    except ConfigError as exc:
        if strict:
            raise UserError(f"the value is not JSON5: {exc.reason}", fix=exc.fix) from None
        return text


def _absent(path: KeyPath) -> UserError:
    from homarus.config.keys import lookup, unknown_key

    shown = show_path(path)
    if lookup(path) is None:
        problem = unknown_key(path)
        return UserError(f"there is no key {shown}", fix=problem.fix)
    return UserError(f"{shown} is not set", fix=f"homarus config set {shown} VALUE")
