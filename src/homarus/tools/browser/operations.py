"""The actions of the browser on one tab: open, snapshot, screenshot, act and so on.

Each takes the browser, its tabs and the arguments, and returns what OpenClaw's tool returns. What
happened besides (downloads, dialogs, new tabs, refused connections) is added to every result.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias, cast
from urllib.parse import urlsplit

from homarus.config.browser_schema import BrowserConfig
from homarus.core.errors import BlockedUrlError, HomarusError, PageError, ToolError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json
from homarus.net.guard import PORTS
from homarus.net.proxy_request import format_place
from homarus.tools.browser.acts import find_element, run_act
from homarus.tools.browser.arguments import ActionArguments
from homarus.tools.browser.playwright_client import page_errors
from homarus.tools.browser.snapshot import (
    EFFICIENT_CHARS,
    EFFICIENT_DEPTH,
    MAX_CHARS,
    MAX_NODES,
    SnapshotNode,
    SnapshotOptions,
    format_snapshot,
    labelled_boxes,
    list_nodes,
    parse_snapshot,
)
from homarus.tools.browser.tabs import MAX_DOWNLOAD_BYTES, DialogAnswer, Tab, TabTable

if TYPE_CHECKING:
    from playwright.async_api import FilePayload, Page

    from homarus.tools.browser.browser_process import BrowserProcess

BLANK: Final = "about:blank"
NAVIGATE_MS: Final = 20_000
SNAPSHOT_MS: Final = 20_000
MAX_PAGE_PX: Final = 8_000  # the height of a screenshot of a complete page
MAX_UPLOAD_BYTES: Final = 40_000_000
_SETTLE_MS: Final = 3_000
_DOWNLOAD_WAIT_S: Final = 10.0
_MAX_BLOCKED: Final = 5
_LEVELS: Final = {"error": 0, "warning": 1, "warn": 1, "info": 2, "log": 2, "debug": 3}


class BrowserFiles(Protocol):
    """The files of the caller: what is uploaded, and where files of the browser are saved."""

    async def read(self, path: str, max_bytes: int) -> tuple[str, bytes]:
        """Return the name and the content of a file. Raises ToolError."""
        ...

    async def save(self, name: str, data: bytes) -> str:
        """Save a file and return its path. Raises ToolError."""
        ...


@dataclass(frozen=True, slots=True)
class ActionResult:
    """What an action returns; `origin` is the page whose text it has, "" without any."""

    data: dict[str, Json]
    origin: str = ""
    picture: bytes = b""
    mime: str = "image/png"


@dataclass(frozen=True, slots=True)
class TabAction:
    """One action: the browser, its tabs, the arguments, and the caller's files."""

    process: "BrowserProcess"
    tabs: TabTable
    args: ActionArguments
    files: BrowserFiles
    config: BrowserConfig = field(default_factory=BrowserConfig.model_construct)


Operation: TypeAlias = Callable[[TabAction], Awaitable[ActionResult]]


async def run_operation(name: str, action: TabAction) -> ActionResult:
    """Do one action and add what happened besides. Raises ToolError."""
    if name not in OPERATIONS:
        raise ToolError(f"there is no action {name}")
    with action.process.proxy.watch_refusals() as refused:
        result = await OPERATIONS[name](action)
    extras = await _collect_extras(action, refused)
    return ActionResult({**result.data, **extras}, result.origin, result.picture, result.mime)


async def _collect_extras(action: TabAction, refused: list[tuple[str, str]]) -> dict[str, Json]:
    tabs, extras = action.tabs, dict[str, Json]()
    if opened := tabs.take_opened():
        extras["newTabs"] = list(opened)
    if dialogs := [each for tab in tabs.all() for each in tab.take_dialogs()]:
        extras["dialogs"] = dialogs
    if downloads := await _save_downloads(action):
        extras["downloads"] = downloads
    if refused:
        extras["blocked"] = [f"{place}: {reason}" for place, reason in refused[:_MAX_BLOCKED]]
    if tabs.notes:
        extras["notes"] = list(dict.fromkeys(tabs.notes))
        tabs.notes.clear()
    return extras


async def _save_downloads(action: TabAction) -> list[Json]:
    """Move complete downloads to the caller's files."""
    found: list[Json] = []
    for file in action.tabs.take_downloads():
        entry: dict[str, Json] = {"name": file.name, "url": file.url}
        try:
            if file.path is None:
                raise ToolError(file.problem)
            data = await asyncio.to_thread(file.path.read_bytes)
            entry["path"] = await action.files.save(file.name, data[:MAX_DOWNLOAD_BYTES])
            entry["bytes"] = file.size
        except (HomarusError, OSError) as exc:
            entry["problem"] = str(exc)
        found.append(entry)
        if file.path:
            await asyncio.to_thread(file.path.unlink, missing_ok=True)
    return found


async def _tab(action: TabAction) -> Tab:
    return await action.tabs.get(action.args.text("targetId"))


async def _tabs(action: TabAction) -> ActionResult:
    listed: list[Json] = [await tab.describe() for tab in action.tabs.all()]
    return ActionResult({"running": True, "tabs": listed}, "the tabs of the browser")


async def _open(action: TabAction) -> ActionResult:
    url = action.args.required("targetUrl", "open")
    await _check_url(action, url)
    tab = await action.tabs.open()
    try:
        await _goto(action, tab, url)
    except HomarusError:
        if tab.url == BLANK:  # nothing was loaded
            await action.tabs.close(tab)
        raise
    return ActionResult(await tab.describe(), tab.url)


async def _navigate(action: TabAction) -> ActionResult:
    url = action.args.required("targetUrl", "navigate")
    await _check_url(action, url)
    tab = await _tab(action)
    await _goto(action, tab, url)
    return ActionResult({"ok": True, **await tab.describe()}, tab.url)


async def _check_url(action: TabAction, url: str) -> None:
    if url != BLANK:
        await action.process.proxy.check(url)


async def _goto(action: TabAction, tab: Tab, url: str) -> None:
    """Load a page. Raises BlockedUrlError where it, or what it redirects to, is refused."""
    timeout_ms = action.args.number("timeoutMs", 100, 60_000) or NAVIGATE_MS
    tab.dialog_count = 0
    with action.process.proxy.watch_refusals() as refused:
        try:
            with page_errors("navigate"):
                response = await tab.page.goto(
                    url.strip(), timeout=timeout_ms, wait_until="domcontentloaded"
                )
            failure = None
        except PageError as exc:
            response, failure = None, exc
    if failure and "Download is starting" in failure.message:
        await action.tabs.wait_for_download(_DOWNLOAD_WAIT_S)
        return
    reasons = dict(refused)
    if failure:
        if refused and "TUNNEL" in failure.message:
            place, reason = refused[-1]
            raise BlockedUrlError(f"{place} is refused: {reason}") from failure
        raise failure
    if response and response.status in (403, 502, 504):
        place = _place(response.url)
        if place in reasons:
            raise BlockedUrlError(f"{place} is refused: {reasons[place]}")


def _place(url: str) -> str:
    parts = urlsplit(url)
    return format_place(parts.hostname or "", parts.port or PORTS.get(parts.scheme, 0))


async def _focus(action: TabAction) -> ActionResult:
    action.args.required("targetId", "focus")
    tab = await _tab(action)
    with page_errors("focus"):
        await tab.page.bring_to_front()
    return ActionResult({"ok": True, "targetId": tab.id})


async def _close(action: TabAction) -> ActionResult:
    tab = await _tab(action)
    await action.tabs.close(tab)
    return ActionResult({"ok": True, "targetId": tab.id})


async def _snapshot(action: TabAction) -> ActionResult:
    args, tab = action.args, await _tab(action)
    is_efficient = (args.text("mode") or action.config.snapshot_defaults.mode) == "efficient"
    format_name = args.text("snapshotFormat") or args.text("format") or "ai"
    if format_name not in ("ai", "aria"):
        raise ToolError("snapshotFormat is ai or aria")
    interactive, compact = args.choice("interactive"), args.choice("compact")
    depth = args.number("depth", 0, 100)
    options = SnapshotOptions(
        is_efficient if interactive is None else interactive,
        is_efficient if compact is None else compact,
        EFFICIENT_DEPTH if depth is None and is_efficient else depth,
        args.number("maxChars", 200, 200_000) or (EFFICIENT_CHARS if is_efficient else MAX_CHARS),
    )
    roots = await _read_snapshot(tab.page, args)
    common: dict[str, Json] = {"ok": True, "format": format_name, "targetId": tab.id}
    common["url"] = tab.url[:2000]
    if format_name == "aria":
        nodes, is_cut = list_nodes(roots, options, args.number("limit", 1, 2000) or MAX_NODES)
        return ActionResult({**common, "nodes": nodes, "truncated": is_cut}, tab.url)
    found = format_snapshot(roots, options)
    stats: Json = {"lines": found.lines, "refs": found.refs, "interactive": found.interactive}
    data = {**common, "snapshot": found.text, "truncated": found.is_cut, "stats": stats}
    if not args.flag("labels"):
        return ActionResult(data, tab.url)
    from homarus.tools.browser.labels import draw_labels

    with page_errors("screenshot"):
        picture = await tab.page.screenshot(timeout=SNAPSHOT_MS)
    boxes = list(labelled_boxes(roots))
    picture, drawn, skipped = await asyncio.to_thread(draw_labels, picture, boxes)
    path = await action.files.save("snapshot.png", picture)
    labels: dict[str, Json] = {"labels": True, "labelsCount": drawn, "labelsSkipped": skipped}
    return ActionResult({**data, **labels, "imagePath": path}, tab.url, picture)


async def _read_snapshot(page: "Page", args: ActionArguments) -> list[SnapshotNode]:
    """Return the tree of a page, of an element of it, or of a frame."""
    selector, frame, boxes = args.text("selector"), args.text("frame"), args.flag("labels")
    with page_errors("snapshot"):
        if frame:
            found = page.frame_locator(frame).locator(selector or "body").first
        elif selector:
            found = page.locator(selector).first
        else:
            text = await page.aria_snapshot(mode="ai", boxes=boxes, timeout=SNAPSHOT_MS)
            return await asyncio.to_thread(parse_snapshot, text)
        if not await found.count():
            raise PageError(f"nothing matches {selector or frame}", fix="take it without selector")
        text = await found.aria_snapshot(mode="ai", boxes=boxes, timeout=SNAPSHOT_MS)
    return await asyncio.to_thread(parse_snapshot, text)


async def _screenshot(action: TabAction) -> ActionResult:
    args, tab = action.args, await _tab(action)
    kind = args.text("type") or "png"
    if kind not in ("png", "jpeg"):
        raise ToolError("type is png or jpeg")
    kind = cast("Literal['png', 'jpeg']", kind)
    timeout_ms = args.number("timeoutMs", 100, 60_000) or SNAPSHOT_MS
    with page_errors("screenshot"):
        if args.text("ref") or args.text("element"):
            found = await find_element(tab.page, args.text("ref"), selector=args.text("element"))
            picture = await found.screenshot(type=kind, timeout=timeout_ms)
        elif args.flag("fullPage"):
            picture = await _shoot_full_page(tab.page, kind, timeout_ms)
        else:
            picture = await tab.page.screenshot(type=kind, timeout=timeout_ms)
    path = await action.files.save(f"screenshot.{kind}", picture)
    data: dict[str, Json] = {"ok": True, "path": path, "targetId": tab.id, "url": tab.url[:2000]}
    return ActionResult(data, tab.url, picture, f"image/{kind}")


async def _shoot_full_page(page: "Page", kind: Literal["png", "jpeg"], timeout_ms: int) -> bytes:
    """Return a picture of the page from its top, up to a height: some pages have no end."""
    async with asyncio.timeout(timeout_ms / 1000):
        size: Any = await page.evaluate(
            "[document.documentElement.scrollWidth, document.documentElement.scrollHeight]"
        )
    try:
        width, height = (max(1, min(MAX_PAGE_PX, int(each))) for each in size)
    except (TypeError, ValueError, OverflowError):
        width, height = 1280, 720
    clip: Any = {"x": 0, "y": 0, "width": width, "height": height}
    return await page.screenshot(type=kind, full_page=True, clip=clip, timeout=timeout_ms)


async def _pdf(action: TabAction) -> ActionResult:
    tab = await _tab(action)
    with page_errors("pdf"):
        async with asyncio.timeout(SNAPSHOT_MS / 1000 * 2):
            data = await tab.page.pdf(print_background=True)
    path = await action.files.save("page.pdf", data)
    found: dict[str, Json] = {"ok": True, "path": path, "targetId": tab.id, "url": tab.url[:2000]}
    return ActionResult(found, tab.url)


async def _console(action: TabAction) -> ActionResult:
    tab, level = await _tab(action), action.args.text("level")
    limit = action.args.number("limit", 1, 200) or 50
    if level and level not in _LEVELS:
        raise ToolError(f"level is one of {', '.join(_LEVELS)}")
    max_level = _LEVELS.get(level, 3)
    lines: list[Json] = [
        each for each in tab.console if _LEVELS.get(str(each.get("type")), 2) <= max_level
    ]
    return ActionResult({"ok": True, "messages": lines[-limit:], "targetId": tab.id}, tab.url)


async def _dialog(action: TabAction) -> ActionResult:
    args, tab = action.args, await _tab(action)
    until_s = asyncio.get_running_loop().time() + args.timeout_ms() / 1000
    answer = DialogAnswer(args.flag("accept"), args.text("promptText"), until_s)
    was_open = tab.answer_dialog(answer)
    return ActionResult({"ok": True, "targetId": tab.id, "answered": was_open})


async def _upload(action: TabAction) -> ActionResult:
    args, tab = action.args, await _tab(action)
    if not (paths := args.texts("paths")):
        raise ToolError("upload needs paths")
    payloads: list[FilePayload] = []
    left = MAX_UPLOAD_BYTES
    for path in paths[:10]:
        name, data = await action.files.read(path, left)
        left -= len(data)
        payloads.append({"name": name, "mimeType": "application/octet-stream", "buffer": data})
    timeout_ms = args.timeout_ms()
    direct, element = args.text("inputRef"), args.text("element")
    with page_errors("upload"):
        if direct or element:
            found = await find_element(tab.page, direct, selector=element)
            await found.set_input_files(payloads, timeout=timeout_ms)
        else:
            found = await find_element(tab.page, args.required("ref", "upload"))
            async with tab.page.expect_file_chooser(timeout=timeout_ms) as waiting:
                await found.click(timeout=timeout_ms)
            await (await waiting.value).set_files(payloads, timeout=timeout_ms)
    return ActionResult({"ok": True, "targetId": tab.id, "files": len(payloads)}, tab.url)


async def _act(action: TabAction) -> ActionResult:
    request = action.args.nested("request") if action.args.has("request") else action.args
    target = action.args.text("targetId") or request.text("targetId")
    tab = await action.tabs.get(target)
    if request.text("kind") == "close":
        await action.tabs.close(tab)
        return ActionResult({"ok": True, "targetId": tab.id})
    tab.dialog_count = 0
    result = await run_act(tab, request, can_evaluate=action.config.evaluate_enabled)
    await _settle(tab, action.tabs)
    data: dict[str, Json] = {"ok": True, "targetId": tab.id, "url": tab.url[:2000]}
    if result is not None:
        data["result"] = result
    return ActionResult(data, tab.url)


async def _settle(tab: Tab, tabs: TabTable) -> None:
    """Wait a little for what an act started: a navigation, a new tab, a download."""
    try:
        with page_errors("wait"):
            await tab.page.wait_for_load_state("domcontentloaded", timeout=_SETTLE_MS)
            await asyncio.sleep(0.1)
    except HomarusError:
        return  # it is not over, and the next snapshot shows where it is
    await tabs.wait_for_download(_DOWNLOAD_WAIT_S)


OPERATIONS: Final[Mapping[str, Operation]] = {
    "tabs": _tabs,
    "open": _open,
    "navigate": _navigate,
    "focus": _focus,
    "close": _close,
    "snapshot": _snapshot,
    "screenshot": _screenshot,
    "pdf": _pdf,
    "console": _console,
    "dialog": _dialog,
    "upload": _upload,
    "act": _act,
}
