"""Register the plugin of internal hooks where the config switches them on; else import nothing."""

from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from homarus.agent.agent import Agent
from homarus.config.load import LoadedConfig
from homarus.config.paths import Paths
from homarus.core.clock import Clock
from homarus.core.fast_dataclass import dataclass
from homarus.plugins.hook_runner import Hooks
from homarus.sessions.session import Session

if TYPE_CHECKING:
    import asyncio

    from homarus.agent.internal_hooks.dispatcher import HookDispatcher

PLUGIN_NAME: Final = "internal-hooks"
BOOT_HOOK: Final = "boot-md"


@dataclass(frozen=True, slots=True)
class InternalHookServices:
    """What internal hooks are given from outside. `run_boot` submits the BOOT.md of all agents."""

    hooks: Hooks
    paths: Paths
    clock: Clock
    get_loaded: Callable[[], LoadedConfig]
    spawn: "Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None] | None]"
    load_session: Callable[[str], Awaitable[Session]]
    get_agent: Callable[[str], Agent]
    run_boot: Callable[[], Awaitable[None]]
    local_date: Callable[[int], str]


class InternalHookLoader:
    """Switches internal hooks on and off, as `hooks.internal` of the config says."""

    def __init__(self, services: InternalHookServices) -> None:
        self._services = services
        self._dispatcher: HookDispatcher | None = None

    def start(self) -> None:
        """Register the plugin if internal hooks are on."""
        if self._services.get_loaded().config.hooks.internal.enabled and not self._dispatcher:
            self._register()

    def reload(self) -> None:
        """Follow a changed config: register, refresh or remove the plugin."""
        if not self._services.get_loaded().config.hooks.internal.enabled:
            self.stop()
        elif self._dispatcher:
            self._dispatcher.reload()
        else:
            self._register()

    async def run_boot(self) -> None:
        """Run BOOT.md where internal hooks are neither on nor off: by default it runs.

        Where they are on, the hook `boot-md` runs it.
        """
        settings = self._services.get_loaded().config.hooks.internal
        entry = settings.entries.get(BOOT_HOOK)
        if settings.enabled is None and not (entry and entry.enabled is False):
            await self._services.run_boot()

    def stop(self) -> None:
        """Remove the plugin and end the processes of handlers."""
        if self._dispatcher:
            self._services.hooks.unregister(PLUGIN_NAME)
            self._dispatcher.close()
            self._dispatcher = None

    def _register(self) -> None:
        # Only where hooks are on: the plugin manager and the search of folders.
        from homarus.agent.internal_hooks.bundled_services import BundledHookServices
        from homarus.agent.internal_hooks.catalog import HookCatalog
        from homarus.agent.internal_hooks.dispatcher import HookDispatcher
        from homarus.agent.internal_hooks.handler_process import ProcessServices
        from homarus.agent.internal_hooks.plugin import InternalHooksPlugin

        given = self._services
        bundled = BundledHookServices(
            load_session=given.load_session,
            get_agent=given.get_agent,
            run_boot=given.run_boot,
            local_date=given.local_date,
            logs=given.paths.state / "logs",
            clock=given.clock,
        )
        process = ProcessServices(
            given.get_loaded, _find_cwd(given.paths), given.clock, given.spawn
        )
        catalog = HookCatalog(given.get_loaded, given.paths)
        self._dispatcher = HookDispatcher(catalog, bundled, process)
        given.hooks.register(InternalHooksPlugin(self._dispatcher, given.clock), PLUGIN_NAME)


def _find_cwd(paths: Paths) -> Path:
    """Return the folder in which handlers run: not their own, whose files must not change."""
    return paths.home if paths.home.is_dir() else Path("/")
