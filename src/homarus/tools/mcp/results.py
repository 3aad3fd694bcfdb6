"""Results of MCP servers as output of tools: text and images, marked as untrusted."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from homarus.core.message import Image, Json, Text
from homarus.core.text import one_line
from homarus.policy.tool_call import TaintSource
from homarus.tools.tool import ToolOutput

_MAX_PARTS: Final = 200
_IMAGES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})


def make_output(server: str, tool: str, result: Mapping[str, Any]) -> ToolOutput:
    """Return the output of a call."""
    content = result.get("content")
    parts = tuple(_parts(content if isinstance(content, list) else []))
    structured = result.get("structuredContent")
    if structured is not None and not any(isinstance(part, Text) for part in parts):
        parts = (Text(json.dumps(structured, ensure_ascii=False)), *parts)
    details: dict[str, Json] = {"server": server, "tool": tool}
    is_error = result.get("isError") is True
    return ToolOutput(parts, details, is_error=is_error, untrusted=TaintSource("mcp", server))


def make_text_output(server: str, value: Json, *, details: Mapping[str, Json]) -> ToolOutput:
    """Return JSON of a server as the output of a call."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    source = TaintSource("mcp", server)
    return ToolOutput((Text(text),), {"server": server, **details}, untrusted=source)


def make_resource_output(server: str, uri: str, result: Mapping[str, Any]) -> ToolOutput:
    """Return the contents of a resource as the output of a call."""
    contents = result.get("contents")
    entries = contents if isinstance(contents, list) else []
    parts = tuple(_resource(entry) for entry in entries[:_MAX_PARTS])
    details: dict[str, Json] = {"server": server, "uri": uri}
    return ToolOutput(parts, details, untrusted=TaintSource("mcp", server))


def _parts(content: list[Any]) -> Iterator[Text | Image]:
    for part in content[:_MAX_PARTS]:
        kind, mime = part.get("type"), str(part.get("mimeType", ""))
        if kind == "text":
            yield Text(str(part.get("text", "")))
        elif kind == "image" and mime in _IMAGES:
            yield Image(str(part.get("data", "")), mime)
        elif kind == "resource":
            yield _resource(part.get("resource") or {})
        elif kind == "resource_link":
            name = one_line(str(part.get("name", "")), 100)
            yield Text(f"[resource {one_line(str(part.get('uri', '')), 300)} {name}]")
        else:
            size = len(str(part.get("data", "")))
            yield Text(f"[{one_line(str(kind), 20)} {one_line(mime, 60)}: {size} characters]")
    if len(content) > _MAX_PARTS:
        yield Text(f"[{len(content) - _MAX_PARTS} more parts were left out]")


def _resource(entry: Mapping[str, Any]) -> Text | Image:
    mime = str(entry.get("mimeType", ""))
    if "text" in entry:
        return Text(str(entry["text"]))
    blob = str(entry.get("blob", ""))
    if mime in _IMAGES:
        return Image(blob, mime)
    uri = one_line(str(entry.get("uri", "")), 300)
    return Text(f"[{uri}: {one_line(mime, 60) or 'binary'}, {len(blob)} characters of base64]")
