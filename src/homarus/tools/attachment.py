"""Files that go out with a message: found where an agent may find them, and kept as they are now.

A name counts beneath the agent's workspace or the state's media folder, and nowhere else; nothing
is fetched from elsewhere. What is found is copied: a message may be sent much later, and again,
and what it carries must then be what was looked at. What cannot be had says why.
"""

import asyncio
import hashlib
import os
import shutil
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final
from uuid import uuid4

from homarus.core.errors import ToolError
from homarus.core.message import Media, MediaKind
from homarus.core.sniff import HEAD_BYTES, file_mime
from homarus.tools.guard import Beneath, Opened
from homarus.tools.pathname import shown

MAX_BYTES: Final = 100_000_000
MAX_FILES: Final = 10
KEEP_S: Final = 7 * 86_400  # a parcel is given up after a day; a person may have it tried again
_PIECE_BYTES: Final = 1 << 20
_VAGUE: Final = frozenset({"", "application/zip"})  # many formats are archives
_DRAWN: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})


class Attachments:
    """Finds files by the names an agent gives them, and keeps them in a state's media folder."""

    def __init__(self, media: Path) -> None:
        self._media, self._kept = media, media / "outbound"

    async def __call__(self, names: Sequence[str], workspace: Path) -> tuple[Media, ...]:
        return await asyncio.to_thread(self._attach, tuple(names), workspace)

    def _attach(self, names: Sequence[str], workspace: Path) -> tuple[Media, ...]:
        found = [self._find(name, workspace) for name in names[:MAX_FILES]]
        left = [_lost(name, "too many files at once") for name in names[MAX_FILES:]]
        return (*found, *left)

    def _find(self, name: str, workspace: Path) -> Media:
        try:
            with Beneath(self._root(name, workspace)).open_read(name) as opened:
                if opened.stat.st_size > MAX_BYTES:
                    return _lost(name, f"it is larger than {MAX_BYTES // 1_000_000} MB")
                if not opened.stat.st_size:
                    return _lost(name, "it is empty")
                return self._keep(opened)
        except ToolError as exc:
            return _lost(name, exc.message.removeprefix(f"{shown(name)}: "))
        except OSError as exc:
            return _lost(name, f"it could not be copied: {exc.strerror or exc}")

    def _root(self, name: str, workspace: Path) -> Path:
        """Which of the two folders a name is of; the walk decides whether it stays there."""
        roots = {self._media, Path(os.path.realpath(self._media))}
        named = Path(name)
        return self._media if any(named.is_relative_to(root) for root in roots) else workspace

    def _keep(self, opened: Opened) -> Media:
        self._kept.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._prune()
        half = self._kept / f".{uuid4().hex}"
        hashed, size, head = hashlib.sha256(), 0, b""
        try:
            with os.fdopen(
                os.open(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb"
            ) as file:
                while piece := opened.file.read(_PIECE_BYTES):
                    size += len(piece)
                    if size > MAX_BYTES:  # it grows while it is read
                        raise ToolError(f"it is larger than {MAX_BYTES // 1_000_000} MB")
                    head = head or piece[:HEAD_BYTES]
                    hashed.update(piece)
                    file.write(piece)
            name = Path(opened.path).name
            folder = self._kept / hashed.hexdigest()[:32]
            folder.mkdir(mode=0o700, exist_ok=True)
            os.utime(folder)
            half.replace(folder / name)
        finally:
            half.unlink(missing_ok=True)
        mime = file_mime(head)
        if mime in _VAGUE:
            mime = _by_name(name)
        return Media(_kind(mime), mime, name, size, path=str(folder / name))

    def _prune(self) -> None:
        """Forget what was kept long ago."""
        oldest_s = time.time() - KEEP_S
        for entry in self._kept.iterdir():
            with suppress(OSError):
                if entry.stat().st_mtime < oldest_s:
                    shutil.rmtree(entry) if entry.is_dir() else entry.unlink()


def _lost(name: str, why: str) -> Media:
    return Media(name=Path(name).name or shown(name), problem=why)


def _by_name(name: str) -> str:
    import mimetypes  # reads the system's lists: only where a file's bytes do not tell

    return mimetypes.guess_type(name, strict=False)[0] or "application/octet-stream"


def _kind(mime: str) -> MediaKind:
    if mime in _DRAWN:
        return "image"
    match mime.partition("/")[0]:
        case "audio":
            return "audio"
        case "video":
            return "video"
        case _:
            return "document"
