"""Which names the files of a skill may have: those that mean the same file on every system.

A name that two programs could understand differently is refused, not repaired: one archive with
such a name is an attack or a mistake, and nothing of it is used.
"""

import re
import unicodedata
from collections.abc import Iterable
from typing import Final

from homarus.core.errors import UserError
from homarus.core.text import one_line

MAX_PATH_BYTES: Final = 400
MAX_PART_BYTES: Final = 200
MAX_DEPTH: Final = 12
MAX_SLUG_CHARS: Final = 64
_SLUG: Final = re.compile(r"[a-z0-9][a-z0-9-]*")
_OWNER: Final = re.compile(r"[a-z0-9][a-z0-9_-]*")
_FORBIDDEN: Final = frozenset('\\:<>"|?*')
_UNSEEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
# Names that open a device on Windows, with any extension.
_DEVICES: Final = frozenset(
    {"con", "prn", "aux", "nul", "conin$", "conout$"}
    | {f"{name}{digit}" for name in ("com", "lpt") for digit in "0123456789¹²³"}
)


def check_entry_path(path: str) -> str:
    """Return a relative path that is safe to create; raises UserError with the reason."""
    if problem := find_path_problem(path):
        shown = one_line(path, 80)
        raise UserError(f"the file name {shown!r} is refused: {problem}")
    return path


def find_path_problem(path: str) -> str:
    """Return why a path of a file is refused, or ""."""
    if not path:
        return "it is empty"
    if path.startswith("/"):
        return "it is absolute"
    if any(unicodedata.category(ch) in _UNSEEN for ch in path):
        return "it has invisible or control characters"
    if len(path.encode()) > MAX_PATH_BYTES:
        return "it is too long"
    parts = path.split("/")
    if len(parts) > MAX_DEPTH:
        return "it is too deep"
    return next((problem for part in parts if (problem := _part_problem(part))), "")


def _part_problem(part: str) -> str:
    if part in ("", ".", ".."):
        return "it leaves its folder, or has an empty part"
    if found := _FORBIDDEN.intersection(part):
        return f"it contains {min(found)}"
    if part != part.strip() or part.endswith("."):
        return "a part begins or ends with a space, or ends with a dot"
    if part.partition(".")[0].rstrip().lower() in _DEVICES:
        return "it is the name of a device on Windows"
    return "a part is too long" if len(part.encode()) > MAX_PART_BYTES else ""


def check_no_collisions(paths: Iterable[str]) -> None:
    """Raise UserError when two paths are one on a file system that ignores case, or one is both.

    A file may not have the name of a folder that another path is in.
    """
    files: dict[str, str] = {}
    folders: dict[str, str] = {}
    for path in paths:
        key = _folded(path)
        if key in files or key in folders:
            other = files.get(key) or folders[key]
            raise UserError(f"the names {one_line(other, 80)!r} and {one_line(path, 80)!r} collide")
        files[key] = path
        parts = path.split("/")
        for depth in range(1, len(parts)):
            parent = "/".join(parts[:depth])
            known = folders.setdefault(_folded(parent), parent)
            if known != parent or _folded(parent) in files:
                raise UserError(
                    f"the names {one_line(known, 80)!r} and {one_line(path, 80)!r} collide"
                )


def _folded(path: str) -> str:
    return unicodedata.normalize("NFKC", path).casefold()


def check_slug(text: str) -> str:
    """Return the name of a skill in a registry, which is also that of its folder."""
    if len(text) > MAX_SLUG_CHARS or not _SLUG.fullmatch(text) or text in _DEVICES:
        raise UserError(
            f"{one_line(text, 80)!r} is not the name of a skill",
            fix="a name has small letters, digits and hyphens, as in release-notes",
        )
    return text


def check_owner(text: str) -> str:
    """Return the handle of a publisher, without its @."""
    handle = text.removeprefix("@").lower()
    if len(handle) > MAX_SLUG_CHARS or not _OWNER.fullmatch(handle):
        raise UserError(f"{one_line(text, 80)!r} is not the handle of a publisher")
    return handle
