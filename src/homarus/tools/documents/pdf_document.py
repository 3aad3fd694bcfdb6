"""The text and the page pictures of a PDF, by pypdf. Runs in the worker process alone."""

import base64
import io
import logging
import time
import zlib
from typing import TYPE_CHECKING, Any

import pypdf
from pypdf.errors import PyPdfError

if TYPE_CHECKING:
    from PIL.Image import Image

MAX_IMAGES = 8  # of one call
MAX_PAGE_IMAGES = 4  # a scan may be several strips
MAX_IMAGE_PX = 1_600
MAX_PIXELS = 50_000_000
MIN_IMAGE_PX = 32  # what is smaller is no page
MAX_TITLE_CHARS = 300
JPEG_QUALITY = 80
# What pypdf and Pillow raise for objects that are not what their dictionaries say.
DAMAGED = (
    PyPdfError,
    zlib.error,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    ArithmeticError,
    AssertionError,
    NotImplementedError,
    RecursionError,
    OSError,
    ImportError,
)


def extract_pdf(
    content: bytes, *, first: int, last: int, max_chars: int, with_images: bool, work_s: float
) -> dict[str, Any]:
    """Return the pages from `first` to `last`; both count from 1, and `last` 0 is the last one.

    After `work_s` seconds of processor time, no further page is begun.
    """
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)
    try:
        reader = pypdf.PdfReader(io.BytesIO(content), strict=False)
        # Without a password for opening it, a PDF is readable by everybody.
        if reader.is_encrypted and not reader.decrypt(""):
            return {"problem": "encrypted"}
        count = len(reader.pages)
    except DAMAGED as exc:
        return {"problem": "damaged", "reason": f"{type(exc).__name__}: {exc}"[:200]}
    pages: list[dict[str, Any]] = []
    chars_left, images_left = max_chars, MAX_IMAGES if with_images else 0
    is_truncated = False
    for number in range(first, min(last or count, count) + 1):
        if chars_left <= 0 or time.process_time() > work_s:
            is_truncated = True
            break
        page = _read_page(reader, number, images_left)
        is_truncated = is_truncated or len(page["text"]) > chars_left
        page["text"] = page["text"][:chars_left]
        chars_left -= len(page["text"])
        images_left -= len(page["images"])
        pages.append(page)
    return {
        "title": _title(reader),
        "page_count": count,
        "pages": pages,
        "is_truncated": is_truncated,
    }


def _title(reader: pypdf.PdfReader) -> str:
    try:
        title = reader.metadata.title if reader.metadata else ""
    except DAMAGED:
        title = ""
    return " ".join(str(title or "").split())[:MAX_TITLE_CHARS]


def _read_page(reader: pypdf.PdfReader, number: int, max_images: int) -> dict[str, Any]:
    page: dict[str, Any] = {"number": number, "text": "", "images": []}
    try:
        found = reader.pages[number - 1]
        page["text"] = found.extract_text().replace("\0", "").strip()
    except DAMAGED as exc:
        page["problem"] = f"damaged ({type(exc).__name__})"
        return page
    if not page["text"]:
        page["images"] = _read_images(found, min(max_images, MAX_PAGE_IMAGES))
    return page


def _read_images(page: pypdf.PageObject, max_images: int) -> list[list[str]]:
    """Return the pictures that can be decoded, in their order."""
    images: list[list[str]] = []
    try:
        names = page.images.keys()
    except DAMAGED:
        return []
    for name in names[: 4 * MAX_PAGE_IMAGES]:
        if len(images) >= max_images:
            break
        try:
            if picture := page.images[name].image:
                images += _encode(picture)
        except DAMAGED:
            continue  # such as a codec that Pillow does not have
    return images


def _encode(picture: "Image") -> list[list[str]]:
    """Return the picture as media type and base64; nothing for one that is tiny or huge."""
    width, height = picture.size
    if min(width, height) < MIN_IMAGE_PX or width * height > MAX_PIXELS:
        return []
    is_gray = picture.mode in {"1", "L", "LA"}
    picture = picture.convert("L" if is_gray else "RGB")
    picture.thumbnail((MAX_IMAGE_PX, MAX_IMAGE_PX))
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=JPEG_QUALITY)
    return [["image/jpeg", base64.b64encode(buffer.getvalue()).decode("ascii")]]
