"""The sandbox of one session: its folders, what it shows of this machine, and its commands."""

import asyncio
import logging
import os
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from homarus.core.errors import SandboxError, ToolDeniedError
from homarus.core.fast_dataclass import dataclass
from homarus.net.guard import NetworkPolicy
from homarus.policy.sandbox_settings import AUTO_BACKEND, SandboxAccess, SandboxSettings
from homarus.policy.unobeyed_settings import check_obeyed
from homarus.policy.workspace_access import FULL_ACCESS, WorkspaceAccess
from homarus.tools.pathname import check_text, format_path
from homarus.tools.rooted_fs import RootedFs
from homarus.tools.sandbox.base import (
    AGENT_DIR,
    WORKDIR,
    Mount,
    Sandbox,
    SandboxCommand,
    SandboxLaunch,
    SandboxReport,
    SandboxSpec,
)
from homarus.tools.sandbox.folders import (
    SandboxFolders,
    SandboxRecord,
    data_root,
    restore_rights,
)
from homarus.tools.sandbox.limits import resolve_limits
from homarus.tools.sandbox.mount_rules import check_source, find_state_dirs
from homarus.tools.sandbox.shown_files import (
    check_shown_folder,
    check_workspace_root,
    find_media,
    find_visible_entries,
)

log = logging.getLogger(__name__)

TMP_DIR: Final = "/tmp"  # noqa: S108 - as it is called inside


@dataclass(frozen=True, slots=True)
class SandboxServices:
    """What the sandboxes of sessions are given by their registry.

    `prepare` has a backend prepare a sandbox, once for the same rules. `get_workspaces` returns the
    workspaces of all agents, `get_network_policy` what the network guard allows and blocks.
    """

    state: Path
    get_backend: Callable[[str], Sandbox]
    report: Callable[[str, Mapping[str, object], str], Awaitable[SandboxReport]]
    prepare: Callable[[Sandbox, SandboxSpec], Awaitable[None]]
    get_workspaces: Callable[[], Sequence[Path]]
    get_now_ms: Callable[[], int]
    get_network_policy: Callable[[], NetworkPolicy]


def resolve_backend(settings: SandboxSettings) -> str:
    """Return the name of the backend: containers where the config names an image."""
    if settings.backend != AUTO_BACKEND:
        return settings.backend
    return "oci" if settings.container.image else "bubblewrap"


def container_options(settings: SandboxSettings) -> dict[str, object]:
    """Return the keys of the section `docker` that are set, for a backend."""
    container = settings.container
    return {key: getattr(container, key) for key in sorted(container.model_fields_set)}


class SessionSandbox:
    """The sandbox of one session, as far as the conversation may use it.

    `access` is what commands may do with the agent's workspace: where the conversation does not
    have all rights there, `rw` is narrowed to `ro`. `workspace` is the folder of this machine that
    is seen as `workdir`; the file tools work on it, too. The folders of the
    skills that the conversation is offered are seen read-only, at the same paths.
    """

    def __init__(
        self,
        services: SandboxServices,
        settings: SandboxSettings,
        record: SandboxRecord,
        *,
        agent_workspace: Path,
        conversation: WorkspaceAccess,
        docs: Path | None = None,
    ) -> None:
        self.settings, self.backend = settings, record.backend
        self.name, self.agent_workspace = record.name, agent_workspace
        self.access: SandboxAccess = settings.access
        if settings.access == "rw" and not conversation.is_full:
            self.access = "ro"
        self._services, self._record = services, record
        self._conversation, self._docs = conversation, docs
        self._folders = SandboxFolders(data_root(services.state) / record.name, record.path)

    @property
    def workspace(self) -> Path:
        """The folder that file tools and commands work in."""
        return self.agent_workspace if self.access == "rw" else self._folders.workspace

    @property
    def workdir(self) -> str:
        """The path of the workspace inside."""
        return self.settings.container.workdir or WORKDIR

    # Files

    def find_read_only(self) -> tuple[Path, ...]:
        """Return the folders of the config that are read, at the same path inside and outside.

        Raises SandboxError for one that may not be shown.
        """
        folders = tuple(Path(each).expanduser() for each in self.settings.read_only)
        for folder in folders:
            check_shown_folder(folder, self._services.state, self._services.get_workspaces())
        return folders

    def files(self, access: WorkspaceAccess) -> RootedFs:
        """Return the workspace of the sandbox for file tools."""
        if self.access != "rw":
            access = FULL_ACCESS  # the files are the sandbox's own
            self.make_workspace()
        return RootedFs(self.workspace, access=access, names=(Path(self.workdir),))

    def agent_files(self, path: str, access: WorkspaceAccess) -> tuple[RootedFs, str] | None:
        """Return the agent's workspace, and how its paths start, for a path in `/agent`.

        It is to be read only; None for another path, and where commands do not see it either.
        """
        if self.access != "ro" or not _is_beneath(path, AGENT_DIR):
            return None
        files = RootedFs(self.agent_workspace, access=access, names=(Path(AGENT_DIR),))
        return files, f"{AGENT_DIR}/"

    def tmp_files(self, path: str) -> tuple[RootedFs, str] | None:
        """Return the `/tmp` of commands, and how its paths start, for a path in it; else None."""
        if not self.is_tmp(path):
            return None
        self.make_workspace()
        return RootedFs(self._folders.tmp, names=(Path(TMP_DIR),)), f"{TMP_DIR}/"

    def is_tmp(self, path: str) -> bool:
        """Return whether an absolute path is one of the `/tmp` of commands."""
        return _is_beneath(path, TMP_DIR) and not self.is_inside(path)

    def is_inside(self, path: str) -> bool:
        """Return whether an absolute path is one of the workspace, as it is called inside."""
        return _is_beneath(path, self.workdir)

    def to_relative(self, path: str) -> str:
        """Return a path of the workspace from there, if it is written as commands see it."""
        return _relative(path, self.workdir) if self.is_inside(path) else path

    def attachment_place(
        self, name: str, access: WorkspaceAccess
    ) -> tuple[str, Path, WorkspaceAccess]:
        """Return a file to be sent by its name in a folder, the folder, and the access to it."""
        if self.agent_files(name, access):
            return _relative(name, AGENT_DIR), self.agent_workspace, access
        # The files of the sandbox's own folders: no name among them is protected.
        own = replace(access, audiences=None, can_write_prompts=True)
        if self.tmp_files(name):
            return _relative(name, TMP_DIR), self._folders.tmp, own
        name = self.to_relative(name)
        if self.access == "rw":
            return name, self.workspace, access
        self.make_workspace()
        return name, self.workspace, own

    def make_workspace(self) -> None:
        """Create the sandbox's own workspace, and record its use. Raises SandboxError."""
        os.close(self._lock())

    # Commands

    def resolve_workdir(self, path: str | None) -> str:
        """Return a folder by its path inside. Raises ToolError if there is none of that name."""
        if not path:
            return self.workdir
        check_text(path)
        roots = (TMP_DIR, AGENT_DIR) if self.access == "ro" else (TMP_DIR,)
        if any(_is_beneath(os.path.normpath(path), root) for root in roots):
            return os.path.normpath(path)
        if path.startswith("/") and not self.is_inside(path):
            raise ToolDeniedError(
                f"{format_path(path)} is not in the sandbox",
                fix=f"use a path in {self.workdir}, or a relative one",
            )
        with self.files(self._conversation).open_dir(path) as opened:
            return self.workdir if opened.path == "." else f"{self.workdir}/{opened.path}"

    async def make_launch(
        self,
        command: str,
        *,
        workdir: str | None = None,
        env: Mapping[str, str] | None = None,
        pty: bool = False,
    ) -> tuple[SandboxLaunch, str]:
        """Return how a command is started in the sandbox, and the level that was measured.

        `workdir` is a path inside. The backend is measured and the sandbox prepared at the first
        use. The launch holds a lock on the sandbox, which its `close` releases. Raises SandboxError
        when the sandbox cannot be had as the settings demand it.
        """
        check_obeyed(self.settings, self.backend)
        options, level = container_options(self.settings), self.settings.level
        report = await self._services.report(self.backend, options, level)
        check_level(report, level)
        backend = self._services.get_backend(self.backend)
        holder = _LockHolder()
        try:
            spec, lock = await asyncio.to_thread(self._acquire, holder)
            await self._services.prepare(backend, spec)
            launch = backend.spawn(
                spec, SandboxCommand(command, workdir or self.workdir, env, pty=pty)
            )
        except BaseException:
            holder.close()
            raise

        def close() -> None:
            launch.close()
            holder.close()

        return replace(launch, lock_fd=lock, close=close), report.level

    def _acquire(self, holder: "_LockHolder") -> tuple[SandboxSpec, int]:
        """Create the folders, lock them, and return what the sandbox is made of."""
        lock = self._lock()
        holder.hold(lock)
        return self.make_spec(), lock

    def _lock(self) -> int:
        """Create the folders, record their use, and return a descriptor that locks them."""
        services, root = self._services, self._folders.workspace.parent
        check_workspace_root(root, services.state, services.get_workspaces())
        lock = self._folders.acquire(has_workspace=self.access != "rw")
        try:
            if self.access == "rw":
                with suppress(OSError):  # it is missing, or of another user: prepare says so
                    restore_rights(self.workspace)
            now_ms = services.get_now_ms()
            self._folders.save(replace(self._record, created_ms=now_ms, used_ms=now_ms))
        except BaseException:
            os.close(lock)
            raise
        return lock

    def make_spec(self) -> SandboxSpec:
        """Return the folders and rules of the sandbox. Raises SandboxError. Reads folders."""
        container = self.settings.container
        return SandboxSpec(
            self.name,
            _resolve(self.workspace) if self.access == "rw" else self.workspace,
            self._folders.tmp,
            self.workdir,
            tuple(self._mounts()),
            resolve_limits(container),
            self.settings.allowed_hosts,
            self._services.get_network_policy(),
            container.env,
            container_options(self.settings),
        )

    def _mounts(self) -> Iterator[Mount]:
        services, conversation = self._services, self._conversation
        if self.access != "none":
            others = [each for each in services.get_workspaces() if each != self.agent_workspace]
            if self.access == "rw" or conversation.is_full:
                check_shown_folder(self.agent_workspace, services.state, others, is_workspace=True)
            if self.access == "ro" and conversation.is_full:
                yield Mount(_resolve(self.agent_workspace), AGENT_DIR)
            elif self.access == "ro":
                for entry in find_visible_entries(_resolve(self.agent_workspace), conversation):
                    with suppress(SandboxError):  # it has our state or another workspace in it
                        check_shown_folder(entry, services.state, others, is_workspace=True)
                        yield Mount(entry, f"{AGENT_DIR}/{entry.name}")
        if self._docs:
            yield Mount(_resolve(self._docs), str(self._docs))
        read_only = self.find_read_only()
        for folder in read_only:
            yield Mount(_resolve(folder), str(folder))
        yield from self._skill_mounts(read_only)
        for file in find_media(conversation, services.state):
            yield Mount(file, str(file))

    def _skill_mounts(self, mounted: Sequence[Path]) -> Iterator[Mount]:
        """Yield the folders of skills; those that no sandbox may show are left out and logged."""
        services, left_out = self._services, list[str]()
        others = [each for each in services.get_workspaces() if each != self.agent_workspace]
        protected = find_state_dirs(data_root(services.state))
        for folder in self._conversation.get_skills():
            real = _resolve(folder)
            if any(folder.is_relative_to(each) for each in mounted):
                continue
            is_own = real.is_relative_to(_resolve(self.agent_workspace))
            try:
                check_shown_folder(folder, services.state, others, is_workspace=is_own)
                check_source(real, protected)
            except SandboxError as exc:
                left_out.append(exc.message)
            else:
                yield Mount(real, str(folder))
        if left_out:
            log.warning("%d skills are not in the sandbox: %s", len(left_out), left_out[0])


class _LockHolder:
    """Closes a descriptor once, also one that a thread opens after its caller was cancelled."""

    def __init__(self) -> None:
        self._guard, self._fd, self._is_closed = threading.Lock(), -1, False

    def hold(self, fd: int) -> None:
        """Take over a descriptor, and close it at once if this is closed."""
        with self._guard:
            self._fd = fd
            if self._is_closed:
                os.close(fd)

    def close(self) -> None:
        with self._guard:
            if self._fd >= 0 and not self._is_closed:
                os.close(self._fd)
            self._is_closed = True


def check_level(report: SandboxReport, min_level: str) -> None:
    """Raise SandboxError unless a backend gives the level that the settings demand."""
    if report.level >= min_level and report.level >= "L1":
        return
    reason = f": {report.problem}" if report.problem else ""
    raise SandboxError(
        f"the command was not run: the sandbox {report.backend} gives level {report.level} on this"
        f" machine, and sandbox.level demands {min_level}{reason}",
        fix=report.fix or "homarus sandbox probe shows what does not hold",
    )


def _resolve(path: Path) -> Path:
    """Return a folder of the config without links, which no backend mounts."""
    return Path(os.path.realpath(path))


def _is_beneath(path: str, root: str) -> bool:
    return path == root or path.startswith(f"{root}/")


def _relative(path: str, root: str) -> str:
    return path[len(root) :].lstrip("/") or "."
