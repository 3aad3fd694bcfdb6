"""Fault points: what a variable asks for, and when it happens."""

import errno
import time

import pytest

from homarus.core import faults
from homarus.core.errors import UserError
from homarus.core.faults import Injected, fault, parse_faults


def test_a_point_that_nobody_asked_for_costs_nothing() -> None:
    for point in faults.POINTS:
        fault(point)


@pytest.mark.parametrize(
    ("text", "passes"),
    [
        ("run.begun:raise", [True, False, False]),
        ("run.begun:raise:2", [False, True, False]),
        ("run.begun:raise:2+", [False, True, True]),
    ],
)
def test_a_fault_happens_at_the_pass_it_was_asked_for(
    text: str, passes: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(faults, "_faults", parse_faults(text))
    happened = []
    for _ in passes:
        try:
            fault("run.begun")
            happened.append(False)
        except Injected:
            happened.append(True)
    assert happened == passes


@pytest.mark.parametrize(("action", "code"), [("enospc", errno.ENOSPC), ("eio", errno.EIO)])
def test_a_failing_disk_fails_as_a_real_one_would(
    action: str, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(faults, "_faults", parse_faults(f"store.commit:{action}"))
    with pytest.raises(OSError, match=r".") as caught:
        fault("store.commit")
    assert caught.value.errno == code


def test_delays_take_their_time(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    monkeypatch.setattr(faults, "_faults", parse_faults("run.begun:delay, reply.saved:slow:1+"))
    for point in ("run.begun", "reply.saved", "reply.saved"):
        fault(point)
    assert slept == [faults.DELAY_S, faults.SLOW_S, faults.SLOW_S]


@pytest.mark.parametrize("text", ["nowhere:raise", "run.begun", "run.begun:explode", "a:b:c"])
def test_a_fault_that_is_none_is_an_error_that_lists_them(text: str) -> None:
    with pytest.raises(UserError, match=r"point:action") as caught:
        parse_faults(text)
    assert "run.begun" in caught.value.fix
