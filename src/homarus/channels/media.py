"""Download the files of messages, after their sender passed access control.

A file is stored under the hash of its content in the state directory, with the suffix of its
detected type and not of its name. Images are also shown to the model. For a file that is too large
or cannot be fetched, the model gets a note: the message is still answered.
"""

import asyncio
import base64
import hashlib
import logging
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from threading import get_ident
from typing import Final, TypeAlias

from homarus.channels.base import Channel, SupportsMediaFetch
from homarus.config.channels import AccountSettings
from homarus.core.errors import ChannelError, MediaTooLargeError
from homarus.core.message import Image, Inbound, Media
from homarus.core.mime import HEAD_BYTES, extension_for, sniff_mime
from homarus.core.private_files import make_private_dir

log = logging.getLogger(__name__)

FOLDER: Final = Path("media", "inbound")
DEFAULT_MB: Final = 5.0
FETCH_S: Final = 60.0
MAX_FILES: Final = 10
MAX_IMAGE_BYTES: Final = 5_000_000  # the image types that models take
KEEP_MS: Final = 30 * 86_400_000
NOT_FETCHED: Final = "it could not be fetched"
_MB: Final = 1_000_000

# Downloads the files of a message of a channel, by the limits of its account.
FetchFiles: TypeAlias = Callable[[Channel, Inbound], Awaitable[Inbound]]


class MediaDownloader:
    """Download the files of messages, and store them for a while."""

    def __init__(self, state: Path, now_ms: Callable[[], int]) -> None:
        self._folder, self._now_ms = state / FOLDER, now_ms
        self._pruned_ms = 0

    async def fetch(self, channel: Channel, settings: AccountSettings, inbound: Inbound) -> Inbound:
        """Return the message with its files; each that could not be fetched says why."""
        if not inbound.media:
            return inbound
        max_bytes = round((settings.media_max_mb or DEFAULT_MB) * _MB)
        kept, images = list[Media](), list[Image]()
        for media in inbound.media[:MAX_FILES]:
            fetched, content = await self._download(channel, media, max_bytes)
            kept.append(fetched)
            if content and fetched.mime.startswith("image/") and len(content) <= MAX_IMAGE_BYTES:
                images.append(Image(base64.b64encode(content).decode("ascii"), fetched.mime))
        left = [_missing(media, "too many files at once") for media in inbound.media[MAX_FILES:]]
        return replace(inbound, media=(*kept, *left), images=(*inbound.images, *images))

    async def _download(
        self, channel: Channel, media: Media, max_bytes: int
    ) -> tuple[Media, bytes]:
        if not isinstance(channel, SupportsMediaFetch):
            return _missing(media, "files cannot be fetched from this service"), b""
        if media.size > max_bytes:
            return _missing(media, f"it is larger than {max_bytes / _MB:g} MB"), b""
        try:
            async with asyncio.timeout(FETCH_S):
                content = await channel.fetch(media, max_bytes)
            path, mime = await asyncio.to_thread(self.save, content, media.mime)
        except MediaTooLargeError:
            return _missing(media, f"it is larger than {max_bytes / _MB:g} MB"), b""
        except (ChannelError, TimeoutError, OSError) as exc:
            log.warning("a file of %s could not be had: %s", channel.name, str(exc) or "too slow")
            return _missing(media, NOT_FETCHED), b""
        return replace(media, path=str(path), mime=mime, size=len(content), problem=""), content

    def save(self, content: bytes, claimed: str) -> tuple[Path, str]:
        """Store a file; return its path and type: by its bytes, else as its sender says."""
        mime = sniff_mime(content[:HEAD_BYTES]) or _harmless(claimed)
        path = self._folder / f"{hashlib.sha256(content).hexdigest()[:32]}{extension_for(mime)}"
        make_private_dir(self._folder)
        self._prune()
        if path.exists():
            os.utime(path)
            return path, mime
        # The same file may come from two chats at once, each in its own thread.
        half = path.with_name(f".{path.name}.{os.getpid()}.{get_ident()}")
        with os.fdopen(os.open(half, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(content)
        half.replace(path)
        return path, mime

    def _prune(self) -> None:
        """Once a day, delete files that were not sent for long."""
        now_ms = self._now_ms()
        if now_ms - self._pruned_ms < 86_400_000:
            return
        self._pruned_ms = now_ms
        for path in self._folder.iterdir():
            with suppress(FileNotFoundError):  # of another thread that has finished with it
                if now_ms - path.stat().st_mtime * 1000 > KEEP_MS:
                    path.unlink()


def mark_missing(inbound: Inbound) -> Inbound:
    """Return the message with the note that its files could not be fetched."""
    media = [
        one if one.path or one.problem else _missing(one, NOT_FETCHED) for one in inbound.media
    ]
    return replace(inbound, media=tuple(media))


def _missing(media: Media, problem: str) -> Media:
    return replace(media, problem=problem)


def _harmless(claimed: str) -> str:
    """Return the type that a service claims if the bytes do not show it; never an image."""
    kind = claimed.partition(";")[0].strip().lower()
    is_plain = kind.isascii() and kind.isprintable() and len(kind) < 80
    return kind if is_plain and "/" in kind and not kind.startswith("image/") else ""
