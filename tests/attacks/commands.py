"""`exec_environment` and `exec_question`: variables and characters in a model's command."""

import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager

from homarus.core.errors import ToolError
from homarus.tools.exec.approval import describe_command
from homarus.tools.exec.environment import build_environment
from tests.attacks.cases import Case, Judge

OWNER = {"PATH": "/usr/bin:/bin", "HOME": "/home/me"}


@contextmanager
def environment_world() -> Iterator[Judge]:
    """Build the environment that a command would get; no command runs."""
    yield _judge_environment


@contextmanager
def question_world() -> Iterator[Judge]:
    """Format the question that the person would see."""
    yield _judge_question


def _judge_environment(case: Case) -> str:
    given = dict(case["env"])
    if case["from"] == "owner":
        passed = build_environment({}, OWNER | given)
        left = {name: value for name, value in given.items() if passed.get(name) == value}
    else:
        try:
            left = build_environment(given, OWNER)
        except ToolError:
            left = {}
    is_allowed = bool(left)
    return "" if is_allowed == (case["expected"] == "allow") else f"passed {sorted(left)}"


def _judge_question(case: Case) -> str:
    shown = describe_command(
        str(case["command"]), folder="/ws", env=dict(case.get("env", {})), timeout_s=1
    )
    hidden = [ch for ch in shown if not ch.isprintable() and ch != "\n"]
    reordered = [ch for ch in shown if unicodedata.bidirectional(ch) in {"R", "AL", "AN"}]
    if hidden or reordered:
        return f"shows {''.join(hidden + reordered)!a}"
    facts = [line for line in shown.split("\n") if not line.startswith("    ")]
    if len(facts) != 3 + len(case.get("env", {})):
        return "a value imitates a fact"
    return "" if str(case["shown"]) in shown else f"shows {shown!r}"
