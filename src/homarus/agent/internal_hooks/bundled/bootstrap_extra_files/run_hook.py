"""`bootstrap-extra-files`: add files of the workspace, chosen by patterns, to the prompt."""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Final

from homarus.agent.internal_hooks.bundled_services import BundledHookServices
from homarus.agent.internal_hooks.event import HookEvent
from homarus.agent.prompt.injection import file_names_for, session_kind
from homarus.agent.prompt.workspace_files import read_text
from homarus.core.errors import ToolError
from homarus.tools.glob_pattern import compile_glob
from homarus.tools.rooted_fs import RootedFs

MAX_FILES: Final = 20
MAX_FILE_CHARS: Final = 20_000
_MAX_WALKED: Final = 20_000


async def handle(event: HookEvent, services: BundledHookServices) -> Mapping[str, Any] | None:
    """Return the files of the prompt and those that the patterns add."""
    entry = services.entry
    patterns = [*entry.paths, *entry.patterns, *entry.files]
    files = event.context.get("files")
    if not patterns or not isinstance(files, dict):
        return None
    names = frozenset(file_names_for(session_kind(event.session_key)))
    workspace = services.get_agent(str(event.context["agent"])).workspace
    found = await asyncio.to_thread(_load, workspace, patterns, names)
    added = {path: text for path, text in found.items() if path not in files}
    return {"files": {**files, **added}} if added else None


def _load(workspace: Path, patterns: list[str], names: frozenset[str]) -> dict[str, str]:
    """Return the matching files by their path in the workspace, sorted."""
    found: dict[str, str] = {}
    for path in _find(workspace, patterns, names):
        text, _ = read_text(workspace, path)
        if text.strip():
            found[path] = text[:MAX_FILE_CHARS]
    return found


def _find(workspace: Path, patterns: list[str], names: frozenset[str]) -> list[str]:
    tests = list(map(_compile, patterns))
    walked = RootedFs(workspace).walk(".", max_entries=_MAX_WALKED)
    paths = (
        entry.path
        for entry in walked
        if PurePosixPath(entry.path).name in names and "/" in entry.path
    )
    return sorted(path for path in paths if any(test(path) for test in tests))[:MAX_FILES]


def _compile(pattern: str) -> Callable[[str], bool]:
    try:
        # A plain file name is that of the workspace's root, not one at any depth.
        return compile_glob(pattern if "/" in pattern else f"./{pattern}")
    except ToolError:
        return lambda _path: False
