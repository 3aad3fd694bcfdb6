"""One running browser: the proxy, the driver and the program, started and ended together."""

import asyncio
import logging
import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from homarus.core.errors import BrowserGoneError, HomarusError, ToolError
from homarus.core.private_files import make_private_dir
from homarus.net.guard import NetworkPolicy, Resolve
from homarus.net.guard_proxy import GuardProxy
from homarus.tools.browser.playwright_client import launch_browser, open_playwright, page_errors
from homarus.tools.browser.settings import BrowserSettings, check_user, find_executable
from homarus.tools.browser.tabs import Spawn, TabTable

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext

IDLE_S: Final = 600.0  # without a call, then the browser is closed
CLOSE_S: Final = 10.0

log = logging.getLogger(__name__)


class BrowserProcess:
    """A browser on one profile; `run` is the task that owns everything of it.

    It ends when `stop` is called, when the browser ends, and after a time without use.
    """

    def __init__(
        self,
        settings: BrowserSettings,
        get_policy: Callable[[], NetworkPolicy],
        spawn: Spawn,
        *,
        resolve: Resolve | None = None,
        idle_s: float = IDLE_S,
    ) -> None:
        self.settings, self._spawn, self._idle_s = settings, spawn, idle_s
        self.proxy = GuardProxy(get_policy, resolve=resolve)
        loop = asyncio.get_running_loop()
        self._started: asyncio.Future[TabTable] = loop.create_future()
        self._ended, self._stopping = asyncio.Event(), asyncio.Event()
        self._used_at_s = loop.time()
        self._users = 0
        self.context: BrowserContext | None = None

    @property
    def is_running(self) -> bool:
        """Whether it has started and not ended."""
        return self.is_usable and self._started.done()

    @property
    def is_usable(self) -> bool:
        """Whether it runs or starts."""
        return not self._ended.is_set() and not self._stopping.is_set()

    @property
    def is_alive(self) -> bool:
        """Whether the program answers, as far as the driver knows."""
        browser = self.context.browser if self.context else None
        return self.is_usable and bool(browser and browser.is_connected())

    async def tabs(self) -> TabTable:
        """Return the tabs, when the browser has started. Raises ToolError if it cannot."""
        return await asyncio.shield(self._started)

    @contextmanager
    def use(self) -> Iterator[None]:
        """Keep the browser while the block lasts; then the time starts after which it is closed."""
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            self._used_at_s = asyncio.get_running_loop().time()

    async def stop(self) -> None:
        """End the browser and wait for it."""
        self.request_stop()
        await self._ended.wait()

    def request_stop(self) -> None:
        """End the browser soon."""
        self._stopping.set()

    async def run(self) -> None:
        """Start the browser, keep it while it is used, and end all of it."""
        try:
            await self._run()
        except HomarusError as exc:
            self._fail_start(exc)
        finally:
            self._fail_start(BrowserGoneError("the browser was stopped before it had started"))
            self._ended.set()

    def _fail_start(self, error: HomarusError) -> None:
        if not self._started.done():
            self._started.set_exception(error)
            self._started.exception()  # those who wait for the start report it

    async def _run(self) -> None:
        settings = self.settings
        check_user(settings)
        await asyncio.to_thread(find_executable, settings)
        await asyncio.to_thread(_prepare_folders, settings)
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen(128)
            port = listener.getsockname()[1]
            async with asyncio.TaskGroup() as group:
                serving = group.create_task(self.proxy.serve(listener), name="browser proxy")
                try:
                    async with open_playwright() as driver:
                        context = await launch_browser(driver, settings, port)
                        await self._keep(context)
                except HomarusError as exc:  # a task group would wrap it
                    self._fail_start(exc)
                finally:
                    serving.cancel()

    async def _keep(self, context: "BrowserContext") -> None:
        self.context = context
        context.on("close", lambda _context: self.request_stop())
        context.set_default_timeout(30_000)
        try:
            self._used_at_s = asyncio.get_running_loop().time()
            self._started.set_result(TabTable(context, self.settings.downloads, self._spawn))
            log.info("browser %s of %s started", self.settings.profile, self.settings.agent_id)
            await self._wait_until_unused()
        finally:
            self._stopping.set()
            with suppress(HomarusError, TimeoutError), page_errors("close"):
                async with asyncio.timeout(CLOSE_S):
                    await context.close()
            log.info("browser %s of %s ended", self.settings.profile, self.settings.agent_id)

    async def _wait_until_unused(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            idle_s = 0.0 if self._users else loop.time() - self._used_at_s
            if (left_s := self._idle_s - idle_s) <= 0:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await self._stopping.wait()
                    return


def _prepare_folders(settings: BrowserSettings) -> None:
    try:
        shutil.rmtree(settings.downloads, ignore_errors=True)  # of a process that was killed
        for folder in (settings.user_data, settings.downloads, settings.files):
            make_private_dir(folder)
            folder.chmod(0o700)
    except OSError as exc:
        raise ToolError(
            f"the folder of the browser's profile cannot be made: {exc.strerror or exc}",
            fix=f"check {settings.folder}",
        ) from exc
