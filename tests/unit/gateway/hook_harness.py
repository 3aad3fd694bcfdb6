"""A gateway with webhooks on a real port, and what calls them."""

import asyncio
import hashlib
import hmac
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from homarus.core.clock import Clock
from homarus.gateway.http_server import GatewayAsgiApp, HttpServer, open_sockets
from homarus.gateway.listen_address import ListenAddress
from homarus.schedule.turn import TurnRequest
from tests.unit.gateway.harness import Harness, play

GUARD_S = 60.0
HOOK_TOKEN = "hook-token-0123456789"
GITHUB_SECRET = "github-secret-0123456789"
BEARER = f"Authorization: Bearer {HOOK_TOKEN}"
JSON = "Content-Type: application/json"
FORM = "Content-Type: application/x-www-form-urlencoded"


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a request; status 0 is none."""

    status: int
    headers: Mapping[str, str]
    body: Any


class HookCaller:
    """A gateway that serves webhooks, and a client of them."""

    def __init__(self, stage: Harness, port: int, site: GatewayAsgiApp) -> None:
        self.stage, self.port, self.site = stage, port, site

    @property
    def turns(self) -> list[TurnRequest]:
        return list(self.stage.program.turns.values())

    @property
    def refused(self) -> dict[str, int]:
        counters = self.stage.gateway.hook_counters
        return {str(reason): n for reason, n in counters.refused.items()} if counters else {}

    def notices(self, key: str = "agent:main:main") -> list[str]:
        return [each.text for each in self.stage.program.notices.pending(key)]

    async def call(
        self, path: str, *lines: str, body: bytes = b"", verb: str = "POST", length: int = -1
    ) -> Answer:
        """Send one request and return its answer, which is read whole."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        size = len(body) if length < 0 else length
        head = [f"{verb} {path} HTTP/1.1", "Host: hooks.example", f"Content-Length: {size}", *lines]
        writer.write("\r\n".join(head).encode("latin-1") + b"\r\n\r\n" + body)
        try:
            return await _read_answer(reader, has_body=verb != "HEAD")
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def post(self, path: str, payload: object, *lines: str, token: str = BEARER) -> Answer:
        body = json.dumps(payload).encode()
        return await self.call(f"/hooks/{path}", JSON, token, *lines, body=body)

    async def github(
        self,
        event: str,
        payload: object,
        *lines: str,
        secret: str = GITHUB_SECRET,
        delivery: str = "",
    ) -> Answer:
        """Send a delivery as GitHub does, with a real signature."""
        body = json.dumps(payload).encode()
        named = (f"X-GitHub-Delivery: {delivery}",) if delivery else ()
        given = (JSON, f"X-GitHub-Event: {event}", *named, sign(body, secret), *lines)
        return await self.call("/hooks/github", *given, body=body)


def sign(body: bytes, secret: str = GITHUB_SECRET) -> str:
    """Return the header with GitHub's signature of a body."""
    return (
        f"X-Hub-Signature-256: sha256={hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()}"
    )


async def _read_answer(reader: asyncio.StreamReader, *, has_body: bool) -> Answer:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except (asyncio.IncompleteReadError, ConnectionError):
        return Answer(0, {}, None)
    first, *lines = head.strip().split("\r\n")
    headers = {
        name.lower(): value.strip() for name, _, value in (li.partition(":") for li in lines)
    }
    data = await reader.readexactly(int(headers.get("content-length", 0)) if has_body else 0)
    return Answer(int(first.split(" ")[1]), headers, json.loads(data) if data else None)


def write_config(folder: Path, **hooks: object) -> None:
    """Write a config with webhooks; settings override those of the tests."""
    state = folder / "state"
    state.mkdir(exist_ok=True)
    given: dict[str, object] = {"enabled": True, "token": HOOK_TOKEN, **hooks}
    own = {"github": given.pop("github")} if "github" in given else {}
    agents = {"list": [{"id": "main", "default": True}, {"id": "ops"}]}
    (state / "openclaw.json").write_text(json.dumps({"hooks": given, "agents": agents}), "utf-8")
    if own:
        (state / "homarus.json").write_text(json.dumps({"hooks": own}), "utf-8")


@asynccontextmanager
async def serve_hooks(
    folder: Path, *, clock: Clock | None = None, **hooks: object
) -> AsyncIterator[HookCaller]:
    """Serve a gateway with these settings of webhooks."""
    write_config(folder, **hooks)
    async with play(folder, clock=clock) as stage:
        site = GatewayAsgiApp(stage.gateway)
        sockets = open_sockets(ListenAddress("127.0.0.1", 0))
        listener = HttpServer(site, sockets)
        await listener.start()
        try:
            async with asyncio.timeout(GUARD_S):
                yield HookCaller(stage, sockets[0].getsockname()[1], site)
        finally:
            await listener.stop()
