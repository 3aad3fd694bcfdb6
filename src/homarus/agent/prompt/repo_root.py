"""Find the repository that an agent works in, for the Runtime line of its prompt."""

import logging
from functools import lru_cache
from pathlib import Path
from typing import Final

log = logging.getLogger(__name__)

_MAX_LEVELS: Final = 12  # as in OpenClaw: a repository further up is not the agent's work


@lru_cache(64)
def find_repo_root(configured: Path | None, workspace: Path, cwd: Path | None) -> Path | None:
    """Return the repository root: the configured folder, else the nearest one with `.git`.

    The search goes up from the workspace, then from the current directory. A configured folder
    that does not exist is logged and not used. The first result of a process is its last, so that
    the prompt stays the same.
    """
    if configured is not None:
        if _is_dir(configured):
            return configured
        log.warning("agents.defaults.repoRoot: there is no folder %s", configured)
    starts = dict.fromkeys((workspace, cwd) if cwd else (workspace,))
    return next((root for start in starts if (root := _git_root(start))), None)


def _git_root(start: Path) -> Path | None:
    folder = start.absolute()
    levels = (folder, *folder.parents)[:_MAX_LEVELS]
    return next((level for level in levels if _has_git(level)), None)


def _has_git(folder: Path) -> bool:
    """Return whether a folder has `.git`: a folder, or the file of a worktree or a submodule."""
    try:
        return (folder / ".git").exists()
    except OSError:  # a folder that may not be searched
        return False


def _is_dir(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False
