"""`python -m tests.attacks [FILE] [CATEGORY…]`: `category passed/total`; exits 1 on a failure.

Without a file, the recorded cases of `tests/data/attack-cases.json` are run. More than MAX_NOT_RUN
cases that are not run are a failure, too.
"""

import sys
from pathlib import Path

from tests.attacks.cases import read_cases, try_all
from tests.attacks.table import WORLDS

RECORDED = Path(__file__).parent.parent / "data" / "attack-cases.json"
MAX_NOT_RUN = 10


def main(argv: list[str]) -> int:
    """Print the report."""
    names_file = bool(argv) and (argv[0].endswith(".json") or "/" in argv[0])
    file = Path(argv[0]) if names_file else RECORDED
    every = read_cases(file) if file.is_file() else {}
    wanted = argv[names_file:] or list(every)
    if unknown := [name for name in wanted if name not in every] or not every:
        print(
            f"usage: python -m tests.attacks [FILE] [CATEGORY…]; not known: {unknown}",
            file=sys.stderr,
        )
        return 2
    failed: list[str] = []
    not_run = 0
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
                not_run += 1
        failed += [f"{one.id}: {one.problem}" for one in run if one.problem]
    if not_run > MAX_NOT_RUN:
        failed.append(f"{not_run} cases are not run, of at most {MAX_NOT_RUN}")
    if without:
        print(f"without an entry point yet: {', '.join(without)}")
    for text in failed:
        print(f"FAILED {text}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
