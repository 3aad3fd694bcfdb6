"""`homarus gateway`: run, inspect, call and stop the gateway."""

import asyncio
import gc
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from homarus.cli.command_group import CommandGroup, examples
from homarus.cli.gateway_options import (
    GatewayOptions,
    as_json_option,
    gateway_options,
    open_gateway,
    restart_self,
    warn,
)
from homarus.cli.options import timeout_option
from homarus.config.paths import Paths, shorten
from homarus.core.errors import HomarusError, UnavailableError, UserError
from homarus.core.message import Json

if TYPE_CHECKING:
    from homarus.cli.gateway_service import ServiceBackend
    from homarus.gateway.auth import AuthMode, SharedSecretAuth
    from homarus.gateway.client import RunningGateway
    from homarus.gateway.serve import Listening

_STOP_TIMEOUT_S = 15.0
_RESTART_TIMEOUT_S = 20.0
_timeout_option = timeout_option("Seconds to wait for the answer.")
_port_option = click.option(
    "--port",
    metavar="PORT",
    type=click.IntRange(0, 65_535),
    show_default="gateway.port, else 18789",
    help="The port; 0 takes any free one.",
)
_bind_option = click.option(
    "--bind",
    metavar="WHERE",
    show_default="gateway.bind, else loopback",
    help="The addresses to listen on: loopback, lan or custom.",
)
_auth_option = click.option(
    "--auth",
    "auth_mode",
    type=click.Choice(["token", "password", "trusted-proxy", "none"]),
    show_default="gateway.auth.mode, else token",
    help="How clients authenticate; none admits every user of this machine.",
)


@click.group("gateway", cls=CommandGroup, invoke_without_command=True)
@examples("homarus gateway run", "homarus gateway install", "homarus gateway status")
@_port_option
@_bind_option
@_auth_option
@click.pass_context
def command(
    ctx: click.Context, port: int | None, bind: str | None, auth_mode: "AuthMode | None"
) -> None:
    """Run the gateway in the foreground; manage it and its service."""
    if ctx.invoked_subcommand is None:
        _run(port, bind, auth_mode)


@command.command("run")
@examples("homarus gateway run", "homarus gateway run --bind lan --port 18800")
@_port_option
@_bind_option
@_auth_option
def run(port: int | None, bind: str | None, auth_mode: "AuthMode | None") -> None:
    """Run the gateway in the foreground.

    Exit status: 0 after a requested stop; 2 for an invalid configuration, which another start
    would not fix; 75 while another start may succeed (the port or the state directory is in use,
    the disk is full, the address does not exist yet); 1 for every other failure. The service of
    `gateway install` restarts the gateway after all of these but 2.
    """
    _run(port, bind, auth_mode)


def _run(port: int | None, bind: str | None, auth_mode: "AuthMode | None") -> None:
    gc.disable()  # nearly all objects of the start stay alive; `serve` enables it when ready
    from homarus.cli.gateway_secret import describe_auth, describe_listening
    from homarus.process import serve

    notes: list[str] = []
    links: list[str] = []
    secrets: list[str] = []

    def on_auth(auth: "SharedSecretAuth") -> None:
        lines = describe_auth(auth, Paths.find(os.environ))
        if auth.mode == "none":
            warn("\n".join(lines))
        else:
            notes.extend(lines)
            secrets.append(auth.secret)

    def on_listening(listening: "Listening") -> None:
        shown = secrets[0] if secrets and sys.stdout.isatty() else ""  # never into a log
        links.extend(describe_listening(listening, shown))

    def ready(url: str) -> None:
        lines = [f"The gateway is ready on {url} (process {os.getpid()}).", *notes, *links]
        click.echo("\n".join(lines))  # at once, for programs that wait for the first line

    try:
        ending = asyncio.run(
            serve(
                os.environ,
                port=port,
                bind=bind,
                auth_mode=auth_mode,
                ready=ready,
                on_auth=on_auth,
                on_listening=on_listening,
                warn=warn,
            )
        )
    except HomarusError as exc:
        from homarus.gateway.exit_status import TRANSIENT, is_transient

        if is_transient(exc):
            exc.exit_status = TRANSIENT
        raise
    if ending == "restart":
        click.echo("Restarting.")
        restart_self()


@command.command("install")
@examples("homarus gateway install", "homarus gateway install --port 18800 --force")
@click.option(
    "--port",
    metavar="PORT",
    type=click.IntRange(1, 65_535),
    show_default="gateway.port, else 18789",
    help="The port.",
)
@click.option("--force", is_flag=True, help="Replace an installed service that differs.")
@as_json_option
def install(port: int | None, *, force: bool, as_json: bool) -> None:
    """Install the gateway as a service of systemd or launchd, and start it."""
    from homarus.cli import gateway_service

    service, warnings = gateway_service.install(port, force=force)
    _control_service(service, "is installed and started", as_json=as_json)
    for warning in warnings:
        warn(warning)


@command.command("uninstall")
@examples("homarus gateway uninstall")
@as_json_option
def uninstall(*, as_json: bool) -> None:
    """Stop the gateway and remove its service."""
    from homarus.cli import gateway_service

    service = gateway_service.uninstall()
    if service is None:
        text = "The gateway is not installed here."
        click.echo(json.dumps({"ok": True, "installed": False}) if as_json else text)
        return
    _control_service(service, "is stopped and removed", as_json=as_json)


@command.command("start")
@examples("homarus gateway start")
@as_json_option
def start(*, as_json: bool) -> None:
    """Start the installed service."""
    from homarus.cli import gateway_service

    service = gateway_service.require_service()
    service.start()
    _control_service(service, "is started", as_json=as_json)


def _control_service(service: "ServiceBackend", done: str, *, as_json: bool) -> None:
    if as_json:
        report = {"ok": True, "name": service.name, "file": str(service.file)}
        click.echo(json.dumps(report, ensure_ascii=False))
    else:
        click.echo(f"{service.name} {done} ({shorten(service.file, Paths.find(os.environ).home)}).")


@command.command("status")
@examples("homarus gateway status", "homarus gateway status --json")
@as_json_option
def status(*, as_json: bool) -> None:
    """Show whether a gateway is running on this state directory, and where."""
    running = _find()
    found: dict[str, Json] = {"running": running is not None}
    if running:
        found |= {
            "pid": running.pid,
            "url": running.url,
            **asyncio.run(_fetch_status(GatewayOptions())),
            "links": list(links_of(running)),
        }
        if running.tls_fingerprint:
            from homarus.net.pinned_tls import format_fingerprint

            found["tlsFingerprint"] = format_fingerprint(running.tls_fingerprint)
    service_text = ""
    if service := _find_service():
        state = service.state()
        service_text = f"{service.name}, {state or 'which cannot be asked'}"
        found["service"] = {"name": service.name, "file": str(service.file), "state": state}
    if as_json:
        click.echo(json.dumps(found, ensure_ascii=False))
    elif running is None:
        paths = Paths.find(os.environ)
        click.echo(f"No gateway serves {shorten(paths.state, paths.home)}.")
        if service_text:
            click.echo(f"It is kept by {service_text}.")
        click.echo(f"  → homarus gateway {'start' if service_text else 'run'} starts one")
    else:
        found |= {"service": service_text} if service_text else {}
        for name, value in found.items():
            shown = " ".join(map(str, value)) if isinstance(value, list) else value
            click.echo(f"{name:<12} {shown}")
    if running is None:
        raise click.exceptions.Exit(1)


async def _fetch_status(gateway: GatewayOptions) -> dict[str, Json]:
    """Return what a gateway sends to a client that only connects."""
    started = time.monotonic()
    async with open_gateway(gateway, mode="probe") as client:
        server, snapshot = client.hello.get("server"), client.hello.get("snapshot")
        status = await client.call("status")
    found: dict[str, Json] = {"latencyMs": round((time.monotonic() - started) * 1000)}
    if isinstance(server, dict) and isinstance(snapshot, dict):
        found |= {
            "version": server.get("version"),
            "uptimeMs": snapshot.get("uptimeMs"),
            "auth": snapshot.get("authMode"),
        }
    if isinstance(status, dict) and "configProblem" in status:
        found["configProblem"] = status["configProblem"]
    return found


@command.command("probe")
@examples("homarus gateway probe --url ws://192.168.1.20:18789 --token TOKEN")
@gateway_options
@as_json_option
def probe(gateway: GatewayOptions, *, as_json: bool) -> None:
    """Connect to a gateway and show its version and latency."""
    found = asyncio.run(_fetch_status(gateway))
    if as_json:
        click.echo(json.dumps({"ok": True, **found}, ensure_ascii=False))
    else:
        click.echo(f"ok: version {found.get('version')}, {found['latencyMs']} ms")


@command.command("health")
@examples("homarus gateway health --timeout 2")
@gateway_options
@_timeout_option
@as_json_option
def health(gateway: GatewayOptions, timeout_s: float, *, as_json: bool) -> None:
    """Show the health of a running gateway."""
    from homarus.cli.health import print_health

    print_health(gateway, timeout_s, as_json=as_json)


@command.command("usage-cost")
@examples("homarus gateway usage-cost --days 7", "homarus gateway usage-cost --json")
@click.option(
    "--days", metavar="COUNT", type=click.IntRange(1, 3660), default=31,
    help="The last COUNT days, today included.",
)  # fmt: skip
@gateway_options
@_timeout_option
@as_json_option
def usage_cost(gateway: GatewayOptions, days: int, timeout_s: float, *, as_json: bool) -> None:
    """Show what a running gateway's models cost, by day; homarus usage shows more."""

    async def ask() -> dict[str, Json]:
        async with open_gateway(gateway) as client:
            answer = await client.call("usage.cost", {"days": days}, timeout_s=timeout_s)
        return answer if isinstance(answer, dict) else {"daily": [], "totals": {}}

    found = asyncio.run(ask())
    if as_json:
        click.echo(json.dumps(found))
        return
    for row in (*found["daily"], {"date": "total", **found["totals"]}):
        click.echo(f"{row['date']:<10}  {row['totalTokens']:>14,} tokens  ${row['totalCost']:.4f}")


@command.command("call")
@examples("homarus gateway call health", "homarus gateway call logs.tail --params '{\"limit\": 5}'")
@click.argument("method")
@click.option("--params", metavar="JSON", default="{}", help="The params, a JSON object.")
@click.option(
    "--expect-final",
    is_flag=True,
    help="Wait for the last of several responses.",
)
@gateway_options
@_timeout_option
@as_json_option
def call(
    method: str,
    params: str,
    gateway: GatewayOptions,
    timeout_s: float,
    *,
    expect_final: bool,
    as_json: bool,
) -> None:
    """Call METHOD of a running gateway and print the response."""
    try:
        parsed = json.loads(params)
    except ValueError as exc:
        raise UserError(f"--params is not JSON: {exc}") from None
    if not isinstance(parsed, dict):
        raise UserError(
            "--params is not a JSON object", fix="for example --params '{\"limit\": 5}'"
        )

    async def call_method() -> Json:
        async with open_gateway(gateway) as client:
            return await client.call(method, parsed, final=expect_final, timeout_s=timeout_s)

    answer = asyncio.run(call_method())
    click.echo(json.dumps(answer, ensure_ascii=False, indent=None if as_json else 2))


@command.command("stop")
@examples("homarus gateway stop")
def stop() -> None:
    """Stop the running gateway, after the answers in progress."""
    service = _find_service()
    if service and service.state() not in {"", "inactive", "failed"}:
        service.stop()
        click.echo(f"Stopped {service.name}.")
        if _find() is None:
            return
    running = _require_running()
    os.kill(running.pid, signal.SIGTERM)
    _wait_until(lambda: _find() is None, _STOP_TIMEOUT_S, f"process {running.pid} has not stopped")
    click.echo(f"Stopped process {running.pid}.")
    if service and not service.state():
        warn(
            f"{service.name} could not be asked: "
            "if it keeps the gateway running, it starts it anew."
        )


@command.command("restart")
@examples("homarus gateway restart")
def restart() -> None:
    """Restart the running gateway, with the present configuration."""
    service = _find_service()
    if service and _find() is None:
        service.check()
        service.start()
        click.echo(f"Started {service.name}.")
        return
    running = _require_running()
    before = _started_ms()
    os.kill(running.pid, signal.SIGUSR1)
    text = f"process {running.pid} has not restarted"
    _wait_until(lambda: _find() is not None and _started_ms() != before, _RESTART_TIMEOUT_S, text)
    click.echo(f"Restarted process {running.pid}.")


def links_of(running: "RunningGateway") -> tuple[str, ...]:
    """Return the addresses of a running gateway's page, without the token."""
    from homarus.gateway.listen_address import page_links

    return page_links(running.bound, running.port, is_tls=bool(running.tls_fingerprint))


def _find_service() -> "ServiceBackend | None":
    """Return the service backend that keeps this gateway running."""
    from homarus.cli.gateway_service import find_installed

    return find_installed(Paths.find(os.environ), os.environ)


def _find() -> "RunningGateway | None":
    from homarus.gateway.client import find_running_gateway

    return find_running_gateway(Paths.find(os.environ))


def _require_running() -> "RunningGateway":
    running = _find()
    if running is None:
        state = Paths.find(os.environ).state
        raise UserError(f"no gateway serves {state}", fix="homarus gateway run starts one")
    return running


def _started_ms() -> Json:
    from homarus.gateway.json_file import JsonFile

    return JsonFile(Paths.find(os.environ).gateway_file).read().get("startedAtMs")


def _wait_until(done: Callable[[], bool], timeout_s: float, problem: str) -> None:
    deadline = time.monotonic() + timeout_s
    while not done():
        if time.monotonic() > deadline:
            raise UnavailableError(
                f"{problem} within {timeout_s:g} s", fix="homarus logs may say why"
            )
        time.sleep(0.05)
