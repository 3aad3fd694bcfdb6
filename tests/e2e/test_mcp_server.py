"""The gateway as an MCP server, used by the official Python client, over stdio and HTTP."""

import json
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from tests.e2e.gateway import TOKEN, Gateway, change, wait_for
from tests.e2e.program import Home

ANSWER = "Hello from the mock model."
READ = {
    "conversations_list",
    "conversation_get",
    "messages_read",
    "sessions_list",
    "sessions_history",
}
WRITE = {"messages_send", "sessions_send", "memory_search", "memory_get"}
APPROVALS = {"permissions_list_open", "permissions_respond"}


@pytest.fixture
def served(start: Callable[..., Gateway], home: Home) -> Gateway:
    """A gateway with the endpoint enabled."""
    endpoint = {"endpoints": {"mcp": {"enabled": True}}}
    (home.state / "homarus.json").write_text(json.dumps({"gateway": {"http": endpoint}}))
    return start().wait_ready()


def address(gateway: Gateway) -> str:
    return gateway.url.replace("ws://", "http://") + "/mcp"


@asynccontextmanager
async def over_http(
    gateway: Gateway, token: str = TOKEN, mode: str = "auto"
) -> AsyncIterator[Client]:
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx2.AsyncClient(headers=headers, trust_env=False, timeout=60) as http:
        transport = streamable_http_client(address(gateway), http_client=http)
        async with Client(transport, mode=mode) as client:
            yield client


@asynccontextmanager
async def over_stdio(home: Home, *args: str, mode: str = "auto") -> AsyncIterator[Client]:
    command = ["-m", "homarus", "mcp", "serve", *args]
    server = StdioServerParameters(
        command=sys.executable, args=command, env=home.env, cwd=home.path
    )
    async with Client(server, mode=mode) as client:
        yield client


async def call(client: Client, name: str, **arguments: Any) -> Any:
    result = await client.call_tool(name, arguments)
    [content] = result.content
    assert content.type == "text"
    assert not result.is_error, content.text
    assert json.loads(content.text) == result.structured_content
    return result.structured_content


async def refusal(client: Client, name: str, **arguments: Any) -> str:
    result = await client.call_tool(name, arguments)
    [content] = result.content
    assert content.type == "text" and result.is_error
    return content.text


async def names(client: Client) -> set[str]:
    return {tool.name for tool in (await client.list_tools()).tools}


async def use_every_part(client: Client, home: Home) -> None:
    """List, ask, read, search: what a client with all scopes does."""
    assert await names(client) == READ | WRITE | APPROVALS
    answer = await call(client, "sessions_send", message="MOCK:short", sessionKey="agent:main:mcp")
    assert (answer["status"], answer["reply"]) == ("ok", ANSWER)
    listed = await call(client, "sessions_list", search="mcp")
    assert [row["key"] for row in listed["sessions"]] == ["agent:main:mcp"]
    history = await call(client, "sessions_history", sessionKey="agent:main:mcp")
    assert [(m["role"], m["text"]) for m in history["messages"]] == [
        ("user", "MOCK:short"),
        ("assistant", ANSWER),
    ]
    (home.workspace / "memory").mkdir(exist_ok=True)
    (home.workspace / "memory" / "boats.md").write_text("The blue boat is called Tethys.\n")
    found = await call(client, "memory_search", query="What is the blue boat called?")
    assert "Tethys" in found["results"][0]["snippet"]
    note = await call(client, "memory_get", path="memory/boats.md")
    assert "Tethys" in note["text"]
    assert await call(client, "permissions_list_open") == {"approvals": []}
    assert await call(client, "conversations_list") == {"conversations": [], "more": False}


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_mcp_http_official_client_uses_every_part(served: Gateway, mode: str) -> None:
    async with over_http(served, mode=mode) as client:
        await use_every_part(client, served.home)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_mcp_stdio_official_client_uses_every_part(gateway: Gateway, mode: str) -> None:
    async with over_stdio(gateway.home, mode=mode) as client:
        await use_every_part(client, gateway.home)
