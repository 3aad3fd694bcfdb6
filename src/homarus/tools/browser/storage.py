"""Cookies and storage of a profile, for clients of the gateway; the model's tool has none of it."""

import asyncio
from collections.abc import Mapping
from typing import Any, Final, cast

from homarus.core.errors import ToolError
from homarus.core.message import Json
from homarus.tools.browser.operations import ActionResult, Operation, TabAction
from homarus.tools.browser.playwright_client import page_errors

_TIMEOUT_S: Final = 5.0
_AREAS: Final = {"local": "localStorage", "session": "sessionStorage"}


async def _cookies(action: TabAction) -> ActionResult:
    tab = await action.tabs.get(action.args.text("targetId"))
    with page_errors("cookies"):
        found = await tab.page.context.cookies()
    listed: list[Json] = [cast("dict[str, Json]", dict(each)) for each in found]
    return ActionResult({"ok": True, "targetId": tab.id, "cookies": listed}, tab.url)


async def _set_cookie(action: TabAction) -> ActionResult:
    tab = await action.tabs.get(action.args.text("targetId"))
    cookie = action.args.nested("cookie")
    values: dict[str, Any] = {
        "name": cookie.required("name", "cookie"),
        "value": cookie.text("value"),
    }
    for key in ("url", "domain", "path", "sameSite"):
        if text := cookie.text(key):
            values[key] = text
    for key in ("httpOnly", "secure"):
        if (flag := cookie.choice(key)) is not None:
            values[key] = flag
    if expires := cookie.number("expires", 0, 1 << 40):
        values["expires"] = expires
    if "url" not in values and "domain" not in values:
        values["url"] = tab.url
    if "domain" in values:
        values.setdefault("path", "/")
    with page_errors("cookies"):
        await tab.page.context.add_cookies([cast("Any", values)])
    return ActionResult({"ok": True, "targetId": tab.id})


async def _clear_cookies(action: TabAction) -> ActionResult:
    tab = await action.tabs.get(action.args.text("targetId"))
    with page_errors("cookies"):
        await tab.page.context.clear_cookies()
    return ActionResult({"ok": True, "targetId": tab.id})


async def _run_on_area(action: TabAction, script: str, given: Any = None) -> ActionResult:
    """Run one of our own scripts on the storage of the current page."""
    if (area := action.args.text("kind")) not in _AREAS:
        raise ToolError("the storage is local or session")
    tab = await action.tabs.get(action.args.text("targetId"))
    with page_errors("storage"):
        async with asyncio.timeout(_TIMEOUT_S):
            found = await tab.page.evaluate(script, [_AREAS[area], given])
    data: dict[str, Json] = {"ok": True, "targetId": tab.id}
    return ActionResult(data if found is None else {**data, "values": found}, tab.url)


async def _storage(action: TabAction) -> ActionResult:
    if key := action.args.text("key"):
        script = "([a, k]) => { const v = window[a].getItem(k); return v === null ? {} : {[k]: v} }"
        return await _run_on_area(action, script, key)
    return await _run_on_area(action, "([a]) => ({...window[a]})")


async def _set_storage(action: TabAction) -> ActionResult:
    key = action.args.required("key", "storage")
    script = "([a, [key, value]]) => { window[a].setItem(key, value); }"
    return await _run_on_area(action, script, [key, action.args.text("value")])


async def _clear_storage(action: TabAction) -> ActionResult:
    return await _run_on_area(action, "([a]) => { window[a].clear(); }")


STORAGE_OPERATIONS: Final[Mapping[str, Operation]] = {
    "cookies": _cookies,
    "cookies/set": _set_cookie,
    "cookies/clear": _clear_cookies,
    "storage": _storage,
    "storage/set": _set_storage,
    "storage/clear": _clear_storage,
}
