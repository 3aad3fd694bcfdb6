"""The section `sandbox` of agents: which sessions have a sandbox, and what is in it."""

import re
from collections.abc import Mapping
from math import isfinite
from pathlib import PurePosixPath
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import AfterValidator, Field, GetJsonSchemaHandler, Strict, model_validator
from pydantic_core import CoreSchema, PydanticCustomError

from homarus.config.backend_names import SANDBOX_NAMES
from homarus.config.browser_schema import SandboxBrowserConfig
from homarus.config.container_checks import (
    check_apparmor_profile,
    check_bind,
    check_network,
    check_seccomp_profile,
)
from homarus.config.section import (
    ConfigSection,
    HostPorts,
    NonNegativeInt,
    PositiveInt,
    Size,
    StrTuple,
    parsed_by,
)
from homarus.core.units import parse_byte_size

UNLIMITED: Final = 2**53  # as a limit for a process; larger numbers are not exact in JSON
# Folders inside that the workspace cannot be: every sandbox has them itself.
RESERVED_FOLDERS: Final = (
    "/agent", "/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/proc",
    "/root", "/run", "/sbin", "/sys", "/tmp", "/usr", "/var",  # noqa: S108 - inside
)  # fmt: skip
_LIMIT: Final = r"(?:[0-9]{1,16}|-1|unlimited)"
_VARIABLE: Final = r"[A-Za-z_][A-Za-z0-9_]{0,127}"


def _problem(message: str) -> PydanticCustomError:
    return PydanticCustomError("sandbox", "{message}", {"message": message})


def _check_workdir(path: str) -> str:
    """Return the path of the workspace inside; raise for one that every sandbox has itself."""
    pure = PurePosixPath(path)
    if not path.startswith("/") or path.startswith("//") or ".." in pure.parts or "\0" in path:
        raise _problem(f"{path[:80]!r} is not an absolute path without '..'")
    if pure == PurePosixPath("/") or any(pure.is_relative_to(each) for each in RESERVED_FOLDERS):
        raise _problem(f"{path[:80]!r} is a folder that every sandbox has itself; use /workspace")
    return str(pure)


def _check_folders(paths: tuple[str, ...]) -> tuple[str, ...]:
    for path in paths:
        if not path.startswith(("/", "~/")) or ".." in PurePosixPath(path).parts or "\0" in path:
            raise _problem(f"{path[:80]!r} is not an absolute path without '..'")
    return paths


def _check_root(path: str) -> str:
    """Return the folder of the workspaces; raise for one in the home of a named user."""
    if "\0" in path or (path.startswith("~") and path != "~" and not path.startswith("~/")):
        raise _problem(f"{path[:80]!r} is not a path; ~/ is the home of the gateway's user")
    return path


def parse_swap_bytes(text: str) -> int:
    """Return the size of memory and swap together; -1 for no limit. Raises UserError."""
    return -1 if text.strip() in {"-1", "-1.0"} else parse_byte_size(text)


def _check_variables(values: Mapping[str, str]) -> Mapping[str, str]:
    for name, value in values.items():
        if not re.fullmatch(_VARIABLE, name):
            raise _problem(f"{name[:80]!r} is not the name of a variable")
        if "\0" in value:
            raise _problem(f"the value of {name} has a NUL character")
    return values


Binds: TypeAlias = Annotated[
    tuple[Annotated[str, parsed_by(check_bind)], ...], Strict(strict=False)
]
SwapSize: TypeAlias = Annotated[str | int | float, parsed_by(parse_swap_bytes)]


# OpenClaw 2026.9 names its backend `docker`.
BackendName: TypeAlias = Annotated[
    str,
    AfterValidator(lambda name: "oci" if name == "docker" else SANDBOX_NAMES.check(name)),
    Field(json_schema_extra=SANDBOX_NAMES.add_to),
]


class UlimitConfig(ConfigSection):
    """The soft and the hard value of one limit for a process; also as a number or `soft:hard`."""

    soft: NonNegativeInt | None = None
    hard: NonNegativeInt | None = None

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            return value
        text = str(int(value) if isinstance(value, float) and isfinite(value) else value)
        parts = [part.strip().lower() for part in text.split(":")]
        if len(parts) > 2 or not all(re.fullmatch(_LIMIT, part) for part in parts):
            raise _problem(f"{text[:80]!r} is not a limit; write for example 1024 or 1024:2048")
        numbers = [UNLIMITED if part in {"-1", "unlimited"} else int(part) for part in parts]
        return {"soft": numbers[0], "hard": numbers[-1]}

    @model_validator(mode="after")
    def _is_ordered(self) -> "UlimitConfig":
        if self.soft is not None and self.hard is not None and self.soft > self.hard:
            raise _problem(f"the soft limit {self.soft} is above the hard limit {self.hard}")
        return self

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {"anyOf": [{"type": "string"}, {"type": "number"}, handler(core_schema)]}


class ContainerConfig(ConfigSection):
    """What a command sees and may use; written for containers, obeyed by every backend it fits."""

    image: str | None = None
    container_prefix: str | None = None
    workdir: Annotated[str, AfterValidator(_check_workdir)] | None = None
    read_only_root: bool | None = None
    tmpfs: StrTuple | None = None
    network: Annotated[str, parsed_by(check_network)] | None = None
    user: str | None = None
    cap_drop: StrTuple | None = None
    env: Annotated[Mapping[str, str], AfterValidator(_check_variables)] | None = Field(
        None, repr=False
    )
    setup_command: str | None = None
    pids_limit: PositiveInt | None = None
    memory: Size | None = None
    memory_swap: SwapSize | None = None
    cpus: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    ulimits: Mapping[str, UlimitConfig] | None = None
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

    allow: HostPorts = ()


class SandboxConfig(ConfigSection):
    """Which sessions have a sandbox, what is shared in it, and what it must hold against.

    `level` is the lowest that is accepted, as it is measured; `readOnlyFolders` are further folders
    of this machine that commands and file tools may read. With `sessionToolsVisibility: spawned`,
    the default, the tools of a session in a sandbox reach only sessions that it started.
    """

    mode: Literal["off", "non-main", "all"] | None = None
    scope: Literal["session", "agent", "shared"] | None = None
    per_session: bool | None = None
    workspace_access: Literal["none", "ro", "rw"] | None = None
    workspace_root: Annotated[str, AfterValidator(_check_root)] | None = None
    docker: ContainerConfig = ContainerConfig.model_construct()
    prune: SandboxPruneConfig = SandboxPruneConfig.model_construct()
    browser: SandboxBrowserConfig = SandboxBrowserConfig.model_construct()
    backend: BackendName | None = None
    level: Literal["L1", "L2", "L3"] | None = None
    network: SandboxNetworkConfig = SandboxNetworkConfig.model_construct()
    read_only_folders: Annotated[StrTuple, AfterValidator(_check_folders)] | None = None
    session_tools_visibility: Literal["spawned", "all"] | None = None
