"""Attack cases, and what judges them."""

import json
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

Case: TypeAlias = Mapping[str, Any]


class NotRun(Exception):
    """The case is about a part that has no entry point yet; the text says which."""


Judge: TypeAlias = Callable[[Case], str]  # empty: as expected; else what happened instead
World: TypeAlias = Callable[[], AbstractContextManager[Judge]]  # what a category's cases need


@dataclass(frozen=True, slots=True)
class Outcome:
    """One case, tried."""

    id: str
    problem: str = ""
    not_run: str = ""


def read_cases(path: Path) -> dict[str, list[Case]]:
    """A file's cases by category."""
    tree = json.loads(path.read_text(encoding="utf-8"))
    cases: dict[str, list[Case]] = tree["cases"]
    return cases


def try_all(cases: list[Case], world: World) -> list[Outcome]:
    """Every case in one world, each by itself."""
    with world() as judge:
        return [_try(case, judge) for case in cases]


def _try(case: Case, judge: Judge) -> Outcome:
    try:
        return Outcome(case["id"], problem=judge(case))
    except NotRun as why:
        return Outcome(case["id"], not_run=str(why))
    except Exception as exc:  # noqa: BLE001 - a crash is what the case was looking for
        return Outcome(case["id"], problem=f"crashed with {type(exc).__name__}: {exc}")
