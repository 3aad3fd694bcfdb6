"""The allow-listing proxy over real sockets: what it connects to, and what it refuses."""

import asyncio
import logging
import ssl
from pathlib import Path

import pytest

from homarus.net.allow_proxy import MAX_ACCESSES, ProxyAccess, ProxyLimits
from homarus.net.guard import CheckedTarget, NetworkPolicy
from tests.unit.net.proxy_harness import LOCAL, ProxyHarness, Resolver, run_proxy
from tests.unit.net.test_http_client import make_certificate, tls
from tests.waiting import until

ORIGIN = "http://one.test:{port}"
CHUNKED = "Transfer-Encoding: chunked\r\n"


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


# Allowed requests


async def test_request_for_an_allowed_host_reaches_it_without_proxy_headers() -> None:
    async with run_proxy() as harness:
        answer = await harness.get(
            f"{ORIGIN}/a/b?q=1",
            "Host: other.test",
            "Proxy-Authorization: Basic c2VjcmV0",
            "Proxy-Connection: keep-alive",
            "Connection: keep-alive, X-Own, Host",
            "X-Own: removed",
            "Keep-Alive: timeout=5",
            "Upgrade: websocket",
            "TE: trailers",
            "X-Sent: yes",
        )
        assert status(answer) == 200
        assert answer.endswith(b"hello")
        lines = harness.origin.received.decode().split("\r\n")
        assert lines[0] == "GET /a/b?q=1 HTTP/1.1"
        assert lines[1] == f"Host: one.test:{harness.origin.port}"
        names = [line.partition(":")[0].lower() for line in lines[1:] if line]
        assert names == ["host", "x-sent", "connection"]
        assert "Connection: close" in lines


async def test_request_without_path_asks_for_the_root_with_its_query() -> None:
    async with run_proxy() as harness:
        assert status(await harness.get(f"{ORIGIN}?a=b")) == 200
        assert harness.origin.received.startswith(b"GET /?a=b HTTP/1.1\r\n")


async def test_body_of_a_request_is_sent_after_100_continue() -> None:
    async with run_proxy() as harness:
        harness.origin.answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
        answer = await _post_in_two_steps(harness)
        assert answer.startswith(b"HTTP/1.1 100")
        assert answer.endswith(b"ok")
        assert b"expect" not in harness.origin.received.lower()
        assert b"3\r\nabc\r\n0\r\n\r\n" in harness.origin.received


async def _post_in_two_steps(harness: ProxyHarness) -> bytes:
    reader, writer = await harness.connect()
    writer.write(
        f"POST http://one.test:{harness.origin.port}/ HTTP/1.1\r\nHost: x\r\n"
        "Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    )
    first = await reader.readuntil(b"\r\n\r\n")
    writer.write(b"3\r\nabc\r\n0\r\nTrailer-Field: dropped\r\n\r\n")
    rest = await reader.read()
    writer.close()
    return first + rest


async def test_response_is_sent_without_headers_of_the_connection() -> None:
    async with run_proxy() as harness:
        harness.origin.answer = (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 99\r\n"
            b"Connection: X-Hop\r\nX-Hop: 1\r\nKeep-Alive: 1\r\nX-Kept: 1\r\n\r\n"
            b"5\r\nhello\r\n0\r\n\r\n"
        )
        head, _, body = (await harness.get(f"{ORIGIN}/")).partition(b"\r\n\r\n")
        lower = head.lower()
        assert b"x-kept: 1" in lower
        assert b"x-hop" not in lower
        assert b"keep-alive" not in lower
        assert b"content-length" not in lower
        assert body == b"5\r\nhello\r\n0\r\n\r\n"


@pytest.mark.parametrize(
    "answer", [b"nonsense\r\n\r\n", b"", b"HTTP/1.1 200 OK\r\nX: " + b"y" * 40_000]
)
async def test_invalid_response_of_a_server_gives_a_502(answer: bytes) -> None:
    async with run_proxy() as harness:
        harness.origin.answer = answer
        assert status(await harness.get(f"{ORIGIN}/")) == 502


async def test_response_that_is_cut_is_cut_for_the_client() -> None:
    async with run_proxy() as harness:
        harness.origin.answer = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhal"
        answer = await harness.get(f"{ORIGIN}/")
        assert answer.endswith(b"\r\n\r\nhal")
        assert b"502" not in answer


async def test_tunnel_carries_tls_of_the_origin(tmp_path: Path) -> None:
    certificate = make_certificate(tmp_path)
    policy = NetworkPolicy(allowed_hosts=frozenset({"localhost"}))
    async with run_proxy("localhost:{port}", policy=policy, context=tls(tmp_path)) as harness:
        reader, writer = await harness.connect()
        place = f"localhost:{harness.origin.port}"
        writer.write(f"CONNECT {place} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
        trusted = ssl.create_default_context(cafile=certificate)
        await writer.start_tls(trusted, server_hostname="localhost")
        writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert (await reader.read()).endswith(b"hello")
        writer.close()
        assert harness.proxy.accesses == (ProxyAccess(place),)


async def test_bytes_sent_together_with_connect_reach_the_origin() -> None:
    async with run_proxy() as harness:
        answer = await harness.send(
            "CONNECT one.test:{port} HTTP/1.1\r\nHost: x\r\n\r\nGET / HTTP/1.1\r\n\r\n"
        )
        assert answer.endswith(b"hello")
        assert harness.origin.received == b"GET / HTTP/1.1\r\n\r\n"


# Refused targets


@pytest.mark.parametrize(
    "url",
    [
        "http://other.test/",
        "http://one.test/",  # only another port of it is listed
        "http://sub.one.test:{port}/",
        "http://one.test.evil.test:{port}/",
        "http://localhost:{port}/",
        "http://127.0.0.1:{port}/",
        "http://2130706433:{port}/",
        "http://0x7f000001:{port}/",
        "http://0177.0.0.1:{port}/",
        "http://127.1:{port}/",
        "http://[::1]:{port}/",
        "http://[::ffff:127.0.0.1]:{port}/",
        "http://[0:0:0:0:0:ffff:7f00:1]:{port}/",
        "http://[64:ff9b::7f00:1]:{port}/",
        "http://169.254.169.254/latest/meta-data/",
        "http://[fd00:ec2::254]/",
        "http://metadata.google.internal/",
        "http://10.0.0.1/",
        "http://one.test\\@evil.test:{port}/",
        "http://one.test:{port}@evil.test/",
        "http://user:secret@one.test:{port}/",
        "http://one.test:99999/",
    ],
)
async def test_request_for_a_host_that_is_not_listed_is_refused(url: str) -> None:
    async with run_proxy() as harness:
        answer = await harness.get(url)
        assert status(answer) == 403
        assert b"sandbox.network.allow" in answer
        assert b"secret" not in answer
        assert harness.origin.connections == 0
        assert harness.resolver.names == []  # a lookup could carry data out


@pytest.mark.parametrize(
    "place", ["other.test:443", "one.test:22", "127.0.0.1:{port}", "[::1]:{port}", "2130706433:80"]
)
async def test_tunnel_to_a_place_that_is_not_listed_is_refused(place: str) -> None:
    async with run_proxy() as harness:
        answer = await harness.send(f"CONNECT {place} HTTP/1.1\r\nHost: one.test\r\n\r\n")
        assert status(answer) == 403
        assert harness.resolver.names == []


@pytest.mark.parametrize(
    ("entry", "place"),
    [
        ("127.0.0.1:{port}", "127.0.0.1:{port}"),
        ("localhost:{port}", "localhost:{port}"),
        ("169.254.169.254", "169.254.169.254:80"),
        ("10.0.0.1", "10.0.0.1:80"),
        ("[64:ff9b::7f00:1]:443", "[64:ff9b::7f00:1]:443"),
        ("*.two.test:{port}", "a.two.test:{port}"),
    ],
)
async def test_listed_place_that_is_not_public_is_refused_by_the_guard(
    entry: str, place: str
) -> None:
    async with run_proxy(entry, policy=NetworkPolicy()) as harness:
        for request in (f"CONNECT {place}", f"GET http://{place}/"):
            answer = await harness.send(f"{request} HTTP/1.1\r\nHost: x\r\n\r\n")
            assert status(answer) == 403
            assert b"sandbox.network.allow, but" in answer
        assert harness.origin.connections == 0


async def test_literal_address_is_allowed_where_both_lists_have_it() -> None:
    policy = NetworkPolicy(allowed_hosts=frozenset({"127.0.0.1"}))
    async with run_proxy("127.0.0.1:{port}", policy=policy) as harness:
        assert status(await harness.get("http://2130706433:{port}/")) == 200


async def test_host_that_the_owner_blocks_is_refused_though_it_is_listed() -> None:
    policy = NetworkPolicy(allowed_hosts=LOCAL.allowed_hosts, blocked_hosts=frozenset({"one.test"}))
    async with run_proxy(policy=policy) as harness:
        assert status(await harness.get(f"{ORIGIN}/")) == 403


async def test_name_with_one_private_address_is_refused() -> None:
    resolver = Resolver(("93.184.216.34", "192.168.1.1"))
    async with run_proxy("a.test", policy=NetworkPolicy(), resolver=resolver) as harness:
        answer = await harness.get("http://a.test/")
        assert status(answer) == 403
        assert b"192.168.1.1" in answer


async def test_name_is_resolved_once_and_its_second_answer_is_checked() -> None:
    opened: list[tuple[str, ...]] = []

    async def fail(target: CheckedTarget, _timeout_s: float) -> None:
        opened.append(target.addresses)
        raise ConnectionRefusedError(111, "Connection refused")

    resolver = Resolver(("93.184.216.34",), ("127.0.0.1",))
    async with run_proxy(
        "a.test", policy=NetworkPolicy(), resolver=resolver, open_stream=fail
    ) as harness:
        assert status(await harness.get("http://a.test/")) == 502
        assert resolver.names == ["a.test"]
        assert status(await harness.get("http://a.test/")) == 403
        assert opened == [("93.184.216.34",)]


async def test_port_that_is_listed_need_not_be_one_of_web_servers() -> None:
    async def fail(_target: object, _timeout_s: float) -> None:
        raise TimeoutError

    resolver = Resolver(("93.184.216.34",))
    async with run_proxy(
        "a.test:22", policy=NetworkPolicy(), resolver=resolver, open_stream=fail
    ) as harness:
        assert status(await harness.send("CONNECT a.test:22 HTTP/1.1\r\nHost: x\r\n\r\n")) == 504


async def test_unknown_name_gives_a_502_with_the_name() -> None:
    async with run_proxy("a.test", policy=NetworkPolicy(), resolver=Resolver(())) as harness:
        answer = await harness.get("http://a.test/")
        assert status(answer) == 502
        assert b"a.test" in answer


# Invalid requests


@pytest.mark.parametrize(
    "head",
    [
        "POST {url} HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
        "POST {url} HTTP/1.1\r\nHost: a\r\nContent-Length: 3, 4\r\n\r\nabcd",
        "POST {url} HTTP/1.1\r\nHost: a\r\nContent-Length: +3\r\n\r\nabc",
        "POST {url} HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n{chunked}\r\n0\r\n\r\n",
        "POST {url} HTTP/1.1\r\nHost: a\r\n{chunked}Transfer-Encoding: identity\r\n\r\n",
        "POST {url} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        "POST {url} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        "POST {url} HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "GET {url} HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        "GET {url} HTTP/1.1\r\n\r\n",
        "GET {url} HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n",
        "GET {url} HTTP/1.1\r\nHost: a\r\nX\0: a\r\n\r\n",
        "GET {url}#fragment HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET {url} HTTP/1.1 GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: one.test:{port}\r\n\r\n",
        "GET https://one.test:{port}/ HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET ftp://one.test:{port}/ HTTP/1.1\r\nHost: a\r\n\r\n",
        "CONNECT one.test HTTP/1.1\r\nHost: a\r\n\r\n",
        "CONNECT one.test: HTTP/1.1\r\nHost: a\r\n\r\n",
        "CONNECT http://one.test:{port} HTTP/1.1\r\nHost: a\r\n\r\n",
        "CONNECT a@one.test:{port} HTTP/1.1\r\nHost: a\r\n\r\n",
        "CONNECT one.test:{port} HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc",
        "\x16\x03\x01\x02\x00\x01\x00",
    ],
)
async def test_ambiguous_or_invalid_request_is_refused(head: str) -> None:
    async with run_proxy() as harness:
        answer = await harness.send(
            head.replace("{url}", f"{ORIGIN}/").replace("{chunked}", CHUNKED)
        )
        assert status(answer) in {400, 501}
        assert harness.origin.connections == 0


async def test_second_request_on_a_connection_is_not_served() -> None:
    async with run_proxy() as harness:
        one = f"GET {ORIGIN}/ HTTP/1.1\r\nHost: a\r\n\r\n"
        answer = await harness.send(one + "GET http://evil.test/ HTTP/1.1\r\nHost: a\r\n\r\n")
        assert answer.count(b"HTTP/1.1") == 1
        assert b"evil" not in harness.origin.received
        assert harness.origin.connections == 1


async def test_head_that_is_too_long_is_refused() -> None:
    async with run_proxy() as harness:
        answer = await harness.get(f"{ORIGIN}/", "Host: a", f"X: {'y' * 70_000}")
        assert status(answer) == 431
        assert harness.origin.connections == 0


# Limits


async def test_head_that_is_not_complete_in_time_ends_the_connection() -> None:
    async with run_proxy(limits=ProxyLimits(head_s=0.05)) as harness:
        assert status(await harness.send("GET http://one.test/ HTTP/1.1\r\n")) == 408


async def test_idle_tunnel_is_closed() -> None:
    async with run_proxy(limits=ProxyLimits(idle_s=0.1)) as harness:
        answer = await harness.send("CONNECT one.test:{port} HTTP/1.1\r\nHost: x\r\n\r\n")
        assert status(answer) == 200


async def test_total_time_of_a_connection_is_limited() -> None:
    async with run_proxy(limits=ProxyLimits(total_s=0.1)) as harness:
        answer = await harness.send("CONNECT one.test:{port} HTTP/1.1\r\nHost: x\r\n\r\n")
        assert status(answer) == 200


async def test_further_connections_wait_until_one_ends() -> None:
    async with run_proxy(limits=ProxyLimits(connections=1)) as harness:
        reader, writer = await harness.connect()
        writer.write(f"CONNECT one.test:{harness.origin.port} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        await reader.readuntil(b"\r\n\r\n")
        async with asyncio.TaskGroup() as group:
            second = group.create_task(harness.get(f"{ORIGIN}/"))
            await until(lambda: harness.origin.connections == 1)
            assert not second.done()
            writer.close()
        assert status(second.result()) == 200


async def test_client_that_does_not_read_stops_the_origin() -> None:
    async with run_proxy() as harness:
        size = 40_000_000
        harness.origin.answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size
        harness.origin.answer += bytes(size)
        reader, writer = await harness.connect()
        assert isinstance(writer.transport, asyncio.Transport)
        writer.transport.pause_reading()
        url = f"http://one.test:{harness.origin.port}/"
        writer.write(f"GET {url} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        await until(lambda: harness.origin.sent_bytes > 0)
        await asyncio.sleep(0.1)
        assert harness.origin.sent_bytes < size / 2
        writer.transport.resume_reading()
        received = 0
        while part := await reader.read(1 << 20):
            received += len(part)
        assert received > size
        writer.close()


async def test_message_of_tiny_chunks_does_not_block_the_gateway() -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with run_proxy() as harness, asyncio.TaskGroup() as group:
        counter = group.create_task(count())
        chunks = "1\r\na\r\n" * 5_000
        answer = await harness.send(
            f"POST {ORIGIN}/ HTTP/1.1\r\nHost: a\r\n{CHUNKED}\r\n{chunks}0\r\n\r\n"
        )
        counter.cancel()
        assert status(answer) == 200
        assert turns > 5_000 / 40


async def test_cancelled_proxy_closes_its_port_and_its_connections() -> None:
    async with run_proxy() as harness:
        reader, writer = await harness.connect()
        writer.write(f"CONNECT one.test:{harness.origin.port} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        await reader.readuntil(b"\r\n\r\n")
    with pytest.raises(OSError, match=r"."):
        await harness.connect()
    assert await _read_rest(reader) == b""
    writer.close()


async def _read_rest(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read()
    except ConnectionError:
        return b""


# What is recorded


async def test_hosts_are_recorded_once_and_without_paths_or_secrets(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    seen: list[ProxyAccess] = []
    async with run_proxy(on_access=seen.append) as harness:
        for _ in range(2):
            await harness.get(f"{ORIGIN}/secret?token=secret", "Host: a", "Cookie: secret")
            await harness.get("http://other.test/secret?token=secret")
            await harness.get("http://secret:secret@other.test/")
        place = f"one.test:{harness.origin.port}"
        refused = ProxyAccess("other.test:80", "is not in sandbox.network.allow")
        assert seen == [ProxyAccess(place), refused]
        assert harness.proxy.accesses == tuple(seen)
    assert "secret" not in caplog.text


async def test_number_of_recorded_hosts_is_bounded() -> None:
    async with run_proxy() as harness:
        for number in range(MAX_ACCESSES + 5):
            await harness.get(f"http://h{number}.test/")
        assert len(harness.proxy.accesses) == MAX_ACCESSES
