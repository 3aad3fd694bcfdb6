"""Decide which folder a path of a file tool is opened in.

The workspace is the default. What the prompt points at is read-only next to it: the files that were
sent to the conversation, and whole folders, such as the documentation and the skills. Where the
config has `tools.fs.workspaceOnly: false`, the owner's conversations reach every other path too,
except the program's own state, the workspaces of other agents, and the kernel's file systems. Every
folder is a RootedFs: nothing is decided on a path that is resolved again later. In a session with a
sandbox, the paths are those that its commands see, and no other path of the machine is reached.
"""

import os
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

from homarus.core.errors import ToolDeniedError
from homarus.core.fast_dataclass import dataclass
from homarus.core.text import fold_name
from homarus.tools.pathname import check_text, format_path
from homarus.tools.rooted_fs import RootedFs

if TYPE_CHECKING:
    from homarus.tools.tool import ToolContext

# Reading there shows the memory of this process, writing there changes the system.
KERNEL_FOLDERS: Final = (Path("/proc"), Path("/sys"), Path("/dev"))


@dataclass(frozen=True, slots=True)
class MachineAccess:
    """Access to every file of the machine that is not in a protected folder."""

    protected: tuple[tuple[str, ...], ...]  # folded names from the root
    is_full: bool = False

    def shows(self, parts: Sequence[str]) -> bool:
        folded = tuple(map(fold_name, parts))
        return not any(folded[: len(names)] == names for names in self.protected)

    def can_write(self, parts: Sequence[str]) -> bool:
        return self.shows(parts)

    def can_create_folder(self, parts: Sequence[str]) -> bool:
        return self.shows(parts)


@dataclass(frozen=True, slots=True)
class SingleFileAccess:
    """Read access to one file of a folder; the others are not there."""

    name: str
    is_full: bool = False

    def shows(self, parts: Sequence[str]) -> bool:
        return tuple(parts) in ((), (self.name,))

    def can_write(self, parts: Sequence[str]) -> bool:
        return False

    def can_create_folder(self, parts: Sequence[str]) -> bool:
        return False


def folder_to_read(ctx: "ToolContext", path: str) -> tuple[RootedFs, str]:
    """Return the folder that a path is read from, and what its paths start with in results."""
    plain = _outside(ctx, path)
    if not plain:
        return ctx.files, ""
    if ctx.sandbox and (found := ctx.sandbox.agent_files(path, ctx.access)):
        return found
    if root := _find_read_only(ctx, path):
        # Installers link the files of a package to those of their cache.
        return RootedFs(root, links=False, hard_links=True), f"{root}/"
    if skill := _find_skill(ctx, plain):
        is_installed = not skill.is_relative_to(ctx.workspace)
        return RootedFs(skill, links=False, hard_links=is_installed), f"{skill}/"
    if plain in ctx.access.get_media():
        folder, name = os.path.split(plain)
        one = SingleFileAccess(name)
        return RootedFs(Path(folder), links=False, access=one), f"{folder}/"
    if ctx.sandbox and (found := ctx.sandbox.tmp_files(path)):
        return found
    machine = _machine(ctx, plain)
    return (machine, "/") if machine else (ctx.files, "")


def folder_to_write(ctx: "ToolContext", path: str) -> tuple[RootedFs, str]:
    """Return the folder that a path is written in, and what its paths start with in results."""
    plain = _outside(ctx, path)
    if plain and ctx.sandbox and not (_find_read_only(ctx, path) or _find_skill(ctx, plain)):
        return ctx.sandbox.tmp_files(path) or (ctx.files, "")
    machine = _machine(ctx, plain) if plain else None
    return (machine, "/") if machine else (ctx.files, "")


def _find_read_only(ctx: "ToolContext", path: str) -> Path | None:
    """Return the folder of those that are only read that a path is in."""
    added = ctx.sandbox.find_read_only() if ctx.sandbox else ()
    roots = (*([ctx.docs] if ctx.docs else ()), *ctx.scope.read_only, *added)
    return next((root for root in roots if f"{path}/".startswith(f"{root}/")), None)


def _find_skill(ctx: "ToolContext", plain: str) -> Path | None:
    """Return the folder of the skill that a path outside the workspace is in."""
    roots = ctx.access.get_skills()
    return next((root for root in roots if f"{plain}/".startswith(f"{root}/")), None)


def _outside(ctx: "ToolContext", path: str) -> str:
    """Return an absolute path outside the workspace as text; "" for one in it."""
    check_text(path)
    workspace = ctx.workspace
    if ctx.sandbox:
        if ctx.sandbox.is_inside(path):
            return ""
        workspace = ctx.sandbox.workspace
    whole = f"{Path.home()}{path[1:]}" if path == "~" or path.startswith("~/") else path
    if not whole.startswith("/"):
        return ""
    parts = PurePosixPath(whole).parts
    for root in (workspace, Path(os.path.realpath(workspace))):
        if parts[: len(root.parts)] == root.parts:
            return ""
    return os.path.normpath(whole)


def _machine(ctx: "ToolContext", plain: str) -> RootedFs | None:
    protected = None if ctx.sandbox else ctx.scope.protected
    if protected is None or not ctx.access.is_owner:
        return None
    spellings = {each for path in protected for each in (path, Path(os.path.realpath(path)))}
    access = MachineAccess(
        tuple(tuple(map(fold_name, each.parts[1:])) for each in (*spellings, *KERNEL_FOLDERS))
    )
    if not access.shows(PurePosixPath(plain).parts[1:]):
        raise ToolDeniedError(
            f"{format_path(plain)} is not for file tools: it belongs to the gateway, to another "
            "agent, or to the kernel"
        )
    return RootedFs(Path("/"), access=access)
