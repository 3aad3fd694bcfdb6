"""Guarded fetches over real sockets: pinning, redirects, limits, proxies."""

import asyncio
import gzip
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from homarus.core.errors import BlockedUrlError, FetchError
from homarus.net.guard import NetworkPolicy
from homarus.net.guarded_fetch import FetchedResponse, FetchLimits, guarded_fetch
from tests.unit.net.test_http_client import make_certificate, tls

Answer = Callable[[str], bytes]  # the head of a request → the response
HOSTS = ("one.test", "two.test", "localhost")
POLICY = NetworkPolicy(allowed_hosts=frozenset(HOSTS))


async def resolve(_host: str, _port: int) -> Sequence[str]:
    return ("127.0.0.1",)


@asynccontextmanager
async def server(
    answer: Answer, context: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[int, list[str]]]:
    """Yield the port of a server, and the heads and bodies of the requests it receives."""
    heads: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            heads.append(head)
            if head.startswith("CONNECT"):
                writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                heads.append(head)
            writer.write(answer(head))
            await writer.drain()
        except (OSError, EOFError):
            pass
        finally:
            writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    async with listening:
        yield listening.sockets[0].getsockname()[1], heads


def respond(body: bytes = b"", status: str = "200 OK", **headers: str) -> bytes:
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *lines]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


async def fetch(url: str, **options: Any) -> FetchedResponse:
    return await guarded_fetch(url, policy=POLICY, resolve=resolve, **options)


async def test_fetch_connects_to_the_checked_address_with_the_name() -> None:
    async with server(lambda _head: respond(b"hello", X_A="1")) as (port, heads):
        answer = await fetch(f"http://one.test:{port}/a b?q=é#f".replace(" ", "%20"))
    assert (answer.status, answer.body, answer.headers["x-a"]) == (200, b"hello", "1")
    assert heads[0].startswith("GET /a%20b?q=%C3%A9 HTTP/1.1")
    assert f"Host: one.test:{port}\r\n" in heads[0]


async def test_fetch_redirect_to_another_origin_drops_credentials() -> None:
    def answer(head: str) -> bytes:
        host = "two.test" if "GET /first" in head else ""
        return (
            respond(status="302 Found", Location=f"http://{host}:{port}/x")
            if host
            else respond(b"x")
        )

    async with server(answer) as (port, heads):
        secret = {"Authorization": "k", "Cookie": "c", "X-Key": "k", "Accept": "text/html"}
        done = await fetch(f"http://one.test:{port}/first", headers=secret)
    assert done.url == f"http://two.test:{port}/x"
    assert "Authorization: k" in heads[0] and "X-Key: k" in heads[0]
    for name in ("Authorization", "Cookie", "X-Key"):
        assert name not in heads[1]
    assert "Accept: text/html" in heads[1]


@pytest.mark.parametrize(
    "location",
    ["http://127.0.0.1/", "//169.254.169.254/", "file:///etc/passwd", "http://three.test/"],
)
async def test_fetch_redirect_to_a_private_address_is_refused(location: str) -> None:
    async with server(lambda _head: respond(status="301 Moved", Location=location)) as (
        port,
        heads,
    ):
        with pytest.raises(BlockedUrlError):
            await fetch(f"http://one.test:{port}/")
    assert len(heads) == 1


async def test_fetch_redirects_are_bounded() -> None:
    async with server(lambda _head: respond(status="302 F", Location="/again")) as (port, heads):
        with pytest.raises(BlockedUrlError, match="more than 2 redirects"):
            await fetch(f"http://one.test:{port}/", limits=FetchLimits(max_redirects=2))
    assert len(heads) == 3


async def test_fetch_post_becomes_get_after_a_redirect_or_is_refused() -> None:
    def answer(head: str) -> bytes:
        if "/see" in head:
            return respond(status="303 See Other", Location="/done")
        if "/temporary" in head:
            return respond(status="307 T", Location=f"http://two.test:{port}/")
        return respond(b"ok")

    async with server(answer) as (port, heads):
        base = f"http://one.test:{port}"
        assert (await fetch(f"{base}/see", method="POST", body=b"x=1")).body == b"ok"
        assert heads[1].startswith("GET /done") and "Content-Length" not in heads[1]
        with pytest.raises(BlockedUrlError, match="would send data"):
            await fetch(f"{base}/temporary", method="POST", body=b"x=1")


async def test_fetch_body_is_bounded_also_after_decompression() -> None:
    bomb = gzip.compress(b"\0" * 5_000_000)
    limits = FetchLimits(max_bytes=1000)
    async with server(lambda _head: respond(bomb, Content_Encoding="gzip")) as (port, _):
        url = f"http://one.test:{port}/"
        assert len(bomb) > 1000
        with pytest.raises(FetchError, match="larger than 1000 bytes"):
            await fetch(url, limits=limits)
        with pytest.raises(FetchError, match="is larger"):
            await fetch(url, limits=FetchLimits(max_bytes=len(bomb)))
        cut = await fetch(url, limits=FetchLimits(max_bytes=1000, truncates=True))
    assert cut.is_truncated and cut.body == b"\0" * 1000


async def test_fetch_unknown_compression_is_refused() -> None:
    async with server(lambda _head: respond(b"x", Content_Encoding="gzip, gzip")) as (port, _):
        with pytest.raises(FetchError, match="compressed"):
            await fetch(f"http://one.test:{port}/")


async def test_fetch_slow_or_endless_response_times_out() -> None:
    async with server(lambda _head: b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx") as (port, _):
        with pytest.raises(FetchError):
            await fetch(f"http://one.test:{port}/")
    head = b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 30_000
    async with server(lambda _head: head) as (port, _):
        with pytest.raises(FetchError):
            await fetch(f"http://one.test:{port}/", limits=FetchLimits(total_s=5))


async def test_fetch_proxy_is_given_the_checked_address(monkeypatch: pytest.MonkeyPatch) -> None:
    async with server(lambda _head: respond(b"through")) as (port, heads):
        monkeypatch.setenv("http_proxy", f"http://me:pw@127.0.0.1:{port}")
        monkeypatch.setenv("no_proxy", "")
        answer = await fetch("http://one.test:8080/a", headers={"X-A": "1"})
        with pytest.raises(BlockedUrlError):
            await fetch("http://10.0.0.1/")
    assert answer.body == b"through"
    assert heads[0].startswith("CONNECT 127.0.0.1:8080 ") and "Proxy-Authorization" in heads[0]
    assert heads[1].startswith("GET /a ") and "Host: one.test:8080" in heads[1]
    assert "Proxy-Authorization" not in heads[1] and len(heads) == 2


async def test_fetch_tries_the_next_checked_address() -> None:
    async def both(_host: str, _port: int) -> Sequence[str]:
        return ("127.0.0.2", "127.0.0.1")

    async with server(lambda _head: respond(b"ok")) as (port, _):
        url = f"http://one.test:{port}/"
        assert (await guarded_fetch(url, policy=POLICY, resolve=both)).body == b"ok"


async def test_fetch_tls_is_verified_by_the_name_and_not_the_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(make_certificate(tmp_path)))
    context, names = tls(tmp_path), list[str | None]()
    context.sni_callback = lambda _socket, name, _context: names.append(name)
    async with server(lambda _head: respond(b"safe"), context) as (port, heads):
        assert (await fetch(f"https://localhost:{port}/")).body == b"safe"
        # The certificate is also for 127.0.0.1, where this name leads.
        with pytest.raises(FetchError, match=r"two\.test"):
            await fetch(f"https://two.test:{port}/")
    assert names == ["localhost", "two.test"] and len(heads) == 1
