"""Open, measure, list and remove sandboxes."""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from homarus.config.agent_settings import agent_ids
from homarus.config.schema import Config
from homarus.core.errors import HomarusError, SandboxError, UnknownNameError, UserError
from homarus.core.fast_dataclass import dataclass
from homarus.core.private_files import make_private_dir
from homarus.core.text import closest_names
from homarus.policy.sandbox_settings import (
    AUTO_BACKEND,
    SandboxSettings,
    is_sandboxed,
    resolve_sandbox,
)
from homarus.policy.workspace_access import WorkspaceAccess
from homarus.tools.sandbox.base import SANDBOXES, Sandbox, SandboxReport
from homarus.tools.sandbox.folders import (
    FOLDER,
    SandboxFolders,
    SandboxRecord,
    data_folders,
    data_root,
    find_trash,
    load_record,
    make_sandbox_name,
    remove_tree,
)
from homarus.tools.sandbox.session_sandbox import SessionSandbox

log = logging.getLogger(__name__)

_HOUR_MS: Final = 3_600_000
_SCRATCH: Final = ".scratch"


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


class SandboxManager:
    """The sandboxes of this state directory.

    `get_workspaces` returns the workspaces of all agents by agent id: no sandbox shows another
    agent's. A backend is loaded and measured when it is first needed.
    """

    def __init__(
        self,
        get_config: Callable[[], Config],
        state: Path,
        *,
        get_workspaces: Callable[[], Sequence[Path]] = tuple,
        get_now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._get_config, self._state = get_config, state
        self._get_workspaces, self._get_now_ms = get_workspaces, get_now_ms
        self._backends: dict[str, Sandbox] = {}
        self._reports: dict[str, asyncio.Task[SandboxReport]] = {}

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
        return SessionSandbox(
            self,
            settings,
            name=name,
            agent_id=agent_id,
            session_key=session_key,
            agent_workspace=workspace,
            access=access,
            docs=docs,
        )

    async def report(self, backend: str) -> SandboxReport:
        """Return what a backend can give on this machine, measured once in this process."""
        raise NotImplementedError

    def entries(self) -> list[SandboxEntry]:
        """Return the sandboxes that exist, by name."""
        raise NotImplementedError

    async def remove(self, name: str) -> None:
        """Remove a sandbox with its files. Raises UnknownNameError, UserError while it is live."""
        raise NotImplementedError

    async def prune(self, now_ms: int) -> list[str]:
        """Remove what is unused or old by the settings; return the names. A live one stays."""
        raise NotImplementedError

    async def clean(self) -> None:
        """Remove what a crash left: folders, cgroups and containers without a live process."""
        raise NotImplementedError
