"""Requests to the HTTP API of a gateway without sockets."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from homarus.core.message import Json
from homarus.gateway.device_records import DevicePairingRequest
from homarus.gateway.http_server import GatewayAsgiApp
from homarus.gateway.server import Gateway
from tests.unit.gateway.harness import PORT, TOKEN, Harness, play

Headers = Sequence[tuple[str, str]]
ALL_ENDPOINTS = ("chatCompletions", "responses", "embeddings", "toolsInvoke")


class ApiResponseView:
    """A response."""

    def __init__(self, messages: list[dict[str, Any]]) -> None:
        self.status: int = messages[0]["status"]
        self.headers = {n.decode().lower(): v.decode() for n, v in messages[0]["headers"]}
        self.body = b"".join(message.get("body", b"") for message in messages[1:])

    @property
    def json(self) -> Json:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Json]:
        found: dict[str, Json] = self.json["error"]
        return found


class ApiClient:
    """A program that sends requests to a gateway's application."""

    def __init__(self, gateway: Gateway, token: str = TOKEN, **more: str) -> None:
        self._site, self._gateway = GatewayAsgiApp(gateway), gateway
        self._token, self._more = token, more

    def with_token(self, token: str, **more: str) -> "ApiClient":
        return ApiClient(self._gateway, token, **more)

    async def post(self, path: str, body: Json, **more: Any) -> ApiResponseView:
        return await self.send("POST", path, json.dumps(body).encode(), **more)

    async def get(self, path: str, **more: Any) -> ApiResponseView:
        return await self.send("GET", path, **more)

    async def send(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        *,
        headers: Headers = (),
        kind: str = "application/json",
        pieces: Sequence[bytes] = (),
        peer: str = "127.0.0.1",
        gone: asyncio.Event | None = None,
    ) -> ApiResponseView:
        """Send a request; `pieces` are the body of one without a Content-Length.

        The client disconnects when `gone` is set, else right after its body.
        """
        sent: list[dict[str, Any]] = []
        incoming = list(pieces) or [body]

        async def receive() -> dict[str, Any]:
            if not incoming:
                if gone is not None:
                    await gone.wait()
                return {"type": "http.disconnect"}
            piece = incoming.pop(0)
            return {"type": "http.request", "body": piece, "more_body": bool(incoming)}

        async def send(message: Any) -> None:
            sent.append(dict(message))

        given: list[tuple[str, str]] = [("host", f"127.0.0.1:{PORT}"), *headers]
        if kind:
            given.append(("content-type", kind))
        if not pieces:
            given.append(("content-length", str(len(body))))
        if self._token:
            given.append(("authorization", f"Bearer {self._token}"))
        given += list(self._more.items())
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "root_path": "",
            "scheme": "http",
            "http_version": "1.1",
            "query_string": b"",
            "headers": [(n.encode("latin-1"), v.encode("latin-1")) for n, v in given],
            "client": (peer, 1),
            "server": ("127.0.0.1", PORT),
        }
        await self._site(scope, receive, send)
        return ApiResponseView(sent)


def write_config(folder: Path, *endpoints: str, **more: Json) -> None:
    """Write a config that turns these endpoints on."""
    enabled: Json = {name: {"enabled": True} for name in endpoints}
    gateway: Json = {"http": {"endpoints": enabled}, **more.pop("gateway", {})}
    state = folder / "state"
    state.mkdir(exist_ok=True)
    (state / "openclaw.json").write_text(json.dumps({"gateway": gateway, **more}))


@asynccontextmanager
async def api(
    folder: Path, *endpoints: str, ready: bool = True, **more: Json
) -> AsyncIterator[tuple[ApiClient, Harness]]:
    """Run a gateway with these endpoints."""
    write_config(folder, *endpoints, **more)
    async with play(folder, ready=ready) as stage:
        yield ApiClient(stage.gateway), stage


def pair_device(stage: Harness, *scopes: str, name: str = "d1") -> str:
    """Return the token of a new device with these scopes."""
    wanted = tuple(f"operator.{scope}" for scope in scopes)
    request = DevicePairingRequest(name, "key", "operator", wanted)
    return stage.authenticator.devices.pair(request).tokens["operator"].secret


def as_headers(headers: Mapping[str, str]) -> Headers:
    return tuple(headers.items())
