"""Write a stream of text and marks as messages within a limit.

Messages end at the end of a block that fills half of one, else of a line, else at a space, else
anywhere. Marks that are open at the end are closed, and opened again in the next message. Lengths
are summed as the service counts, so everything is linear in the text.
"""

from collections.abc import Iterator, Sequence
from typing import Literal, TypeAlias

from homarus.channels.chunk import Unit, measure
from homarus.channels.markup.stream import (
    BLOCK,
    INLINE,
    SOFT,
    VERBATIM,
    DialectSyntax,
    LineBreak,
    OpenMark,
    StreamItem,
    StyleMark,
    TextRun,
)
from homarus.core.fast_dataclass import dataclass
from homarus.core.text import utf16_len

# A service that counts the text alone still limits the size of a request: Telegram's
# server takes 32 KiB. A character takes five bytes at most, as `&amp;`.
_MAX_BYTES = 30_000
_MAX_CHAR_BYTES = 5
_UNLIMITED = 1 << 60

_Tier: TypeAlias = Literal["block", "line", "space"]


@dataclass(frozen=True, slots=True)
class StyleSpan:
    """A mark and its range, in UTF-16 units."""

    kind: str
    start: int
    length: int


@dataclass(frozen=True, slots=True)
class MessagePart:
    """One message."""

    text: str
    styles: tuple[StyleSpan, ...] = ()


@dataclass(frozen=True, slots=True)
class _OpenMarkState:
    """An open mark and its opening text. One that does not fit is not written."""

    mark: StyleMark
    piece: int
    is_written: bool


@dataclass(frozen=True, slots=True)
class _Prefix:
    """What precedes the next text, and its length with everything that closes it."""

    text: str
    held: tuple[tuple[str, _OpenMarkState], ...]
    weight: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class _BreakPoint:
    """A position where the message may end, and where the next one continues."""

    event: int
    offset: int
    pieces: int
    size: int
    styles: int
    has_words: bool
    held: tuple[_OpenMarkState, ...]
    pending: tuple[StyleMark, ...]


def split_stream(
    events: Sequence[StreamItem],
    spelling: DialectSyntax,
    *,
    limit: int = 0,
    unit: Unit = "utf16",
    ends: int = BLOCK + 1,
) -> list[MessagePart]:
    """Return the messages of a stream; one without a limit. A break of level `ends` ends one."""
    return list(_Splitter(events, spelling, limit, unit, ends).run())


class _Splitter:
    def __init__(
        self,
        events: Sequence[StreamItem],
        spelling: DialectSyntax,
        limit: int,
        unit: Unit,
        ends: int,
    ) -> None:
        self._events, self._spelling, self._ends = events, spelling, ends
        self._limit, self._unit = limit if limit > 0 else _UNLIMITED, unit
        self._max_bytes = _MAX_BYTES if spelling.unseen and limit > 0 else _UNLIMITED
        self._event = self._offset = 0
        self._begin(())

    def run(self) -> Iterator[MessagePart]:
        while self._event < len(self._events):
            if point := self._step(self._events[self._event]):
                yield from self._end(point)
        yield from self._end(self._point(self._event, 0))

    def _begin(self, pending: tuple[StyleMark, ...]) -> None:
        self._pieces: list[str] = []
        self._held: list[_OpenMarkState] = []
        self._pending = list(pending)
        self._styles: list[tuple[str, int, int]] = []
        self._points: dict[_Tier, _BreakPoint] = {}
        self._gap: LineBreak | None = None
        self._size = self._bytes = 0
        self._has_words = False

    def _step(self, event: StreamItem) -> _BreakPoint | None:
        """Add one item; return the break point if the message ends."""
        if isinstance(event, TextRun):
            return self._take_text(event)
        self._event, self._offset = self._event + 1, 0
        if isinstance(event, OpenMark):
            self._pending.append(event.mark)
        elif isinstance(event, LineBreak):
            return self._take_break(event)
        elif self._pending:
            self._pending.pop()
        elif self._held:
            self._close()
        return None

    def _close(self) -> None:
        held = self._held.pop()
        if held.is_written:
            self._styles.append((held.mark.kind, held.piece, len(self._pieces)))
            self._write(self._spelling.after(held.mark))

    def _take_break(self, event: LineBreak) -> _BreakPoint | None:
        if not self._pieces:
            return None
        point = self._point(self._event, 0)
        if event.level >= self._ends:
            return point
        self._points["block" if event.level == BLOCK else "line"] = point
        if self._gap is None or event.level > self._gap.level:
            self._gap = event
        while self._spelling.by_line and self._held and self._held[-1].mark.kind in INLINE:
            self._pending.insert(0, self._held[-1].mark)
            self._close()
        return None

    def _take_text(self, event: TextRun) -> _BreakPoint | None:
        text = event.text[self._offset :]
        is_verbatim = event.is_whole or self._is_verbatim()
        if self._offset and not self._pieces and not is_verbatim:
            self._offset += len(text) - len(text.lstrip(" "))
            text = text.lstrip(" ")
        lead = self._lead()
        room = self._room(lead)
        fits = len(text) <= room and self._cost(text) <= room
        if fits or not (text or self._pieces):
            if text or not self._offset:
                self._write_words(text, lead, self._find_space(text, is_verbatim, len(text)))
            self._event, self._offset = self._event + 1, 0
            return None
        fitting = self._reach(text, room)
        if space := self._find_space(text, is_verbatim, fitting + 1):
            self._write_words(text[: space + 1], lead, space)
        if point := self._best_point():
            return point
        if not fitting and self._pieces:
            return self._point(self._event, self._offset)
        end = max(1, fitting)
        if end > 1 and text[end - 1] == "\\":  # escaping would lose it
            end -= 1
        self._write_words(text[:end], lead, 0)
        return self._point(self._event, self._offset + end)

    def _find_space(self, text: str, is_verbatim: bool, end: int) -> int:  # noqa: FBT001 - told once
        """Return the last space before `end`, not at the start; 0 when there is none."""
        space = -1 if is_verbatim else text.rfind(" ", 0, end)
        if space == 0 and self._pieces:
            self._points["space"] = self._point(self._event, self._offset + 1)
        return max(space, 0)

    def _best_point(self) -> _BreakPoint | None:
        tiers: tuple[_Tier, ...] = ("block", "line", "space")
        for tier in tiers:
            if (point := self._points.get(tier)) and point.size * 2 >= self._limit:
                return point
        return max(self._points.values(), key=lambda point: point.size, default=None)

    def _lead(self) -> _Prefix:
        """Return what precedes; a mark that leaves text less than a quarter is left out.

        So are those within it: an item without its list would be invalid.
        """
        text = (self._gap.text if self._gap else "") + self._line_prefix()
        weight, size = self._weigh(text), 0
        fits = not self._held or self._held[-1].is_written
        held: list[tuple[str, _OpenMarkState]] = []
        for mark, inner in zip(self._pending, [*self._pending[1:], None], strict=False):
            before, after = self._spelling.before(mark, inner), self._spelling.after(mark)
            more = self._weigh(before) + self._weigh(after)
            fits = fits and (weight + more) * 4 <= self._limit * 3
            if fits:
                weight += more
                size += len(before) + len(after)
            piece = len(self._pieces) + 1 + len(held) + 1
            held.append((before if fits else "", _OpenMarkState(mark, piece, fits)))
        return _Prefix(text, tuple(held), weight, len(text) + size)

    def _line_prefix(self) -> str:
        spelling = self._spelling
        is_soft = self._gap is not None and self._gap.level == SOFT
        is_new_line = self._gap is not None or not self._pieces
        if not is_new_line or (is_soft and not spelling.every_line):
            return ""
        marks = [held.mark for held in self._held] + self._pending
        return spelling.quote * sum(mark.kind == "quote" for mark in marks)

    def _room(self, lead: _Prefix) -> int:
        """Return the space for text, after what precedes and what closes."""
        owed = [self._spelling.after(held.mark) for held in self._held if held.is_written]
        room = self._limit - self._size - lead.weight - sum(map(self._weigh, owed))
        used = self._bytes + lead.max_bytes + sum(map(len, owed))
        return min(room, (self._max_bytes - used) // _MAX_CHAR_BYTES)

    def _write_words(self, text: str, lead: _Prefix, space: int) -> None:
        """Write text; at `space` the message may end."""
        self._write(lead.text)
        for before, held in lead.held:
            self._write(before)
            self._held.append(held)
        self._pending.clear()
        self._gap = None
        if any(held.mark.kind in VERBATIM and not held.is_written for held in self._held):
            text = self._spelling.quiet(text)
        if space > 0:
            self._write(self._spelling.escape(text[:space]), text[:space])
            self._points["space"] = self._point(self._event, self._offset + space + 1)
            text = text[space:]
        self._write(self._spelling.escape(text), text)

    def _write(self, text: str, words: str = "") -> None:
        self._pieces.append(text)
        self._has_words = self._has_words or bool(words.strip())
        if self._spelling.unseen:
            self._size += measure(words, self._unit) if words else self._weigh(text)
            self._bytes += measure(text, "byte")
        else:
            self._size += measure(text, self._unit)

    def _weigh(self, text: str) -> int:
        """Return the length of markup."""
        return text.count("\n") if self._spelling.unseen else measure(text, self._unit)

    def _cost(self, words: str) -> int:
        seen = words if self._spelling.unseen else self._spelling.escape(words)
        return measure(seen, self._unit)

    def _reach(self, text: str, room: int) -> int:
        """Return how many characters fit."""
        for index, ch in enumerate(text):
            room -= self._cost(ch)
            if room < 0:
                return index
        return len(text)

    def _is_verbatim(self) -> bool:
        marks = [held.mark for held in self._held] + self._pending
        return any(mark.kind in VERBATIM for mark in marks)

    def _point(self, event: int, offset: int) -> _BreakPoint:
        return _BreakPoint(
            event,
            offset,
            len(self._pieces),
            self._size,
            len(self._styles),
            self._has_words,
            tuple(self._held),
            tuple(self._pending),
        )

    def _end(self, point: _BreakPoint) -> Iterator[MessagePart]:
        """End the message at a point; the next one continues there."""
        del self._pieces[point.pieces :]
        del self._styles[point.styles :]
        self._held = list(point.held)
        while self._held:
            self._close()
        part = MessagePart("".join(self._pieces), self._measured())
        self._event, self._offset = point.event, point.offset
        self._begin((*(held.mark for held in point.held), *point.pending))
        if point.has_words:
            yield part

    def _measured(self) -> tuple[StyleSpan, ...]:
        """Return the ranges of styles, for a dialect without marks in the text."""
        if self._spelling.marks:
            return ()
        ends = [0]
        for piece in self._pieces:
            ends.append(ends[-1] + utf16_len(piece))
        found = [StyleSpan(kind, ends[a], ends[b] - ends[a]) for kind, a, b in self._styles]
        return tuple(style for style in found if style.length)
