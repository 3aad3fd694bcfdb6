"""The seam of sandbox backends: what a sandbox is made of, and how a command is started in it.

A sandbox is a pair of folders that stay (the workspace and `/tmp`) and a set of rules. Every
command gets its own processes: the backend returns how to launch it, and the supervisor of the
command (`tools/exec/process_supervisor.py`) starts it, enforces the limits and removes what it
leaves. So nothing of a sandbox runs between commands, and nothing outlives the gateway.

A backend is a module of this package with `create`; the config names it like the module.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias

from homarus.core.errors import SandboxError
from homarus.core.fast_dataclass import dataclass
from homarus.core.text import one_line
from homarus.plugins.backends import BackendKind

if TYPE_CHECKING:
    from homarus.net.guard import NetworkPolicy

# L3: isolation and limits for the complete process tree hold. L2: isolation holds, limits hold for
# single processes only. L1: only the files of others are out of reach. L0: nothing is certain.
SandboxLevel: TypeAlias = Literal["L0", "L1", "L2", "L3"]

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,127}", re.ASCII)
# The options that decide what a sandbox holds against; limits and folders are those of the probes.
MEASURED_OPTIONS: Final = (
    "image",
    "user",
    "network",
    "seccomp_profile",
    "apparmor_profile",
    "read_only_root",
)
WORKDIR: Final = "/workspace"
AGENT_DIR: Final = "/agent"  # where the agent's workspace is read-only, if it is there


@dataclass(frozen=True, slots=True)
class Mount:
    """A folder or file of this machine that is seen inside at `target`."""

    source: Path
    target: str
    is_writable: bool = False


@dataclass(frozen=True, slots=True)
class SandboxLimits:
    """What one command may use; 0 means no limit. `cpus` is a number of processors.

    `swap_bytes` is what may be swapped out in addition to the memory: 0 is none, -1 no limit.
    """

    pids: int = 512
    memory_bytes: int = 2 << 30
    cpu_s: int = 0
    cpus: float = 0.0
    file_bytes: int = 2 << 30
    disk_bytes: int = 4 << 30  # how much the folders of the sandbox may grow by
    open_files: int = 1024
    swap_bytes: int = 0


@dataclass(frozen=True, slots=True)
class SandboxSpec:
    """One sandbox: its folders and its rules.

    `name` is unique and made of `a-z0-9-`. `workspace` is seen as `workdir` and `tmp` as `/tmp`,
    both writable. `mounts` are further ones. Without `allowed_hosts` there is no network; with
    them, only a proxy that connects to these hosts can be reached; `network_policy` is what the
    network guard allows there besides the public internet, nothing when it is None. `options` is
    the section of the config that belongs to the backend.
    """

    name: str
    workspace: Path
    tmp: Path
    workdir: str = WORKDIR
    mounts: tuple[Mount, ...] = ()
    limits: SandboxLimits = SandboxLimits()
    allowed_hosts: tuple[str, ...] = ()
    network_policy: "NetworkPolicy | None" = None
    env: Mapping[str, str] | None = None  # in addition to the backend's own
    options: Mapping[str, object] | None = None


@dataclass(frozen=True, slots=True)
class SandboxCommand:
    """A command to be run verbatim by `sh -c`, and where inside."""

    text: str
    workdir: str = WORKDIR
    env: Mapping[str, str] | None = None
    pty: bool = False


@dataclass(frozen=True, slots=True)
class ControlGroup:
    """A folder of the cgroup file system that the command enters, and the files to write there."""

    path: str
    settings: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class SandboxLaunch:
    """How the supervisor starts a command in a sandbox.

    `argv` starts the launcher (bwrap, podman) with exactly `env`; `fds` are inherited by it and
    belong to this value. Before that the child enters `cgroups`, sets `rlimits` (names of
    `resource`, such as RLIMIT_FSIZE) and, if `uses_landlock`, restricts itself with Landlock.
    When the command has ended, however it ended, the supervisor runs `cleanup` and removes the
    cgroups. It ends a command during which `disk_folders` grew by more than `disk_bytes`.
    SIGTERM goes to the launcher, or, if it `terminates_inside`, to what it runs: one whose end
    kills everything inside at once. The supervisor holds `lock_fd` open while anything runs; the
    command does not inherit it. `identity` is `argv` without what is new for every launch
    (descriptors, names of containers), so that equal commands have equal digests.
    `proxy` is our end of a socket pair over which the sandbox sends the listening socket of its
    proxy port; -1 without network. The proxy connects to `allowed_hosts`, as far as
    `network_policy` lets the network guard. `close` closes the descriptors.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    fds: tuple[int, ...] = ()
    rlimits: tuple[tuple[str, int], ...] = ()
    cgroups: tuple[ControlGroup, ...] = ()
    uses_landlock: bool = False
    cleanup: tuple[tuple[str, ...], ...] = ()
    disk_folders: tuple[str, ...] = ()
    disk_bytes: int = 0
    proxy: int = -1
    allowed_hosts: tuple[str, ...] = ()
    network_policy: "NetworkPolicy | None" = None
    lock_fd: int = -1
    identity: tuple[str, ...] = ()
    terminates_inside: bool = False
    close: Callable[[], None] = lambda: None


@dataclass(frozen=True, slots=True)
class EscapeProbeResult:
    """The outcome of one escape probe: whether the sandbox held, and what was seen."""

    name: str  # "mount", "memory-bomb"
    has_held: bool
    detail: str = ""


@dataclass(frozen=True, slots=True)
class SandboxReport:
    """What a backend can give on this machine, measured by its probes.

    `problem` is why there is no sandbox at all, or why the level is not L3; `fix` is what helps.
    """

    backend: str
    level: SandboxLevel
    probes: tuple[EscapeProbeResult, ...] = ()
    problem: str = ""
    fix: str = ""


class Sandbox(Protocol):
    """A backend. Methods raise SandboxError with the reason and the fix."""

    @property
    def name(self) -> str:
        """Return the name in the config: "bubblewrap"."""
        ...

    async def prepare(self, spec: SandboxSpec) -> None:
        """Make what the sandbox needs besides its folders, which exist, and check its rules."""
        ...

    def spawn(self, spec: SandboxSpec, command: SandboxCommand) -> SandboxLaunch:
        """Return how to start a command in a prepared sandbox."""
        ...

    def mounts(self, spec: SandboxSpec) -> tuple[Mount, ...]:
        """Return everything of this machine that is seen inside."""
        ...

    async def measure(self, options: Mapping[str, object] | None = None) -> SandboxReport:
        """Run the escape probes inside, with these options, and return the level that holds."""
        ...

    async def destroy(self, name: str) -> None:
        """End and remove what the backend has of a sandbox; its folders are the caller's."""
        ...


def check_sandbox_name(name: str) -> None:
    """Raise SandboxError for a name that is not made of `a-z0-9-`: it is part of paths."""
    if not _NAME.fullmatch(name):
        raise SandboxError(f"{one_line(name, 60)!r} is not the name of a sandbox")


class SandboxModule(Protocol):
    """A module of this package that is a backend."""

    def create(self, scratch: Path) -> Sandbox:
        """Return the backend; `scratch` is a private folder for what it needs."""
        ...


SANDBOXES: Final[BackendKind[SandboxModule]] = BackendKind(
    name="sandbox backend",
    package="homarus.tools.sandbox",
    group="homarus.sandboxes",
    required=("create",),
    config_key="sandbox.backend",
)
