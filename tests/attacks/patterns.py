"""`regex_dos`: patterns of users and of the config, in every place that has such patterns."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from homarus.core.errors import ToolError, UserError
from homarus.core.regex import compile_fullmatch, compile_redactions, compile_search
from homarus.tools.matcher import make_matcher
from tests.attacks.cases import Case, Judge

TRIES = 3  # the fastest counts: other programs use the machine too


@contextmanager
def world() -> Iterator[Judge]:
    """Yield a judge of mention patterns, rules for arguments, redactions, and `grep`."""
    compile_search("a")("a")  # RE2 is loaded at its first use
    yield _judge


def _judge(case: Case) -> str:
    places: dict[str, Callable[[str, str], object]] = {
        "mentionPatterns": lambda pattern, text: compile_search(pattern)(text),
        "argPattern": lambda pattern, text: compile_fullmatch(pattern)(text),
        "redactPatterns": lambda pattern, text: compile_redactions([pattern])(text),
        "grep": _grep,
    }
    slow = []
    text = case.get("input") or "".join(part * times for part, times in case["input_parts"])
    for name, match in places.items():
        spent_ms = min(_time_ms(match, case["pattern"], text) for _ in range(TRIES))
        if spent_ms > case["budget_ms"]:
            slow.append(f"{name} took {spent_ms:.0f} ms")
    return "; ".join(slow)


def _time_ms(match: Callable[[str, str], object], pattern: str, text: str) -> float:
    started_s = time.thread_time()
    try:
        match(pattern, text)
    except (UserError, ToolError):
        return 0.0  # rejected
    return (time.thread_time() - started_s) * 1000


def _grep(pattern: str, text: str) -> None:
    matcher = make_matcher(pattern, literal=False, ignore_case=False, stop=threading.Event())
    matcher.find_lines(text, 10)
