"""`homarus models auth`: add keys, log in, and see how the credentials for models fare.

A secret is typed unseen or read from standard input; it is never an argument, and never printed.
"""

import asyncio
import json
import os
import re
import sys
import webbrowser
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from homarus.cli import completion_values, options
from homarus.cli.command_group import CommandGroup, examples
from homarus.cli.gateway_options import as_json_option
from homarus.config.agent_settings import agent_ids, default_agent_id, resolve_agent_settings
from homarus.config.load import LoadedConfig, load_config
from homarus.config.model_refs import normalize_provider_id
from homarus.config.paths import Paths, shorten
from homarus.core.clock import SystemClock
from homarus.core.errors import UnknownNameError, UserError
from homarus.core.text import closest_names, one_line

if TYPE_CHECKING:
    from homarus.providers.credentials import CredentialEntry, Credentials
    from homarus.providers.oauth import DeviceCode, OAuthClient, OAuthTokens
    from homarus.providers.profiles import Raw

MAX_SECRET_CHARS = 16_384
_LIFETIME = re.compile(r"\s*([0-9]{1,6})\s*([smhdw])\s*")
_UNIT_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_PROFILE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@+-]{0,127}")

agent_option = options.agent_option("The agent that uses it.", default="the default agent")
of_provider = click.option(
    "--provider",
    required=True,
    metavar="NAME",
    shell_complete=completion_values.providers,
    help="The provider.",
)
named = click.option(
    "--profile-id", metavar="ID", show_default="PROVIDER:default", help="The name of the profile."
)


class _AuthTarget:
    """Where a command works: an agent, its file and its credentials."""

    def __init__(self, agent: str | None) -> None:
        from homarus.providers.credentials import open_credentials, profile_file

        self.paths = Paths.find(os.environ)
        self.loaded: LoadedConfig = load_config(self.paths, os.environ)
        config, env = self.loaded.config, self.loaded.env
        self.agent = resolve_agent_settings(
            config, self.paths, agent or default_agent_id(config)
        ).id
        self.file = profile_file(config, env, self.paths, self.agent)
        self.credentials: Credentials = open_credentials(
            config, env, self.paths, self.agent, SystemClock()
        )

    def save(self, id_: str, fields: Mapping[str, Any]) -> None:
        """Save a profile and report it."""
        from homarus.providers.profiles import forget_usage, put_profile

        def put(raw: "Raw") -> None:
            put_profile(raw, id_, fields)
            forget_usage(raw, id_)

        self.change(put)
        click.echo(f"{id_} is in {shorten(self.file.path, self.paths.home)}.")

    def change(self, change: "Callable[[Raw], None]") -> None:
        for text in self.file.read().warnings:
            click.echo(f"Note: {text}", err=True)
        self.file.update(change)

    def has_agent_with(self, profile: str) -> bool:
        """Return whether any agent has a profile of this name."""
        from homarus.providers.credentials import profile_file

        config, env = self.loaded.config, self.loaded.env
        files = (profile_file(config, env, self.paths, agent) for agent in agent_ids(config))
        return any(profile in file.read().profiles for file in files)

    def check_provider(self, text: str, *, may_be_new: bool = False) -> str:
        """Return a provider's name; raises UnknownNameError, with the nearest names.

        A login, whose service the command line describes, may come before the configuration.
        """
        from homarus.providers.resolution import check_provider

        name, config = _provider(text), self.loaded.config
        stored = {entry.profile.provider for entry in self.credentials.entries()}
        stored |= {normalize_provider_id(each) for each in config.auth.clients}
        if name in stored or name in self.file.read().order:
            return name
        try:
            check_provider(config, name)
        except UnknownNameError as exc:
            if exc.nearest or not may_be_new:
                raise
            click.echo(f"Note: {exc.message}; {exc.fix}.", err=True)
        return name


@click.group(cls=CommandGroup)
@examples("homarus models auth add openai", "homarus models auth status")
def auth() -> None:
    """Manage API keys and logins of model providers."""


@auth.command()
@examples(
    "homarus models auth add openai", "homarus models auth add openai --key-env OPENAI_API_KEY"
)
@options.optional_provider_argument
@named
@click.option("--key-stdin", is_flag=True, help="Read the key from standard input.")
@click.option("--key-env", metavar="NAME", help="Store ${NAME} instead of the key.")
@click.option("--key-file", metavar="PATH", help="Store the path of a file with the key.")
@agent_option
def add(
    provider: str | None,
    profile_id: str | None,
    *,
    key_stdin: bool,
    key_env: str | None,
    key_file: str | None,
    agent: str | None,
) -> None:
    """Add an API key for PROVIDER; the key is prompted for and not shown."""
    if sum(map(bool, (key_stdin, key_env, key_file))) > 1:
        raise UserError("a key comes from one place", fix="give one of the --key-… options")
    target = _AuthTarget(agent)
    if not provider:
        provider = _prompt("Provider")
    name = target.check_provider(provider)
    id_ = _id(profile_id or f"{name}:default", name)
    fields: dict[str, Any] = {"type": "api_key", "provider": name, "key": None, "keyFrom": None}
    if key_env:
        fields["key"] = f"${{{_variable(key_env)}}}"
    elif key_file:
        fields["keyFrom"] = {"source": "file", "path": key_file}
    else:
        fields["key"] = _secret("Key", from_stdin=key_stdin)
    target.save(id_, fields)


@auth.command("paste-token")
@examples("homarus models auth paste-token anthropic --expires-in 365d")
@options.provider_argument
@named
@click.option("--expires-in", metavar="TIME", show_default="never", help="Lifetime: 12h, 30d, 52w.")
@agent_option
def paste_token(
    provider: str, profile_id: str | None, expires_in: str | None, agent: str | None
) -> None:
    """Store a token for PROVIDER from another program; it is prompted for and not shown."""
    target = _AuthTarget(agent)
    name = target.check_provider(provider)
    id_ = _id(profile_id or f"{name}:manual", name)
    expires_ms = SystemClock().now_ms() + _lifetime_ms(expires_in) if expires_in else None
    token = _secret("Token", from_stdin=not _is_terminal())
    fields = {"type": "token", "provider": name, "token": token, "tokenFrom": None}
    target.save(id_, {**fields, "expires": expires_ms})


@auth.command("setup-token")
@examples("homarus models auth setup-token", "claude setup-token | homarus models auth setup-token")
@named
@agent_option
@click.pass_context
def setup_token(ctx: click.Context, profile_id: str | None, agent: str | None) -> None:
    """Store the token that `claude setup-token` prints, for anthropic."""
    given = {"provider": "anthropic", "profile_id": profile_id, "agent": agent}
    ctx.invoke(paste_token, expires_in=None, **given)


@auth.command()
@examples(
    "homarus models auth login openai-codex", "homarus models auth login openai-codex --device"
)
@options.provider_argument
@named
@click.option("--device", is_flag=True, help="Show a code to type on another device.")
@click.option(
    "--paste", is_flag=True, help="Paste the final address of the browser instead of listening."
)
@click.option("--no-browser", is_flag=True, help="Print the address; open no browser.")
@click.option("--client-id", metavar="ID", help="The OAuth client id.")
@click.option("--client-secret-env", metavar="NAME", help="The variable with the client secret.")
@click.option("--authorize-url", metavar="URL", help="The authorization endpoint.")
@click.option("--token-url", metavar="URL", help="The token endpoint.")
@click.option("--device-url", metavar="URL", help="The device authorization endpoint.")
@click.option("--redirect-url", metavar="URL", help="The redirect address on this machine.")
@click.option(
    "--scope", "scopes", multiple=True, metavar="SCOPE", help="An OAuth scope; repeatable."
)
@options.timeout_option("Seconds to wait for the login.", default_s=300)
@agent_option
def login(
    provider: str,
    profile_id: str | None,
    *,
    device: bool,
    paste: bool,
    no_browser: bool,
    timeout_s: float,
    agent: str | None,
    **addresses: Any,
) -> None:
    """Log in to PROVIDER with OAuth, in a browser or with a code."""
    from homarus.providers.oauth import log_in_by_browser, log_in_by_device

    target = _AuthTarget(agent)
    name = target.check_provider(provider, may_be_new=True)
    if profile_id:
        _id(profile_id, name)
    client = _client(target.loaded, name, addresses)
    if device:
        tokens = asyncio.run(log_in_by_device(client, SystemClock(), _show_code))
    else:
        tokens = asyncio.run(
            log_in_by_browser(
                client,
                SystemClock(),
                _make_presenter(opens_browser=not (no_browser or paste)),
                partial(_pasted_line, only_pasted=paste),
                listen=not paste,
                timeout_s=timeout_s,
            )
        )
    id_ = profile_id or _id(f"{name}:{tokens.email or 'default'}", name)
    target.save(id_, _login_fields(client, tokens))


@auth.command()
@examples("homarus models auth remove openai:work")
@click.argument("profile")
@click.option("--yes", is_flag=True, help="Do not ask.")
@agent_option
@as_json_option
def remove(profile: str, agent: str | None, *, yes: bool, as_json: bool) -> None:
    """Remove the stored credential PROFILE, and its place in every order."""
    from homarus.cli.config_client import run_with_config
    from homarus.cli.gateway_options import GatewayOptions
    from homarus.providers.profiles import remove_profile

    target = _AuthTarget(agent)
    _check_stored(target, profile)
    file = shorten(target.file.path, target.paths.home)
    inherited = target.file.base_places.get(profile)
    if not yes:
        if as_json or not _is_terminal():
            raise UserError("removing a credential must be confirmed", fix="add --yes")
        question = f"Stop using {profile}?" if inherited else f"Remove {profile} from {file}?"
        click.confirm(question, abort=True)
    target.change(lambda raw: remove_profile(raw, profile))
    is_named = _without_profile(target.loaded.raw, profile) != target.loaded.raw
    is_openclaws = target.file.is_in_base(profile)  # which reads the configuration, too
    if is_named and not is_openclaws and not target.has_agent_with(profile):
        run_with_config(
            GatewayOptions(), lambda config: config.change(lambda t: _without_profile(t, profile))
        )
    if as_json:
        click.echo(json.dumps({"ok": True, "agentId": target.agent, "profileId": profile}))
    elif inherited:
        click.echo(
            f"{profile} is not used here from now on. OpenClaw still has it, in {inherited}."
        )
    else:
        click.echo(f"{profile} is removed from {file}.")


def _check_stored(target: _AuthTarget, profile: str) -> None:
    """Raise an error unless the agent's own file has this profile."""
    stored = target.file.read().profiles
    if profile in stored:
        return
    entries = {entry.profile.id: entry for entry in target.credentials.entries()}
    if entry := entries.get(profile):
        if entry.file:
            fix = "remove it from the main agent: --agent main"
            raise UserError(f"{profile} is in {entry.place}", fix=fix)
        fix = f"remove {entry.place} where it is set"
        raise UserError(f"{profile} is no stored credential: it comes from {entry.place}", fix=fix)
    near = closest_names(profile, stored) or tuple(list(stored)[:3])
    fix = "" if near else "homarus models auth status lists them"
    raise UnknownNameError("auth profile", one_line(profile, 60), near, fix=fix)


def _without_profile(tree: Any, profile: str) -> Any:
    """Return the settings without a profile in `auth.profiles` and `auth.order`."""
    from homarus.config.tree_edit import set_path, unset_path
    from homarus.providers.profiles import order_without

    auth = tree.get("auth") if isinstance(tree, dict) else None
    if not isinstance(auth, dict):
        return tree
    if isinstance(profiles := auth.get("profiles"), dict) and profile in profiles:
        tree = unset_path(tree, ("auth", "profiles", profile))
    if isinstance(orders := auth.get("order"), dict):
        for name in orders.keys() - (kept := order_without(orders, profile)).keys():
            tree = unset_path(tree, ("auth", "order", name))
        for name in [name for name in kept if kept[name] != orders[name]]:
            tree = set_path(tree, ("auth", "order", name), kept[name])
    return tree


@auth.group()
@examples("homarus models auth order set --provider openai openai:work openai:default")
def order() -> None:
    """Manage the order in which a provider's profiles are tried."""


@order.command("get")
@examples("homarus models auth order get --provider openai")
@of_provider
@agent_option
@as_json_option
def order_get(provider: str, agent: str | None, *, as_json: bool) -> None:
    """Show the order that is set."""
    target = _AuthTarget(agent)
    name = target.check_provider(provider)
    ids = target.credentials.order(name)
    if as_json:
        report = {"agentId": target.agent, "provider": name, "order": ids}
        click.echo(json.dumps(report, ensure_ascii=False))
    else:
        click.echo("\n".join(map(one_line, ids)) if ids is not None else "No order is set.")


@order.command("set")
@examples("homarus models auth order set --provider openai openai:work openai:default")
@of_provider
@agent_option
@click.argument("profile_ids", nargs=-1, required=True)
def order_set(provider: str, agent: str | None, profile_ids: tuple[str, ...]) -> None:
    """Try only PROFILE_IDS, in this order."""
    from homarus.providers.profiles import put_order

    target = _AuthTarget(agent)
    name = target.check_provider(provider)
    known = [entry.profile.id for entry in target.credentials.entries(name)]
    for id_ in profile_ids:
        if id_ not in known:
            raise UnknownNameError(
                f"auth profile of {name}", id_, closest_names(id_, known) or tuple(known[:3])
            )
    target.change(lambda raw: put_order(raw, name, profile_ids))
    click.echo(f"{name}: {', '.join(profile_ids)}")


@order.command("clear")
@examples("homarus models auth order clear --provider openai")
@of_provider
@agent_option
def order_clear(provider: str, agent: str | None) -> None:
    """Remove the order that is set."""
    from homarus.providers.profiles import put_order

    target = _AuthTarget(agent)
    name = target.check_provider(provider)
    target.change(lambda raw: put_order(raw, name, None))
    remaining = target.credentials.order(name)
    text = f"still {', '.join(remaining)}: set elsewhere" if remaining else "no order is set"
    click.echo(f"{name}: {text}.")


@auth.command()
@examples("homarus models auth status --json")
@agent_option
@as_json_option
def status(agent: str | None, *, as_json: bool) -> None:
    """List the credentials and their state."""
    target = _AuthTarget(agent)
    entries = target.credentials.entries()
    rows = [_row(target, entry) for entry in entries]
    warnings = target.credentials.warnings
    if as_json:
        report = {"agentId": target.agent, "profiles": rows, "warnings": warnings}
        click.echo(json.dumps(report, ensure_ascii=False))
        return
    for text in warnings:
        click.echo(f"Note: {text}", err=True)
    if not rows:
        click.echo("No credentials yet. homarus models auth add makes one.")
    for row in rows:
        click.echo(f"{row['profileId']}  {row['type']}  {row['shown']}")
        for text in _details(row):
            click.echo(f"    {text}")


def _row(target: _AuthTarget, entry: "CredentialEntry") -> dict[str, Any]:
    profile, usage = entry.profile, entry.usage
    cooldown = {
        model: until_ms
        for model in entry.of_models
        if (until_ms := target.credentials.cooldown_until_ms(entry, model))
    }
    return {
        "profileId": one_line(profile.id, 200),
        "provider": profile.provider,
        "type": profile.kind,
        "shown": entry.source.masked,
        "source": shorten(Path(entry.place), target.paths.home) if entry.file else entry.place,
        "inherited": entry.is_inherited,
        "expires": profile.expires_ms or None,
        "restsUntil": target.credentials.cooldown_until_ms(entry) or None,
        "restsUntilByModel": cooldown,
        "disabledReason": one_line(usage.disabled_reason) or None,
        "errorCount": usage.error_count,
        "lastUsed": usage.last_used_ms or None,
        "lastGood": entry.is_last_good,
        "problem": entry.problem or None,
    }


def _details(row: Mapping[str, Any]) -> list[str]:
    parts = [f"from {row['source']}{' (OpenClaw, read only)' if row['inherited'] else ''}"]
    if row["problem"]:
        parts.append(f"not used: {row['problem']}")
    if row["expires"]:
        parts.append(f"runs out {_when(row['expires'])}")
    if row["restsUntil"]:
        why = f" ({row['disabledReason']})" if row["disabledReason"] else ""
        parts.append(f"rests until {_when(row['restsUntil'])}{why}")
    for model, until_ms in row["restsUntilByModel"].items():
        parts.append(f"rests for {one_line(model)} until {_when(until_ms)}")
    if row["lastUsed"]:
        parts.append(f"last used {_when(row['lastUsed'])}")
    if row["lastGood"]:
        parts.append("worked last")
    return parts


def _when(at_ms: int) -> str:
    try:
        return datetime.fromtimestamp(at_ms / 1000).astimezone().isoformat(" ", "seconds")
    except (OverflowError, OSError, ValueError):
        return "at no date there is"


def _provider(text: str) -> str:
    name = normalize_provider_id(text)
    if not re.fullmatch(r"[a-z0-9][a-z0-9._-]{0,63}", name):
        raise UserError(f"{one_line(text)!r} is not a provider's name", fix="homarus models list")
    return name


def _id(text: str, provider: str) -> str:
    if not _PROFILE_ID.fullmatch(text):
        fix = f"write something like {provider}:work"
        raise UserError(f"{one_line(text)!r} is not a profile's name", fix=fix)
    return text


def _variable(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise UserError(
            "that is not the name of a variable", fix="give its name, not what is in it"
        )
    return name


def _lifetime_ms(text: str) -> int:
    found = _LIFETIME.fullmatch(text)
    if not found or not int(found[1]):
        raise UserError(f"{one_line(text)!r} is not a time", fix="write 12h, 30d or 52w")
    return int(found[1]) * _UNIT_MS[found[2]]


def _is_terminal() -> bool:
    return sys.stdin.isatty()


def _prompt(label: str) -> str:
    if not _is_terminal():
        raise UserError(f"the {label.lower()} is missing", fix="homarus models auth add PROVIDER")
    return str(click.prompt(label))


def _secret(label: str, *, from_stdin: bool) -> str:
    """Read a secret, typed without echo or piped in."""
    if from_stdin:
        text = sys.stdin.readline(MAX_SECRET_CHARS + 1)
    elif _is_terminal():
        text = click.prompt(label, hide_input=True, err=True)
    else:
        fix = "pipe it in and give --key-stdin, or run this in a terminal"
        raise UserError(f"there is nobody to type the {label.lower()}", fix=fix)
    secret = str(text).strip()
    is_valid = secret.isascii() and secret.isprintable() and " " not in secret
    if not secret or not is_valid or len(secret) > MAX_SECRET_CHARS:
        raise UserError(f"that is not a {label.lower()}", fix="copy it whole, and nothing else")
    return secret


def _client(loaded: LoadedConfig, provider: str, options: Mapping[str, Any]) -> "OAuthClient":
    """Return the OAuth client: from the command line, else from the configuration."""
    from homarus.config.schema import OAuthClientConfig
    from homarus.providers.oauth import OAuthClient

    clients = loaded.config.auth.clients.items()
    known = next(
        (c for n, c in clients if normalize_provider_id(n) == provider), OAuthClientConfig()
    )

    def get_value(name: str) -> str:
        return options[name] or getattr(known, name) or ""

    if not get_value("client_id"):
        fix = f"give --client-id and the addresses, or set auth.clients.{provider}"
        raise UserError(f"how to log in to {provider} is not known", fix=fix)
    return OAuthClient(
        provider,
        client_id=get_value("client_id"),
        token_url=get_value("token_url"),
        authorize_url=get_value("authorize_url"),
        device_url=get_value("device_url"),
        redirect_url=get_value("redirect_url"),
        scopes=options["scopes"] or known.scopes,
        client_secret=_value_of(loaded, options["client_secret_env"]) or known.client_secret or "",
    )


def _value_of(loaded: LoadedConfig, name: str | None) -> str:
    value = loaded.env.get(_variable(name), "").strip() if name else ""
    if name and not value:
        raise UserError(f"the variable {name} is not set", fix=f"export {name}")
    return value


def _login_fields(client: "OAuthClient", tokens: "OAuthTokens") -> dict[str, Any]:
    return {
        "type": "oauth",
        "provider": client.provider,
        "access": tokens.access,
        "refresh": tokens.refresh,
        "expires": tokens.expires_ms,
        "email": tokens.email or None,
        "clientId": client.client_id,
        "clientSecret": client.client_secret or None,
        "tokenUrl": client.token_url,
    }


def _make_presenter(*, opens_browser: bool) -> Callable[[str], None]:
    def show(url: str) -> None:
        click.echo(f"Open this address and grant the login:\n\n{url}\n", err=True)
        click.echo("If the browser ends at a page that does not load, paste its address.", err=True)
        if opens_browser and (sys.platform == "darwin" or _has_display()):
            webbrowser.open(url)

    return show


def _has_display() -> bool:
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def _show_code(code: "DeviceCode") -> None:
    click.echo(f"Open {code.url} on any device and type this code: {code.code}", err=True)
    if code.whole_url:
        click.echo(f"Or open {code.whole_url}", err=True)


async def _pasted_line(*, only_pasted: bool) -> str:
    """Read a line of standard input; its end is an error only when nothing else is awaited."""
    loop = asyncio.get_running_loop()
    line: asyncio.Future[str] = loop.create_future()
    buffer = bytearray()

    def read() -> None:
        try:
            more = os.read(descriptor, MAX_SECRET_CHARS)
        except OSError:  # the terminal was closed
            more = b""
        buffer.extend(more)
        if b"\n" in buffer or not more or len(buffer) > MAX_SECRET_CHARS:
            loop.remove_reader(descriptor)
            line.set_result(buffer.decode("utf-8", "replace").partition("\n")[0])

    try:
        descriptor = sys.stdin.fileno()
        loop.add_reader(descriptor, read)
    except OSError:  # a regular file, which never blocks
        line.set_result(sys.stdin.readline(MAX_SECRET_CHARS))
        descriptor = -1
    try:
        text = await line
    finally:
        if descriptor >= 0:
            loop.remove_reader(descriptor)
    if text.strip():
        return text
    if only_pasted:
        raise UserError("nothing was pasted", fix="paste the address that the browser ends at")
    pending: asyncio.Future[str] = loop.create_future()
    return await pending
