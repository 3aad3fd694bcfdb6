"""Extract the text of a document in a short-lived process, so that none is parsed in the gateway.

A PDF or a web page is written by strangers, and its parser may loop, crash or take all memory. What
goes wrong in the worker process (core/worker_process.py) is one ToolError here. The parsers are
never imported in this process.
"""

import asyncio
import signal
from pathlib import Path
from typing import Final, Literal, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

from pydantic import Base64Bytes, BaseModel, ConfigDict, ValidationError

from homarus.core.errors import ToolError
from homarus.core.message import Json
from homarus.core.text import one_line
from homarus.core.worker_process import (
    WorkerCall,
    WorkerError,
    WorkerExitError,
    WorkerLimits,
    WorkerRaisedError,
    WorkerReplyError,
    WorkerResultTooLongError,
    WorkerTimeoutError,
    run_worker,
)

DEFAULT_MAX_CHARS: Final = 200_000
MAX_DOCUMENT_BYTES: Final = 50_000_000
MAX_WORKERS: Final = 2  # at a time; further documents wait
MEMORY_BYTES: Final = 768 << 20
CPU_S: Final = 20
PDF_WORK_S: Final = 12.0  # of processor time, then no further page is begun
WALL_S: Final = 60
_MAX_RESULT_BYTES: Final = 24_000_000
_OTHER_WAY: Final = "ask for it in another form, such as plain text"
_FOLDER: Final = Path(__file__).parent
_OVER_TIME: Final = {-signal.SIGXCPU, -signal.SIGKILL, -signal.SIGALRM}

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
    data = await _run_parser("html", content, options, name or "the page")
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
    data = await _run_parser("pdf", content, options, name or "the PDF")
    return _decode(ExtractedPdf, data, name or "the PDF")


async def _run_parser(
    kind: DocumentKind, content: bytes, options: dict[str, Json], name: str
) -> Json:
    """Return the result of the parser of a kind of document. Raises ToolError."""
    if len(content) > MAX_DOCUMENT_BYTES:
        limit = f"{MAX_DOCUMENT_BYTES // 1_000_000} MB"
        raise ToolError(f"{name} has more than {limit}", fix="split it, or ask for a smaller one")
    call = WorkerCall(_FOLDER / f"{kind}_document.py", f"extract_{kind}", options)
    limits = WorkerLimits(MEMORY_BYTES, CPU_S, WALL_S, _MAX_RESULT_BYTES)
    slots = _slots.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(MAX_WORKERS))
    try:
        async with slots:
            return await run_worker(call, content, limits)
    except WorkerError as exc:
        raise ToolError(f"{name} cannot be read: {_explain(exc)}", fix=_OTHER_WAY) from exc


def _explain(error: WorkerError) -> str:
    """Return why a parser gave no result."""
    match error:
        case WorkerTimeoutError():
            return f"parsing it took longer than {WALL_S} s"
        case WorkerExitError(status=status) if status in _OVER_TIME:
            return f"parsing it took more than {CPU_S} s of processor time"
        case WorkerExitError(status=status) if status < 0:
            return f"the parser crashed on it (signal {-status})"
        case WorkerRaisedError(kind="MemoryError"):
            return f"parsing it needs more than {MEMORY_BYTES >> 20} MB of memory"
        case WorkerRaisedError() | WorkerExitError():
            return "it is damaged, or not what its type says"
        case WorkerResultTooLongError():
            return "its text is too long"
        case WorkerReplyError():
            return "its parser failed"
        case _:
            return str(error)


def _decode(result: type[_E], data: Json, name: str) -> _E:
    """Return the result of a parser. Raises ToolError for the problem that it names."""
    try:
        found = _Problem.model_validate(data)
        if not found.problem:
            return result.model_validate(data)
    except ValidationError as exc:
        raise ToolError(f"{name} cannot be read: its parser failed", fix=_OTHER_WAY) from exc
    if found.problem == "encrypted":
        raise ToolError(
            f"{name} is encrypted: it opens only with a password",
            fix="ask for a copy without a password",
        )
    reason = f"it is damaged: {one_line(found.reason, 200)}"
    raise ToolError(f"{name} cannot be read: {reason}", fix=_OTHER_WAY)
