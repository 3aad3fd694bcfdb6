"""Load and run attack cases."""

import json
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

Case: TypeAlias = Mapping[str, Any]


class NotRunError(Exception):
    """The case attacks a part that is not implemented; the text says which."""


Judge: TypeAlias = Callable[[Case], str]  # empty if the outcome is as expected, else the outcome
World: TypeAlias = Callable[[], AbstractContextManager[Judge]]  # the fixture of a category


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one case."""

    id: str
    problem: str = ""
    not_run: str = ""


def read_cases(path: Path) -> dict[str, list[Case]]:
    """Return the cases of a file by category."""
    tree = json.loads(path.read_text(encoding="utf-8"))
    cases: dict[str, list[Case]] = tree["cases"]
    return cases


def try_all(cases: list[Case], world: World) -> list[Outcome]:
    """Run every case with one fixture, each on its own."""
    with world() as judge:
        return [_try(case, judge) for case in cases]


def _try(case: Case, judge: Judge) -> Outcome:
    try:
        return Outcome(case["id"], problem=judge(case))
    except NotRunError as why:
        return Outcome(case["id"], not_run=str(why))
    except Exception as exc:  # noqa: BLE001 - a crash is a successful attack
        return Outcome(case["id"], problem=f"crashed with {type(exc).__name__}: {exc}")
