"""Send a run as server-sent events, as it is written.

The response begins with the first text, so that a run that fails before has an error status. A
client that reads slowly gets larger pieces; one that reads nothing for a while is disconnected. A
comment is sent when there is nothing else, for the proxies in between.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import TYPE_CHECKING, Final, Protocol

from homarus.core.errors import HomarusError
from homarus.core.message import Json
from homarus.core.text import repair_surrogates
from homarus.gateway.http_api.api_error import API_HEADERS, ApiError, as_api_error
from homarus.gateway.http_api.client_run import ClientRun
from homarus.gateway.http_api.run_answer import RunAnswer

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope, Send

STREAM_KIND: Final = "text/event-stream; charset=utf-8"
BEGIN_S: Final = 10.0  # without text after this, the response begins
KEEPALIVE_S: Final = 15.0
STALL_S: Final = 60.0  # for a client that reads nothing
DONE: Final = b"data: [DONE]\n\n"
_KEEPALIVE: Final = b": keep-alive\n\n"
_HEADERS: Final = {**API_HEADERS, "Content-Type": STREAM_KIND, "X-Accel-Buffering": "no"}
_ENCODER: Final = json.JSONEncoder(ensure_ascii=True, separators=(",", ":"))


class StreamEncoder(Protocol):
    """Encodes a run as the events of one endpoint."""

    def begin(self) -> Iterator[bytes]: ...

    def add_text(self, text: str) -> Iterator[bytes]: ...

    def end(self, answer: RunAnswer) -> Iterator[bytes]: ...

    def fail(self, error: ApiError) -> Iterator[bytes]: ...


def encode_event(data: Json, name: str = "") -> bytes:
    """Return a server-sent event with JSON."""
    head = f"event: {name}\n".encode("ascii") if name else b""
    return b"%bdata: %b\n\n" % (head, _ENCODER.encode(data).encode("ascii"))


class RunEventStream:
    """The ASGI application that sends one run."""

    def __init__(self, run: ClientRun, encoder: StreamEncoder, *, stall_s: float = STALL_S) -> None:
        self._run, self._encoder, self._stall_s = run, encoder, stall_s

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        run = self._run
        headers = {**_HEADERS, "X-Request-Id": run.id}
        raw = [(name.lower().encode(), value.encode("ascii")) for name, value in headers.items()]
        body = {"type": "http.response.body"}
        try:
            await self._send(send, {"type": "http.response.start", "status": 200, "headers": raw})
            async with aclosing(self._pieces()) as pieces:
                async for piece in pieces:
                    await self._send(send, {**body, "body": piece, "more_body": True})
            run.close()
            await self._send(send, {**body, "body": b"", "more_body": False})
        except TimeoutError:  # what was written already cannot be sent
            await run.abandon()
            _abort(scope)
        finally:
            run.close()

    async def _send(self, send: "Send", message: "Message") -> None:
        """Send a part of the response; raises TimeoutError for a client that does not read."""
        async with asyncio.timeout(self._stall_s):
            await send(message)

    async def _pieces(self) -> AsyncGenerator[bytes]:
        run, encoder = self._run, self._encoder
        opening = b"".join(encoder.begin())
        try:
            while True:
                if text := run.text.take():
                    yield opening + b"".join(encoder.add_text(repair_surrogates(text)))
                    opening = b""
                if run.has_ended:
                    break
                if opening:
                    yield opening
                    opening = b""
                if not await run.wait_for_text(KEEPALIVE_S):
                    yield _KEEPALIVE
            answer = await run.answer()
        except HomarusError as exc:
            yield opening + b"".join(encoder.fail(as_api_error(exc)))
            return
        if rest := run.text.take() or ("" if run.text.was_streamed else answer.text):
            yield opening + b"".join(encoder.add_text(repair_surrogates(rest)))
            opening = b""
        yield opening + b"".join(encoder.end(answer))


async def stream_run(run: ClientRun, encoder: StreamEncoder) -> RunEventStream:
    """Return the response with a run; raises an error if it fails before any text."""
    if not run.has_ended:
        await run.wait_for_text(BEGIN_S)
    if run.has_ended and not run.text.was_streamed:
        try:
            await run.answer()
        except BaseException:
            run.close()
            raise
    return RunEventStream(run, encoder)


def _abort(scope: "Scope") -> None:
    """Disconnect a client that does not read."""
    wire = scope.get("extensions", {}).get("homarus.wire", {}).get("wire")
    if wire is not None:
        wire.transport.abort()
