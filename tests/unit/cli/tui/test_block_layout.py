"""What models, tools and names contain is text on the screen, and nothing else."""

import re
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.style import Style
from textual.strip import Strip

from homarus.cli.tui.bars import BarState, draw_header, draw_status
from homarus.cli.tui.block_layout import LayoutView, LiveText, lay_out
from homarus.cli.tui.blocks import (
    AnswerBlock,
    Block,
    NoteBlock,
    QuestionBlock,
    ThinkingBlock,
    ToolBlock,
)

HOSTILE = (
    "\x1b]0;title\x07 \x1b[2J \x9b31m \x1b]52;c;ZXZpbA==\x07 \r over \u202e back \u2028"
    " [red]x[/red] [@click=app.exit]y[/]"
    " \x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\ ┃ Allow? \ud800"
)
CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u206f\ud800-\udfff]")
EXPANDED = LayoutView(60, is_expanded=True)


def blocks_with(text: str) -> list[Block]:
    return [
        QuestionBlock("q", text, (text,), source=text, state=text),
        AnswerBlock("a", text),
        AnswerBlock("b", f"# {text}\n\n| {text} |\n|---|\n| x |\n\n```{text}\n{text}\n```"),
        ThinkingBlock("t", text),
        ToolBlock("c", "1", text, {text: text, "command": text}, text, is_error=True),
        NoteBlock("n", text, "error"),
    ]


def check(strips: Sequence[Strip]) -> None:
    for strip in strips:
        assert not CONTROLS.search(strip.text), repr(strip.text)
        for segment in strip:
            assert segment.control is None
            style = segment.style or Style()
            assert style.link is None
            assert not style.meta


@pytest.mark.parametrize("view", [EXPANDED, LayoutView(40, shows_thinking=False), LayoutView(4)])
def test_hostile_text_has_no_control_link_or_markup(view: LayoutView) -> None:
    for block in blocks_with(HOSTILE):
        check(lay_out(block, view))


@given(st.text(max_size=80), st.integers(1, 50))
def test_any_text_fits_the_width_without_controls(text: str, columns: int) -> None:
    view = LayoutView(columns, is_expanded=True)
    for block in blocks_with(text):
        strips = lay_out(block, view)
        check(strips)
        assert all(strip.cell_length == columns for strip in strips)


def test_markup_of_a_library_is_shown_as_text() -> None:
    shown = "".join(strip.text for strip in lay_out(AnswerBlock("a", "[red]x[/red]"), EXPANDED))
    assert "[red]x[/red]" in shown


def test_hostile_names_in_the_bars_are_text() -> None:
    state = BarState(HOSTILE, HOSTILE, HOSTILE, HOSTILE, "connected", queue_mode=HOSTILE,
                     waiting=HOSTILE, window=10, context_tokens=5)  # fmt: skip
    for columns in (10, 40, 80, 200):
        for shown in (draw_header(state, columns), draw_status(state, columns)):
            assert not CONTROLS.search(shown.plain)
            assert not any("click" in str(span.style) for span in shown.spans)


def test_bars_leave_out_what_does_not_fit() -> None:
    state = BarState(
        "Pinch", "main", "openai/gpt-5.2", "low", "connected", window=1000, context_tokens=500,
        cost_usd=0.1, queue_mode="steer", queue_depth=3,
    )  # fmt: skip
    wide, narrow = draw_status(state, 100).plain, draw_status(state, 30).plain
    assert "3 queued · steer" in wide
    assert "50% of 1k" in wide
    assert "$0.1000" in wide
    assert "50% of 1k" in narrow
    assert "queued" not in narrow
    assert draw_header(state, 100).cell_length == 100
    assert draw_header(replace(state, session="x" * 200), 80).cell_length == 80


def test_live_text_equals_the_complete_one() -> None:
    text = "One **two**\n\n- a\n- b\n\n```python\nx = 1\n```\n\nend"
    live = LiveText(40)
    for end in range(1, len(text) + 1):
        assert live.feed(text[:end])
        live.get_strips()
    shown = [strip.text.rstrip() for strip in live.get_strips()]
    complete = [strip.text.rstrip() for strip in lay_out(AnswerBlock("a", text), LayoutView(40))]
    assert shown == complete
    assert not live.feed("another text")


def test_secret_in_a_tool_card_is_masked() -> None:
    key = "sk-ant-api03-" + "a" * 60
    block = ToolBlock("c", "1", "exec", {"command": f"echo {key}"}, f"out {key}")
    assert key not in "".join(strip.text.strip() for strip in lay_out(block, LayoutView(200)))
    assert key not in "".join(
        strip.text for strip in lay_out(block, LayoutView(200, is_expanded=True))
    )


def test_long_output_is_cut_in_the_middle() -> None:
    output = "\n".join(f"line {n}" for n in range(5_000))
    strips = lay_out(ToolBlock("c", "1", "exec", {}, output), EXPANDED)
    text = "\n".join(strip.text for strip in strips)
    assert len(strips) < 220
    assert "line 0" in text
    assert "line 4999" in text
    assert "lines left out" in text
