"""Check path strings from a model and resolve them beneath one root. Pure.

A path is literal: nothing is decoded, no variable is expanded, `~` only means home when home is
inside the root. A path to write must also be a valid name on every supported system, because a
workspace may be moved between them.
"""

import re
import unicodedata
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from homarus.core.errors import ToolDeniedError, ToolError
from homarus.core.text import JOINERS, fold_name, one_line

MAX_BYTES = 4000
MAX_NAME_BYTES = 255
MAX_DEPTH = 100

# Programs run what they find in .git; the state folders hold keys, approvals and our own settings.
UNWRITABLE = frozenset({".git"})
PRIVATE = frozenset({".openclaw", ".clawdbot", ".moltbot"})

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_DRIVE = re.compile(r"[A-Za-z]:($|[/\\])")
_DEVICE = re.compile(r"(con|prn|aux|nul|conin\$|conout\$|(com|lpt)[0-9¹²³])(\..*)?", re.IGNORECASE)
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def split_path(path: str, roots: Iterable[Path], home: Path) -> tuple[str, ...]:
    """Return the components beneath the root, with `..` and a final `""` (a trailing slash).

    `roots` are the spellings of the one root: as configured, and resolved.
    """
    check_text(path)
    whole = path
    if path == "~" or path.startswith("~/"):
        whole = f"{home}{path[1:]}"
    elif path.startswith("~"):
        raise ToolDeniedError(
            f"{format_path(path)}: the homes of other users are outside the workspace",
            fix=f"write ./{one_line(path)} for a file of that name",
        )
    if whole.startswith("/"):
        whole = _beneath(path, whole, roots)
    parts = tuple(part for part in whole.split("/") if part not in ("", "."))
    if len(parts) > MAX_DEPTH:
        raise ToolError(f"{format_path(path)}: more than {MAX_DEPTH} folders deep")
    return (*parts, "") if path.endswith("/") else parts


def check_text(path: str) -> None:
    """Refuse text that is not a path, or not one that a person could read."""
    if not path:
        raise ToolError("the path is empty", fix="name a file; . is the workspace itself")
    hidden = next((ch for ch in path if _is_hidden(ch)), "")
    if hidden:
        raise ToolError(
            f"{format_path(path)}: the path holds U+{ord(hidden):04X}, which nobody can see"
        )
    if "\\" in path or _DRIVE.match(path):
        raise ToolError(
            f"{format_path(path)}: not a path beneath the workspace", fix="use / in paths"
        )
    if _URL.match(path):
        raise ToolError(
            f"{format_path(path)}: a URL, not a path", fix="give a path in the workspace"
        )
    if len(path.encode()) > MAX_BYTES:
        raise ToolError(f"{format_path(path)}: the path is longer than {MAX_BYTES} bytes")
    if any(len(part.encode()) > MAX_NAME_BYTES for part in path.split("/")):
        raise ToolError(f"{format_path(path)}: a name is longer than {MAX_NAME_BYTES} bytes")


def check_name(name: str, *, writing: bool) -> None:
    """Refuse an unsafe name; the walk checks each one, also behind a link."""
    folded = fold_name(name)
    if folded in PRIVATE:
        raise ToolDeniedError(
            f"{format_path(name)} holds the gateway's own state: not for file tools"
        )
    if not writing:
        return
    if folded in UNWRITABLE:
        raise ToolDeniedError(
            f"nothing is written in {format_path(name)} by file tools", fix="use git"
        )
    if ":" in name or _DEVICE.fullmatch(name) or name.endswith((" ", ".")):
        raise ToolError(
            f"{format_path(name)}: not a file name on every system", fix="choose another"
        )


def format_path(path: str) -> str:
    """Return a path for a message: one line, nothing hidden, not too long."""
    return one_line(path, 120) or "(empty)"


def _beneath(path: str, whole: str, roots: Iterable[Path]) -> str:
    parts = PurePosixPath(whole).parts
    for root in roots:
        if parts[: len(root.parts)] == root.parts:
            return "/".join(parts[len(root.parts) :]) or "."
    raise ToolDeniedError(
        f"{format_path(path)} is outside the workspace", fix="use a path in the workspace"
    )


def _is_hidden(ch: str) -> bool:
    return unicodedata.category(ch) in _HIDDEN and ch not in JOINERS
