"""HTTP as model services speak it, on raw sockets: what is kept, what is given up, by which way."""

import asyncio
import datetime
import gzip
import ipaddress
import ssl
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from homarus.net import connection, http_client
from homarus.net.connection import ExchangeError, HttpConnection
from homarus.net.http_client import HttpClient, HttpResponse, proxy_for, request_target

WAIT_S = 30.0
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Server:
    """A socket that does as a test says, and remembers what it was sent."""

    def __init__(self, talk: Talk, context: ssl.SSLContext | None = None) -> None:
        self.heads: list[bytes] = []
        self.bodies: list[bytes] = []
        self.lines = 0
        self.port = 0
        self._talk, self._context = talk, context

    async def __aenter__(self) -> "Server":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._context)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.lines += 1
        try:
            await self._talk(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def read(self, reader: asyncio.StreamReader) -> bytes:
        """One request with its body; its head."""
        head = await reader.readuntil(b"\r\n\r\n")
        self.heads.append(head)
        size = [part for part in head.lower().split(b"\r\n") if part.startswith(b"content-length:")]
        self.bodies.append(await reader.readexactly(int(size[0].split(b":")[1])) if size else b"")
        return head


def answering(*answers: bytes) -> Callable[[Server], Talk]:
    """Answers requests one after the other, on whichever line they come, then hangs up."""
    left = list(answers)

    def of(server: Server) -> Talk:
        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while left:
                await server.read(reader)
                writer.write(left.pop(0))
                await writer.drain()

        return talk

    return of


@asynccontextmanager
async def served(
    make: Callable[[Server], Talk], *, auth: str = "", idle_s: float = WAIT_S, proxy: str = ""
) -> AsyncIterator[tuple[HttpClient, Server]]:
    server: Server
    async with Server(lambda r, w: make(server)(r, w)) as server:
        url = urlsplit(f"http://{auth}127.0.0.1:{server.port}/v1")
        service = HttpClient(url, connect_s=WAIT_S, idle_s=idle_s, proxy=proxy)
        try:
            yield service, server
        finally:
            await service.close()


async def ask(service: HttpClient, body: bytes = b"{}", **headers: str) -> tuple[int, bytes]:
    sent = {"Content-Length": str(len(body)), **headers}
    async with asyncio.timeout(WAIT_S), service.request("POST", "/v1/x?y=1", sent, body) as reply:
        return reply.status, await whole(reply)


async def whole(reply: HttpResponse) -> bytes:
    return b"".join([piece async for piece in reply.iter_body()])


async def failure_kind(make: Callable[[Server], Talk], **settings: Any) -> str:
    async with served(make, **settings) as (service, _):
        with pytest.raises(ExchangeError) as caught:
            await ask(service)
        return caught.value.kind


# What is sent


async def test_request_sends_host_target_and_headers() -> None:
    async with served(answering(OK), auth="me:p%40ss@") as (service, server):
        assert await ask(service, b"abc", Accept="x") == (200, b"ok")
        head = server.heads[0].decode()
        assert head.startswith("POST /v1/x?y=1 HTTP/1.1\r\n")
        assert f"Host: 127.0.0.1:{server.port}\r\n" in head
        assert "Authorization: Basic bWU6cEBzcw==\r\n" in head
        assert "Accept: x\r\n" in head
        assert server.bodies == [b"abc"]


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("http://h", "/"),
        ("http://h/a b/ü?q=ü&r=%20", "/a%20b/%C3%BC?q=%C3%BC&r=%20"),
        ("http://h/v1/models/a%2Fb:stream?alt=sse", "/v1/models/a%2Fb:stream?alt=sse"),
        ("http://h/x\x7f\x01", "/x%7F%01"),
    ],
)
def test_request_target_is_percent_encoded(url: str, target: str) -> None:
    assert request_target(urlsplit(url)) == target


async def test_request_header_with_newline_is_unsendable() -> None:
    async with served(answering(OK)) as (service, server):
        with pytest.raises(ExchangeError) as caught:
            await ask(service, Evil="a\r\nX: 1")
        assert caught.value.kind == "unsendable"
        assert server.heads == []


async def test_request_early_response_during_upload_is_returned() -> None:
    def hasty(_server: Server) -> Talk:
        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            response = (
                b"HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\nConnection: close\r\n\r\nbig"
            )
            writer.write(response)
            await writer.drain()
            while await reader.read(65536):  # else the reset would take the answer along
                pass

        return talk

    async with served(hasty) as (service, _):
        assert await ask(service, b"x" * 3_000_000) == (413, b"big")


# What is kept


async def test_connection_is_reused_after_complete_response() -> None:
    async with served(answering(OK, OK, OK)) as (service, server):
        for _ in range(3):
            assert await ask(service) == (200, b"ok")
        assert server.lines == 1


async def test_connection_closed_by_server_is_not_reused() -> None:
    def once(server: Server) -> Talk:
        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await server.read(reader)
            writer.write(OK)

        return talk

    async def main() -> None:
        async with served(once) as (service, server):
            assert await ask(service) == (200, b"ok")
            async with asyncio.timeout(WAIT_S):
                await service._idle[0].closed
            assert await ask(service) == (200, b"ok")
            assert server.lines == 2

    await main()


@pytest.mark.parametrize("at_once", [True, False])
async def test_connection_unexpected_data_is_not_a_response(*, at_once: bool) -> None:
    late = b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n"
    answered = asyncio.Event()

    def chatty(server: Server) -> Talk:
        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await server.read(reader)
            writer.write(OK + late if at_once else OK)
            await answered.wait()
            writer.write(late)
            await reader.read()

        return talk

    async with served(chatty) as (service, server):
        assert await ask(service) == (200, b"ok")
        kept = list(service._idle)
        answered.set()
        async with asyncio.timeout(WAIT_S):
            for line in kept:
                await line.closed
        assert await ask(service) == (200, b"ok")
        assert server.lines == 2


async def test_connection_idle_past_keep_alive_is_not_reused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_client, "KEEP_ALIVE_S", -1.0)
    async with served(answering(OK, OK)) as (service, server):
        await ask(service)
        await ask(service)
        assert server.lines == 2


async def test_response_left_unread_closes_connection() -> None:
    left = asyncio.Event()

    def endless(server: Server) -> Talk:
        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await server.read(reader)
            writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
            await reader.read()
            left.set()

        return talk

    async with served(endless) as (service, _):
        async with service.request("POST", "/", {"Content-Length": "2"}, b"{}") as reply:
            async for piece in reply.iter_body():
                assert piece == b"a"
                break
        async with asyncio.timeout(WAIT_S):
            await left.wait()
        assert not service._idle


# What comes back


async def test_response_headers_are_joined_and_lower_case() -> None:
    response = b"HTTP/1.1 200 OK\r\nX-A: 1\r\nx-a: \xe9\r\nContent-Length: 0\r\n\r\n"
    async with (
        served(answering(b"HTTP/1.1 100 Continue\r\n\r\n" + response)) as (service, _),
        service.request("POST", "/", {"Content-Length": "0"}, b"") as reply,
    ):
        assert reply.headers["x-a"] == "1, é"


@pytest.mark.parametrize(
    ("name", "pack"), [("gzip", gzip.compress), ("deflate", zlib.compress), ("identity", bytes)]
)
async def test_response_compressed_body_is_decompressed(
    name: str, pack: Callable[[bytes], bytes]
) -> None:
    body = b"data: hello\n\n" * 100_000
    packed = pack(body)
    head = f"HTTP/1.1 200 OK\r\nContent-Encoding: {name}\r\nContent-Length: {len(packed)}\r\n\r\n"
    async with served(answering(head.encode() + packed)) as (service, _):
        async with service.request("POST", "/", {"Content-Length": "0"}, b"") as reply:
            pieces = [piece async for piece in reply.iter_body()]
        assert b"".join(pieces) == body
        assert max(len(piece) for piece in pieces) <= http_client.CHUNK_BYTES


async def test_response_unread_body_is_not_buffered() -> None:
    chunk = b"10000\r\n" + b"x" * 65536 + b"\r\n"
    sent = 0

    def flood(server: Server) -> Talk:
        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal sent
            await server.read(reader)
            writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            for _ in range(2_000):
                writer.write(chunk)
                await writer.drain()
                sent += len(chunk)
            writer.write(b"0\r\n\r\n")
            await writer.drain()

        return talk

    async def main() -> None:
        async with (
            served(flood) as (service, _),
            service.request("POST", "/", {"Content-Length": "0"}, b"") as reply,
        ):
            before = -1
            while before != sent:  # until it is stuck
                before = sent
                await asyncio.sleep(0.2)
            assert sent < 64_000_000
            received = 0
            async for piece in reply.iter_body():  # and it goes on where it stopped
                received += len(piece)
            assert received == 2_000 * 65536

    await main()


@pytest.mark.parametrize(
    ("response", "kind"),
    [
        (b"", "cut"),
        (b"nonsense\r\n\r\n", "cut"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"y" * 200_000, "cut"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", "cut"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "cut"),
        (b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc", "cut"),
    ],
)
async def test_response_malformed_is_a_cut(response: bytes, kind: str) -> None:
    assert await failure_kind(answering(response)) == kind


async def test_response_missing_times_out_as_silent() -> None:
    def mute(server: Server) -> Talk:
        async def talk(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
            await server.read(reader)
            await reader.read()

        return talk

    assert await failure_kind(mute, idle_s=0.05) == "silent"


async def test_request_unread_by_server_times_out_as_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection, "SLICE_BYTES", 8_000_000)
    stop = asyncio.Event()

    def deaf(_server: Server) -> Talk:
        async def talk(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
            await stop.wait()

        return talk

    async with served(deaf, idle_s=0.1) as (service, _):
        with pytest.raises(ExchangeError) as caught:
            await ask(service, b"x" * 60_000_000)
        assert caught.value.kind == "silent"
        stop.set()


# Proxies, and whom to trust


async def test_proxy_for_http_gets_absolute_url() -> None:
    proxy: Server
    async with Server(lambda r, w: answering(OK)(proxy)(r, w)) as proxy:
        service = HttpClient(
            urlsplit("http://model.example/v1"),
            connect_s=WAIT_S,
            idle_s=WAIT_S,
            proxy=f"http://me:secret@127.0.0.1:{proxy.port}",
        )
        assert await ask(service) == (200, b"ok")
        await service.close()
        head = proxy.heads[0].decode()
        assert head.startswith("POST http://model.example/v1/x?y=1 HTTP/1.1\r\n")
        assert "Host: model.example\r\n" in head
        assert "Proxy-Authorization: Basic bWU6c2VjcmV0\r\n" in head


async def test_proxy_for_https_tunnels_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(make_certificate(tmp_path)))
    seen = bytearray()
    async with Server(lambda r, w: answering(OK, OK)(server)(r, w), tls(tmp_path)) as server:

        async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            head = await proxy.read(reader)
            assert head.startswith(b"CONNECT localhost:443 HTTP/1.1\r\n")
            away, there = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            async with asyncio.TaskGroup() as group:
                group.create_task(pump(reader, there))
                group.create_task(pump(away, writer))

        async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            while data := await source.read(65536):
                seen.extend(data)
                sink.write(data)
            sink.close()

        async with Server(carry) as proxy:
            service = HttpClient(
                urlsplit("https://localhost/v1"),
                connect_s=WAIT_S,
                idle_s=WAIT_S,
                proxy=f"http://127.0.0.1:{proxy.port}",
            )
            assert await ask(service, b"a private question") == (200, b"ok")
            assert await ask(service) == (200, b"ok")
            assert proxy.lines == 1
            await service.close()
            assert b"private" not in seen
            assert b"Authorization" not in proxy.heads[0]


async def test_proxy_refusal_is_unreachable() -> None:
    refusal = b"HTTP/1.1 407 No\r\nContent-Length: 0\r\n\r\n"
    proxy: Server
    async with Server(lambda r, w: answering(refusal)(proxy)(r, w)) as proxy:
        for address, message in (
            (f"http://127.0.0.1:{proxy.port}", "answered 407"),
            (f"socks5://127.0.0.1:{proxy.port}", "socks5 proxy"),
            ("http://[::1", "not one"),
            ("http://127.0.0.1:99999", "not one"),
        ):
            url = urlsplit("https://model.example/v1")
            service = HttpClient(url, connect_s=WAIT_S, idle_s=WAIT_S, proxy=address)
            with pytest.raises(ExchangeError, match=message) as caught:
                await ask(service)
            assert caught.value.kind == "unreachable"
            await service.close()


async def test_proxy_disconnect_is_unreachable() -> None:
    async def hang_up(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await proxy.read(reader)

    async with Server(hang_up) as proxy:
        url = urlsplit("https://model.example/v1")
        address = f"http://127.0.0.1:{proxy.port}"
        service = HttpClient(url, connect_s=WAIT_S, idle_s=WAIT_S, proxy=address)
        with pytest.raises(ExchangeError) as caught:
            await ask(service)
        assert caught.value.kind == "unreachable"
        await service.close()


async def test_connection_closed_refuses_request() -> None:
    line = HttpConnection(WAIT_S, lambda _: None)
    line.eof_received()
    with pytest.raises(ExchangeError) as caught:
        await line.send_request("POST", "/", [(b"Host", b"x")], b"")
    assert caught.value.kind == "unreachable"


async def test_tls_self_signed_certificate_is_not_trusted(tmp_path: Path) -> None:
    make_certificate(tmp_path)
    async with Server(lambda r, w: answering(OK)(server)(r, w), tls(tmp_path)) as server:
        url = urlsplit(f"https://localhost:{server.port}/v1")
        service = HttpClient(url, connect_s=WAIT_S, idle_s=WAIT_S, proxy="")
        with pytest.raises(ExchangeError, match=r"(?i)certificate") as caught:
            await ask(service)
        assert caught.value.kind == "unreachable"
        await service.close()


@pytest.mark.parametrize(
    ("env", "url", "proxy"),
    [
        ({}, "https://a.example/", ""),
        ({"HTTPS_PROXY": "http://p:1"}, "https://a.example/", "http://p:1"),
        ({"HTTPS_PROXY": "http://p:1"}, "http://a.example/", ""),
        ({"ALL_PROXY": "p:1"}, "http://a.example/", "http://p:1"),
        ({"ALL_PROXY": "http://p:1", "NO_PROXY": "a.example"}, "http://a.example/", ""),
        ({"ALL_PROXY": "http://p:1", "NO_PROXY": "b.example"}, "http://u:p@b.example:8/", ""),
        ({"ALL_PROXY": "http://p:1", "NO_PROXY": "*"}, "https://a.example/", ""),
    ],
)
def test_proxy_for_reads_the_environment(
    monkeypatch: pytest.MonkeyPatch, env: dict[str, str], url: str, proxy: str
) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    assert proxy_for(urlsplit(url)) == proxy


def make_certificate(folder: Path) -> Path:
    """A certificate for localhost that no system trusts; its key is next to it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    plain = serialization.NoEncryption()
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    (folder / "key.pem").write_bytes(pem)
    file = folder / "certificate.pem"
    file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    return file


def tls(folder: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "certificate.pem", folder / "key.pem")
    return context
