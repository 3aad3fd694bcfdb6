"""Documents for tests: PDF files of a few hundred bytes, and pages without text."""

import io
from collections.abc import Sequence

import pypdf
from PIL import Image


def make_pdf(pages: Sequence[str], *, title: str = "", password: str | None = None) -> bytes:
    """Return a PDF with one line of text on each page; "" is a page without text."""
    objects = [b"<</Type/Catalog/Pages 2 0 R>>", b""]
    kids = []
    for text in pages:
        number = len(objects) + 1
        kids.append(f"{number} 0 R")
        shown = text.replace("\\", "\\\\").replace("(", "\\(").replace(")", "\\)")
        stream = f"BT /F 12 Tf 20 100 Td ({shown}) Tj ET".encode("latin-1") if text else b""
        font = "<</Font<</F<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>>>>>"
        objects.append(
            f"<</Type/Page/Parent 2 0 R/MediaBox[0 0 200 200]/Resources{font}"
            f"/Contents {number + 1} 0 R>>".encode()
        )
        objects.append(b"<</Length %d>>stream\n%s\nendstream" % (len(stream), stream))
    objects[1] = f"<</Type/Pages/Kids[{' '.join(kids)}]/Count {len(pages)}>>".encode()
    data = write_objects(objects)
    if not title and password is None:
        return data
    writer = pypdf.PdfWriter(clone_from=io.BytesIO(data))
    if title:
        writer.add_metadata({"/Title": title})
    if password is not None:
        writer.encrypt(password, owner_password="owner", algorithm="AES-256")
    return _written(writer)


def write_objects(objects: Sequence[bytes]) -> bytes:
    """Return a PDF of these objects, numbered from 1; the first is the catalog."""
    data, offsets = b"%PDF-1.7\n", list[int]()
    for number, body in enumerate(objects, 1):
        offsets.append(len(data))
        data += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    table = b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    size = len(objects) + 1
    return (
        data
        + b"xref\n0 %d\n0000000000 65535 f \n" % size
        + table
        + b"trailer<</Size %d/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF\n" % (size, len(data))
    )


def make_scan(colors: Sequence[str] = ("red",), side_px: int = 200) -> bytes:
    """Return a PDF whose pages are pictures of one color, as a scanner writes it."""
    pictures = [Image.new("RGB", (side_px, side_px), color) for color in colors]
    buffer = io.BytesIO()
    pictures[0].save(buffer, "PDF", save_all=True, append_images=pictures[1:])
    return buffer.getvalue()


def _written(writer: pypdf.PdfWriter) -> bytes:
    buffer = io.BytesIO()
    writer.write(buffer)
    return buffer.getvalue()
