"""Make the manager of sandboxes when the first sandboxed session needs it."""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from homarus.config.schema import Config
from homarus.policy.sandbox_settings import SandboxSettings, is_sandboxed
from homarus.policy.workspace_access import WorkspaceAccess

if TYPE_CHECKING:
    from homarus.tools.sandbox.base import SandboxReport
    from homarus.tools.sandbox.manager import SandboxManager
    from homarus.tools.sandbox.session_sandbox import SessionSandbox

log = logging.getLogger(__name__)

FOLDER: Final = "sandboxes"  # in the state directory


class SandboxLoader:
    """Returns the manager when called; nothing of it is imported before."""

    def __init__(
        self,
        get_config: Callable[[], Config],
        state: Path,
        get_workspaces: Callable[[], Sequence[Path]],
        get_now_ms: Callable[[], int],
    ) -> None:
        self._get_config, self._state = get_config, state
        self._get_workspaces, self._get_now_ms = get_workspaces, get_now_ms
        self._manager: SandboxManager | None = None

    def __call__(self) -> "SandboxManager":
        """Return the manager of sandboxes."""
        if self._manager is None:
            from homarus.tools.sandbox.manager import SandboxManager

            self._manager = SandboxManager(
                self._get_config,
                self._state,
                get_workspaces=self._get_workspaces,
                get_now_ms=self._get_now_ms,
            )
        return self._manager

    def find_report(self, settings: SandboxSettings) -> "SandboxReport | None":
        """Return the last report about the backend of settings, None before it is measured."""
        return self._manager.find_report(settings) if self._manager else None

    @property
    def _has_sandboxes(self) -> bool:
        return (self._state / FOLDER).is_dir()

    async def clean(self) -> None:
        """Remove what a crash left of sandboxes; nothing is imported where there was none."""
        if self._has_sandboxes:
            await self().clean()

    async def prune(self, now_ms: int) -> None:
        """Remove sandboxes that are unused or old."""
        if self._has_sandboxes and (removed := await self().prune(now_ms)):
            log.info("removed %d sandboxes: %s", len(removed), ", ".join(removed))

    def open(
        self,
        agent_id: str,
        session_key: str,
        workspace: Path,
        access: WorkspaceAccess,
        *,
        docs: Path | None = None,
    ) -> "SessionSandbox | None":
        """Return the sandbox of a session, None for a session without one."""
        if not is_sandboxed(self._get_config(), agent_id, session_key):
            return None
        return self().open(agent_id, session_key, workspace, access, docs=docs)
