"""Read vector files and check one case."""

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import Parameter, signature
from pathlib import Path
from typing import Any, TypeAlias

from homarus.core.errors import HomarusError

Json: TypeAlias = Any
Adapter: TypeAlias = Callable[..., Json]


@dataclass(frozen=True, slots=True)
class Case:
    """One call and its expected result."""

    file: str
    number: int
    fn: str
    input: list[Json]
    expected: Json

    @property
    def name(self) -> str:
        return f"{self.file}-{self.number}-{self.fn}"

    @property
    def question(self) -> str:
        return f"{self.fn}({json.dumps(self.input, ensure_ascii=False)[1:-1]})"


@dataclass(frozen=True, slots=True)
class NotApplicable:
    """The case describes an internal step that has no counterpart here."""

    reason: str
    row: str


def get(options: Json, key: str, default: Json) -> Json:
    """Return an optional value; absent options, a missing key and null mean the default."""
    value = None if options is None else options.get(key)
    return default if value is None else value


def read_cases(folder: Path) -> Iterator[tuple[str, list[Case] | None]]:
    """Return the cases of every file by its name; None for a file of another format."""
    for path in sorted(folder.glob("*.json")):
        content = json.loads(path.read_text(encoding="utf-8"))
        cases = content.get("cases") if isinstance(content, dict) else None
        if not isinstance(cases, list) or not all("fn" in case for case in cases):
            yield path.stem, None
            continue
        yield (
            path.stem,
            [
                Case(path.stem, number, case["fn"], case["input"], case.get("expected"))
                for number, case in enumerate(cases)
            ],
        )


def judge(case: Case, adapter: Adapter) -> str:
    """Return an empty text if our result is the expected one, else our result."""
    # A copy for each call: a function must not change the input of another case.
    args = json.loads(json.dumps(case.input))
    raises = isinstance(case.expected, dict) and "$throws" in case.expected
    try:
        with _utc():
            actual = adapter(*args, *_absent(adapter, len(args)))
    except HomarusError as error:
        return "" if raises else f"raised {type(error).__name__}: {error}"
    if raises:
        return f"did not raise, gave {actual!r}"
    if same(actual, case.expected):
        return ""
    return f"gave {actual!r}, not {case.expected!r}"


def _absent(adapter: Adapter, given: int) -> list[None]:
    """Return None for arguments that a case does not give: there, they are undefined."""
    kinds = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    try:
        parameters = signature(adapter).parameters.values()
    except ValueError:  # a function without a signature has no optional arguments
        return []
    required = [one for one in parameters if one.kind in kinds and one.default is one.empty]
    return [None] * (len(required) - given)


@contextmanager
def _utc() -> Iterator[None]:
    """Run with UTC as local time, in which the expected values were observed."""
    before = os.environ.get("TZ")
    os.environ["TZ"] = "UTC"
    time.tzset()
    try:
        yield
    finally:
        if before is None:
            del os.environ["TZ"]
        else:
            os.environ["TZ"] = before
        time.tzset()


def same(actual: Json, expected: Json) -> bool:
    """Compare JSON values; a missing key equals null, and true is not 1."""
    if isinstance(actual, Mapping) and isinstance(expected, Mapping):
        return all(same(actual.get(key), expected.get(key)) for key in {**actual, **expected})
    if isinstance(actual, list | tuple) and isinstance(expected, list):
        return len(actual) == len(expected) and all(map(same, actual, expected))
    if isinstance(actual, bool) or isinstance(expected, bool):
        return actual is expected
    return bool(actual == expected)
