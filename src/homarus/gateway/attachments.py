"""Decode the images of a message, checked by their bytes and not by their declared type."""

import base64
import binascii
from collections.abc import Sequence

from homarus.config.schema import Config
from homarus.core.errors import InvalidRequestError
from homarus.core.message import Image, Json
from homarus.core.mime import HEAD_BYTES, sniff_image_mime
from homarus.core.text import one_line

MAX_BYTES = 5_000_000
MAX_IMAGES = 20


def max_image_bytes(config: Config) -> int:
    """Return the largest image of a message: what models take, or less by `mediaMaxMb`."""
    limit_mb = config.agents.defaults.media_max_mb
    return min(MAX_BYTES, round(limit_mb * 1_000_000)) if limit_mb else MAX_BYTES


def read_images(attachments: Sequence[Json], max_bytes: int = MAX_BYTES) -> tuple[Image, ...]:
    """Decode the images; raises InvalidRequestError for other types and large files."""
    if len(attachments) > MAX_IMAGES:
        raise InvalidRequestError(
            f"{len(attachments)} attachments: at most {MAX_IMAGES} can be sent"
        )
    return tuple(_image(each, at, max_bytes) for at, each in enumerate(attachments, 1))


def _image(attachment: Json, at: int, max_bytes: int) -> Image:
    if not isinstance(attachment, dict):
        raise InvalidRequestError(f"attachment-{at}: must be an object")
    named = attachment.get("fileName")
    name = one_line(named, 60) if isinstance(named, str) and named else f"attachment-{at}"
    content = attachment.get("content")
    if not isinstance(content, str):
        raise InvalidRequestError(f"attachment {name}: content must be base64 text")
    text = _without_scheme(content)
    if len(text) > MAX_BYTES * 4 // 3 + 4:
        raise InvalidRequestError(f"attachment {name}: exceeds the size limit of {max_bytes} bytes")
    try:
        data = base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        raise InvalidRequestError(f"attachment {name}: invalid base64 content") from None
    if len(data) > max_bytes:
        problem = f"exceeds the size limit ({len(data)} > {max_bytes} bytes)"
        raise InvalidRequestError(f"attachment {name}: {problem}")
    mime = sniff_image_mime(data[:HEAD_BYTES])
    if not mime:
        raise InvalidRequestError(
            f"attachment {name}: only PNG, JPEG, GIF and WebP images can be sent"
        )
    return Image(base64.b64encode(data).decode("ascii"), mime)


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
