"""The browsers of all agents: started when they are first used, each ended when it is unused."""

import asyncio
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from homarus.config.browser_schema import BrowserConfig
from homarus.config.network_policy import resolve_browser_policy
from homarus.config.schema import Config
from homarus.core.errors import BrowserGoneError, ToolError
from homarus.core.message import Json
from homarus.net.guard import NetworkPolicy, Resolve
from homarus.tools.browser.arguments import ActionArguments
from homarus.tools.browser.browser_process import IDLE_S, BrowserProcess
from homarus.tools.browser.operations import (
    OPERATIONS,
    ActionResult,
    BrowserFiles,
    Operation,
    TabAction,
    run_operation,
)
from homarus.tools.browser.settings import (
    BrowserSettings,
    find_executable,
    profile_names,
    resolve_browser,
)
from homarus.tools.browser.storage import STORAGE_OPERATIONS
from homarus.tools.browser.tabs import Spawn

MAX_BROWSERS: Final = 8


class BrowserControl:
    """Finds, starts and stops browsers, and does their actions.

    `resolve` replaces the lookup of names, `idle_s` the time after which a browser is closed.
    """

    def __init__(
        self,
        get_config: Callable[[], Config],
        state: Path,
        spawn: Spawn,
        *,
        resolve: Resolve | None = None,
        idle_s: float = IDLE_S,
    ) -> None:
        self._get_config, self._state, self._spawn = get_config, state, spawn
        self._resolve, self._idle_s = resolve, idle_s
        self._processes: dict[tuple[str, str], BrowserProcess] = {}
        self._lock = asyncio.Lock()

    async def run(
        self, agent_id: str, action: str, values: Mapping[str, Json], files: BrowserFiles
    ) -> ActionResult:
        """Do one action for an agent. Raises ToolError."""
        args = ActionArguments(values)
        settings = resolve_browser(self._config, self._state, agent_id, args.text("profile"))
        match action:
            case "status":
                return await self._status(settings)
            case "profiles":
                return self._profiles(agent_id)
            case "start":
                await (await self._get(settings)).tabs()
                return ActionResult({"ok": True, "running": True, "profile": settings.profile})
            case "stop":
                return await self._stop(settings)
            case "reset-profile":
                return await self._reset(settings)
        if action == "tabs" and self._find(settings) is None:
            return ActionResult({"running": False, "tabs": []})
        return await self._run_on_tab(settings, action, args, files)

    async def _run_on_tab(
        self, settings: BrowserSettings, action: str, args: ActionArguments, files: BrowserFiles
    ) -> ActionResult:
        if action not in OPERATIONS and action not in STORAGE_OPERATIONS:
            raise ToolError(f"the browser has no action {action}")
        process = await self._get(settings)
        own: Operation | None = STORAGE_OPERATIONS.get(action)
        with process.use():
            given = TabAction(process, await process.tabs(), args, files, self._config)
            try:
                return await own(given) if own else await run_operation(action, given)
            except BrowserGoneError:
                if not process.is_alive:
                    process.request_stop()
                raise

    def stop(self) -> None:
        """End all browsers soon."""
        for process in self._processes.values():
            process.request_stop()

    @property
    def _config(self) -> BrowserConfig:
        return self._get_config().browser

    def _policy(self) -> NetworkPolicy:
        return resolve_browser_policy(self._get_config())

    def _find(self, settings: BrowserSettings) -> BrowserProcess | None:
        found = self._processes.get((settings.agent_id, settings.profile))
        return found if found and found.is_running else None

    async def _get(self, settings: BrowserSettings) -> BrowserProcess:
        """Return the running browser of a profile, or start it."""
        async with self._lock:
            key = settings.agent_id, settings.profile
            found = self._processes.get(key)
            if found and found.is_usable and found.settings == settings:
                return found
            if found:  # it ends, or the config has changed
                await found.stop()
                del self._processes[key]
            running = [each for each in self._processes.values() if each.is_usable]
            if len(running) >= MAX_BROWSERS:
                raise ToolError(
                    f"{MAX_BROWSERS} browsers are running", fix="stop one, or wait until one ends"
                )
            self._processes = {each: one for each, one in self._processes.items() if one.is_usable}
            process = BrowserProcess(
                settings, self._policy, self._spawn, resolve=self._resolve, idle_s=self._idle_s
            )
            if self._spawn(process.run(), f"browser {settings.profile}") is None:
                raise ToolError("the program is ending")
            self._processes[key] = process
            return process

    async def _status(self, settings: BrowserSettings) -> ActionResult:
        process = self._find(settings)
        try:
            program = await asyncio.to_thread(find_executable, settings)
            problem = ""
        except ToolError as exc:
            program, problem = "", str(exc)
        data: dict[str, Json] = {
            "enabled": True,
            "running": process is not None,
            "profile": settings.profile,
            "headless": settings.headless,
            "noSandbox": settings.no_sandbox,
            "evaluateEnabled": self._config.evaluate_enabled,
            "executablePath": program,
            "userDataDir": str(settings.user_data),
        }
        if process:
            data["tabs"] = len((await process.tabs()).all())
        return ActionResult({**data, "problem": problem} if problem else data)

    def _profiles(self, agent_id: str) -> ActionResult:
        names = profile_names(self._config)
        listed: list[Json] = []
        for name in names:
            process = self._processes.get((agent_id, name))
            is_running = bool(process and process.is_running)
            listed.append({"name": name, "running": is_running, "isDefault": name == names[0]})
        return ActionResult({"profiles": listed})

    async def _stop(self, settings: BrowserSettings) -> ActionResult:
        async with self._lock:
            process = self._processes.pop((settings.agent_id, settings.profile), None)
            is_running = bool(process and process.is_usable)
            if process:
                await process.stop()
        return ActionResult({"ok": True, "stopped": is_running, "profile": settings.profile})

    async def _reset(self, settings: BrowserSettings) -> ActionResult:
        await self._stop(settings)
        await asyncio.to_thread(shutil.rmtree, settings.folder, ignore_errors=True)
        return ActionResult({"ok": True, "profile": settings.profile, "reset": True})
