"""Connect to a gateway, call methods and receive events. For our own commands and for tests.

profile = ClientProfile(GatewaySecret(token="…"), identity)
async with connect_gateway("ws://127.0.0.1:18789", profile) as client:
    print(await client.call("health"))
"""

import asyncio
import json
import platform
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import field
from typing import TYPE_CHECKING, Any, Protocol
from uuid import uuid4

from homarus import __version__
from homarus.config.paths import Paths
from homarus.core.errors import (
    AgentTimeoutError,
    ForbiddenError,
    HomarusError,
    InvalidRequestError,
    NotPairedError,
    ProtocolError,
    UnavailableError,
)
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json
from homarus.core.tasks import task_group
from homarus.gateway.frames import HANDSHAKE_S, MAX_FRAME_BYTES, PROTOCOL
from homarus.gateway.json_file import JsonFile
from homarus.store.lock import lock_holder_pid

if TYPE_CHECKING:
    from homarus.gateway.identity import DeviceIdentity

SCOPES = ("operator.admin", "operator.approvals", "operator.pairing")
_MAX_EVENTS = 100_000
_UPGRADE_REQUIRED = 426
_ERRORS: dict[str, type[ProtocolError]] = {
    kind.wire: kind
    for kind in (
        InvalidRequestError,
        ForbiddenError,
        NotPairedError,
        AgentTimeoutError,
        UnavailableError,
    )
}


@dataclass(frozen=True, slots=True)
class GatewaySecret:
    """The gateway's token or password."""

    token: str = field(default="", repr=False)
    password: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class RunningGateway:
    """A gateway that serves a state directory of this machine."""

    pid: int
    url: str
    config: str = ""  # the config file it uses
    tls_fingerprint: str = ""  # of its certificate
    bound: tuple[str, ...] = ()  # the addresses it listens on
    port: int = 0


def find_running_gateway(paths: Paths) -> RunningGateway | None:
    """Return the gateway of this state directory; None when none runs, or another program."""
    pid = lock_holder_pid(paths.state)
    published = JsonFile(paths.gateway_file).read() if pid else {}
    if not pid or published.get("pid") != pid or not isinstance(published.get("url"), str):
        return None
    bound, port = published.get("bound"), published.get("port")
    return RunningGateway(
        pid,
        str(published["url"]),
        str(published.get("config") or ""),
        str(published.get("tlsFingerprint") or ""),
        tuple(map(str, bound)) if isinstance(bound, list) else (),
        port if isinstance(port, int) else 0,
    )


class ClientSocket(Protocol):
    """The client's end of a connection: a WebSocket, or a pair of queues in one process."""

    @property
    def close_reason(self) -> str | None: ...

    async def send(self, message: str) -> None:
        """Send a frame; raises ConnectionClosed of websockets when the gateway is gone."""
        ...

    def __aiter__(self) -> AsyncIterator[str | bytes]:
        """Return the frames that arrive, until the connection ends."""
        ...


class GatewayClient:
    """An open connection; `hello` is the gateway's response to connect."""

    def __init__(self, socket: ClientSocket, url: str) -> None:
        self._socket, self._url = socket, url
        self._pending: dict[str, Callable[[Mapping[str, Json]], None]] = {}
        self._events: asyncio.Queue[Mapping[str, Json] | None] = asyncio.Queue(_MAX_EVENTS)
        self._last_id = 0
        self.hello: Mapping[str, Json] = {}
        self.close_reason = ""

    async def call(
        self,
        method: str,
        params: Mapping[str, Json] | None = None,
        *,
        final: bool = False,
        timeout_s: float | None = 30.0,
    ) -> Json:
        """Send a request and return its payload; `final` skips a response that only accepts."""
        done: asyncio.Future[Mapping[str, Json]] = asyncio.get_running_loop().create_future()

        def on_response(frame: Mapping[str, Json]) -> None:
            if not (final and _only_accepts(frame)) and not done.done():
                done.set_result(frame)

        self._last_id += 1
        request_id = str(self._last_id)
        self._pending[request_id] = on_response
        try:
            frame = {"type": "req", "id": request_id, "method": method}
            await self._send(frame if params is None else {**frame, "params": dict(params)})
            async with asyncio.timeout(timeout_s):
                response = await done
        except TimeoutError:
            raise UnavailableError(
                f"the gateway did not answer {method} in {timeout_s:g} s"
            ) from None
        finally:
            del self._pending[request_id]
        if not response.get("ok"):
            error = _error(response.get("error"))
            error.payload = response.get("payload")
            raise error
        return response.get("payload")

    async def events(self) -> AsyncIterator[tuple[str, Json]]:
        """Yield the gateway's events, name and payload, until the connection ends."""
        while (frame := await self._events.get()) is not None:
            yield str(frame.get("event")), frame.get("payload")

    async def _send(self, frame: Mapping[str, Json]) -> None:
        from websockets.exceptions import ConnectionClosed

        try:
            await self._socket.send(json.dumps(frame))
        except ConnectionClosed:
            raise self._closed() from None

    async def _read_loop(self) -> None:
        """Dispatch incoming frames until the gateway closes the connection."""
        from websockets.exceptions import ConnectionClosed

        with suppress(ConnectionClosed):
            async for text in self._socket:
                frame = json.loads(text)
                if frame.get("type") == "res":
                    if on_response := self._pending.get(str(frame.get("id"))):
                        on_response(frame)
                elif not self._events.full():
                    self._events.put_nowait(frame)
        self.close_reason = self._socket.close_reason or ""
        closed_frame = {
            "ok": False,
            "error": {"code": "UNAVAILABLE", "message": self._closed().message},
        }
        for on_response in list(self._pending.values()):
            on_response(closed_frame)
        if self._events.full():
            self._events.get_nowait()
        self._events.put_nowait(None)

    def _closed(self) -> UnavailableError:
        reason = f": {self.close_reason}" if self.close_reason else ""
        return UnavailableError(
            f"the gateway at {self._url} closed the connection{reason}",
            fix="homarus gateway status",
        )


@dataclass(frozen=True, slots=True)
class ClientProfile:
    """The client's identity, secret, role and scopes."""

    secret: GatewaySecret = GatewaySecret()
    identity: "DeviceIdentity | None" = None
    client_id: str = "cli"
    mode: str = "cli"
    scopes: Sequence[str] = SCOPES
    caps: Sequence[str] = ("tool-events",)
    protocol: int = PROTOCOL

    def connect_params(self, nonce: str, signed_at_ms: int) -> dict[str, Json]:
        """Return the params of `connect` that answer the gateway's challenge."""
        auth = {"token": self.secret.token, "password": self.secret.password}
        client = {"id": self.client_id, "mode": self.mode, "instanceId": str(uuid4())}
        params: dict[str, Json] = {
            "minProtocol": self.protocol,
            "maxProtocol": self.protocol,
            "client": {**client, "version": __version__, "platform": platform.system().lower()},
            "caps": list(self.caps),
            "role": "operator",
            "scopes": list(self.scopes),
            "auth": {name: value for name, value in auth.items() if value},
        }
        if self.identity:
            params["device"] = self.identity.device_params(
                client_id=self.client_id,
                client_mode=self.mode,
                role="operator",
                scopes=self.scopes,
                signed_at_ms=signed_at_ms,
                token=self.secret.token or None,
                nonce=nonce,
            )
        return params


@asynccontextmanager
async def connect_gateway(
    url: str, profile: ClientProfile, *, tls_fingerprint: str = ""
) -> AsyncIterator[GatewayClient]:
    """Connect and authenticate; the connection is closed when the block ends.

    The certificate of a `wss://` gateway must have the fingerprint, 64 digits, if one is given,
    else it must be trusted by this machine.
    """
    from websockets.asyncio.client import connect
    from websockets.exceptions import WebSocketException

    try:
        socket = await connect(
            url,
            max_size=MAX_FRAME_BYTES,
            max_queue=None,
            compression=None,
            proxy=None,
            open_timeout=HANDSHAKE_S,
            close_timeout=2,
            user_agent_header=None,
            **_tls_options(url, tls_fingerprint),
        )
        async with asyncio.timeout(HANDSHAKE_S):
            challenge = json.loads(await socket.recv())["payload"]
            nonce, at_ms = str(challenge["nonce"]), int(challenge["ts"])
    except (OSError, ValueError, LookupError, TypeError, WebSocketException) as exc:
        raise _unreachable(url, exc) from exc
    async with socket, use_connection(socket, url, profile, nonce, at_ms) as client:
        yield client


@asynccontextmanager
async def use_connection(
    socket: ClientSocket, url: str, profile: ClientProfile, nonce: str, at_ms: int
) -> AsyncIterator[GatewayClient]:
    """Authenticate on an open connection, by the challenge that the gateway sent first."""
    async with task_group() as group:
        client = GatewayClient(socket, url)
        reader = group.create_task(client._read_loop())  # noqa: SLF001 - its own reader
        try:
            params = profile.connect_params(nonce, at_ms)
            hello = await client.call("connect", params, timeout_s=HANDSHAKE_S)
            client.hello = hello if isinstance(hello, dict) else {}
            yield client
        finally:
            reader.cancel()


def _tls_options(url: str, fingerprint: str) -> dict[str, Any]:
    if not url.lower().startswith("wss:"):
        return {}
    if not fingerprint:
        from homarus.net.http_client import tls_context

        return {"ssl": tls_context()}
    from homarus.net.pinned_tls import PinnedTlsContext

    return {"ssl": PinnedTlsContext(fingerprint)}


def _only_accepts(frame: Mapping[str, Json]) -> bool:
    payload = frame.get("payload")
    return isinstance(payload, dict) and payload.get("status") == "accepted"


def _error(error: Json) -> HomarusError:
    if not isinstance(error, dict):
        return UnavailableError("the gateway refused without a reason")
    kind = _ERRORS.get(str(error.get("code")), UnavailableError)
    details = error.get("details")
    return kind(str(error.get("message")), details=details if isinstance(details, dict) else None)


def _unreachable(url: str, exc: Exception) -> UnavailableError:
    import ssl

    if isinstance(exc, ssl.SSLCertVerificationError):
        reason = getattr(exc, "verify_message", "") or exc.args[-1]
        return UnavailableError(
            f"the gateway at {url} is not trusted: {reason}",
            fix="give the fingerprint that `homarus gateway status` prints on its machine, with"
            " --tls-fingerprint or in gateway.remote.tlsFingerprint",
        )
    if isinstance(exc, ssl.SSLError) and "WRONG_VERSION_NUMBER" in str(exc):
        return UnavailableError(f"{url} answers without TLS", fix="use ws:// instead of wss://")
    if getattr(getattr(exc, "response", None), "status_code", 0) == _UPGRADE_REQUIRED:
        return UnavailableError(f"{url} speaks TLS alone", fix="use wss:// instead of ws://")
    reason = exc.strerror if isinstance(exc, OSError) and exc.strerror else str(exc)
    return UnavailableError(
        f"no gateway answers at {url}: {reason or type(exc).__name__}",
        fix="homarus gateway run starts one; homarus gateway status looks for one",
    )
