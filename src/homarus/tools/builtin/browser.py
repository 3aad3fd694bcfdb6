"""The `browser` tool: open, read and use web pages in the agent's own browser.

What a page says is untrusted. The browser itself is in `tools/browser`, imported by the first call.
"""

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from homarus.core.errors import PageError, ToolDeniedError, ToolError
from homarus.core.message import Image, Json, Text
from homarus.policy.sandbox_settings import resolve_sandbox
from homarus.policy.tool_call import Effect, TaintSource
from homarus.providers.base import ToolSpec
from homarus.tools.sources import ToolSourceContext
from homarus.tools.tool import Tool, ToolContext, ToolOutput, json_tool

if TYPE_CHECKING:
    from homarus.tools.browser.operations import ActionResult

ACTIONS: Final = (
    "status", "start", "stop", "profiles", "tabs", "open", "focus", "close", "snapshot",
    "screenshot", "navigate", "console", "pdf", "upload", "dialog", "act",
)  # fmt: skip
KINDS: Final = (
    "click", "type", "press", "hover", "drag", "select", "fill", "resize", "wait", "evaluate",
    "close",
)  # fmt: skip
DESCRIPTION: Final = (
    "Use web pages: open (targetUrl), snapshot (elements with refs as e12), then act on refs, "
    "which hold until the next snapshot. fill: fields [{ref, value}]. dialog: answers the next one."
)
TIMEOUT_S: Final = 150.0


def _strings(*names: str) -> dict[str, Json]:
    return {name: {"type": "string"} for name in names}


def _kinds(kind: str, *names: str) -> dict[str, Json]:
    return {name: {"type": kind} for name in names}


def _one_of(*names: str) -> Json:
    return {"enum": list(names)}


@cache
def _spec() -> ToolSpec:
    """Return the specification; small, because every request to a model carries it."""
    texts: Json = {"type": "array", "items": {"type": "string"}}
    request: dict[str, Json] = {
        "kind": _one_of(*KINDS),
        **_strings("targetId", "ref", "text", "key", "startRef", "endRef", "textGone", "fn"),
        **_kinds("boolean", "doubleClick", "submit", "slowly"),
        **_kinds("number", "width", "height", "timeMs"),
        "button": _one_of("left", "right", "middle"),
        "modifiers": texts,
        "values": texts,
        "fields": {"type": "array", "items": {"type": "object"}},
    }
    properties: dict[str, Json] = {
        "action": _one_of(*ACTIONS),
        "target": _one_of("sandbox", "host", "node"),
        **_strings("node", "profile", "targetUrl", "targetId", "selector", "frame", "ref"),
        **_strings("element", "inputRef", "level", "promptText"),
        **_kinds("number", "limit", "maxChars", "depth", "timeoutMs"),
        **_kinds("boolean", "interactive", "compact", "labels", "fullPage", "accept"),
        "mode": _one_of("efficient"),
        "snapshotFormat": _one_of("aria", "ai"),
        "refs": _one_of("role", "aria"),
        "type": _one_of("png", "jpeg"),
        "paths": texts,
        "request": {"type": "object", "properties": request, "required": ["kind"]},
    }
    schema: dict[str, Json] = {"type": "object", "properties": properties, "required": ["action"]}
    return ToolSpec("browser", DESCRIPTION, schema)


def tools(context: ToolSourceContext) -> Sequence[Tool]:
    """Return the tool, none where `browser.enabled` is false."""
    if not context.config.browser.enabled:
        return []

    async def run(ctx: ToolContext, args: Mapping[str, Json]) -> str | ToolOutput:
        return await _run(context, ctx, args)

    made = json_tool(
        ToolSpec("browser", "", {}),
        run,
        groups=("ui",),
        aliases=("web_browse",),
        timeout_s=TIMEOUT_S,
    )
    return [replace(made, get_spec=_spec, find_effects=_find_effects)]


async def _find_effects(ctx: ToolContext, args: Mapping[str, Json]) -> frozenset[Effect]:
    """Return that an upload sends files of the agent to a site."""
    return frozenset({"send"}) if args.get("action") == "upload" else frozenset()


async def _run(
    context: ToolSourceContext, ctx: ToolContext, args: Mapping[str, Json]
) -> ToolOutput:
    if context.get_browsers is None:
        raise ToolError("there is no browser here", fix="use it through a running gateway")
    _check_place(context, ctx, args)
    from homarus.tools.browser.workspace_files import WorkspaceFiles

    action, files = str(args["action"]), WorkspaceFiles(ctx.files, ctx.folder_to_read)
    try:
        result = await context.get_browsers().run(ctx.agent, action, args, files)
    except PageError as exc:  # it may have text of the page
        source = TaintSource("web", "browser")
        return ToolOutput((Text(str(exc)),), is_error=True, untrusted=source)
    return _format(result)


def _check_place(context: ToolSourceContext, ctx: ToolContext, args: Mapping[str, Json]) -> None:
    """Raise ToolDeniedError for a browser that is not the one of this machine, or not allowed."""
    target = args.get("target")
    if target == "node" or args.get("node"):
        raise ToolDeniedError("this version has no browsers on nodes", fix="leave out target, node")
    if target == "sandbox":
        raise ToolDeniedError("a sandbox has no browser of its own", fix="use target host")
    is_sandboxed = ctx.sandbox is not None or ctx.caller.is_sandboxed
    if is_sandboxed and not resolve_sandbox(context.config, ctx.agent).allows_host_browser:
        raise ToolDeniedError(
            "this session has a sandbox, and may not use the browser of the machine",
            fix="the owner can set agents.defaults.sandbox.browser.allowHostControl: true",
        )


def _format(result: "ActionResult") -> ToolOutput:
    """Return a result for the model: JSON, and the snapshot as it is."""
    data = dict(result.data)
    snapshot = data.pop("snapshot", None)
    text = json.dumps(data, ensure_ascii=False)
    content: list[Text | Image] = [Text(text if snapshot is None else f"{text}\n{snapshot}")]
    if result.picture:
        content.append(Image(base64.b64encode(result.picture).decode("ascii"), result.mime))
    details: dict[str, Any] = {key: value for key, value in data.items() if key != "nodes"}
    source = TaintSource("web", result.origin[:200]) if result.origin else None
    return ToolOutput(tuple(content), details, untrusted=source)
