"""Open, measure, list and remove sandboxes."""

import asyncio
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from homarus.config.agent_settings import agent_ids
from homarus.config.network_policy import resolve_network_policy
from homarus.config.schema import Config
from homarus.core.errors import HomarusError, SandboxError, UnknownNameError, UserError
from homarus.core.fast_dataclass import dataclass
from homarus.core.private_files import make_private_dir
from homarus.core.text import closest_names
from homarus.policy.sandbox_settings import (
    SandboxSettings,
    is_sandboxed,
    resolve_sandbox,
)
from homarus.policy.workspace_access import WorkspaceAccess
from homarus.tools.sandbox.base import (
    MEASURED_OPTIONS,
    SANDBOXES,
    Sandbox,
    SandboxReport,
    SandboxSpec,
)
from homarus.tools.sandbox.folders import (
    SandboxFolders,
    SandboxRecord,
    data_folders,
    data_root,
    find_trash,
    load_record,
    make_sandbox_name,
    remove_tree,
)
from homarus.tools.sandbox.loader import FOLDER
from homarus.tools.sandbox.session_sandbox import (
    SandboxServices,
    SessionSandbox,
    container_options,
    resolve_backend,
)

log = logging.getLogger(__name__)

_HOUR_MS: Final = 3_600_000
_SCRATCH: Final = ".scratch"
_MAX_PREPARED: Final = 256


@dataclass(frozen=True, slots=True)
class SandboxEntry:
    """A sandbox that exists; `is_live` when a command runs in it, `path` is its workspace."""

    name: str
    key: str
    agent_id: str
    scope: str
    backend: str
    created_ms: int
    used_ms: int
    is_live: bool
    path: Path


class SandboxRegistry:
    """The sandboxes of this state directory.

    `get_workspaces` returns the workspaces of all agents: no sandbox shows another agent's. A
    backend is loaded, and measured, when it is first needed.
    """

    def __init__(
        self,
        get_config: Callable[[], Config],
        state: Path,
        *,
        get_workspaces: Callable[[], Sequence[Path]] = tuple,
        get_now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        backends: Mapping[str, Sandbox] | None = None,
    ) -> None:
        self._get_config, self._state = get_config, state
        self._backends: dict[str, Sandbox] = dict(backends or {})
        self._reports: dict[str, SandboxReport] = {}  # also those that are measured again
        self._measuring: dict[str, asyncio.Lock] = {}
        self._prepared: dict[str, tuple[str, SandboxSpec]] = {}  # by the sandbox's name
        self._services = SandboxServices(
            state,
            self.get_backend,
            self.report,
            self._prepare,
            get_workspaces,
            get_now_ms,
            lambda: resolve_network_policy(get_config().tools.web.fetch),
        )

    def open(
        self,
        agent_id: str,
        session_key: str,
        workspace: Path,
        access: WorkspaceAccess,
        *,
        docs: Path | None = None,
    ) -> SessionSandbox | None:
        """Return the sandbox of a session, None for a session without one. Nothing is created."""
        config = self._get_config()
        if not is_sandboxed(config, agent_id, session_key):
            return None
        settings = resolve_sandbox(config, agent_id)
        name = make_sandbox_name(settings.scope, agent_id, session_key)
        path = resolve_workspace_root(settings, self._state) / name
        record = SandboxRecord(
            name, session_key, agent_id, settings.scope, resolve_backend(settings), 0, 0, path
        )
        return SessionSandbox(
            self._services,
            settings,
            record,
            agent_workspace=workspace,
            conversation=access,
            docs=docs,
        )

    def get_backend(self, name: str) -> Sandbox:
        """Return a backend by its name in the config. Raises SandboxError."""
        if name not in self._backends:
            try:
                module = SANDBOXES.load(name)
            except UserError as exc:
                raise SandboxError(f"there is no sandbox: {exc.message}", fix=exc.fix) from exc
            scratch = data_root(self._state) / _SCRATCH / name
            make_private_dir(scratch)
            self._backends[name] = module.create(scratch)
        return self._backends[name]

    async def report(
        self, backend: str, options: Mapping[str, object] | None = None, min_level: str = "L1"
    ) -> SandboxReport:
        """Return what a backend can give on this machine, measured once in this process.

        `options` are those of the sandbox; without, those of the first agent that has this backend.
        A backend that gives less than `min_level` is measured again: its user may have installed
        what was missing, or the machine was too busy for a probe. Raises SandboxError.
        """
        given = self._find_options(backend) if options is None else options
        options, key = _measured_options(backend, given)
        async with self._measuring.setdefault(key, asyncio.Lock()):
            found = self._reports.get(key)
            if found is None or found.level < min_level:
                made = self.get_backend(backend)
                found = await (made.measure(options) if options else made.measure())
                self._reports[key] = found
            return found

    def _find_options(self, backend: str) -> Mapping[str, object]:
        config = self._get_config()
        for agent in agent_ids(config):
            settings = resolve_sandbox(config, agent)
            if resolve_backend(settings) == backend:
                return container_options(settings)
        return {}

    def find_report(self, settings: SandboxSettings) -> SandboxReport | None:
        """Return the last report about the backend of settings, None before it is measured."""
        _, key = _measured_options(resolve_backend(settings), container_options(settings))
        return self._reports.get(key)

    async def _prepare(self, backend: Sandbox, spec: SandboxSpec) -> None:
        """Have a backend prepare a sandbox, unless it has done so for the same rules."""
        if self._prepared.get(spec.name) == (backend.name, spec):
            return
        await backend.prepare(spec)
        if len(self._prepared) >= _MAX_PREPARED:
            self._prepared.clear()
        self._prepared[spec.name] = backend.name, spec

    def entries(self) -> list[SandboxEntry]:
        """Return the sandboxes that exist, by name."""
        return [
            SandboxEntry(
                each.name,
                each.key,
                each.agent_id,
                each.scope,
                each.backend,
                each.created_ms,
                each.used_ms,
                folders.is_live(),
                each.path,
            )
            for folders, each in self._records()
        ]

    def _records(self) -> Iterator[tuple[SandboxFolders, SandboxRecord]]:
        for data in data_folders(self._state):
            if record := load_record(data):
                yield SandboxFolders(data, record.path), record

    async def remove(self, name: str) -> None:
        """Remove a sandbox with its files.

        Raises UnknownNameError, UserError while it is live, SandboxError if it cannot be removed.
        """
        found = {record.name: (folders, record) for folders, record in self._records()}
        if name not in found:
            raise UnknownNameError("sandbox", name, closest_names(name, sorted(found)))
        if not await self._remove(*found[name]):
            raise UserError(
                f"a command runs in the sandbox {name}", fix="wait for its end, or stop it"
            )

    async def prune(self, now_ms: int) -> list[str]:
        """Remove what is unused or old by the settings; return the names. A live one stays."""
        removed: list[str] = []
        config = self._get_config()
        for folders, record in list(self._records()):
            settings = resolve_sandbox(config, record.agent_id)  # of an unknown agent: the common
            is_due = partial(_is_due, settings=settings, now_ms=now_ms)
            if not is_due(record):
                continue
            try:
                if await self._remove(folders, record, is_due):
                    removed.append(record.name)
            except SandboxError as exc:
                log.warning("%s", exc)
        return removed

    async def clean(self) -> None:
        """Remove what a crash left: folders, cgroups and containers without a live process."""
        from homarus.tools.sandbox.cgroups import remove_leftovers

        await asyncio.to_thread(remove_leftovers)
        await asyncio.to_thread(self._remove_trash)
        for folders, record in list(self._records()):
            # bubblewrap leaves cgroups only, which are gone: its backend need not be loaded.
            if record.backend != "bubblewrap" and not folders.is_live():
                with suppress(HomarusError):
                    await self.get_backend(record.backend).destroy(record.name)

    def _remove_trash(self) -> None:
        """Remove half-made and half-removed folders, and what backends left."""
        roots = {data_root(self._state), self._state / FOLDER}
        for data in data_folders(self._state):
            if record := load_record(data):
                roots.add(record.path.parent)
                continue
            folders = SandboxFolders(data, self._state / FOLDER / data.name)
            with suppress(OSError):
                if (lock := folders.acquire_exclusive()) is not None:
                    folders.move_to_trash()
                    os.close(lock)
        for path in (path for root in roots for path in find_trash(root)):
            _remove_logged(path)

    async def _remove(
        self,
        folders: SandboxFolders,
        record: SandboxRecord,
        is_due: Callable[[SandboxRecord], bool] = lambda _record: True,
    ) -> bool:
        """Remove a sandbox; return False when a command runs in it, or it is not due any more.

        Raises SandboxError when its folders cannot be removed.
        """
        try:
            lock = folders.acquire_exclusive()
            if lock is None:
                return False
            try:
                # It may have been used since the record was read: others are removed before.
                if not is_due(load_record(folders.data) or record):
                    return False
                # The containers of commands end with them; this removes what a crash left.
                with suppress(HomarusError):
                    await self.get_backend(record.backend).destroy(record.name)
                trash = folders.move_to_trash()
            finally:
                os.close(lock)
        except FileNotFoundError:
            return True  # another process has removed it
        except OSError as exc:
            raise SandboxError(
                f"the sandbox {record.name} could not be removed: {exc.strerror or exc}",
                fix=f"check the permissions of {exc.filename or record.path.parent}",
            ) from exc
        self._prepared.pop(record.name, None)
        for path in trash:
            await asyncio.to_thread(_remove_logged, path)
        return True


def _measured_options(backend: str, options: Mapping[str, object]) -> tuple[dict[str, object], str]:
    """Return the options that decide what a backend holds against, and the key of its report."""
    found = {name: options[name] for name in MEASURED_OPTIONS if name in options}
    return found, f"{backend} {found}"


def resolve_workspace_root(settings: SandboxSettings, state: Path) -> Path:
    """Return the folder with the workspaces of sandboxes."""
    if not settings.workspace_root:
        return state / FOLDER
    return Path(os.path.normpath(Path.cwd() / Path(settings.workspace_root).expanduser()))


def _is_due(record: SandboxRecord, settings: SandboxSettings, now_ms: int) -> bool:
    """Return whether a sandbox is to be removed: unused for too long, or too old."""
    is_idle = settings.idle_hours and now_ms - record.used_ms > settings.idle_hours * _HOUR_MS
    max_age_ms = settings.max_age_days * 24 * _HOUR_MS
    return bool(is_idle or (max_age_ms and now_ms - record.created_ms > max_age_ms))


def _remove_logged(path: Path) -> None:
    try:
        remove_tree(path)
    except OSError as exc:
        log.warning("%s could not be removed: %s", path, exc)
