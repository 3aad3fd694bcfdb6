"""Open the application, and run it as the gateway process."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from homarus.app import App
from homarus.channels.base import Channel
from homarus.config.load import LoadedConfig, load_config
from homarus.config.log_setup import configure_logging
from homarus.config.paths import Paths
from homarus.config.session_store import with_session_store
from homarus.core.clock import Clock, SystemClock
from homarus.core.tasks import task_group
from homarus.providers.model_router import ModelRouter
from homarus.store.audit_changes import import_changes
from homarus.store.sqlite import SqliteStore, open_store

if TYPE_CHECKING:
    from homarus.gateway.auth import AuthMode, SharedSecretAuth
    from homarus.gateway.serve import ExitMode, Listening
    from homarus.gateway.services import GatewayServices


def _list_problems(loaded: LoadedConfig) -> tuple[str, ...]:
    from homarus.tools.catalog import describe_list_problems

    return describe_list_problems(loaded.config)


@asynccontextmanager
async def open_app(
    env: Mapping[str, str],
    *,
    clock: Clock | None = None,
    warn: Callable[[str], None] = lambda _text: None,
    loaded: LoadedConfig | None = None,
    channels: Sequence[Channel] = (),
) -> AsyncIterator[App]:
    """Build the App of a state directory; everything is closed when the block ends."""
    paths = Paths.find(env)
    if loaded is None:
        loaded = load_config(paths, env)
        configure_logging(loaded.config, paths.logs)
        for text in (*loaded.warnings, *_list_problems(loaded)):
            warn(text)
    paths = with_session_store(paths, loaded.config)
    clock = clock or SystemClock()
    models = ModelRouter(loaded.config, loaded.env, paths, clock)
    async with (
        open_store(paths.state, sessions=paths.session_store) as store,
        AsyncExitStack() as after,
        task_group() as group,
    ):
        app = App(
            loaded=loaded,
            paths=paths,
            models=models,
            store=store,
            group=group,
            clock=clock,
            channels=channels,
        )
        after.callback(app.watchdog.detach_abandoned)
        after.push_async_callback(app.close)  # after the last run
        await import_changes(store, paths.state)
        watching = group.create_task(_end_if_broken(store), name="store watch")
        try:
            yield app
        finally:
            app.stop()
            watching.cancel()


async def _end_if_broken(store: SqliteStore) -> None:
    raise await store.wait_for_disk_failure()  # a disk that lost a write may lose the next one too


async def serve(
    env: Mapping[str, str],
    *,
    port: int | None = None,
    bind: str | None = None,
    auth_mode: "AuthMode | None" = None,
    ready: Callable[[str], None] = lambda _url: None,
    on_auth: "Callable[[SharedSecretAuth], None]" = lambda _auth: None,
    on_listening: "Callable[[Listening], None]" = lambda _listening: None,
    warn: Callable[[str], None] = lambda _text: None,
    channels: Callable[[], Sequence[Channel]] = tuple,
    on_open: "Callable[[App], None]" = lambda _app: None,
) -> "ExitMode":
    """Run the gateway process; return how it should end.

    `on_auth` gets how clients authenticate, before the first one can connect; `on_listening` where
    the gateway can be reached, just before `ready` is called. `on_open` gets the program before
    anything runs in it.
    """
    from homarus.gateway import serve as gateway
    from homarus.gateway.last_good import load_config_or_last_good
    from homarus.gateway.methods import METHODS, UNIMPLEMENTED
    from homarus.gateway.owner_token import create_config_with_token

    paths, clock = Paths.find(env), SystemClock()
    loaded, problem = load_config_or_last_good(paths, env)
    if auth_mode is None:
        loaded = create_config_with_token(paths, env, loaded)
    configure_logging(loaded.config, paths.logs)
    for text in (*loaded.warnings, *_list_problems(loaded)):
        warn(text)
    if problem:
        warn(f"starting with the last good config, because {problem}")
    plan = gateway.ServeOptions(
        loaded, paths, env, clock, METHODS, UNIMPLEMENTED, port, bind, problem, auth_mode, on_auth,
        on_listening,
    )  # fmt: skip

    @asynccontextmanager
    async def open_services() -> "AsyncIterator[GatewayServices]":
        async with open_app(env, clock=clock, loaded=loaded, channels=channels()) as app:
            on_open(app)
            yield app.gateway_services()

    return await gateway.serve(plan, open_services, ready)
