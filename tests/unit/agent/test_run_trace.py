"""The trace of a run: its steps, and that it stays small whatever a run does."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from homarus.agent.run_trace import MAX_STEPS, RunTrace
from homarus.agent.usage_recorder import ProviderCall
from homarus.core.event import (
    AttemptFailed,
    CompactionEnded,
    CompactionStarted,
    EventData,
    TextAdded,
    ToolEnded,
    ToolStarted,
)
from homarus.core.message import Text, ToolCall, ToolResult, Usage
from homarus.sessions.run_queue import QueuePlace
from homarus.store.traces import MAX_TRACE_CHARS
from homarus.store.transcript_codec import dump_json
from homarus.testing.clock import FakeClock


def make(clock: FakeClock | None = None, *ids: str) -> RunTrace:
    return RunTrace("run-1", "agent:main:main", ids or ("run-1",), clock or FakeClock())


def steps(trace: RunTrace) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = trace.snapshot()["steps"]
    return found


async def test_tool_call_records_decision_approval_and_result_size() -> None:
    clock = FakeClock()
    trace = make(clock)
    trace.on_event(ToolStarted(ToolCall("c1", "exec", {"command": "secret words"})))
    trace.on_decision("c1", "ask", "tools.ask")
    await clock.advance(2.0)
    trace.on_call_start("c1", "approval-1")
    await clock.advance(0.5)
    trace.on_event(ToolEnded(ToolResult("c1", "exec", (Text("12345"),))))
    (step,) = steps(trace)
    assert (step["name"], step["decision"], step["approval"]) == ("exec", "ask", "approval-1")
    assert (step["approvalMs"], step["ms"], step["chars"]) == (2_000, 2_500, 5)
    assert step["outcome"] == "ok" and "secret words" not in str(trace.snapshot())


def test_model_calls_count_attempts_tokens_and_cost() -> None:
    trace = make()
    trace.on_request(1_234)
    trace.on_model_call(ProviderCall("a", "m", Usage(), "busy", 10))
    trace.on_event(AttemptFailed("a", "m", "provider.overloaded", "busy", "b/n", 0.5))
    trace.on_model_call(ProviderCall("b", "n", Usage(input=5, output=2, cost=0.25), "", 30, 12))
    failed, fallback, answered = steps(trace)
    assert failed["error"] == "busy" and failed["attempt"] == 1 and failed["ttfbMs"] is None
    assert fallback["next"] == "b/n" and fallback["waitMs"] == 500
    assert answered["attempt"] == 2 and answered["promptTokens"] == 1_234
    assert trace.totals == {
        "modelCalls": 2,
        "modelErrors": 1,
        "input": 5,
        "output": 2,
        "cost": 0.25,
    }


async def test_queue_place_gives_time_of_submission() -> None:
    clock = FakeClock()
    submitted_s = clock.monotonic()
    await clock.advance(3.0)
    trace = make(clock)
    trace.set_place(QueuePlace("collect", submitted_s, 2), "main")
    data = trace.snapshot()
    assert data["mode"] == "collect" and data["merged"] == 2 and data["lane"] == "main"
    assert data["times"]["started"] - data["times"]["submitted"] == 3_000


async def test_compaction_after_many_steps_gets_its_duration() -> None:
    clock = FakeClock()
    trace = make(clock)
    for number in range(3 * MAX_STEPS):
        trace.on_event(ToolStarted(ToolCall(f"c{number}", "read", {})))
    trace.on_event(CompactionStarted())
    await clock.advance(1.0)
    trace.on_event(CompactionEnded(will_retry=True))
    assert steps(trace)[-1]["ms"] == 1_000
    assert len(steps(trace)) == 2 * MAX_STEPS and trace.snapshot()["omitted"] == MAX_STEPS + 1


_TEXT = st.text(max_size=400)
_EVENTS = st.one_of(
    st.builds(lambda id_, name: ToolStarted(ToolCall(id_, name, {})), _TEXT, _TEXT),
    st.builds(lambda id_, name: ToolEnded(ToolResult(id_, name, (Text(name),))), _TEXT, _TEXT),
    st.builds(AttemptFailed, _TEXT, _TEXT, _TEXT, _TEXT, _TEXT),
    st.just(CompactionStarted()),
    st.just(TextAdded("words")),
)


@settings(max_examples=60, deadline=None)
@given(
    events=st.lists(_EVENTS, max_size=40),
    ids=st.lists(_TEXT, min_size=1, max_size=40),
    model=_TEXT,
    error=_TEXT,
    times=st.integers(1, 8),
)
def test_record_of_any_run_is_bounded(
    events: list[EventData], ids: list[str], model: str, error: str, times: int
) -> None:
    trace = make(None, *ids)
    trace.set_fact(model=model, agent=model, thinking=model)
    for _ in range(times):
        for event in events:
            trace.on_event(event)
        trace.on_model_call(ProviderCall(model, model, Usage(input=1), error, 5, 2))
        trace.on_decision(model, "ask", error)
    record = trace.to_record("failed", error)
    assert len(dump_json(record.data)) <= MAX_TRACE_CHARS
    assert record.data["times"]["settled"] >= record.at_ms
    assert record.data["totals"]["modelCalls"] == times
