"""Filtering a model's text while it is being written."""

import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from homarus.agent.reply.reply_cleaner import (
    CleanedText,
    ReplyCleaner,
    clean_message,
    clean_reply,
)
from homarus.agent.reply.reply_parser import uses_final_tag
from homarus.agent.reply.stream_filters import ReasoningFilter
from homarus.core.message import Message, Origin, Text, Thinking
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
    *("[Tool Call: x (ID: 1)]", "[Tool Result for ID 1]", "Arguments:", '{"a": "', '"}', "[tool "),
    *("[[media:", "./b.png]]", "*", "NO", "_REPLY", "(", "\r"),
    *("\n", "\n\n", "a", "b ", "  ", "x", " ", "    "),
]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=16).map("".join)
STEPS = st.lists(st.integers(1, 9), min_size=1, max_size=6)


def split(pieces: list[str]) -> tuple[str, str]:
    tags = ReasoningFilter()
    found = [*(tags.feed(piece) for piece in pieces), tags.finish()]
    return "".join(one.visible for one in found), "".join(one.reasoning for one in found)


@example("x [[Tool Call: a]]", [1], False)
@example("`" * 2_001 + "a" + "`" * 2_001 + "<think>b", [999], False)
@example("``` " + "a" * 300 + " ` <think>b", [7], False)
@example("*\nNO_REPLY\n*", [1], False)
@example("plan <final>a</final> b <final>c", [3], True)
@settings(max_examples=600)
@given(TEXTS, STEPS, st.booleans())
def test_reply_cleaner_any_deltas_equal_complete_text(
    text: str, steps: list[int], final_only: bool
) -> None:
    whole, cleaner = clean_reply(text, final_only=final_only), ReplyCleaner(final_only=final_only)
    shown = ""
    found = [CleanedText()]
    for piece in cut(text, steps):
        found.append(cleaner.feed(piece))
        shown += found[-1].visible
        assert whole.text.startswith(shown), "nothing is shown that is removed later"
    found.append(cleaner.finish())
    assert "".join(piece.visible for piece in found) == whole.text == whole.text.strip()
    assert "".join(piece.reasoning for piece in found) == whole.reasoning
    assert sorted(path for piece in found for path in piece.media) == sorted(whole.media)


@pytest.mark.parametrize("text", ["<think>", "[[reply_to_current]]", "[Tool Call: x]", "NO_REPLY"])
def test_reply_cleaner_split_tag_is_never_shown(text: str) -> None:
    for at in range(1, len(text)):
        cleaner = ReplyCleaner()
        assert cleaner.feed(text[:at]).visible == ""
        assert cleaner.feed(text[at:]).visible + cleaner.finish().visible == ""


def test_reply_cleaner_text_after_tag_is_shown_at_once() -> None:
    cleaner = ReplyCleaner()
    assert cleaner.feed("[[reply_to_current]] Good ").visible == "Good"
    assert cleaner.feed("day, ").visible == " day,"
    assert cleaner.feed("Ann").visible == " Ann"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('a\n[Tool Call: read (ID: x)]\nArguments: {"p": "}\\"{"}\nb', "a\nb"),
        ("a [tool call: read] b", "a b"),
        ("[Tool Call: read]\nArguments:\n{\n}\n\nDone.", "Done."),
        ("[Tool Call: read]\nArguments: {never closed", ""),
        ("[Tool Call: a]\n[Tool Result for ID 1]\nx\ny\n[Tool Call: b]\nDone.", "Done."),
        ("Said.\n[Tool Result for ID 1]\nx\ny", "Said."),
        (
            "`[Tool Call: x]`\n```\n[Tool Call: y]\n```",
            "`[Tool Call: x]`\n```\n[Tool Call: y]\n```",
        ),
        ("[Tool Call: docs](https://a.example)", "[Tool Call: docs](https://a.example)"),
        ("[Tool Call: never closed", "[Tool Call: never closed"),
    ],
)
def test_reply_cleaner_removes_tool_calls_written_as_text(text: str, shown: str) -> None:
    assert clean_reply(text).text == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plan\n<final>The answer.</final>\nmore", "The answer."),
        ("<think>x</think>plan <final>a ", "a"),
        ("<final>a</final> x <final> b</final>", "a b"),
        ("<think>x</think>The model ignored the hint.", "The model ignored the hint."),
        ("use `<final>` here", "use `<final>` here"),
        ("stray</final> text", "stray text"),
    ],
)
def test_reply_cleaner_final_only_shows_final_text_alone(text: str, shown: str) -> None:
    assert clean_reply(text, final_only=True).text == shown


@pytest.mark.parametrize(
    ("provider", "is_used"),
    [
        ("google-gemini-cli", True),
        ("google-generative-ai", True),
        ("my-google-antigravity", True),
        (" MiniMax-portal", True),
        ("google", False),
        ("ollama", False),
        ("", False),
    ],
)
def test_uses_final_tag_depends_on_provider(provider: str, is_used: bool) -> None:
    assert uses_final_tag(provider) is is_used
    text = "plan <final>a</final>"
    message = Message("assistant", (Text(text),), 0, Origin("x", provider, "m"))
    assert clean_message(message).text == ("a" if is_used else "plan a")


def test_clean_message_reasoning_is_complete() -> None:
    message = Message("assistant", (Thinking("one"), Text("<think>two</think>a")), 0)
    assert clean_message(message).reasoning == "one\n\ntwo"


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
    "piece",
    [
        "word ",
        "< a ",
        "`a <",
        "[[ab",
        "<think ",
        "<thin",
        "<",
        "[",
        " ",
        ".",
        "\n",
        "`",
        "MEDIA:",
        "{",
    ],
)
def test_stream_filters_time_is_linear(piece: str) -> None:
    def spent_s(count: int) -> float:
        begun = time.process_time()
        cleaner = ReplyCleaner()
        for _ in range(count):
            cleaner.feed(piece)
        cleaner.finish()
        return time.process_time() - begun

    spent_s(100)
    # Sixteen times the text; quadratic code would take 256 times as long.
    assert spent_s(8_000) < 100 * max(spent_s(500), 0.005)
