"""Texts with places for arguments and keys, as `actions.json` has them. Pure.

`{city}` is an argument, `{+path}` one that may contain slashes, `${ENV:NAME}` a key of the skill.
`{{` and `}}` are braces. A template is parsed once; filling it cannot add places, because what is
inserted is never parsed again.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeAlias

from homarus.core.errors import ToolError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json

MAX_TEMPLATE_CHARS: Final = 4_000
_TOKEN: Final = re.compile(
    r"\$\{ENV:(?P<key>[A-Z_][A-Z0-9_]{0,63})\}"
    r"|(?P<open>\{\{)|(?P<close>\}\})"
    r"|\{(?P<plus>\+?)(?P<name>[A-Za-z_][A-Za-z0-9_]{0,63})\}"
    r"|(?P<stray>\$\{|[{}])"
)


class ActionFormatError(ValueError):
    """A definition of an action that is not valid; its message says what is wrong."""


@dataclass(frozen=True, slots=True)
class ArgumentPlace:
    """The place of an argument; `is_path`: its value may contain slashes."""

    name: str
    is_path: bool = False


@dataclass(frozen=True, slots=True)
class KeyPlace:
    """The place of a key of the skill."""

    name: str


TemplatePiece: TypeAlias = str | ArgumentPlace | KeyPlace
EncodeValue: TypeAlias = Callable[[ArgumentPlace, str], str]


@dataclass(frozen=True, slots=True)
class TextTemplate:
    """A text with places."""

    pieces: tuple[TemplatePiece, ...]

    @property
    def argument_names(self) -> frozenset[str]:
        return frozenset(each.name for each in self.pieces if isinstance(each, ArgumentPlace))

    @property
    def key_names(self) -> frozenset[str]:
        return frozenset(each.name for each in self.pieces if isinstance(each, KeyPlace))

    @property
    def only_argument(self) -> str:
        """The argument that the template consists of, "" where it has anything else."""
        if len(self.pieces) == 1 and isinstance(self.pieces[0], ArgumentPlace):
            return self.pieces[0].name
        return ""

    @property
    def literal_start(self) -> str:
        """The text before the first place."""
        return self.pieces[0] if self.pieces and isinstance(self.pieces[0], str) else ""

    def fill(
        self,
        args: Mapping[str, Json],
        keys: Mapping[str, str],
        encode: EncodeValue = lambda _place, text: text,
    ) -> str | None:
        """Return the text; None when an argument of it is not given.

        `encode` gets the place and the value as text. Raises ToolError for a list or an object.
        """
        parts: list[str] = []
        for piece in self.pieces:
            if isinstance(piece, str):
                parts.append(piece)
            elif isinstance(piece, KeyPlace):
                parts.append(keys[piece.name])
            elif args.get(piece.name) is None:
                return None
            else:
                parts.append(encode(piece, format_scalar(piece.name, args[piece.name])))
        return "".join(parts)


def parse_template(text: str) -> TextTemplate:
    """Return the template. Raises ActionFormatError with what is wrong."""
    if len(text) > MAX_TEMPLATE_CHARS:
        raise ActionFormatError(f"a text has more than {MAX_TEMPLATE_CHARS} characters")
    return TextTemplate(tuple(_join_texts(_parse(text))))


def _parse(text: str) -> Iterator[TemplatePiece]:
    place = 0
    for found in _TOKEN.finditer(text):
        yield text[place : found.start()]
        place = found.end()
        if found["stray"]:
            raise ActionFormatError(
                f"{found['stray']!r} at character {found.start() + 1} starts no {{argument}}"
                " and no ${ENV:NAME}; a brace is written twice"
            )
        if found["key"]:
            yield KeyPlace(found["key"])
        elif found["name"]:
            yield ArgumentPlace(found["name"], bool(found["plus"]))
        else:
            yield "{" if found["open"] else "}"
    yield text[place:]


def _join_texts(pieces: Iterator[TemplatePiece]) -> Iterator[TemplatePiece]:
    """Yield the pieces with neighbouring texts joined, and without empty ones."""
    text = ""
    for piece in pieces:
        if isinstance(piece, str):
            text += piece
            continue
        if text:
            yield text
            text = ""
        yield piece
    if text:
        yield text


def format_scalar(name: str, value: Json) -> str:
    """Return a text, number or flag as text. Raises ToolError for any other value."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    raise ToolError(f"{name}: a text or a number is needed, not a list or an object")
