"""Read notes by name, never through a link.

    excerpt = read_excerpt(spec, "memory/2026-01-31.md", from_line=3, lines=5, view=view)

Names are literal. A note that the view does not show is reported like a missing one.
"""

import io
import unicodedata
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO, Final, TypeAlias

from homarus.core.errors import ToolDeniedError, ToolError
from homarus.core.fast_dataclass import dataclass
from homarus.core.text import closest_names
from homarus.memory.base import NoteExcerpt
from homarus.memory.note_files import (
    FOLDERS,
    MAX_FILE_BYTES,
    ROOTS,
    NoteFile,
    find_notes,
    shown_name,
)
from homarus.memory.spec import MemorySpec
from homarus.memory.view import EVERYTHING, MemoryView, audience_of_path
from homarus.tools.line_window import LineWindow, read_window
from homarus.tools.pathname import check_text, format_path
from homarus.tools.rooted_fs import RootedFs

MAX_LINES: Final = 2_000
MAX_BYTES: Final = 20_000
_SNIFFED = 8192
_MAX_NEAR = 1_000  # names that a mistyped one is compared with
_WHAT = "memory is MEMORY.md, and .md files in memory/ and bank/"

# Reads `<prefix>/<name>` of another source; None if there is none, or the view does not show it.
Lookup: TypeAlias = Callable[[str, MemoryView], bytes | None]
_NO_OTHERS: Final[Mapping[str, Lookup]] = {}
_NOTHING = LineWindow(b"", 0, cut=False, more=0, counted=True)


@dataclass(frozen=True, slots=True)
class NoteLocation:
    """The location of a note: a path below a root, and its canonical name."""

    root: Path
    path: str
    name: str

    @property
    def audience(self) -> str:
        return audience_of_path(self.name)


def read_excerpt(
    spec: MemorySpec,
    path: str,
    from_line: int | None = None,
    lines: int | None = None,
    view: MemoryView = EVERYTHING,
    *,
    others: Mapping[str, Lookup] = _NO_OTHERS,
) -> NoteExcerpt:
    """Return lines of a note, from 1. Raises ToolError.

    `others` reads what is not a file of memory, by the first part of its name. Beyond the end, the
    excerpt is empty.
    """
    first = max(1, from_line or 1)
    max_lines = MAX_LINES if lines is None else max(1, min(lines, MAX_LINES))
    name, window = _read(
        spec, path, view, others, lambda file: _read_window(file, first, max_lines)
    )
    text = window.data.decode("utf-8-sig" if first == 1 else "utf-8", "replace")
    if window.cut:
        text = text.rstrip("\ufffd")  # a character may have been cut in two
    text = text.replace("\0", "\ufffd").removesuffix("\n")
    return NoteExcerpt(name, text, first, window.lines, more=bool(window.more) or window.cut)


def _read_window(file: BinaryIO, first: int, max_lines: int) -> LineWindow:
    try:
        return read_window(file, first, max_lines, MAX_BYTES)
    except ToolError:  # it has fewer lines
        return _NOTHING


def _read(
    spec: MemorySpec,
    path: str,
    view: MemoryView,
    others: Mapping[str, Lookup],
    read_lines: Callable[[BinaryIO], LineWindow],
) -> tuple[str, LineWindow]:
    """Return the canonical name of a note, and what `look` returns for its file."""
    check_text(path)
    head, _, rest = path.removeprefix("./").partition("/")
    if head in others:
        parts = _parts(path, rest)
        found = others[head]("/".join(parts), view) if parts else None
        if found is None:
            raise _missing(spec, path, view)
        return "/".join((head, *parts)), read_lines(io.BytesIO(found))
    spot = locate_note(spec, path)
    if not view.shows(spot.audience):
        raise _missing(spec, spot.name, view)
    try:
        return spot.name, _read_file(spot, read_lines)
    except ToolError as exc:
        if isinstance(exc.__cause__, FileNotFoundError | NotADirectoryError):
            raise _missing(spec, spot.name, view) from None
        raise


def _read_file(spot: NoteLocation, read_lines: Callable[[BinaryIO], LineWindow]) -> LineWindow:
    with RootedFs(spot.root, links=False).open_read(spot.path) as opened:
        if opened.stat.st_size > MAX_FILE_BYTES:
            raise ToolError(f"{format_path(spot.name)} is larger than {MAX_FILE_BYTES >> 20} MB")
        if b"\0" in opened.file.read(_SNIFFED):
            raise ToolError(f"{format_path(spot.name)} is not text")
        opened.file.seek(0)
        return read_lines(opened.file)


def locate_note(spec: MemorySpec, path: str, *, writing: bool = False) -> NoteLocation:
    """Resolve a name without reading the disk. Raises ToolError, ToolDeniedError.

    With `writing`, only files of the workspace are allowed.
    """
    check_text(path)
    for extra in () if writing else spec.extra():
        name = shown_name(extra, spec.workspace)
        if path == name:
            return _checked(NoteLocation(extra.parent, extra.name, name))
        if path.startswith(f"{name}/") and not extra.is_symlink():
            inner = "/".join(_parts(path, path[len(name) + 1 :]))
            return _checked(NoteLocation(extra, inner, f"{name}/{inner}"))
    parts = _parts(path, path.removeprefix(f"{spec.workspace.as_posix()}/"))
    name = "/".join(parts)
    if name not in ROOTS and not (parts[:1] and parts[0] in FOLDERS and len(parts) > 1):
        raise ToolDeniedError(f"{format_path(path)} is not memory", fix=_WHAT)
    return _checked(NoteLocation(spec.workspace, name, name))


def _checked(spot: NoteLocation) -> NoteLocation:
    if not spot.name.endswith(".md"):
        raise ToolDeniedError(f"{format_path(spot.name)} is not a Markdown file", fix=_WHAT)
    return spot


def _parts(path: str, rest: str) -> list[str]:
    """Return the components of a name below its root; none of them leads upwards."""
    if rest.startswith("/"):
        raise ToolDeniedError(f"{format_path(path)} is not memory", fix=_WHAT)
    parts = [part for part in rest.split("/") if part not in ("", ".")]
    if any(not unicodedata.normalize("NFKC", part).strip(" .") for part in parts):
        raise ToolDeniedError(
            f"{format_path(path)} leads out of its folder", fix="name a file without .."
        )
    if rest.endswith("/"):
        raise ToolError(f"{format_path(path)} is a folder", fix="name a file in it")
    return parts


def _missing(spec: MemorySpec, name: str, view: MemoryView) -> ToolError:
    """Return the same error for a missing note and for one that the view does not show."""
    found = find_notes(spec.workspace, spec.extra())
    seen = [one.path for one in found if isinstance(one, NoteFile) and view.shows(one.audience)]
    folder = name.rpartition("/")[0]
    siblings = [each for each in seen if each.rpartition("/")[0] == folder]
    near = closest_names(name, (siblings or seen)[-_MAX_NEAR:])
    fix = f"did you mean {' or '.join(map(format_path, near))}?" if near else "search for it"
    return ToolError(f"there is no {format_path(name)} in memory", fix=fix)
