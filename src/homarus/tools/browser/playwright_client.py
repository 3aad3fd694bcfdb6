"""The adapter of Playwright's Python client: its import, its start, and its errors as ours.

No other module imports the library, except for types. Its driver is a Node process that ends when
the pipe to this process closes, also after kill -9; the browser ends with the driver.
"""

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, Final

from homarus.core.errors import BrowserGoneError, PageError, ToolError
from homarus.core.text import one_line
from homarus.tools.browser.settings import (
    INSTALL_FIX,
    BrowserSettings,
    browser_env,
    find_executable,
    launch_args,
)

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, Playwright

PIP_COMMAND: Final = "pip install 'homarus[browser]'"
START_MS: Final = 30_000
_UNWANTED_ARGS: Final = ("--disable-ipc-flooding-protection", "--enable-unsafe-swiftshader")
_COLOUR: Final = re.compile("\x1b\\[[0-9;]*m")
_CALL: Final = re.compile(r"^\w+\.\w+: ")
_GONE: Final = ("has been closed", "Connection closed", "Target crashed", "Browser closed")


@asynccontextmanager
async def open_playwright() -> AsyncIterator["Playwright"]:
    """Start the driver; it ends with the block. Raises ToolError without the library."""
    try:
        from playwright.async_api import Error, async_playwright
    except ImportError as exc:
        raise ToolError("the browser needs the library playwright", fix=PIP_COMMAND) from exc
    driver = await async_playwright().start()
    try:
        yield driver
    finally:
        with suppress(Error, OSError):  # the driver may have been killed
            await driver.stop()


async def launch_browser(
    driver: "Playwright", settings: BrowserSettings, proxy_port: int
) -> "BrowserContext":
    """Start the browser on its profile. Raises ToolError with what to change."""
    from playwright.async_api import Error

    try:
        return await driver.chromium.launch_persistent_context(
            settings.user_data,
            executable_path=find_executable(settings),
            headless=settings.headless,
            chromium_sandbox=not settings.no_sandbox,
            args=launch_args(proxy_port),
            # For tests of pages the library turns off what protects against pages.
            ignore_default_args=list(_UNWANTED_ARGS),
            env=browser_env(settings),
            accept_downloads=True,
            downloads_path=settings.downloads,
            timeout=START_MS,
            handle_sigint=False,
            handle_sigterm=False,
            handle_sighup=False,
        )
    except Error as exc:
        raise _start_error(settings, exc.message) from exc


def _start_error(settings: BrowserSettings, message: str) -> ToolError:
    text = _COLOUR.sub("", message)
    if "No usable sandbox" in text or "SUID sandbox" in text:
        return ToolError(
            "Chromium cannot make its sandbox on this machine",
            fix="allow user namespaces, or set browser.noSandbox: true",
        )
    if "ProcessSingleton" in text or "profile appears to be in use" in text:
        return ToolError(
            f"the profile {settings.profile} is used by another browser",
            fix="another program of this agent may have it open; stop it, or use another profile",
        )
    if "Executable doesn't exist" in text:
        return ToolError("there is no Chromium on this machine", fix=INSTALL_FIX)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return ToolError(
        f"Chromium did not start: {one_line(' '.join(lines[:6]), 400)}", fix=INSTALL_FIX
    )


@contextmanager
def page_errors(doing: str) -> Iterator[None]:
    """Raise errors of the library as PageError or BrowserGoneError; `doing` says what failed."""
    from playwright.async_api import Error
    from playwright.async_api import TimeoutError as PageTimeoutError

    try:
        yield
    except (PageTimeoutError, TimeoutError) as exc:
        raise PageError(
            f"{doing}: the page was not ready in time",
            fix="take a new snapshot; a page that hangs can be closed",
        ) from exc
    except Error as exc:
        text = _CALL.sub("", _COLOUR.sub("", exc.message)).partition("\nCall log:")[0]
        if any(part in text for part in _GONE):
            raise BrowserGoneError(
                f"{doing}: the tab or the browser was closed", fix="`tabs` shows what is open"
            ) from exc
        raise PageError(f"{doing}: {one_line(text, 500)}") from exc
