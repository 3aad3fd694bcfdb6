"""Blocks: the messages of a reply, and how a growing text is cut into them.

`Chunker` cuts the text where a reader would pause; `Coalescer` joins chunks that are too small;
`HumanDelayTimer` gives the delay between two blocks. None of them has a clock: times are arguments.
Chunker and Coalescer are for block streaming (block_stream.py).
"""

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple, TypeAlias

from homarus.core.fast_dataclass import dataclass
from homarus.core.fences import Fence, closes_fence, fence_at, find_fences, match_marker

BlockKind: TypeAlias = Literal["text", "reasoning", "tool", "notice", "error"]
Preference: TypeAlias = Literal["paragraph", "newline", "sentence"]

NATURAL_MS = (800, 2_500)

_PARAGRAPH = re.compile(r"\n[\t ]*+\n+")
_SENTENCE = re.compile(r"[.!?](?=\s|\Z)|[。！？]")
_SPACE = re.compile(r"\s")
_SPACES = re.compile(r"\s*")
_LINE_END = re.compile(r"\n")
_BLANK_LINES = re.compile(r"(?:[\t ]*\n)+")
_CLOSING_CHARS = 200  # search range for a fence's last line beyond the chunk
_STEPS_BACK = 8


@dataclass(frozen=True, slots=True)
class Block:
    """One message for a chat. `reply_to` is the id of the message it answers, if one is named."""

    text: str
    kind: BlockKind = "text"
    media: tuple[str, ...] = ()
    reply_to: str = ""
    reply_to_current: bool = False
    as_voice: bool = False


@dataclass(frozen=True, slots=True)
class ChunkLimits:
    """Limits of a chunk: `min_chars` while more text is coming, and `max_chars` always.

    The closing line of a code fence that is cut comes on top. `by_paragraph`: each paragraph is a
    chunk, however short.
    """

    min_chars: int = 800
    max_chars: int = 1_200
    prefer: Preference = "paragraph"
    by_paragraph: bool = False


class FenceSeam(NamedTuple):
    """Where a code fence was cut: the added lines around the cut, and what was between its parts.

    The chunk before it ends with `closing_chars` of a closing line, the one after it starts with
    `opening_chars` of an opening line.
    """

    closing_chars: int
    opening_chars: int
    gap: str


class TextChunk(NamedTuple):
    """A piece of text, and the white space that joins it to the piece before.

    `seam` is set when both are parts of one code fence.
    """

    text: str
    gap: str = ""
    seam: FenceSeam | None = None


class _CutPoint(NamedTuple):
    """A chunk ends at `end`, the next starts at `start`; `fence` is the code fence cut in two."""

    end: int
    start: int
    fence: Fence | None = None


class Chunker:
    """Cuts a growing text into chunks."""

    def __init__(self, chunking: ChunkLimits) -> None:
        self._max = max(1, chunking.max_chars)
        self._min = min(max(1, chunking.min_chars), self._max)
        self._prefer, self._by_paragraph = chunking.prefer, chunking.by_paragraph
        self._text = ""
        self._opening = ""  # the line that reopened a cut fence, when the text starts with it
        self._gap = ""  # white space between the last chunk and this text
        self._seam: FenceSeam | None = None  # the same, when the text starts with `_opening`
        self._has_started = False

    def add(self, piece: str) -> list[TextChunk]:
        """Append to the text; return the chunks that are complete."""
        if not self._text:
            piece = self._after_gap(piece)
        self._text += piece
        blocks: list[TextChunk] = []
        while cut := self._next_cut():
            blocks += self._pop_chunk(cut)
            if len(self._text) < self._max and not self._by_paragraph:
                break
        return blocks

    def flush(self) -> list[TextChunk]:
        """Return the remaining chunks: the text is complete."""
        blocks: list[TextChunk] = []
        while len(self._text) > self._max and (cut := self._next_cut()):
            blocks += self._pop_chunk(cut)
        last, self._text, self._opening = self._text, "", ""
        if last.strip():
            blocks.append(TextChunk(last, _joiner(self._gap), self._seam))
        self._seam = None
        return blocks

    def _pop_chunk(self, cut: _CutPoint) -> Iterator[TextChunk]:
        text, fence, before, seam = self._text, cut.fence, _joiner(self._gap), self._seam
        self._seam = None
        if fence is None:
            block = text[: cut.end].rstrip()
            self._text, self._opening = text[cut.start :], ""
            self._gap = text[len(block) : cut.start]
            self._has_started = True
            if not self._gap.endswith("\n"):  # else the remaining white space is a line's indent
                self._text = self._after_gap(self._text)
        else:
            block = f"{text[: cut.end]}\n{fence.close_line}\n"
            self._opening = self._open_again(fence)
            self._text, self._gap = self._opening + text[cut.start :], "\n"
            self._seam = FenceSeam(
                len(fence.close_line) + 2, len(self._opening), text[cut.end : cut.start]
            )
        self._has_started = True
        if block.strip():
            yield TextChunk(block, before, seam)

    def _after_gap(self, piece: str) -> str:
        """Return a piece without leading white space; the indent of a line stays."""
        space = _SPACES.match(piece)
        end = space.end() if space else 0
        lines = piece.rfind("\n", 0, end) + 1
        if not lines and (self._has_started or end == len(piece)):
            lines = end
        if self._has_started:
            self._gap += piece[:lines]
        return piece[lines:]

    def _next_cut(self) -> _CutPoint | None:
        self._drop_empty_fence()
        text = self._text
        if len(text) < self._min and not self._by_paragraph:
            return None
        fences = self._fences(text[: self._max + _CLOSING_CHARS])
        if self._by_paragraph and (cut := self._first_paragraph(fences)):
            return cut
        if len(text) < self._min:
            return None
        if cut := self._pause(fences):
            return cut
        return self._forced(fences) if len(text) >= self._max else None

    def _fences(self, window: str) -> list[Fence]:
        """Return the code fences in the window; an open one extends beyond the text."""
        fences = [fence for fence in find_fences(window) if self._can_cut(fence)]
        if fences and fences[-1].end == len(window):
            last = fences[-1]
            marker = match_marker(window[window.rfind("\n", last.start) + 1 :])
            first_line = window.find("\n", last.start) < 0
            if first_line or not (marker and closes_fence(last.marker, *marker)):
                fences[-1] = replace(last, end=last.end + 1)
        return fences

    def _first_paragraph(self, fences: Sequence[Fence]) -> _CutPoint | None:
        for gap in _PARAGRAPH.finditer(self._text, 0, self._max):
            if gap.start() and not fence_at(fences, gap.start()):
                return _CutPoint(gap.start(), gap.end())
        return None

    def _pause(self, fences: Sequence[Fence]) -> _CutPoint | None:
        """Return the last cut at a paragraph, line or sentence end, as preferred."""
        if self._prefer == "paragraph" and (cut := self._last(_PARAGRAPH, fences)):
            return cut
        if self._prefer != "sentence" and (cut := self._last(_LINE_END, fences)):
            return cut
        if self._prefer == "newline":
            return None
        ends = [
            found.end()
            for found in _SENTENCE.finditer(self._text, self._min - 1, self._max + 1)
            if found.end() <= self._max and not fence_at(fences, found.end())
        ]
        return _CutPoint(ends[-1], self._after_space(ends[-1])) if ends else None

    def _last(
        self, pattern: re.Pattern[str], fences: Sequence[Fence], min_at: int | None = None
    ) -> _CutPoint | None:
        """Return the last match from `min_at` on that is in no fence and does not start one."""
        min_at = self._min if min_at is None else min_at
        matches = [
            found
            for found in pattern.finditer(self._text, min_at, self._max)
            if not fence_at(fences, found.start()) and not self._begins_fence(found.end())
        ]
        if not matches:
            return None
        at = matches[-1].start()
        return _CutPoint(at, self._after_space(at) if pattern is _SPACE else self._after_lines(at))

    def _forced(self, fences: Sequence[Fence]) -> _CutPoint:
        """Return a cut at white space, else anywhere."""
        text = self._text
        if cut := self._last(_SPACE, fences) or self._last(_SPACE, fences, 1):
            return cut
        fence = fence_at(fences, self._max)
        if fence is None:
            back = range(self._max, max(0, self._max - _STEPS_BACK), -1)
            end = next((at for at in back if not self._begins_fence(at)), self._max)
            return _CutPoint(end, end)
        # After a line of code, when that costs no more than a quarter of the chunk.
        line_end = text.rfind("\n", fence.start + len(fence.open_line) + 1, self._max)
        if line_end * 4 >= self._max * 3:
            return _CutPoint(line_end, line_end + 1, fence)
        end = max(self._max, len(self._opening) + 1)
        return _CutPoint(end, end, fence)

    def _begins_fence(self, at: int) -> bool:
        """Whether a marker in mid-line would open a fence at the start of a chunk."""
        text = self._text
        return text[at - 1 : at] != "\n" and match_marker(text[at : at + 8]) is not None

    def _can_cut(self, fence: Fence) -> bool:
        """Whether a chunk has room for the fence's lines and some code; else it is text."""
        return len(fence.close_line) * 4 <= self._max

    def _open_again(self, fence: Fence) -> str:
        """Return the line that reopens a cut fence; without its info string if that is too long."""
        fits = len(fence.open_line) * 2 <= self._max
        return (fence.open_line if fits else fence.close_line) + "\n"

    def _drop_empty_fence(self) -> None:
        """Remove a fence that was reopened and has no more code."""
        if not self._opening:
            return
        code = self._text[len(self._opening) :].lstrip("\n")
        line, _, after = code.partition("\n")
        marker, opened = match_marker(line), match_marker(self._opening)
        if after.strip() and marker and opened and closes_fence(opened[0], *marker):
            self._text, self._opening, self._gap = after.lstrip("\n"), "", "\n\n"
            self._seam = None

    def _after_space(self, at: int) -> int:
        found = _SPACES.match(self._text, at)
        return found.end() if found else at

    def _after_lines(self, at: int) -> int:
        """Return the position after empty lines; the indent of the next line stays."""
        found = _BLANK_LINES.match(self._text, at)
        return found.end() if found else at


@dataclass(frozen=True, slots=True)
class CoalesceLimits:
    """When small blocks are joined: up to `min_chars`, or until nothing came for `idle_s`."""

    min_chars: int = 800
    max_chars: int = 4_000
    idle_s: float = 1.0


@dataclass(frozen=True, slots=True)
class BlockLimits:
    """How block streaming cuts the messages of one chat; `waits_for_end`: complete ones only."""

    chunk: ChunkLimits = ChunkLimits()
    coalesce: CoalesceLimits = CoalesceLimits()
    waits_for_end: bool = False


class Coalescer:
    """Joins neighbouring text blocks for the same target, in order. Media stay alone."""

    def __init__(self, coalescing: CoalesceLimits) -> None:
        self._rules = coalescing
        self._waiting: Block | None = None
        self.due_s: float | None = None  # when the pending block is due

    def add(
        self, block: Block, at_s: float, gap: str = "\n\n", seam: FenceSeam | None = None
    ) -> list[Block]:
        """Add a block that follows `gap`; return the blocks that are ready.

        With `seam`, both are parts of one code fence, which is made whole when they are joined.
        """
        rules = self._rules
        if block.kind != "text" or block.media:
            return [*self.flush(), block]
        ready: list[Block] = []
        waiting = self._waiting
        if waiting and not self._fits(waiting, gap, block):
            ready, waiting = self.flush(), None
        if waiting:
            block = replace(waiting, text=_join(waiting.text, gap, block.text, seam))
        if len(block.text) >= rules.min_chars:
            self.drop()
            return [*ready, block]
        self._waiting, self.due_s = block, at_s + rules.idle_s
        return ready

    def tick(self, at_s: float) -> list[Block]:
        """Return the pending block when it has waited long enough."""
        return self.flush() if self.due_s is not None and at_s >= self.due_s else []

    def flush(self) -> list[Block]:
        """Return the pending block."""
        ready = [self._waiting] if self._waiting else []
        self.drop()
        return ready

    def drop(self) -> None:
        """Discard the pending block."""
        self._waiting, self.due_s = None, None

    def _fits(self, waiting: Block, gap: str, block: Block) -> bool:
        same = replace(waiting, text="") == replace(block, text="")
        size = len(waiting.text) + len(gap) + len(block.text)
        return same and size <= self._rules.max_chars


def _join(before: str, gap: str, after: str, seam: FenceSeam | None) -> str:
    if seam is None:
        return before.rstrip() + gap + after.lstrip("\n")
    return before[: -seam.closing_chars] + seam.gap + after[seam.opening_chars :]


def _joiner(gap: str) -> str:
    """Return the white space that joins two chunks: a paragraph's, a line's, a word's, or none."""
    lines = gap.count("\n")
    return "\n" * min(lines, 2) if lines else " " if gap else ""


class HumanDelayTimer:
    """The random delay before each block after the first, within a range.

    The same seed gives the same delays.
    """

    def __init__(self, range_ms: tuple[int, int] | None, seed: str) -> None:
        self._range_ms, self._seed = range_ms, seed
        self._random: random.Random | None = None  # expensive to create, rarely needed
        self._has_started = False

    def next_s(self) -> float:
        """Return the delay before the next block."""
        has_started, self._has_started = self._has_started, True
        if self._range_ms is None or not has_started:
            return 0.0
        if self._random is None:
            self._random = random.Random(self._seed)  # noqa: S311 - not a secret
        low, high = sorted(self._range_ms)
        return self._random.randint(low, high) / 1000
