"""`homarus config`: read, change and check the configuration."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from homarus.cli import completion_values
from homarus.cli.command_group import CommandGroup, examples
from homarus.cli.gateway_options import (
    GatewayOptions,
    as_json_option,
    gateway_options,
    is_gateway_running,
    with_gateway_config,
)
from homarus.config.json5_document import KeyPath, Value, parse_json5, to_plain
from homarus.config.load import read_raw
from homarus.config.paths import Paths, shorten
from homarus.config.redaction import redact_tree
from homarus.config.tree_edit import format_path, get_path, parse_path, set_path, unset_path
from homarus.core.errors import ConfigError, UserError

if TYPE_CHECKING:  # the gateway client is slow to import
    from homarus.cli.config_client import ConfigChangeResult, ConfigValidation
    from homarus.core.message import Json

local_option = click.option(
    "--local", is_flag=True, help="Use the files directly, without a gateway."
)


@click.group(cls=CommandGroup)
@examples("homarus config get agents.defaults", "homarus config set gateway.port 18800")
def command() -> None:
    """Read, change and validate the configuration."""


@command.command()
@examples("homarus config get", "homarus config get agents.defaults.model")
@click.argument("path", required=False, shell_complete=completion_values.config_keys)
@as_json_option
@local_option
@gateway_options
def get(path: str | None, gateway: GatewayOptions, *, as_json: bool, local: bool) -> None:
    """Print a setting as written, or all; secrets in a section are hidden."""
    steps = parse_path(path) if path else ()
    try:
        value = get_path(_read(gateway, local=local), steps)
    except LookupError:
        raise _missing_key_error(steps) from None
    if isinstance(value, dict | list):
        value = redact_tree(value, steps)
    if as_json or not isinstance(value, str):
        click.echo(json.dumps(value, indent=2, ensure_ascii=False))
    else:
        click.echo(value)


@command.command("set")
@examples(
    "homarus config set agents.defaults.model.primary openai/gpt-5.2",
    "homarus config set channels.telegram.allowFrom '[\"1234\"]' --json",
)
@click.argument("path", shell_complete=completion_values.config_keys)
@click.argument("value")
@click.option("--json", "as_json", is_flag=True, help="VALUE must be JSON5; print one JSON object.")
@local_option
@gateway_options
def set_(path: str, value: str, gateway: GatewayOptions, *, as_json: bool, local: bool) -> None:
    """Set PATH to VALUE, which is read as JSON5 if possible, else as text."""
    steps = parse_path(path)
    parsed = _value(value, strict=as_json)
    changed = _change(gateway, lambda tree: set_path(tree, steps, parsed), local=local)
    _print(changed, f"{format_path(steps)} is set", as_json=as_json)
    if steps[0] == "agents" and not as_json and "model" in path:
        _warn_of_models(gateway, local=local)


def _warn_of_models(gateway: GatewayOptions, *, local: bool) -> None:
    """Warn of models that no provider can have; the provider may be described later."""
    from homarus.cli.config_client import run_with_config
    from homarus.cli.provider_check import find_wrong_names

    config = run_with_config(gateway, lambda settings: settings.config(), local=local)
    for _, _, text, fix in find_wrong_names(config, Paths.find(os.environ)):
        click.echo(f"Warning: {text}\n  → {fix}", err=True)


@command.command()
@examples("homarus config unset agents.defaults.model.fallbacks")
@click.argument("path", shell_complete=completion_values.config_keys)
@as_json_option
@local_option
@gateway_options
def unset(path: str, gateway: GatewayOptions, *, as_json: bool, local: bool) -> None:
    """Remove PATH from the configuration."""
    steps = parse_path(path)

    def remove(tree: Any) -> Any:
        try:
            return unset_path(tree, steps)
        except LookupError:
            raise _missing_key_error(steps) from None

    changed = _change(gateway, remove, local=local)
    _print(changed, f"{format_path(steps)} is removed", as_json=as_json)


@command.command()
@examples("homarus config migrate")
@as_json_option
def migrate(*, as_json: bool) -> None:
    """Move settings that OpenClaw does not know from openclaw.json to homarus.json."""
    from homarus.config.write import move_own_settings

    paths = with_gateway_config(Paths.find(os.environ))
    moved = move_own_settings(paths, os.environ)
    own = _short(str(paths.own_config))
    if as_json:
        click.echo(json.dumps({"ok": True, "path": str(paths.own_config), "moved": moved}))
    elif moved:
        click.echo(f"moved to {own}: {', '.join(moved)}")
    else:
        click.echo(f"there is nothing to move to {own}")


@command.command()
@examples("homarus config validate")
@as_json_option
@local_option
@gateway_options
@click.pass_context
def validate(ctx: click.Context, gateway: GatewayOptions, *, as_json: bool, local: bool) -> None:
    """Check the configuration and show every error."""
    from homarus.cli.config_client import run_with_config

    found = run_with_config(gateway, lambda settings: settings.validate(), local=local)
    if as_json:
        click.echo(json.dumps(_verdict_json(found), ensure_ascii=False))
    else:
        _print_verdict(found)
    ctx.exit(2 if found.issues else 0)


def _verdict_json(found: "ConfigValidation") -> dict[str, "Json"]:
    names = {"file": "file", "line": "line", "path": "key", "message": "message", "fix": "fix"}
    result: dict[str, Any] = {"ok": not found.issues, "path": found.file, "exists": found.exists}
    result["issues"] = [{names[k]: v for k, v in issue.items()} for issue in found.issues]
    result["warnings"] = list(found.warnings)
    return {**result, "gateway": found.in_use} if found.in_use else result


def _print_verdict(found: "ConfigValidation") -> None:
    file = _short(found.file)
    for issue in found.issues:
        row = {name: str(issue.get(name) or "") for name in ("message", "file", "path", "fix")}
        message, at = row["message"], int(issue.get("line") or 0)
        error = ConfigError(message, file=row["file"], line=at, key=row["path"], fix=row["fix"])
        click.echo(str(error), err=True)
    for text in found.warnings:
        click.echo(f"warning: {text}", err=True)
    if found.issues and found.in_use:
        click.echo(found.in_use, err=True)
    elif not found.issues:
        summary = f"{file} is valid" if found.exists else f"{file} does not exist: all defaults"
        click.echo(f"{summary}; {found.in_use}" if found.in_use else summary)


@command.command()
@examples("homarus config schema")
def schema() -> None:
    """Print the JSON schema of the settings that have an effect."""
    from homarus.config.json_schema import config_json_schema

    click.echo(json.dumps(config_json_schema(), indent=2))


def _read(gateway: GatewayOptions, *, local: bool) -> Value:
    """Return the settings in use; a remote gateway is queried for its own."""
    if gateway.url and not local:
        from homarus.cli.config_client import run_with_config

        return run_with_config(gateway, lambda settings: settings.read(), local=local)
    paths = Paths.find(os.environ)
    return read_raw(
        with_gateway_config(paths) if is_gateway_running(GatewayOptions()) and not local else paths
    )


def _change(
    gateway: GatewayOptions, edit: Callable[[Any], Any], *, local: bool
) -> "ConfigChangeResult":
    from homarus.cli.config_client import run_with_config

    return run_with_config(gateway, lambda settings: settings.change(edit), local=local)


def _print(found: "ConfigChangeResult", done: str, *, as_json: bool) -> None:
    if as_json:
        report: dict[str, Any] = {"ok": True, "path": found.file, "hash": found.hash}
        report |= {"changed": list(found.changed), "unbuilt": list(found.unbuilt)}
        report |= {"unreadable": list(found.unreadable)} if found.unreadable else {}
        click.echo(json.dumps({**report, "gateway": found.effect} if found.effect else report))
        return
    file = _short(found.file)
    layout_note = "" if found.kept_layout else "; its comments were lost, they are in the backup"
    effect = f"; {found.effect}" if found.effect else ""
    click.echo(
        f"{done} in {file}{layout_note}{effect}" if found.changed else f"{file} says so already"
    )
    for group in found.unbuilt:
        click.echo(f"warning: {group} is not built yet and has no effect", err=True)
    for text in found.unreadable:
        click.echo(f"warning: {text}", err=True)


def _short(file: str) -> str:
    return shorten(Path(file), Paths.find(os.environ).home)


def _value(text: str, *, strict: bool) -> Any:
    try:
        return to_plain(parse_json5(text))
    except ConfigError as exc:
        if strict:
            raise UserError(f"the value is not JSON5: {exc.reason}", fix=exc.fix) from None
        return text


def _missing_key_error(path: KeyPath) -> UserError:
    from homarus.config.known_keys import lookup, unknown_key

    shown = format_path(path)
    if lookup(path) is None:
        problem = unknown_key(path)
        return UserError(f"there is no key {shown}", fix=problem.fix)
    return UserError(f"{shown} is not set", fix=f"homarus config set {shown} VALUE")
