"""What a text is between its tree and a service's spelling of it: words, marks and breaks.

A stream can be cut anywhere between two characters: the marks that are open there are closed, and
opened again after the cut. That is what makes every message well-formed by itself.
"""

from collections.abc import Callable, Mapping
from typing import Final, Literal, TypeAlias

from homarus.core.value import dataclass

SOFT: Final = 0  # a new line in a paragraph
LINE: Final = 1
BLOCK: Final = 2
Level: TypeAlias = Literal[0, 1, 2]


@dataclass(frozen=True, slots=True)
class Mark:
    """How words are shown: `bold`, `link` with its address, `pre` with its language."""

    kind: str
    value: str = ""


@dataclass(frozen=True, slots=True)
class Text:
    """Words, on one line. Empty ones show marks around nothing, such as an empty cell.

    `is_whole`: no message ends at a space in it, such as the one after a bullet.
    """

    text: str
    is_whole: bool = False


@dataclass(frozen=True, slots=True)
class Open:
    """From here on."""

    mark: Mark


@dataclass(frozen=True, slots=True)
class Close:
    """The end of the mark that was opened last."""


@dataclass(frozen=True, slots=True)
class Break:
    """The end of a line or block, and how it is spelled, if something follows."""

    level: Level
    text: str


Event: TypeAlias = Text | Open | Close | Break

VERBATIM: Final = frozenset({"pre", "code"})
# Marks within a line. The others are blocks.
INLINE: Final = frozenset({"bold", "italic", "strike", "spoiler", "code", "link"})


def unchanged(text: str) -> str:
    """A dialect's words that need no escape."""
    return text


@dataclass(frozen=True, slots=True)
class Spelling:
    """How a dialect writes the marks of a stream.

    `marks`: what stands before and after, with `{}` for the mark's value. `quote`: what stands at
    the start of every line of a quote; `every_line` is False where a service wants it once for each
    block. `by_line`: marks within a line end with it. `unseen`: the service counts words only, not
    the marks. `quiet` writes code where there is no room to mark it, at its length.
    """

    marks: Mapping[str, tuple[str, str]]
    escape: Callable[[str], str] = unchanged
    value: Callable[[str], str] = unchanged
    quiet: Callable[[str], str] = unchanged
    quote: str = ""
    every_line: bool = True
    by_line: bool = False
    unseen: bool = False

    def before(self, mark: Mark, inner: Mark | None) -> str:
        """What opens a mark; `inner` is the one that opens with it, such as a list's first item."""
        return self.marks.get(mark.kind, ("", ""))[0].replace("{}", self.value(mark.value))

    def after(self, mark: Mark) -> str:
        return self.marks.get(mark.kind, ("", ""))[1].replace("{}", self.value(mark.value))
