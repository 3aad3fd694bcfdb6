"""A measured figure, and how to measure one without catching the machine's noise."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Figure:
    """One number with the name it has in limits.toml."""

    name: str
    value: float
    unit: str
    note: str = ""


def child_cpu_s(command: Sequence[str], env: Mapping[str, str] | None = None) -> float:
    """CPU seconds, user and system, that one run of a command takes."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, env=env) as child:
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        sys.exit(f"bench: {' '.join(command)} exited with {child.returncode}")
    return usage.ru_utime + usage.ru_stime


def best_of(times: int, measure: Callable[[], float]) -> float:
    """The smallest of several: noise only ever adds."""
    return min(measure() for _ in range(times))


class CpuClock:
    """CPU seconds of this process, all its threads included, since it was made."""

    def __init__(self) -> None:
        self._start = time.process_time()

    def spent_s(self) -> float:
        return time.process_time() - self._start


def rss_mb() -> float:
    """Resident memory of this process now."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def private_env(home: Path) -> dict[str, str]:
    """An environment that sees nothing of the person's own files and keys."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
    return {**kept, "HOME": str(home), "OPENCLAW_STATE_DIR": str(home / "state")}
