r"""Parse JSON5 into a tree of nodes with their positions in the text.

With the positions, an error can name its line, and an edit can replace one value and leave every
comment in place. It is stricter than JSON5 where leniency hides a mistake: a repeated key, NaN
and infinities, NUL and a lone surrogate are errors.
"""

import re
from collections.abc import Sequence
from dataclasses import field
from typing import Any, TypeAlias

from homarus.core.errors import ConfigError
from homarus.core.fast_dataclass import dataclass
from homarus.core.text import one_line

Value: TypeAlias = Any  # a JSON5 value: None, bool, int, float, str, list, dict
PathStep: TypeAlias = str | int
KeyPath: TypeAlias = tuple[PathStep, ...]

MAX_DEPTH = 100

_SPACE = r"\t\n\v\f\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
_SKIP = re.compile(rf"(?:[{_SPACE}]++|//[^\n\r\u2028\u2029]*+|/\*(?:[^*]|\*(?!/))*+\*/)*+")
_STRING = re.compile(
    r'"(?:[^"\\\n\r]|\\(?:\r\n|[\s\S]))*+"' + r"|'(?:[^'\\\n\r]|\\(?:\r\n|[\s\S]))*+'"
)
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|x([0-9A-Fa-f]{2})|(\r\n|[\s\S]))")
_ESCAPED = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_LINE_ENDS = {"\r\n", "\n", "\r", "\u2028", "\u2029"}
_NUMBER = re.compile(
    r"[+-]?(?:0[xX][0-9A-Fa-f]++|(?:(?:0|[1-9][0-9]*+)(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?)"
    r"(?![\w$.])"
)
_NAME = re.compile(r"(?:[$_]|[^\W\d]|\\u[0-9A-Fa-f]{4})(?:[$\w\u200c\u200d]|\\u[0-9A-Fa-f]{4})*+")
_FORBIDDEN = re.compile(r"[\ud800-\udfff\0]")
_NEWLINE = re.compile(r"\r\n|\n|\r")
_WORDS: dict[str, Value] = {"true": True, "false": False, "null": None}
_MAX_DIGITS = 300  # a longer number is out of a double's range


@dataclass(slots=True)
class Scalar:
    """A string, number, true, false or null at `text[start:end]`."""

    start: int
    end: int
    value: Value


@dataclass(slots=True)
class Array:
    """`[…]`, brackets included."""

    start: int
    end: int = 0
    items: list["Node"] = field(default_factory=list)


@dataclass(slots=True)
class Member:
    """One `key: value`; `start` is the position of the key."""

    start: int
    node: "Node"


@dataclass(slots=True)
class Object:
    """`{…}`, braces included."""

    start: int
    end: int = 0
    members: dict[str, Member] = field(default_factory=dict)


Node: TypeAlias = Scalar | Array | Object


def parse_json5(text: str, file: str = "") -> Node:
    """Parse JSON5. Raises ConfigError with line and column."""
    return _Json5Parser(text, file).run()


def to_plain(node: Node) -> Value:
    """Return the values of a node without positions."""
    if isinstance(node, Object):
        return {key: to_plain(member.node) for key, member in node.members.items()}
    if isinstance(node, Array):
        return [to_plain(item) for item in node.items]
    return node.value


def locate(root: Node, path: Sequence[PathStep]) -> tuple[int, int]:
    """Return the position of a key path, and how many of its steps exist."""
    node, start = root, root.start
    for found, step in enumerate(path):
        if isinstance(node, Object) and (member := node.members.get(str(step))):
            node, start = member.node, member.start
        elif isinstance(node, Array) and isinstance(step, int) and step < len(node.items):
            node = node.items[step]
            start = node.start
        else:
            return start, found
    return start, len(path)


def line_and_column(text: str, position: int) -> tuple[int, int]:
    """Return the line and column of a position, both counted from 1."""
    line, start = 1, 0
    for newline in _NEWLINE.finditer(text, 0, position):
        line, start = line + 1, newline.end()
    return line, position - start + 1


def skip_whitespace(text: str, position: int) -> int:
    """Return the position after white space and comments."""
    found = _SKIP.match(text, position)
    return found.end() if found else position


class _Json5Parser:
    """Parses without recursion, so that deep nesting cannot overflow the stack."""

    def __init__(self, text: str, file: str) -> None:
        self._text, self._file = text, file
        self._position = 0
        self._open: list[Array | Object] = []
        self._keys: list[tuple[int, str]] = []

    def run(self) -> Node:
        if bad := _FORBIDDEN.search(self._text):
            raise self._error("a character no setting may hold", bad.start())
        self._advance(0)
        while True:
            node = self._value()
            if node is None:  # a container was opened
                continue
            root = self._attach(node)
            if root is not None:
                if self._position < len(self._text):
                    raise self._error(f"nothing may follow the end, found {self._found()}")
                return root

    def _advance(self, position: int) -> None:
        self._position = skip_whitespace(self._text, position)

    def _peek(self) -> str:
        return self._text[self._position : self._position + 1]

    def _value(self) -> Node | None:
        ch = self._peek()
        if ch == "{":
            return self._open_container(Object(self._position))
        if ch == "[":
            return self._open_container(Array(self._position))
        if ch in {'"', "'"} and ch:
            start = self._position
            value = self._string()
            return Scalar(start, self._position, value)
        return self._word_or_number()

    def _open_container(self, node: Array | Object) -> Node | None:
        if len(self._open) == MAX_DEPTH:
            raise self._error(f"nested deeper than {MAX_DEPTH} levels")
        self._advance(self._position + 1)
        if self._peek() == _closer(node):
            self._position += 1
            node.end = self._position
            return node
        self._open.append(node)
        if isinstance(node, Object):
            self._key()
        return None

    def _key(self) -> None:
        start = self._position
        if self._peek() in {'"', "'"} and self._peek():
            key = self._string()
        elif name := _NAME.match(self._text, start):
            self._position = name.end()
            key = self._unescape(name[0], start) if "\\" in name[0] else name[0]
        else:
            raise self._error(f"expected a key or }}, found {self._found()}")
        self._advance(self._position)
        if self._peek() != ":":
            raise self._error(f"expected : after the key {key!r}, found {self._found()}")
        self._advance(self._position + 1)
        self._keys.append((start, key))

    def _attach(self, node: Node) -> Node | None:
        """Add a parsed value to its container; return the root when it is complete."""
        while self._open:
            parent = self._open[-1]
            if isinstance(parent, Object):
                self._add_member(parent, node)
            else:
                parent.items.append(node)
            self._advance(self._position)
            closer = _closer(parent)
            if self._peek() == ",":
                self._advance(self._position + 1)
                if self._peek() != closer:
                    if isinstance(parent, Object):
                        self._key()
                    return None
            if self._peek() != closer:
                raise self._error(f"expected , or {closer}, found {self._found()}", opened=parent)
            self._position += 1
            parent.end = self._position
            node = self._open.pop()
        self._advance(self._position)
        return node

    def _add_member(self, parent: Object, node: Node) -> None:
        start, key = self._keys.pop()
        if key in parent.members:
            first, _ = line_and_column(self._text, parent.members[key].start)
            raise self._error(
                f"the key {key!r} stands here a second time; the first is in line {first}", start
            )
        parent.members[key] = Member(start, node)

    def _string(self) -> str:
        start = self._position
        found = _STRING.match(self._text, start)
        if not found:
            raise self._error("the string that begins here has no end on its line")
        self._position = found.end()
        body = found[0][1:-1]
        return self._unescape(body, start + 1) if "\\" in body else body

    def _unescape(self, body: str, start: int) -> str:
        def replace(found: re.Match[str]) -> str:
            code = found[1] or found[2]
            if code:
                return chr(int(code, 16))
            ch = found[3]
            if ch in "ux" or (ch.isdigit() and (ch != "0" or body[found.end() :][:1].isdigit())):
                raise self._error(f"bad escape {found[0]}", start + found.start())
            if ch == "0":
                return "\0"
            return "" if ch in _LINE_ENDS else _ESCAPED.get(ch, ch)

        text = _ESCAPE.sub(replace, body)
        try:
            text = text.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError:
            raise self._error("half a surrogate pair in this string", start) from None
        if "\0" in text:
            raise self._error("NUL in this string", start)
        return text

    def _word_or_number(self) -> Scalar:
        start = self._position
        if number := _NUMBER.match(self._text, start):
            self._position = number.end()
            return Scalar(start, self._position, self._number(number[0], start))
        name = _NAME.match(self._text, start)
        if name and name[0] in _WORDS:
            self._position = name.end()
            return Scalar(start, self._position, _WORDS[name[0]])
        if name:
            raise self._error(
                f"expected a value, found {one_line(name[0], 30)}", fix="put text in quotes"
            )
        if not self._text.strip():
            raise self._error("the file is empty", fix="write {} in it, or delete it")
        raise self._error(f"expected a value, found {self._found()}")

    def _number(self, text: str, start: int) -> int | float:
        digits = text.lstrip("+-").lower()
        sign = -1 if text[0] == "-" else 1
        if len(text) <= _MAX_DIGITS:
            if digits.startswith("0x"):
                return sign * int(digits, 16)
            if digits.isdigit():
                return sign * int(digits)
            value = sign * float(digits)
            if abs(value) < 2**53 and value.is_integer():
                return int(value)  # 5.0 is 5, as in other JSON5 parsers
            if abs(value) != float("inf"):
                return value
        raise self._error("this number is out of range", start)

    def _found(self) -> str:
        if self._position >= len(self._text):
            return "the end of the file"
        if self._text.startswith("/*", self._position):
            return "a comment that is never closed"
        return repr(self._text[self._position])

    def _error(
        self,
        message: str,
        position: int | None = None,
        *,
        opened: Array | Object | None = None,
        fix: str = "",
    ) -> ConfigError:
        line, column = line_and_column(self._text, self._position if position is None else position)
        if opened and not fix:
            opened_line, _ = line_and_column(self._text, opened.start)
            fix = f"the {self._text[opened.start]} to close is in line {opened_line}"
        return ConfigError(f"column {column}: {message}", file=self._file, line=line, fix=fix)


def _closer(node: Array | Object) -> str:
    return "}" if isinstance(node, Object) else "]"
