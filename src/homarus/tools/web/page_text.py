"""The text of a response, by what it is: a page, a PDF, JSON, or plain text.

Pages and PDFs are parsed by a process of their own (`tools.documents`). Other types are named.
"""

import codecs
import json
import re
from dataclasses import replace
from typing import Final

from homarus.core.errors import FetchError
from homarus.core.fast_dataclass import dataclass
from homarus.core.mime import HEAD_BYTES, sniff_mime
from homarus.net.guarded_fetch import FetchedResponse
from homarus.tools.web.fetched_page import ExtractMode, Extractor, shown_url

MAX_HTML_BYTES: Final = 4_000_000
_MAX_JSON_BYTES: Final = 1_000_000
_HEAD_BYTES: Final = 4_096
_TYPE: Final = re.compile(r"[\w.+-]{1,60}/[\w.+-]{1,60}")
_HTML_TYPES: Final = frozenset({"text/html", "application/xhtml+xml"})
_TEXT_TYPES: Final = re.compile(
    r"text/.*|application/(?:.*\+)?(?:json|xml|yaml)|image/svg\+xml"
    r"|application/(?:x-)?(?:javascript|ecmascript|yaml|toml|sh|ndjson|sql|graphql|typescript)"
)
_UNKNOWN_TYPES: Final = frozenset({"", "application/octet-stream", "binary/octet-stream"})
_HTML_START: Final = re.compile(
    rb"\s*(?:<!--.{0,500}?-->\s*)*<(?:!doctype html|html|head|body)\b", re.I | re.S
)
_JSON_TYPE: Final = re.compile(r"application/(?:.*\+)?json|text/json")
# Names of codecs that are no encodings of pages, and slow or surprising.
_REFUSED_CODECS: Final = frozenset(
    {
        "punycode",
        "idna",
        "unicode-escape",
        "raw-unicode-escape",
        "utf-7",
        "undefined",
        "mbcs",
        "oem",
    }
)
_FEW_CHARS: Final = 600
_WALL: Final = re.compile(
    r"cookie|consent|(?:enable|requires?|turn on) javascript|javascript is (?:disabled|required)"
    r"|verify (?:that )?you are (?:a )?human|checking your browser",
    re.IGNORECASE,
)
WALL_WARNING: Final = (
    "there is little text besides a notice about cookies, scripts or robots: the page may need a"
    " browser, or look different to one"
)


@dataclass(frozen=True, slots=True)
class PageText:
    """The text of a response, and how it was found."""

    text: str
    extractor: Extractor
    title: str = ""
    is_truncated: bool = False
    content_type: str = ""

    @property
    def warning(self) -> str:
        """Return why the text may not be the page's, "" if it seems to be."""
        is_html = self.extractor in {"readability", "html"}
        is_wall = is_html and len(self.text) < _FEW_CHARS and _WALL.search(self.text)
        return WALL_WARNING if is_wall else ""


async def read_page(
    response: FetchedResponse, *, mode: ExtractMode, max_chars: int, is_readable: bool = True
) -> PageText:
    """Return the text of a response. Raises FetchError for a type without text."""
    kind, charset = find_type(response)
    if kind == "application/pdf":
        return await _read_pdf(response, max_chars)
    if kind in _HTML_TYPES:
        page = await _read_html(response, charset, mode, max_chars, is_whole=not is_readable)
        return page if is_readable else replace(page, extractor="html")
    if not _TEXT_TYPES.fullmatch(kind) or _is_binary(response.body):
        size = f"{'more than ' if response.is_truncated else ''}{len(response.body)} bytes"
        fix = "look at it with `image`" if kind.startswith("image/") else ""
        raise FetchError(f"{shown_url(response.url)} is {kind} ({size}), not text", fix=fix)
    # Four bytes are the longest character of any encoding.
    text = decode(response.body[: 4 * max_chars + 4], charset)
    is_truncated = response.is_truncated or len(response.body) > 4 * max_chars + 4
    extractor: Extractor = "markdown" if kind == "text/markdown" else "raw"
    if _JSON_TYPE.fullmatch(kind) and (pretty := _pretty_json(response, charset)):
        text, extractor, is_truncated = pretty, "json", False
    return PageText(text[:max_chars], extractor, "", is_truncated or len(text) > max_chars, kind)


def find_type(response: FetchedResponse) -> tuple[str, str]:
    """Return the type and the charset of a response; its bytes decide where they are certain."""
    header = response.headers.get("content-type", "").partition(",")[0]
    named, _, params = header.partition(";")
    kind = named.strip().lower()
    found = re.search(r"charset\s*=\s*[\"']?([\w.:-]{1,40})", params, re.IGNORECASE)
    charset = _text_codec(found[1]) if found else ""
    head = response.body[:_HEAD_BYTES]
    if sniffed := sniff_mime(head[:HEAD_BYTES]):
        return sniffed, charset
    if kind in _UNKNOWN_TYPES or not _TYPE.fullmatch(kind):
        if _HTML_START.match(head):
            return "text/html", charset
        return ("application/octet-stream" if _is_binary(head) else "text/plain"), charset
    return kind, charset


def decode(content: bytes, charset: str) -> str:
    """Decode a text; what is not valid in its encoding, or has none, does not fail."""
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return content.decode("utf-16", "replace")
    if charset:
        return content.decode(charset, "replace").removeprefix("\ufeff")
    decoder = codecs.getincrementaldecoder("utf-8-sig")()
    try:
        return decoder.decode(content)  # without what was cut off at its end
    except UnicodeDecodeError:
        return content.decode("cp1252", "replace")


def _text_codec(label: str) -> str:
    """Return the name of an encoding of text; "" for any other."""
    try:
        name = codecs.lookup(label).name
        b"a".decode(name, "replace")  # refuses codecs that are not for text
    except (LookupError, ValueError, UnicodeError):
        return ""
    plain = {"ascii": "", "iso8859-1": "cp1252"}  # as browsers read them
    return "" if name.replace("_", "-") in _REFUSED_CODECS else plain.get(name, name)


def _is_binary(content: bytes) -> bool:
    head = content[:_HEAD_BYTES]
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return False
    return b"\0" in head


def _pretty_json(response: FetchedResponse, charset: str) -> str:
    """Return JSON with indentation; "" for what is none, or too much to parse."""
    if response.is_truncated or len(response.body) > _MAX_JSON_BYTES:
        return ""
    try:
        value = json.loads(decode(response.body, charset))
        return json.dumps(value, ensure_ascii=False, indent=2)
    except (ValueError, RecursionError):
        return ""


async def _read_html(
    response: FetchedResponse, charset: str, mode: ExtractMode, max_chars: int, *, is_whole: bool
) -> PageText:
    from homarus.tools.documents.extraction import extract_html

    page = await extract_html(
        response.body[:MAX_HTML_BYTES],
        url=response.url,
        charset=charset,
        mode=mode,
        max_chars=max_chars,
        is_whole=is_whole,
    )
    is_cut = page.is_truncated or response.is_truncated or len(response.body) > MAX_HTML_BYTES
    return PageText(page.text, "readability", page.title, is_cut, "text/html")


async def _read_pdf(response: FetchedResponse, max_chars: int) -> PageText:
    from homarus.tools.documents.extraction import extract_pdf

    if response.is_truncated:
        size = f"{len(response.body) // 1_000_000} MB"
        raise FetchError(f"the PDF at {shown_url(response.url)} is larger than {size}")
    found = await extract_pdf(response.body, max_chars=max_chars)
    shown = ((page.number, page.text or page.problem or "no text") for page in found.pages)
    pages = [f"[page {number} of {found.page_count}]\n{text}" for number, text in shown]
    text = "\n\n".join(pages)
    is_cut = found.is_truncated or len(text) > max_chars
    return PageText(text[:max_chars], "pdf", found.title, is_cut, "application/pdf")
