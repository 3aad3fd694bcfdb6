"""Call the handlers of an event in order: those of its type first, then those of its action.

A handler that fails or is too slow is skipped, and the next one is called. One that overruns its
limits several times in a row is suspended, until its owner enables it again.
"""

import asyncio
import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib import import_module
from typing import Any, Final

from homarus.agent.internal_hooks.bundled_services import BundledHookServices
from homarus.agent.internal_hooks.catalog import FoundHooks, HookCatalog
from homarus.agent.internal_hooks.enabled_hooks import SuspendedHook
from homarus.agent.internal_hooks.event import HookEvent, HookResult, decode_result
from homarus.agent.internal_hooks.handler_process import (
    HandlerProcess,
    HookCallError,
    HookOverrunError,
    ProcessServices,
)
from homarus.agent.internal_hooks.hook import HookTier
from homarus.agent.internal_hooks.hook_files import find_stamp
from homarus.agent.internal_hooks.hook_status import HookStatus
from homarus.core.file_stamp import FileStamp
from homarus.core.tasks import run_contained
from homarus.core.text import one_line

log = logging.getLogger(__name__)

EVENT_BUDGET_S: Final = 8.0  # shorter than the deadline of a plugin's hook
ORDER_WAIT_S: Final = 1.0  # for a handler, before the next one of an event that no one waits for
OVERRUNS: Final = 3  # in a row, before a hook is suspended
MAX_PENDING: Final = 128
_LOG_WINDOW_S: Final = 60.0
_MAX_LOGGED: Final = 5  # failures of one hook in each window
_BUNDLED: Final = "homarus.agent.internal_hooks.bundled"


class _LoadedHook:
    """A hook that runs, and how its last calls went."""

    def __init__(self, status: HookStatus, process: HandlerProcess | None) -> None:
        self.status, self.process = status, process
        self.overruns = 0
        self._window_at, self._logged = float("-inf"), 0

    @property
    def name(self) -> str:
        return self.status.hook.name

    def is_changed(self) -> bool:
        """Return whether its files were written since they were checked."""
        files = self.status.files
        return files is not None and find_stamp(self.status.hook) != files.stamp

    def log_failure(self, event: HookEvent, error: str, now: float) -> None:
        """Log a failure, a few times a minute."""
        if now - self._window_at >= _LOG_WINDOW_S:
            self._window_at, self._logged = now, 0
        self._logged += 1
        if self._logged <= _MAX_LOGGED:
            log.warning("hook %s failed for %s: %s", self.name, event.name, error)
        elif self._logged == _MAX_LOGGED + 1:
            log.warning("hook %s fails often: further failures are not logged now", self.name)


class HookDispatcher:
    """Loads the hooks with the first event, and again when their files or settings have changed."""

    def __init__(
        self, catalog: HookCatalog, bundled: BundledHookServices, process: ProcessServices
    ) -> None:
        self._catalog, self._bundled, self._services = catalog, bundled, process
        self._hooks: dict[str, tuple[_LoadedHook, ...]] | None = None  # by type and by name
        self._enabled_stamp: FileStamp | None = None
        self._retired: list[HandlerProcess] = []
        self._loading = asyncio.Lock()
        self._pending, self._is_closed = 0, False
        self._skipped_at = float("-inf")

    @property
    def pids(self) -> list[int]:
        """The ids of the processes that run."""
        found = (each.pid for each in (*self._processes(), *self._retired))
        return [pid for pid in found if pid is not None]

    @property
    def is_idle(self) -> bool:
        """Whether no event waits that was posted."""
        return not self._pending

    def reload(self) -> None:
        """Load the hooks again with the next event; calls under way end first."""
        for process in self._processes():
            process.retire()
            self._retired.append(process)
        self._hooks = None
        self._retired = [each for each in self._retired if each.pid is not None]

    def close(self) -> None:
        """End all processes; nothing is called any more."""
        self._is_closed = True
        for process in (*self._processes(), *self._retired):
            process.close()

    async def dispatch(self, event: HookEvent) -> HookResult:
        """Call the handlers of an event, and return what they made of it.

        When they take too long together, those that are left are started and not waited for.
        """
        result = HookResult()
        deadline = asyncio.get_running_loop().time() + EVENT_BUDGET_S
        for loaded in await self._find(event):
            left_s = deadline - asyncio.get_running_loop().time()
            found = await self._start(loaded, event, max(0.0, left_s))
            if found is None:
                continue
            result = HookResult(
                (*result.messages, *found.messages),
                result.files if found.files is None else found.files,
            )
            if found.files is not None:
                event = replace(event, context={**event.context, "files": dict(found.files)})
        return result

    def post(self, event: HookEvent) -> None:
        """Call the handlers of an event that no one waits for."""
        if self._is_closed:
            return
        if self._pending >= MAX_PENDING:
            now = self._services.clock.monotonic()
            if now - self._skipped_at >= _LOG_WINDOW_S:
                self._skipped_at = now
                log.warning("internal hooks: events are skipped, %d wait already", MAX_PENDING)
            return
        self._pending += 1
        task = self._services.spawn(self._post(event), f"hooks of {event.name}")
        if task is None:
            self._pending -= 1

    async def _post(self, event: HookEvent) -> None:
        try:
            for loaded in await self._find(event):
                await self._start(loaded, event, ORDER_WAIT_S)
        finally:
            self._pending -= 1

    async def _start(
        self, loaded: _LoadedHook, event: HookEvent, timeout_s: float
    ) -> HookResult | None:
        """Call a handler in a task of its own; return its result if it comes in time."""
        results: list[HookResult] = []

        async def call() -> None:
            if found := await self._call(loaded, event):
                results.append(found)

        task = self._services.spawn(call(), f"hook {loaded.name}")
        if task is None:
            return None
        await asyncio.wait({task}, timeout=timeout_s)
        return results[0] if results else None

    async def _call(self, loaded: _LoadedHook, event: HookEvent) -> HookResult | None:
        """Call one handler; None when it failed."""
        settings = dict(loaded.status.entry.own_settings)
        event = replace(event, context={**event.context, "settings": settings})
        try:
            if loaded.process is None:
                return await self._call_bundled(loaded, event)
            result = await loaded.process.call(event)
        except HookOverrunError as exc:
            await self._record_overrun(loaded, event, str(exc))
            return None
        except HookCallError as exc:
            loaded.log_failure(event, str(exc), self._services.clock.monotonic())
            return None
        loaded.overruns = 0
        return result

    async def _call_bundled(self, loaded: _LoadedHook, event: HookEvent) -> HookResult | None:
        hook = loaded.status.hook
        module = import_module(f"{_BUNDLED}.{hook.folder.name}.{hook.handler.stem}")
        services = replace(self._bundled, entry=loaded.status.entry)
        reply: Mapping[str, Any] = {}

        async def run() -> None:
            nonlocal reply
            async with asyncio.timeout(self._services.deadline_s):
                reply = await module.handle(event, services) or {}

        def failed(exc: Exception) -> None:
            now = self._services.clock.monotonic()
            loaded.log_failure(event, one_line(repr(exc), 200), now)

        await run_contained(f"hook {hook.name}", run, failed)
        return decode_result(reply)

    async def _record_overrun(self, loaded: _LoadedHook, event: HookEvent, error: str) -> None:
        loaded.overruns += 1
        loaded.log_failure(event, error, self._services.clock.monotonic())
        files = loaded.status.files
        if loaded.overruns != OVERRUNS or files is None or loaded.process is None:
            return
        loaded.process.close()
        reason = f"it overran its limits {OVERRUNS} times in a row: {error}"
        log.error("hook %s is suspended: %s", loaded.name, reason)
        suspended = SuspendedHook(files.digest, reason, self._services.clock.now_ms())
        identity = loaded.status.hook.identity
        try:
            await asyncio.to_thread(self._catalog.enabled.suspend, identity, suspended)
        except OSError as exc:
            log.warning("the suspension of hook %s is not saved: %s", loaded.name, exc)
        if self._hooks is not None:
            self._hooks = {
                name: tuple(each for each in listed if each is not loaded)
                for name, listed in self._hooks.items()
            }
            self._enabled_stamp = self._catalog.enabled.stamp

    async def _find(self, event: HookEvent) -> list[_LoadedHook]:
        """Return the handlers of an event in order, loading or refreshing them if necessary."""
        if self._is_closed:
            return []
        async with self._loading:
            if self._hooks is not None and not self._is_current(event):
                self.reload()
            if self._hooks is None:
                self._enabled_stamp = self._catalog.enabled.stamp
                found = await asyncio.to_thread(self._catalog.load)
                _log_unused(found)
                self._hooks = self._index(found.hooks)
            return list(self._listed(event))

    def _is_current(self, event: HookEvent) -> bool:
        return self._catalog.enabled.stamp == self._enabled_stamp and not any(
            each.is_changed() for each in self._listed(event)
        )

    def _listed(self, event: HookEvent) -> Iterator[_LoadedHook]:
        hooks = self._hooks or {}
        yield from hooks.get(event.type, ())
        yield from hooks.get(event.name, ())

    def _processes(self) -> set[HandlerProcess]:
        listed = (each for hooks in (self._hooks or {}).values() for each in hooks)
        return {each.process for each in listed if each.process}

    def _index(self, statuses: tuple[HookStatus, ...]) -> dict[str, tuple[_LoadedHook, ...]]:
        index: dict[str, list[_LoadedHook]] = {}
        for status in statuses:
            if not status.is_ready:
                continue
            is_bundled = status.hook.tier is HookTier.BUNDLED
            process = None if is_bundled else HandlerProcess(status, self._services)
            loaded = _LoadedHook(status, process)
            for event in status.hook.events:
                index.setdefault(event, []).append(loaded)
        return {name: tuple(listed) for name, listed in index.items()}


def _log_unused(found: FoundHooks) -> None:
    """Log the hooks that their owner may expect to run."""
    for problem in found.problems:
        log.warning("hook %s: %s", problem.path, problem.message)
    for status in found.hooks:
        if status.state in {"not enabled", "not runnable", "suspended"}:
            log.warning("hook %s does not run: %s", status.hook.name, status.reasons[0].message)
