"""Colour the code in an answer with pygments, which is imported with the first code block."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

from homarus.cli.text_layout import Line

_MAX_CHARS: Final = 20_000
# The names of pygments' token types, the longest that fits; standard colours suit any background.
_STYLES: Final = {
    "Comment": "2", "Keyword": "35", "Keyword.Constant": "36", "Literal.String": "32",
    "Literal.Number": "36", "Name.Builtin": "36", "Name.Class": "34", "Name.Decorator": "33",
    "Name.Exception": "33", "Name.Function": "34", "Name.Tag": "34", "Name.Attribute": "33",
    "Operator.Word": "35", "Generic.Deleted": "31", "Generic.Inserted": "32",
    "Generic.Heading": "1", "Generic.Subheading": "1",
}  # fmt: skip


def colour_code(lines: Sequence[str], language: str) -> list[Line]:
    """Return the lines of a code block with their styles; unknown languages have none."""
    lexer = _lexer(language) if language else None
    text = "\n".join(lines)
    if lexer is None or len(text) > _MAX_CHARS:
        return [[(line, "")] for line in lines]
    found: list[Line] = [[]]
    for _, kind, value in lexer.get_tokens_unprocessed(text):
        style = _style(str(kind))
        for place, part in enumerate(value.split("\n")):
            if place:
                found.append([])
            if part:
                found[-1].append((part, style))
    return found


@lru_cache(8)
def _lexer(language: str) -> Any:
    """Return the lexer of a language, or None."""
    from pygments.lexers import get_lexer_by_name
    from pygments.util import ClassNotFound

    try:
        return get_lexer_by_name(language)
    except ClassNotFound:
        return None


@lru_cache(200)
def _style(kind: str) -> str:
    name = kind.removeprefix("Token").removeprefix(".")
    while name and name not in _STYLES:
        name = name.rpartition(".")[0]
    return _STYLES.get(name, "")
