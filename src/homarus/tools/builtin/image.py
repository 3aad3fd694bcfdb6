"""Look at pictures with a model for images: `image`.

A picture is a file that the conversation may read, a `data:` URL, or a URL that is fetched through
the network guard. What a model reads in a picture was written by others: the result is untrusted.
"""

import asyncio
import base64
import binascii
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Final
from urllib.parse import unquote, unquote_to_bytes

from pydantic import Field

from homarus.config.schema import Config
from homarus.core.errors import ToolDeniedError, ToolError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Image, Json, Text
from homarus.core.mime import HEAD_BYTES, sniff_image_mime
from homarus.core.text import one_line
from homarus.policy.tool_call import TaintSource, ToolDeclaration
from homarus.tools.image_description import ImageAnswer, ImageQuestion
from homarus.tools.pathname import format_path
from homarus.tools.rooted_fs import RootedFs
from homarus.tools.sources import ToolSourceContext
from homarus.tools.tool import Tool, ToolContext, ToolOutput, tool

MAX_IMAGES: Final = 20
MAX_TOTAL_BYTES: Final = 40_000_000
DEFAULT_MAX_BYTES: Final = 10_000_000
NO_MODEL_FIX: Final = (
    "set agents.defaults.imageModel.primary to a model that sees images, as provider/model"
)
_TIMEOUT_S: Final = 300.0
_MB: Final = 1_000_000
_WEB: Final = re.compile(r"https?://", re.IGNORECASE)
_DATA: Final = re.compile(r"data:([\w.+/-]{0,100})((?:;[\w=.+-]{0,100}){0,8}),", re.IGNORECASE)
_FILE: Final = re.compile(r"file://(?:localhost)?(?=/)", re.IGNORECASE)
_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]{1,20}://", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Picture:
    """A picture that was read: its bytes and where it comes from."""

    name: str
    data: bytes
    source: TaintSource

    def to_image(self) -> Image:
        """Return the picture as models take it. Raises ToolError for a file that is none."""
        mime = sniff_image_mime(self.data[:HEAD_BYTES])
        if not mime:
            raise ToolError(
                f"{self.name} is not a picture", fix="use a png, jpeg, gif or webp file"
            )
        return Image(base64.b64encode(self.data).decode("ascii"), mime)


def tools(context: ToolSourceContext) -> Sequence[Tool]:
    """Return the tool for an agent that has a model for pictures."""
    if not context.has_image_model():
        return ()
    config = context.config

    @tool(group="", idempotent=True, timeout_s=_TIMEOUT_S)
    async def image(
        ctx: ToolContext,
        *,
        prompt: str | None = None,
        image: Annotated[
            str | None, Field(description="Path of a file, http(s) or data: URL")
        ] = None,
        images: tuple[str, ...] | None = None,
        model: str | None = None,
        max_mb: Annotated[float | None, Field(validation_alias="maxBytesMb")] = None,
        max_images: Annotated[int | None, Field(validation_alias="maxImages")] = None,
    ) -> ToolOutput:
        """Ask a vision model about pictures that you do not see yourself."""
        names = _names(image, images or ())
        _check_count(names, min(MAX_IMAGES if max_images is None else max_images, MAX_IMAGES))
        pictures = await _load_all(ctx, config, names, _byte_limit(config, max_mb))
        if ctx.describe_images is None:
            raise ToolError("no model for pictures can be reached from here", fix=NO_MODEL_FIX)
        shown = tuple(each.to_image() for each in pictures)
        answer = await ctx.describe_images(ImageQuestion(shown, prompt or "", model or ""))
        details = _details(answer, pictures)
        return ToolOutput((Text(answer.text),), details, untrusted=_source(pictures))

    return (replace(image, declaration=ToolDeclaration("image")),)  # it is in no group


def _names(image: str | None, images: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(name.strip() for name in (image or "", *images) if name.strip()))


def _details(answer: ImageAnswer, pictures: Sequence[_Picture]) -> dict[str, Json]:
    attempts = [
        {"provider": each.provider, "model": each.model, "error": each.error}
        for each in answer.attempts
    ]
    shown = [{"image": each.name} for each in pictures]
    named: dict[str, Json] = {**shown[0]} if len(shown) == 1 else {"images": shown}
    return {"model": answer.model, "attempts": attempts, **named}


def _check_count(names: Sequence[str], limit: int) -> None:
    if not names:
        raise ToolError("no picture is named", fix="set image, or images")
    if len(names) > limit:
        raise ToolError(
            f"{len(names)} pictures are more than {limit}", fix="ask about fewer at a time"
        )


def _byte_limit(config: Config, wanted_mb: float | None) -> int:
    """Return the largest picture: what the call asks for, within what the config allows."""
    limit = config.tools.media.image.max_bytes or DEFAULT_MAX_BYTES
    return limit if wanted_mb is None else min(limit, max(1, round(wanted_mb * _MB)))


async def _load_all(
    ctx: ToolContext, config: Config, names: Sequence[str], max_bytes: int
) -> list[_Picture]:
    pictures, total = list[_Picture](), 0
    for name in names:
        picture = await _load(ctx, config, name, max_bytes)
        total += len(picture.data)
        if total > MAX_TOTAL_BYTES:
            limit = f"{MAX_TOTAL_BYTES // _MB} MB"
            raise ToolError(
                f"the pictures are larger than {limit} together", fix="ask about fewer at a time"
            )
        pictures.append(picture)
    return pictures


async def _load(ctx: ToolContext, config: Config, name: str, max_bytes: int) -> _Picture:
    if _WEB.match(name):
        return await _fetch(ctx, config, name, max_bytes)
    if name[:5].lower() == "data:":
        return _Picture("data: URL", _decode_data_url(name, max_bytes), TaintSource("file", "data"))
    path = name
    if url := _FILE.match(name):
        path = unquote(name[url.end() :])
    elif scheme := _SCHEME.match(name):
        raise ToolError(
            f"{scheme[0]} is not a kind of address that is read",
            fix="use a path, an http(s) URL or a data: URL",
        )
    if not ctx.access.can_attach:
        raise ToolDeniedError("files may not be read in this conversation")
    folder, _ = ctx.folder_to_read(path)
    data = await asyncio.to_thread(_read, folder, path, max_bytes)
    return _Picture(format_path(path), data, TaintSource("file", path.rpartition("/")[2]))


async def _fetch(ctx: ToolContext, config: Config, url: str, max_bytes: int) -> _Picture:
    if not ctx.access.can_fetch:
        raise ToolDeniedError("nothing is fetched from the web in this conversation")
    from homarus.tools.web_file import fetch_file  # only for URLs

    data, _ = await fetch_file(config, url, max_bytes=max_bytes)
    return _Picture(one_line(url, 200), data, TaintSource("web", url))


def _decode_data_url(url: str, max_bytes: int) -> bytes:
    found = _DATA.match(url)
    if not found:
        raise ToolError("the data: URL is damaged", fix="write data:image/png;base64, and the data")
    body = url[found.end() :]
    if len(body) > max_bytes * 4:  # percent-encoding has three characters for a byte
        raise _too_large("the data: URL", max_bytes)
    if ";base64" not in found[2].lower():
        data = unquote_to_bytes(body)
    else:
        try:
            data = base64.b64decode("".join(unquote(body).split()), validate=True)
        except (binascii.Error, ValueError) as exc:
            raise ToolError("the data: URL is not valid base64") from exc
    if len(data) > max_bytes:
        raise _too_large("the data: URL", max_bytes)
    return data


def _read(folder: RootedFs, path: str, max_bytes: int) -> bytes:
    with folder.open_read(path) as opened:
        data = opened.file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise _too_large(format_path(path), max_bytes)
    return data


def _too_large(name: str, max_bytes: int) -> ToolError:
    return ToolError(f"{name} is larger than {max_bytes / _MB:g} MB", fix="make it smaller first")


def _source(pictures: Sequence[_Picture]) -> TaintSource:
    """Return where the answer comes from: the web if one of the pictures does."""
    sources = [picture.source for picture in pictures]
    kind = "web" if any(source.kind == "web" for source in sources) else "file"
    return TaintSource(kind, ", ".join(dict.fromkeys(source.origin for source in sources)))
