"""`python -m tests.attacks FILE [CATEGORY…]`: `category passed/total`; exits 1 on a failure."""

import sys
from pathlib import Path

from tests.attacks.cases import read_cases, try_all
from tests.attacks.table import WORLDS


def main(argv: list[str]) -> int:
    """Print the report."""
    if not argv or not Path(argv[0]).is_file():
        print("usage: python -m tests.attacks FILE [CATEGORY…]", file=sys.stderr)
        return 2
    every = read_cases(Path(argv[0]))
    wanted = argv[1:] or list(every)
    failed: list[str] = []
    without: list[str] = []
    for name in wanted:
        if name not in WORLDS:
            without.append(f"{name} ({len(every.get(name, []))})")
            continue
        tried = try_all(every.get(name, []), WORLDS[name])
        run = [outcome for outcome in tried if not outcome.not_run]
        print(f"{name} {sum(not one.problem for one in run)}/{len(run)}", flush=True)
        for one in tried:
            if one.not_run:
                print(f"  {one.id} not run: {one.not_run}")
        failed += [f"{one.id}: {one.problem}" for one in run if one.problem]
    if without:
        print(f"without an entry point yet: {', '.join(without)}")
    for text in failed:
        print(f"FAILED {text}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
