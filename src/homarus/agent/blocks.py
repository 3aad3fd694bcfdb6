"""Blocks: an answer sent in parts while it is being made.

`Chunker` cuts the text as it grows, where a reader would pause; `Coalescer` joins what came out too
small; `Pace` says how long to wait between two blocks, so that they read as if somebody typed
them. State machines without a clock: the times are arguments.
"""

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple, TypeAlias

from homarus.core.fences import Fence, closes_fence, fence_at, find_fences, match_marker
from homarus.core.value import dataclass

Kind: TypeAlias = Literal["text", "reasoning", "tool", "notice", "error"]
Preference: TypeAlias = Literal["paragraph", "newline", "sentence"]

JOINERS: dict[Preference, str] = {"paragraph": "\n\n", "newline": "\n", "sentence": " "}
NATURAL_MS = (800, 2_500)

_PARAGRAPH = re.compile(r"\n[\t ]*+\n+")
_SENTENCE = re.compile(r"[.!?](?=\s|\Z)|[。！？]")
_SPACE = re.compile(r"\s")
_SPACES = re.compile(r"\s*")
_LINE_END = re.compile(r"\n")
_BLANK_LINES = re.compile(r"(?:[\t ]*\n)+")
_CLOSING_CHARS = 200  # how far beyond a block its fence's last line is looked for
_STEPS_BACK = 8


@dataclass(frozen=True, slots=True)
class Block:
    """One message for a chat. `reply_to` is the id of the message it answers, if one is named."""

    text: str
    kind: Kind = "text"
    media: tuple[str, ...] = ()
    reply_to: str = ""
    reply_to_current: bool = False
    as_voice: bool = False


@dataclass(frozen=True, slots=True)
class Chunking:
    """Where to cut: no block shorter than `min_chars` while more is coming, none longer than
    `max_chars` (a code fence that has to be closed adds its last line). `by_paragraph`: each
    paragraph is a block, however short.
    """

    min_chars: int = 800
    max_chars: int = 1_200
    prefer: Preference = "paragraph"
    by_paragraph: bool = False


class _Cut(NamedTuple):
    """A block ends at `end`, the next begins at `start`; `fence` is cut in two."""

    end: int
    start: int
    fence: Fence | None = None


class Chunker:
    """Cuts a growing text into blocks."""

    def __init__(self, chunking: Chunking) -> None:
        self._max = max(1, chunking.max_chars)
        self._min = min(max(1, chunking.min_chars), self._max)
        self._prefer, self._by_paragraph = chunking.prefer, chunking.by_paragraph
        self._text = ""
        self._opening = ""  # the line that opened a cut fence again, when the text begins with it

    def add(self, piece: str) -> list[str]:
        """The text goes on; the blocks that are ready."""
        self._text += piece if self._text else piece.lstrip("\n")
        blocks: list[str] = []
        while cut := self._next_cut():
            blocks += self._take(cut)
            if len(self._text) < self._max and not self._by_paragraph:
                break
        return blocks

    def flush(self) -> list[str]:
        """There is no more: the blocks that are left."""
        blocks: list[str] = []
        while len(self._text) > self._max and (cut := self._next_cut()):
            blocks += self._take(cut)
        last, self._text, self._opening = self._text, "", ""
        return [*blocks, last] if last.strip() else blocks

    def _take(self, cut: _Cut) -> Iterator[str]:
        text, fence = self._text, cut.fence
        if fence is None:
            block, self._text, self._opening = text[: cut.end].rstrip(), text[cut.start :], ""
        else:
            self._opening = self._open_again(fence)
            block = f"{text[: cut.end]}\n{fence.close_line}\n"
            self._text = self._opening + text[cut.start :]
        if block.strip():
            yield block

    def _next_cut(self) -> _Cut | None:
        self._drop_empty_fence()
        text = self._text
        if len(text) < self._min and not self._by_paragraph:
            return None
        window = text[: self._max + _CLOSING_CHARS]
        fences = [fence for fence in find_fences(window) if self._can_cut(fence)]
        if self._by_paragraph and (cut := self._first_paragraph(fences)):
            return cut
        if len(text) < self._min:
            return None
        if cut := self._pause(fences):
            return cut
        return self._forced(fences) if len(text) >= self._max else None

    def _first_paragraph(self, fences: Sequence[Fence]) -> _Cut | None:
        for gap in _PARAGRAPH.finditer(self._text, 0, self._max):
            if gap.start() and not fence_at(fences, gap.start()):
                return _Cut(gap.start(), gap.end())
        return None

    def _pause(self, fences: Sequence[Fence]) -> _Cut | None:
        """The last place that reads like a pause."""
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
        return _Cut(ends[-1], self._after_space(ends[-1])) if ends else None

    def _last(
        self, pattern: re.Pattern[str], fences: Sequence[Fence], least: int | None = None
    ) -> _Cut | None:
        """The last of these from `least` on that is in no fence, and begins none after it."""
        least = self._min if least is None else least
        places = [
            found
            for found in pattern.finditer(self._text, least, self._max)
            if not fence_at(fences, found.start()) and not self._begins_fence(found.end())
        ]
        if not places:
            return None
        at = places[-1].start()
        return _Cut(at, self._after_space(at) if pattern is _SPACE else self._after_lines(at))

    def _forced(self, fences: Sequence[Fence]) -> _Cut:
        """A cut where nothing reads like a pause: at white space, else anywhere."""
        text = self._text
        if cut := self._last(_SPACE, fences) or self._last(_SPACE, fences, 1):
            return cut
        fence = fence_at(fences, self._max)
        if fence is None:
            back = range(self._max, max(0, self._max - _STEPS_BACK), -1)
            end = next((at for at in back if not self._begins_fence(at)), self._max)
            return _Cut(end, end)
        # After a line of code, when that does not cost more than a quarter of the block.
        line_end = text.rfind("\n", fence.start + len(fence.open_line) + 1, self._max)
        if line_end * 4 >= self._max * 3:
            return _Cut(line_end, line_end + 1, fence)
        end = max(self._max, len(self._opening) + 1)
        return _Cut(end, end, fence)

    def _begins_fence(self, at: int) -> bool:
        """Whether a marker in mid-line would open a fence if a block began here."""
        text = self._text
        return text[at - 1 : at] != "\n" and match_marker(text[at : at + 8]) is not None

    def _can_cut(self, fence: Fence) -> bool:
        """Whether a block has room for a cut fence's lines and some code; else it is mere text."""
        return len(fence.close_line) * 4 <= self._max

    def _open_again(self, fence: Fence) -> str:
        """The line that opens a cut fence again; without its words when they take half a block."""
        whole = len(fence.open_line) * 2 <= self._max
        return (fence.open_line if whole else fence.close_line) + "\n"

    def _drop_empty_fence(self) -> None:
        """A fence that was opened again and closed at once holds nothing."""
        if not self._opening:
            return
        code = self._text[len(self._opening) :].lstrip("\n")
        line, _, after = code.partition("\n")
        marker, opened = match_marker(line), match_marker(self._opening)
        if after.strip() and marker and opened and closes_fence(opened[0], *marker):
            self._text, self._opening = after.lstrip("\n"), ""

    def _after_space(self, at: int) -> int:
        found = _SPACES.match(self._text, at)
        return found.end() if found else at

    def _after_lines(self, at: int) -> int:
        """After the empty lines here; the indent of the next line stays."""
        found = _BLANK_LINES.match(self._text, at)
        return found.end() if found else at


@dataclass(frozen=True, slots=True)
class Coalescing:
    """When small blocks are joined: until `min_chars` are there, or nothing came for `idle_s`."""

    min_chars: int = 800
    max_chars: int = 4_000
    idle_s: float = 1.0
    joiner: str = "\n\n"


class Coalescer:
    """Joins neighbours: text for the same target, without media. Order is kept."""

    def __init__(self, coalescing: Coalescing) -> None:
        self._rules = coalescing
        self._waiting: Block | None = None
        self.due_s: float | None = None  # when what waits should go, if nothing is added

    def add(self, block: Block, at_s: float) -> list[Block]:
        """One more block; those that are ready."""
        rules = self._rules
        if block.kind != "text" or block.media:
            return [*self.flush(), block]
        ready: list[Block] = []
        waiting = self._waiting
        if waiting and not self._fits(waiting, block):
            ready, waiting = self.flush(), None
        if waiting:
            block = replace(waiting, text=_join(waiting.text, rules.joiner, block.text))
        if len(block.text) >= rules.min_chars:
            self.drop()
            return [*ready, block]
        self._waiting, self.due_s = block, at_s + rules.idle_s
        return ready

    def tick(self, at_s: float) -> list[Block]:
        """Time has passed; what waited long enough."""
        return self.flush() if self.due_s is not None and at_s >= self.due_s else []

    def flush(self) -> list[Block]:
        """What waits, at once."""
        ready = [self._waiting] if self._waiting else []
        self.drop()
        return ready

    def drop(self) -> None:
        """Forget what waits."""
        self._waiting, self.due_s = None, None

    def _fits(self, waiting: Block, block: Block) -> bool:
        same = replace(waiting, text="") == replace(block, text="")
        size = len(waiting.text) + len(self._rules.joiner) + len(block.text)
        return same and size <= self._rules.max_chars


def _join(one: str, joiner: str, two: str) -> str:
    return one.rstrip() + joiner + two.lstrip("\n")


class Pace:
    """How long to wait before each block after the first: between two times, by chance.

    The same seed waits the same.
    """

    def __init__(self, range_ms: tuple[int, int] | None, seed: str) -> None:
        self._range_ms = range_ms
        self._chance = random.Random(seed)  # noqa: S311 - a pause for readers, not a secret
        self._begun = False

    def next_s(self) -> float:
        """The wait before the next block."""
        begun, self._begun = self._begun, True
        if self._range_ms is None or not begun:
            return 0.0
        low, high = sorted(self._range_ms)
        return self._chance.randint(low, high) / 1000
