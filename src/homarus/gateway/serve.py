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
from typing import Literal, TypeAlias

from homarus import __version__
from homarus.config.load import LoadedConfig
from homarus.config.paths import Paths
from homarus.core.clock import Clock
from homarus.core.errors import ConfigError, StateInUseError, UserError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json
from homarus.core.retry import Backoff
from homarus.core.tasks import supervise, task_group
from homarus.gateway.auth import SharedSecretAuth, resolve_auth
from homarus.gateway.config_watch import ConfigChange, ConfigWatcher
from homarus.gateway.handshake import ConnectionAuthenticator
from homarus.gateway.http_server import GatewayAsgiApp, HttpServer, open_sockets
from homarus.gateway.json_file import JsonFile
from homarus.gateway.last_good import save_last_good
from homarus.gateway.listen_address import ListenAddress, resolve_listen_address
from homarus.gateway.method import Method
from homarus.gateway.server import Gateway
from homarus.gateway.services import GatewayServices
from homarus.store.lock import lock_holder_pid

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
        meant: Mapping[int, tuple[ExitMode, str]] = {
            signal.SIGTERM: ("stop", "gateway stopping"),
            signal.SIGINT: ("stop", "gateway stopping"),
            signal.SIGUSR1: ("restart", "gateway restarting"),
        }
        for number, (ending, reason) in meant.items():
            loop.add_signal_handler(number, self.request, ending, reason)
        try:
            yield
        finally:
            for number in meant:
                loop.remove_signal_handler(number)


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """What to serve with, from the config, the environment and the command line."""

    loaded: LoadedConfig
    paths: Paths
    env: Mapping[str, str]
    clock: Clock
    methods: Mapping[str, Method]
    unbuilt: Mapping[str, str]
    port: int | None = None
    bind: str | None = None
    problem: ConfigError | None = None  # why `loaded` is the last good config, not the file's


async def serve(
    plan: ServeOptions,
    open_program: Callable[[], AbstractAsyncContextManager[GatewayServices]],
    ready: Callable[[str], None],
) -> ExitMode:
    """Serve until a shutdown is requested; `ready` gets the address once requests are answered."""
    settings = plan.loaded.config.gateway
    auth, listen = _prepare(plan)
    sockets = _open(listen, plan.paths)
    port: int = sockets[0].getsockname()[1]
    gate = ConnectionAuthenticator.from_config(settings, auth, port, plan.paths.state, plan.clock)
    gateway = Gateway(gate=gate, methods=plan.methods, unbuilt=plan.unbuilt, clock=plan.clock)
    metrics = settings.http.endpoints.metrics.enabled
    site = GatewayAsgiApp(gateway, page=settings.control_ui.enabled, metrics=metrics)
    listener = HttpServer(site, sockets)
    _allow_many_files()
    await listener.start()
    bell = ShutdownSignal()
    try:
        with bell.on_signals(), suppress(_AllClientsGone):
            async with open_program() as program:
                url = _url(listen, port)
                await _serve_clients(
                    plan, gateway, listener, program, bell=bell, url=url, ready=ready
                )
                raise _AllClientsGone  # an active run is cancelled, not waited for
    finally:
        await listener.stop()
    return bell.ending


def _prepare(plan: ServeOptions) -> tuple[SharedSecretAuth, ListenAddress]:
    """Return the access rules and address of the config; raises ConfigError."""
    settings, env = plan.loaded.config.gateway, plan.loaded.env
    auth = resolve_auth(settings, env)
    listen = resolve_listen_address(settings, env, auth, port=plan.port, bind=plan.bind)
    ConnectionAuthenticator.from_config(settings, auth, listen.port, plan.paths.state, plan.clock)
    return auth, listen


async def _serve_clients(
    plan: ServeOptions,
    gateway: Gateway,
    listener: HttpServer,
    program: GatewayServices,
    *,
    bell: ShutdownSignal,
    url: str,
    ready: Callable[[str], None],
) -> None:
    """Serve from the start of the services until every client is gone."""
    watch = ConfigWatcher(
        plan.paths, plan.env, plan.loaded, plan.clock,
        take=lambda change: _apply_config(plan, gateway, program, bell, change),
        refuse=lambda problem: _reject(gateway, problem),
        able=lambda loaded: _check(plan, loaded),
    )  # fmt: skip
    gateway.watch = watch
    program.set_restart(lambda: bell.request("restart", "a person asked for a restart"))
    if plan.problem:
        _reject(gateway, plan.problem)
    async with task_group() as group:
        watching = supervise("config watch", watch.run, clock=plan.clock, backoff=Backoff())
        running = [group.create_task(gateway.run(program)), group.create_task(watching)]
        port = gateway.gate.entrance.port
        with _published_address(plan.paths, gateway, url):
            await gateway.ready.wait()
            gc.collect()  # drop the garbage of the start
            gc.freeze()  # what is alive now stays: the collector need not scan it again
            gc.enable()
            ready(url)
            log.info("the gateway is ready on port %d", port)
            await program.hooks.gateway_start(port)
            await program.hooks.gateway_startup()
            await program.run_boot()
            running.append(group.create_task(program.preload()))
            if plan.problem is None:
                await asyncio.to_thread(save_last_good, plan.paths.state, plan.loaded)
            await bell.wait()
            log.info("%s", bell.reason)
            await program.hooks.gateway_stop(bell.reason)
            listener.stop_accepting()
            await _shut_down(gateway, bell)
            await listener.stop()
        for task in running:
            task.cancel()


async def _shut_down(gateway: Gateway, bell: ShutdownSignal) -> None:
    """Stop in order, or at once when a second signal comes."""
    restart_ms = _RESTART_MS if bell.ending == "restart" else None
    async with asyncio.TaskGroup() as group:
        stopping = group.create_task(gateway.stop(bell.reason, restart_ms=restart_ms))
        hurry = group.create_task(bell.is_urgent.wait())
        await asyncio.wait([stopping, hurry], return_when=asyncio.FIRST_COMPLETED)
        if not stopping.done():
            log.warning("told twice to stop: not waiting for live runs")
            gateway.close_all()
            stopping.cancel()
        hurry.cancel()


async def _apply_config(
    plan: ServeOptions,
    gateway: Gateway,
    program: GatewayServices,
    bell: ShutdownSignal,
    change: ConfigChange,
) -> None:
    """Apply a new config that is readable; one the gateway could not start with is refused."""
    if change.action == "restart":
        _check(plan, change.loaded)
    gateway.config_problem = ""
    if change.action == "ignore":
        return
    shown = ", ".join(change.paths)
    told: dict[str, Json] = {"changed": list(change.paths), "action": change.action}
    gateway.broadcast("config.reloaded", told)
    if change.action == "restart":
        log.warning("the config changed (%s): restarting", shown)
        bell.request("restart", "config changed")
        return
    if change.ignored:
        log.warning("changed without effect until a restart: %s", ", ".join(change.ignored))
    await program.reload(change.loaded)
    await asyncio.to_thread(save_last_good, plan.paths.state, change.loaded)
    log.info("the config changed and is in use: %s", shown)


def _check(plan: ServeOptions, loaded: LoadedConfig) -> None:
    """Raise a ConfigError if the gateway could not start with this config."""
    _prepare(replace(plan, loaded=loaded))


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


def _url(listen: ListenAddress, port: int) -> str:
    """Return the URL for programs of this machine."""
    every = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - told from it, not listened on
    host = every.get(listen.host, listen.host)
    return f"ws://[{host}]:{port}" if ":" in host else f"ws://{host}:{port}"


@contextmanager
def _published_address(paths: Paths, gateway: Gateway, url: str) -> Iterator[None]:
    """Publish the gateway's address in a file for commands of this machine."""
    post: dict[str, Json] = {
        "pid": os.getpid(),
        "port": gateway.gate.entrance.port,
        "url": url,
        "version": __version__,
        "startedAtMs": gateway.started_ms,
        "config": str(paths.config),
    }
    file = JsonFile(paths.gateway_file)
    file.write(post)
    try:
        yield
    finally:
        with suppress(OSError):
            file.path.unlink()


def _allow_many_files() -> None:
    """Raise the limit of open files: each client is one, and many systems allow a thousand."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(hard, 65_536) if hard != resource.RLIM_INFINITY else 65_536
    if soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
