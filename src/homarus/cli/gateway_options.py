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

from homarus.config.paths import Paths, openclaw_files_dir
from homarus.core.errors import (
    ConfigError,
    HomarusError,
    InvalidRequestError,
    NotPairedError,
    UserError,
)
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json

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
    """The `--url`, `--token`, `--password` and `--tls-fingerprint` options of a command."""

    url: str | None = None
    token: str | None = None
    password: str | None = None
    tls_fingerprint: str | None = None


def gateway_options(command: Callable[..., T]) -> Callable[..., T]:
    """Add the options of GatewayOptions; the command gets them as `gateway`."""

    @wraps(command)
    def with_options(
        *args: Any,
        url: str | None,
        token: str | None,
        password: str | None,
        tls_fingerprint: str | None,
        **named: Any,
    ) -> T:
        return command(
            *args, gateway=GatewayOptions(url, token, password, tls_fingerprint), **named
        )

    wrapped: Callable[..., T] = with_options
    for name, metavar, help_text in (
        (
            "--tls-fingerprint",
            "SHA256",
            "The self-signed certificate of a wss:// gateway.",
        ),
        ("--password", "PASSWORD", "The gateway's password."),
        ("--token", "TOKEN", "The gateway's token."),
        (
            "--url",
            "URL",
            "A remote gateway, ws://HOST:PORT or wss://; needs --token or --password.",
        ),
    ):
        wrapped = click.option(name, metavar=metavar, help=help_text)(wrapped)
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
    gateway: GatewayOptions,
    *,
    mode: str = "cli",
    caps: tuple[str, ...] = ("tool-events",),
    protocol: int = 0,
) -> AsyncIterator["GatewayClient"]:
    """Connect to the named gateway, else to the one of our own state directory.

    `protocol` is the version to speak, if it is not the one that every command needs.
    """
    from homarus.core.clock import SystemClock
    from homarus.gateway.client import ClientProfile, GatewaySecret, connect_gateway
    from homarus.gateway.frames import PROTOCOL
    from homarus.gateway.identity import DeviceIdentity

    paths = Paths.find(os.environ)
    if gateway.url:
        _check(gateway.url)
        url, secret = gateway.url, GatewaySecret(gateway.token or "", gateway.password or "")
    else:
        url, secret = find_own_gateway(paths, gateway)
    device = DeviceIdentity.load_or_create(
        openclaw_files_dir(paths.state) / "identity" / "device.json", SystemClock().now_ms()
    )
    client_id = "openclaw-probe" if mode == "probe" else "cli"
    profile = ClientProfile(
        secret, device, client_id, mode, caps=caps, protocol=protocol or PROTOCOL
    )
    try:
        pin = find_fingerprint(paths, gateway, url)
        async with connect_gateway(url, profile, tls_fingerprint=pin) as client:
            yield client
    except InvalidRequestError as exc:
        if exc.message.startswith("unauthorized: ") and not exc.fix:
            raise InvalidRequestError(exc.message, fix=_UNAUTHORIZED_FIX) from exc
        raise
    except NotPairedError as exc:
        request_id = str((exc.details or {}).get("requestId") or "")
        if exc.fix or not request_id:
            raise
        from homarus.gateway.device_records import SHORT_ID

        command = f"homarus devices approve {request_id[:SHORT_ID]}"
        fix = f"{command} on the gateway's machine, then try again"
        raise NotPairedError(exc.message, details=exc.details, fix=fix) from exc


async def list_pending(client: "GatewayClient") -> list[dict[str, Json]]:
    """Return the devices that wait for an approval; none if the client may not see them."""
    with suppress(HomarusError):
        listed = await client.call("device.pair.list", {})
        pending = listed.get("pending") if isinstance(listed, dict) else None
        return [each for each in pending or () if isinstance(each, dict)]
    return []


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
    scheme, port = "wss" if config.gateway.tls.enabled else "ws", resolve_port(config.gateway, env)
    url = running.url if running else f"{scheme}://127.0.0.1:{port}"
    return url, GatewaySecret(token, password)


def find_fingerprint(paths: Paths, gateway: GatewayOptions, url: str) -> str:
    """Return the fingerprint that a gateway's certificate must have; empty for a trusted one.

    It is that of the options; of our own gateway, the one it published, else of its file; for any
    other gateway, `gateway.remote.tlsFingerprint` unless `gateway.remote.url` names another one.
    """
    if not url.lower().startswith("wss:"):
        return ""
    from homarus.gateway.client import find_running_gateway
    from homarus.gateway.tls import load_fingerprint

    if gateway.tls_fingerprint:
        return _parse_fingerprint(gateway.tls_fingerprint, "--tls-fingerprint")
    if gateway.url is None:
        running = find_running_gateway(paths)
        if running and running.tls_fingerprint:
            return running.tls_fingerprint
        return load_fingerprint(_config(paths)[0].gateway.tls, paths)
    remote = _config(paths)[0].gateway.remote
    if remote.tls_fingerprint and remote.url in {None, gateway.url}:
        return _parse_fingerprint(remote.tls_fingerprint, "gateway.remote.tlsFingerprint")
    return ""


def _parse_fingerprint(text: str, where: str) -> str:
    from homarus.net.pinned_tls import parse_fingerprint

    if digits := parse_fingerprint(text):
        return digits
    raise UserError(
        f"{where} is no SHA-256 fingerprint: it has 64 hexadecimal digits",
        fix="homarus gateway status prints it on the gateway's machine",
    )


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
        raise UserError(
            f"{url!r} is not a gateway's address", fix="use ws://HOST:PORT or wss://HOST:PORT"
        )


def warn(line: str) -> None:
    """Print a warning on stderr."""
    click.echo(line, err=True)


def restart_self() -> None:
    """Replace this process with a new one, with what is installed and configured now."""
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - ourselves
