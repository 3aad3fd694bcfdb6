"""`homarus channels add`, `remove` and `logout`: accounts in the configuration."""

import asyncio
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from homarus.cli.command_group import examples
from homarus.cli.config_client import run_with_config
from homarus.cli.gateway_options import (
    GatewayOptions,
    as_json_option,
    is_gateway_running,
    open_gateway,
    with_gateway_config,
)
from homarus.cli.options import channel_argument
from homarus.config.json5_document import KeyPath, parse_json5, to_plain
from homarus.config.load import resolve_env
from homarus.config.paths import Paths, shorten
from homarus.config.tree_edit import parse_path
from homarus.core.errors import ConfigError, UserError
from homarus.core.message import Json
from homarus.core.session_keys import DEFAULT_ACCOUNT, normalize_account_id
from homarus.core.text import one_line

if TYPE_CHECKING:
    from homarus.channels.registry import ChannelModule
    from homarus.cli.config_client import ConfigChangeResult

# Options of `add` and their settings, where the channel has them.
_OPTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "token": ("botToken", "token", "accessToken"),
    "bot_token": ("botToken",),
    "app_token": ("appToken",),
    "signing_secret": ("signingSecret",),
    "access_token": ("accessToken",),
    "password": ("password",),
    "host": ("host",),
    "port": ("port",),
    "nick": ("nick",),
    "homeserver": ("homeserver",),
    "user_id": ("userId",),
    "name": ("name",),
}
_SECRETS: Final = frozenset(
    {"token", "bot_token", "app_token", "signing_secret", "access_token", "password"}
)
account_option = click.option(
    "--account", metavar="ID", show_default="default", help="The account of the channel."
)


@click.command()
@examples(
    "homarus channels add telegram",
    "homarus channels add telegram --token -",
    "homarus channels add slack --bot-token - --app-token -",
    "homarus channels add matrix --homeserver https://matrix.org --access-token -",
    "homarus channels add irc --host irc.libera.chat --nick ada",
)
@channel_argument
@account_option
@click.option("--name", metavar="TEXT", help="The name shown in lists.")
@click.option("--token", metavar="TOKEN", help="The token, of whichever kind the service has.")
@click.option("--bot-token", metavar="TOKEN", help="The bot token.")
@click.option("--app-token", metavar="TOKEN", help="The app-level token.")
@click.option("--signing-secret", metavar="TEXT", help="The secret that requests are signed with.")
@click.option("--access-token", metavar="TOKEN", help="The access token.")
@click.option("--password", metavar="TEXT", help="The password.")
@click.option("--host", metavar="HOST", help="The server.")
@click.option("--port", metavar="PORT", type=click.IntRange(1, 65_535), help="The server's port.")
@click.option("--nick", metavar="NICK", help="The nick.")
@click.option("--homeserver", metavar="URL", help="The homeserver.")
@click.option("--user-id", metavar="ID", help="The user id, @name:server.")
@click.option(
    "--set",
    "assignments",
    metavar="KEY=VALUE",
    multiple=True,
    help="Another setting; repeatable.",
)
@as_json_option
def add(
    channel: str,
    account: str | None,
    assignments: tuple[str, ...],
    *,
    as_json: bool,
    **options: Any,
) -> None:
    """Add or change an account of a chat service in the configuration.

    In a terminal, settings that the account still needs are asked for. A secret can be `-`, which
    prompts for it, or the name of a variable, as '${NAME}'.
    """
    from homarus.channels.registry import load_channel
    from homarus.config.account_edits import add_account
    from homarus.config.channels import merged_section

    module = load_channel(channel)
    name = _account(account)
    values = _values(channel, module, options, assignments)
    section: Mapping[str, Any] = {}

    def edit(tree: Any) -> Any:
        nonlocal section
        new = add_account(tree, channel, name, values)
        section = merged_section(new["channels"], channel, name)
        _check(module, new, channel, name)
        return new

    def change() -> "ConfigChangeResult":
        return run_with_config(GatewayOptions(), lambda settings: settings.change(edit))

    if as_json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        changed = change()
    else:
        from homarus.cli.account_prompt import add_with_prompts

        changed = add_with_prompts(channel, module, values, change, lambda: section)
    policy = _policy(channel, name)
    if as_json:
        report = {"ok": True, "channel": channel, "account": name, "dmPolicy": policy}
        click.echo(json.dumps({**report, "path": changed.file, "gateway": changed.effect or None}))
        return
    effect = f"; {changed.effect}" if changed.effect else ""
    click.echo(f"{channel}:{name} is in {_short(changed.file)}{effect}.")
    for line in _next_steps(channel, policy, is_served=is_gateway_running(GatewayOptions())):
        click.echo(line)


def _values(
    channel: str, module: "ChannelModule", options: Mapping[str, Any], assignments: Sequence[str]
) -> dict[KeyPath, Json]:
    """Return the settings of the options, by key."""
    from homarus.config.channels import keys_of

    known = module.Settings.keys()
    found: dict[KeyPath, Json] = {}
    for option, keys in _OPTIONS.items():
        value = options.get(option)
        if value is None:
            continue
        key = next((key for key in keys if key in known), "")
        if not key:
            flag = f"--{option.replace('_', '-')}"
            own = ", ".join(keys_of(module.Settings))
            raise UserError(f"{channel} has no {flag}", fix=f"it has {own}")
        found[key,] = _secret(option) if value == "-" and option in _SECRETS else value
    for text in assignments:
        key, equals, value = text.partition("=")
        if not equals:
            raise UserError(f"{one_line(text, 40)!r} is not KEY=VALUE")
        found[parse_path(key)] = _value(value)
    return found


def _secret(option: str) -> str:
    if sys.stdin.isatty():
        entered: str = click.prompt(option.replace("_", " ").capitalize(), hide_input=True)
        return entered
    if line := sys.stdin.readline().strip():
        return line
    raise UserError(f"no {option.replace('_', ' ')} came by standard input", fix="send one line")


def _value(text: str) -> Json:
    try:
        return to_plain(parse_json5(text))
    except ConfigError:
        return text


def _check(module: "ChannelModule", tree: Mapping[str, Any], channel: str, account: str) -> None:
    """Refuse an account that its channel could not be built with, as far as that is known here."""
    from homarus.config.account_edits import has_unset_variables
    from homarus.config.channels import merged_section, read_account
    from homarus.config.variables import substitute

    if "$include" in {*tree["channels"], *tree["channels"][channel]}:
        return  # its effective value depends on the complete config
    paths = with_gateway_config(Paths.find(os.environ))
    env, _ = resolve_env(paths, os.environ, tree)
    channels = substitute(tree["channels"], env)
    settings = read_account(channels, channel, account, module.Settings)
    if not has_unset_variables(merged_section(channels, channel, account)):
        from homarus.channels.base import ChannelContext
        from homarus.core.clock import SystemClock

        module.create(
            ChannelContext(channel, account, SystemClock(), env=env, state=paths.state), settings
        )


def _policy(channel: str, account: str) -> str:
    from homarus.config.channels import common_settings

    config = run_with_config(GatewayOptions(), lambda settings: settings.config())
    return common_settings(config, channel, account).dm_policy


def _next_steps(channel: str, policy: str, *, is_served: bool) -> list[str]:
    first_step = [] if is_served else ["Next: homarus gateway run"]
    match policy:
        case "pairing":
            pairing_step = "Write to it there: it answers with a code. Then"
            return [
                *first_step,
                f"{pairing_step} `homarus pairing approve {channel} CODE` lets you in.",
            ]
        case "allowlist":
            return [*first_step, "Those in allowFrom are heard, nobody else."]
        case "open":
            return [*first_step, "Everybody who can write to it is heard."]
    return [*first_step, "Direct messages to it are not heard (dmPolicy is disabled)."]


@click.command()
@examples("homarus channels remove irc", "homarus channels remove telegram --account work --delete")
@channel_argument
@click.option("--account", metavar="ID", show_default="all", help="Only this account.")
@click.option("--delete", is_flag=True, help="Also delete it from the configuration.")
@as_json_option
def remove(channel: str, account: str | None, *, delete: bool, as_json: bool) -> None:
    """Disable a channel or one of its accounts; --delete removes the settings as well."""
    from homarus.config.account_edits import account_ids, delete_account, disable_account

    name = normalize_account_id(account) if account else None
    gone: tuple[str, ...] = ()

    def edit(tree: Any) -> Any:
        nonlocal gone
        gone = (name,) if name else account_ids(tree, channel)
        return (delete_account if delete else disable_account)(tree, channel, name)

    changed = run_with_config(GatewayOptions(), lambda settings: settings.change(edit))
    if delete:
        for each in gone:
            _login_file(channel, each).unlink(missing_ok=True)
    what = f"{channel}:{name}" if name else channel
    done = "is deleted from" if delete else "is off in"
    if as_json:
        report = {"ok": True, "channel": channel, "accounts": list(gone), "deleted": delete}
        click.echo(json.dumps({**report, "gateway": changed.effect or None}))
        return
    effect = f"; {changed.effect}" if changed.effect else ""
    click.echo(f"{what} {done} {_short(changed.file)}{effect}.")
    if not delete:
        again = f"{channel} --account {name}" if name else channel
        click.echo(f"`homarus channels add {again}` switches it on again.")


@click.command()
@examples("homarus channels logout matrix")
@channel_argument
@account_option
@as_json_option
def logout(channel: str, account: str | None, *, as_json: bool) -> None:
    """Stop an account and delete its stored login; with a password it logs in again."""
    from homarus.channels.registry import load_channel

    load_channel(channel)
    name = _account(account)
    if is_gateway_running(GatewayOptions()):
        asyncio.run(_logout(channel, name))
    else:
        file = _login_file(channel, name)
        if not file.is_file():
            raise UserError(
                f"{channel}:{name} keeps no login", fix=f"homarus channels remove {channel}"
            )
        file.unlink()
    if as_json:
        click.echo(json.dumps({"ok": True, "channel": channel, "account": name}))
    else:
        click.echo(f"The login of {channel}:{name} is forgotten.")


@click.command()
@examples("homarus channels login matrix", "homarus channels login telegram --account work")
@channel_argument
@account_option
@as_json_option
def login(channel: str, account: str | None, *, as_json: bool) -> None:
    """Have the gateway log in an account again, and show its name on the service."""
    from homarus.channels.registry import load_channel

    load_channel(channel)
    name = _account(account)
    if not is_gateway_running(GatewayOptions()):
        raise UserError("accounts log in while a gateway runs", fix="start it: homarus gateway")
    row = asyncio.run(_login(channel, name))
    probe = row.get("probe") or {}
    problem = probe.get("error") or row.get("lastError") or ""
    if not probe.get("ok"):
        raise UserError(
            f"{channel}:{name} could not log in: {one_line(str(problem), 300) or 'no answer yet'}",
            fix="homarus channels status --probe asks again",
        )
    identity = str(probe.get("identity") or "")
    if as_json:
        report = {"ok": True, "channel": channel, "account": name, "identity": identity}
        click.echo(json.dumps(report, ensure_ascii=False))
    else:
        click.echo(f"{channel}:{name} is logged in as {one_line(identity, 80)}.")


async def _login(channel: str, account: str) -> dict[str, Json]:
    async with open_gateway(GatewayOptions()) as client:
        await client.call("channels.start", {"channel": channel, "accountId": account})
        status = await client.call("channels.status", {"probe": True}, timeout_s=60.0)
    rows = status["channelAccounts"].get(channel, ()) if isinstance(status, dict) else ()
    return next((row for row in rows if row["accountId"] == account), {})


@click.command()
@examples("homarus channels resolve telegram:12345", "homarus channels resolve '#family:x.org'")
@click.argument("target")
@click.option("--channel", "name", metavar="NAME", help="The chat service.")
@click.option("--account", metavar="ID", help="Which of our accounts there.")
@as_json_option
def resolve(target: str, name: str | None, account: str | None, *, as_json: bool) -> None:
    """Show which chat a target means: its service, account, id and thread."""
    from homarus.cli.message_options import ChatTarget, run_action

    chat = ChatTarget(target, name, account)
    found = run_action(GatewayOptions(), "resolve", chat, {}, as_json=as_json)
    if not as_json:
        thread = f", thread {found['threadId']}" if found["threadId"] else ""
        place = f"{found['channel']}:{found['accountId']}, chat {found['to']}{thread}"
        click.echo(one_line(place, 300))


async def _logout(channel: str, account: str) -> None:
    async with open_gateway(GatewayOptions()) as client:
        await client.call("channels.logout", {"channel": channel, "accountId": account})


def _account(account: str | None) -> str:
    """Return an account's normalised id; raises for one that cannot be an id."""
    if account is None:
        return DEFAULT_ACCOUNT
    name = normalize_account_id(account)
    if name == DEFAULT_ACCOUNT and account.strip().lower() != DEFAULT_ACCOUNT:
        raise UserError(f"{one_line(account, 40)!r} cannot be an account's id", fix="use letters")
    return name


def _login_file(channel: str, account: str) -> Path:
    return Paths.find(os.environ).state / "credentials" / channel / f"{account}.json"


def _short(file: str) -> str:
    return shorten(Path(file), Paths.find(os.environ).home)
