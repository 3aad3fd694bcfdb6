"""The section `sandbox` of agents: which sessions have a sandbox, and what is in it."""

from typing import Annotated, Literal, TypeAlias

from pydantic import NonNegativeFloat, Strict

from homarus.config.container_checks import (
    check_apparmor_profile,
    check_bind,
    check_network,
    check_seccomp_profile,
)
from homarus.config.section import (
    ConfigSection,
    HostNames,
    NonNegativeInt,
    PositiveInt,
    StrTuple,
    parsed_by,
)

Binds: TypeAlias = Annotated[
    tuple[Annotated[str, parsed_by(check_bind)], ...], Strict(strict=False)
]


class UlimitConfig(ConfigSection):
    """The soft and the hard value of one limit for a process."""

    soft: NonNegativeInt | None = None
    hard: NonNegativeInt | None = None


class ContainerConfig(ConfigSection):
    """What a command sees and may use; written for containers, obeyed by every backend it fits."""

    image: str | None = None
    container_prefix: str | None = None
    workdir: str | None = None
    read_only_root: bool | None = None
    tmpfs: StrTuple | None = None
    network: Annotated[str, parsed_by(check_network)] | None = None
    user: str | None = None
    cap_drop: StrTuple | None = None
    env: dict[str, str] | None = None
    setup_command: str | None = None
    pids_limit: PositiveInt | None = None
    memory: str | NonNegativeFloat | None = None
    memory_swap: str | NonNegativeFloat | None = None
    cpus: NonNegativeFloat | None = None
    ulimits: dict[str, str | int | UlimitConfig] | None = None
    seccomp_profile: Annotated[str, parsed_by(check_seccomp_profile)] | None = None
    apparmor_profile: Annotated[str, parsed_by(check_apparmor_profile)] | None = None
    dns: StrTuple | None = None
    extra_hosts: StrTuple | None = None
    binds: Binds | None = None


class SandboxPruneConfig(ConfigSection):
    """When a sandbox is removed: after so long without a command, and at so great an age."""

    idle_hours: NonNegativeInt | None = None
    max_age_days: NonNegativeInt | None = None


class SandboxNetworkConfig(ConfigSection):
    """The hosts that commands may connect to, through the gateway's proxy; without any, none."""

    allow: HostNames = ()


class SandboxConfig(ConfigSection):
    """Which sessions have a sandbox, what is shared in it, and what it must hold against.

    `level` is the lowest that is accepted, as it is measured; `readOnlyFolders` are further folders
    of this machine that commands and file tools may read.
    """

    mode: Literal["off", "non-main", "all"] | None = None
    scope: Literal["session", "agent", "shared"] | None = None
    per_session: bool | None = None
    workspace_access: Literal["none", "ro", "rw"] | None = None
    workspace_root: str | None = None
    docker: ContainerConfig = ContainerConfig.model_construct()
    prune: SandboxPruneConfig = SandboxPruneConfig.model_construct()
    backend: str | None = None
    level: Literal["L1", "L2", "L3"] | None = None
    network: SandboxNetworkConfig = SandboxNetworkConfig.model_construct()
    read_only_folders: StrTuple | None = None
