"""Decode the files of a message; an image is known by its bytes and not by its declared type."""

import base64
import binascii
from collections.abc import Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from homarus.config.schema import Config
from homarus.core.errors import InvalidRequestError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Image, Json, Media, MediaKind
from homarus.core.mime import HEAD_BYTES, sniff_image_mime
from homarus.core.text import one_line

if TYPE_CHECKING:
    from homarus.channels.media import MediaDownloader

MAX_BYTES = 5_000_000
MAX_FILE_BYTES = 15_000_000  # in base64, it fits into a frame
MAX_IMAGES = 20
# The containers of the recordings of browsers, whose bytes do not say that they have sound alone.
_RECORDING_MIMES = frozenset({"video/webm", "video/mp4"})


def max_image_bytes(config: Config) -> int:
    """Return the largest image of a message: what models take, or less by `mediaMaxMb`."""
    limit_mb = config.agents.defaults.media_max_mb
    return min(MAX_BYTES, round(limit_mb * 1_000_000)) if limit_mb else MAX_BYTES


def max_file_bytes(config: Config) -> int:
    """Return the largest file of a message: what fits into a frame, or less by `mediaMaxMb`."""
    limit_mb = config.agents.defaults.media_max_mb
    return min(MAX_FILE_BYTES, round(limit_mb * 1_000_000)) if limit_mb else MAX_FILE_BYTES


def read_images(attachments: Sequence[Json], max_bytes: int = MAX_BYTES) -> tuple[Image, ...]:
    """Decode the images; raises InvalidRequestError for other types and large files."""
    _check_count(attachments)
    return tuple(_image(each, at, max_bytes) for at, each in enumerate(attachments, 1))


@dataclass(frozen=True, slots=True)
class AttachedFile:
    """A file of a message that is no image."""

    name: str
    claimed: str
    data: bytes = field(repr=False)

    def save(self, folder: "MediaDownloader") -> Media:
        """Store the file, and return it as a run gets it."""
        path, mime = folder.save(self.data, self.claimed)
        if self.claimed.startswith("audio/") and mime in _RECORDING_MIMES:
            mime = mime.replace("video/", "audio/")
        kind: MediaKind = "audio" if mime.startswith("audio/") else "document"
        return Media(kind, mime, self.name, len(self.data), path=str(path))


def read_files(
    attachments: Sequence[Json], config: Config
) -> tuple[tuple[Image, ...], tuple[AttachedFile, ...]]:
    """Decode images and other files; raises InvalidRequestError for one that cannot be sent."""
    _check_count(attachments)
    max_bytes = max_file_bytes(config)
    images, files = list[Image](), list[AttachedFile]()
    for at, each in enumerate(attachments, 1):
        name, data = _decode(each, at, max_bytes)
        if mime := sniff_image_mime(data[:HEAD_BYTES]):
            _check_size(name, data, max_image_bytes(config))
            images.append(Image(base64.b64encode(data).decode("ascii"), mime))
            continue
        claimed = each.get("mimeType")
        files.append(AttachedFile(name, claimed if isinstance(claimed, str) else "", data))
    return tuple(images), tuple(files)


def _image(attachment: Json, at: int, max_bytes: int) -> Image:
    name, data = _decode(attachment, at, max_bytes)
    mime = sniff_image_mime(data[:HEAD_BYTES])
    if not mime:
        raise InvalidRequestError(
            f"attachment {name}: only PNG, JPEG, GIF and WebP images can be sent"
        )
    return Image(base64.b64encode(data).decode("ascii"), mime)


def _decode(attachment: Json, at: int, max_bytes: int) -> tuple[str, bytes]:
    """Return the name and the content of an attachment."""
    if not isinstance(attachment, dict):
        raise InvalidRequestError(f"attachment-{at}: must be an object")
    named = attachment.get("fileName")
    name = one_line(named, 60) if isinstance(named, str) and named else f"attachment-{at}"
    content = attachment.get("content")
    if not isinstance(content, str):
        raise InvalidRequestError(f"attachment {name}: content must be base64 text")
    text = _without_scheme(content)
    if len(text) > max(max_bytes, MAX_BYTES) * 4 // 3 + 4:
        raise InvalidRequestError(f"attachment {name}: exceeds the size limit of {max_bytes} bytes")
    try:
        data = base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        raise InvalidRequestError(f"attachment {name}: invalid base64 content") from None
    _check_size(name, data, max_bytes)
    return name, data


def _check_size(name: str, data: bytes, max_bytes: int) -> None:
    if len(data) > max_bytes:
        problem = f"exceeds the size limit ({len(data)} > {max_bytes} bytes)"
        raise InvalidRequestError(f"attachment {name}: {problem}")


def _check_count(attachments: Sequence[Json]) -> None:
    if len(attachments) > MAX_IMAGES:
        raise InvalidRequestError(
            f"{len(attachments)} attachments: at most {MAX_IMAGES} can be sent"
        )


def decode_image(content: str) -> Image | None:
    """Return a stored image with the type that its bytes show; None when it is none."""
    try:
        head = base64.b64decode(content[: 4 * HEAD_BYTES], validate=True)
    except (binascii.Error, ValueError):
        return None
    mime = sniff_image_mime(head)
    return Image(content, mime) if mime else None


def _without_scheme(content: str) -> str:
    """Remove the `data:image/png;base64,` prefix that browsers send."""
    head, mark, rest = content[:200].partition(";base64,")
    if mark and head.strip().lower().startswith("data:"):
        return rest + content[200:]
    return content
