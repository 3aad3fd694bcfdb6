"""A measured figure, and how to measure one without catching the machine's noise."""

import json
import os
import statistics
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


_SAMPLE = {"messages": [{"role": "user", "text": "word " * 20, "n": n} for n in range(20)]}


def weather_ms() -> float:
    """What a fixed piece of work costs just now: on a shared machine up to twice its best."""
    started = time.process_time()
    for _ in range(20):
        counts: dict[str, int] = {}
        for message in json.loads(json.dumps(_SAMPLE))["messages"]:
            for word in message["text"].split():
                counts[word] = counts.get(word, 0) + 1
    return (time.process_time() - started) * 1000


def in_calm(samples: Sequence[tuple[float, float]]) -> tuple[float, int]:
    """The median of (weather, cost) samples that were taken in calm weather, and how many.

    Calm is what comes near the best weather of this very run.
    """
    best = min(weather for weather, _ in samples)
    calm = [cost for weather, cost in samples if weather <= 1.2 * best]
    return statistics.median(calm), len(calm)


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
