"""`make scale`: row 39. A thousand sessions at once, three turns each, every reply its own.

Checked: all answered and none doubled, no reply in the wrong chat, the event loop's lag as the
gateway itself measures it, and its memory back where it was. A first round of as many sessions
fills what has a bound (SQLite's pages, loaded sessions); growth after it is a leak.
"""

import argparse
import re
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.crash.harness import Launch, Rig, SpawnedProcess, wait_for

THINK_MS = 1_000  # the model takes this long, so that all sessions are live together
LAG_MS = 100.0
GROWTH = 1.10
REST_S = 20.0
GUARD_S = 600.0
NONCE = re.compile(r"T#([0-9a-f]+)")


@dataclass(frozen=True, slots=True)
class ScaleResults:
    """The results."""

    sessions: int
    answered: int
    doubled: int
    strayed: int  # replies that carry another chat's nonce
    duration_s: float
    worst_s: float
    cpu_s: float
    lag_p99_ms: float
    lag_max_ms: float
    idle_mb: float
    before_mb: float
    after_mb: float


def measure_scale(
    launch: Launch,
    folder: Path,
    sessions: int,
    *,
    turns: int = 3,
    think_ms: int = THINK_MS,
    rest_s: float = REST_S,
) -> ScaleResults:
    """Let every session write, wait for its answer, and write again."""
    rig = Rig(launch, folder, concurrent=sessions)
    try:
        gateway = rig.start()
        rig.wait_ready()
        idle_mb = rss_mb(gateway.pid)
        wave(rig, sessions, "warm", think_ms)
        before_mb, before_s = rss_mb(gateway.pid), cpu_s(gateway.pid)
        started = time.monotonic()
        for _ in range(turns):
            wave(rig, sessions, "chat", think_ms)
        duration_s, used_cpu_s = time.monotonic() - started, cpu_s(gateway.pid) - before_s
        after_mb = settled_mb(gateway.pid, before_mb * GROWTH, rest_s)
        line, lags = rig.verdict(), lag(rig)
        return ScaleResults(
            sessions, len(line.answered), len(line.doubled), strayed(rig), duration_s,
            line.worst_s, used_cpu_s, *lags, idle_mb, before_mb, after_mb,
        )  # fmt: skip
    finally:
        rig.close()


def wave(rig: Rig, count: int, name: str, think_ms: int) -> None:
    """Send one message to each chat, and wait for every answer."""
    for number in range(count):
        rig.offer(f"T#{{nonce}} MOCK:delay:{think_ms} MOCK:echo", f"{name}-{number}")

    def done() -> bool:
        time.sleep(0.2)
        verdict = rig.verdict()
        return len(verdict.answered) == verdict.offered

    wait_for(done, "every session is answered", GUARD_S)


def strayed(rig: Rig) -> int:
    ledger = rig.ledger.get("/ledger")
    home = {message["nonce"]: message["chat"] for message in ledger["messages"]}
    return sum(
        home.get(nonce) != send["chat"]
        for send in ledger["sends"]
        for nonce in NONCE.findall(send["text"])
    )


def rss_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert found
    return int(found[1]) / 1000


def settled_mb(pid: int, enough_mb: float, rest_s: float) -> float:
    """Return the memory once it is small enough, or after a timeout."""
    deadline = time.monotonic() + rest_s
    while (found := rss_mb(pid)) > enough_mb and time.monotonic() < deadline:
        time.sleep(0.5)
    return found


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def lag(rig: Rig) -> tuple[float, float]:
    """Return the p99 and maximum lag in milliseconds from the gateway's own page."""
    page = rig.fetch_page("/metrics")
    values: dict[str, Any] = dict(line.rsplit(" ", 1) for line in page.splitlines() if line)

    def of(word: str) -> float:
        (found,) = [float(value) for name, value in values.items()
                    if word in name and not name.startswith("#")]  # fmt: skip
        return 1000 * found

    return of("loop_lag_p99_seconds"), of("loop_lag_max_seconds")


def main() -> None:
    """Run, print the results and set the exit status."""
    parser = argparse.ArgumentParser(prog="make scale")
    parser.add_argument("sessions", nargs="?", type=int, default=1_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        results = measure_scale(SpawnedProcess, Path(folder), options.sessions)
    wanted = 4 * results.sessions
    verdicts = {
        f"answered {results.answered} of {wanted}": results.answered == wanted,
        f"doubled {results.doubled}, in the wrong chat {results.strayed}": not (
            results.doubled or results.strayed
        ),
        f"loop lag p99 {results.lag_p99_ms:.0f} ms, longest {results.lag_max_ms:.0f} ms": (
            results.lag_p99_ms < LAG_MS
        ),
        f"memory {results.idle_mb:.0f} MB idle, {results.before_mb:.0f} MB before,"
        f" {results.after_mb:.0f} MB after": (results.after_mb <= results.before_mb * GROWTH),
    }
    print(f"{results.sessions} sessions x 3 turns in {results.duration_s:.0f} s,"
          f" {results.cpu_s:.0f} CPU-s;"
          f" the longest wait for an answer was {results.worst_s:.1f} s")  # fmt: skip
    for line, good in verdicts.items():
        print(f"{'ok ' if good else 'NOT'} {line}")
    sys.exit(not all(verdicts.values()))


if __name__ == "__main__":
    main()
