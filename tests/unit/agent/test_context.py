"""Rendering messages for a model: sanitized, limited, stable, growing only at the end."""

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from homarus.agent.context.render import (
    NO_VIEW,
    RenderedContext,
    RenderParams,
    check_window,
    first_turn,
    render,
    turn_limit,
)
from homarus.agent.context.tokens import TokenMeasurement, estimate_tokens, message_tokens
from homarus.config.schema import ContextPruningConfig
from homarus.core.message import (
    Image,
    Message,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
    user_message,
)
from homarus.sessions.transcript import INJECTED
from tests.unit.agent.builders import ORIGIN, as_bytes, result, said, summary

HOUR_MS = 3_600_000
FRAME = RenderParams("m", 100_000)


def call(call_id: str, name: str = "exec") -> ToolCall:
    return ToolCall(call_id, name, {"command": "ls"})


def sent(
    history: Sequence[Message], frame: RenderParams = FRAME, now_ms: int = 0
) -> tuple[Message, ...]:
    return render(history, frame, NO_VIEW, now_ms).messages


# --- sanitizing --------------------------------------------------------------------------------


def test_render_unchanged_message_is_same_object() -> None:
    history = [
        user_message("hi"),
        said(Thinking("hm", "sig"), call("a")),
        result("a", "out"),
        said("done"),
    ]
    assert all(map(lambda one, other: one is other, sent(history), history))


def test_render_empty_parts_and_answers_are_left_out() -> None:
    failed = Message("assistant", (Thinking("hm"),), 0, replace(ORIGIN, stop="error"))
    history = [user_message("hi"), failed, said(), said(" \n", "yes"), user_message("and?")]
    assert [(m.role, m.text) for m in sent(history)] == [
        ("user", "hi"),
        ("assistant", "yes"),
        ("user", "and?"),
    ]


def test_render_lone_surrogates_are_replaced() -> None:
    broken = ToolCall("a", "exec", {"command": "echo \ud800", "more": ["\udfff"]})
    history = [user_message("a\ud83d"), said("b\udc00", broken), result("a", "c\ud800")]
    mended = sent(history)
    json.dumps([repr(message) for message in mended], ensure_ascii=False).encode()
    assert mended[0].text == "a?"
    assert mended[1].calls[0].args == {"command": "echo ?", "more": ["?"]}
    assert mended[1].calls[0].id == "a"


def test_render_thinking_with_surrogate_loses_signature() -> None:
    (mended,) = sent([said(Thinking("hm\ud800", "sig"), "yes")])
    assert mended.parts[0] == Thinking("hm?")


def test_render_arguments_too_deep_for_json_are_left_out() -> None:
    deep: dict[str, object] = {}
    for _ in range(100_000):
        deep = {"a": deep}
    history = [user_message("hi"), said(ToolCall("a", "exec", deep)), result("a", "out")]
    assert sent(history)[1].calls[0].args == {}


def test_render_empty_user_message_stays() -> None:
    assert [m.role for m in sent([user_message(""), said("hello")])] == ["user", "assistant"]


def test_render_calls_get_results_and_orphans_are_dropped() -> None:
    history = [
        user_message("hi"),
        result("x", "stray"),
        said(call("a"), call("b")),
        result("b", "out"),
    ]
    history.append(user_message("and?"))
    kinds = [p.call_id for m in sent(history) for p in m.parts if isinstance(p, ToolResult)]
    assert sorted(kinds) == ["a", "b"]


def test_render_tool_message_without_result_is_left_out() -> None:
    assert len(sent([user_message("hi"), Message("tool", ()), said("yes")])) == 2


# --- long results ------------------------------------------------------------------------------


def test_render_long_result_is_truncated_to_window_share() -> None:
    history = [user_message("hi"), said(call("a")), result("a", "x" * 1_000_000)]
    view = render(history, RenderParams("m", 10_000), NO_VIEW, 0)
    assert message_tokens(view.messages[2]) <= 10_000 * 0.3 + 50
    (part,) = view.messages[2].parts
    assert isinstance(part, ToolResult) and "characters left out" in part.text


def test_render_results_of_one_message_share_the_limit() -> None:
    calls = [call(f"c{n}") for n in range(20)]
    history = [user_message("hi"), said(*calls), *(result(c.id, "x" * 100_000) for c in calls)]
    view = render(history, RenderParams("m", 50_000), NO_VIEW, 0)
    assert view.tokens < 50_000 * 0.5


def test_render_image_in_long_result_stays() -> None:
    image = Image("aGk=", "image/png")
    history = [user_message("hi"), said(call("a")), result("a", "x" * 100_000, image)]
    (part,) = sent(history, RenderParams("m", 1_000))[2].parts
    assert isinstance(part, ToolResult) and image in part.content


# --- turns -------------------------------------------------------------------------------------


def turns(count: int) -> list[Message]:
    return [
        m for n in range(count) for m in (user_message(f"q{n}", at_ms=n), said(f"a{n}", at_ms=n))
    ]


@given(count=st.integers(0, 60), limit=st.integers(1, 20))
def test_render_sends_at_most_max_turns(count: int, limit: int) -> None:
    kept = [m for m in sent(turns(count), replace(FRAME, max_turns=limit)) if m.role == "user"]
    assert len(kept) <= limit
    assert len(kept) >= min(count, limit - max(1, limit // 4) + 1)
    if count:
        assert kept[-1].text == f"q{count - 1}"


def test_render_turn_limit_moves_in_steps() -> None:
    starts = [first_turn(turns(count), 12) for count in range(1, 60)]
    assert len(set(starts)) <= 60 // 3 + 1


def test_render_summary_is_sent_despite_turn_limit() -> None:
    history = [summary("before"), *turns(9)]
    kept = sent(history, replace(FRAME, max_turns=2))
    assert "before" in kept[0].text
    assert [m.text for m in kept[1:]] == ["q7", "a7", "q8", "a8"]


CHANNELS = {
    "telegram": {
        "historyLimit": 7,
        "dmHistoryLimit": 5,
        "dms": {"77": {"historyLimit": 2}, "78": {"historyLimit": 0}, "79": {}},
    },
    "slack": {"historyLimit": True},
    "odd": 3,
}


@pytest.mark.parametrize(
    ("key", "limit"),
    [
        ("agent:main:telegram:direct:1", 5),
        ("agent:main:telegram:dm:1", 5),
        ("agent:main:telegram:direct:77", 2),
        ("agent:main:telegram:direct:78", 0),
        ("agent:main:telegram:direct:79", 5),
        ("agent:main:telegram:group:9", 7),
        ("agent:main:telegram:group:9:topic:4", 7),
        ("agent:main:telegram:work:direct:77", 2),
        ("agent:main:slack:channel:c1", 0),
        ("agent:main:odd:direct:1", 0),
        ("agent:main:irc:direct:1", 0),
        ("agent:main:main", 0),
        ("global", 0),
    ],
)
def test_turn_limit_comes_from_channel_settings(key: str, limit: int) -> None:
    assert turn_limit(CHANNELS, key) == limit


# --- images ------------------------------------------------------------------------------------


def test_render_named_images_follow_their_message() -> None:
    image = Image("aGk=", "image/png")
    history = [user_message("see a.png", at_ms=1), said("ok"), user_message("see a.png", at_ms=2)]
    view = render(history, replace(FRAME, pictures={(1, "see a.png"): (image,)}), NO_VIEW, 0)
    assert [image in m.parts for m in view.messages] == [True, False, False]


# --- windows and tokens ------------------------------------------------------------------------


def test_check_window_by_size_and_fixed_tokens() -> None:
    assert check_window(200_000, 20_000).verdict == "ok"
    assert check_window(31_999, 2_000).verdict == "tight"
    assert check_window(8_000, 1_000).verdict == "tight"
    refused = check_window(8_000, 4_001)
    assert refused.verdict == "refused" and "8,000" in refused.reason


def test_render_answer_usage_scales_estimate() -> None:
    history = [
        user_message("x" * 4_000),
        said("y", at_ms=1, prompt=2_000),
        user_message("z", at_ms=2),
    ]
    view = render(history, FRAME, NO_VIEW, 3)
    assert view.measured and view.measured.counted == 2_000
    assert 2_000 < view.tokens < 2_300


def test_render_usage_of_other_model_or_old_prompt_is_ignored() -> None:
    other = replace(said("y", at_ms=9), origin=replace(ORIGIN, model="n", usage=Usage(input=9)))
    assert render([user_message("x"), other], FRAME, NO_VIEW, 10).measured is None
    old = said("y", at_ms=5, prompt=90_000)
    assert (
        render(
            [summary("s", at_ms=6), user_message("x", at_ms=4), old], FRAME, NO_VIEW, 10
        ).measured
        is None
    )


def test_estimate_without_measurement_has_margin() -> None:
    assert estimate_tokens(1_000) == 1_200
    assert estimate_tokens(1_000, TokenMeasurement(500, 1_000)) == 2_100
    assert estimate_tokens(1_000, TokenMeasurement(1, 1_000_000)) == 4_200
    assert estimate_tokens(1_000, TokenMeasurement(1_000_000, 1)) == 525


def test_estimate_counts_utf8_bytes_of_any_script() -> None:
    assert message_tokens(user_message("日本語" * 100)) > 2 * message_tokens(
        user_message("abc" * 100)
    )


# --- stability ---------------------------------------------------------------------------------


def exchange(number: int, calls: int) -> list[Message]:
    """Return one turn: a question, so many rounds of calls, an answer."""
    at_ms = number * 1_000
    made = [user_message(f"question {number}", at_ms=at_ms)]
    for n in range(calls):
        call_id = f"c{number}.{n}"
        made.append(said(f"step {n}", call(call_id), at_ms=at_ms + n))
        made.append(result(call_id, f"{number} {n} " * 400, at_ms=at_ms + n))
    made.append(said(f"answer {number}", at_ms=at_ms + calls, prompt=100 + number))
    return made


def requests(history: Sequence[Message]) -> list[list[Message]]:
    """Yield the history at each model call."""
    asked = []
    for at, message in enumerate(history):
        following = history[at + 1] if at + 1 < len(history) else None
        if message.role in {"user", "tool"} and (following is None or following.role != "tool"):
            asked.append(list(history[: at + 1]))
    return asked


conversations = st.lists(st.integers(0, 3), min_size=1, max_size=8).map(
    lambda rounds: [m for n, calls in enumerate(rounds) for m in exchange(n, calls)]
)


@settings(max_examples=60)
@given(history=conversations, window=st.integers(500, 50_000))
def test_render_next_request_extends_previous_one(history: list[Message], window: int) -> None:
    frame, view, before = RenderParams("m", window), NO_VIEW, b""
    for asked in requests(history):
        view = render(asked, frame, view, asked[-1].at_ms)
        now = as_bytes(view.messages)
        assert now.startswith(before)
        before = now


@settings(max_examples=60)
@given(history=conversations, window=st.integers(500, 50_000), limit=st.integers(0, 4))
def test_render_incremental_equals_full_rendering(
    history: list[Message], window: int, limit: int
) -> None:
    frame, view = RenderParams("m", window, max_turns=limit), NO_VIEW
    for asked in requests(history):
        view = render(asked, frame, view, 0)
        fresh = render(json_copy(asked), frame, NO_VIEW, 0)
        assert fresh.messages == view.messages
        assert fresh.guess == view.guess


def json_copy(messages: Sequence[Message]) -> list[Message]:
    """Return equal messages as new objects, as when a transcript is loaded again."""
    return [replace(message) for message in messages]


def test_render_injected_message_comes_after_tool_result() -> None:
    injected = Message("assistant", (Text("note"),), 0, INJECTED)
    history = [
        user_message("hi"),
        said(call("a")),
        injected,
        result("a", "out"),
        user_message("next"),
    ]
    first = render(history[:2], FRAME, NO_VIEW, 0)
    last = render(history, FRAME, first, 0)
    assert [m.role for m in last.messages] == ["user", "assistant", "tool", "assistant", "user"]


def test_render_long_session_costs_only_new_messages() -> None:
    history = turns(5_000)
    view = render(history, FRAME, NO_VIEW, 0)
    history += [user_message("new", at_ms=9_999)]
    after = render(history, FRAME, view, 0)
    assert after.sent[: len(view.sent)] == view.sent
    assert all(one is other for one, other in zip(after.sent, view.sent, strict=False))
    assert after.settled - view.settled == 1


# --- pruning, over time ------------------------------------------------------------------------

PRUNING = ContextPruningConfig.model_validate(
    {"mode": "cache-ttl", "ttl": "5m", "minPrunableToolChars": 0}
)
SMALL = RenderParams("m", 4_000, pruning=PRUNING)


def test_render_prunes_on_cold_cache_only_and_keeps_cuts() -> None:
    history = [m for n in range(6) for m in exchange(n, 1)]
    last_ms = history[-1].at_ms
    history.append(user_message("go on", at_ms=last_ms + 1))
    warm = render(history, SMALL, NO_VIEW, last_ms + 60_000)
    assert not warm.cuts
    cold = render(history, SMALL, warm, last_ms + 300_000)
    assert cold.cuts and cold.guess < warm.guess
    history += [said("ok", at_ms=last_ms + 300_000), user_message("more", at_ms=last_ms + 300_001)]
    later = render(history, SMALL, cold, last_ms + 301_000)
    assert later.cuts == cold.cuts
    assert as_bytes(later.messages).startswith(as_bytes(cold.messages))
    again = render(json_copy(history), SMALL, later, last_ms + 301_000)
    assert as_bytes(again.messages) == as_bytes(later.messages), "also when it is read anew"


def test_render_pruned_prompt_ignores_older_usage() -> None:
    history = [m for n in range(6) for m in exchange(n, 1)]
    history[-1] = said("big", at_ms=history[-1].at_ms, prompt=40_000)
    now_ms = history[-1].at_ms + HOUR_MS
    history.append(user_message("go on", at_ms=now_ms))
    view = render(history, SMALL, NO_VIEW, now_ms)
    assert view.cuts and view.measured is None


def test_render_other_session_starts_new_rendering() -> None:
    view = RenderedContext(
        head=user_message("other"), cuts=render(turns(1), FRAME, NO_VIEW, 0).cuts, settled=99
    )
    assert render(turns(2), FRAME, view, 0).messages == tuple(turns(2))
    assert render([], FRAME, view, 0).messages == ()
