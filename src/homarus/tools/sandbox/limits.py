"""Translate the limits of the config into those of a sandbox. Pure."""

from typing import Final

from homarus.config.sandbox_schema import ContainerConfig, UlimitConfig
from homarus.core.errors import ConfigError, SandboxError
from homarus.core.units import parse_byte_size
from homarus.tools.sandbox.base import SandboxLimits

# Names of `ulimit` in containers, and what they are called here.
_ULIMITS: Final = {"nofile": "open_files", "fsize": "file_bytes", "cpu": "cpu_s"}


def resolve_limits(container: ContainerConfig) -> SandboxLimits:
    """Return the limits of the config, the default where it has none. Raises SandboxError."""
    default, values = SandboxLimits(), dict[str, int]()
    for name, value in (container.ulimits or {}).items():
        if field := _ULIMITS.get(name):
            values[field] = _parse_ulimit(name, value)
    return SandboxLimits(
        pids=container.pids_limit or default.pids,
        memory_bytes=_parse_memory(container.memory, default.memory_bytes),
        cpu_s=values.get("cpu_s", default.cpu_s),
        cpus=container.cpus or default.cpus,
        file_bytes=values.get("file_bytes", default.file_bytes),
        open_files=values.get("open_files", default.open_files),
    )


def _parse_memory(value: str | float | None, default: int) -> int:
    if value is None:
        return default
    try:
        return parse_byte_size(str(int(value) if isinstance(value, (int, float)) else value))
    except (ValueError, ConfigError) as exc:
        raise SandboxError(
            f"sandbox.docker.memory is {value!r}, which is not a size", fix="write it like 512m"
        ) from exc


def _parse_ulimit(name: str, value: str | int | UlimitConfig) -> int:
    """Return the soft value, which holds for a process that does not raise it."""
    try:
        if isinstance(value, UlimitConfig):
            limit = value.soft if value.soft is not None else value.hard
        else:
            limit = int(str(value).partition(":")[0])
    except ValueError as exc:
        raise SandboxError(
            f"sandbox.docker.ulimits.{name} is {value!r}, which is not a number",
            fix="write it like 1024 or 1024:2048",
        ) from exc
    return max(limit or 0, 0)
