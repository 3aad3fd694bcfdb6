"""The port with TLS: pages and sockets inside it, an answer to plain HTTP, bounds before it."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from websockets.asyncio.client import connect

from homarus.config.gateway_schema import GatewayConfig
from homarus.config.paths import Paths
from homarus.core.clock import SystemClock
from homarus.core.errors import UnavailableError
from homarus.gateway.auth import SharedSecretAuth
from homarus.gateway.client import ClientProfile, GatewaySecret, connect_gateway
from homarus.gateway.connection_slots import ConnectionSlots
from homarus.gateway.handshake import ConnectionAuthenticator
from homarus.gateway.http_server import GatewayAsgiApp, HttpProtocol, HttpServer, open_sockets
from homarus.gateway.identity import DeviceIdentity
from homarus.gateway.listen_address import ListenAddress
from homarus.gateway.server import Gateway
from homarus.gateway.tls import GatewayTls
from homarus.net.pinned_tls import PinnedTlsContext
from tests.unit.gateway.harness import TOKEN, play
from tests.waiting import until

TLS = {"tls": {"enabled": True}}


@dataclass
class Port:
    """A gateway with a self-made certificate on a port of its own."""

    number: int
    site: GatewayAsgiApp
    tls: GatewayTls
    folder: Path

    @property
    def own(self) -> str:
        return f"127.0.0.1:{self.number}"

    def trusted(self) -> ssl.SSLContext:
        """Return a context that trusts the certificate and checks its names, as a browser does."""
        file = self.folder / "state/gateway/tls/gateway-cert.pem"
        context = ssl.create_default_context(cafile=str(file))
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        return context

    async def open(
        self, context: ssl.SSLContext | None = None
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.number, ssl=context)

    async def ask(self, text: str, context: ssl.SSLContext | None = None) -> str:
        reader, writer = await self.open(context)
        writer.write(text.replace("\n", "\r\n").encode())
        answer = await reader.read(65_536)
        writer.close()
        return answer.decode()


@asynccontextmanager
async def port(folder: Path) -> AsyncIterator[Port]:
    paths = Paths.find({"HOME": str(folder), "OPENCLAW_STATE_DIR": str(folder / "state")})
    settings, clock = GatewayConfig.model_validate(TLS), SystemClock()
    async with play(folder) as stage:
        sockets = open_sockets(ListenAddress("127.0.0.1", 0))
        number: int = sockets[0].getsockname()[1]
        authenticator = ConnectionAuthenticator.from_config(
            settings, SharedSecretAuth("token", TOKEN), number, paths.state, clock
        )
        gateway: Gateway = stage.gateway
        gateway.authenticator = authenticator
        tls = GatewayTls(settings.tls, paths, clock)
        site = GatewayAsgiApp(gateway, tls=tls)
        listener = HttpServer(site, sockets)
        await listener.start()
        try:
            yield Port(number, site, tls, folder)
        finally:
            await listener.stop()


async def test_page_is_served_inside_tls_with_security_headers(tmp_path: Path) -> None:
    async with port(tmp_path) as it:
        request = f"GET / HTTP/1.1\nHost: {it.own}\nConnection: close\n\n"
        answer = await it.ask(request, it.trusted())
        assert answer.startswith("HTTP/1.1 200") and "content-security-policy" in answer
        own_page = f"GET /health HTTP/1.1\nHost: {it.own}\nOrigin: https://{it.own}\n\n"
        assert (await it.ask(own_page, it.trusted())).startswith("HTTP/1.1 200")
        plain_page = own_page.replace("https:", "http:")
        assert (await it.ask(plain_page, it.trusted())).startswith("HTTP/1.1 403")


async def test_plain_request_is_redirected_or_told_to_use_tls(tmp_path: Path) -> None:
    async with port(tmp_path) as it:
        page = await it.ask(f"GET /chat?session=x HTTP/1.1\nHost: {it.own}\n\n")
        assert page.startswith("HTTP/1.1 307") and f"location: https://{it.own}/chat\r\n" in page
        for request in (
            f"GET / HTTP/1.1\nHost: evil.example:{it.number}\n\n",
            f"POST / HTTP/1.1\nHost: {it.own}\nContent-Length: 0\n\n",
            (
                f"GET / HTTP/1.1\nHost: {it.own}\nUpgrade: websocket\nConnection: Upgrade\n"
                "Sec-WebSocket-Version: 13\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\n\n"
            ),
        ):
            answer = await it.ask(request)
            assert answer.startswith("HTTP/1.1 426"), answer
            assert "https:// or wss://" in answer and "location" not in answer
        secret = await it.ask(f"GET /?token=x HTTP/1.1\nHost: {it.own}\n\n")
        assert secret.startswith("HTTP/1.1 400")
        assert (await it.ask("\x80\x80\x80\n\n")).startswith("HTTP/1.1 400")


async def test_redirect_cannot_be_given_another_header(tmp_path: Path) -> None:
    async with port(tmp_path) as it:
        path = "/%0d%0aSet-Cookie:%20a//evil.example"
        answer = await it.ask(f"GET {path} HTTP/1.1\nHost: {it.own}\n\n")
        assert f"location: https://{it.own}/%0d%0aSet-Cookie%3A%20a//evil.example\r\n" in answer


async def test_client_with_the_fingerprint_connects_and_others_do_not(tmp_path: Path) -> None:
    identity = DeviceIdentity.load_or_create(tmp_path / "me.json", 1)
    profile = ClientProfile(GatewaySecret(TOKEN), identity)
    async with port(tmp_path) as it:
        url = f"wss://{it.own}"
        async with connect_gateway(url, profile, tls_fingerprint=it.tls.fingerprint) as client:
            assert client.hello["server"]
        with pytest.raises(UnavailableError, match="has another fingerprint") as wrong:
            async with connect_gateway(url, profile, tls_fingerprint="ab" * 32):
                pass
        assert "--tls-fingerprint" in wrong.value.fix
        with pytest.raises(UnavailableError, match=r"not trusted: .*self.signed"):
            async with connect_gateway(url, profile):
                pass
        with pytest.raises(UnavailableError, match="speaks TLS alone"):
            async with connect_gateway(f"ws://{it.own}", profile):
                pass
        assert len(it.site.slots) == 0


async def test_large_frames_pass_through_tls_unchanged(tmp_path: Path) -> None:
    identity = DeviceIdentity.load_or_create(tmp_path / "me.json", 1)
    profile = ClientProfile(GatewaySecret(TOKEN), identity)
    async with port(tmp_path) as it:
        pinned = PinnedTlsContext(it.tls.fingerprint)
        async with connect(f"wss://{it.own}", ssl=pinned, max_size=None, proxy=None) as socket:
            challenge = json.loads(await socket.recv())["payload"]
            params = profile.connect_params(challenge["nonce"], challenge["ts"])
            frame = {"type": "req", "id": "1", "method": "connect", "params": params}
            await socket.send(json.dumps(frame))
            assert json.loads(await socket.recv())["ok"]
            big = {"type": "req", "id": "2", "method": "nothing", "params": {"x": "y" * 900_000}}
            await socket.send(json.dumps(big))
            async for text in socket:
                if json.loads(text).get("id") == "2":
                    break


async def test_connections_are_bounded_before_the_tls_handshake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ConnectionSlots, "max_per_address", 5)
    async with port(tmp_path) as it:
        silent = [await it.open() for _ in range(4)]
        half = await it.open()
        half[1].write(b"\x16\x03\x01\x02\x00")  # a handshake that does not go on
        await until(lambda: len(it.site.slots) == 5)
        newest = await it.open()
        assert await silent[0][0].read() == b""  # the oldest one is ended
        assert len(it.site.slots) == 5
        for _, writer in (*silent, half, newest):
            writer.close()
        await until(lambda: len(it.site.slots) == 0)


async def test_silent_connection_and_handshake_time_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HttpProtocol, "timeout_s", 0.05)
    async with port(tmp_path) as it:
        silent, half = await it.open(), await it.open()
        half[1].write(b"\x16\x03\x01")
        for reader, _ in (silent, half):
            async with asyncio.timeout(30):
                assert await reader.read() == b""
        for _, writer in (silent, half):
            writer.close()
        await until(lambda: len(it.site.slots) == 0)


async def test_garbage_handshake_ends_only_its_connection(tmp_path: Path) -> None:
    async with port(tmp_path) as it:
        reader, writer = await it.open()
        writer.write(b"\x16" + bytes(range(256)) * 300)
        await reader.read()
        writer.close()
        await until(lambda: len(it.site.slots) == 0)
        request = f"GET /health HTTP/1.1\nHost: {it.own}\nConnection: close\n\n"
        assert (await it.ask(request, it.trusted())).startswith("HTTP/1.1 200")


async def test_shutdown_ends_connections_without_a_request(tmp_path: Path) -> None:
    async with port(tmp_path) as it:
        silent, half = await it.open(), await it.open()
        half[1].write(b"\x16\x03")
        await until(lambda: len(it.site.slots) == 2)
    for reader, writer in (silent, half):
        async with asyncio.timeout(30):
            with suppress(ConnectionResetError):
                assert await reader.read() == b""
        writer.close()
