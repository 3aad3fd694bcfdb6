"""Read the text of documents that came with a message: text files, and PDF."""

import asyncio
import codecs
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from homarus.config.media_schema import DocumentLimitsConfig
from homarus.core.errors import ToolError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Media
from homarus.core.mime import HEAD_BYTES, sniff_mime
from homarus.tools.file_scope import SingleFileAccess
from homarus.tools.rooted_fs import RootedFs

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
    """The text of a document within its limit; `problem` says why there is none."""

    name: str
    mime: str
    text: str = ""
    problem: str = ""


def is_document(media: Media) -> bool:
    """Return whether a file of a message may be a document with text, by its type."""
    kind = media.mime.partition("/")[0]
    return bool(media.path) and kind not in {"image", "audio", "video"}


async def read_document(
    media: Media, limits: DocumentLimitsConfig, max_chars: int
) -> DocumentText | None:
    """Return the text of a document; None for a file that is none, or that is not allowed."""
    name = media.name or Path(media.path).name
    try:
        content = await asyncio.to_thread(_read, media.path, limits.max_bytes)
    except (ToolError, OSError):
        return DocumentText(name, media.mime, problem="it cannot be read")
    mime = _find_type(media, content)
    if not mime or not _is_allowed(mime, limits):
        return None
    if len(content) > limits.max_bytes:
        return DocumentText(name, mime, problem=f"it is larger than {limits.max_bytes} bytes")
    if mime == PDF:
        return await _read_pdf(name, content, limits, max_chars)
    return DocumentText(name, mime, _cut(_decode(content).strip(), max_chars, media.path))


def _read(path: str, max_bytes: int) -> bytes:
    """Read a file up to its limit and one byte; links are not followed."""
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
    name: str, content: bytes, limits: DocumentLimitsConfig, max_chars: int
) -> DocumentText:
    return DocumentText(name, PDF, problem="the text of PDF files is not read")
