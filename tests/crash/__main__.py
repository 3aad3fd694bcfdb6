"""`make crash N=200`: rows 1 to 14 of the failure matrix, N kills at random moments for each.

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
from tests.crash.random_kills import RandomKills, Scene, Tally, scenes

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


def run(scene: Scene, timings: int, seed: int, zygote: ForkServer) -> Tally:
    """Run one scene in a directory of its own."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        storm = RandomKills(zygote.fork, Path(folder), scene, seed)
        try:
            tally = storm.run(timings)
        except AssertionError as exc:
            tally = storm.tally
            tally.faults.append(str(exc))
        finally:
            storm.rig.close()
    return tally


def line(scene: Scene, tally: Tally) -> str:
    counts = (len(tally.lost), len(tally.doubled), tally.unknown)
    cells = (
        scene.row,
        scene.flavour,
        tally.timings,
        tally.kills,
        tally.offered,
        tally.resumed,
        *counts,
    )
    return _row(*cells, f"{tally.worst_s:.1f}")


def _row(*cells: object) -> str:
    return (
        f"| {cells[0]!s:>3} | {cells[1]!s:<10} | "
        + " | ".join(f"{cell!s:>8}" for cell in cells[2:])
        + " |"
    )


def main() -> None:
    """Run the scenes, print the results and set the exit status."""
    parser = argparse.ArgumentParser(prog="make crash")
    parser.add_argument("timings", nargs="?", type=int, default=200, help="for each row")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--row", type=int, action="append", help="only this row")
    options = parser.parse_args()
    chosen = [scene for scene in scenes() if not options.row or scene.row in options.row]
    print(f"seed {options.seed}, {options.timings} timings for each row", flush=True)
    own, zygotes = local(), list[ForkServer]()

    def work(scene: Scene) -> Tally:
        if not hasattr(own, "zygote"):
            own.zygote = ForkServer()
            zygotes.append(own.zygote)
        kinds = sum(other.row == scene.row for other in scenes())
        return run(scene, -(-options.timings // kinds), options.seed, own.zygote)

    print(_row(*HEAD), flush=True)
    bad = list[str]()
    try:
        with ThreadPoolExecutor(WORKERS) as pool:
            for scene, tally in zip(chosen, pool.map(work, chosen), strict=True):
                print(line(scene, tally), flush=True)
                if not tally.is_good:
                    bad.append(f"row {scene.row}, {scene.flavour}: {tally}")
    finally:
        for zygote in zygotes:
            zygote.close()
    print("\n".join(bad))
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
