"""Parse frontmatter: the `key: value` lines between two `---` at the top of a markdown file.

Supports the subset of YAML that such files use: plain, quoted, folded and literal text, inline
JSON, and nested blocks of keys and lists. Every value is text; a nested block becomes JSON text,
and lines that are no valid block become folded text.
"""

import json
import re
from collections.abc import Sequence
from typing import NamedTuple

from homarus.config import json5_document
from homarus.core.errors import ConfigError
from homarus.core.message import Json

MAX_FRONTMATTER_CHARS = 65_536

_KEY = re.compile(r"([\w-]+):(.*)")
_SCALAR_MARK = re.compile(r"[|>][+-]?[1-9]?[+-]?(?:\s+#.*)?")
_QUOTED = re.compile(r""""((?:[^"\\]|\\.)*)"\s*(?:#.*)?|'((?:[^']|'')*)'\s*(?:#.*)?""")
_COMMENT = re.compile(r"(?:^|\s)#.*")
_MEMBER = re.compile(r"""("[^"]*"|'[^']*'|[^\s:'"{}\[\],#&*!|>%@`-][^:]*):(?:\s+(.*))?""")
_EMPTY = frozenset({"", "~", "null"})
# At most 15 digits: a longer number, such as an id, would be rounded.
_NUMBER = re.compile(r"[-+]?(?=[\d.]{1,16}\Z)(?:\d{1,15}|\d+\.\d*|\.\d+)", re.ASCII)
_MAX_DEPTH = 20


class _IndentedLine(NamedTuple):
    indent: int
    text: str


class _NotABlockError(ValueError):
    """The lines are neither nested keys nor a list."""


def parse_frontmatter(text: str) -> dict[str, str]:
    """Return the keys and values; none when the text does not start with a closed block."""
    entries: list[tuple[str, str, list[str]]] = []
    for line in _block_lines(text):
        found = _KEY.fullmatch(line)
        if found:
            entries.append((found[1], found[2].strip(), []))
        elif entries and not line.startswith("#"):
            entries[-1][2].append(line)
    values = {key: _value(inline, below) for key, inline, below in entries}
    return {key: value for key, value in values.items() if value is not None}


def _block_lines(text: str) -> list[str]:
    head = text[:MAX_FRONTMATTER_CHARS].removeprefix("\ufeff").replace("\r\n", "\n")
    first, *lines = head.split("\n")
    if first.rstrip() != "---":
        return []
    for at, line in enumerate(lines):
        if line.rstrip() == "---":
            return lines[:at]
    return []


def _value(inline: str, below: Sequence[str]) -> str | None:
    """Return a value as text; None for one that is empty and has no quotes."""
    if inline.startswith(("{", "[")):
        return "\n".join([inline, *below]).strip()
    if _SCALAR_MARK.fullmatch(inline):
        return (_dedent(below) if inline[0] == "|" else _fold(below)) or None
    if found := _QUOTED.fullmatch(" ".join([inline, *(line.strip() for line in below)]).strip()):
        return _unquote(found)
    inline = _COMMENT.sub("", inline)
    value = _fold([inline, *below]) if inline else _nested(below)
    if _NUMBER.fullmatch(value):
        return str(_number(value))
    return None if value in _EMPTY else value


def _nested(below: Sequence[str]) -> str:
    body = _dedent(below)
    if body.startswith(("{", "[")):
        return "\n".join(below).strip()
    lines = [
        _IndentedLine(len(line) - len(line.lstrip()), line.strip())
        for line in body.split("\n")
        if line.strip() and not line.lstrip().startswith("#")
    ]
    if not lines:
        return ""
    try:
        value, end = _read_block(lines, 0, _MAX_DEPTH)
        if end < len(lines):
            raise _NotABlockError
    except _NotABlockError:
        return _fold(below)
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _read_block(lines: list[_IndentedLine], at: int, depth: int) -> tuple[Json, int]:
    if depth == 0:
        raise _NotABlockError
    if lines[at].text == "-" or lines[at].text.startswith("- "):
        return _read_list(lines, at, depth)
    return _read_keys(lines, at, depth)


def _read_keys(lines: list[_IndentedLine], at: int, depth: int) -> tuple[dict[str, Json], int]:
    indent, keys = lines[at].indent, dict[str, Json]()
    while at < len(lines) and lines[at].indent == indent:
        found = _MEMBER.fullmatch(lines[at].text)
        if not found:
            break
        key, inline = found[1].strip().strip("\"'"), _COMMENT.sub("", found[2] or "")
        at += 1
        if inline:
            keys[key] = _scalar(inline)
        elif at < len(lines) and _belongs(lines[at], indent):
            keys[key], at = _read_block(lines, at, depth - 1)
        else:
            keys[key] = None
    if not keys:
        raise _NotABlockError
    return keys, at


def _read_list(lines: list[_IndentedLine], at: int, depth: int) -> tuple[list[Json], int]:
    indent, items = lines[at].indent, list[Json]()
    while at < len(lines) and lines[at].indent == indent and lines[at].text.startswith("-"):
        text = lines[at].text[1:].strip()
        if text and not _MEMBER.fullmatch(text):
            items.append(_scalar(_COMMENT.sub("", text)))
            at += 1
            continue
        if text:  # `- key: value`: the item is a block that starts on this line
            lines[at] = _IndentedLine(indent + len(lines[at].text) - len(text), text)
        else:
            at += 1
        if at >= len(lines) or lines[at].indent <= indent:
            raise _NotABlockError
        item, at = _read_block(lines, at, depth - 1)
        items.append(item)
    return items, at


def _belongs(line: _IndentedLine, indent: int) -> bool:
    return line.indent > indent or (line.indent == indent and line.text.startswith("- "))


def _scalar(text: str) -> Json:
    text = text.strip()
    if found := _QUOTED.fullmatch(text):
        return _unquote(found)
    if text.startswith(("{", "[")):
        return _flow(text)
    if text in {"true", "false", "null", "~"}:
        return {"true": True, "false": False}.get(text)
    return _number(text) if _NUMBER.fullmatch(text) else text


def _number(text: str) -> int | float:
    """Return a number of YAML; a whole one has no fraction, so `1.0` is 1."""
    value = float(text)
    return int(value) if value.is_integer() else value


def _flow(text: str) -> Json:
    try:
        return json5_document.to_plain(json5_document.parse_json5(text))
    except ConfigError:
        inner = text[1:-1].split(",")
        if text[0] + text[-1] != "[]" or any(mark in text[1:-1] for mark in "[]{}"):
            raise _NotABlockError from None
        return [_scalar(item) for item in inner if item.strip()]


def _unquote(found: re.Match[str]) -> str:
    if found[1] is None:
        return found[2].replace("''", "'")
    try:
        return str(json.loads(f'"{found[1]}"'))
    except ValueError:
        return found[1]


def _dedent(lines: Sequence[str]) -> str:
    margin = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    return "\n".join(line[margin:].rstrip() for line in lines).strip("\n")


def _fold(lines: Sequence[str]) -> str:
    """Join the lines with spaces; an empty line becomes a line break."""
    paragraphs = "\n".join(line.strip() for line in lines).strip("\n").split("\n\n")
    return "\n".join(paragraph.replace("\n", " ").strip() for paragraph in paragraphs).strip()
