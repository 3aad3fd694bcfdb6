"""Lay out the blocks of a conversation as lines of a terminal.

Everything is escaped here or by the layout of Markdown: what a model, a tool or a name contains is
text and never a sequence, a link or markup.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from homarus.cli.markdown_text import MarkdownLayout, MarkdownStream
from homarus.cli.terminal import format_seconds
from homarus.cli.text_layout import Line, clip, divide, printable, width, wrap
from homarus.cli.tui import palette
from homarus.cli.tui.blocks import (
    AnswerBlock,
    Block,
    NoteBlock,
    QuestionBlock,
    ThinkingBlock,
    ToolBlock,
)
from homarus.config.redaction import redact
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json, ToolCall
from homarus.core.text import escape_controls, one_line
from homarus.tools.describe import main_argument

_GUTTER: Final = 2
_MAX_OUTPUT_LINES: Final = 200  # of an expanded card
_MAX_OUTPUT_CHARS: Final = 60_000
_TAIL_LINES: Final = 3  # of a card that is not
_MAX_VALUE_LINES: Final = 40
_MAX_QUESTION_LINES: Final = 30
_MIN_SHOWN_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class LayoutView:
    """What the person chose to see: the width, the reasoning, which tool cards are open."""

    columns: int
    shows_thinking: bool = True
    is_expanded: bool = False


def lay_out(block: Block, view: LayoutView) -> list[Strip]:
    """Return the lines of a block; none for one that is hidden."""
    match block:
        case QuestionBlock():
            return _question(block, view)
        case AnswerBlock():
            columns = max(1, view.columns - _GUTTER)
            lines = MarkdownLayout(lambda: columns, colour=True).render(block.text)
            return answer_strips(lines, view.columns)
        case ThinkingBlock():
            return _thinking(block, view)
        case ToolBlock():
            return _tool(block, view)
        case NoteBlock():
            style = palette.TONES[block.tone]
            return _wrapped(block.text, view.columns, "  ", style, style)


def answer_strips(lines: Iterable[Line], columns: int) -> list[Strip]:
    """Return the lines of an answer with its margin."""
    gutter = Segment(" " * _GUTTER)
    return [
        _strip([gutter, *(Segment(text, palette.style_of(style)) for text, style in line)], columns)
        for line in lines
    ]


class LiveText:
    """The lines of a text that is still being written; only its end is laid out again."""

    def __init__(self, columns: int) -> None:
        self.columns = columns
        own = max(1, columns - _GUTTER)
        self._stream = MarkdownStream(MarkdownLayout(lambda: own, colour=True))
        self._text = ""
        self._done: list[Strip] = []

    def feed(self, text: str) -> bool:
        """Add what is new in the text; return False if it does not continue the last one."""
        if not text.startswith(self._text):
            return False
        self._done += answer_strips(self._stream.feed(text[len(self._text) :]), self.columns)
        self._text = text
        return True

    def get_strips(self) -> list[Strip]:
        return [*self._done, *answer_strips(self._stream.pending(), self.columns)]


def estimate_height(block: Block, columns: int) -> int:
    """Return about how many lines a block has, for those that are not in view."""
    if isinstance(block, ToolBlock):
        return 1
    if isinstance(block, ThinkingBlock):
        return 2
    return block.text.count("\n") + len(block.text) // max(1, columns - _GUTTER) + 1


def _question(block: QuestionBlock, view: LayoutView) -> list[Strip]:
    """Return a person's message on its own background, to be found when scrolling."""
    own = max(1, view.columns - _GUTTER - 1)
    text = printable(block.text.expandtabs(4))
    lines = wrap([(text, "")], own) if text else []
    hidden = len(lines) - _MAX_QUESTION_LINES
    if hidden > 1 and not view.is_expanded:
        lines = [*lines[:_MAX_QUESTION_LINES], [(f"… {hidden} more lines (Ctrl+O)", "2")]]
    lines += [[(clip(f"📎 {one_line(each, 200)}", own), "2")] for each in block.files]
    if block.source:
        lines.append([(clip(f"from {one_line(block.source, 80)}", own), "2")])
    if block.state:
        lines += [[(part, "31" if block.is_refused else "2") for part, _ in each]
                  for each in wrap([(printable(block.state.expandtabs(4)), "")], own)]  # fmt: skip
    mark = Segment("▌ ", palette.ASKED_MARK)
    background = Style(bgcolor=palette.PANEL)
    return [
        _strip(
            [mark, *(Segment(text, palette.style_of(style) + background) for text, style in line)],
            view.columns,
            palette.ASKED,
        )
        for line in lines or [[]]
    ]


def _thinking(block: ThinkingBlock, view: LayoutView) -> list[Strip]:
    style = palette.DIM + Style(italic=True)
    if not view.shows_thinking:
        line = clip(f"✻ {one_line(block.text, 200, escape_controls)}", max(1, view.columns - 4))
        return [_strip([Segment("  "), Segment(line, style)], view.columns)]
    return _wrapped(block.text.strip(), view.columns, "┆ ", style, palette.DIM)


def _tool(block: ToolBlock, view: LayoutView) -> list[Strip]:
    strips = [_tool_head(block, view.columns)]
    if view.is_expanded:
        strips += _arguments(block.args, view.columns)
    output = block.output or ""
    if len(output) > _MAX_OUTPUT_CHARS:
        output = output[: _MAX_OUTPUT_CHARS // 2] + "\n…\n" + output[-_MAX_OUTPUT_CHARS // 2 :]
    text = redact(output).strip("\n")
    lines = printable(text.expandtabs(4)).split("\n") if text else []
    if view.is_expanded:
        if lines and block.args:
            strips.append(_side("─" * 12, view.columns, palette.DIM))
        hidden = len(lines) - _MAX_OUTPUT_LINES
        if hidden > 0:
            lines = [*lines[: _MAX_OUTPUT_LINES // 2], f"… {hidden} lines left out …",
                     *lines[-_MAX_OUTPUT_LINES // 2 :]]  # fmt: skip
    elif block.is_running or block.is_error:
        lines = lines[-_TAIL_LINES:] if block.is_running else lines[:_TAIL_LINES]
    else:
        lines = []
    style = palette.TONES["error"] if block.is_error else palette.DIM
    own = max(1, view.columns - 4)
    for line in lines:
        parts = divide([(line, "")], own) if view.is_expanded else [[(clip(line, own), "")]]
        strips += [_side("".join(text for text, _ in part), view.columns, style) for part in parts]
    return strips


def _tool_head(block: ToolBlock, columns: int) -> Strip:
    """Return the line of a call: its state, its name, what it is about, how long it took."""
    mark, tone, words = _state(block)
    name = one_line(block.name, 40, escape_controls)
    call = ToolCall(block.call_id, block.name, block.args)
    about = one_line(redact(main_argument(call)), 400, escape_controls)
    right = f" {words} " if words else ""
    room = columns - 5 - width(name) - width(right)
    shown = clip(printable(about), room) if room > 3 and about else ""
    gap = " " * max(
        0, columns - 4 - width(name) - width(shown) - width(right) - (1 if shown else 0)
    )
    return _strip(
        [
            Segment("  "),
            Segment(f"{mark} ", palette.TONES[tone]),
            Segment(printable(name), palette.BOLD),
            Segment(f" {shown}" if shown else "", palette.PLAIN),
            Segment(gap),
            Segment(right, palette.TONES[tone] if block.is_running else palette.DIM),
        ],
        columns,
    )


def _state(block: ToolBlock) -> tuple[str, str, str]:
    """Return the mark of a call, its tone, and what is said of it."""
    if block.is_waiting and not block.ended_ms:
        return "◆", "warning", "waits for approval"
    if block.is_running:
        return "◐", "info", "running"
    spent_s = (block.ended_ms - block.started_ms) / 1000 if block.ended_ms else 0
    words = format_seconds(spent_s) if spent_s >= _MIN_SHOWN_S else ""
    if block.is_error:
        return "✗", "error", f"failed {words}".strip()
    return "●", "success" if block.output is not None else "dim", words


def _arguments(args: Mapping[str, Json], columns: int) -> list[Strip]:
    own = max(1, columns - 4)
    strips: list[Strip] = []
    for name, value in args.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        shown = printable(redact(f"{one_line(str(name), 40)}: {text}").expandtabs(4))
        lines = [part for line in shown.split("\n") for part in divide([(line, "")], own)]
        hidden = len(lines) - _MAX_VALUE_LINES
        kept = lines[:_MAX_VALUE_LINES] if hidden > 0 else lines
        strips += [_side("".join(t for t, _ in line), columns, palette.PLAIN) for line in kept]
        if hidden > 0:
            strips.append(_side(f"… {hidden} more lines", columns, palette.DIM))
    return strips


def _side(text: str, columns: int, style: Style) -> Strip:
    """Return a line inside of a tool card."""
    return _strip([Segment("  │ ", palette.DIM), Segment(text, style)], columns)


def _wrapped(text: str, columns: int, mark: str, style: Style, mark_style: Style) -> list[Strip]:
    lines = wrap([(printable(text.expandtabs(4)), "")], max(1, columns - len(mark)))
    return [
        _strip([Segment(mark, mark_style), *(Segment(part, style) for part, _ in line)], columns)
        for line in lines
    ]


def _strip(segments: Sequence[Segment], columns: int, fill: Style | None = None) -> Strip:
    """Return a line of exactly this width."""
    strip = Strip([each for each in segments if each.text])
    return strip.adjust_cell_length(columns, fill)
