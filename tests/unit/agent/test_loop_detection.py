"""Loop detection: a warning first, then the end; polling is allowed."""

from typing import Any

import pytest

from homarus.agent.loop_detection import LoopDetector
from homarus.config.tools_schema import LoopDetectionConfig
from homarus.core.errors import ToolLoopError
from homarus.core.message import Image, Text, ToolCall, ToolResult


def rules(**given: Any) -> LoopDetectionConfig:
    return LoopDetectionConfig.model_validate(given)


def note(seen: LoopDetector, name: str = "exec", text: str = "out", **args: object) -> str:
    call = ToolCall("c", name, args)
    return seen.record(call, ToolResult("c", name, (Text(text),)))


def test_loop_detector_repeated_call_warns_then_stops() -> None:
    seen = LoopDetector(rules())
    warnings = [note(seen, path="a") for _ in range(19)]
    assert [at for at, text in enumerate(warnings, 1) if text] == [10, 15]
    assert "called 10 times" in warnings[9]
    seen.check_limit()
    assert "20 times" in note(seen, path="a")
    assert seen.is_stopped
    with pytest.raises(ToolLoopError, match="exec was called 20 times"):
        seen.check_limit()
    refused = seen.refusal_result(ToolCall("z", "exec", {}))
    assert refused.is_error and refused.call_id == "z"


def test_loop_detector_stays_stopped() -> None:
    seen = LoopDetector(rules(warningThreshold=1, criticalThreshold=2))
    for name in ("a", "a", "b"):
        note(seen, name)
    assert seen.is_stopped


def test_loop_detector_other_arguments_or_result_do_not_count() -> None:
    seen = LoopDetector(rules())
    for number in range(100):
        assert not note(seen, path=str(number))
        assert not note(seen, "read", text=str(number), path=str(number))
    seen.check_limit()


def test_loop_detector_argument_order_is_ignored() -> None:
    seen = LoopDetector(rules(warningThreshold=2, criticalThreshold=3))
    note(seen, a=1, b=2)
    assert note(seen, b=2, a=1)


def test_loop_detector_alternating_calls_stop() -> None:
    seen = LoopDetector(rules())
    warnings = [note(seen, "read" if n % 2 else "exec") for n in range(20)]
    assert "took turns 10 times" in warnings[9]
    with pytest.raises(ToolLoopError, match="took turns"):
        seen.check_limit()


def test_loop_detector_alternation_with_new_results_goes_on() -> None:
    seen = LoopDetector(rules())
    for number in range(60):
        note(seen, "edit", text=str(number), text_is=number)
        note(seen, "test")
    seen.check_limit()


def test_loop_detector_polling_warns_once_and_never_stops() -> None:
    seen = LoopDetector(rules())
    warnings = [note(seen, "process", text=f"{n} % done", action="poll") for n in range(100)]
    assert len([text for text in warnings if text]) == 1
    assert "waiting" in warnings[9]
    seen.check_limit()


def test_loop_detector_disabled_detectors_do_nothing() -> None:
    off = LoopDetector(rules(enabled=False))
    assert not any(note(off) for _ in range(50))
    off.check_limit()
    turns = LoopDetector(rules(detectors={"pingPong": False}))
    for n in range(50):
        note(turns, "read" if n % 2 else "exec")
    turns.check_limit()


def test_loop_detector_always_warns_before_stop() -> None:
    seen = LoopDetector(rules(warningThreshold=5, criticalThreshold=2))
    warnings = [note(seen) for _ in range(5)]
    assert warnings[4] and not seen.is_stopped
    note(seen)
    assert seen.is_stopped


def test_loop_detector_any_arguments_are_hashed() -> None:
    seen = LoopDetector(rules(warningThreshold=2, criticalThreshold=9))
    deep: dict[str, object] = {}
    for _ in range(100_000):
        deep = {"a": deep}
    image = Image("aGk=", "image/png")
    for args in (deep, {"x": "\ud800"}):
        call = ToolCall("c", "see", args, broken="{")
        seen.record(call, ToolResult("c", "see", (image,)))
        assert seen.record(call, ToolResult("c", "see", (image,)))
