"""Decide which files of this machine a sandbox may show: never our state or others' workspaces."""

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from homarus.core.errors import SandboxError
from homarus.core.text import fold_name
from homarus.policy.workspace_access import WorkspaceAccess
from homarus.tools.pathname import PRIVATE
from homarus.tools.rooted_fs import protected_links

MAX_MEDIA: Final = 100  # files that were sent to the conversation
_KERNEL: Final = (Path("/proc"), Path("/sys"), Path("/dev"), Path("/run"))
_SHOWN_STATE: Final = "skills"  # the one folder of the state directory that may be shown


def check_workspace_root(root: Path, state: Path, workspaces: Sequence[Path]) -> None:
    """Raise SandboxError for a folder of sandboxes that would mix them with other files."""
    real, own = _real(root), _real(state)
    fix = "choose another sandbox.workspaceRoot, or remove it"
    if _contains(real, own):
        raise SandboxError(
            f"sandbox.workspaceRoot {root} contains the state directory {state}", fix=fix
        )
    for each in workspaces:
        if _contains(_real(each), real):
            raise SandboxError(
                f"sandbox.workspaceRoot {root} is in {each}, the workspace of an agent", fix=fix
            )


def check_shown_folder(
    folder: Path, state: Path, workspaces: Sequence[Path], *, is_workspace: bool = False
) -> None:
    """Raise SandboxError for a folder that shows our state or a workspace of another agent.

    `is_workspace`: it is a part of the agent's own workspace, which may be in the state directory.
    """
    real, own = _real(folder), _real(state)
    what = "the agent's workspace" if is_workspace else "sandbox.readOnlyFolders"
    fix = "sandbox.workspaceAccess: none" if is_workspace else "remove it from the list"
    if not folder.is_absolute() or not os.access(real, os.F_OK):  # `exists` may raise
        raise SandboxError(f"{what}: {folder} is not an existing folder of this machine", fix=fix)
    if _contains(real, own):
        raise SandboxError(f"{what}: {folder} contains the state directory {state}", fix=fix)
    if not is_workspace:
        is_state = _contains(own, real) and not _contains(own / _SHOWN_STATE, real)
        if is_state or any(_contains(each, real) for each in _KERNEL):
            reason = "is part of the state directory" if is_state else "belongs to the system"
            raise SandboxError(f"{what}: {folder} {reason}", fix=fix)
    for each in workspaces:
        other = _real(each)
        if _contains(real, other) or (not is_workspace and _contains(other, real)):
            raise SandboxError(f"{what}: {folder} shows {each}, the workspace of an agent", fix=fix)


def find_visible_entries(workspace: Path, access: WorkspaceAccess) -> Iterator[Path]:
    """Yield the entries of a workspace that a conversation sees completely, by name.

    A link may lead to an entry that it does not see: links are left out, and so is what a
    protected name links to.
    """
    hidden = {parts[0] for parts in protected_links(workspace) if parts}
    try:
        entries = sorted(workspace.iterdir())
    except OSError as exc:
        raise SandboxError(
            f"the workspace {workspace} cannot be read: {exc.strerror}",
            fix="sandbox.workspaceAccess: none, or give the gateway's user access to it",
        ) from exc
    for entry in entries:
        folded = fold_name(entry.name)
        if folded in PRIVATE or folded in hidden or not access.shows_completely(entry.name):
            continue
        with suppress(FileNotFoundError):  # it was removed meanwhile
            found = entry.lstat()
            if stat.S_ISDIR(found.st_mode) or (stat.S_ISREG(found.st_mode) and found.st_nlink == 1):
                yield entry


def find_media(access: WorkspaceAccess, state: Path) -> list[Path]:
    """Return the files that were sent to the conversation and are still in the state directory."""
    if not access.can_attach:
        return []
    found: list[Path] = []
    for each in sorted(access.get_media()):
        if not Path(os.path.normpath(each)).is_relative_to(state / "media"):
            continue
        try:
            is_file = stat.S_ISREG(os.lstat(each).st_mode)
        except OSError:
            continue
        if is_file:
            found.append(Path(each))
    return found[-MAX_MEDIA:]


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))


def _contains(folder: Path, path: Path) -> bool:
    """Return whether a folder is the path, or a folder above it; both are resolved."""
    return path.is_relative_to(folder)
