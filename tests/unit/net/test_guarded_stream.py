"""Streams to checked targets: pinned addresses, and the proxy that the environment names."""

import asyncio

import pytest

from homarus.net.guard import CheckedTarget, parse_url
from homarus.net.guarded_stream import open_guarded_stream
from tests.unit.net.proxy_harness import HELLO, Origin


def make_target(url: str, *addresses: str) -> CheckedTarget:
    return CheckedTarget(*parse_url(url), addresses)


async def test_stream_is_opened_to_the_first_checked_address_that_answers() -> None:
    origin = Origin()
    server = await asyncio.start_server(origin.serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        target = make_target(f"http://no-such-name.test:{port}/", "127.0.0.2", "127.0.0.1")
        reader, writer = await open_guarded_stream(target, 5.0)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert await reader.read() == HELLO
        writer.close()


@pytest.mark.parametrize(
    ("answer", "is_open"),
    [
        (b"HTTP/1.1 200 OK\r\nX: y\r\n\r\nfirst", True),
        (b"HTTP/1.1 403 Forbidden\r\n\r\n", False),
        (b"HTTP/1.1 200 OK\r\n", False),
        (b"SSH-2.0-x\r\n\r\n", False),
    ],
)
async def test_proxy_of_the_environment_gets_the_address_not_the_name(
    answer: bytes, is_open: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = Origin()
    proxy.answer = answer
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        monkeypatch.setenv("https_proxy", f"http://user:pass@127.0.0.1:{port}")
        target = make_target("https://one.test/", "93.184.216.34")
        if is_open:
            reader, writer = await open_guarded_stream(target, 5.0)
            assert await reader.read() == b"first"
            writer.close()
        else:
            with pytest.raises(OSError, match="proxy"):
                await open_guarded_stream(target, 5.0)
    head = proxy.received.decode()
    assert head.startswith("CONNECT 93.184.216.34:443 HTTP/1.1\r\nHost: 93.184.216.34:443\r\n")
    assert "Proxy-Authorization: Basic dXNlcjpwYXNz" in head
    assert "one.test" not in head
