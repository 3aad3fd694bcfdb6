"""The gateway as an MCP server, used by the official Python client, over stdio and HTTP."""

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import httpx2
import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from tests.contract.channel_peers import TelegramPeer
from tests.e2e.gateway import TOKEN, Gateway, change, wait_for
from tests.e2e.program import DEADLINE_S, Home

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
    listed = await call(client, "sessions_list", search="mcp", activeMinutes=5)
    assert [row["key"] for row in listed["sessions"]] == ["agent:main:mcp"]
    history = await call(client, "sessions_history", sessionKey="agent:main:mcp")
    assert [(m["role"], m["text"]) for m in history["messages"]] == [
        ("user", "MOCK:short"),
        ("assistant", ANSWER),
    ]
    (home.workspace / "memory").mkdir(exist_ok=True)
    (home.workspace / "memory" / "boats.md").write_text("The blue boat is called Tethys.\n")
    found = await call(client, "memory_search", query="What is the blue boat called?", maxResults=1)
    assert "Tethys" in found["results"][0]["snippet"]
    note = await call(client, "memory_get", path="memory/boats.md", **{"from": 1})
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


async def device_token(gateway: Gateway, *scopes: str) -> str:
    """Return the token of a device that was approved for these scopes."""
    async with gateway.connect(scopes=scopes) as client:
        return str(client.hello["auth"]["deviceToken"])


async def test_mcp_http_device_token_has_the_scopes_of_its_device(served: Gateway) -> None:
    token = await device_token(served, "operator.read")
    async with over_http(served, token) as client:
        assert await names(client) == READ
        assert (await call(client, "sessions_list"))["count"] == 0
        said = await refusal(client, "sessions_send", message="MOCK:short")
        assert "sessions_send needs the scope operator.write" in said
        assert "operator.approvals" in await refusal(client, "permissions_list_open")
        assert "operator.write" in await refusal(client, "memory_get", path="MEMORY.md")
    assert not served.home.transcripts()


async def test_mcp_http_revoked_device_token_is_refused(served: Gateway) -> None:
    token = await device_token(served, "operator.read")
    async with over_http(served, token) as client:
        await call(client, "sessions_list")
        [device] = served.home.run("devices", "list", "--json").json["paired"][-1:]
        done = served.home.run("devices", "revoke", device["deviceId"], "--role", "operator")
        assert done.status == 0, done.err
        with pytest.raises(MCPError):
            await client.call_tool("sessions_list", {})


async def test_mcp_stdio_scope_option_restricts_the_client(gateway: Gateway) -> None:
    async with over_stdio(gateway.home, "--scope", "operator.read") as client:
        assert await names(client) == READ
        assert "operator.write" in await refusal(client, "sessions_send", message="MOCK:short")
    async with over_stdio(gateway.home, "--scope", "operator.approvals") as client:
        assert await names(client) == APPROVALS
    assert not gateway.home.transcripts()


async def test_mcp_stdio_approval_is_listed_and_answered(gateway: Gateway) -> None:
    message = 'MOCK:tool:exec:{"command":"touch here.txt"}§'
    async with over_stdio(gateway.home) as client:
        sent = await call(client, "sessions_send", message=message, timeoutSeconds=0)
        assert sent["status"] == "accepted"
        async with asyncio.timeout(DEADLINE_S):
            waiting: list[Any] = []
            while not waiting:
                waiting = (await call(client, "permissions_list_open"))["approvals"]
        assert waiting[0]["request"]["command"] == "touch here.txt"
        assert not (gateway.home.workspace / "here.txt").exists()
        wrong = await refusal(client, "permissions_respond", id=waiting[0]["id"], decision="yes")
        assert "decision" in wrong
        answer = {"id": waiting[0]["id"], "decision": "allow-once"}
        assert await call(client, "permissions_respond", **answer) == {"ok": True, **answer}
        again = await call(client, "sessions_send", message=message, idempotencyKey=sent["runId"])
        assert (again["status"], again["reply"]) == ("ok", ANSWER)
        assert (gateway.home.workspace / "here.txt").exists()


async def test_mcp_send_same_idempotency_key_runs_once(served: Gateway) -> None:
    async with over_http(served) as client:
        for _ in range(2):
            answer = await call(
                client, "sessions_send", message="MOCK:short", idempotencyKey="only-once"
            )
            assert (answer["runId"], answer["reply"]) == ("only-once", ANSWER)
        history = await call(client, "sessions_history", sessionKey="main")
        assert [m["role"] for m in history["messages"]] == ["user", "assistant"]


@pytest.mark.slow
async def test_mcp_send_slow_answer_is_waited_for_again(served: Gateway) -> None:
    message = "MOCK:long:100:30"
    async with over_http(served) as client:
        sent = await call(client, "sessions_send", message=message, timeoutSeconds=1)
        assert sent["status"] == "timeout" and "idempotencyKey" in sent["note"]
        answer = await call(client, "sessions_send", message=message, idempotencyKey=sent["runId"])
        assert answer["status"] == "ok" and answer["reply"].endswith("word0099")


async def test_mcp_message_is_sent_to_the_chat_of_a_session(
    home: Home, start: Callable[..., Gateway]
) -> None:
    telegram = TelegramPeer()
    try:
        channels: dict[str, Any] = dict(telegram.section())
        change(home, channels=channels)
        start().wait_ready()
        telegram.write("T#e2e MOCK:say:welcome aboard§")
        wait_for(lambda: [one for one in telegram.shown() if one.text == "welcome aboard"])
        async with over_stdio(home) as client:
            listed = await call(client, "conversations_list", includeLastMessage=True)
            [conversation] = listed["conversations"]
            assert conversation["channel"] == "telegram"
            key = conversation["session_key"]
            assert (await call(client, "conversation_get", session_key=key))["conversation"][
                "to"
            ] == conversation["to"]
            read = await call(client, "messages_read", session_key=key)
            assert read["messages"][-1]["text"] == "welcome aboard"
            sent = {"session_key": key, "text": "the tide is high", "idempotency_key": "tide"}
            for _ in range(2):
                assert (await call(client, "messages_send", **sent))["status"] == "sent"
            wait_for(lambda: "the tide is high" in [one.text for one in telegram.shown()])
            to = f"telegram:{conversation['to']}"
            await call(client, "messages_send", to=to, text="low tide")
            wait_for(lambda: "low tide" in [one.text for one in telegram.shown()])
            assert [one.text for one in telegram.shown()].count("the tide is high") == 1
            both = await refusal(client, "messages_send", to=to, session_key=key, text="x")
            assert "and not both" in both
            await call(client, "sessions_send", message="MOCK:short", sessionKey="agent:main:other")
            no_chat = await refusal(
                client, "messages_send", session_key="agent:main:other", text="x"
            )
            assert "has no chat" in no_chat
    finally:
        telegram.close()


async def test_mcp_unknown_tool_and_arguments_are_refused(served: Gateway) -> None:
    async with over_http(served) as client:
        with pytest.raises(MCPError, match="session_list"):
            await client.call_tool("session_list", {})
        assert "extra" in (await refusal(client, "sessions_list", extra=1)).lower()
        assert "query" in await refusal(client, "memory_search")
        assert "no session" in await refusal(client, "conversation_get", session_key="none")


def post(gateway: Gateway, body: bytes, **headers: str) -> httpx2.Response:
    sent = {
        "Authorization": f"Bearer {TOKEN}",
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    return httpx2.post(address(gateway), content=body, headers=sent, trust_env=False, timeout=30)


def test_mcp_http_wrong_requests_are_refused(served: Gateway) -> None:
    listing = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).encode()
    assert post(served, listing).status_code == 200
    assert post(served, listing, Authorization="Bearer wrong").status_code == 401
    assert post(served, listing, Authorization="").status_code == 401
    assert post(served, listing, Origin="https://evil.example").status_code == 403
    assert post(served, listing, Host="evil.example").status_code == 403
    own_page = address(served).removesuffix("/mcp")
    assert post(served, listing, Origin=own_page).status_code == 403  # the secret in a page
    assert post(served, listing, X_Forwarded_For="203.0.113.9").status_code == 403
    large = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "x" * 1_100_000}).encode()
    assert post(served, large).status_code == 413
    assert post(served, b"{").status_code == 400
    assert post(served, b"[" * 100_000).status_code == 400
    assert post(served, listing, Content_Type="text/plain").status_code in {400, 415}
    bearer = {"Authorization": f"Bearer {TOKEN}"}
    got = httpx2.get(address(served), headers=bearer, trust_env=False)
    assert (got.status_code, got.headers["Allow"]) == (405, "POST")
    assert httpx2.get(address(served), trust_env=False).status_code == 401
    assert post(served, listing).status_code == 200
    assert "Traceback" not in served.output


def test_mcp_http_endpoint_is_off_by_default(gateway: Gateway) -> None:
    assert post(gateway, b"{}").status_code == 404


@pytest.mark.slow
async def test_mcp_stdio_survives_a_restart_of_the_gateway(
    start: Callable[..., Gateway], home: Home
) -> None:
    first = start().wait_ready()
    async with over_stdio(home) as client:
        await call(client, "sessions_send", message="MOCK:short")
        first.signal(signal.SIGTERM)
        first.end()
        assert "no gateway" in await refusal(client, "sessions_list")
        start().wait_ready(2)
        assert (await call(client, "sessions_list"))["count"] == 1


def test_mcp_stdio_without_gateway_says_how_to_start_it(home: Home, model_url: str) -> None:
    home.use_model(model_url)
    done = home.run("mcp", "serve")
    assert done.status != 0 and done.out == "" and "homarus gateway run" in done.err


@pytest.mark.slow
async def test_mcp_http_request_that_waits_does_not_delay_a_stop(served: Gateway) -> None:
    async with over_http(served) as client, asyncio.TaskGroup() as group:

        async def wait_in_vain() -> None:
            with suppress(MCPError, httpx2.HTTPError):
                await client.call_tool("sessions_send", {"message": "MOCK:hold"})

        waiting = group.create_task(wait_in_vain())
        async with asyncio.timeout(DEADLINE_S), served.connect() as other:
            status: Any = {}
            while not status.get("sessions"):
                status = await other.call("sessions.list")
        served.signal(signal.SIGTERM)
        log = served.home.path / "log.jsonl"
        await asyncio.to_thread(wait_for, lambda: "gateway stopping" in log.read_text())
        served.signal(signal.SIGTERM)  # the second does not wait for the run
        assert await asyncio.to_thread(served.end) == 0
        waiting.cancel()
    assert "Traceback" not in served.output


def test_mcp_stdio_invalid_line_is_answered_and_end_of_input_ends_it(gateway: Gateway) -> None:
    hello = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    }
    opening = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
    done = gateway.home.run("mcp", "serve", text="{bad\n" + json.dumps(opening) + "\n")
    assert done.status == 0, done.err
    lines = [json.loads(line) for line in done.out.splitlines()]
    [answer] = [line for line in lines if line.get("id") == 1]
    assert answer["result"]["serverInfo"]["name"] == "homarus"
