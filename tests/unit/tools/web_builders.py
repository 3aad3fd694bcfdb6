"""Local web servers: sites that a page is fetched from, and labelled fakes of services."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from urllib.parse import parse_qs, urlsplit

from homarus.config.schema import Config
from homarus.core.message import ToolCall, ToolResult
from homarus.policy.tool_call import ToolCallFacts, ToolDecision
from homarus.tools.execute import execute_tool_call
from homarus.tools.registry import ToolRegistry
from homarus.tools.sources import ToolSourceContext, load_tools
from homarus.tools.tool import Tool, ToolContext


@dataclass(slots=True)
class SiteRequest:
    """A request that a server received."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes = b""

    @property
    def path(self) -> str:
        return urlsplit(self.target).path

    @property
    def query(self) -> dict[str, str]:
        return {name: values[0] for name, values in parse_qs(urlsplit(self.target).query).items()}

    @property
    def json(self) -> Any:
        return json.loads(self.body)


Answer: TypeAlias = Callable[[SiteRequest], bytes]


@dataclass(slots=True)
class Site:
    """A running server: its address, and what it received."""

    url: str
    requests: list[SiteRequest] = field(default_factory=list)
    dropped: asyncio.Event = field(default_factory=asyncio.Event)  # a client hung up early

    @property
    def port(self) -> int:
        return urlsplit(self.url).port or 0


def respond(
    body: bytes | str = b"", status: str = "200 OK", kind: str = "text/html", **headers: str
) -> bytes:
    """Return a complete response."""
    content = body.encode() if isinstance(body, str) else body
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    if kind:
        lines.append(f"Content-Type: {kind}")
    head = [f"HTTP/1.1 {status}", f"Content-Length: {len(content)}", "Connection: close", *lines]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + content


def respond_json(value: Any, status: str = "200 OK") -> bytes:
    return respond(json.dumps(value), status, "application/json")


def always(content: bytes) -> Answer:
    """Answer every request with the same response."""
    return lambda _request: content


@asynccontextmanager
async def open_site(answer: Answer) -> AsyncIterator[Site]:
    """Serve on a loopback address. A response without its end stays open, as of a slow server."""
    site = Site("")

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = await _read_request(reader)
            site.requests.append(request)
            content = answer(request)
            writer.write(content)
            await writer.drain()
            if b"Connection: close" not in content[:2_000]:
                await reader.read()  # until the client gives up
                site.dropped.set()
        except (OSError, EOFError):
            site.dropped.set()
        finally:
            writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as listening:
        site.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        yield site


async def _read_request(reader: asyncio.StreamReader) -> SiteRequest:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.split("\r\n")
    method, target, _ = first.split(" ")
    pairs = (line.partition(":") for line in lines if line)
    headers = {name.lower(): value.strip() for name, _, value in pairs}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return SiteRequest(method, target, headers, body)


def web_config(
    search: Mapping[str, Any] | None = None, fetch: Mapping[str, Any] | None = None
) -> Config:
    """Return a config that lets pages be fetched from the loopback address."""
    allowed = {"ssrfPolicy": {"allowedHostnames": ["127.0.0.1"]}}
    web = {"search": dict(search or {}), "fetch": allowed | dict(fetch or {})}
    return Config.model_validate({"tools": {"web": web}})


def tool_source(config: Config, env: Mapping[str, str] | None = None) -> ToolSourceContext:
    return ToolSourceContext("main", config, lambda _key: config.tools, env=env or {})


async def call_tool(
    ctx: ToolContext, tools: ToolRegistry | Tool, name: str, args: Mapping[str, Any]
) -> ToolResult:
    """Call a tool as a run does, with every call allowed."""

    async def allow(_facts: ToolCallFacts) -> ToolDecision:
        return ToolDecision("allow", "")

    registry = ToolRegistry([tools]) if isinstance(tools, Tool) else tools
    return await execute_tool_call(registry, ctx, ToolCall("c1", name, args), allow)


def load_web_tools(config: Config, env: Mapping[str, str] | None = None) -> ToolRegistry:
    """Return the web tools of a config, as an agent has them."""
    found = load_tools(tool_source(config, env))
    return ToolRegistry([tool for tool in found if tool.group == "web"])
