"""What clients see of runs."""

import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from homarus.core.bus import Bus
from homarus.core.event import (
    AttemptFailed,
    Emitter,
    EventData,
    MessageSaved,
    RunEnded,
    RunStarted,
    TextAdded,
    ThinkingAdded,
    ToolEnded,
    ToolProgressed,
    ToolStarted,
)
from homarus.core.message import Json, Message, Origin, Text, ToolCall, ToolResult
from homarus.gateway.event_payloads import PAYLOADS
from homarus.gateway.events import DELTA_S, EventBroadcaster
from homarus.testing.clock import FakeClock
from tests.unit.agent.builders import streamed_events
from tests.waiting import settle

FRAMES = Path(__file__).parents[2] / "data" / "frames"
KEY = "agent:main:main"
CALL = ToolCall("call_1", "read", {"path": "AGENTS.md", "limit": 5})
RESULT = ToolResult("call_1", "read", (Text("secret text"),))


class Sent:
    """Keeps what would go to clients: (who, event, payload, may be dropped).

    `newest` is what those of the newest protocol get beside: (who, additions).
    """

    def __init__(self) -> None:
        self.all: list[tuple[str, str, dict[str, Json], bool]] = []
        self.newest: list[tuple[str, Mapping[str, Json]]] = []

    def broadcast(
        self,
        event: str,
        payload: Json,
        *,
        drop_if_slow: bool = False,
        newest: Mapping[str, Json] | None = None,
    ) -> None:
        self.all.append(("*", event, json.loads(json.dumps(payload)), drop_if_slow))
        self.newest += [("*", newest)] if newest else []

    def send(
        self, conn_id: str, event: str, payload: Json, *, newest: Mapping[str, Json] | None = None
    ) -> None:
        self.all.append((conn_id, event, json.loads(json.dumps(payload)), False))
        self.newest += [(conn_id, newest)] if newest else []

    def of(self, event: str, who: str = "*") -> list[dict[str, Json]]:
        return [payload for to, name, payload, _ in self.all if (to, name) == (who, event)]


class Harness:
    """A bus, its reader and what it sent, with time in hand."""

    def __init__(self, *, verbose: bool = False) -> None:
        self.bus, self.sent, self.clock = Bus(), Sent(), FakeClock()
        self._verbose = verbose
        self.events = EventBroadcaster(
            self.sent, self.clock, later=self._later, verbose=self._is_verbose
        )
        self._group: asyncio.TaskGroup | None = None

    async def _is_verbose(self, _key: str) -> bool:
        return self._verbose

    def _later(self, seconds: float, call: Callable[[], None]) -> None:
        async def wait() -> None:
            await self.clock.sleep(seconds)
            call()

        assert self._group
        self._group.create_task(wait())

    def emitter(self, run_id: str = "run-1", key: str = KEY) -> Emitter:
        return Emitter(run_id, key, self.bus.publish, self.clock.now_ms)

    def play(self, scene: Callable[["Harness"], Coroutine[Any, Any, None]]) -> Sent:
        async def main() -> None:
            with self.bus.subscribe(100_000) as news:
                async with asyncio.TaskGroup() as group:
                    self._group = group
                    group.create_task(self.events.follow(news))
                    await scene(self)
                    await self.settle()
                    await self.clock.advance(1)
                    news.close()

        asyncio.run(main())
        return self.sent

    async def settle(self) -> None:
        await settle(20)

    async def pass_time(self, seconds: float) -> None:
        await self.clock.advance(seconds)


def said(text: str) -> MessageSaved:
    return MessageSaved(Message("assistant", (Text(text),), 1))


def play(
    *facts: EventData,
    gap_s: float = 0.0,
    verbose: bool = False,
    joined: bool = False,
    results: bool = False,
) -> Sent:
    """One run of these facts, each `gap_s` after the other."""

    async def scene(stage: Harness) -> None:
        emit = stage.emitter()
        if joined:
            stage.events.subscribe_tools("run-1", "conn-1")
        if results:
            stage.events.add_result_receiver("conn-1")
        for fact in facts:
            emit(fact)
            if gap_s:
                await stage.settle()
                await stage.pass_time(gap_s)

    return Harness(verbose=verbose).play(scene)


SHORT = (
    RunStarted(),
    TextAdded("Hello from"),
    TextAdded(" the mock"),
    TextAdded(" model."),
    said("Hello from the mock model."),
    RunEnded(),
)


def test_run_sends_start_text_end_and_one_final_chat_event() -> None:
    sent = play(*SHORT, gap_s=0.01)
    agent = [(p["stream"], p["data"].get("phase") or p["data"]["text"]) for p in sent.of("agent")]
    assert agent == [
        ("lifecycle", "start"),
        ("assistant", "Hello from"),
        ("assistant", "Hello from the mock"),
        ("assistant", "Hello from the mock model."),
        ("lifecycle", "end"),
    ]
    assert [p["seq"] for p in sent.of("agent")] == [1, 2, 3, 4, 5]
    chats = sent.of("chat")
    assert [chat["state"] for chat in chats] == ["delta", "final"]
    assert chats[-1]["message"]["content"] == [
        {"type": "text", "text": "Hello from the mock model."}
    ]
    assert sent.all[-2][2]["data"]["phase"] == "end"  # the run's end before the last word


def shape(value: Json) -> Json:
    if isinstance(value, dict):
        return {name: shape(inner) for name, inner in value.items()}
    return (
        [shape(inner) for inner in value[:1]] if isinstance(value, list) else type(value).__name__
    )


@pytest.mark.parametrize("name", ["chat.send-turn", "agent-turn", "chat.send-turn-tool-read"])
def test_event_frames_have_the_shape_of_openclaw(name: str) -> None:
    captured = json.loads((FRAMES / f"{name}.json").read_text(encoding="utf-8"))
    frames = [entry["frame"] for entry in captured if entry["dir"] == "in"]
    theirs = [f for f in frames if f.get("event") in {"agent", "chat"}]
    tool = (ToolStarted(CALL), ToolEnded(RESULT)) if "tool" in name else ()
    sent = play(SHORT[0], *tool, *SHORT[1:], gap_s=0.01, joined=True)
    ours = [(event, payload) for _, event, payload, _ in sent.all]
    assert [event for event, _ in ours] == [frame["event"] for frame in theirs]
    for (_, payload), frame in zip(ours, theirs, strict=True):
        assert shape(payload) == shape(frame["payload"])


def test_buffered_text_is_sent_in_one_event() -> None:
    sent = play(RunStarted(), *(TextAdded(f"w{n} ") for n in range(500)), said("x"), RunEnded())
    texts = [p["data"] for p in sent.of("agent") if p["stream"] == "assistant"]
    assert len(texts) == 1 and texts[0]["text"] == texts[0]["delta"]
    assert texts[0]["text"].startswith("w0 w1 ") and texts[0]["text"].endswith("w499 ")
    assert [p["seq"] for p in sent.of("agent")] == [1, 2, 3]


def test_chat_deltas_come_once_per_150_ms_and_the_last_is_sent() -> None:
    facts: list[EventData] = [RunStarted(), *(TextAdded(f"{n} ") for n in range(100))]

    async def scene(stage: Harness) -> None:
        emit = stage.emitter()
        for fact in facts:
            emit(fact)
            await stage.pass_time(0.01)
        await stage.pass_time(1.0)  # the model pauses
        assert stage.sent.of("chat")[-1]["message"]["content"][0]["text"].endswith("99 ")
        emit(said("done"))
        emit(RunEnded())

    sent = Harness().play(scene)
    deltas = [chat for chat in sent.of("chat") if chat["state"] == "delta"]
    stamps = [chat["message"]["timestamp"] for chat in deltas]
    assert all(b - a >= DELTA_S * 1000 for a, b in pairwise(stamps))
    assert 6 <= len(deltas) <= 9


def test_deltas_may_be_dropped_and_ends_may_not() -> None:
    sent = play(*SHORT, gap_s=0.2)
    for _, event, payload, droppable in sent.all:
        delta = payload.get("stream") == "assistant" or payload.get("state") == "delta"
        assert droppable is delta, (event, payload)


def test_failed_run_ends_with_error_and_stopped_one_with_its_text() -> None:
    failed = play(RunStarted(), TextAdded("half"), RunEnded(error="no model answered")).of("chat")
    assert [c["state"] for c in failed if c["state"] != "delta"] == ["error"]
    assert failed[-1]["errorMessage"] == "no model answered" and "message" not in failed[-1]
    stopped = play(RunStarted(), TextAdded("half an"), said("half an"), RunEnded(aborted=True))
    last = stopped.of("chat")[-1]
    assert (last["state"], last["stopReason"]) == ("aborted", "rpc")
    assert last["message"]["content"][0]["text"] == "half an"
    assert stopped.of("agent")[-1]["data"]["aborted"] is True


def test_silent_reply_sends_final_without_message() -> None:
    sent = play(RunStarted(), *streamed_events(["NO_", "REPLY"]), said("NO_REPLY"), RunEnded())
    assert [(c["state"], "message" in c) for c in sent.of("chat")] == [("final", False)]


def test_final_message_is_the_last_one_after_tool_calls() -> None:
    sent = play(
        RunStarted(),
        TextAdded("Let me look."),
        said("Let me look."),
        ToolStarted(CALL),
        ToolEnded(RESULT),
        TextAdded("Done."),
        said("Done."),
        RunEnded(),
        gap_s=0.2,
    )
    texts = [p["data"]["text"] for p in sent.of("agent") if p["stream"] == "assistant"]
    assert texts == ["Let me look.", "Done."]
    assert sent.of("chat")[-1]["message"]["content"][0]["text"] == "Done."


def test_failed_attempt_retracts_its_text() -> None:
    failed = AttemptFailed("mock", "m", "timeout", "too slow", "other/m")
    sent = play(
        RunStarted(),
        TextAdded("wrong"),
        failed,
        TextAdded("right"),
        said("right"),
        RunEnded(),
        gap_s=0.2,
    )
    deltas = [c["message"]["content"][0]["text"] for c in sent.of("chat")]
    assert deltas == ["wrong", "right", "right"]


TOOLS = (
    RunStarted(),
    ToolStarted(CALL),
    ToolProgressed(CALL, "half"),
    ToolEnded(RESULT),
    said("x"),
    RunEnded(),
)


def test_tool_events_go_to_subscribers_without_results() -> None:
    assert [p["stream"] for p in play(*TOOLS).of("agent")] == ["lifecycle", "lifecycle"]
    sent = play(*TOOLS, joined=True)
    tools = sent.of("agent", "conn-1")
    assert [p["data"]["phase"] for p in tools] == ["start", "update", "result"]
    assert [p["data"].get("meta") for p in tools] == [None, None, "first 5 lines of AGENTS.md"]
    assert "secret text" not in json.dumps(tools) and "half" not in json.dumps(tools)
    assert tools[0]["data"]["args"] == dict(CALL.args)
    shown = play(*TOOLS, joined=True, verbose=True).of("agent", "conn-1")
    assert "secret text" in json.dumps(shown) and "half" in json.dumps(shown)


def test_late_client_gets_the_text_so_far() -> None:
    async def scene(stage: Harness) -> None:
        emit = stage.emitter()
        emit(RunStarted())
        emit(TextAdded("Once upon"))
        await stage.settle()
        (run,) = stage.events.live(KEY)
        assert (run.run_id, run.text) == ("run-1", "Once upon")
        stage.events.catch_up(KEY, "late", tools=True)
        stage.events.catch_up("agent:main:other", "stranger")
        emit(ToolStarted(CALL))
        await stage.settle()
        emit(RunEnded())
        await stage.settle()
        assert not stage.events.live()
        stage.events.catch_up(KEY, "too-late")

    sent = Harness().play(scene)
    (told,) = sent.of("chat", "late")
    assert told["message"]["content"][0]["text"] == "Once upon" and told["state"] == "delta"
    assert [p["data"]["phase"] for p in sent.of("agent", "late")] == ["start"]
    assert not sent.of("chat", "stranger") and not sent.of("chat", "too-late")


def test_disconnected_client_gets_no_more_events() -> None:
    async def scene(stage: Harness) -> None:
        emit = stage.emitter()
        stage.events.subscribe_tools("run-1", "conn-1")
        stage.events.leave("conn-1")
        emit(ToolStarted(CALL))
        await stage.settle()
        emit(RunEnded())

    assert not Harness().play(scene).of("agent", "conn-1")


def test_runs_that_never_start_are_forgotten() -> None:
    stage = Harness()
    for n in range(10_000):
        stage.events.subscribe_tools(f"run-{n}", "conn-1")
    assert len(stage.events._joined) <= 2_000


def test_concurrent_runs_do_not_mix() -> None:
    async def scene(stage: Harness) -> None:
        one, two = stage.emitter("one", "a"), stage.emitter("two", "b")
        for emit in (one, two):
            emit(RunStarted())
        for n in range(50):
            one(TextAdded(f"a{n} "))
            two(TextAdded(f"b{n} "))
        two(said("B"))
        two(RunEnded())
        one(said("A"))
        one(RunEnded())

    sent = Harness().play(scene)
    for run, letter in (("one", "a"), ("two", "b")):
        texts = [
            p["data"]["delta"]
            for p in sent.of("agent")
            if p["runId"] == run and p["stream"] == "assistant"
        ]
        assert "".join(texts) == "".join(f"{letter}{n} " for n in range(50))
    finals = [c["message"]["content"][0]["text"] for c in sent.of("chat") if c["state"] == "final"]
    assert finals == ["B", "A"]


def test_gap_in_bus_numbers_is_reported() -> None:
    async def scene(stage: Harness) -> None:
        emit = stage.emitter()
        emit(RunStarted())
        await stage.settle()
        silent = Emitter("run-1", KEY, lambda _event: None, stage.clock.now_ms)
        silent(RunStarted())
        silent(TextAdded("lost"))
        silent._publish = stage.bus.publish
        silent(TextAdded("kept"))
        await stage.settle()
        silent(RunEnded())

    sent = Harness().play(scene)
    errors = [p["data"] for p in sent.of("agent") if p["stream"] == "error"]
    assert errors == [{"reason": "seq gap", "expected": 2, "received": 3}]
    assert [p["seq"] for p in sent.of("agent")] == [1, 2, 3, 4]


@given(
    st.lists(
        st.one_of(
            st.text(max_size=5).map(TextAdded),
            st.text(max_size=5).map(ThinkingAdded),
            st.just(ToolStarted(CALL)),
            st.just(ToolEnded(RESULT)),
            st.text(max_size=8).map(said),
        ),
        max_size=20,
    ),
    st.booleans(),
)
def test_any_run_is_numbered_without_gap_and_ends_once(
    facts: list[EventData], aborted: bool
) -> None:
    sent = play(RunStarted(), *facts, RunEnded(aborted=aborted), joined=True)
    numbers = [p["seq"] for who, event, p, _ in sent.all if event == "agent"]
    assert numbers == list(range(1, len(numbers) + 1))
    ends = [c["state"] for c in sent.of("chat") if c["state"] != "delta"]
    assert ends == ["aborted" if aborted else "final"]
    assert sent.all[-1][2]["state"] == ends[0]


def test_long_text_is_not_repeated_with_every_delta() -> None:
    async def scene(stage: Harness) -> None:
        emit = stage.emitter()
        emit(RunStarted())
        for n in range(5_000):  # a fast model: a word each millisecond, 45,000 characters
            emit(TextAdded(f"word{n:04d} "))
            await stage.settle()
            if n % 10 == 0:
                await stage.pass_time(0.01)
        emit(RunEnded())

    sent = Harness().play(scene)
    total = sum(len(p["data"]["text"]) for p in sent.of("agent") if p["stream"] == "assistant")
    assert total < 45_000 * 100  # with each word: 45,000 * 2,500
    texts = [p["data"]["delta"] for p in sent.of("agent") if p["stream"] == "assistant"]
    assert "".join(texts) == "".join(f"word{n:04d} " for n in range(5_000))


class Screen:
    """A client of the newest protocol: it puts pieces together, and keeps nothing else."""

    def __init__(self) -> None:
        self.text = ""

    def show(self, told: Mapping[str, Json]) -> None:
        self.text = told["deltaText"] if told.get("replace") else self.text + told["deltaText"]


def test_newest_protocol_deltas_add_up_to_the_text() -> None:
    sent = play(*SHORT, gap_s=0.2)
    screen = Screen()
    deltas = [chat for chat in sent.of("chat") if chat["state"] == "delta"]
    for (_, told), delta in zip(sent.newest, deltas, strict=True):
        screen.show(told)
        assert screen.text == delta["message"]["content"][0]["text"]
    assert [told for _, told in sent.newest][1] == {"deltaText": " the mock"}
    assert not any("deltaText" in chat for chat in sent.of("chat"))


def test_newest_protocol_restarted_answer_replaces_the_text() -> None:
    failed = AttemptFailed("mock", "mock-1", "overloaded", "busy", "mock/mock-2", 0.0)
    sent = play(RunStarted(), TextAdded("Hel"), failed, TextAdded("Good day"), gap_s=0.2)
    assert [told for _, told in sent.newest] == [
        {"deltaText": "Hel"},
        {"deltaText": "Good day", "replace": True},
    ]


@pytest.mark.parametrize("silent", ["NO", "NO_REPLY"])
def test_newest_protocol_possible_silence_comes_with_the_next_delta(silent: str) -> None:
    sent = play(RunStarted(), *streamed_events([silent, " way"]), gap_s=0.2)
    assert [told for _, told in sent.newest] == [{"deltaText": f"{silent} way"}]


def test_newest_protocol_late_client_gets_full_text_then_deltas() -> None:
    screen = Screen()

    async def scene(stage: Harness) -> None:
        emit = stage.emitter()
        emit(RunStarted())
        for n in range(20):
            emit(TextAdded(f"w{n} "))
            await stage.settle()
            if n == 7:  # between two deltas
                stage.events.catch_up(KEY, "late")
            await stage.pass_time(0.04)
        await stage.pass_time(1)
        emit(RunEnded())

    sent = Harness().play(scene)
    late = [who for who, _ in sent.newest].index("late")
    for who, told in sent.newest[late:]:
        assert who == "*" or told["replace"] is True
        screen.show(told)
    assert screen.text == "".join(f"w{n} " for n in range(20))


def test_thinking_is_sent_as_a_stream_of_its_own() -> None:
    words = [ThinkingAdded(f"t{n} ") for n in range(50)]
    sent = play(RunStarted(), *words, TextAdded("a"), TextAdded("b"), said("ab"), RunEnded())
    thoughts = [one for one in sent.of("agent") if one["stream"] == "thinking"]
    assert len(thoughts) == 1, "buffered pieces are one frame"
    assert thoughts[0]["data"]["text"] == "".join(word.delta for word in words)
    assert [one["seq"] for one in sent.of("agent")] == [1, 2, 3, 4]
    assert [chat["message"]["content"][0]["text"] for chat in sent.of("chat")] == ["ab", "ab"]


def test_final_event_of_cut_answer_has_stop_reason() -> None:
    origin = Origin("a", "p", "m", "length")
    saved = MessageSaved(Message("assistant", (Text("Half"),), 1, origin))
    (final,) = play(RunStarted(), saved, RunEnded()).of("chat")
    assert (final["state"], final["stopReason"]) == ("final", "length")


def test_final_event_names_files_of_answer_without_text() -> None:
    (final,) = play(RunStarted(), said("MEDIA:./a.png"), RunEnded()).of("chat")
    assert final["message"]["content"] == [{"type": "media", "path": "./a.png"}]


def test_client_with_the_capability_gets_the_output_of_tools() -> None:
    shown = play(*TOOLS, joined=True, results=True).of("agent", "conn-1")
    ends = [one["data"] for one in shown if one["data"].get("phase") == "result"]
    assert ends and all("result" in data for data in ends)


@pytest.mark.parametrize("verbose", [True, False])
def test_events_of_a_run_have_the_types_that_clients_are_built_with(verbose: bool) -> None:
    facts = (RunStarted("p", "m", "low"), ThinkingAdded("hm"), TextAdded("a", ("x.png",)), *TOOLS)
    failed = AttemptFailed("p", "m", "timeout", "slow", "retry", 1.0)
    sent = play(*facts, failed, said("Done"), RunEnded(), joined=True, verbose=verbose)
    adapters = {name: TypeAdapter(kind) for name, kind in PAYLOADS.items()}
    for _, name, payload, _ in sent.all:
        checked = adapters[name].validate_python(payload)
        assert checked == payload  # a field that is no part of the type would be left out
