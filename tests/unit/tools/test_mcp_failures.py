"""Servers that hang, flood, exit or break the rules: one clear error, and the pool recovers."""

import asyncio
import json
import resource
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from homarus.core.retry import Backoff
from homarus.tools.mcp import connection, pool
from tests.unit.tools.mcp_builders import World, open_world, script
from tests.waiting import until

pytestmark = pytest.mark.timeout(120)
MAX_GROWTH_KB = 80_000  # one message of the maximum length, parsed, is far below


def peak_kb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


@pytest.mark.parametrize(
    ("mode", "reason"),
    [
        ("hang", "did not answer in 2 s"),
        ("flood", "it floods us with messages"),
        ("giant", "it sent a message of more than 16 MB"),
        ("exit", "its program ended with status 3; it wrote: the disk is full"),
        ("schema", "breaks its own schema of act: result.n: required, and missing"),
        ("protocol", "breaks the protocol"),
    ],
)
async def test_misbehaving_server_gives_one_clear_error_and_recovers(
    tmp_path: Path, mode: str, reason: str
) -> None:
    timeout_s = 2 if mode == "hang" else 60
    async with open_world(tmp_path, {"raw": script("raw", mode, timeout=timeout_s)}) as world:
        await world.begin_run()
        before_kb = peak_kb()
        result = await world.call("raw__act")
        assert result.is_error and reason in result.text
        assert "EXTERNAL_UNTRUSTED_CONTENT" in result.text  # the reason may be the server's words
        assert peak_kb() - before_kb < MAX_GROWTH_KB
        await until(lambda: mode in ("schema", "protocol") or is_free(world), 0.01)
        world.reload(world.configs[0].model_copy(update={"mcp": _repaired(world)}))
        assert "fine" in (await world.call("raw__act", text="fine")).text


def is_free(world: World) -> bool:
    return not world.loader.get_pool().connections


def _repaired(world: World) -> Any:
    return world.configs[0].mcp.model_validate({"servers": {"raw": script("raw")}})


async def test_huge_result_is_cut_to_the_size_of_every_tool(tmp_path: Path) -> None:
    async with open_world(tmp_path, {"raw": script("raw", "huge")}) as world:
        await world.begin_run()
        result = await world.call("raw__act")
        assert not result.is_error and len(result.text) < 40_000


async def test_server_that_prints_a_greeting_is_understood(tmp_path: Path) -> None:
    async with open_world(tmp_path, {"raw": script("raw", "noise")}) as world:
        assert await world.begin_run() == {"raw__act"}


async def test_requests_of_a_server_are_refused(tmp_path: Path) -> None:
    async with open_world(tmp_path, {"raw": script("raw", "requests")}) as world:
        await world.begin_run()
        text = (await world.call("raw__act")).text
        answers = json.loads(text[text.index("{") : text.rindex("}") + 1])
        assert all(code < 0 for code in answers.values()) and len(answers) == 3


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (script("raw", "deaf", connectTimeout=1), "was not ready in 1 s"),
        (script("raw", "garbage", connectTimeout=1), "was not ready in 1 s"),
        (script("raw", "babble"), "it prints what is no message: Welcome to my server!"),
        (script("raw", "broken"), "it wrote: no configuration file"),
        ({"command": "no-such-program-here"}, "there is no program no-such-program-here"),
        ({"command": "sh", "cwd": "/no/such/folder"}, "No such file or directory"),
        ({"url": "http://127.0.0.1:9/mcp"}, "http://127.0.0.1:9/mcp cannot be reached"),
        ({"url": "http://a.example", "transport": "sse"}, "sse is not supported"),
        ({"url": "http://a.example", "auth": "oauth"}, "OAuth logins are not supported"),
    ],
)
async def test_server_that_cannot_be_used_says_why(
    tmp_path: Path, settings: dict[str, Any], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_world(tmp_path, {"raw": settings}) as world:
        assert not await world.begin_run()
        assert reason in caplog.text
        started = len(caplog.records)
        assert not await world.begin_run()  # it is not tried again by every run
        assert len(caplog.records) == started


async def test_server_that_fails_again_is_tried_after_a_delay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "BACKOFF", Backoff(first_s=600, max_s=600))
    servers = {"raw": script("raw")}
    async with open_world(tmp_path, servers) as world:
        await world.begin_run()
    async with open_world(tmp_path, {"raw": script("raw", "broken")}) as world:
        for _ in range(2):
            assert "no configuration file" in (await world.call("raw__act")).text
        text = (await world.call("raw__act")).text
        assert "failed 2 times in a row, and is tried again in" in text


async def test_missing_extra_is_one_error_with_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_world(tmp_path, {"raw": script("raw")}) as world:
        await world.begin_run()

    def fail(name: str) -> None:
        raise ModuleNotFoundError("No module named 'mcp'", name="mcp")

    monkeypatch.setattr(connection, "import_module", fail)
    async with open_world(tmp_path, {"raw": script("raw")}) as world:
        result = await world.call("raw__act")
        assert result.is_error and "homarus[mcp]" in result.text


Responder = Callable[[str], bytes]


@asynccontextmanager
async def serve_http(respond: Responder) -> AsyncIterator[str]:
    """Answer each request with what `respond` makes of its first line; return the address."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = [line for line in head.lower().split(b"\r\n") if b"content-length" in line]
        if length:
            await reader.readexactly(int(length[0].partition(b":")[2]))
        writer.write(respond(head.split(b"\r\n")[0].decode()))
        with suppress(ConnectionError):
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}/mcp"


def plain(status: str, *headers: str, body: bytes = b"") -> Responder:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *headers]
    return lambda _line: "\r\n".join([*lines, "", ""]).encode() + body


@pytest.mark.parametrize(
    ("respond", "reason"),
    [
        (plain("401 Unauthorized"), "it answered 401: it needs a login; set the header"),
        (plain("302 Found", "Location: http://127.0.0.2/secret"), "not followed"),
        (plain("307 Temporary", "Location: http://127.0.0.2/secret"), "not followed"),
        (plain("200 OK", "Content-Type: text/html", body=b"<p>"), "content type: text/html"),
        (plain("500 Oops"), "it answered 500"),
        (
            plain("200 OK", "Content-Type: application/json", body=b"x" * (17 << 20)),
            "longer than 16777216 bytes",
        ),
    ],
)
async def test_http_server_that_fails_says_why(
    tmp_path: Path, respond: Responder, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with serve_http(respond) as url, open_world(tmp_path, {"far": {"url": url}}) as world:
        assert not await world.begin_run()
        assert reason in caplog.text


async def test_redirect_to_another_origin_gets_no_request(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        other.setblocking(False)
        port = other.getsockname()[1]
        respond = plain("307 Temporary", f"Location: http://127.0.0.1:{port}/mcp")
        async with serve_http(respond) as url, open_world(tmp_path, {"far": {"url": url}}) as world:
            assert not await world.begin_run()
        with pytest.raises(BlockingIOError):
            other.accept()
