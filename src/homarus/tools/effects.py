"""Find what a write to a file, or its removal, would change outside the conversation."""

import asyncio
import os
from pathlib import Path

from homarus.core.text import fold_name
from homarus.policy.tool_call import Effect
from homarus.policy.workspace_access import is_prompt_path
from homarus.tools.rooted_fs import protected_links
from homarus.tools.tool import ToolContext

_NONE: frozenset[Effect] = frozenset()


async def write_effects(
    ctx: ToolContext, path: str | None = None, **_rest: object
) -> frozenset[Effect]:
    """Return the effects of writing a file; without a path, none.

    A prompt file, a skill or a hook is the agent's identity. A file outside the workspace counts as
    configuration: it may be that of the program, of a shell, or a list of keys. Links are followed,
    so a name in the workspace cannot hide either. The files of a sandbox are no part of the agent.
    """
    if ctx.sandbox and path:
        if ctx.sandbox.access != "rw" or ctx.sandbox.is_tmp(path):
            return _NONE
        path = ctx.sandbox.to_relative(path)
    return await asyncio.to_thread(_find, ctx.workspace, path) if path else _NONE


async def remove_effects(
    ctx: ToolContext, path: str | None = None, **_rest: object
) -> frozenset[Effect]:
    """Return the effects of removing a file or folder: those of writing what is in it."""
    effects = await write_effects(ctx, path)
    if not path or (ctx.sandbox and (ctx.sandbox.access != "rw" or ctx.sandbox.is_tmp(path))):
        return effects
    if ctx.sandbox:
        path = ctx.sandbox.to_relative(path)
    linked = await asyncio.to_thread(_contains_prompt_files, ctx.workspace, path)
    return effects | {"identity"} if linked else effects


def _contains_prompt_files(workspace: Path, path: str) -> bool:
    """Return whether a prompt file of the workspace is a link to something in a folder."""
    root, folder = workspace.resolve(), (workspace / Path(path).expanduser()).resolve()
    if not folder.is_relative_to(root):
        return False
    names = tuple(map(fold_name, folder.relative_to(root).parts))
    links = protected_links(workspace).items()
    return any(target[: len(names)] == names for target, name in links if is_prompt_path((name,)))


def _find(workspace: Path, path: str) -> frozenset[Effect]:
    given = Path(os.path.normpath(workspace / Path(path).expanduser()))
    effects: set[Effect] = set()
    for root, file in ((workspace, given), (workspace.resolve(), given.resolve())):
        if not file.is_relative_to(root):
            continue
        parts = file.relative_to(root).parts
        if is_prompt_path(parts) or (parts and fold_name(parts[0]) == ".git"):
            effects.add("identity")
    if not given.resolve().is_relative_to(workspace.resolve()):
        effects.add("config")
    return frozenset(effects) if effects else _NONE
