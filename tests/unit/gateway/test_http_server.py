"""The HTTP side: the door on every path, the page, health, figures."""

import asyncio
import gzip
import json
import socket
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from uvicorn.protocols.utils import ClientDisconnected
from websockets.protocol import State
from websockets.server import ServerProtocol

from homarus.core.errors import UserError
from homarus.gateway.http_routes import page_files
from homarus.gateway.http_server import GatewayAsgiApp, WebSocketProtocol, open_sockets
from homarus.gateway.listen_address import ListenAddress
from tests.unit.gateway.harness import PORT, TOKEN, play

HERE = {"host": f"127.0.0.1:{PORT}"}
KNOWN = {**HERE, "authorization": f"Bearer {TOKEN}"}


class Got:
    """A response."""

    def __init__(self, messages: list[dict[str, Any]]) -> None:
        start = messages[0]
        self.status: int = start["status"]
        self.headers = {name.decode(): value.decode() for name, value in start["headers"]}
        body = b"".join(message.get("body", b"") for message in messages[1:])
        if self.headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        self.body = body.decode()


async def get(
    site: GatewayAsgiApp,
    path: str,
    headers: Mapping[str, str] = HERE,
    *,
    kind: str = "http",
    query: bytes = b"",
    verb: str = "GET",
) -> Got:
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request" if kind == "http" else "websocket.connect"}

    async def send(message: Any) -> None:
        sent.append(dict(message))

    scope = {
        "type": kind,
        "method": verb,
        "path": path,
        "root_path": "",
        "scheme": "http",
        "http_version": "1.1",
        "query_string": query,
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", PORT),
        "extensions": {"homarus.wire": {"wire": SimpleNamespace()}},
    }
    await site(scope, receive, send)
    return Got(sent)


async def look(folder: Path, path: str, *, ready: bool = True, **options: Any) -> Got:
    found: list[Got] = []
    site_options = {name: options.pop(name) for name in ("page", "metrics") if name in options}
    async with play(folder, ready=ready) as stage:
        found.append(await get(GatewayAsgiApp(stage.gateway, **site_options), path, **options))
    return found[0]


async def test_health_route_reports_readiness(tmp_path: Path) -> None:
    live = await look(tmp_path, "/health")
    assert (live.status, json.loads(live.body)) == (200, {"ok": True, "status": "live"})
    starting = await look(tmp_path, "/health", ready=False)
    assert (starting.status, json.loads(starting.body)["status"]) == (503, "starting")


async def test_page_has_no_inline_script_and_strict_csp(tmp_path: Path) -> None:
    page = await look(tmp_path, "/")
    assert page.status == 200 and page.headers["content-type"].startswith("text/html")
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy and "*" not in policy
    assert "frame-ancestors 'none'" in policy
    assert page.headers["x-content-type-options"] == "nosniff"
    scripts = [part.split(">")[0] for part in page.body.split("<script")[1:]]
    assert scripts and all("src=" in script for script in scripts)
    assert " style=" not in page.body and " on" + "click=" not in page.body


async def test_page_files_are_served_with_their_type(tmp_path: Path) -> None:
    kinds = {"html": "text/html", "js": "text/javascript", "css": "text/css"}
    assert "index.html" in page_files()
    for name in page_files():
        got = await look(tmp_path, f"/{name}")
        assert got.status == 200 and got.headers["content-type"].startswith(
            kinds[name.rpartition(".")[2]]
        )


async def test_page_file_that_browser_has_is_not_sent_again(tmp_path: Path) -> None:
    first = await look(tmp_path, "/")
    assert first.headers["cache-control"] == "no-cache"
    known = {**HERE, "if-none-match": f'"other", W/{first.headers["etag"]}'}
    again = await look(tmp_path, "/", headers=known)
    assert (again.status, again.body) == (304, "")
    assert "content-security-policy" in again.headers
    changed = await look(tmp_path, "/", headers={**HERE, "if-none-match": '"other"'})
    assert changed.status == 200 and changed.body == first.body


async def test_page_file_is_compressed_for_browsers(tmp_path: Path) -> None:
    plain = await look(tmp_path, "/chat.js")
    packed = await look(tmp_path, "/chat.js", headers={**HERE, "accept-encoding": "gzip, br"})
    assert packed.headers["content-encoding"] == "gzip" and packed.headers["vary"]
    assert packed.body == plain.body
    assert packed.headers["etag"] == f"W/{plain.headers['etag']}"
    assert int(packed.headers["content-length"]) * 2 < int(plain.headers["content-length"])


@pytest.mark.parametrize(
    "path", ["/nothing", "/static/index.html", "/../http.py", "//etc/passwd", "/%2e%2e/http.py"]
)
async def test_unknown_path_is_404_for_authorized_clients(tmp_path: Path, path: str) -> None:
    got = await look(tmp_path, path, headers=KNOWN)
    assert (got.status, got.body) == (404, "Not Found")
    assert (await look(tmp_path, path)).status == 401


async def test_page_can_be_disabled(tmp_path: Path) -> None:
    assert (await look(tmp_path, "/", page=False, headers=KNOWN)).status == 404
    assert (await look(tmp_path, "/health", page=False)).status == 200


async def test_post_is_refused_on_every_route(tmp_path: Path) -> None:
    assert (await look(tmp_path, "/", verb="POST")).status == 405
    assert (await look(tmp_path, "/health", verb="DELETE")).status == 405


REFUSED = [
    ({"host": "evil.example"}, b"", 403),
    ({}, b"", 403),
    ({**HERE, "origin": "https://evil.example"}, b"", 403),
    ({**HERE, "origin": "null"}, b"", 403),
    (HERE, b"token=abc", 400),
    (HERE, b"x=1&Access_Token=abc", 400),
]


@pytest.mark.parametrize("kind", ["http", "websocket"])
@pytest.mark.parametrize(("headers", "query", "status"), REFUSED)
async def test_origin_policy_applies_to_every_path(
    tmp_path: Path, kind: str, headers: dict[str, str], query: bytes, status: int
) -> None:
    for path in ("/", "/health", "/nothing"):
        got = await look(tmp_path, path, headers=headers, query=query, kind=kind)
        assert got.status == status and "abc" not in got.body


async def test_own_page_origin_is_accepted(tmp_path: Path) -> None:
    assert (
        await look(tmp_path, "/health", headers={**HERE, "origin": f"http://{HERE['host']}"})
    ).status == 200


async def test_metrics_need_config_and_authorization(tmp_path: Path) -> None:
    assert (await look(tmp_path, "/metrics", headers=KNOWN)).status == 404
    assert (await look(tmp_path, "/metrics", metrics=True)).status == 401
    got = await look(tmp_path, "/metrics", metrics=True, headers=KNOWN)
    assert got.status == 200 and "homarus_connections 0\n" in got.body
    for line in got.body.splitlines():
        assert line.startswith("# ") or float(line.split()[1]) >= 0
    wrong = {**HERE, "authorization": "Bearer wrong"}
    assert (await look(tmp_path, "/metrics", metrics=True, headers=wrong)).status == 401


def test_port_in_use_raises_with_a_fix() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match=f"port {port}: Address already in use") as caught:
            open_sockets(ListenAddress("127.0.0.1", port))
    assert "--port" in caught.value.fix


async def test_websocket_sets_tcp_nodelay() -> None:
    """asyncio switches the delay off only for sockets that say they are TCP."""
    first, *others = open_sockets(ListenAddress("127.0.0.1", 0, ("::1",)))
    accepted: asyncio.Queue[Any] = asyncio.Queue()
    server = await asyncio.start_server(lambda _r, w: accepted.put(w), sock=first)
    async with server:
        _, writer = await asyncio.open_connection(*first.getsockname())
        served = await accepted.get()
        sock = served.get_extra_info("socket")
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        for each in (writer, served):
            each.close()
            await each.wait_closed()
    for other in others:
        other.close()


async def test_write_to_a_client_that_closes_is_a_disconnect() -> None:
    protocol = ServerProtocol(state=State.CLOSING)
    writable = asyncio.Event()
    writable.set()
    wire: Any = SimpleNamespace(
        writable=writable, disconnected=False, close_sent=False, conn=protocol
    )
    with pytest.raises(ClientDisconnected):
        await WebSocketProtocol.write(wire, ["text"])
