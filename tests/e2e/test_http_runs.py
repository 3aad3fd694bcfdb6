"""Runs by the HTTP API of the real gateway: what other clients and slow readers do to them."""

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest
from openai import (
    AsyncOpenAI,
    PermissionDeniedError,
    RateLimitError,
    UnprocessableEntityError,
)

from homarus.policy.approvals import APPROVER_CAPABILITY
from tests.e2e.gateway import TOKEN, Gateway, change, connect_client
from tests.e2e.program import DEADLINE_S, Home

pytestmark = pytest.mark.slow

ENDPOINTS = {name: {"enabled": True} for name in ("chatCompletions", "responses")}
COMMAND = 'MOCK:tool:exec:{"command":"touch approved.txt"}§'


@pytest.fixture
def gateway(start: Callable[..., Gateway], home: Home) -> Gateway:
    gateway = {"auth": {"token": TOKEN}, "http": {"endpoints": ENDPOINTS}}
    change(home, gateway=gateway, approvals={"waitSeconds": 1})
    return start().wait_ready()


@asynccontextmanager
async def client_of(gateway: Gateway, **headers: str) -> AsyncIterator[AsyncOpenAI]:
    url = f"http://{urlsplit(gateway.url).netloc}/v1"
    async with AsyncOpenAI(
        base_url=url, api_key=TOKEN, max_retries=0, default_headers=headers
    ) as client:
        yield client


def ask(client: AsyncOpenAI, text: str, **more: Any) -> Any:
    messages = [{"role": "user", "content": text}]
    return client.chat.completions.create(**{"model": "openclaw", "messages": messages, **more})


async def test_run_that_waits_for_approval_is_an_error_until_it_is_answered(
    gateway: Gateway, home: Home
) -> None:
    headers = {"Idempotency-Key": "approved", "x-openclaw-session-key": "agent:main:approved"}
    async with (
        connect_client(gateway, caps=[APPROVER_CAPABILITY]) as (person, events),
        client_of(gateway, **headers) as client,
    ):
        for _ in range(2):  # it stays the same while there is no answer
            with pytest.raises(PermissionDeniedError) as caught:
                await ask(client, COMMAND)
            assert caught.value.code == "approval_pending"
            assert "agent:main:approved" in str(caught.value)
        asked = await events.wait(lambda name, _p: name == "exec.approval.requested")
        await person.call("exec.approval.resolve", {"id": asked["id"], "decision": "allow-once"})
        await events.wait(lambda name, p: name == "chat" and p["state"] == "final")
        found = await ask(client, COMMAND)
        assert found.choices[0].message.content == "Hello from the mock model."
        assert (home.workspace / "approved.txt").exists()
        assert found.usage.prompt_tokens > 0


async def test_stream_of_run_that_waits_for_approval_ends(gateway: Gateway) -> None:
    caps, said = [APPROVER_CAPABILITY], f"MOCK:say:Let me see.§ {COMMAND}"
    async with connect_client(gateway, caps=caps), client_of(gateway) as client:
        stream = await client.responses.create(model="openclaw", input=said, stream=True)
        events = [event async for event in stream]
        with pytest.raises(PermissionDeniedError):
            await client.responses.create(model="openclaw", input=COMMAND, stream=True)
    assert events[-1].type == "response.failed"
    error = events[-1].response.model_dump()["error"]
    assert error["code"] == "approval_pending"


async def test_rate_limit_of_model_has_its_retry_after(gateway: Gateway) -> None:
    async with client_of(gateway) as client:
        with pytest.raises(RateLimitError) as caught:
            await ask(client, "MOCK:fail:429:9:120")
    assert int(caught.value.response.headers["retry-after"]) >= 1


async def test_run_that_a_person_stops_is_not_retried(gateway: Gateway) -> None:
    of = {"sessionKey": "agent:main:stopped"}
    headers = {"x-openclaw-session-key": of["sessionKey"]}
    async with connect_client(gateway) as (person, events), client_of(gateway, **headers) as client:
        async with asyncio.TaskGroup() as tasks:
            asked = tasks.create_task(refused(client, "MOCK:hold"))
            await events.wait(lambda name, p: name == "agent" and p["stream"] == "lifecycle")
            assert (await person.call("chat.abort", of))["aborted"]
        assert asked.result() == "run_stopped"


async def refused(client: AsyncOpenAI, text: str) -> str | None:
    with pytest.raises(UnprocessableEntityError) as caught:
        await ask(client, text)
    return caught.value.code


async def test_client_that_leaves_stops_its_run_without_a_stream(gateway: Gateway) -> None:
    async with connect_client(gateway) as (_person, events), client_of(gateway) as client:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(2):
                await ask(client, "MOCK:hold")
        await events.wait(lambda name, p: name == "chat" and p["state"] == "aborted")


async def test_two_requests_of_a_session_are_two_runs_in_order(gateway: Gateway) -> None:
    async with client_of(gateway) as client, asyncio.TaskGroup() as tasks:
        asked = [
            tasks.create_task(ask(client, f"MOCK:delay:300 MOCK:say:answer {n}§", user="both"))
            for n in range(3)
        ]
    found = [task.result().choices[0].message.content for task in asked]
    assert sorted(found) == ["answer 0", "answer 1", "answer 2"]
    assert len({task.result().id for task in asked}) == 3


async def test_reader_that_is_slow_holds_up_no_run(gateway: Gateway) -> None:
    body = {
        "model": "openclaw",
        "stream": True,
        "messages": [{"role": "user", "content": "MOCK:long:30000:0"}],
    }
    async with connect_client(gateway) as (_person, events):
        slow = await asyncio.to_thread(post, gateway, body)
        try:
            ended = await events.wait(lambda name, p: name == "chat" and p["state"] == "final")
            assert ended["message"]["content"][0]["text"]
            text = await asyncio.to_thread(read_text, slow)
        finally:
            slow.close()
    assert text == ended["message"]["content"][0]["text"]


def post(gateway: Gateway, body: Any) -> socket.socket:
    """Send a request, and read nothing of the response."""
    address = urlsplit(gateway.url)
    assert address.hostname and address.port
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.settimeout(DEADLINE_S)
    sock.connect((address.hostname, address.port))
    data = json.dumps(body).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: {address.netloc}\r\n"
        f"Authorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(data)}\r\nConnection: close\r\n\r\n"
    )
    sock.sendall(head.encode() + data)
    return sock


def read_text(sock: socket.socket) -> str:
    """Read the stream to its end; return its text."""
    received, deadline_s = b"", time.monotonic() + DEADLINE_S
    while b"[DONE]" not in received:
        assert time.monotonic() < deadline_s
        piece = sock.recv(65_536)
        assert piece, received[-200:]
        received += piece
    lines = [line for line in received.split(b"\n") if line.startswith(b"data: {")]
    deltas = [json.loads(line[6:])["choices"][0]["delta"] for line in lines]
    return "".join(delta.get("content") or "" for delta in deltas)
