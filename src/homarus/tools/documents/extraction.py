"""Extract the text of a document in a short-lived process, so that none is parsed in the gateway.

A PDF or a web page is written by strangers, and its parser may loop, crash or take all memory. The
worker process has limits of memory, processor time and wall time, nothing of our environment, and
ends with the gateway. What goes wrong there is one ToolError here. The parsers are never imported
in this process.
"""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final, Literal, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

from pydantic import Base64Bytes, BaseModel, ConfigDict, ValidationError

from homarus.core.errors import ToolError
from homarus.core.message import Json
from homarus.core.text import one_line

DEFAULT_MAX_CHARS: Final = 200_000
MAX_DOCUMENT_BYTES: Final = 50_000_000
MAX_WORKERS: Final = 2  # at a time; further documents wait
MEMORY_BYTES: Final = 768 << 20
CPU_S: Final = 20
PDF_WORK_S: Final = 12.0  # of processor time, then no further page is begun
WALL_S: Final = 60
_MAX_RESULT_BYTES: Final = 24_000_000
_CHUNK_BYTES: Final = 262_144
_LENGTH_BYTES: Final = 4
_OTHER_WAY: Final = "ask for it in another form, such as plain text"
_WORKER: Final = Path(__file__).with_name("worker.py")

DocumentKind: TypeAlias = Literal["pdf", "html"]
TextMode: TypeAlias = Literal["markdown", "text"]


class _Extracted(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ExtractedPage(_Extracted):
    """The readable part of a web page."""

    title: str
    text: str
    is_truncated: bool


class PdfPage(_Extracted):
    """One page of a PDF, counted from 1; `images` are media type and content.

    A page with text has no images. `problem` says why a page has neither.
    """

    number: int
    text: str
    images: tuple[tuple[str, Base64Bytes], ...] = ()
    problem: str = ""


class ExtractedPdf(_Extracted):
    """The pages of a PDF that were asked for, up to the first that exceeds a limit."""

    title: str
    page_count: int
    pages: tuple[PdfPage, ...]
    is_truncated: bool


class _Problem(BaseModel):
    model_config = ConfigDict(extra="ignore")

    problem: str = ""
    reason: str = ""


_E = TypeVar("_E", bound=_Extracted)
_slots: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()


async def extract_html(
    content: bytes,
    *,
    url: str = "",
    charset: str = "",
    mode: TextMode = "markdown",
    max_chars: int = DEFAULT_MAX_CHARS,
    is_whole: bool = False,
    name: str = "",
) -> ExtractedPage:
    """Return the readable part of a web page, with links, tables and headings as Markdown.

    `url` is what relative links are resolved with, `charset` that of the response's header. A page
    without a readable part gives its plain text, as every page does with `is_whole`. Raises
    ToolError, which calls the page `name`.
    """
    options: dict[str, Json] = {
        "url": url,
        "charset": charset,
        "mode": mode,
        "max_chars": max_chars,
        "is_whole": is_whole,
    }
    data = await _run_worker("html", content, options, name or "the page")
    return _decode(ExtractedPage, data, name or "the page")


async def extract_pdf(
    content: bytes,
    *,
    pages: tuple[int, int] | None = None,
    max_chars: int = DEFAULT_MAX_CHARS,
    with_images: bool = False,
    name: str = "",
) -> ExtractedPdf:
    """Return the text of a PDF, page by page; `pages` are the first and the last, from 1.

    `with_images`: a page without text, such as a scanned one, gives its pictures. Raises ToolError,
    which calls the document `name`, for one that is damaged or needs a password.
    """
    first, last = pages or (1, 0)
    options: dict[str, Json] = {
        "first": max(first, 1),
        "last": last,
        "max_chars": max_chars,
        "with_images": with_images,
        "work_s": PDF_WORK_S,
    }
    data = await _run_worker("pdf", content, options, name or "the PDF")
    return _decode(ExtractedPdf, data, name or "the PDF")


async def _run_worker(
    kind: DocumentKind, content: bytes, options: dict[str, Json], name: str
) -> bytes:
    """Return what the worker writes. However this ends, the worker has ended too."""
    if len(content) > MAX_DOCUMENT_BYTES:
        limit = f"{MAX_DOCUMENT_BYTES // 1_000_000} MB"
        raise ToolError(f"{name} has more than {limit}", fix="split it, or ask for a smaller one")
    slots = _slots.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(MAX_WORKERS))
    async with slots:
        worker = _Worker(name)
        try:
            async with asyncio.timeout(WALL_S):
                return await worker.exchange(_encode_header(kind, options), content)
        except TimeoutError:
            reason = f"parsing it took longer than {WALL_S} s"
            raise ToolError(f"{name} cannot be read: {reason}", fix=_OTHER_WAY) from None
        finally:
            await worker.end()


def _encode_header(kind: DocumentKind, options: dict[str, Json]) -> bytes:
    """Return the length of the header and the header as the worker reads it."""
    # Not the current folder, which `python -m` adds: a workspace may hold modules of its own.
    folders: list[Json] = [
        each for each in sys.path if Path(each).is_absolute() and Path(each) != Path.cwd()
    ]
    header: dict[str, Json] = {
        "kind": kind,
        "options": options,
        "path": folders,
        "parent": os.getpid(),
        "limits": {"memory_bytes": MEMORY_BYTES, "cpu_s": CPU_S, "wall_s": WALL_S + 5},
    }
    data = json.dumps(header).encode("ascii")
    return len(data).to_bytes(_LENGTH_BYTES, "big") + data


class _Worker:
    """A worker process, and our end of the socket that is its input and its output."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._socket, theirs = socket.socketpair()
        try:
            with theirs:
                self._process = subprocess.Popen(  # noqa: S603 - our own program
                    [sys.executable, "-I", "-S", "-B", "-X", "utf8", str(_WORKER)],
                    stdin=theirs.fileno(),
                    stdout=theirs.fileno(),
                    stderr=subprocess.DEVNULL,
                    env={},
                    cwd="/",
                    start_new_session=True,
                )
        except OSError as exc:
            self._socket.close()
            raise ToolError(f"{name} cannot be read: no process could be started: {exc}") from exc
        self._socket.settimeout(0.0)

    async def exchange(self, header: bytes, content: bytes) -> bytes:
        """Send a request and return the result. Raises ToolError if the worker ends without one."""
        loop, parts, size = asyncio.get_running_loop(), list[bytes](), 0
        with suppress(ConnectionError):  # a worker that ends early says why by its status
            await loop.sock_sendall(self._socket, header)
            await loop.sock_sendall(self._socket, content)
            self._socket.shutdown(socket.SHUT_WR)
        with suppress(ConnectionError):
            while part := await loop.sock_recv(self._socket, _CHUNK_BYTES):
                parts.append(part)
                size += len(part)
                if size > _MAX_RESULT_BYTES:
                    raise ToolError(f"{self._name} cannot be read: its text is too long")
        status = await asyncio.to_thread(self._process.wait)
        if status != 0 or not parts:
            raise ToolError(f"{self._name} cannot be read: {_explain(status)}", fix=_OTHER_WAY)
        return b"".join(parts)

    async def end(self) -> None:
        """Kill the process if it still runs, and whatever is in its group."""
        self._socket.close()
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await asyncio.to_thread(self._process.wait)


def _explain(status: int) -> str:
    """Return why a worker wrote no result, by its exit status."""
    if status in {-signal.SIGXCPU, -signal.SIGKILL, -signal.SIGALRM}:
        return f"parsing it took more than {CPU_S} s of processor time"
    if status < 0:
        return f"the parser crashed on it (signal {-status})"
    return "it is damaged, or not what its type says"


def _decode(result: type[_E], data: bytes, name: str) -> _E:
    """Return the result that a worker wrote. Raises ToolError for the problem that it names."""
    try:
        found = _Problem.model_validate_json(data)
        if not found.problem:
            return result.model_validate_json(data)
    except ValidationError as exc:
        raise ToolError(f"{name} cannot be read: its parser failed", fix=_OTHER_WAY) from exc
    match found.problem:
        case "encrypted":
            raise ToolError(
                f"{name} is encrypted: it opens only with a password",
                fix="ask for a copy without a password",
            )
        case "memory":
            reason = f"parsing it needs more than {MEMORY_BYTES >> 20} MB of memory"
        case _:
            reason = f"it is damaged: {one_line(found.reason, 200)}"
    raise ToolError(f"{name} cannot be read: {reason}", fix=_OTHER_WAY)
