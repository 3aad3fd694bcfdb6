"""Scale images down before a model gets them: `agents.defaults.imageMaxDimensionPx`.

An image within the limit stays the same object, and Pillow is only imported for one that is larger.
The model gets a note instead of an image that cannot be scaled.
"""

import base64
import binascii
import struct
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, TypeVar

from homarus.core.message import Image, Message, Text, ToolResult

DEFAULT_MAX_PX: Final = 1_200
MAX_PIXELS: Final = 50_000_000  # of an image that is decoded
_JPEG_QUALITY: Final = 85
_NO_SIZE_MARKERS: Final = frozenset({0xC4, 0xC8, 0xCC})  # among those of JPEG frames
_P = TypeVar("_P")


class ImageScalingError(ValueError):
    """An image that cannot be scaled; the message is for the model."""


def has_images(message: Message) -> bool:
    """Return whether a message has an image that may have to be scaled."""
    return any(isinstance(part, Image) for part in message.parts)


def fit_message(message: Message, max_px: int | None) -> Message:
    """Return a message whose images are within the limit. Slow for large images."""
    return replace(message, parts=fit_parts(message.parts, max_px))


def fit_result(result: ToolResult, max_px: int | None) -> ToolResult:
    """Return a tool result whose images are within the limit. Slow for large images."""
    return replace(result, content=fit_parts(result.content, max_px))


def fit_parts(parts: Sequence[_P], max_px: int | None) -> tuple[_P | Image | Text, ...]:
    """Return the parts with their images within the limit; `max_px` is the limit of the config."""
    return tuple(fit_image(part, max_px) if isinstance(part, Image) else part for part in parts)


def fit_image(image: Image, max_px: int | None) -> Image | Text:
    """Return an image whose longer side has at most `max_px`, or a note why there is none."""
    limit = max_px or DEFAULT_MAX_PX
    try:
        data = base64.b64decode(image.data, validate=True)
    except (binascii.Error, ValueError):
        return image  # the service says what is wrong with it
    size = image_size(data)
    if size is None or max(size) <= limit:
        return image
    try:
        return scale_image(data, limit)
    except ImageScalingError as exc:
        return Text(f"[image not shown: {size[0]}x{size[1]} pixels, {exc}]")


def scale_image(data: bytes, limit: int) -> Image:
    """Scale an image to at most `limit` pixels on its longer side, upright.

    Raises ImageScalingError for an image that is damaged or huge.
    """
    from io import BytesIO

    from PIL import Image as Pictures
    from PIL import ImageOps

    try:
        with Pictures.open(BytesIO(data), formats=("PNG", "JPEG", "GIF", "WEBP")) as opened:
            if opened.width * opened.height > MAX_PIXELS:
                raise ImageScalingError("too large to be scaled")
            opened.draft("RGB", (limit, limit))  # a JPEG is decoded at about the wanted size
            picture = ImageOps.exif_transpose(opened)
        is_opaque = not picture.has_transparency_data
        picture = picture.convert("RGB" if is_opaque else "RGBA")
        picture.thumbnail((limit, limit))
        buffer, kind = BytesIO(), "JPEG" if is_opaque else "PNG"
        picture.save(buffer, kind, quality=_JPEG_QUALITY)
    except ImageScalingError:
        raise
    except (OSError, ValueError, SyntaxError, MemoryError, Pictures.DecompressionBombError) as exc:
        raise ImageScalingError("damaged, and cannot be scaled") from exc
    return Image(base64.b64encode(buffer.getvalue()).decode("ascii"), f"image/{kind.lower()}")


def image_size(data: bytes) -> tuple[int, int] | None:
    """Return width and height by the header of a PNG, GIF, WebP or JPEG; None if there are none."""
    try:
        if data.startswith(b"\x89PNG\r\n\x1a\n") and data[12:16] == b"IHDR":
            return struct.unpack(">II", data[16:24])
        if data.startswith((b"GIF87a", b"GIF89a")):
            return struct.unpack("<HH", data[6:10])
        if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
            return _webp_size(data)
        return _jpeg_size(data) if data.startswith(b"\xff\xd8") else None
    except (struct.error, IndexError):
        return None


def _webp_size(data: bytes) -> tuple[int, int] | None:
    match data[12:16]:
        case b"VP8X":
            width, height = data[24:27], data[27:30]
            return int.from_bytes(width, "little") + 1, int.from_bytes(height, "little") + 1
        case b"VP8L":
            bits = int.from_bytes(data[21:25], "little")
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case b"VP8 ":
            width, height = struct.unpack("<HH", data[26:30])
            return width & 0x3FFF, height & 0x3FFF
    return None


def _jpeg_size(data: bytes) -> tuple[int, int] | None:
    """Return the size in the first frame header; the segments before it are skipped."""
    at = 2
    while at < len(data):
        if data[at] != 0xFF:
            return None
        marker = data[at + 1]
        if marker == 0xFF:  # padding
            at += 1
        elif marker == 0x01 or 0xD0 <= marker <= 0xD8:  # without a length
            at += 2
        elif 0xC0 <= marker <= 0xCF and marker not in _NO_SIZE_MARKERS:
            height, width = struct.unpack(">HH", data[at + 5 : at + 9])
            return width, height
        else:
            at += 2 + max(int.from_bytes(data[at + 2 : at + 4]), 2)
    return None
