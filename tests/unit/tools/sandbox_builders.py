"""A backend of sandboxes that isolates nothing, and sandboxes of sessions on it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from homarus.config.check import check_config
from homarus.core.errors import SandboxError
from homarus.policy.workspace_access import FULL_ACCESS, WorkspaceAccess
from homarus.tools.sandbox.base import (
    Mount,
    SandboxCommand,
    SandboxLaunch,
    SandboxLevel,
    SandboxReport,
    SandboxSpec,
)
from homarus.tools.sandbox.registry import SandboxRegistry
from homarus.tools.sandbox.session_sandbox import SessionSandbox

MAIN, GROUP = "agent:main:main", "agent:main:telegram:group:-100"


class FakeSandbox:
    """Runs commands with `sh` in the workspace, and records what it was asked for."""

    name = "bubblewrap"

    def __init__(self, level: SandboxLevel = "L3", problem: str = "", fix: str = "") -> None:
        self.level, self.problem, self.fix = level, problem, fix
        self.measured = 0
        self.prepared: list[SandboxSpec] = []
        self.commands: list[SandboxCommand] = []
        self.destroyed: list[str] = []

    async def prepare(self, spec: SandboxSpec) -> None:
        self.prepared.append(spec)

    def spawn(self, spec: SandboxSpec, command: SandboxCommand) -> SandboxLaunch:
        assert spec in self.prepared
        self.commands.append(command)
        argv = ("/bin/sh", "-c", command.text)
        return SandboxLaunch(argv, {"PATH": "/usr/bin:/bin", **(command.env or {})})

    def mounts(self, spec: SandboxSpec) -> tuple[Mount, ...]:
        return spec.mounts

    async def measure(self, options: Mapping[str, object] | None = None) -> SandboxReport:
        self.measured += 1
        return SandboxReport(self.name, self.level, problem=self.problem, fix=self.fix)

    async def destroy(self, name: str) -> None:
        self.destroyed.append(name)


class BrokenSandbox(FakeSandbox):
    """Cannot be measured: its program is not installed."""

    async def measure(self, options: Mapping[str, object] | None = None) -> SandboxReport:
        raise SandboxError("bwrap is not installed", fix="apt-get install bubblewrap")


class SandboxHarness:
    """A state directory, the workspace of an agent, and a registry of sandboxes."""

    def __init__(
        self,
        tmp: Path,
        settings: Mapping[str, Any] | None = None,
        *,
        backend: FakeSandbox | None = None,
        others: Sequence[Path] = (),
    ) -> None:
        self.state, self.workspace = tmp / "state", tmp / "workspace"
        self.workspace.mkdir(exist_ok=True)
        self.backend = backend or FakeSandbox()
        self.now_ms = 1_000_000_000_000
        sandbox = {"mode": "non-main", "scope": "session", **(settings or {})}
        checked = check_config({"agents": {"defaults": {"sandbox": sandbox}}}).config
        assert checked
        self.config = checked
        self.registry = SandboxRegistry(
            lambda: self.config,
            self.state,
            get_workspaces=lambda: [self.workspace, *others],
            get_now_ms=lambda: self.now_ms,
            backends={"bubblewrap": self.backend},
        )

    def open(self, key: str = GROUP, access: WorkspaceAccess = FULL_ACCESS) -> SessionSandbox:
        found = self.registry.open("main", key, self.workspace, access)
        assert found
        return found
