"""Read the images and files of a request: from the request itself, or by URL.

A URL is fetched through the network guard, so it cannot lead into the gateway's own network. An
image is known by its bytes; any other file is stored for the run, which reads it as a document.
"""

import asyncio
import base64
import binascii
from collections.abc import Sequence
from typing import Final
from urllib.parse import unquote_to_bytes

from homarus.config.media_schema import ImageLimitsConfig, UrlLimitsConfig
from homarus.config.schema import Config
from homarus.core.errors import ToolError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Image, Media
from homarus.core.mime import HEAD_BYTES, sniff_image_mime
from homarus.core.text import one_line
from homarus.gateway.attachments import MAX_IMAGES, AttachedFile, max_image_bytes
from homarus.gateway.http_api.api_error import ApiError
from homarus.gateway.http_api.conversation import DecodedParts, SentMessage, SentPart
from homarus.gateway.http_api.endpoint import ApiCall

_SHOWN_CHARS: Final = 80


@dataclass(frozen=True, slots=True)
class SentFiles:
    """What the messages of a request have besides text: images, by message, and stored files."""

    decoded: DecodedParts
    media: tuple[Media, ...] = ()


NO_FILES: Final = SentFiles(DecodedParts())


async def read_sent_parts(call: ApiCall, messages: Sequence[SentMessage], param: str) -> SentFiles:
    """Return the images and files of messages; raises ApiError (400, 413)."""
    parts = [part for message in messages for part in message.parts]
    if not parts:
        return NO_FILES
    if len(parts) > MAX_IMAGES:
        raise ApiError(400, f"at most {MAX_IMAGES} images and files can be sent", param=param)
    max_urls = call.services.loaded.config.gateway.http.endpoints.responses.max_url_parts
    if sum(part.is_url for part in parts) > max_urls:
        raise ApiError(400, f"at most {max_urls} parts may be URLs", param=param)
    config, images, files = call.services.loaded.config, dict[int, tuple[Image, ...]](), []
    for message in messages:
        for part in message.parts:
            read = await _read_part(config, part, param)
            if isinstance(read, Image):
                images[id(message)] = (*images.get(id(message), ()), read)
            else:
                files.append(read)
    return SentFiles(DecodedParts(images), await _store(call, files))


async def _read_part(config: Config, part: SentPart, param: str) -> Image | AttachedFile:
    limits = config.gateway.http.endpoints.responses
    image_bytes = min(max_image_bytes(config), limits.images.max_bytes)
    file_bytes = limits.files.max_bytes
    max_bytes = image_bytes if part.kind == "image" else max(image_bytes, file_bytes)
    if part.is_url:
        url_limits = limits.images if part.kind == "image" else limits.files
        data, name = await _fetch(config, part.source, max_bytes, url_limits, param)
        mime = ""
    else:
        mime, data = _decode(part.source, max_bytes, param)
        name = ""
    if not data:
        raise ApiError(400, "an image or file is empty", param=param)
    if image_mime := sniff_image_mime(data[:HEAD_BYTES]):
        if len(data) > image_bytes:
            raise ApiError(413, f"an image may have {image_bytes} bytes", param=param)
        if limits.images.allowed_mimes is not None and image_mime not in _types(limits.images):
            message = f"images of the type {image_mime} are not accepted"
            raise ApiError(400, message, param=param)
        return Image(base64.b64encode(data).decode("ascii"), image_mime)
    if part.kind == "image":
        raise ApiError(400, "only PNG, JPEG, GIF and WebP images can be sent", param=param)
    if len(data) > file_bytes:
        raise ApiError(413, f"a file may have {file_bytes} bytes", param=param)
    shown = one_line(part.name or name or "file", _SHOWN_CHARS)
    return AttachedFile(shown, part.mime or mime, data)


def _types(limits: ImageLimitsConfig) -> set[str]:
    allowed = limits.allowed_mimes or ()
    return {each.partition(";")[0].strip().lower() for each in allowed}


async def _fetch(
    config: Config, url: str, max_bytes: int, limits: UrlLimitsConfig, param: str
) -> tuple[bytes, str]:
    from homarus.tools.web_file import fetch_file  # with the first URL

    if not limits.allow_url:
        message = "an image or file may not be named by its address: allowUrl is false"
        raise ApiError(400, message, param=param, reason="url_not_fetched")
    if url[:8].lower().partition(":")[0] not in {"http", "https"}:
        message = "a URL must begin with https://, http:// or data:"
        raise ApiError(400, message, param=param)
    try:
        return await fetch_file(config, url, max_bytes=max_bytes, url_limits=limits)
    except ToolError as exc:
        shown = one_line(url, _SHOWN_CHARS)
        raise ApiError(
            400, f"{shown} could not be fetched: {exc.message}", reason="url_not_fetched",
            param=param, fix=exc.fix,
        ) from None  # fmt: skip


def _decode(source: str, max_bytes: int, param: str) -> tuple[str, bytes]:
    """Return the type and the content of a `data:` URL, or of base64."""
    mime, text, is_base64 = "", source, True
    if source[:5].lower() == "data:":
        head, comma, text = source[5:].partition(",")
        if not comma:
            raise ApiError(400, "a data: URL has no data", param=param)
        mime, is_base64 = head.partition(";")[0].strip().lower(), head.lower().endswith(";base64")
    if len(text) > (max_bytes + 2) // 3 * 4 + 4:
        raise ApiError(413, f"an image or file may have {max_bytes} bytes", param=param)
    if not is_base64:
        return mime, unquote_to_bytes(text)
    try:
        return mime, base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        raise ApiError(400, "an image or file is no valid base64", param=param) from None


async def _store(call: ApiCall, files: Sequence[AttachedFile]) -> tuple[Media, ...]:
    if not files:
        return ()
    from homarus.channels.media import MediaDownloader  # with the first file

    folder = MediaDownloader(call.services.paths.state, call.services.clock.now_ms)
    return tuple([await asyncio.to_thread(file.save, folder) for file in files])
