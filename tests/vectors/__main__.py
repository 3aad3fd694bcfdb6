"""`python -m tests.vectors DIR`: report how many cases of DIR/*.json pass; exit 1 on a failure."""

import sys
from collections import Counter
from pathlib import Path

from tests.vectors.cases import Case, judge, read_cases
from tests.vectors.table import NOT_APPLICABLE, TABLE

# Errors of a wrong function fail one case and do not end the report.
_CRASHES = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


def main(argv: list[str]) -> int:
    """Print the report."""
    folder = Path(argv[0]) if len(argv) == 1 else None
    if folder is None or not folder.is_dir():
        print("usage: python -m tests.vectors DIR (a folder of vector files)", file=sys.stderr)
        return 2
    files = list(read_cases(folder))
    cases = [case for _, found in files for case in found or []]
    failures = report_mapped(cases)
    report_rest(cases, [name for name, found in files if found is None])
    for case, problem in failures:
        print(f"FAILED {case.name}: {case.question} {problem}")
    return 1 if failures else 0


def report_mapped(cases: list[Case]) -> list[tuple[Case, str]]:
    """Print `fn passed/total` for each mapped function; return the failures."""
    total: Counter[str] = Counter()
    missed: Counter[str] = Counter()
    failures: list[tuple[Case, str]] = []
    for case in cases:
        if case.fn not in TABLE or case.question in NOT_APPLICABLE:
            continue
        total[case.fn] += 1
        try:
            problem = judge(case, TABLE[case.fn])
        except _CRASHES as error:
            problem = f"crashed with {type(error).__name__}: {error}"
        if problem:
            missed[case.fn] += 1
            failures.append((case, problem))
    for fn, count in total.items():
        print(f"{fn} {count - missed[fn]}/{count}")
    print(f"all mapped {total.total() - len(failures)}/{total.total()}")
    return failures


def report_rest(cases: list[Case], without: list[str]) -> None:
    """Print unmapped functions by file, exceptions with their reason, and files without cases."""
    unmapped: dict[str, Counter[str]] = {}
    for case in cases:
        if case.fn not in TABLE:
            unmapped.setdefault(case.file, Counter())[case.fn] += 1
    print(f"\nnot mapped yet: {sum(count.total() for count in unmapped.values())} cases")
    for name, counts in unmapped.items():
        print(f"  {name}: " + ", ".join(f"{fn} ({count})" for fn, count in counts.items()))
    print(f"not applicable: {len(NOT_APPLICABLE)} cases")
    for question, exempt in NOT_APPLICABLE.items():
        print(f"  {question}: {exempt.reason} (decisions: {exempt.row})")
    if without:
        print(f"without cases: {', '.join(without)}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
