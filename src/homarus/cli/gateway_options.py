"""The options and the connection of commands that use a gateway."""

import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from homarus.config.paths import Paths
from homarus.core.errors import ConfigError, InvalidRequestError, UserError
from homarus.core.fast_dataclass import dataclass

if TYPE_CHECKING:
    from homarus.config.schema import Config
    from homarus.gateway.client import GatewayClient, GatewaySecret

T = TypeVar("T")
_UNAUTHORIZED_FIX = (
    "give it with --token or --password, or in OPENCLAW_GATEWAY_TOKEN or OPENCLAW_GATEWAY_PASSWORD,"
    " as the gateway has it"
)
as_json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


@dataclass(frozen=True, slots=True)
class GatewayOptions:
    """The `--url`, `--token` and `--password` options of a command."""

    url: str | None = None
    token: str | None = None
    password: str | None = None


def gateway_options(command: Callable[..., T]) -> Callable[..., T]:
    """Add `--url`, `--token` and `--password`; the command gets them as `gateway`."""

    @wraps(command)
    def with_options(
        *args: Any, url: str | None, token: str | None, password: str | None, **named: Any
    ) -> T:
        return command(*args, gateway=GatewayOptions(url, token, password), **named)

    wrapped: Callable[..., T] = with_options
    for name, help_text in (
        ("--password", "The gateway's password."),
        ("--token", "The gateway's token."),
        (
            "--url",
            "A remote gateway, ws://HOST:PORT; needs --token or --password.",
        ),
    ):
        wrapped = click.option(name, metavar=name[2:].upper(), help=help_text)(wrapped)
    return wrapped


def is_gateway_running(gateway: GatewayOptions, env: Mapping[str, str] | None = None) -> bool:
    """Return whether a gateway can be used: a named one, or one on our own state directory."""
    if gateway.url:
        return True
    paths = Paths.find(env or os.environ)
    if not (paths.state / "gateway.json").exists():  # the imports below are slow
        return False
    from homarus.gateway.client import find_running_gateway

    return find_running_gateway(paths) is not None


def with_gateway_config(paths: Paths) -> Paths:
    """Return the paths with the config file of the gateway that serves this state directory."""
    from homarus.gateway.client import find_running_gateway

    running = find_running_gateway(paths)
    return replace(paths, config=Path(running.config)) if running and running.config else paths


@asynccontextmanager
async def open_gateway(
    gateway: GatewayOptions, *, mode: str = "cli"
) -> AsyncIterator["GatewayClient"]:
    """Connect to the named gateway, else to the one of our own state directory."""
    from homarus.core.clock import SystemClock
    from homarus.gateway.client import ClientProfile, GatewaySecret, connect_gateway
    from homarus.gateway.identity import DeviceIdentity

    paths = Paths.find(os.environ)
    if gateway.url:
        _check(gateway.url)
        url, secret = gateway.url, GatewaySecret(gateway.token or "", gateway.password or "")
    else:
        url, secret = find_own_gateway(paths, gateway)
    device = DeviceIdentity.load_or_create(
        paths.state / "identity" / "device.json", SystemClock().now_ms()
    )
    client_id = "openclaw-probe" if mode == "probe" else "cli"
    profile = ClientProfile(secret, device, client_id, mode)
    try:
        async with connect_gateway(url, profile) as client:
            yield client
    except InvalidRequestError as exc:
        if exc.message.startswith("unauthorized: ") and not exc.fix:
            raise InvalidRequestError(exc.message, fix=_UNAUTHORIZED_FIX) from exc
        raise


def find_own_gateway(paths: Paths, gateway: GatewayOptions) -> tuple[str, "GatewaySecret"]:
    """Return the URL and the secret of the gateway of our own state directory.

    The secret is that of the options, else of the config, of the environment, or the token file.
    """
    from homarus.gateway.auth import find_secrets
    from homarus.gateway.client import GatewaySecret, find_running_gateway
    from homarus.gateway.listen_address import resolve_port
    from homarus.gateway.owner_token import load_token

    config, env = _config(with_gateway_config(paths))
    token, password = gateway.token or "", gateway.password or ""
    if not (token or password):
        token, password = find_secrets(config.gateway.auth, env)
        token = token or load_token(paths.state)
    running = find_running_gateway(paths)
    port = resolve_port(config.gateway, env)
    return running.url if running else f"ws://127.0.0.1:{port}", GatewaySecret(token, password)


def _config(paths: Paths) -> tuple["Config", Mapping[str, str]]:
    """Return the gateway's config: the file as this shell can read it, else the last good one."""
    from homarus.config.config_files import read_text
    from homarus.config.load import examine_config, load_config
    from homarus.gateway.last_good import load_last_good

    with suppress(ConfigError):
        # Only the gateway needs the keys of models.
        found = examine_config(paths, os.environ, read_text(paths.config), need_variables=False)
        if found.config and not found.errors:
            return found.config, found.env
    if last := load_last_good(paths, os.environ):
        return last.config, last.env
    loaded = load_config(paths, os.environ)
    return loaded.config, loaded.env


def _check(url: str) -> None:
    if not url.startswith(("ws://", "wss://")):
        raise UserError(f"{url!r} is not a gateway's address", fix="use ws://HOST:PORT")


def warn(line: str) -> None:
    """Print a warning on stderr."""
    click.echo(line, err=True)


def restart_self() -> None:
    """Replace this process with a new one, with what is installed and configured now."""
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - ourselves
