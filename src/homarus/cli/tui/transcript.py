"""The widget that shows a conversation: only what is in view is laid out.

The heights of other blocks are estimated until they come into view; the line that the person reads
stays where it is meanwhile. At the end of the conversation, its end stays in view.
"""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import ClassVar, Final

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip

from homarus.cli.tui import palette
from homarus.cli.tui.block_layout import LayoutView, LiveText, estimate_height, lay_out
from homarus.cli.tui.blocks import AnswerBlock, Block, QuestionBlock, ToolBlock

_MAX_LAID_OUT: Final = 600  # blocks whose lines are kept
_OLDER_LINES: Final = 20  # from the start, where older messages are asked for


class Transcript(ScrollView, can_focus=True):
    """The blocks of a conversation."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "scroll_up", show=False),
        Binding("down", "scroll_down", show=False),
        Binding("pageup", "page_up", show=False),
        Binding("pagedown", "page_down", show=False),
        Binding("home", "scroll_home", show=False),
        Binding("end", "scroll_end", show=False),
    ]

    class NeedsOlder(Message):
        """The person is near the start of what is loaded."""

    def __init__(self) -> None:
        super().__init__(id="transcript")
        self.shows_thinking, self.is_expanded = True, False
        self._toggled: set[str] = set()  # cards that are not as the others
        self._blocks: Sequence[Block] = ()
        self._heights: list[int] = []
        self._starts: list[int] = [0]
        self._lines: dict[str, tuple[Block, LayoutView, list[Strip]]] = {}
        self._live: dict[str, LiveText] = {}
        self._is_following = True
        self._found_key = ""
        self._found_text = ""
        self._is_fitting = False

    @property
    def is_at_end(self) -> bool:
        """Whether the end of the conversation is in view, and stays there."""
        return self._is_following

    def show_blocks(self, blocks: Sequence[Block]) -> None:
        """Show these blocks; the line that is read stays where it is."""
        anchor = self._find_anchor()
        self._blocks = blocks
        self._measure()
        self._restore(anchor)
        self._fit()
        keys = {each.key for each in blocks}
        self._live = {key: live for key, live in self._live.items() if key in keys}
        if len(self._lines) > _MAX_LAID_OUT:
            self._drop_distant()
        self.refresh()

    def set_view(self, *, shows_thinking: bool | None = None, expands: bool | None = None) -> None:
        """Show or hide the reasoning; open or close every tool card."""
        if shows_thinking is not None:
            self.shows_thinking = shows_thinking
        if expands is not None:
            self.is_expanded = expands
            self._toggled.clear()
        self.show_blocks(self._blocks)

    def follow(self) -> None:
        """Show the end, and stay there."""
        self._is_following = True
        self._fit()
        self.refresh()

    def show_found(self, key: str, text: str) -> bool:
        """Show the block with what was searched for; return False if it is not loaded."""
        place = next((n for n, each in enumerate(self._blocks) if each.key == key), None)
        self._found_key, self._found_text = key, text.casefold()
        if place is None:
            self.refresh()
            return False
        self._is_following = False
        self._lay_out_range(max(0, place - 1), place + 2)
        strips = self._strips(self._blocks[place])
        line = next((n for n, s in enumerate(strips) if self._found_text in s.text.casefold()), 0)
        self._set_scroll(self._starts[place] + line - self.size.height // 3)
        self._fit()
        self.refresh()
        return True

    def clear_found(self) -> None:
        """End the search's mark."""
        self._found_key = self._found_text = ""
        self.refresh()

    # Measuring

    def _view(self, block: Block) -> LayoutView:
        is_expanded = self.is_expanded != (block.key in self._toggled)
        return LayoutView(max(4, self.size.width - 1), self.shows_thinking, is_expanded)

    def _strips(self, block: Block) -> list[Strip]:
        """Return the lines of a block, with an empty one before it."""
        view = self._view(block)
        known = self._lines.get(block.key)
        if known and known[1] == view and (known[0] is block or known[0] == block):
            if known[0] is not block:
                self._lines[block.key] = (block, view, known[2])
            return known[2]
        if isinstance(block, AnswerBlock) and block.is_live:
            strips = self._live_strips(block, view.columns)
        else:
            strips = lay_out(block, view)
        self._lines[block.key] = (block, view, strips)
        return strips

    def _live_strips(self, block: AnswerBlock, columns: int) -> list[Strip]:
        live = self._live.get(block.key)
        if live is None or live.columns != columns or not live.feed(block.text):
            live = self._live[block.key] = LiveText(columns)
            live.feed(block.text)
        return live.get_strips()

    def _height(self, place: int, *, is_estimated: bool) -> int:
        block = self._blocks[place]
        known = self._lines.get(block.key)
        is_same = known is not None and (known[0] is block or known[0] == block)
        if known and is_same and known[1] == self._view(block):
            height = len(known[2])
        elif is_estimated:
            height = len(known[2]) if known else estimate_height(block, self.size.width)
        else:
            height = len(self._strips(block))
        return height + self._gap(place)

    def _gap(self, place: int) -> int:
        """Return the blank lines before a block: none between closed tool cards."""
        if not place:
            return 0
        pair = (self._blocks[place - 1], self._blocks[place])
        return 0 if all(isinstance(each, ToolBlock) for each in pair) else 1

    def _measure(self) -> None:
        self._heights = [self._height(n, is_estimated=True) for n in range(len(self._blocks))]
        self._update_starts()

    def _update_starts(self) -> None:
        self._starts = [0, *accumulate(self._heights)]
        self.virtual_size = Size(self.size.width - 1, self._starts[-1])

    def _lay_out_range(self, first: int, end: int) -> bool:
        """Lay out blocks; return whether a height differs from its estimate."""
        changed = False
        for place in range(max(0, first), min(end, len(self._blocks))):
            height = self._height(place, is_estimated=False)
            changed = changed or height != self._heights[place]
            self._heights[place] = height
        if changed:
            self._update_starts()
        return changed

    def _find_anchor(self) -> tuple[str, int] | None:
        """Return the block at the top and the line of it; None at the end of the conversation."""
        if self._is_following or not self._blocks:
            return None
        top = int(self.scroll_offset.y)
        place = self._place_of(top)
        return self._blocks[place].key, top - self._starts[place]

    def _restore(self, anchor: tuple[str, int] | None) -> None:
        if anchor is None:
            self._set_scroll(self._starts[-1])
            return
        for place, block in enumerate(self._blocks):
            if block.key == anchor[0]:
                self._set_scroll(self._starts[place] + anchor[1])
                return

    def _fit(self) -> None:
        """Lay out what is in view, until no estimate is left there."""
        if self._is_fitting or not self.size.height:
            return
        self._is_fitting = True
        try:
            for _ in range(20):
                anchor = self._find_anchor()
                top = int(self.scroll_offset.y) if anchor else self._starts[-1] - self.size.height
                first = self._place_of(max(0, top))
                last = self._place_of(max(0, top) + self.size.height)
                changed = self._lay_out_range(first, last + 1)
                self._restore(anchor)
                if not changed:
                    return
        finally:
            self._is_fitting = False

    def _set_scroll(self, line: int) -> None:
        top = max(0, min(line, self._starts[-1] - self.size.height))
        self.set_scroll(None, top)
        self.scroll_target_y = top

    def _place_of(self, line: int) -> int:
        """Return the index of the block that has this line."""
        return max(0, min(bisect_right(self._starts, line) - 1, len(self._blocks) - 1))

    def _drop_distant(self) -> None:
        place = self._place_of(int(self.scroll_offset.y))
        kept = {each.key for each in self._blocks[max(0, place - 150) : place + 150]}
        self._lines = {key: value for key, value in self._lines.items() if key in kept}

    # Events

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        if self._is_fitting or round(old_value) == round(new_value):
            return
        self._is_following = new_value >= self._starts[-1] - self.size.height
        self._fit()
        if new_value < old_value and new_value <= _OLDER_LINES:
            self.post_message(self.NeedsOlder())

    def on_resize(self, _event: events.Resize) -> None:
        self.show_blocks(self._blocks)

    def on_click(self, event: events.Click) -> None:
        """Open or close the tool card that is clicked."""
        line = int(self.scroll_offset.y) + event.y
        if not self._blocks or line >= self._starts[-1] or self.text_selection is not None:
            return
        block = self._blocks[self._place_of(line)]
        if isinstance(block, ToolBlock | QuestionBlock):
            self._toggled ^= {block.key}
            self._is_following = False
            self.show_blocks(self._blocks)

    # Drawing

    def render_line(self, y: int) -> Strip:
        columns = self.size.width
        line = int(self.scroll_offset.y) + y
        style = self.rich_style
        strip = self._line(line)
        if strip is None:
            return Strip.blank(columns, style)
        if self._found_text and self._found_text in strip.text.casefold():
            strip = _marked(strip, self._found_text)
        if selection := self.text_selection:
            strip = _selected(strip, selection.get_span(line))
        drawn = strip.crop_extend(0, columns, style).apply_style(style)
        return drawn.apply_offsets(0, line)

    def _line(self, line: int) -> Strip | None:
        """Return a line of the conversation; None for one that is empty."""
        if not self._blocks or line >= self._starts[-1]:
            return None
        place = self._place_of(line)
        own = line - self._starts[place] - self._gap(place)
        strips = self._strips(self._blocks[place]) if own >= 0 else ()
        return strips[own] if 0 <= own < len(strips) else None

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """Return the text that is selected with the mouse."""
        lines = [strip.text.rstrip() if (strip := self._line(n)) else "" for n in
                 range(self._starts[-1])]  # fmt: skip
        return selection.extract("\n".join(lines)), "\n"

    def selection_updated(self, selection: Selection | None) -> None:
        self.refresh()


def _marked(strip: Strip, text: str) -> Strip:
    """Return the line with every place that has the text marked."""
    plain, places = strip.text.casefold(), list[tuple[int, int]]()
    start = plain.find(text)
    while start >= 0:
        places.append((start, start + len(text)))
        start = plain.find(text, start + len(text))
    for first, end in reversed(places):
        strip = _styled(strip, first, end, palette.FOUND)
    return strip


def _selected(strip: Strip, span: tuple[int, int] | None) -> Strip:
    if span is None:
        return strip
    first, end = span
    return _styled(strip, first, len(strip.text) if end == -1 else end, palette.SELECTED)


def _styled(strip: Strip, first: int, end: int, style: Style) -> Strip:
    """Return the line with a style on these characters."""
    segments: list[Segment] = []
    at = 0
    for text, own, _ in strip:
        cut = [max(0, min(len(text), each - at)) for each in (first, end)]
        base = own or Style()
        segments += [
            Segment(text[: cut[0]], own),
            Segment(text[cut[0] : cut[1]], base + style),
            Segment(text[cut[1] :], own),
        ]
        at += len(text)
    return Strip([each for each in segments if each.text], strip.cell_length)
