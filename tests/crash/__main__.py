"""`make crash N=200`: rows 1 to 14 and 56 of the failure matrix, N random kills for each.

Prints one line for each row and each kind of service; exits with status 1 when a message was lost,
doubled, or executed twice. The seed is printed, so that a failing run can be repeated.
"""

import argparse
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import local

from tests.crash.harness import ForkServer
from tests.crash.random_kills import KillResults, KillScenario, RandomKills, kill_scenarios

WORKERS = 2
HEAD = (
    "row",
    "service",
    "timings",
    "kills",
    "messages",
    "resumed",
    "lost",
    "doubled",
    "unknown",
    "worst s",
)


def run(scenario: KillScenario, timings: int, seed: int, fork_server: ForkServer) -> KillResults:
    """Run one scenario in a directory of its own."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        kills = RandomKills(fork_server.fork, Path(folder), scenario, seed)
        try:
            results = kills.run(timings)
        except AssertionError as exc:
            results = kills.results
            results.faults.append(str(exc))
        finally:
            kills.rig.close()
    return results


def line(scenario: KillScenario, results: KillResults) -> str:
    counts = (len(results.lost), len(results.doubled), results.unknown)
    cells = (
        scenario.row,
        scenario.flavour,
        results.timings,
        results.kills,
        results.offered,
        results.resumed,
        *counts,
    )
    return _row(*cells, f"{results.worst_s:.1f}")


def _row(*cells: object) -> str:
    return (
        f"| {cells[0]!s:>3} | {cells[1]!s:<10} | "
        + " | ".join(f"{cell!s:>8}" for cell in cells[2:])
        + " |"
    )


def main() -> None:
    """Run the scenarios, print the results and set the exit status."""
    parser = argparse.ArgumentParser(prog="make crash")
    parser.add_argument("timings", nargs="?", type=int, default=200, help="for each row")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--row", type=int, action="append", help="only this row")
    options = parser.parse_args()
    chosen = [
        scenario for scenario in kill_scenarios() if not options.row or scenario.row in options.row
    ]
    print(f"seed {options.seed}, {options.timings} timings for each row", flush=True)
    own, fork_servers = local(), list[ForkServer]()

    def work(scenario: KillScenario) -> KillResults:
        if not hasattr(own, "fork_server"):
            own.fork_server = ForkServer()
            fork_servers.append(own.fork_server)
        kinds = sum(other.row == scenario.row for other in kill_scenarios())
        return run(scenario, -(-options.timings // kinds), options.seed, own.fork_server)

    print(_row(*HEAD), flush=True)
    bad = list[str]()
    try:
        with ThreadPoolExecutor(WORKERS) as pool:
            for scenario, results in zip(chosen, pool.map(work, chosen), strict=True):
                print(line(scenario, results), flush=True)
                if not results.is_good:
                    bad.append(f"row {scenario.row}, {scenario.flavour}: {results}")
    finally:
        for fork_server in fork_servers:
            fork_server.close()
    print("\n".join(bad))
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
