"""Filtering a model's text while it is being written."""

import re
import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from homarus.agent.reply.reply_parser import parse_reply, strip_reasoning_tags
from homarus.agent.reply.stream_filters import DirectiveFilter, ReasoningFilter
from tests.unit.agent.builders import cut

PIECES = [
    *(
        "<think>",
        "</think>",
        "<final>",
        "</final>",
        "< /THINKING >",
        "<thought a='b'>",
        "</antthinking>",
    ),
    *("`", "``", "```", "~~~", "py", "<", "</", "thin", "k", ">", "antml:"),
    *("[[reply_to_current]]", "[[reply_to: 7]]", "[[", "]]", "[", "MEDIA:", "./a.png", "NO_REPLY"),
    *("\n", "\n\n", "a", "b ", "  ", "x", " ", "    "),
]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=16).map("".join)
STEPS = st.lists(st.integers(1, 9), min_size=1, max_size=6)


def split(pieces: list[str]) -> tuple[str, str]:
    tags = ReasoningFilter()
    found = [*(tags.feed(piece) for piece in pieces), tags.finish()]
    return "".join(one.visible for one in found), "".join(one.reasoning for one in found)


def flat(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


@settings(max_examples=500)
@given(TEXTS, STEPS)
def test_reasoning_filter_any_cuts_equal_full_parse(text: str, steps: list[int]) -> None:
    assert split(cut(text, steps))[0].strip() == strip_reasoning_tags(text).strip()


@example("    ```[[reply_to_current]]", [1])
@settings(max_examples=500)
@given(TEXTS, STEPS)
def test_directive_filter_any_cuts_equal_full_parse(text: str, steps: list[int]) -> None:
    asides = DirectiveFilter()
    shown = "".join([*(asides.feed(piece) for piece in cut(text, steps)), asides.finish()])
    reply = parse_reply(text)
    if reply.silent or "NO_REPLY" in shown:  # the complete text decides that
        return
    assert flat(shown) == flat(reply.text)
    asked = asides.directives
    assert (sorted(asked.media), asked.reply_to) == (sorted(reply.media), reply.reply_to)
    assert asked.reply_to_current == reply.reply_to_current


def test_reasoning_filter_returns_reasoning_separately() -> None:
    assert split(["<think>a\nb</th", "ink>c"]) == ("c", "a\nb")
    assert split(["<thinking>a<final>c</final>"]) == ("c", "a")


@pytest.mark.parametrize(
    ("piece", "held"),
    [
        ("a <", "<"),
        ("a < /thi", "< /thi"),
        ("a <think mode='x'", "<think mode='x'"),
        ("a `b", "`b"),
        ("a <b", ""),
        ("a < b", ""),
        ("a <thinner", ""),
        ("a <think<", ""),
    ],
)
def test_reasoning_filter_holds_back_only_possible_tags(piece: str, held: str) -> None:
    said = ReasoningFilter().feed(piece).visible
    assert piece.removeprefix(said) == held or (not held and said.startswith("a <"))


def test_reasoning_filter_unclosed_inline_code_is_released() -> None:
    tags = ReasoningFilter()
    assert tags.feed("`" + "x" * 1_900).visible == ""
    assert tags.feed("y" * 200).visible.startswith("`xxx")


@pytest.mark.parametrize(
    "piece", ["word ", "< a ", "`a <", "[[ab", "<think ", "<thin", "<", "[", " ", ".", "\n", "`"]
)
def test_stream_filters_time_is_linear(piece: str) -> None:
    def spent_s(count: int) -> float:
        begun = time.process_time()
        tags, asides = ReasoningFilter(), DirectiveFilter()
        for _ in range(count):
            asides.feed(tags.feed(piece).visible)
        asides.finish()
        return time.process_time() - begun

    spent_s(100)
    # Sixteen times the text; quadratic code would take 256 times as long.
    assert spent_s(8_000) < 100 * max(spent_s(500), 0.005)
