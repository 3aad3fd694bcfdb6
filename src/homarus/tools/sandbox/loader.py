"""Make the registry of sandboxes when the first sandboxed session needs it."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from homarus.config.agent_settings import agent_workspaces
from homarus.config.paths import Paths
from homarus.config.schema import Config
from homarus.policy.sandbox_settings import SandboxSettings, is_sandboxed
from homarus.policy.workspace_access import WorkspaceAccess

if TYPE_CHECKING:
    from homarus.tools.sandbox.base import SandboxReport
    from homarus.tools.sandbox.registry import SandboxRegistry
    from homarus.tools.sandbox.session_sandbox import SessionSandbox

log = logging.getLogger(__name__)

FOLDER: Final = "sandboxes"  # in the state directory


class SandboxedAgent(Protocol):
    """What a sandbox shows of an agent: its workspace, and the documentation it may read."""

    @property
    def id(self) -> str: ...
    @property
    def workspace(self) -> Path: ...
    @property
    def docs(self) -> Path | None: ...


class SandboxLoader:
    """Returns the registry when called; nothing of it is imported before."""

    def __init__(
        self,
        get_config: Callable[[], Config],
        paths: Paths,
        get_now_ms: Callable[[], int],
    ) -> None:
        self._get_config, self._paths, self._get_now_ms = get_config, paths, get_now_ms
        self._registry: SandboxRegistry | None = None

    def __call__(self) -> "SandboxRegistry":
        """Return the registry of sandboxes."""
        if self._registry is None:
            from homarus.tools.sandbox.registry import SandboxRegistry

            self._registry = SandboxRegistry(
                self._get_config,
                self._paths.state,
                get_workspaces=lambda: agent_workspaces(self._get_config(), self._paths),
                get_now_ms=self._get_now_ms,
            )
        return self._registry

    def find_report(self, settings: SandboxSettings) -> "SandboxReport | None":
        """Return the last report about the backend of settings, None before it is measured."""
        return self._registry.find_report(settings) if self._registry else None

    @property
    def _has_sandboxes(self) -> bool:
        return (self._paths.state / FOLDER).is_dir()

    async def clean(self) -> None:
        """Remove what a crash left of sandboxes; nothing is imported where there was none."""
        if self._has_sandboxes:
            await self().clean()

    async def prune(self, now_ms: int) -> None:
        """Remove sandboxes that are unused or old."""
        if self._has_sandboxes and (removed := await self().prune(now_ms)):
            log.info("removed %d sandboxes: %s", len(removed), ", ".join(removed))

    def open(
        self, agent: SandboxedAgent, session_key: str, access: WorkspaceAccess
    ) -> "SessionSandbox | None":
        """Return the sandbox of a session, None for a session without one."""
        if not is_sandboxed(self._get_config(), agent.id, session_key):
            return None
        return self().open(agent.id, session_key, agent.workspace, access, docs=agent.docs)
