"""The gateway process: listen, start the services, serve, and shut down in order.

The first SIGTERM or Ctrl-C lets active runs end; the second does not wait for them. SIGUSR1
requests a restart. While it serves, `gateway.json` in the state directory contains its address.
"""

import asyncio
import gc
import logging
import os
import resource
import signal
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Literal, TypeAlias

from homarus import __version__
from homarus.config.load import LoadedConfig
from homarus.config.paths import Paths
from homarus.core.clock import Clock
from homarus.core.errors import ConfigError, HomarusError, StateInUseError, UserError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json
from homarus.core.retry import Backoff
from homarus.core.tasks import supervise, task_group
from homarus.gateway.auth import AuthMode, SharedSecretAuth, resolve_auth
from homarus.gateway.config_watch import ConfigChange, ConfigWatcher
from homarus.gateway.handshake import ConnectionAuthenticator
from homarus.gateway.http_server import GatewayAsgiApp, HttpServer, open_sockets
from homarus.gateway.json_file import JsonFile
from homarus.gateway.last_good import save_last_good
from homarus.gateway.listen_address import (
    ListenAddress,
    page_links,
    reachable_hosts,
    resolve_listen_address,
)
from homarus.gateway.method import MethodTable
from homarus.gateway.openclaw_process import check_no_openclaw_gateway
from homarus.gateway.owner_token import load_or_create_token
from homarus.gateway.server import Gateway
from homarus.gateway.services import GatewayServices
from homarus.gateway.webhook_listeners import WebhookListeners
from homarus.policy.restrictions import check_start_allowed
from homarus.store.lock import lock_holder_pid

if TYPE_CHECKING:
    from homarus.gateway.tls import GatewayTls

log = logging.getLogger(__name__)

ExitMode: TypeAlias = Literal["stop", "restart"]
_RESTART_MS = 1_500


class _AllClientsGone(Exception):
    """All clients have disconnected."""


class ShutdownSignal:
    """Set when the process should end; a second signal means at once."""

    def __init__(self) -> None:
        self.ending: ExitMode = "stop"
        self.reason = "gateway stopping"
        self.is_urgent = asyncio.Event()
        self._requested = asyncio.Event()

    def request(self, ending: ExitMode, reason: str) -> None:
        if self._requested.is_set():
            self.is_urgent.set()
        else:
            self.ending, self.reason = ending, reason
            self._requested.set()

    async def wait(self) -> None:
        await self._requested.wait()

    @contextmanager
    def on_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        signals: Mapping[int, tuple[ExitMode, str]] = {
            signal.SIGTERM: ("stop", "gateway stopping"),
            signal.SIGINT: ("stop", "gateway stopping"),
            signal.SIGUSR1: ("restart", "gateway restarting"),
        }
        for number, (ending, reason) in signals.items():
            loop.add_signal_handler(number, self.request, ending, reason)
        try:
            yield
        finally:
            for number in signals:
                loop.remove_signal_handler(number)


@dataclass(frozen=True, slots=True)
class Listening:
    """Where the gateway listens: the addresses it is bound to, its port, its certificate."""

    url: str  # for programs of this machine
    bound: tuple[str, ...]
    port: int
    tls: "GatewayTls | None" = None

    @property
    def links(self) -> tuple[str, ...]:
        """The addresses of the page, without the token, that browsers can reach now."""
        return page_links(self.bound, self.port, is_tls=self.tls is not None)


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """What to serve with, from the config, the environment and the command line."""

    loaded: LoadedConfig
    paths: Paths
    env: Mapping[str, str]
    clock: Clock
    methods: MethodTable
    unimplemented: Mapping[str, str]
    port: int | None = None
    bind: str | None = None
    problem: ConfigError | None = None  # why `loaded` is the last good config, not the file's
    auth_mode: AuthMode | None = None  # of the command line
    on_auth: Callable[[SharedSecretAuth], None] = lambda _auth: None  # called before the start
    on_listening: Callable[[Listening], None] = lambda _listening: None  # called before `ready`


async def serve(
    options: ServeOptions,
    open_program: Callable[[], AbstractAsyncContextManager[GatewayServices]],
    ready: Callable[[str], None],
) -> ExitMode:
    """Serve until a shutdown is requested; `ready` gets the address once requests are answered."""
    settings = options.loaded.config.gateway
    auth, listen = _prepare(options)
    options.on_auth(auth)
    check_no_openclaw_gateway(options.paths, options.env)
    sockets = _open(listen, options.paths)
    listening = _describe(options, listen, sockets)
    port = listening.port
    authenticator = ConnectionAuthenticator.from_config(
        settings, auth, port, options.paths.state, options.clock
    )
    gateway = Gateway(
        authenticator=authenticator,
        methods=options.methods,
        unimplemented=options.unimplemented,
        clock=options.clock,
    )
    endpoints, page = settings.http.endpoints, settings.control_ui.enabled
    site = GatewayAsgiApp(
        gateway,
        page=page,
        metrics=endpoints.metrics.enabled,
        mcp=endpoints.mcp.enabled,
        tls=listening.tls,
    )
    listener = HttpServer(site, sockets)
    _allow_many_files()
    await listener.start()
    shutdown = ShutdownSignal()
    try:
        with shutdown.on_signals(), suppress(_AllClientsGone):
            async with open_program() as services:
                await _serve_clients(
                    options, gateway, listener, services, listening, shutdown=shutdown, ready=ready
                )
                services.control.begin_shutdown()
                raise _AllClientsGone  # an active run is cancelled, not waited for
    finally:
        await listener.stop()
    return shutdown.ending


def _prepare(options: ServeOptions) -> tuple[SharedSecretAuth, ListenAddress]:
    """Return the access rules and address of the config; raises ConfigError."""
    check_start_allowed(options.loaded.config)
    settings, env = options.loaded.config.gateway, options.loaded.env
    if options.loaded.config.env.shell_env.enabled:
        from homarus.config.shell_env import preload_shell

        preload_shell(env)  # the first lookup in a run would block the event loop
    get_token = partial(load_or_create_token, options.paths.state)
    auth = resolve_auth(settings, env, mode=options.auth_mode, get_token=get_token)
    listen = resolve_listen_address(settings, env, auth, port=options.port, bind=options.bind)
    ConnectionAuthenticator.from_config(
        settings, auth, listen.port, options.paths.state, options.clock
    )
    if settings.http.endpoints.mcp.enabled:
        from homarus.gateway.mcp_server.library import check_mcp_endpoint

        check_mcp_endpoint()
    if settings.tls.enabled:
        from homarus.gateway.tls import check_tls

        check_tls(settings.tls, options.paths, options.clock)
    _check_hooks(options, options.loaded, auth)
    return auth, listen


def _check_hooks(options: ServeOptions, loaded: LoadedConfig, auth: SharedSecretAuth) -> None:
    """Raise a ConfigError for webhooks that cannot be served."""
    if loaded.config.hooks.enabled:
        from homarus.gateway.hooks.settings import check_hooks

        check_hooks(loaded.config.hooks, options.paths, auth.secret)


async def _serve_clients(
    options: ServeOptions,
    gateway: Gateway,
    listener: HttpServer,
    services: GatewayServices,
    listening: Listening,
    *,
    shutdown: ShutdownSignal,
    ready: Callable[[str], None],
) -> None:
    """Serve from the start of the services until every client is gone."""
    watcher = ConfigWatcher(
        options.paths, options.env, options.loaded, options.clock,
        apply=lambda change: _apply_config(options, gateway, services, shutdown, change),
        reject=lambda problem: _reject(gateway, problem),
        check_startable=lambda loaded: _check(options, loaded),
    )  # fmt: skip
    gateway.config_watcher = watcher
    services.set_config_watcher(watcher)
    services.channels.set_webhook_server(WebhookListeners(gateway).serve)
    services.start_diagnostics(
        has_metrics=options.loaded.config.gateway.http.endpoints.metrics.enabled
    )
    services.set_restart(lambda: shutdown.request("restart", "a person asked for a restart"))
    if options.problem:
        _reject(gateway, options.problem)
    async with task_group() as group:
        watching = supervise("config watch", watcher.run, clock=options.clock, backoff=Backoff())
        running = [group.create_task(gateway.run(services)), group.create_task(watching)]
        with _published_address(options.paths, gateway, listening) as publish:
            if tls := listening.tls:
                renew = partial(_renew_certificate, tls, publish, options.clock)
                renewing = supervise("certificate", renew, clock=options.clock, backoff=Backoff())
                running.append(group.create_task(renewing))
            await gateway.ready.wait()
            gc.collect()  # drop the garbage of the start
            gc.freeze()  # what is alive now stays: the collector need not scan it again
            gc.enable()
            log.info("the gateway is ready on port %d", listening.port)
            options.on_listening(listening)
            ready(listening.url)
            await services.hooks.gateway_start(listening.port)
            await services.hooks.gateway_startup()
            await services.run_boot()
            if options.problem is None:
                await asyncio.to_thread(save_last_good, options.paths.state, options.loaded)
            running.append(group.create_task(services.preload()))  # reuses that thread
            await shutdown.wait()
            log.info("%s", shutdown.reason)
            await services.hooks.gateway_stop(shutdown.reason)
            listener.stop_accepting()
            await _shut_down(gateway, shutdown)
            await listener.stop()
        for task in running:
            task.cancel()


async def _shut_down(gateway: Gateway, shutdown: ShutdownSignal) -> None:
    """Stop in order, or at once when a second signal comes."""
    restart_ms = _RESTART_MS if shutdown.ending == "restart" else None
    async with asyncio.TaskGroup() as group:
        stopping = group.create_task(gateway.stop(shutdown.reason, restart_ms=restart_ms))
        urgent = group.create_task(shutdown.is_urgent.wait())
        await asyncio.wait([stopping, urgent], return_when=asyncio.FIRST_COMPLETED)
        if not stopping.done():
            log.warning("told twice to stop: not waiting for live runs")
            gateway.close_all()
            stopping.cancel()
        urgent.cancel()


async def _apply_config(
    options: ServeOptions,
    gateway: Gateway,
    services: GatewayServices,
    shutdown: ShutdownSignal,
    change: ConfigChange,
) -> None:
    """Apply a new config that is readable; one the gateway could not start with is refused."""
    if change.action == "restart":
        _check(options, change.loaded)
    elif change.action == "apply":
        _check_hooks(options, change.loaded, gateway.authenticator.auth)
    was_refused, gateway.config_problem = bool(gateway.config_problem), ""
    payload: dict[str, Json] = {"changed": list(change.paths), "action": change.action}
    if change.action == "restart" or (change.action == "ignore" and was_refused):
        gateway.broadcast("config.reloaded", payload)
    if change.action == "ignore":
        return
    shown = ", ".join(change.paths)
    if change.action == "restart":
        log.warning("the config changed (%s): restarting", shown)
        shutdown.request("restart", "config changed")
        return
    if change.ignored:
        log.warning("changed without effect until a restart: %s", ", ".join(change.ignored))
    await services.reload(change.loaded)
    gateway.broadcast("config.reloaded", payload)
    await asyncio.to_thread(save_last_good, options.paths.state, change.loaded)
    log.info("the config changed and is in use: %s", shown)


def _check(options: ServeOptions, loaded: LoadedConfig) -> None:
    """Raise a ConfigError if the gateway could not start with this config."""
    _prepare(replace(options, loaded=loaded))


def _reject(gateway: Gateway, problem: ConfigError) -> None:
    gateway.config_problem = problem.message
    log.warning("the config is wrong, the last good one is in use: %s", problem)
    gateway.broadcast("config.rejected", {"message": str(problem)})


def _open(listen: ListenAddress, paths: Paths) -> list[socket.socket]:
    try:
        return open_sockets(listen)
    except UserError as exc:
        if pid := lock_holder_pid(paths.state):
            raise StateInUseError(
                f"{exc.message}; process {pid} uses the state directory {paths.state}",
                fix="homarus gateway status shows it, homarus gateway stop ends it",
            ) from exc
        raise


def _describe(
    options: ServeOptions, listen: ListenAddress, sockets: list[socket.socket]
) -> Listening:
    """Return where these sockets listen; with TLS, the certificate is made or read."""
    bound = tuple(str(sock.getsockname()[0]) for sock in sockets)
    port: int = sockets[0].getsockname()[1]
    settings = options.loaded.config.gateway.tls
    if not settings.enabled:
        return Listening(_url("ws", listen, port), bound, port)
    from homarus.gateway.tls import GatewayTls

    try:
        tls = GatewayTls(settings, options.paths, options.clock, partial(reachable_hosts, bound))
    except HomarusError:
        for sock in sockets:
            sock.close()
        raise
    return Listening(_url("wss", listen, port), bound, port, tls)


def _url(scheme: str, listen: ListenAddress, port: int) -> str:
    """Return the URL for programs of this machine."""
    loopback = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - told from it, not listened on
    host = loopback.get(listen.host, listen.host)
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


@contextmanager
def _published_address(
    paths: Paths, gateway: Gateway, listening: Listening
) -> Iterator[Callable[[], None]]:
    """Publish the gateway's address in a file for commands of this machine.

    The function that it yields writes the file again, after the certificate has changed.
    """
    address_file: dict[str, Json] = {
        "pid": os.getpid(),
        "port": listening.port,
        "url": listening.url,
        "version": __version__,
        "startedAtMs": gateway.started_ms,
        "config": str(paths.config),
        "bound": list(listening.bound),
    }
    file = JsonFile(paths.gateway_file)

    def publish() -> None:
        tls = {"tlsFingerprint": listening.tls.fingerprint} if listening.tls else {}
        file.write({**address_file, **tls})

    publish()
    try:
        yield publish
    finally:
        with suppress(OSError):
            file.path.unlink()


async def _renew_certificate(tls: "GatewayTls", publish: Callable[[], None], clock: Clock) -> None:
    """Take up a changed certificate while the gateway runs."""
    from homarus.gateway.tls import REFRESH_S
    from homarus.net.pinned_tls import format_fingerprint

    while True:
        await clock.sleep(REFRESH_S)
        if await asyncio.to_thread(tls.refresh):
            publish()
            shown = format_fingerprint(tls.fingerprint)
            log.warning("the gateway has a new certificate, with the fingerprint %s", shown)


def _allow_many_files() -> None:
    """Raise the limit of open files: each client is one, and many systems allow a thousand."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(hard, 65_536) if hard != resource.RLIM_INFINITY else 65_536
    if soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
