"""Resolve the files an agent attaches to a message, and copy them.

A name is resolved beneath the agent's workspace or the state's media directory, and nowhere else;
of the latter, only what was sent to the conversation. A URL is fetched by the port that is given,
which is guarded, where the conversation may do that. In the workspace the rules of the file tools
hold: what the conversation may not read is not attached. Files are copied, because a message may be
sent much later, and again, and must then carry the bytes that were checked. A file that cannot be
attached gives its reason.
"""

import asyncio
import hashlib
import os
import shutil
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, TypeAlias
from uuid import uuid4

from homarus.core.errors import ToolError
from homarus.core.message import Media, MediaKind
from homarus.core.mime import HEAD_BYTES, sniff_mime
from homarus.core.private_files import make_private_dir
from homarus.policy.workspace_access import FULL_ACCESS, WorkspaceAccess
from homarus.tools.pathname import format_path
from homarus.tools.rooted_fs import RootedFs

if TYPE_CHECKING:
    from homarus.tools.sandbox.session_sandbox import SessionSandbox

MAX_BYTES: Final = 100_000_000
MAX_FILES: Final = 10
KEEP_S: Final = 7 * 86_400  # an outbox record expires after a day; a person may have it retried
_PIECE_BYTES: Final = 1 << 20
_VAGUE: Final = frozenset({"", "application/zip"})  # many formats are archives
_DRAWN: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})

# Resolves files by their names in a folder, as `Messenger.attach` does.
AttachFiles: TypeAlias = Callable[
    [Sequence[str], Path, WorkspaceAccess], Awaitable[tuple[Media, ...]]
]
# Returns the content of a URL and a name for it. Raises ToolError.
FetchFile: TypeAlias = Callable[[str], Awaitable[tuple[bytes, str]]]


class AttachmentStore:
    """Resolves files by an agent's names and copies them to the state's media directory."""

    def __init__(self, media: Path, fetch: FetchFile | None = None) -> None:
        self._media, self._kept, self._fetch = media, media / "outbound", fetch

    async def __call__(
        self, names: Sequence[str], workspace: Path, access: WorkspaceAccess
    ) -> tuple[Media, ...]:
        found = [await self._attach(name, workspace, access) for name in names[:MAX_FILES]]
        left = [_lost(name, "too many files at once") for name in names[MAX_FILES:]]
        return (*found, *left)

    async def _attach(self, name: str, workspace: Path, access: WorkspaceAccess) -> Media:
        if not is_web_url(name):
            return await asyncio.to_thread(self._find, name, workspace, access)
        if self._fetch is None or not access.can_fetch:
            return _lost(name, "files are not fetched from the web in this conversation")
        try:
            content, called = await self._fetch(name)
            if not content:
                return _lost(called, "it is empty")
            return await asyncio.to_thread(self._keep, BytesIO(content), called)
        except ToolError as exc:
            return _lost(name, str(exc))
        except OSError as exc:
            return _lost(name, f"it could not be stored: {exc.strerror or exc}")

    def _find(self, name: str, workspace: Path, access: WorkspaceAccess) -> Media:
        if self._is_media(name):
            # An operator of the gateway has full access; conversations have the files sent to them.
            if access is not FULL_ACCESS and os.path.normpath(name) not in access.get_media():
                return _lost(name, "it was not sent to this conversation")
            root = RootedFs(self._media)
        elif access.can_attach:
            root = RootedFs(workspace, access=access)
        else:
            return _lost(name, "files of the workspace may not be read in this conversation")
        try:
            with root.open_read(name) as opened:
                if opened.stat.st_size > MAX_BYTES:
                    return _lost(name, f"it is larger than {MAX_BYTES // 1_000_000} MB")
                if not opened.stat.st_size:
                    return _lost(name, "it is empty")
                return self._keep(opened.file, Path(opened.path).name)
        except ToolError as exc:
            return _lost(name, exc.message.removeprefix(f"{format_path(name)}: "))
        except OSError as exc:
            return _lost(name, f"it could not be copied: {exc.strerror or exc}")

    def _is_media(self, name: str) -> bool:
        """Return whether a name belongs to the media directory; the walk checks that it stays."""
        roots = {self._media, Path(os.path.realpath(self._media))}
        return any(Path(name).is_relative_to(root) for root in roots)

    def _keep(self, source: BinaryIO, name: str) -> Media:
        make_private_dir(self._kept)
        self._prune()
        half = self._kept / f".{uuid4().hex}"
        hashed, size, head = hashlib.sha256(), 0, b""
        try:
            with os.fdopen(
                os.open(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb"
            ) as file:
                while piece := source.read(_PIECE_BYTES):
                    size += len(piece)
                    if size > MAX_BYTES:  # it grows while it is read
                        raise ToolError(f"it is larger than {MAX_BYTES // 1_000_000} MB")
                    head = head or piece[:HEAD_BYTES]
                    hashed.update(piece)
                    file.write(piece)
            folder = self._kept / hashed.hexdigest()[:32]
            folder.mkdir(mode=0o700, exist_ok=True)
            os.utime(folder)
            half.replace(folder / name)
        finally:
            half.unlink(missing_ok=True)
        mime = sniff_mime(head)
        if mime in _VAGUE:
            mime = _by_name(name)
        return Media(_kind(mime), mime, name, size, path=str(folder / name))

    def _prune(self) -> None:
        """Delete copies that are too old."""
        oldest_s = time.time() - KEEP_S
        for entry in self._kept.iterdir():
            with suppress(OSError):
                if entry.stat().st_mtime < oldest_s:
                    shutil.rmtree(entry) if entry.is_dir() else entry.unlink()


async def attach_from_sandbox(
    attach: AttachFiles,
    names: Sequence[str],
    sandbox: "SessionSandbox",
    access: WorkspaceAccess,
) -> tuple[Media, ...]:
    """Resolve files by the paths that commands in a sandbox see."""
    found = list[Media]()
    for name in names[:MAX_FILES]:
        place = (name, sandbox.workspace, access)
        if not is_web_url(name):
            try:
                place = await asyncio.to_thread(sandbox.attachment_place, name, access)
            except ToolError as exc:
                found.append(_lost(name, exc.message))
                continue
        plain, folder, allowed = place
        found += await attach([plain], folder, allowed)
    return (*found, *(_lost(name, "too many files at once") for name in names[MAX_FILES:]))


def is_web_url(name: str) -> bool:
    """Return whether a file is named by its URL."""
    return name.strip().lower().startswith(("http://", "https://"))


def _lost(name: str, why: str) -> Media:
    return Media(name=Path(name).name or format_path(name), problem=why)


def _by_name(name: str) -> str:
    import mimetypes  # reads the system's lists: only where a file's bytes do not show its type

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
