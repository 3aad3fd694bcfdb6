"""`homarus config`: read, change and check the configuration."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from homarus.cli.reach import Reach, as_json_option, find_own, is_running, reach_options
from homarus.config.document import KeyPath, Value, parse, plain
from homarus.config.edit import get_path, parse_path, set_path, show_path, unset_path
from homarus.config.load import read_raw
from homarus.config.paths import Paths, shorten
from homarus.config.secrets import redact
from homarus.core.errors import ConfigError, UserError

if TYPE_CHECKING:  # the gateway client is slow to import
    from homarus.cli.settings import Changed, Verdict
    from homarus.core.message import Json

local_option = click.option(
    "--local", is_flag=True, help="Work on the file itself, without a gateway."
)


@click.group()
def command() -> None:
    """Read, change and check the configuration."""


@command.command()
@click.argument("path", required=False)
@as_json_option
@local_option
@reach_options
def get(path: str | None, reach: Reach, *, as_json: bool, local: bool) -> None:
    """Print a setting as it is written, or all of them; in sections, secrets are hidden."""
    steps = parse_path(path) if path else ()
    try:
        value = get_path(_read(reach, local=local), steps)
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
@local_option
@reach_options
def set_(path: str, value: str, reach: Reach, *, as_json: bool, local: bool) -> None:
    """Set PATH to VALUE: JSON5 when it can be read so, else the text itself."""
    steps = parse_path(path)
    said = _value(value, strict=as_json)
    changed = _change(reach, lambda tree: set_path(tree, steps, said), local=local)
    _print(changed, f"{show_path(steps)} is set", as_json=as_json)


@command.command()
@click.argument("path")
@as_json_option
@local_option
@reach_options
def unset(path: str, reach: Reach, *, as_json: bool, local: bool) -> None:
    """Remove PATH."""
    steps = parse_path(path)

    def remove(tree: Any) -> Any:
        try:
            return unset_path(tree, steps)
        except LookupError:
            raise _absent(steps) from None

    changed = _change(reach, remove, local=local)
    _print(changed, f"{show_path(steps)} is removed", as_json=as_json)


@command.command()
@as_json_option
@local_option
@reach_options
@click.pass_context
def validate(ctx: click.Context, reach: Reach, *, as_json: bool, local: bool) -> None:
    """Check the configuration and say everything that is wrong with it."""
    from homarus.cli.settings import work

    found = work(reach, lambda settings: settings.judge(), local=local)
    if as_json:
        click.echo(json.dumps(_verdict_json(found), ensure_ascii=False))
    else:
        _print_verdict(found)
    ctx.exit(2 if found.issues else 0)


def _verdict_json(found: "Verdict") -> dict[str, "Json"]:
    names = {"file": "file", "line": "line", "path": "key", "message": "message", "fix": "fix"}
    told: dict[str, Any] = {"ok": not found.issues, "path": found.file, "exists": found.exists}
    told["issues"] = [{names[k]: v for k, v in issue.items()} for issue in found.issues]
    told["warnings"] = list(found.warnings)
    return {**told, "gateway": found.in_use} if found.in_use else told


def _print_verdict(found: "Verdict") -> None:
    file = _short(found.file)
    for issue in found.issues:
        told = {name: str(issue.get(name) or "") for name in ("message", "file", "path", "fix")}
        message, at = told["message"], int(issue.get("line") or 0)
        error = ConfigError(message, file=told["file"], line=at, key=told["path"], fix=told["fix"])
        click.echo(str(error), err=True)
    for text in found.warnings:
        click.echo(f"warning: {text}", err=True)
    if found.issues and found.in_use:
        click.echo(found.in_use, err=True)
    elif not found.issues:
        said = f"{file} is valid" if found.exists else f"{file} does not exist: all defaults"
        click.echo(f"{said}; {found.in_use}" if found.in_use else said)


@command.command()
def schema() -> None:
    """Print the JSON schema of the settings that have an effect."""
    from homarus.config.json_schema import config_json_schema

    click.echo(json.dumps(config_json_schema(), indent=2))


def _read(reach: Reach, *, local: bool) -> Value:
    """Return the settings in use; a remote gateway is queried for its own."""
    if reach.url and not local:
        from homarus.cli.settings import work

        return work(reach, lambda settings: settings.read(), local=local)
    paths = Paths.find(os.environ)
    return read_raw(find_own(paths) if is_running(Reach()) and not local else paths)


def _change(reach: Reach, edit: Callable[[Any], Any], *, local: bool) -> "Changed":
    from homarus.cli.settings import work

    return work(reach, lambda settings: settings.change(edit), local=local)


def _print(found: "Changed", done: str, *, as_json: bool) -> None:
    if as_json:
        report: dict[str, Any] = {"ok": True, "path": found.file, "hash": found.hash}
        report |= {"changed": list(found.changed), "unbuilt": list(found.unbuilt)}
        click.echo(json.dumps({**report, "gateway": found.effect} if found.effect else report))
        return
    file = _short(found.file)
    lost = "" if found.kept_layout else "; its comments were lost, they are in the backup"
    effect = f"; {found.effect}" if found.effect else ""
    click.echo(f"{done} in {file}{lost}{effect}" if found.changed else f"{file} says so already")
    for group in found.unbuilt:
        click.echo(f"warning: {group} is not built yet and has no effect", err=True)


def _short(file: str) -> str:
    return shorten(Path(file), Paths.find(os.environ).home)


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
