"""A measured figure, and how to measure one despite the machine's noise."""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Figure:
    """One number with its name in limits.toml; `is_paced`: already scaled to the reference pace."""

    name: str
    value: float
    unit: str
    note: str = ""
    is_paced: bool = False


def child_cpu_s(command: Sequence[str], env: Mapping[str, str] | None = None) -> float:
    """Return the CPU seconds, user and system, of one run of a command."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, env=env) as child:
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        sys.exit(f"bench: {' '.join(command)} exited with {child.returncode}")
    return usage.ru_utime + usage.ru_stime


def best_of(times: int, measure: Callable[[], float]) -> float:
    """Return the smallest of several: noise only ever adds."""
    return min(measure() for _ in range(times))


_SAMPLE = {"messages": [{"role": "user", "text": "word " * 20, "n": n} for n in range(20)]}


def weather_ms() -> float:
    """Return the cost of a fixed piece of work now: on a shared machine up to twice its best."""
    started = time.process_time()
    for _ in range(20):
        counts: dict[str, int] = {}
        for message in json.loads(json.dumps(_SAMPLE))["messages"]:
            for word in message["text"].split():
                counts[word] = counts.get(word, 0) + 1
    return (time.process_time() - started) * 1000


# What that work costs on the machine the limits are for, under ordinary load.
USUAL_MS = 2.0


def slowness(weather: Sequence[float]) -> float:
    """Return how much slower than the reference the machine was at its best; at least 1."""
    better = statistics.quantiles(weather, n=4)[0] if len(weather) > 1 else weather[0]
    return max(1.0, better / USUAL_MS)


def at_usual_pace(figure: Figure, slow: float) -> Figure:
    """Scale a time by the fixed work's own in the same run; a fast machine gains nothing."""
    is_time = figure.unit.startswith("CPU-") or figure.unit.endswith(("ms", "/s", "-s"))
    if slow <= 1 or not is_time or figure.is_paced:
        return figure
    value = figure.value * slow if "/" in figure.unit else figure.value / slow
    note = f"{figure.value:.4g} on a machine {slow:.2f} × as slow as usual"
    return replace(figure, value=value, note=f"{note}; {figure.note}".removesuffix("; "))


class CpuClock:
    """Measures the CPU seconds of this process, with all its threads, since it was created."""

    def __init__(self) -> None:
        self._start = time.process_time()

    def spent_s(self) -> float:
        return time.process_time() - self._start


def rss_mb() -> float:
    """Return the resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def private_env(home: Path) -> dict[str, str]:
    """Return an environment without the person's own files and keys."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
    return {**kept, "HOME": str(home), "OPENCLAW_STATE_DIR": str(home / "state")}
