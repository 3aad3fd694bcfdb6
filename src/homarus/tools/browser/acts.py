"""What `act` does with a page: click, type, press, hover, drag, select, fill and so on.

An element is named by its ref in the last snapshot of the tab.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from math import isfinite
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast

from homarus.core.errors import PageError, ToolDeniedError, ToolError
from homarus.core.message import Json
from homarus.core.text import one_line
from homarus.tools.browser.arguments import ActionArguments
from homarus.tools.browser.playwright_client import page_errors

if TYPE_CHECKING:
    from playwright.async_api import Locator, Page

    from homarus.tools.browser.tabs import Tab

_REF: Final = re.compile(r"(?:f\d+)?e\d+")
MAX_RESULT_CHARS: Final = 10_000
MAX_WAIT_MS: Final = 30_000
_MODIFIERS: Final = frozenset({"Alt", "Control", "ControlOrMeta", "Meta", "Shift"})
_CHECKED_TYPES: Final = frozenset({"checkbox", "radio"})
Act: TypeAlias = Callable[["Page", ActionArguments, int], Awaitable[Json]]


async def run_act(tab: "Tab", request: ActionArguments, *, can_evaluate: bool) -> Json:
    """Do what a request says and return its result, None for most. Raises ToolError."""
    kind = request.required("kind", "act")
    if kind not in ACTS:
        raise ToolError(f"act has no kind {one_line(kind, 40)}", fix=f"use {', '.join(ACTS)}")
    if kind == "evaluate" and not can_evaluate:
        raise ToolDeniedError(
            "scripts may not be run in pages", fix="the owner can set browser.evaluateEnabled"
        )
    timeout_ms = request.timeout_ms()
    with page_errors(kind):
        # The library's timeouts do not cover all of it.
        async with asyncio.timeout((timeout_ms + MAX_WAIT_MS) / 1000):
            return await ACTS[kind](tab.page, request, timeout_ms)


async def find_element(page: "Page", ref: str, *, selector: str = "") -> "Locator":
    """Return the element of a ref, or of a CSS selector. Raises PageError if there is none."""
    ref = ref.strip().removeprefix("@").removeprefix("ref=")
    if not ref and selector:
        return page.locator(selector).first
    if not _REF.fullmatch(ref):
        raise ToolError(f"{one_line(ref, 40) or '(empty)'} is no ref", fix="refs are like e12")
    found = page.locator(f"aria-ref={ref}")
    async with asyncio.timeout(5.0):
        count = await found.count()
    if not count:
        raise PageError(
            f"there is no element {ref} in the last snapshot of the tab", fix="take a new snapshot"
        )
    return found


async def _click(page: "Page", request: ActionArguments, timeout_ms: int) -> Json:
    element = await find_element(page, request.text("ref"))
    button = request.text("button") or "left"
    modifiers = request.texts("modifiers")
    if button not in ("left", "right", "middle") or not _MODIFIERS.issuperset(modifiers):
        raise ToolError("button is left, right or middle; modifiers are Alt, Control, Meta, Shift")
    await element.click(
        button=cast("Literal['left', 'right', 'middle']", button),
        modifiers=cast("Any", modifiers),
        click_count=2 if request.flag("doubleClick") else 1,
        timeout=timeout_ms,
    )
    return None


async def _type(page: "Page", request: ActionArguments, timeout_ms: int) -> Json:
    element = await find_element(page, request.text("ref"))
    if not request.has("text"):
        raise ToolError("type needs text")
    text = request.text("text")
    if request.flag("slowly"):
        await element.click(timeout=timeout_ms)
        await element.press_sequentially(text[:500], delay=50, timeout=MAX_WAIT_MS)
    else:
        await element.fill(text, timeout=timeout_ms)
    if request.flag("submit"):
        await element.press("Enter", timeout=timeout_ms)
    return None


async def _press(page: "Page", request: ActionArguments, timeout_ms: int) -> Json:
    key = request.required("key", "press")
    if request.text("ref"):
        await (await find_element(page, request.text("ref"))).press(key, timeout=timeout_ms)
    else:
        await page.keyboard.press(key)
    return None


async def _hover(page: "Page", request: ActionArguments, timeout_ms: int) -> Json:
    await (await find_element(page, request.text("ref"))).hover(timeout=timeout_ms)
    return None


async def _drag(page: "Page", request: ActionArguments, timeout_ms: int) -> Json:
    start = await find_element(page, request.required("startRef", "drag"))
    end = await find_element(page, request.required("endRef", "drag"))
    await start.drag_to(end, timeout=timeout_ms)
    return None


async def _select(page: "Page", request: ActionArguments, timeout_ms: int) -> Json:
    if not (values := request.texts("values")):
        raise ToolError("select needs values")
    element = await find_element(page, request.text("ref"))
    chosen = await element.select_option(values, timeout=timeout_ms)
    return list(chosen)


async def _fill(page: "Page", request: ActionArguments, timeout_ms: int) -> Json:
    if not (fields := request.objects("fields")):
        raise ToolError("fill needs fields", fix='[{"ref": "e3", "value": "text"}]')
    for each in fields:
        await _fill_field(page, each, timeout_ms)
    return None


async def _fill_field(page: "Page", field: Mapping[str, Any], timeout_ms: int) -> None:
    element = await find_element(page, str(field.get("ref") or ""))
    value = field.get("value", field.get("text", ""))
    if isinstance(value, bool) or field.get("type") in _CHECKED_TYPES:
        is_checked = value if isinstance(value, bool) else str(value).lower() in ("true", "on", "1")
        await element.set_checked(is_checked, timeout=timeout_ms)
    else:
        await element.fill(str(value), timeout=timeout_ms)


async def _resize(page: "Page", request: ActionArguments, timeout_ms: int) -> Json:
    width, height = request.number("width", 200, 4000), request.number("height", 200, 4000)
    if width is None or height is None:
        raise ToolError("resize needs width and height")
    await page.set_viewport_size({"width": width, "height": height})
    return None


async def _wait(page: "Page", request: ActionArguments, timeout_ms: int) -> Json:
    time_ms = request.number("timeMs", 0, MAX_WAIT_MS)
    if time_ms is None and not request.text("text") and not request.text("textGone"):
        raise ToolError("wait needs timeMs, text or textGone")
    if time_ms:
        await asyncio.sleep(time_ms / 1000)
    if text := request.text("text"):
        await page.get_by_text(text).first.wait_for(state="visible", timeout=timeout_ms)
    if gone := request.text("textGone"):
        await page.get_by_text(gone).first.wait_for(state="hidden", timeout=timeout_ms)
    return None


async def _evaluate(page: "Page", request: ActionArguments, timeout_ms: int) -> Json:
    script = request.required("fn", "evaluate")
    async with asyncio.timeout(timeout_ms / 1000):
        if ref := request.text("ref"):
            return _plain(await (await find_element(page, ref)).evaluate(script))
        return _plain(await page.evaluate(script))


def _plain(value: Any, depth: int = 0) -> Json:
    """Return a value of a page as JSON, cut where it is long or deep."""
    if value is None or isinstance(value, bool | int | str):
        return value[:MAX_RESULT_CHARS] if isinstance(value, str) else value
    if isinstance(value, float):
        return value if isfinite(value) else str(value)
    if depth > 6:
        return "…"
    if isinstance(value, Mapping):
        return {str(key)[:200]: _plain(each, depth + 1) for key, each in list(value.items())[:200]}
    if isinstance(value, list | tuple):
        return [_plain(each, depth + 1) for each in value[:200]]
    return str(value)[:MAX_RESULT_CHARS]


ACTS: Final[Mapping[str, Act]] = {
    "click": _click,
    "type": _type,
    "press": _press,
    "hover": _hover,
    "drag": _drag,
    "select": _select,
    "fill": _fill,
    "resize": _resize,
    "wait": _wait,
    "evaluate": _evaluate,
}
