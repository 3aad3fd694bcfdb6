"""A gateway with TLS: our own commands, browsers' requests, and a phone that is let in."""

import json
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from typing import Any

import httpx2
import pytest
from websockets.asyncio.client import ClientConnection, connect

from homarus.core.clock import SystemClock
from homarus.gateway.client import ClientProfile, GatewaySecret
from homarus.gateway.identity import DeviceIdentity
from homarus.net.pinned_tls import PinnedTlsContext, parse_fingerprint
from tests.e2e.gateway import TOKEN, Gateway, change, closed_with, wait_for
from tests.e2e.program import DEADLINE_S, Home, Terminal
from tests.unit.gateway.tls_files import write_certificate

Start = Callable[..., Gateway]


@pytest.fixture
def gateway(home: Home, start: Start) -> Gateway:
    change(home, gateway={"auth": {"token": TOKEN}, "tls": {"enabled": True}, "bind": "lan"})
    return start().wait_ready()


def published(home: Home) -> Any:
    return json.loads((home.state / "gateway.json").read_text())


def approve_command(output: str) -> str:
    return output.rpartition("homarus devices approve ")[2].split()[0]


@asynccontextmanager
async def phone(gateway: Gateway) -> AsyncIterator[tuple[ClientConnection, dict[str, Any]]]:
    """Connect as a device that is not on this machine; yield the answer to `connect`."""
    home = gateway.home
    identity = DeviceIdentity.load_or_create(home.path / "phone.json", 1)
    profile = ClientProfile(GatewaySecret(TOKEN), identity)
    pinned = PinnedTlsContext(published(home)["tlsFingerprint"])
    elsewhere = {"X-Forwarded-For": "192.0.2.9"}
    async with connect(
        gateway.url, ssl=pinned, additional_headers=elsewhere, proxy=None, open_timeout=DEADLINE_S
    ) as socket:
        challenge = json.loads(await socket.recv())["payload"]
        params = profile.connect_params(challenge["nonce"], challenge["ts"])
        params["client"] |= {"displayName": "Ann's phone"}
        frame = {"type": "req", "id": "hello", "method": "connect", "params": params}
        await socket.send(json.dumps(frame))
        async for text in socket:
            answer = json.loads(text)
            if answer.get("id") == "hello":
                yield socket, answer
                return


async def test_phone_is_shown_and_let_in_over_tls(gateway: Gateway, home: Home) -> None:
    with closing(Terminal(home, "chat")) as chat:
        chat.wait_for("/help for commands")
        async with phone(gateway) as (_, answer):
            assert not answer["ok"] and answer["error"]["code"] == "NOT_PAIRED", answer
        chat.wait_for("waits for your approval")
    wait_for(lambda: "waits for your approval" in gateway.output)
    assert "Ann's phone (" in gateway.output and TOKEN not in gateway.output
    assert "waits for your approval" in home.run("status").out
    done = home.run("devices", "approve", approve_command(gateway.output))
    assert done.status == 0 and "Ann's phone" in done.out, done.err
    async with phone(gateway) as (socket, answer):
        assert answer["ok"], answer
        device_id = json.loads((home.path / "phone.json").read_text())["deviceId"]
        assert home.run("devices", "remove", device_id[:10]).status == 0
        assert await closed_with(socket) == 1008
    async with phone(gateway) as (_, answer):
        assert answer["error"]["code"] == "NOT_PAIRED"


def test_tls_gateway_serves_commands_and_trusting_browsers(gateway: Gateway, home: Home) -> None:
    assert gateway.url.startswith("wss://127.0.0.1:")
    status = home.run("gateway", "status", "--json").json
    pin = parse_fingerprint(status["tlsFingerprint"])
    assert pin == published(home)["tlsFingerprint"] and pin
    assert all(f"The page: {link}" in gateway.output for link in status["links"])
    there = ("health", "--url", gateway.url, "--token", TOKEN, "--tls-fingerprint")
    wrong = home.run(*there, "ab" * 32)
    assert wrong.status == 1 and "has another fingerprint" in wrong.err

    authority = ssl.create_default_context(
        cafile=str(home.state / "gateway" / "tls" / "gateway-cert.pem")
    )
    authority.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    address = gateway.url.removeprefix("wss://")
    with httpx2.Client(trust_env=False, verify=authority) as client:
        assert client.get(f"https://{address}/health").json() == {"ok": True, "status": "live"}
        moved = client.get(f"http://{address}/")
        assert (moved.status_code, moved.headers["location"]) == (307, f"https://{address}/")
    with httpx2.Client(trust_env=False) as client, pytest.raises(httpx2.ConnectError):
        client.get(f"https://{address}/health")


def test_expired_certificate_refuses_the_start_and_names_it(home: Home) -> None:
    cert, key = write_certificate(home.path, now_ms=SystemClock().now_ms(), days=(-9, -2))
    tls = {"enabled": True, "certPath": str(cert), "keyPath": str(key)}
    home.configure({"gateway": {"auth": {"token": TOKEN}, "tls": tls}})
    done = home.run("gateway", "run", "--port", "0")
    assert done.status == 2 and f"the certificate in {cert} has expired on" in done.err
    assert "renew it" in done.err and not (home.state / "gateway.json").exists()
