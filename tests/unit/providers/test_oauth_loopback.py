"""The redirect server: which requests it accepts, and what it answers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from homarus.core.errors import UserError
from homarus.providers import oauth_redirect
from homarus.providers.oauth_redirect import (
    RedirectResult,
    RedirectServer,
    open_redirect_server,
    parse_redirect,
)

STATE = "the-state-0123456789"


async def request(redirect: RedirectServer, data: bytes) -> bytes:
    """Send bytes to the server and take all it answers."""
    port = int(redirect.url.split(":")[2].split("/")[0])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(data)
        await writer.drain()
        return await reader.read()
    finally:
        writer.close()


def get(target: str, host: str = "127.0.0.1:1") -> bytes:
    return f"GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode("latin-1")


@asynccontextmanager
async def meet(url: str = "") -> AsyncIterator[RedirectServer]:
    async with open_redirect_server(url, STATE) as redirect:
        yield redirect


GOOD = f"/callback?code=c-1&state={STATE}"


async def test_redirect_valid_request_returns_code_and_page() -> None:
    async with meet() as redirect:
        page = await request(redirect, get(GOOD))
        assert page.startswith(b"HTTP/1.1 200 OK\r\n")
        assert b"c-1" not in page and STATE.encode() not in page
        assert b"no-store" in page and b"default-src 'none'" in page
        assert await redirect.wait() == RedirectResult("c-1")


STRAY = [
    (get("/callback?code=evil&state=wrong"), b"400"),
    (get("/callback?code=evil"), b"400"),
    (get(f"/callback?state={STATE}"), b"400"),
    (get("/favicon.ico"), b"404"),
    (get(f"/callback/x?code=evil&state={STATE}"), b"404"),
    (get(f"//evil.example/callback?code=evil&state={STATE}"), b"404"),
    (get(GOOD, host="evil.example"), b"403"),
    (get(GOOD, host="127.0.0.1.evil.example:80"), b"403"),
    (get(GOOD).replace(b"GET", b"POST"), b"400"),
    (get(GOOD).replace(b"Host: 127.0.0.1:1\r\n", b""), b"400"),
    (get(GOOD).replace(b"\r\n\r\n", b"\r\nHost: localhost\r\n\r\n"), b"400"),
    (b"\r\n\r\n", b"400"),
    (get(f"/callback?code=\xff&state={'x' * 100}"), b"400"),
    (get("/callback?" + "a=1&" * 100), b"400"),
]


@pytest.mark.parametrize(("data", "status"), STRAY, ids=range(len(STRAY)))
async def test_redirect_stray_request_is_ignored(data: bytes, status: bytes) -> None:
    async with meet() as redirect:
        page = await request(redirect, data)
        assert page.split(b" ")[1] == status
        assert b"evil" not in page
        assert (await request(redirect, get(GOOD))).startswith(b"HTTP/1.1 200")
        assert await redirect.wait() == RedirectResult("c-1")


async def test_redirect_endless_head_is_cut_off() -> None:
    async with meet() as redirect:
        assert await request(redirect, b"GET / HTTP/1.1\r\n" + b"x" * 100_000) == b""


async def test_redirect_silent_client_does_not_block(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with meet() as redirect:
        port = int(redirect.url.split(":")[2].split("/")[0])
        _, silent = await asyncio.open_connection("127.0.0.1", port)
        await request(redirect, get(GOOD))
        assert await redirect.wait() == RedirectResult("c-1")
        silent.close()


async def test_redirect_only_first_answer_counts() -> None:
    async with meet() as redirect:
        await request(redirect, get(GOOD))
        await request(redirect, get(f"/callback?code=c-2&state={STATE}"))
        assert (await redirect.wait()).code == "c-1"


async def test_redirect_error_is_returned() -> None:
    async with meet() as redirect:
        page = await request(redirect, get(f"/callback?error=access_denied&state={STATE}"))
        assert b"not granted" in page
        assert await redirect.wait() == RedirectResult("", "access_denied")


async def test_redirect_host_and_path_are_configurable() -> None:
    async with meet("http://localhost/auth/callback") as redirect:
        assert redirect.url.startswith("http://localhost:")
        assert redirect.url.endswith("/auth/callback")
        await request(redirect, get(f"/auth{GOOD}", host="localhost:99"))
        assert (await redirect.wait()).code == "c-1"


@pytest.mark.parametrize(
    "url",
    ["https://127.0.0.1/x", "http://example.com/x", "http://0.0.0.0/x", "http://[", "http://a:b/"],
)
async def test_redirect_foreign_address_is_refused(url: str) -> None:
    with pytest.raises(UserError, match="does not lead to this machine"):
        async with meet(url) as redirect:
            await _nothing(redirect)


async def _nothing(redirect: RedirectServer) -> None:
    """Nothing to do."""


async def test_redirect_port_in_use_is_reported() -> None:
    async def main() -> None:
        async with open_redirect_server("", STATE) as first, open_redirect_server(first.url, STATE):
            pass

    with pytest.raises(UserError, match="cannot listen on port"):
        await main()


def test_redirect_server_listens_on_loopback_only() -> None:
    assert oauth_redirect.HOST == "127.0.0.1"


@pytest.mark.parametrize(
    ("pasted", "answer"),
    [
        (f"http://127.0.0.1:1/callback?code=a%2Fb&state={STATE}", RedirectResult("a/b")),
        (f" http://h/?state={STATE}&code=c \n", RedirectResult("c")),
        (f"c#{STATE}", RedirectResult("c")),
        (f"http://h/?error=denied&state={STATE}", RedirectResult("", "denied")),
        (f"c#{STATE}x", None),
        (f"#{STATE}", None),
        ("c", None),
        (f"http://h/?code=c&state={STATE}é", None),
        ("\ud800#\ud800", None),
    ],
)
def test_redirect_url_is_parsed_and_state_compared(
    pasted: str, answer: RedirectResult | None
) -> None:
    assert parse_redirect(pasted, STATE) == answer
