"""Fault points: what a variable asks for, and when it happens."""

import errno
import time

import pytest

from homarus.core import faults
from homarus.core.errors import UserError
from homarus.core.faults import InjectedFaultError, fault_point, parse_faults


def test_fault_point_disabled_does_nothing() -> None:
    for point in faults.POINTS:
        fault_point(point)


@pytest.mark.parametrize(
    ("text", "passes"),
    [
        ("run.begun:raise", [True, False, False]),
        ("run.begun:raise:2", [False, True, False]),
        ("run.begun:raise:2+", [False, True, True]),
    ],
)
def test_fault_point_acts_at_the_configured_pass(
    text: str, passes: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(faults, "_faults", parse_faults(text))
    happened = []
    for _ in passes:
        try:
            fault_point("run.begun")
            happened.append(False)
        except InjectedFaultError:
            happened.append(True)
    assert happened == passes


@pytest.mark.parametrize(("action", "code"), [("enospc", errno.ENOSPC), ("eio", errno.EIO)])
def test_fault_point_disk_actions_raise_real_os_errors(
    action: str, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(faults, "_faults", parse_faults(f"store.commit:{action}"))
    with pytest.raises(OSError, match=r".") as caught:
        fault_point("store.commit")
    assert caught.value.errno == code


def test_fault_point_delay_actions_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    monkeypatch.setattr(faults, "_faults", parse_faults("run.begun:delay, reply.saved:slow:1+"))
    for point in ("run.begun", "reply.saved", "reply.saved"):
        fault_point(point)
    assert slept == [faults.DELAY_S, faults.SLOW_S, faults.SLOW_S]


@pytest.mark.parametrize("text", ["nowhere:raise", "run.begun", "run.begun:explode", "a:b:c"])
def test_parse_faults_invalid_raises_error_with_choices(text: str) -> None:
    with pytest.raises(UserError, match=r"point:action") as caught:
        parse_faults(text)
    assert "run.begun" in caught.value.fix
