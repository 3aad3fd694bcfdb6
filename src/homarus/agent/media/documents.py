"""Read the text of documents that came with a message: text files, and PDF."""

import asyncio
import base64
import codecs
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from homarus.config.media_schema import DocumentLimitsConfig
from homarus.core.errors import ToolError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Image, Media
from homarus.core.mime import HEAD_BYTES, sniff_mime
from homarus.tools.file_scope import SingleFileAccess
from homarus.tools.rooted_fs import RootedFs

MAX_PAGE_IMAGES: Final = 8
PDF: Final = "application/pdf"
# Types that are text, although they do not start with `text/`.
_TEXT_TYPES: Final = frozenset(
    {
        "application/csv", "application/javascript", "application/json", "application/ld+json",
        "application/toml", "application/x-ndjson", "application/x-sh", "application/x-yaml",
        "application/xml", "application/yaml",
    }
)  # fmt: skip
_VAGUE_TYPES: Final = frozenset({"", "application/octet-stream"})
_BY_SUFFIX: Final[Mapping[str, str]] = {
    ".csv": "text/csv", ".htm": "text/html", ".html": "text/html", ".json": "application/json",
    ".md": "text/markdown", ".tsv": "text/tab-separated-values", ".xml": "application/xml",
    ".yaml": "application/yaml", ".yml": "application/yaml",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class DocumentText:
    """The text of a document within its limit; `problem` says why there is none.

    `images` are those of scanned pages.
    """

    name: str
    mime: str
    text: str = ""
    problem: str = ""
    images: tuple[Image, ...] = ()


def is_document(media: Media) -> bool:
    """Return whether a file of a message may be a document with text, by its type."""
    kind = media.mime.partition("/")[0]
    return bool(media.path) and kind not in {"image", "audio", "video"}


async def read_document(
    media: Media, limits: DocumentLimitsConfig, max_chars: int, *, with_images: bool = False
) -> DocumentText | None:
    """Return the text of a document; None for a file that is none, or that is not allowed.

    `with_images`: the pictures of pages without text are wanted, too.
    """
    name = media.name or Path(media.path).name
    try:
        content = await asyncio.to_thread(read_sent_file, media.path, limits.max_bytes)
    except (ToolError, OSError):
        return DocumentText(name, media.mime, problem="it cannot be read")
    mime = _find_type(media, content)
    if not mime or not _is_allowed(mime, limits):
        return None
    if len(content) > limits.max_bytes:
        return DocumentText(name, mime, problem=f"it is larger than {limits.max_bytes} bytes")
    if mime == PDF:
        return await _read_pdf(
            name, media.path, content, limits, max_chars, with_images=with_images
        )
    return DocumentText(name, mime, _cut(_decode(content).strip(), max_chars, media.path))


def read_sent_file(path: str, max_bytes: int) -> bytes:
    """Read a file of a message up to its limit and one byte; links are not followed."""
    place = Path(path)
    folder = RootedFs(place.parent, links=False, access=SingleFileAccess(place.name))
    with folder.open_read(path) as opened:
        return opened.file.read(max_bytes + 1)


def _find_type(media: Media, content: bytes) -> str:
    """Return the type of a document with text, by its bytes; "" for any other file."""
    sniffed = sniff_mime(content[:HEAD_BYTES])
    if sniffed:
        return sniffed if sniffed == PDF else ""
    if not _is_text(content):
        return ""
    if media.mime.startswith("text/") or media.mime in _TEXT_TYPES:
        return media.mime
    if media.mime not in _VAGUE_TYPES:
        return ""  # its service says what it is, and that is no text
    return _BY_SUFFIX.get(Path(media.name).suffix.lower(), "text/plain")


def _is_text(content: bytes) -> bool:
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return True
    if b"\0" in content:
        return False
    try:
        codecs.getincrementaldecoder("utf-8")().decode(content)
    except UnicodeDecodeError:
        return False
    return bool(content.strip())


def _decode(content: bytes) -> str:
    is_utf16 = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return content.decode("utf-16" if is_utf16 else "utf-8-sig", "replace")


def _is_allowed(mime: str, limits: DocumentLimitsConfig) -> bool:
    if limits.allowed_mimes is None:
        return True
    return mime in {each.partition(";")[0].strip().lower() for each in limits.allowed_mimes}


def _cut(text: str, max_chars: int, path: str) -> str:
    if len(text) <= max_chars:
        return text
    return f"{text[:max_chars]}\n[… cut here: the file {path} has the rest]"


async def _read_pdf(
    name: str,
    path: str,
    content: bytes,
    limits: DocumentLimitsConfig,
    max_chars: int,
    *,
    with_images: bool,
) -> DocumentText:
    """Read a PDF in a process of its own; a page without text gives its pictures, if wanted."""
    from homarus.tools.documents.extraction import extract_pdf  # only for PDF

    pages = (1, limits.pdf.max_pages)
    try:
        found = await extract_pdf(
            content, pages=pages, max_chars=max(max_chars, 1), with_images=with_images, name=name
        )
    except ToolError as exc:
        return DocumentText(name, PDF, problem=exc.message)
    texts = [page.text.strip() for page in found.pages if page.text.strip()]
    images = [
        Image(base64.b64encode(data).decode("ascii"), mime)
        for page in found.pages
        for mime, data in page.images
    ][:MAX_PAGE_IMAGES]
    if not texts and not images:
        return DocumentText(name, PDF, problem="no text was found in it")
    if found.is_truncated or found.page_count > limits.pdf.max_pages:
        texts.append(f"[… cut here: the file {path} has {found.page_count} pages]")
    return DocumentText(name, PDF, "\n\n".join(texts), images=tuple(images))
