"""Looking around in the workspace: `ls`, `find`, `grep`.

Paths come out as they go into the other file tools: from the workspace. Every search is bounded
in entries, bytes and time, and says so when a bound was met.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import field
from typing import Annotated, TypeVar

from pydantic import AliasChoices, Field

from homarus.core.errors import ToolError
from homarus.core.fast_dataclass import dataclass
from homarus.core.text import escape_invisible
from homarus.tools.folder import DirEntry
from homarus.tools.glob_pattern import compile_glob
from homarus.tools.matcher import Matcher, make_matcher
from homarus.tools.rooted_fs import MAX_ENTRIES, RootedFs, WalkEntry
from homarus.tools.tool import ToolContext, tool

SKIPPED = frozenset(
    {".git", ".hg", ".svn", ".trash", "node_modules", "__pycache__", ".venv", ".mypy_cache"}
)
MAX_FILE_BYTES = 5_000_000
MAX_LINE_CHARS = 500
SEARCH_S = 20.0

T = TypeVar("T")

Folder = Annotated[
    str,
    Field(
        validation_alias=AliasChoices("path", "file_path"),
        description="Folder or file",
    ),
]


@tool(group="fs", idempotent=True)
async def ls(
    ctx: ToolContext,
    path: Folder = ".",
    limit: Annotated[int, Field(ge=1, le=5000, description="How many names at most")] = 500,
) -> str:
    """List a folder, hidden names included; folders end in /, links in @."""
    folder, _ = ctx.folder_to_read(path)
    listing = await asyncio.to_thread(folder.listdir, path, limit)
    lines = [_marked(entry) for entry in listing.entries]
    if listing.left_out:
        lines.append(f"\n[{listing.left_out} more names. Use a higher limit to see them.]")
    return "\n".join(lines) or "(empty folder)"


@tool(group="fs", idempotent=True)
async def find(
    ctx: ToolContext,
    pattern: Annotated[str, Field(description="Glob such as *.md, **/test_*.py or src/*.{js,ts}")],
    path: Folder = ".",
    limit: Annotated[int, Field(ge=1, le=10_000, description="Results")] = 1000,
) -> str:
    """Find files and folders by name. Skips .git, node_modules and the like."""
    wanted = compile_glob(pattern)
    folder = ctx.folder_to_read(path)
    return await _in_thread(lambda stop: _find(folder, wanted, path, limit, stop))


@tool(group="fs", idempotent=True)
async def grep(
    ctx: ToolContext,
    pattern: Annotated[str, Field(description="Regular expression, or plain text with literal")],
    *,
    path: Folder = ".",
    glob: Annotated[str | None, Field(description="Only files as *.md")] = None,
    ignore_case: Annotated[bool, Field(validation_alias="ignoreCase")] = False,
    literal: Annotated[bool, Field(description="No regular expression")] = False,
    context: Annotated[int, Field(ge=0, le=20, description="Lines before and after")] = 0,
    limit: Annotated[int, Field(ge=1, le=1000, description="Matches")] = 100,
) -> str:
    """Search the contents of files, line by line.

    Skips binary files, .git, node_modules and the like.
    """
    wanted = compile_glob(glob) if glob else lambda _path: True
    folder, prefix = ctx.folder_to_read(path)

    def work(stop: threading.Event) -> str:
        matcher = make_matcher(pattern, literal=literal, ignore_case=ignore_case, stop=stop)
        return _GrepSearch(folder, prefix, matcher, wanted, context, limit, stop).run(path)

    return await _in_thread(work)


async def _in_thread(work: Callable[[threading.Event], T]) -> T:
    """Blocking work that is told to stop when its caller is cancelled."""
    stop = threading.Event()
    try:
        return await asyncio.to_thread(work, stop)
    finally:
        stop.set()


def _marked(entry: DirEntry) -> str:
    return escape_invisible(entry.name) + {"folder": "/", "link": "@", "other": "="}.get(
        entry.kind, ""
    )


def _find(
    folder: tuple[RootedFs, str],
    wanted: Callable[[str], bool],
    path: str,
    limit: int,
    stop: threading.Event,
) -> str:
    beneath, prefix = folder
    due_s = time.monotonic() + SEARCH_S
    lines: list[str] = []
    note = ""
    for count, (relative, found) in enumerate(_relative(beneath, path), 1):
        if wanted(relative):
            lines.append(_marked(DirEntry(prefix + found.path, found.kind)))
        if len(lines) == limit:
            note = f"[stopped at {limit}. Use a higher limit or a narrower pattern.]"
        elif count == MAX_ENTRIES or time.monotonic() > due_s or stop.is_set():
            note = f"[stopped after {count} names. Give a path to look in less.]"
        if note:
            break
    return "\n".join(lines or ["nothing found"]) + (f"\n\n{note}" if note else "")


def _relative(beneath: RootedFs, path: str) -> Iterator[tuple[str, WalkEntry]]:
    """What is met on a walk, also by its path from the place that was asked for."""
    base = ""
    for found in beneath.walk(path, skip=SKIPPED):
        if not base:
            base = found.path.rpartition("/")[0] or "."
        yield found.path if base == "." else found.path.removeprefix(f"{base}/"), found


@dataclass(slots=True)
class _GrepSearch:
    """One search through many files."""

    beneath: RootedFs
    prefix: str  # of the paths in the result
    matcher: Matcher
    wanted: Callable[[str], bool]
    context: int
    left: int
    stop: threading.Event
    blocks: list[str] = field(default_factory=list)
    too_big: int = 0

    def run(self, path: str) -> str:
        note = self._search(path)
        if self.too_big:
            note += f"\n[{self.too_big} files over {MAX_FILE_BYTES // 1_000_000} MB not searched]"
        joint = "\n--\n" if self.context else "\n"
        return (joint.join(self.blocks) or "no matches") + (f"\n\n{note.strip()}" if note else "")

    def _search(self, path: str) -> str:
        """Search until a bound is met; which one, in words."""
        due_s = time.monotonic() + SEARCH_S
        for count, (relative, found) in enumerate(_relative(self.beneath, path), 1):
            if found.kind == "file" and self.wanted(relative):
                self._search_file(found.path)
            if self.left <= 0:
                return "[more may match. Use a higher limit or a narrower pattern.]"
            if count == MAX_ENTRIES or time.monotonic() > due_s or self.stop.is_set():
                return f"[stopped after {count} names. Give a path to look in less.]"
        return ""

    def _search_file(self, path: str) -> None:
        text = self._text(path)
        if text is None:
            return
        numbers = self.matcher.find_lines(text, self.left)
        self.left -= len(numbers)
        if numbers:
            lines = text.split("\n")
            shown = escape_invisible(self.prefix + path)
            self.blocks.extend(_blocks(shown, lines, numbers, self.context))

    def _text(self, path: str) -> str | None:
        """A file's text; None for what is no text, too big, or not ours to read."""
        try:
            with self.beneath.open_read(path) as opened:
                data = opened.file.read(MAX_FILE_BYTES + 1)
        except ToolError:
            return None
        if b"\0" in data[:8192]:
            return None
        if len(data) > MAX_FILE_BYTES:
            self.too_big += 1
            return None
        return data.decode("utf-8", "replace")


def _blocks(path: str, lines: list[str], numbers: list[int], context: int) -> Iterator[str]:
    """Matches with their surroundings; those that touch are one block."""
    hits = set(numbers)
    block: list[str] = []
    last = 0
    for hit in numbers:
        start = max(hit - context, last + 1)
        if block and start > last + 1:
            yield "\n".join(block)
            block = []
        for number in range(start, min(hit + context, len(lines)) + 1):
            mark = ":" if number in hits else "-"
            text = lines[number - 1].removesuffix("\r")
            block.append(f"{path}{mark}{number}{mark} {_cut(text)}")
            last = number
    yield "\n".join(block)


def _cut(line: str) -> str:
    return line if len(line) <= MAX_LINE_CHARS else f"{line[:MAX_LINE_CHARS]} [cut]"
