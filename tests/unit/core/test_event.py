"""Events on the wire: the envelopes the original's clients know, recorded from it."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homarus.core.event import (
    AttemptFailed,
    CommandAnswered,
    CompactionEnded,
    CompactionStarted,
    Emitter,
    ErrorNoted,
    Event,
    EventData,
    EventEncoder,
    MessageSaved,
    RunEnded,
    RunStarted,
    TextAdded,
    ThinkingAdded,
    ToolEnded,
    ToolProgressed,
    ToolStarted,
)
from homarus.core.message import Image, Message, Text, ToolCall, ToolResult, user_message

FRAMES = Path(__file__).parents[2] / "data" / "frames" / "agent-events.json"
RECORDED: dict[str, list[dict[str, Any]]] = json.loads(FRAMES.read_text(encoding="utf-8"))
CALL = ToolCall("call_1", "read", {"path": "a.md"})


def wire(
    *all_data: EventData, run: str = "r", key: str = "agent:main:main", at_ms: int = 1_000
) -> list[Any]:
    """What a client sees of a run with these facts, one millisecond apart."""
    events = list[Event]()
    ticks = iter(range(at_ms, at_ms + len(all_data)))
    emit = Emitter(run, key, events.append, lambda: next(ticks))
    for fact in all_data:
        emit(fact)
    payloads = EventEncoder()
    return [view for event in events if (view := payloads.encode(event)) is not None]


def data(*all_data: EventData) -> Any:
    """The `data` of the last envelope."""
    return wire(*all_data)[-1]["data"]


def facts_of(recorded: list[dict[str, Any]]) -> list[EventData]:
    """The facts that the recorded envelopes tell."""
    all_data = list[EventData]()
    for envelope in recorded:
        data = envelope["data"]
        call = ToolCall(data.get("toolCallId", ""), data.get("name", ""), data.get("args", {}))
        match envelope["stream"], data.get("phase"):
            case "lifecycle", "start":
                all_data.append(RunStarted())
            case "lifecycle", "end":
                all_data.append(RunEnded())
            case "assistant", None:
                all_data.append(TextAdded(data["delta"]))
            case "tool", "start":
                all_data.append(ToolStarted(call))
            case "tool", "update":
                all_data.append(ToolProgressed(call, "some output"))
            case "tool", "result":
                all_data.append(ToolEnded(ToolResult(call.id, call.name, (Text("done"),))))
            case other:
                pytest.fail(f"a recorded envelope this test does not know: {other}")
    return all_data


@pytest.mark.parametrize("name", RECORDED)
def test_encoder_recorded_run_gives_recorded_payloads(name: str) -> None:
    recorded = RECORDED[name]
    run, key = recorded[0]["runId"], recorded[0]["sessionKey"]
    ours = wire(*facts_of(recorded), run=run, key=key)
    assert len(ours) == len(recorded)
    for mine, theirs in zip(ours, recorded, strict=True):
        assert set(mine) == set(theirs) == {"runId", "seq", "stream", "ts", "data", "sessionKey"}
        for field in ("runId", "seq", "stream", "sessionKey"):
            assert mine[field] == theirs[field]
        # The recording client asked for little, so tool output was left out of its frames; `meta`
        # is an optional line for people.
        missing = set(theirs["data"]) - set(mine["data"]) - {"meta"}
        extra = set(mine["data"]) - set(theirs["data"]) - {"result", "partialResult"}
        assert (missing, extra) == (set(), set())
        for field in ("phase", "text", "delta", "name", "toolCallId", "args", "isError"):
            assert mine["data"].get(field) == theirs["data"].get(field)


def test_encoder_lifecycle_phases_have_schema_keys() -> None:
    assert data(RunStarted()) == {"phase": "start", "startedAt": 1_000}
    assert data(RunStarted("mock", "m", "low"))["thinkingLevel"] == "low"
    assert data(RunStarted(), RunEnded()) == {"phase": "end", "endedAt": 1_001}
    assert data(RunStarted(), RunEnded(error="no credit")) == {
        "phase": "error",
        "startedAt": 1_000,
        "endedAt": 1_001,
        "error": "no credit",
    }
    assert data(RunStarted(), RunEnded(aborted=True))["aborted"] is True


def test_encoder_tool_call_has_three_phases() -> None:
    named = {"name": "read", "toolCallId": "call_1"}
    assert data(ToolStarted(CALL)) == {"phase": "start", **named, "args": {"path": "a.md"}}
    shown = {"content": [{"type": "text", "text": "half"}]}
    assert data(ToolProgressed(CALL, "half")) == {
        "phase": "update",
        **named,
        "partialResult": shown,
    }
    result = ToolResult("call_1", "read", (Text("all"), Image("AAAA", "image/png")), is_error=True)
    assert data(ToolEnded(result)) == {
        "phase": "result",
        **named,
        "isError": True,
        "result": {"content": [{"type": "text", "text": "all"}]},
    }


def test_encoder_tool_result_includes_details_only_if_present() -> None:
    result = ToolResult("call_1", "exec", (Text("ok"),), details={"exitCode": 0})
    assert data(ToolEnded(result))["result"]["details"] == {"exitCode": 0}


def test_encoder_compaction_and_errors_use_own_streams() -> None:
    seen = wire(CompactionStarted(), CompactionEnded(will_retry=True), ErrorNoted("odd"))
    assert [(one["stream"], one["data"]) for one in seen] == [
        ("compaction", {"phase": "start"}),
        ("compaction", {"phase": "end", "willRetry": True}),
        ("error", {"message": "odd"}),
    ]


def test_encoder_text_restarts_with_each_assistant_message() -> None:
    seen = wire(
        TextAdded("Let me "),
        TextAdded("look."),
        MessageSaved(Message("assistant", (Text("Let me look."), CALL))),
        ToolStarted(CALL),
        TextAdded("Found."),
    )
    assert [one["data"].get("text") for one in seen] == ["Let me ", "Let me look.", None, "Found."]


def test_encoder_failed_attempt_discards_its_text() -> None:
    failed = AttemptFailed("openai", "gpt-5.2", "overloaded", "busy", "retry", wait_s=1.5)
    seen = wire(TextAdded("Half an ans"), failed, TextAdded("The answer."))
    assert (seen[1]["stream"], seen[1]["data"]["phase"]) == ("lifecycle", "fallback")
    assert seen[1]["data"]["waitMs"] == 1500
    assert seen[2]["data"]["text"] == "The answer."


def test_emitter_data_without_stream_leaves_no_gap_in_seq() -> None:
    seen = wire(
        RunStarted(),
        TextAdded("a"),
        CommandAnswered("b"),
        MessageSaved(user_message("x")),
        RunEnded(),
    )
    assert [one["seq"] for one in seen] == [1, 2, 3]


def test_encoder_thinking_is_a_stream_of_its_own() -> None:
    seen = wire(ThinkingAdded("h"), TextAdded("a"), ThinkingAdded("m"), TextAdded("b"))
    assert [(one["stream"], one["data"]) for one in seen] == [
        ("thinking", {"text": "h", "delta": "h"}),
        ("assistant", {"text": "a", "delta": "a"}),
        ("thinking", {"text": "hm", "delta": "m"}),
        ("assistant", {"text": "ab", "delta": "b"}),
    ]
    saved = MessageSaved(user_message("x"))
    assert wire(ThinkingAdded("h"), saved, ThinkingAdded("m"))[-1]["data"]["text"] == "m"


def test_encoder_text_that_names_files_has_media_urls() -> None:
    (seen,) = wire(TextAdded("Look:", ("./a.png",)))
    assert seen["data"] == {"text": "Look:", "delta": "Look:", "mediaUrls": ["./a.png"]}


anything = st.one_of(
    st.builds(RunStarted),
    st.builds(TextAdded, st.text(max_size=5)),
    st.builds(ThinkingAdded, st.text(max_size=5)),
    st.just(AttemptFailed("a", "b", "overloaded", "busy", "retry", 1.5)),
    st.just(ToolStarted(CALL)),
    st.builds(ToolProgressed, st.just(CALL), st.text(max_size=5)),
    st.just(ToolEnded(ToolResult("call_1", "read", ()))),
    st.just(MessageSaved(user_message("hello"))),
    st.builds(CompactionStarted),
    st.builds(CompactionEnded, st.booleans()),
    st.builds(ErrorNoted, st.text(max_size=5)),
    st.builds(RunEnded, st.text(max_size=5), st.booleans()),
)


@given(st.lists(anything, max_size=30))
def test_emitter_any_run_has_seq_from_one_and_json_payloads(all_data: list[EventData]) -> None:
    seen = wire(*all_data)
    assert [one["seq"] for one in seen] == list(range(1, len(seen) + 1))
    assert json.loads(json.dumps(seen)) == seen
    assert {one["stream"] for one in seen} <= {
        "lifecycle",
        "assistant",
        "thinking",
        "tool",
        "compaction",
        "error",
    }


@given(st.lists(st.text(min_size=1, max_size=5), min_size=1, max_size=20))
def test_encoder_text_is_the_concatenated_deltas(deltas: list[str]) -> None:
    seen = wire(*[TextAdded(delta) for delta in deltas])
    assert "".join(one["data"]["delta"] for one in seen) == seen[-1]["data"]["text"]
