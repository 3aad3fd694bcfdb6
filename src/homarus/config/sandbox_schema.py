"""The section `sandbox` of agents: which sessions have a sandbox, and what is in it."""

from typing import Literal

from pydantic import NonNegativeFloat

from homarus.config.section import ConfigSection, HostPorts, NonNegativeInt, PositiveInt


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
    tmpfs: tuple[str, ...] | None = None
    network: str | None = None
    user: str | None = None
    cap_drop: tuple[str, ...] | None = None
    env: dict[str, str] | None = None
    setup_command: str | None = None
    pids_limit: PositiveInt | None = None
    memory: str | NonNegativeFloat | None = None
    memory_swap: str | NonNegativeFloat | None = None
    cpus: NonNegativeFloat | None = None
    ulimits: dict[str, str | int | UlimitConfig] | None = None
    seccomp_profile: str | None = None
    apparmor_profile: str | None = None
    dns: tuple[str, ...] | None = None
    extra_hosts: tuple[str, ...] | None = None
    binds: tuple[str, ...] | None = None


class SandboxPruneConfig(ConfigSection):
    """When a sandbox is removed: after so long without a command, and at so great an age."""

    idle_hours: NonNegativeInt | None = None
    max_age_days: NonNegativeInt | None = None


class SandboxNetworkConfig(ConfigSection):
    """The hosts that commands may connect to, through the gateway's proxy; without any, none."""

    allow: HostPorts = ()


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
    read_only_folders: tuple[str, ...] | None = None
