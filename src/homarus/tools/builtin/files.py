"""Files of the workspace: `read`, `write`, `edit`."""

import asyncio
import base64
import codecs
from typing import Annotated, BinaryIO, TypeAlias

from pydantic import AliasChoices, Field

from homarus.core.errors import ToolError
from homarus.core.message import Image, Text
from homarus.core.mime import HEAD_BYTES, sniff_image_mime, sniff_mime
from homarus.tools.effects import write_effects
from homarus.tools.line_window import read_window
from homarus.tools.pathname import format_path
from homarus.tools.rooted_fs import OpenFile, RootedFs
from homarus.tools.text_edit import TextEdit, replace_once
from homarus.tools.tool import ToolContext, ToolOutput, tool

MAX_LINES = 2000
MAX_BYTES = 50_000
MAX_IMAGE_BYTES = 5_000_000
MAX_EDIT_BYTES = 10_000_000
MAX_DOCUMENT_BYTES = 50_000_000
PDF = "application/pdf"
# Characters that text has hardly any of: all controls but tab, line ends, form feed and escape.
_CONTROLS = bytes(set(range(32)) - set(b"\t\n\r\f\x1b")) + b"\x7f"
_MAX_CONTROL_SHARE = 0.05
_ARCHIVES = {
    "docx": "Word document",
    "xlsx": "Excel workbook",
    "pptx": "PowerPoint presentation",
    "odt": "OpenDocument text",
    "ods": "OpenDocument spreadsheet",
    "odp": "OpenDocument presentation",
    "epub": "EPUB book",
}

Path: TypeAlias = Annotated[
    str,
    Field(
        validation_alias=AliasChoices("path", "file_path"),
        description="File, from the workspace",
    ),
]


@tool(group="fs", idempotent=True, aliases=("file_read",))
async def read(
    ctx: ToolContext,
    path: Path,
    offset: Annotated[int | None, Field(ge=0, description="First line to read, from 1")] = None,
    limit: Annotated[int | None, Field(ge=1, description="How many lines at most")] = None,
) -> ToolOutput:
    """Read a text file or a PDF, or look at an image (png, jpeg, gif, webp).

    Long files come in parts: at most 2000 lines or 50 KB, and where to go on. In a PDF, offset and
    limit count pages; scanned pages are images.
    """
    folder, _ = ctx.folder_to_read(path)
    found = await asyncio.to_thread(_read, folder, path, offset or 1, limit)
    if isinstance(found, ToolOutput):
        return found
    from homarus.tools.documents.pdf_reader import read_pdf  # few conversations have documents

    return await read_pdf(found, format_path(path), offset or 1, limit, MAX_BYTES)


@tool(group="fs", serial=True, aliases=("file_write",), effects=write_effects)
async def write(
    ctx: ToolContext,
    path: Path,
    content: Annotated[str, Field(description="The whole new content")],
) -> str:
    """Write a file: make it, with its folders, or replace all that is in it."""
    data = _encoded(content, "content")
    folder, prefix = ctx.folder_to_write(path)
    done = await asyncio.to_thread(folder.write_atomic, path, data)
    verb = "Created" if done.created else "Replaced"
    return f"{verb} {format_path(prefix + done.path)} ({len(data)} bytes)."


@tool(group="fs", serial=True, effects=write_effects)
async def edit(
    ctx: ToolContext,
    path: Path,
    old_text: Annotated[
        str,
        Field(
            validation_alias=AliasChoices("oldText", "old_string"),
            description="The exact text; it is there once",
        ),
    ],
    new_text: Annotated[
        str,
        Field(
            validation_alias=AliasChoices("newText", "new_string"),
            description="Its replacement",
        ),
    ],
) -> ToolOutput:
    """Replace one piece of text in a file. Everything else stays, byte for byte."""
    _encoded(new_text, "newText")
    folder, _ = ctx.folder_to_write(path)
    done = await asyncio.to_thread(_edit, folder, path, old_text, new_text)
    text = f"Edited {format_path(path)} at line {done.line}."
    return ToolOutput((Text(text),), {"diff": done.diff, "firstChangedLine": done.line})


def _encoded(text: str, what: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as exc:
        broken = text[exc.start]
        raise ToolError(f"{what} holds half a character (U+{ord(broken):04X})") from exc


def _edit(beneath: RootedFs, path: str, old: str, new: str) -> TextEdit:
    with beneath.open_read(path) as opened:
        data = opened.file.read(MAX_EDIT_BYTES + 1)
        if len(data) > MAX_EDIT_BYTES:
            limit = f"{MAX_EDIT_BYTES // 1_000_000} MB"
            raise ToolError(f"{format_path(path)} is over {limit}: too big to edit")
        try:
            text = data.decode()
        except UnicodeDecodeError as exc:
            raise ToolError(f"{format_path(path)} is not UTF-8 text: it would be damaged") from exc
        change = replace_once(text, old, new, name=format_path(path))
        # While the file is open, no other can take its inode and be mistaken for it.
        beneath.write_atomic(path, change.text.encode(), seen=opened.stat)
        return change


def _read(beneath: RootedFs, path: str, offset: int, limit: int | None) -> ToolOutput | bytes:
    """Return the content for the model; of a PDF its bytes, which are parsed elsewhere."""
    with beneath.open_read(path) as opened:
        head = opened.file.read(8192)
        opened.file.seek(0)
        if mime := sniff_image_mime(head):
            return _read_image(opened, mime, path)
        if sniff_mime(head[:HEAD_BYTES]) == PDF:
            return opened.file.read(MAX_DOCUMENT_BYTES + 1)
        if kind := _binary_kind(head, path):
            raise ToolError(
                f"{format_path(path)} is a binary file ({kind}, {opened.stat.st_size} bytes), "
                "not text",
                fix="text, images and PDF files can be read; ask for its text, or convert it",
            )
        if not head:
            return ToolOutput((Text("(empty file)"),))
        return ToolOutput((Text(_read_lines(opened.file, offset, limit)),))


def _binary_kind(head: bytes, path: str) -> str:
    """Return the type of a file that is not text; "" for text."""
    mime = sniff_mime(head[:HEAD_BYTES])
    if b"\0" not in head:
        try:
            codecs.getincrementaldecoder("utf-8")().decode(head)
        except UnicodeDecodeError:
            controls = len(head) - len(head.translate(None, _CONTROLS))
            if not mime and controls <= len(head) * _MAX_CONTROL_SHARE:
                return ""  # text in another encoding is shown as far as it can be
        else:
            return ""
    if mime == "application/zip":
        mime = _ARCHIVES.get(path.lower().rpartition(".")[2], mime)
    return mime or "of an unknown type"


def _read_image(opened: OpenFile, mime: str, path: str) -> ToolOutput:
    data = opened.file.read(MAX_IMAGE_BYTES + 1)
    if len(data) > MAX_IMAGE_BYTES:
        size = opened.stat.st_size
        raise ToolError(
            f"{format_path(path)} is an image of {size} bytes; the limit is {MAX_IMAGE_BYTES}",
            fix="make it smaller first",
        )
    note = Text(f"{format_path(path)} ({mime}, {len(data)} bytes)")
    return ToolOutput((note, Image(base64.b64encode(data).decode(), mime)))


def read_image(beneath: RootedFs, path: str) -> Image | None:
    """The image at a path; None for a file that is none. ToolError when it cannot be had."""
    with beneath.open_read(path) as opened:
        mime = sniff_image_mime(opened.file.read(HEAD_BYTES))
        opened.file.seek(0)
        shown_parts = _read_image(opened, mime, path).content if mime else ()
    return next((part for part in shown_parts if isinstance(part, Image)), None)


def _read_lines(file: BinaryIO, offset: int, limit: int | None) -> str:
    window = read_window(file, offset, min(limit or MAX_LINES, MAX_LINES), MAX_BYTES)
    text = window.data.decode("utf-8-sig" if offset == 1 else "utf-8", "replace")
    notes = []
    if window.cut:
        text = text.rstrip("\ufffd")  # a character may have been cut in two
        notes.append(f"[Line {offset} is cut: it is longer than {MAX_BYTES // 1000} KB.]")
    if text.count("\ufffd") > window.data.count("\ufffd".encode()):
        notes.append("[Some bytes are not UTF-8 and are shown as \ufffd.]")
    if window.more:
        count = f"{window.more}{'' if window.counted else '+'}"
        following = offset + window.lines
        notes.append(f"[{count} more lines in file. Use offset={following} to continue.]")
    body = text.replace("\r\n", "\n").removesuffix("\n")
    return body + "".join(f"\n\n{note}" for note in notes)
