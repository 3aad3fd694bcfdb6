"""Delete a file or a folder: it goes to the trash of the workspace."""

import asyncio
import time
from typing import Annotated

from pydantic import AliasChoices, Field

from homarus.core.errors import ToolDeniedError
from homarus.core.message import Text
from homarus.tools.effects import remove_effects
from homarus.tools.pathname import format_path
from homarus.tools.rooted_fs import RootedFs
from homarus.tools.tool import ToolContext, ToolOutput, tool
from homarus.tools.trash import KEPT_DAYS, make_batch


@tool(group="fs", serial=True, effects=remove_effects)
async def file_delete(
    ctx: ToolContext,
    path: Annotated[str, Field(validation_alias=AliasChoices("path", "file_path"))],
) -> ToolOutput:
    """Delete a file or folder. It is moved to .trash in the workspace and kept for 30 days."""
    folder, prefix = ctx.folder_to_write(path)
    trashed = await asyncio.to_thread(move_to_trash, folder, path, prefix)
    text = f"Deleted {format_path(path)}. It is kept for {KEPT_DAYS} days: {format_path(trashed)}"
    return ToolOutput((Text(text),), {"trash": trashed})


def move_to_trash(folder: RootedFs, path: str, prefix: str = "", batch: str = "") -> str:
    """Move an entry to the trash of its folder, and return its path there."""
    if prefix == "/":
        raise ToolDeniedError(
            f"{format_path(path)} is outside the workspace, where there is no trash",
            fix="move it with exec",
        )
    return prefix + folder.move_to_trash(path, batch or make_batch(time.time()))
