"""Snapshots of a page as text or nodes, of what Playwright's `aria_snapshot(mode="ai")` returns.

A line is a node: `- button "Save" [ref=e12]`, indented by its depth. What a page calls its elements
is in quotes, so that no name can be mistaken for a ref. Pure.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import Final

from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json

MAX_CHARS: Final = 20_000
EFFICIENT_CHARS: Final = 10_000
EFFICIENT_DEPTH: Final = 6
MAX_NODES: Final = 500
_LINE: Final = re.compile(r"^( *)- (.*)$")
_ROLE: Final = re.compile(r"[A-Za-z]+")
_QUOTED: Final = re.compile(r'"(?:[^"\\]|\\.)*"')
_REF: Final = re.compile(r"\[ref=([a-z0-9]+)\]")
_BOX: Final = re.compile(r" ?\[box=(-?\d+),(-?\d+),(\d+),(\d+)\]")
_INTERACTIVE: Final = frozenset(
    {
        "button", "checkbox", "combobox", "link", "listbox", "menuitem", "menuitemcheckbox",
        "menuitemradio", "option", "radio", "searchbox", "slider", "spinbutton", "switch", "tab",
        "textbox", "treeitem",
    }
)  # fmt: skip
_CONTAINERS: Final = frozenset(
    {"generic", "group", "list", "none", "presentation", "row", "rowgroup", "table", "region"}
)


@dataclass(frozen=True, slots=True)
class SnapshotNode:
    """An element of a page; `text` is its line without indentation and box."""

    role: str
    name: str
    ref: str
    text: str
    box: tuple[int, int, int, int] | None = None
    value: str = ""
    children: list["SnapshotNode"] = field(default_factory=list)

    @property
    def is_interactive(self) -> bool:
        return self.role in _INTERACTIVE or "[cursor=pointer]" in _outside_names(self.text)

    @property
    def is_bare(self) -> bool:
        """Whether it only groups others."""
        return self.role in _CONTAINERS and not self.name and not self.value


@dataclass(frozen=True, slots=True)
class SnapshotOptions:
    """How much of a page is shown."""

    interactive: bool = False
    compact: bool = False
    depth: int | None = None
    max_chars: int = MAX_CHARS


@dataclass(frozen=True, slots=True)
class SnapshotText:
    """A snapshot as text, with what it has and whether something is left out."""

    text: str
    lines: int
    refs: int
    interactive: int
    is_cut: bool


def parse_snapshot(text: str) -> list[SnapshotNode]:
    """Return the roots of the tree that a snapshot describes."""
    roots: list[SnapshotNode] = []
    path: list[tuple[int, SnapshotNode]] = []
    for line in text.splitlines():
        found = _LINE.match(line)
        if not found:
            continue
        indent, node = len(found[1]), _parse_node(found[2])
        while path and path[-1][0] >= indent:
            path.pop()
        (path[-1][1].children if path else roots).append(node)
        path.append((indent, node))
    return roots


def _parse_node(text: str) -> SnapshotNode:
    box = _find_box(text)
    plain = _remove_boxes(text)
    head = plain.removeprefix("'")
    role = _ROLE.match(head)
    outside = _outside_names(plain)
    ref, name = _REF.search(outside), ""
    if role and (quoted := _QUOTED.match(head, role.end() + 1)):
        name = _decode_name(quoted[0])
    return SnapshotNode(
        role[0] if role else "",
        name,
        ref[1] if ref else "",
        plain,
        box,
        _find_value(plain, role[0] if role else ""),
    )


def _find_value(text: str, role: str) -> str:
    """Return the text after the colon of a line, as in `textbox "Name" [ref=e2]: Ada`."""
    masked = _QUOTED.sub(lambda found: "x" * len(found[0]), text)
    at = masked.find(": ", len(role))
    return text[at + 2 :] if at >= 0 else ""


def _outside_names(text: str) -> str:
    """Return a line without quoted names and without the text after the colon."""
    bare = _QUOTED.sub("", text)
    return bare.partition(": ")[0]


def _find_box(text: str) -> tuple[int, int, int, int] | None:
    found = _BOX.search(_outside_names(text))
    return (int(found[1]), int(found[2]), int(found[3]), int(found[4])) if found else None


def _remove_boxes(text: str) -> str:
    """Return a line without its box; text of the page that looks like one stays."""
    masked = _QUOTED.sub(lambda found: "x" * len(found[0]), text)
    end = masked.find(": ")
    found = _BOX.search(masked, 0, end if end >= 0 else len(masked))
    return text[: found.start()] + text[found.end() :] if found else text


def _decode_name(quoted: str) -> str:
    try:
        decoded = json.loads(quoted)
    except ValueError:
        decoded = quoted[1:-1]
    return str(decoded)


def format_snapshot(roots: Sequence[SnapshotNode], options: SnapshotOptions) -> SnapshotText:
    """Return a snapshot as text, reduced and cut as the options say."""
    lines: list[str] = []
    refs = interactive = 0
    for depth, node in _select(roots, options):
        lines.append(f"{'  ' * depth}- {node.text}")
        refs += bool(node.ref)
        interactive += node.is_interactive
    shown, size = 0, 0
    for line in lines:
        size += len(line) + 1
        if size > options.max_chars:
            break
        shown += 1
    text = "\n".join(lines[:shown])
    if shown == 0 and lines:
        text, shown = lines[0][: options.max_chars], 1
    if left := len(lines) - shown:
        text += f"\n[{left} more lines left out: use maxChars, selector, depth or interactive]"
    return SnapshotText(text, shown, refs, interactive, left > 0)


def _select(
    roots: Sequence[SnapshotNode], options: SnapshotOptions
) -> Iterator[tuple[int, SnapshotNode]]:
    """Yield the nodes that are shown, with the depth at which they are."""
    stack = [(0, 0, node) for node in reversed(roots)]  # depth in the page, depth that is shown
    while stack:
        depth, shown, node = stack.pop()
        if options.depth is not None and depth > options.depth:
            continue
        is_shown = node.is_interactive or not options.interactive
        if options.compact and node.is_bare and not node.is_interactive:
            is_shown = False
        if options.interactive and not node.ref:
            is_shown = False
        if is_shown:
            yield (0 if options.interactive else shown), node
        below = shown + 1 if is_shown else shown
        # A container that is not shown is no level of the page either.
        deeper = depth if options.compact and node.is_bare else depth + 1
        stack += [(deeper, below, child) for child in reversed(node.children)]


def list_nodes(
    roots: Sequence[SnapshotNode], options: SnapshotOptions, limit: int
) -> tuple[list[Json], bool]:
    """Return the nodes as objects, and whether there are more than the limit."""
    found: list[Json] = []
    size = 0
    for depth, node in _select(roots, options):
        if node.text.startswith("/"):  # a property of the node above
            continue
        if len(found) == limit or size > options.max_chars:
            return found, True
        entry: dict[str, Json] = {"ref": node.ref, "role": node.role, "name": node.name}
        if node.value:
            entry["value"] = node.value
        found.append({**entry, "depth": depth})
        size += len(node.text) + 40
    return found, False


def labelled_boxes(
    roots: Sequence[SnapshotNode],
) -> Iterator[tuple[str, tuple[int, int, int, int]]]:
    """Yield the refs of interactive elements with their boxes in the window.

    The box of an element in a frame is relative to its frame.
    """
    stack = [(0, 0, node) for node in reversed(roots)]
    while stack:
        left, top, node = stack.pop()
        if node.box:
            x, y, width, height = node.box
            x, y = x + left, y + top
            if node.ref and node.is_interactive and width and height:
                yield node.ref, (x, y, width, height)
            if node.role == "iframe":
                left, top = x, y
        stack += [(left, top, child) for child in reversed(node.children)]
