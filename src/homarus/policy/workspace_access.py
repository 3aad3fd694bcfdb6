"""Decide which files of a workspace a conversation may read and write. Pure.

Bootstrap files, skills and hooks become the prompts and the code of the agent's next runs, so only
the owner's conversations write them, unless the config allows everyone. Memory files are shown to
their audience (`policy.audience`); to every other conversation they are not there, and neither are
exported conversations, deleted files and the history in `.git`, which has all versions. Names are
compared as the most lenient file system does: `agents.MD` is protected like `AGENTS.md`.
"""

from collections.abc import Callable, Sequence
from dataclasses import field
from pathlib import Path
from typing import Final, Protocol

from homarus.core.fast_dataclass import dataclass
from homarus.core.text import fold_name
from homarus.policy.audience import (
    PRIVATE,
    audience_of_path,
    chat_of,
    session_readers,
    visible_audiences,
)

PROMPT_FILES: Final = frozenset(
    {
        "agents.md",
        "soul.md",
        "tools.md",
        "identity.md",
        "user.md",
        "heartbeat.md",
        "bootstrap.md",
        "boot.md",
        "memory.md",
    }
)
_PROMPT_FOLDERS = frozenset({"skills", ".agents", "hooks"})
TRASH: Final = ".trash"  # where deleted files are kept for some time
# Memory, exported conversations, and the history of all files; deleted files may be any of these.
_PRIVATE = frozenset({"memory.md", "memory", "bank", "exports", ".git", TRASH})
PROTECTED: Final = PROMPT_FILES | _PROMPT_FOLDERS | _PRIVATE  # folded names in the workspace's root
# Folders that contain notes of several audiences.
_COMMON: Final = frozenset({("memory",), ("memory", "chats"), ("memory", "shared")})


def is_prompt_path(parts: Sequence[str]) -> bool:
    """Return whether a file, by its names from the root, becomes a prompt or code of the agent."""
    return bool(parts) and fold_name(parts[0]) in PROMPT_FILES | _PROMPT_FOLDERS


@dataclass(frozen=True, slots=True)
class FileScope:
    """Where the file tools of an agent reach besides its workspace.

    `read_only` are folders that are read and never written. `protected` is None where the tools
    stay there; else the owner's conversations reach the whole machine except these folders.
    """

    read_only: tuple[Path, ...] = ()
    protected: tuple[Path, ...] | None = None


class FileAccess(Protocol):
    """What may be done with the files of a folder, each given by its names from the root."""

    @property
    def is_full(self) -> bool: ...
    def shows(self, parts: Sequence[str]) -> bool: ...
    def can_write(self, parts: Sequence[str]) -> bool: ...
    def can_create_folder(self, parts: Sequence[str]) -> bool: ...


@dataclass(frozen=True, slots=True)
class WorkspaceAccess:
    """What one conversation may do with the files of its agent's workspace.

    `audiences` are those whose memory files it sees, None for all; `own` is its own, whose notes it
    may write. `can_write_prompts`: also bootstrap files, skills and the notes of others.
    `can_attach` is False where the `read` tool is denied: then no file is sent or shown either.
    `is_owner`: only the owner writes to it, so that it may leave the workspace where the config
    allows that. `get_media` returns the paths of the files that were sent to it, which it reads.
    `can_fetch`: files that it sends may be named by URL. `get_skills` returns the folders of the
    skills that it is offered, which it reads wherever they are.
    """

    audiences: frozenset[str] | None = None
    own: str = ""
    can_write_prompts: bool = True
    can_attach: bool = True
    is_owner: bool = False
    can_fetch: bool = False
    get_media: Callable[[], frozenset[str]] = field(default=frozenset, compare=False)
    get_skills: Callable[[], Sequence[Path]] = field(default=tuple, compare=False)

    @property
    def sees_private(self) -> bool:
        """Return whether the private notes of the workspace are there for it."""
        return self.audiences is None or PRIVATE in self.audiences

    @property
    def is_full(self) -> bool:
        return self.audiences is None and self.can_write_prompts

    def shows(self, parts: Sequence[str]) -> bool:
        """Return whether a file or folder, given by its names from the root, is there for it."""
        if self.audiences is None or not parts or not _is_private(fold_name(parts[0])):
            return True
        return _is_common(parts) or _audience_of(parts) in self.audiences

    def shows_completely(self, name: str) -> bool:
        """Return whether an entry of the root is there for it with everything in it."""
        return self.audiences is None or not _is_private(fold_name(name))

    def can_write(self, parts: Sequence[str]) -> bool:
        """Return whether it may create or replace this file."""
        if not self.shows(parts):
            return False
        if self.can_write_prompts or not parts or fold_name(parts[0]) not in PROTECTED:
            return True
        return _audience_of(parts) == self.own

    def can_create_folder(self, parts: Sequence[str]) -> bool:
        """Return whether it may create this folder on the way to a file."""
        return self.can_write(parts) or (self.shows(parts) and _is_common(parts))


WORKSPACE_SCOPE: Final = FileScope()
FULL_ACCESS: Final = WorkspaceAccess(is_owner=True, can_fetch=True)
NO_ACCESS: Final = WorkspaceAccess(frozenset(), can_write_prompts=False, can_attach=False)


def session_access(
    session_key: str, *, is_owner: bool = True, can_everyone_write: bool = False
) -> WorkspaceAccess:
    """Return the access of a session; `is_owner`: its messages are the owner's, as far as known."""
    is_owned = is_owner and session_readers(session_key) != "others"
    audiences = visible_audiences(session_key)
    can_write = is_owned or can_everyone_write
    if audiences is None and is_owned:
        return FULL_ACCESS
    own = "" if audiences is None and can_write else chat_of(session_key)
    return WorkspaceAccess(audiences, own, can_write, is_owner=is_owned)


def _is_common(parts: Sequence[str]) -> bool:
    return tuple(map(fold_name, parts)) in _COMMON


def _is_private(name: str) -> bool:
    """Return whether a file or folder of the root is private; also copies as `MEMORY.md.bak`."""
    return name in _PRIVATE or "memory.md" in name


def _audience_of(parts: Sequence[str]) -> str:
    """Return the audience of a private file, or of the folder of a chat."""
    if fold_name(parts[0]) != "memory":
        return PRIVATE
    return audience_of_path("/".join((*parts, "") if len(parts) == 3 else parts))
