"""The `browser` tool without a browser: its specification, its place, its effects, its routes."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from homarus.config.schema import Config
from homarus.core.errors import InvalidRequestError, ToolDeniedError, ToolError
from homarus.policy.tool_call import CallerFacts
from homarus.tools.browser.arguments import ActionArguments
from homarus.tools.browser.control import BrowserControl
from homarus.tools.browser.labels import draw_labels
from homarus.tools.browser.playwright_client import open_playwright
from homarus.tools.browser.routes import find_route
from homarus.tools.browser.tabs import safe_file_name
from homarus.tools.browser.workspace_files import WorkspaceFiles
from homarus.tools.builtin import browser
from homarus.tools.rooted_fs import RootedFs
from homarus.tools.sources import ToolSourceContext
from homarus.tools.tool import Tool, ToolContext, ToolOutput

MAX_SPEC_BYTES = 2_000


def make_tools(control: BrowserControl | None = None, **tree: Any) -> list[Tool]:
    config = Config.model_validate(tree)
    context = ToolSourceContext("main", config, lambda _key: config.tools)
    if control:
        context = replace(context, get_browsers=lambda: control)
    return list(browser.tools(context))


@asynccontextmanager
async def open_control(state: Path, **section: Any) -> AsyncIterator[BrowserControl]:
    config = Config.model_validate({"browser": section})
    async with asyncio.TaskGroup() as group:
        yield BrowserControl(
            lambda: config, state, lambda work, name: group.create_task(work, name=name)
        )


def test_browser_specification_is_small_and_has_the_names() -> None:
    [tool] = make_tools()
    spec = {
        "name": tool.spec.name,
        "description": tool.spec.description,
        "parameters": tool.spec.parameters,
    }
    assert len(json.dumps(spec, separators=(",", ":"))) <= MAX_SPEC_BYTES
    properties = tool.spec.parameters["properties"]
    assert isinstance(properties, dict)
    assert set(properties) == {
        "action",
        "target",
        "node",
        "profile",
        "targetUrl",
        "targetId",
        "limit",
        "maxChars",
        "mode",
        "snapshotFormat",
        "refs",
        "interactive",
        "compact",
        "depth",
        "selector",
        "frame",
        "labels",
        "fullPage",
        "ref",
        "element",
        "type",
        "level",
        "paths",
        "inputRef",
        "timeoutMs",
        "accept",
        "promptText",
        "request",
    }
    request = properties["request"]["properties"]
    assert set(request) == {
        "kind",
        "targetId",
        "ref",
        "doubleClick",
        "button",
        "modifiers",
        "text",
        "submit",
        "slowly",
        "key",
        "startRef",
        "endRef",
        "values",
        "fields",
        "width",
        "height",
        "timeMs",
        "textGone",
        "fn",
    }
    assert (tool.declaration.groups, tool.aliases) == (("ui",), ("web_browse",))


def test_browser_that_is_disabled_is_not_offered() -> None:
    assert make_tools(browser={"enabled": False}) == []


async def test_browser_of_a_sandboxed_session_needs_host_control(tmp_path: Path) -> None:
    caller = CallerFacts("main", "agent:main:main", is_sandboxed=True)
    ctx = ToolContext("agent:main:main", "main", tmp_path, get_caller=lambda: caller)
    async with open_control(tmp_path) as control:
        [tool] = make_tools(control)
        with pytest.raises(ToolDeniedError, match="allowHostControl"):
            await tool(ctx, {"action": "status"})
        allowed = {"defaults": {"sandbox": {"browser": {"allowHostControl": True}}}}
        [tool] = make_tools(control, agents=allowed)
        result = await tool(ctx, {"action": "status"})
    assert isinstance(result, ToolOutput) and (result.details or {})["running"] is False


@pytest.mark.parametrize("place", [{"target": "node"}, {"node": "x"}, {"target": "sandbox"}])
async def test_browser_elsewhere_is_refused(tmp_path: Path, place: dict[str, str]) -> None:
    async with open_control(tmp_path) as control:
        [tool] = make_tools(control)
        with pytest.raises(ToolDeniedError):
            await tool(ToolContext("k", "main", tmp_path), {"action": "tabs", **place})


async def test_browser_upload_sends_and_other_actions_do_not(tmp_path: Path) -> None:
    [tool] = make_tools()
    assert tool.find_effects
    ctx = ToolContext("k", "main", tmp_path)
    assert await tool.find_effects(ctx, args={"action": "upload"}) == {"send"}
    assert await tool.find_effects(ctx, args={"action": "snapshot"}) == set()


async def test_browser_that_cannot_start_says_what_to_do(tmp_path: Path) -> None:
    missing = str(tmp_path / "nothing")
    async with open_control(tmp_path, noSandbox=True, executablePath=missing) as control:
        files = WorkspaceFiles(RootedFs(tmp_path), lambda _path: (RootedFs(tmp_path), ""))
        for _ in range(2):  # also when it is tried again
            with pytest.raises(ToolError, match="executablePath"):
                await control.run("main", "open", {"targetUrl": "http://a.example/"}, files)
        status = await control.run("main", "status", {}, files)
        assert "executablePath" in str(status.data["problem"])
        stopped = await control.run("main", "stop", {}, files)
        assert stopped.data["stopped"] is False


async def test_browser_without_the_library_names_the_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "playwright.async_api", None)
    with pytest.raises(ToolError) as raised:
        async with open_playwright():
            pass
    assert "pip install 'homarus[browser]'" in str(raised.value)


@pytest.mark.parametrize(
    ("method", "path", "action", "more"),
    [
        ("GET", "/", "status", {}),
        ("POST", "/tabs/open", "open", {"targetUrl": "http://a.b"}),
        ("DELETE", "/tabs/t%32", "close", {"targetId": "t2"}),
        ("GET", "/storage/local", "storage", {"kind": "local"}),
        ("POST", "/storage/session/clear", "storage/clear", {"kind": "session"}),
        ("POST", "/cookies/set", "cookies/set", {}),
        ("POST", "/hooks/file-chooser", "upload", {}),
    ],
)
def test_route_is_an_action_with_arguments(
    method: str, path: str, action: str, more: dict[str, str]
) -> None:
    body = {"url": "http://a.b"} if action == "open" else {}
    route = find_route(method, path, {"profile": "p"}, body)
    assert (route.action, route.values) == (action, {"profile": "p", **more})


@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/"), ("GET", "/storage/x"), ("DELETE", "/tabs"), ("GET", "/..")]
)
def test_route_that_is_not_there_is_refused(method: str, path: str) -> None:
    with pytest.raises(InvalidRequestError, match="there is no"):
        find_route(method, path, {}, {})


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("../../etc/passwd", "passwd"),
        ("..\\..\\evil.exe", "evil.exe"),
        (".bashrc", "bashrc"),
        ("a b;c$(d).pdf", "a_b_c_(d).pdf"),
        ("", "file"),
        ("/", "file"),
        ("x" * 300 + ".csv", "x" * 80 + ".csv"),
        ("new\nline.txt", "new_line.txt"),
    ],
)
def test_file_name_of_a_server_is_made_safe(given: str, expected: str) -> None:
    assert safe_file_name(given) == expected


async def test_files_of_pages_are_saved_where_they_are_untrusted(tmp_path: Path) -> None:
    root = RootedFs(tmp_path)
    files = WorkspaceFiles(root, lambda _path: (root, ""))
    path = await files.save("../a.txt", b"text")
    assert path.startswith("media/inbound/browser-") and path.endswith("-a.txt")
    assert await files.read(path, 100) == (path.rpartition("/")[2], b"text")
    with pytest.raises(ToolError, match="larger"):
        await files.read(path, 3)


def test_arguments_of_a_query_are_converted() -> None:
    args = ActionArguments({"depth": "3", "compact": "true", "limit": 5000, "ref": 7})
    assert args.number("depth", 0, 10) == 3 and args.number("limit", 1, 2000) == 2000
    assert args.flag("compact") and args.choice("labels") is None
    with pytest.raises(ToolError, match="ref is text"):
        args.text("ref")
    with pytest.raises(ToolError, match="true or false"):
        ActionArguments({"compact": "perhaps"}).flag("compact")


def test_labels_are_drawn_for_boxes_in_the_picture() -> None:
    from io import BytesIO

    from PIL import Image as Pictures

    buffer = BytesIO()
    Pictures.new("RGB", (100, 50), "white").save(buffer, "PNG")
    boxes = [("e1", (5, 15, 20, 20)), ("e2", (500, 15, 20, 20))]
    picture, drawn, skipped = draw_labels(buffer.getvalue(), boxes)
    assert (drawn, skipped) == (1, 1) and picture != buffer.getvalue()
