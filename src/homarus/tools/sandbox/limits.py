"""The limits of the config as numbers: `memory: "1g"`, `ulimits.nofile`, and the others.

The values were checked with the config, so that nothing here can fail on one.
"""

from collections.abc import Mapping
from typing import Final

from homarus.config.sandbox_schema import (
    UNLIMITED,
    ContainerConfig,
    UlimitConfig,
    parse_swap_bytes,
)
from homarus.core.units import parse_byte_size
from homarus.tools.sandbox.base import SandboxLimits

_DEFAULTS: Final = SandboxLimits()


def resolve_limits(container: ContainerConfig) -> SandboxLimits:
    """Return what one command may use by the section `docker`; defaults for what it lacks.

    Of a soft and a hard limit the soft one holds, and cannot be raised inside. `ulimits.nproc` and
    `pidsLimit` are one limit: the smaller holds.
    """
    ulimits = container.ulimits or {}
    memory = _DEFAULTS.memory_bytes
    if container.memory is not None:
        memory = parse_byte_size(str(container.memory))
    swap = _DEFAULTS.swap_bytes
    if container.memory_swap is not None:
        total = parse_swap_bytes(str(container.memory_swap))
        swap = -1 if total < 0 else max(0, total - memory)
    pids = container.pids_limit or _DEFAULTS.pids
    processes = _limit(ulimits, "nproc", 0)
    return SandboxLimits(
        pids=min(pids, processes) if processes else pids,
        memory_bytes=memory,
        cpu_s=_limit(ulimits, "cpu", _DEFAULTS.cpu_s),
        cpus=container.cpus or _DEFAULTS.cpus,
        file_bytes=_limit(ulimits, "fsize", _DEFAULTS.file_bytes),
        disk_bytes=_DEFAULTS.disk_bytes,
        open_files=_limit(ulimits, "nofile", _DEFAULTS.open_files),
        swap_bytes=swap,
    )


def _limit(ulimits: Mapping[str, UlimitConfig], name: str, default: int) -> int:
    """Return a limit for one process, 0 for none; a limit of 0 in the config becomes 1."""
    given = ulimits.get(name)
    values = [each for each in (given.soft, given.hard) if each is not None] if given else []
    if not values:
        return default
    return 0 if min(values) >= UNLIMITED else max(min(values), 1)
