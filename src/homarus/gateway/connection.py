"""One WebSocket connection: the handshake, concurrent requests, responses and events.

Requests of one connection run concurrently and may be answered out of order. Outgoing frames wait
in a bounded buffer: a client that does not read loses the events it can do without and is sent
their number; when the buffer still grows, the connection is closed. An exception in one request is
caught here and answers only that request.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias
from uuid import uuid4

from homarus.config.change_log import set_change_author
from homarus.core.errors import (
    HomarusError,
    InvalidRequestError,
    ProtocolError,
    StoreError,
    UnavailableError,
    UserError,
)
from homarus.core.message import Json
from homarus.gateway import frames
from homarus.gateway.device_records import VOIDED_REASON
from homarus.gateway.frames import (
    HANDSHAKE_S,
    MAX_BUFFERED_BYTES,
    MAX_UNSCOPED_VALUES,
    MAX_VALUES,
    NEWEST_PROTOCOL,
    RequestFrame,
)
from homarus.gateway.method import Caller, Method, MethodCall

if TYPE_CHECKING:
    from homarus.gateway.connect_params import ConnectParams
    from homarus.gateway.server import Gateway

log = logging.getLogger(__name__)

SLOW_BYTES = 8 * 1024 * 1024  # of events; responses, which the client requested, may exceed it
UNSCOPED_BYTES = 2 * 1024 * 1024  # of responses to a client without scopes
MAX_IN_FLIGHT = 256
_BATCH_BYTES = 64 * 1024
POLICY, TOO_OLD, RESTART, NO_BINARY = 1008, 1002, 1012, 1003
# Methods for nodes only.
_NODE_METHODS = frozenset({"node.invoke.result", "node.event", "skills.bins"})
_STARTS_RUNS = frozenset({"agent", "chat.send", "wake", "send"})

AsgiReceive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
AsgiSend: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class SocketTransport(Protocol):
    """The socket operations that ASGI does not offer."""

    async def write(self, texts: Sequence[str]) -> None:
        """Send frames, waiting while the client is behind. Raises OSError when it is gone."""
        ...

    def allow(self, max_bytes: int) -> None:
        """Accept messages up to this size from now on: the client is authenticated."""
        ...

    def close_now(self, code: int, reason: str) -> None:
        """Close now and discard what is buffered."""
        ...


class Connection:
    """The gateway's side of a client's WebSocket."""

    def __init__(
        self,
        gateway: "Gateway",
        transport: SocketTransport,
        receive: AsgiReceive,
        send: AsgiSend,
        scope: Mapping[str, Any] | None = None,
    ) -> None:
        self.id = str(uuid4())
        self.nonce = str(uuid4())
        self.scope: Mapping[str, Any] = scope or {}
        self.caller: Caller | None = None
        self.claims: ConnectParams | None = None  # what a node says of itself
        self.token_issued_ms = self.connected_ms = 0
        self._gateway, self._transport = gateway, transport
        self._receive, self._send = receive, send
        self._out: deque[str] = deque()
        self._close_frame: tuple[int, str] | None = None  # the close frame to send when all is sent
        self._wakeup = asyncio.Event()
        self._in_flight: set[str] = set()  # ids of requests that are not answered yet
        self._closing = False
        self.buffered_bytes = 0
        self.dropped = 0  # events dropped since the last `gap` event

    @property
    def is_newest(self) -> bool:
        """Whether the client requested the newest protocol."""
        return self.caller is not None and self.caller.protocol >= NEWEST_PROTOCOL

    @property
    def _has_scopes(self) -> bool:
        return self.caller is not None and bool(self.caller.scopes)

    async def serve(self) -> None:
        """Serve until the connection is closed by either side; requests in flight are completed."""
        await self._receive()
        await self._send({"type": "websocket.accept"})
        async with asyncio.TaskGroup() as group:
            group.create_task(self._write_loop())
            self._enqueue(frames.event_frame("connect.challenge", self._challenge()))
            try:
                if await self._is_authenticated():
                    await self._read_loop(group)
            finally:
                self._disconnect()

    def send_response(self, text: str) -> None:
        """Send a response frame."""
        if self.buffered_bytes > (MAX_BUFFERED_BYTES if self._has_scopes else UNSCOPED_BYTES):
            self.abort(POLICY, "slow consumer")
        else:
            self._enqueue(text)

    def send_event(self, text: str, *, drop_if_slow: bool = False) -> None:
        """Send an event; a client that does not keep up loses those marked `drop_if_slow`."""
        if self.buffered_bytes <= SLOW_BYTES:
            self._enqueue(text)
        elif drop_if_slow:
            self.dropped += 1
            self._gateway.counts.dropped += 1
        else:
            self.abort(POLICY, "slow consumer")

    def close(self, code: int, reason: str) -> None:
        """Close once everything buffered has been sent."""
        if not self._closing:
            self._closing = True
            # A close frame holds 123 bytes of reason, and the reason may quote the client.
            self._close_frame = (code, reason.encode()[:120].decode("utf-8", "ignore"))
            self._wakeup.set()

    def abort(self, code: int, reason: str) -> None:
        """Close now and discard what is buffered."""
        if not self._closing:
            log.warning("connection %s closed: %s", self.id, reason)
        self._closing = True
        self._close_frame = None
        self._out.clear()
        self.buffered_bytes = 0
        self._wakeup.set()
        self._transport.close_now(code, reason)

    def _enqueue(self, text: str) -> None:
        if not self._closing:
            self._out.append(text)
            self.buffered_bytes += len(text)  # frames are ASCII: a character is a byte
            self._wakeup.set()

    async def _write_loop(self) -> None:
        try:
            while True:
                while frames_out := self._batch():
                    await self._transport.write(frames_out)
                    written_bytes = sum(map(len, frames_out))
                    self.buffered_bytes = max(0, self.buffered_bytes - written_bytes)
                if self._close_frame:
                    code, reason = self._close_frame
                    await self._send({"type": "websocket.close", "code": code, "reason": reason})
                if self._closing:
                    return
                if self.dropped:
                    self._enqueue(frames.event_frame("gap", {"dropped": self.dropped}))
                    self.dropped = 0
                    continue
                self._wakeup.clear()
                await self._wakeup.wait()
        except OSError:  # the client is gone; the reader sees it too
            self._closing = True

    def _batch(self) -> list[str]:
        """Return the frames to write next: several small ones, or a large one."""
        batch: list[str] = []
        size = 0
        while self._out and size < _BATCH_BYTES:
            batch.append(self._out.popleft())
            size += len(batch[-1])
        return batch

    async def _next(self) -> str | None:
        """Return the next frame; None when the connection is closed or closing."""
        message = await self._receive()
        if message["type"] != "websocket.receive" or self._closing:
            return None
        text: str | None = message.get("text")
        if text is None:
            self.abort(NO_BINARY, "frames are text")
        return text

    def _challenge(self) -> Json:
        return {"nonce": self.nonce, "ts": self._gateway.clock.now_ms()}

    async def _is_authenticated(self) -> bool:
        """Return whether the client authenticated within the time limit."""
        try:
            async with asyncio.timeout(HANDSHAKE_S):
                frame = await self._next()
                if frame is None:
                    return False
                await self._gateway.ready.wait()
                return self._authenticate(frame)
        except TimeoutError:
            self.abort(POLICY, "handshake timeout")
            return False

    def _authenticate(self, frame: str) -> bool:
        request_id = "invalid"
        try:
            request = frames.parse_request(frame, max_values=MAX_UNSCOPED_VALUES)
            request_id = request.id
            if request.method != "connect":
                raise InvalidRequestError("invalid handshake: first request must be connect")
            accepted, hello = self._gateway.authenticate(request.params, self)
        except HomarusError as exc:
            refusal = as_protocol_error(exc)
            if request_id == "invalid":
                request_id = frames.request_id(frame)
            self.send_response(frames.error_frame(request_id, refusal))
            self.close(refusal.close_code or POLICY, refusal.message)
            log.info("connection %s refused: %s", self.id, refusal.message)
            return False
        self.caller, self.token_issued_ms = accepted.caller, accepted.token_issued_ms
        self.connected_ms = self._gateway.clock.now_ms()
        if accepted.caller.role == "node":
            self.claims = accepted.params
        self._transport.allow(accepted.caller.max_frame_bytes)
        self.send_response(frames.response_frame(request_id, hello))
        self._gateway.register_client(self, accepted.caller)
        return True

    def _disconnect(self) -> None:
        self._closing = True
        self._wakeup.set()
        if self.caller is not None:
            self._gateway.unregister_client(self, self.caller)

    async def _read_loop(self, group: asyncio.TaskGroup) -> None:
        while (frame := await self._next()) is not None:
            if not self._is_token_valid():
                self.abort(POLICY, VOIDED_REASON)
                return
            is_trusted = self._has_scopes or self.claims is not None
            max_values = MAX_VALUES if is_trusted else MAX_UNSCOPED_VALUES
            try:
                request = frames.parse_request(frame, max_values=max_values)
            except InvalidRequestError as exc:
                self.send_response(frames.error_frame(frames.request_id(frame), exc))
                continue
            if refusal := self._refusal(request):
                self.send_response(frames.error_frame(request.id, refusal))
                continue
            self._in_flight.add(request.id)
            group.create_task(self._serve_one(request))

    def _refusal(self, request: RequestFrame) -> ProtocolError | None:
        """Return why a request is not started: too many in flight, or its id is in use."""
        if request.id in self._in_flight:
            return InvalidRequestError(f"request id {request.id!r} is in use")
        if len(self._in_flight) >= MAX_IN_FLIGHT:
            return UnavailableError(
                f"more than {MAX_IN_FLIGHT} requests at once", retry_after_ms=100
            )
        return None

    def _is_token_valid(self) -> bool:
        """Return whether the device's token is still valid; another process may have revoked it."""
        caller = self.caller
        if caller is None or not caller.device_id:
            return caller is not None
        try:
            return self._gateway.authenticator.devices.is_token_current(
                caller.device_id, caller.role, self.token_issued_ms
            )
        except StoreError as exc:
            log.warning("the devices cannot be checked: %s", exc)
            return False

    async def _serve_one(self, request: RequestFrame) -> None:
        """Answer one request; any failure becomes its error response."""
        assert self.caller is not None  # noqa: S101 - requests are read after the handshake
        self._gateway.counts.requests += 1
        call = MethodCall(
            self._gateway.services, self._gateway, self.caller, request.id, self._accept(request)
        )
        set_change_author(f"client {self.caller.client_id} {self.caller.device_id[:12]}".strip())
        try:
            method = find_method(self._gateway, request.method, self.caller)
            payload = await method(call, request.params)
            text = frames.response_frame(request.id, payload)
        except HomarusError as exc:
            text = frames.error_frame(request.id, as_protocol_error(exc), _payload_of(exc))
        except Exception:
            log.exception("%s failed", request.method)
            bug = UnavailableError(f"{request.method} failed: a bug, written to the log")
            text = frames.error_frame(request.id, bug)
        finally:
            self._in_flight.discard(request.id)
        self.send_response(text)

    def _accept(self, request: RequestFrame) -> Callable[[Json], None]:
        return lambda payload: self.send_response(frames.response_frame(request.id, payload))


def find_method(gateway: "Gateway", name: str, caller: Caller) -> Method:
    """Return the method that a client calls; raises when it may not be called now."""
    if name == "connect":
        raise InvalidRequestError("connect is only valid as the first request")
    if (caller.role == "node") != (name in _NODE_METHODS):
        raise InvalidRequestError(f"unauthorized role: {caller.role}")
    if gateway.stopping and name in _STARTS_RUNS:
        raise UnavailableError("the gateway is shutting down", retry_after_ms=2_000)
    return gateway.method(name)


def as_protocol_error(exc: HomarusError) -> ProtocolError:
    """Return an error as clients receive it: a user's mistake is INVALID_REQUEST, with the fix."""
    if isinstance(exc, ProtocolError):
        return exc
    return (
        InvalidRequestError(str(exc)) if isinstance(exc, UserError) else UnavailableError(str(exc))
    )


def _payload_of(exc: HomarusError) -> Json:
    payload: Json = getattr(exc, "payload", None)
    return payload
