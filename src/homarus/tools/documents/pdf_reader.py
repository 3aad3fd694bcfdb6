"""Show a PDF to a model: the text of its pages, and pictures of those that have no text."""

import base64

from homarus.core.errors import ToolError
from homarus.core.message import Image, Text
from homarus.core.text import one_line
from homarus.tools.documents.extraction import ExtractedPdf, PdfPage, extract_pdf
from homarus.tools.tool import ToolOutput


async def read_pdf(
    content: bytes, name: str, first: int, limit: int | None, max_chars: int
) -> ToolOutput:
    """Return the pages from `first`, at most `limit`, as far as `max_chars` allow.

    What was left out is said at the end, with the page to go on with.
    """
    last = first + limit - 1 if limit else 0
    found = await extract_pdf(
        content, pages=(first, last), max_chars=max_chars, with_images=True, name=name
    )
    if first > found.page_count:
        raise ToolError(f"{name}: page {first} is not there: the PDF has {found.page_count} pages")
    pages, is_cut = _whole_pages(found, max_chars)
    parts: list[Text | Image] = []
    text = _heading(found, name)
    for page in pages:
        text += f"\n\n[Page {page.number} of {found.page_count}]\n{page.text or _explain(page)}"
        if page.images:
            parts += [Text(text.strip()), *_to_images(page)]
            text = ""
    following = pages[-1].number + 1
    if is_cut:
        text += f"\n\n[Page {pages[-1].number} is cut: it is longer than {max_chars} characters.]"
    if following <= found.page_count:
        left = found.page_count - following + 1
        text += f"\n\n[{left} more pages in file. Use offset={following} to continue.]"
    return ToolOutput((*parts, Text(text.strip())) if text.strip() else tuple(parts))


def _whole_pages(found: ExtractedPdf, max_chars: int) -> tuple[tuple[PdfPage, ...], bool]:
    """Return the pages without a last one that was cut, and whether the only one was."""
    is_cut = found.is_truncated and sum(len(page.text) for page in found.pages) >= max_chars
    if is_cut and len(found.pages) > 1:
        return found.pages[:-1], False
    return found.pages, is_cut


def _heading(found: ExtractedPdf, name: str) -> str:
    title = f" {one_line(found.title, 200)!r}," if found.title else ""
    return f"{name}: PDF,{title} {found.page_count} page{'s' if found.page_count != 1 else ''}"


def _explain(page: PdfPage) -> str:
    if page.problem:
        return f"(this page cannot be read: {page.problem})"
    if page.images:
        return "(no text; its pictures follow)"
    return "(no text, and no picture that can be shown)"


def _to_images(page: PdfPage) -> list[Image]:
    return [Image(base64.b64encode(data).decode("ascii"), mime) for mime, data in page.images]
