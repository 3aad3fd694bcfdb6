"""Write a changed tree into the text it was parsed from, preserving comments and layout.

Only differences are edited: a value is replaced in place, a key is added after the last one in
the same style, a key is removed with its comma and its empty line.
"""

import json
import re
from typing import TypeAlias

from homarus.config.json5_document import (
    Array,
    Node,
    Object,
    Value,
    parse_json5,
    skip_whitespace,
    to_plain,
)
from homarus.config.tree_edit import json_equal
from homarus.core.fast_dataclass import dataclass

_IDENTIFIER = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
_REST_OF_LINE = re.compile(r"[ \t]*(?://[^\n\r]*|/\*[^\n\r]*?\*/[ \t]*(?=\r?\n|\r))")
_BLANK_TO_END = re.compile(r"[ \t]*(\r\n|\n|\r)")
_INDENT = "  "

Edit: TypeAlias = tuple[int, int, str]  # start, end, replacement


@dataclass(frozen=True, slots=True)
class RewriteResult:
    """The new text, and whether it preserves the layout of the old one."""

    text: str
    kept_layout: bool


def rewrite(text: str, new: Value) -> RewriteResult:
    """Edit `text` so that it parses to `new`."""
    root = parse_json5(text)
    edits = _Rewriter(text, root).edits(root, new)
    for start, end, replacement in sorted(edits, key=lambda edit: edit[:2], reverse=True):
        text = text[:start] + replacement + text[end:]
    if json_equal(to_plain(parse_json5(text)), new):
        return RewriteResult(text, kept_layout=True)
    return RewriteResult(serialize(new), kept_layout=False)


def serialize(value: Value) -> str:
    """Format a tree as a new file."""
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


@dataclass(frozen=True, slots=True)
class _ContainerEdit:
    """The edit of one container: its old entries, which are removed, what is appended."""

    container: Array | Object
    old: list[tuple[int, Node]]  # the start of an entry, and its value
    removed: set[int]
    added: list[tuple[str | None, Value]]  # key (None in a list) and value


class _Rewriter:
    def __init__(self, text: str, root: Node) -> None:
        self._text = text
        self._newline = "\r\n" if "\r\n" in text else "\n"
        first = next(iter(root.members.values()), None) if isinstance(root, Object) else None
        self._bare_keys = first is not None and text[first.start] not in "\"'"

    def edits(self, node: Node, new: Value) -> list[Edit]:
        if json_equal(to_plain(node), new):
            return []
        if isinstance(node, Object) and isinstance(new, dict):
            return self._object(node, new)
        if isinstance(node, Array) and isinstance(new, list):
            return self._array(node, new)
        return [self._replace(node, new)]

    def _replace(self, node: Node, new: Value) -> Edit:
        return (node.start, node.end, self._dump(new, self._indent_at(node.start), wide=True))

    def _object(self, node: Object, new: dict[str, Value]) -> list[Edit]:
        old = list(node.members.items())
        entries = _ContainerEdit(
            container=node,
            old=[(member.start, member.node) for _, member in old],
            removed={index for index, (key, _) in enumerate(old) if key not in new},
            added=[(key, value) for key, value in new.items() if key not in node.members],
        )
        inner = [self.edits(member.node, new[key]) for key, member in old if key in new]
        return [edit for edits in inner for edit in edits] + self._resize(entries)

    def _array(self, node: Array, new: list[Value]) -> list[Edit]:
        old = [to_plain(item) for item in node.items]
        places = [(item.start, item) for item in node.items]
        if len(old) == len(new):
            pairs = zip(node.items, new, strict=True)
            return [edit for item, value in pairs for edit in self.edits(item, value)]
        if len(new) > len(old) and json_equal(old, new[: len(old)]):
            added: list[tuple[str | None, Value]] = [(None, value) for value in new[len(old) :]]
            return self._resize(_ContainerEdit(node, places, set(), added))
        removed = _removed(old, new)
        if removed is None:
            return [self._replace(node, new)]
        return self._resize(_ContainerEdit(node, places, removed, []))

    def _resize(self, entries: _ContainerEdit) -> list[Edit]:
        if not entries.removed and not entries.added:
            return []
        if not entries.old:
            return [self._fill(entries)]
        kept = [at for at in range(len(entries.old)) if at not in entries.removed]
        last = entries.old[-1][1]
        ends_in_comma = self._comma_after(last) is not None
        edits = [self._remove(*entries.old[at]) for at in sorted(entries.removed)]
        if entries.added:
            edits += self._append(entries, kept, trailing="," if ends_in_comma else "")
        elif kept and len(entries.old) - 1 in entries.removed and not ends_in_comma:
            comma = self._comma_after(entries.old[kept[-1]][1])
            edits += [(comma, comma + 1, "")] if comma is not None else []
        return edits

    def _fill(self, entries: _ContainerEdit) -> Edit:
        """Add entries to an empty container."""
        start, end = entries.container.start, entries.container.end
        base = self._indent_at(start)
        inside = self._text[start + 1 : end - 1].rstrip(" \t")
        comments = inside.rstrip() if inside.strip() else ""
        body = self._entries(entries.added, base + _INDENT)
        opener, closer = self._text[start], self._text[end - 1]
        return (start, end, f"{opener}{comments}{body}{self._newline}{base}{closer}")

    def _append(self, entries: _ContainerEdit, kept: list[int], trailing: str) -> list[Edit]:
        wide = "\n" in self._text[entries.container.start : entries.old[0][0]]
        if wide:
            body = self._entries(entries.added, self._indent_at(entries.old[0][0]))
        else:
            body = ",".join(f" {self._entry(key, value)}" for key, value in entries.added)
        body += trailing
        if not kept:
            at = entries.container.start + 1
            return [(at, at, body)]
        node = entries.old[kept[-1]][1]
        comma = self._comma_after(node)
        after = node.end if comma is None else comma + 1
        # A comment at the end of the last entry's line stays with that entry.
        comment = _REST_OF_LINE.match(self._text, after)
        at = comment.end() if comment and wide else after
        if comma is not None:
            return [(at, at, body)]
        return [(at, at, f",{body}")] if at == after else [(after, after, ","), (at, at, body)]

    def _remove(self, start: int, node: Node) -> Edit:
        comma = self._comma_after(node)
        end = node.end if comma is None else comma + 1
        line = max(self._text.rfind("\n", 0, start), self._text.rfind("\r", 0, start)) + 1
        blank = _BLANK_TO_END.match(self._text, end)
        if blank and not self._text[line:start].strip(" \t"):
            return (line, blank.end(), "")
        while end < len(self._text) and self._text[end] in " \t":
            end += 1
        return (start, end, "")

    def _comma_after(self, node: Node) -> int | None:
        at = skip_whitespace(self._text, node.end)
        return at if self._text[at : at + 1] == "," else None

    def _indent_at(self, position: int) -> str:
        """Return the indentation of the line at a position."""
        line = max(self._text.rfind("\n", 0, position), self._text.rfind("\r", 0, position)) + 1
        found = re.compile(r"[ \t]*").match(self._text, line)
        return found[0] if found else ""

    def _entries(self, added: list[tuple[str | None, Value]], indent: str) -> str:
        lead = f"{self._newline}{indent}"
        return ",".join(f"{lead}{self._entry(key, value, indent)}" for key, value in added)

    def _entry(self, key: str | None, value: Value, indent: str | None = None) -> str:
        text = self._dump(value, indent or "", wide=indent is not None)
        if key is None:
            return text
        bare = self._bare_keys and _IDENTIFIER.fullmatch(key)
        return f"{key if bare else json.dumps(key, ensure_ascii=False)}: {text}"

    def _dump(self, value: Value, indent: str, *, wide: bool) -> str:
        text = json.dumps(value, indent=2 if wide else None, ensure_ascii=False)
        return text.replace("\n", f"{self._newline}{indent}")


def _removed(old: list[Value], new: list[Value]) -> set[int] | None:
    """Return the indexes to remove from `old` to get `new`; None if removing is not enough."""
    removed: set[int] = set()
    rest = iter(new)
    wanted = next(rest, None)
    left = len(new)
    for index, item in enumerate(old):
        if left and json_equal(item, wanted):
            wanted, left = next(rest, None), left - 1
        else:
            removed.add(index)
    return None if left else removed
