"""The collections that qmd indexes for an agent, and the files of its results.

A collection is a name, a folder and a pattern. The path of a result is `qmd/<collection>/<path>`;
it names a file only if the collection is one of the agent's, the pattern matches, and no link is on
the way.
"""

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from homarus.core.errors import HomarusError, NotFoundError, ToolError
from homarus.core.fast_dataclass import dataclass
from homarus.core.text import one_line
from homarus.memory.note_files import MAX_FILE_BYTES, Source
from homarus.memory.spec import MemorySpec
from homarus.memory.transcript_export import audience_of_export, exports_folder
from homarus.memory.view import PRIVATE, MemoryView, audience_of_path
from homarus.tools import glob_pattern as globs
from homarus.tools.rooted_fs import RootedFs

SESSIONS: Final = "sessions"
PREFIX: Final = "qmd/"
_EVERY = "**/*.md"
_NOT_NAME = re.compile(r"[^a-z0-9]+")
_MAX_NAME_CHARS = 64
_SNIFFED = 8192


@dataclass(frozen=True, slots=True)
class QmdCollection:
    """A folder and a pattern for its files, in qmd's syntax."""

    name: str
    root: Path
    pattern: str
    source: Source = "memory"

    def holds(self, relative: str) -> bool:
        """Return whether the pattern matches a path below the root; hidden names never match."""
        if any(part.startswith(".") for part in relative.split("/")):
            return False
        return any(_matches(choice, relative) for choice in _choices(self.pattern))


@dataclass(frozen=True, slots=True)
class QmdDocument:
    """A file that a result of qmd refers to."""

    path: str
    root: Path
    relative: str
    audience: str
    source: Source

    @property
    def file(self) -> Path:
        return self.root / self.relative

    def read(self) -> str | None:
        """Return its text without following links; None when it cannot be read."""
        try:
            with RootedFs(self.root, links=False).open_read(f"./{self.relative}") as opened:
                data = opened.file.read(MAX_FILE_BYTES + 1)
        except (HomarusError, OSError):
            return None
        if len(data) > MAX_FILE_BYTES or b"\0" in data[:_SNIFFED]:
            return None
        return data.decode("utf-8", "replace").replace("\0", "\ufffd")


def collections_of(spec: MemorySpec) -> tuple[QmdCollection, ...]:
    """Return all collections to index, with unique names."""
    taken: set[str] = set()
    found: list[QmdCollection] = []
    for name, root, pattern, source in _wanted(spec):
        unique = _unique(name, taken)
        taken.add(unique)
        found.append(QmdCollection(unique, root, pattern, source))
    return tuple(found)


def _wanted(spec: MemorySpec) -> Iterator[tuple[str, Path, str, Source]]:
    settings = spec.settings.qmd
    if settings.include_default_memory:
        yield "memory-root", spec.workspace, "MEMORY.md", "memory"
        yield "memory-alt", spec.workspace, "memory.md", "memory"
        yield "memory-dir", spec.workspace / "memory", _EVERY, "memory"
    if settings.sessions.enabled:
        yield SESSIONS, exports_folder(spec), _EVERY, "sessions"
    for given in settings.paths:
        path = spec.file(given.path)
        pattern = given.pattern or _EVERY
        if path.suffix == ".md" and not path.is_dir():
            path, pattern = path.parent, path.name
        yield given.name or path.name, path, pattern, "memory"


def clean_name(name: str) -> str:
    """Return a collection name: lowercase ASCII letters and digits with hyphens between them."""
    return _NOT_NAME.sub("-", name.lower())[:_MAX_NAME_CHARS].strip("-") or "collection"


def _unique(name: str, taken: set[str]) -> str:
    clean = clean_name(name)
    number, unique = 1, clean
    while unique in taken:
        number += 1
        unique = f"{clean}-{number}"
    return unique


def _choices(pattern: str) -> Iterator[str]:
    """Yield the alternatives of a pattern, which commas separate."""
    for choice in globs.expand_braces(pattern[: globs.MAX_CHARS]):
        yield from (part.strip().removeprefix("./") for part in choice.split(","))


def _matches(choice: str, relative: str) -> bool:
    """Match like qmd: a pattern without a slash matches files of the root alone."""
    if "/" not in choice and "/" in relative and choice != "**":
        return False
    try:
        return bool(choice) and globs.compile_glob(choice)(relative)
    except ToolError:
        return False


def find_document(spec: MemorySpec, path: str) -> QmdDocument:
    """Return the file of `qmd/<collection>/<path>`. Raises NotFoundError."""
    name, _, relative = path.removeprefix(PREFIX).partition("/")
    found = next((one for one in collections_of(spec) if one.name == name), None)
    if not path.startswith(PREFIX) or found is None or not _is_inside(relative):
        raise _missing(path)
    if not relative.endswith(".md") or not found.holds(relative):
        raise _missing(path)
    if not _is_plain_file(found.root, relative):
        raise _missing(path)
    audience = _audience(spec, found, relative)
    return QmdDocument(path, found.root, relative, audience, found.source)


def read_document(spec: MemorySpec, name: str, view: MemoryView) -> bytes | None:
    """Return the text of `qmd/<name>` for a view, or None."""
    try:
        document = find_document(spec, f"{PREFIX}{name}")
    except NotFoundError:
        return None
    if not view.shows(document.audience):
        return None
    text = document.read()
    return None if text is None else text.encode()


def _missing(path: str) -> NotFoundError:
    return NotFoundError(f"there is no {one_line(path)}", fix="name a path that memory_search gave")


def _is_inside(relative: str) -> bool:
    parts = relative.split("/")
    return all(part not in ("", ".", "..") for part in parts) and "\0" not in relative


def _is_plain_file(root: Path, relative: str) -> bool:
    """Return whether it is a regular file, without links between the root and it."""
    here = root
    parts = relative.split("/")
    for at, part in enumerate(parts):
        here /= part
        try:
            mode = os.lstat(here).st_mode
        except (OSError, ValueError):
            return False
        if not (stat.S_ISREG(mode) if at == len(parts) - 1 else stat.S_ISDIR(mode)):
            return False
    return True


def _audience(spec: MemorySpec, collection: QmdCollection, relative: str) -> str:
    exports = exports_folder(spec)
    file = collection.root / relative
    if file.is_relative_to(exports):  # also if another collection contains them
        return audience_of_export(spec, file.relative_to(exports).as_posix())
    try:
        inside = file.relative_to(spec.workspace).as_posix()
    except ValueError:
        # A folder outside may be the workspace by another name.
        said = audience_of_path(f"{collection.root.name}/{relative}")
        return said if said.startswith("chat:") else PRIVATE
    return audience_of_path(inside)
