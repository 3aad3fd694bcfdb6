"""The tabs of one browser: their ids, dialogs, console lines and downloads.

A page cannot hang or flood what is here: dialogs are answered after a time, the numbers of tabs,
dialogs, console lines and downloads have limits, and a page that leaves the web is sent back.
"""

import asyncio
import re
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from homarus.core.errors import HomarusError, ToolError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json
from homarus.core.text import one_line
from homarus.tools.browser.playwright_client import page_errors

if TYPE_CHECKING:
    from playwright.async_api import (
        BrowserContext,
        ConsoleMessage,
        Dialog,
        Download,
        Frame,
        Page,
    )

MAX_TABS: Final = 12
MAX_CONSOLE: Final = 200
MAX_DOWNLOADS: Final = 10  # that are not reported yet
MAX_DOWNLOAD_BYTES: Final = 50_000_000
DOWNLOAD_S: Final = 60.0
DIALOG_S: Final = 5.0  # until a dialog is dismissed that no one answers
PATIENT_DIALOGS: Final = 3  # of a tab; further ones are dismissed at once
_POLL_S: Final = 0.25
_CLOSE_S: Final = 5.0
_LINE_CHARS: Final = 500
# Where a page may be: the web, and what a page makes itself.
_PAGE_URL: Final = re.compile(
    r"(?:https?|blob|data):|about:(?:blank|srcdoc)\b|chrome-error:|$", re.I
)
_NAME_CHARS: Final = re.compile(r"[^\w.()+-]+")

# Starts a task of the program; None when it is ending.
Spawn: TypeAlias = Callable[[Coroutine[Any, Any, None], str], "asyncio.Task[None] | None"]


@dataclass(frozen=True, slots=True)
class DialogAnswer:
    """What the next dialog of a tab is answered with, and until when."""

    accept: bool
    text: str
    until_s: float


@dataclass(frozen=True, slots=True)
class DownloadedFile:
    """A complete download, not reported yet; `problem` says why there is no file."""

    name: str
    url: str
    path: Path | None = None
    size: int = 0
    problem: str = ""


class Tab:
    """One page with what it has reported."""

    def __init__(self, tab_id: str, page: "Page", table: "TabTable") -> None:
        self.id, self.page, self._table = tab_id, page, table
        self.console: deque[dict[str, Json]] = deque(maxlen=MAX_CONSOLE)
        self.dialogs: deque[dict[str, Json]] = deque(maxlen=20)  # not reported yet
        self.dialog_count = 0
        self.is_unused = False
        self._answer: DialogAnswer | None = None
        self._open_dialog: asyncio.Future[DialogAnswer] | None = None
        page.on("console", self._on_console)
        page.on("pageerror", self._on_page_error)
        page.on("dialog", self._on_dialog)
        page.on("download", table.on_download)
        page.on("framenavigated", self._on_navigated)
        page.on("close", lambda _page: table.remove(self))

    @property
    def url(self) -> str:
        return self.page.url

    async def describe(self) -> dict[str, Json]:
        """Return the id, title and address."""
        title = ""
        with suppress(HomarusError, TimeoutError), page_errors("title"):
            async with asyncio.timeout(2.0):  # a page that hangs has none
                title = await self.page.title()
        found: dict[str, Json] = {"targetId": self.id, "title": one_line(title, 200)}
        return {**found, "url": self.url[:2000], "type": "page"}

    def answer_dialog(self, answer: DialogAnswer) -> bool:
        """Answer the open dialog, else the next one; return whether one was open."""
        if self._open_dialog and not self._open_dialog.done():
            self._open_dialog.set_result(answer)
            return True
        self._answer = answer
        return False

    def take_dialogs(self) -> list[Json]:
        """Return the dialogs that were shown since the last call."""
        found: list[Json] = list(self.dialogs)
        self.dialogs.clear()
        return found

    def _on_console(self, message: "ConsoleMessage") -> None:
        place = message.location
        line: dict[str, Json] = {"type": message.type, "text": one_line(message.text, _LINE_CHARS)}
        self.console.append({**line, "url": str(place.get("url", ""))[:300]})

    def _on_page_error(self, error: Any) -> None:
        self.console.append({"type": "error", "text": one_line(str(error), _LINE_CHARS)})

    def _on_navigated(self, frame: "Frame") -> None:
        if frame == self.page.main_frame and not _PAGE_URL.match(frame.url):
            self._table.spawn(self._leave(frame.url), "browser page sent back")

    async def _leave(self, url: str) -> None:
        self._table.notes.append(f"the page {one_line(url, 120)} is not on the web and was closed")
        with suppress(HomarusError), page_errors("leave"):
            await self.page.goto("about:blank")

    def _on_dialog(self, dialog: "Dialog") -> None:
        self._table.spawn(self._handle_dialog(dialog), "browser dialog")

    async def _handle_dialog(self, dialog: "Dialog") -> None:
        self.dialog_count += 1
        answer, how = await self._find_answer(dialog)
        with suppress(HomarusError), page_errors("dialog"):
            if answer and answer.accept:
                await dialog.accept(answer.text)
            elif dialog.type == "beforeunload":
                await dialog.accept()
            else:
                await dialog.dismiss()
        shown: dict[str, Json] = {"type": dialog.type, "message": one_line(dialog.message, 300)}
        self.dialogs.append({**shown, "handled": how})

    async def _find_answer(self, dialog: "Dialog") -> tuple[DialogAnswer | None, str]:
        now_s = asyncio.get_running_loop().time()
        answer, self._answer = self._answer, None
        if answer and answer.until_s >= now_s:
            return answer, "accepted" if answer.accept else "dismissed"
        if dialog.type == "beforeunload":
            return None, "accepted"
        if self.dialog_count > PATIENT_DIALOGS:
            return None, "dismissed"
        self._open_dialog = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(DIALOG_S):
                answer = await self._open_dialog
                return answer, "accepted" if answer.accept else "dismissed"
        except TimeoutError:
            return None, f"dismissed after {DIALOG_S:g} s"
        finally:
            self._open_dialog = None


class TabTable:
    """The tabs of one browser by id; the last one that was used is the current one."""

    def __init__(self, context: "BrowserContext", downloads: Path, spawn: Spawn) -> None:
        self._context, self._downloads, self.spawn = context, downloads, spawn
        self._tabs: dict[str, Tab] = {}
        self._next_id = 1
        self._current = ""
        self._pending = 0
        self._none_pending = asyncio.Event()
        self._none_pending.set()
        self._finished: list[DownloadedFile] = []
        self._opened: list[str] = []
        self.notes: deque[str] = deque(maxlen=10)
        for page in context.pages:
            self._add(page).is_unused = page.url == "about:blank"  # the one of the start
        context.on("page", self._on_page)

    def all(self) -> list[Tab]:
        """Return the open tabs in the order in which they were opened."""
        return [tab for tab in self._tabs.values() if not tab.is_unused]

    async def open(self) -> Tab:
        """Open an empty tab, which becomes the current one."""
        if len(self._tabs) >= MAX_TABS:
            raise ToolError(f"{MAX_TABS} tabs are open", fix="close one first")
        tab = next((each for each in self._tabs.values() if each.is_unused), None)
        tab = tab or await self._open_blank()
        tab.is_unused = False
        self._current = tab.id
        return tab

    async def _open_blank(self) -> Tab:
        with page_errors("open a tab"):
            page = await self._context.new_page()
        tab = next((each for each in self._tabs.values() if each.page == page), None)
        tab = tab or self._add(page)
        self._opened = [each for each in self._opened if each != tab.id]
        tab.is_unused = True
        return tab

    async def get(self, tab_id: str = "") -> Tab:
        """Return a tab, without an id the current one. Raises ToolError for an unknown id."""
        if tab_id:
            if found := self._tabs.get(tab_id):
                found.is_unused = False
                self._current = tab_id
                return found
            known = ", ".join(tab.id for tab in self.all()) or "none"
            raise ToolError(f"there is no tab {one_line(tab_id, 40)}", fix=f"open are: {known}")
        if not (opened := self.all()):
            return await self.open()
        if self._current not in self._tabs or self._tabs[self._current].is_unused:
            self._current = opened[-1].id
        return self._tabs[self._current]

    def remove(self, tab: Tab) -> None:
        """Forget a tab that was closed."""
        self._tabs.pop(tab.id, None)

    async def close(self, tab: Tab) -> None:
        """Close a tab; also one whose page hangs."""
        if len(self._tabs) == 1:  # the browser would end with its last tab
            await self._open_blank()
        self.remove(tab)
        await self._close_page(tab.page)

    def take_opened(self) -> list[str]:
        """Return the ids of tabs that pages opened since the last call."""
        found, self._opened = [each for each in self._opened if each in self._tabs], []
        return found

    def take_downloads(self) -> list[DownloadedFile]:
        """Return the downloads that were completed since the last call."""
        found, self._finished = self._finished, []
        return found

    async def wait_for_download(self, timeout_s: float) -> None:
        """Wait a little for downloads that have started, so that they are in this result."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._none_pending.wait()

    def _add(self, page: "Page") -> Tab:
        tab = Tab(f"t{self._next_id}", page, self)
        self._next_id += 1
        self._tabs[tab.id] = tab
        return tab

    def _on_page(self, page: "Page") -> None:
        if any(tab.page == page for tab in self._tabs.values()):
            return
        if len(self._tabs) >= MAX_TABS:
            self.notes.append(f"a page opened more than {MAX_TABS} tabs; the others were closed")
            self.spawn(self._close_page(page), "browser popup closed")
            return
        self._opened.append(self._add(page).id)

    async def _close_page(self, page: "Page") -> None:
        with suppress(HomarusError), page_errors("close"):
            async with asyncio.timeout(_CLOSE_S):
                await page.close()

    def on_download(self, download: "Download") -> None:
        """Store a download that a page starts, or cancel it when there are too many."""
        if self._pending + len(self._finished) >= MAX_DOWNLOADS:
            self.notes.append(f"more than {MAX_DOWNLOADS} downloads were started; others cancelled")
            self.spawn(self._cancel(download), "browser download")
            return
        self._pending += 1
        self._none_pending.clear()
        self.spawn(self._finish(download), "browser download")

    async def _cancel(self, download: "Download") -> None:
        with suppress(HomarusError), page_errors("download"):
            await download.cancel()

    async def _finish(self, download: "Download") -> None:
        name, url = safe_file_name(download.suggested_filename), download.url[:500]
        try:
            path = await self._wait_complete(download)
            file = DownloadedFile(name, url, path, path.stat().st_size)
        except (HomarusError, OSError) as exc:
            file = DownloadedFile(name, url, problem=str(exc))
        self._finished.append(file)
        self._pending -= 1
        if not self._pending:
            self._none_pending.set()

    async def _wait_complete(self, download: "Download") -> Path:
        """Return the path of the file; one that is too large or too slow is cancelled."""
        problem = ""
        deadline_s = asyncio.get_running_loop().time() + DOWNLOAD_S
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(_download_path(download))
            while not waiting.done():
                await asyncio.wait([waiting], timeout=_POLL_S)
                if waiting.done():
                    break
                if await asyncio.to_thread(_folder_bytes, self._downloads) > MAX_DOWNLOAD_BYTES:
                    problem = f"it is larger than {MAX_DOWNLOAD_BYTES // 1_000_000} MB"
                elif asyncio.get_running_loop().time() > deadline_s:
                    problem = f"it was not complete after {DOWNLOAD_S:g} s"
                if problem:
                    await self._cancel(download)
                    waiting.cancel()
                    break
        if problem:
            raise ToolError(problem)
        path, failure = waiting.result()
        if path is None:
            raise ToolError(failure)
        if path.stat().st_size > MAX_DOWNLOAD_BYTES:
            raise ToolError(f"it is larger than {MAX_DOWNLOAD_BYTES // 1_000_000} MB")
        return path


async def _download_path(download: "Download") -> tuple[Path | None, str]:
    try:
        with page_errors("download"):
            return await download.path(), ""
    except HomarusError as exc:
        return None, exc.message


def _folder_bytes(folder: Path) -> int:
    total = 0
    with suppress(OSError):
        for each in folder.rglob("*"):
            with suppress(OSError):
                total += each.stat().st_size
    return total


def safe_file_name(text: str) -> str:
    """Return the name of a file that a server chose, without folders and special characters."""
    name = PurePosixPath(text.replace("\\", "/")).name
    name = _NAME_CHARS.sub("_", name).lstrip(".-")
    stem, dot, suffix = name.rpartition(".")
    if dot and len(suffix) <= 12:
        return f"{stem[:80] or 'file'}.{suffix}"
    return name[:80] or "file"
