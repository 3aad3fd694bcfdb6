"""The files of an agent's workspace, as the browser reads and saves them.

What comes from pages is saved in `media/inbound` of the workspace: what is read there counts as
untrusted. Names are chosen by this program, with the name that a server gave at the end.
"""

import asyncio
from collections.abc import Callable
from typing import Final
from uuid import uuid4

from homarus.core.errors import ToolError
from homarus.policy.taint import INBOUND_MEDIA
from homarus.tools.browser.tabs import safe_file_name
from homarus.tools.rooted_fs import RootedFs

FOLDER: Final = "/".join(INBOUND_MEDIA)


class WorkspaceFiles:
    """Reads and saves files for one caller.

    `folder_to_read` returns the folder that a path is read from; `root` is where files are saved.
    """

    def __init__(
        self, root: RootedFs, folder_to_read: Callable[[str], tuple[RootedFs, str]]
    ) -> None:
        self._root, self._folder_to_read = root, folder_to_read

    async def read(self, path: str, max_bytes: int) -> tuple[str, bytes]:
        """Return the name and the content of a file. Raises ToolError."""

        def read() -> tuple[str, bytes]:
            with self._folder_to_read(path)[0].open_read(path) as opened:
                if opened.stat.st_size > max_bytes:
                    raise ToolError(f"{path} is larger than {max_bytes // 1_000_000} MB")
                name = opened.path.rstrip("/").rpartition("/")[2]
                return name, opened.file.read(max_bytes)

        return await asyncio.to_thread(read)

    async def save(self, name: str, data: bytes) -> str:
        """Save a file under a new name and return its path. Raises ToolError."""
        path = f"{FOLDER}/browser-{uuid4().hex[:8]}-{safe_file_name(name)}"
        return (await asyncio.to_thread(self._root.write_atomic, path, data, new=True)).path
