"""The stream between a tree and a dialect: text, marks and breaks.

A stream can be cut between any two characters: the marks that are open there are closed, and opened
again after the cut, so that every message is well-formed.
"""

from collections.abc import Callable, Mapping
from typing import Final, Literal, TypeAlias

from homarus.core.fast_dataclass import dataclass

SOFT: Final = 0  # a new line in a paragraph
LINE: Final = 1
BLOCK: Final = 2
Level: TypeAlias = Literal[0, 1, 2]


@dataclass(frozen=True, slots=True)
class StyleMark:
    """How text is shown: `bold`, `link` with its address, `pre` with its language."""

    kind: str
    value: str = ""


@dataclass(frozen=True, slots=True)
class TextRun:
    """Text on one line. An empty one shows marks around nothing, such as an empty cell.

    `is_whole`: no message ends at a space in it, such as the one after a bullet.
    """

    text: str
    is_whole: bool = False


@dataclass(frozen=True, slots=True)
class OpenMark:
    """The start of a mark."""

    mark: StyleMark


@dataclass(frozen=True, slots=True)
class CloseMark:
    """The end of the mark that was opened last."""


@dataclass(frozen=True, slots=True)
class LineBreak:
    """The end of a line or block, and how it is written if something follows."""

    level: Level
    text: str


StreamItem: TypeAlias = TextRun | OpenMark | CloseMark | LineBreak

VERBATIM: Final = frozenset({"pre", "code"})
# Inline marks. The others are blocks.
INLINE: Final = frozenset({"bold", "star", "italic", "strike", "spoiler", "code", "link"})


def unchanged(text: str) -> str:
    """Return a text that needs no escaping."""
    return text


@dataclass(frozen=True, slots=True)
class DialectSyntax:
    """How a dialect writes the marks of a stream.

    `marks`: what precedes and follows, with `{}` for the mark's value. `quote`: what starts every
    line of a quote; `every_line` is False where a service wants it once per block. `by_line`:
    inline marks end with the line. `unseen`: the service counts the text only, not the marks.
    `quiet` writes code where there is no room to mark it, at its length.
    """

    marks: Mapping[str, tuple[str, str]]
    escape: Callable[[str], str] = unchanged
    value: Callable[[str], str] = unchanged
    quiet: Callable[[str], str] = unchanged
    quote: str = ""
    every_line: bool = True
    by_line: bool = False
    unseen: bool = False

    def before(self, mark: StyleMark, inner: StyleMark | None) -> str:
        """Return what opens a mark; `inner` opens with it, such as a list's first item."""
        return self.marks.get(mark.kind, ("", ""))[0].replace("{}", self.value(mark.value))

    def after(self, mark: StyleMark) -> str:
        return self.marks.get(mark.kind, ("", ""))[1].replace("{}", self.value(mark.value))
