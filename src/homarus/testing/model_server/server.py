"""The server: HTTP on asyncio streams, scripts, byte-level faults and a record of requests."""

import asyncio
import json
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import field
from typing import Literal

from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json
from homarus.testing.model_server.anthropic import AnthropicDialect
from homarus.testing.model_server.bedrock import BedrockDialect
from homarus.testing.model_server.body_stream import (
    BodyStream,
    ConnectionEnded,
    read_request,
    write_whole,
)
from homarus.testing.model_server.dialect import AnswerStreamer, Dialect, ServerRequest
from homarus.testing.model_server.google import GoogleDialect
from homarus.testing.model_server.markers import Markers, tag_of
from homarus.testing.model_server.openai import OpenAIDialect
from homarus.testing.model_server.responses import ResponsesDialect
from homarus.testing.model_server.script import (
    BodyFraming,
    CallTools,
    Comments,
    Content,
    Cut,
    Delay,
    Fail,
    HangUntilDisconnect,
    LongLine,
    Overflow,
    Raw,
    Replay,
    ReportedUsage,
    Say,
    ScriptedAnswer,
    ScriptStep,
    Stop,
    StreamFault,
    WaitForTest,
)
from homarus.testing.stream_server import StreamServer

YIELD_EVERY = 16  # events sent before others get a turn
_CONTENT = (Say, CallTools, ReportedUsage, Stop)


@dataclass(slots=True, eq=False)
class ReceivedRequest:
    """One request and its result. Times are wall-clock seconds."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: Json
    at_s: float
    first_s: float = 0.0
    end_s: float = 0.0
    outcome: Literal["open", "answered", "cut", "client left"] = "open"
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    stats: dict[str, Json] = field(default_factory=dict)


class ModelServer(StreamServer):
    """An async context manager that serves at `server.url`."""

    def __init__(self, *, host: str = "127.0.0.1", port: int = 0) -> None:
        super().__init__(self._talk, host, port)
        self.requests: list[ReceivedRequest] = []
        self.peak = 0  # the most requests under way at once
        self._dialects: tuple[Dialect, ...] = (
            GoogleDialect(),  # before OpenAI's, which takes every list of models
            OpenAIDialect(),
            ResponsesDialect(),
            AnthropicDialect(),
            BedrockDialect(),
        )
        self._answers: deque[ScriptedAnswer] = deque()
        self._markers = Markers()
        self._under_way = 0
        self._arrival = asyncio.Event()

    @property
    def url(self) -> str:
        """The base URL for a provider's config."""
        return f"{super().url}/v1"

    def script(self, *answers: ScriptedAnswer) -> None:
        """Answer the next requests with these scripts, in this order."""
        self._answers.extend(answers)

    def clear(self) -> None:
        """Forget the requests, and the scripts that none has used."""
        self.requests.clear()
        self._answers.clear()

    async def arrived(self, count: int) -> None:
        """Wait until this many requests have arrived, answered or not."""
        while len(self.requests) < count:
            self._arrival.clear()
            await self._arrival.wait()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Handle the requests of one connection in sequence."""
        try:
            while (head := await read_request(reader)) is not None:
                method, path, headers, raw = head
                received = ReceivedRequest(method, path, headers, _parsed(raw), time.time())
                self._under_way += 1
                self.peak = max(self.peak, self._under_way)
                try:
                    await self._answer(received, len(raw), reader, writer)
                finally:
                    self._under_way -= 1
                    self._close(received)
                if received.outcome != "answered" or headers.get("connection") == "close":
                    break
        except (ConnectionError, asyncio.IncompleteReadError, ValueError):
            pass  # the client disconnected, or does not speak HTTP
        except asyncio.CancelledError:
            writer.transport.abort()  # unsent data is dropped
            raise
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    def _close(self, received: ReceivedRequest) -> None:
        received.end_s = time.time()
        if received.outcome == "open":
            received.outcome = "client left"
        received.stats.update(first=received.first_s, end=received.end_s)
        received.ended.set()

    async def _answer(
        self,
        received: ReceivedRequest,
        body_bytes: int,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        path = received.path.partition("?")[0]
        for dialect in self._dialects:
            ask = dialect.parse_request(path, received.body, body_bytes)
            if ask is not None:
                self._record(received, ask)
                steps = self._answers.popleft() if self._answers else self._markers.steps(ask)
                await _ScriptPlayer(received, dialect, ask, reader, writer).run(steps)
                return
        await write_whole(writer, *self._other(received, path))
        received.outcome = "answered"

    def _other(self, received: ReceivedRequest, path: str) -> tuple[int, bytes]:
        if path == "/healthz":
            return 200, b'{"ok":true}'
        if path == "/_stats":
            stats = [r.stats for r in self.requests if r.ended.is_set()]
            if "clear=1" in received.path:
                self.requests = [r for r in self.requests if not r.ended.is_set()]
            return 200, json.dumps(stats).encode()
        for dialect in self._dialects:
            found = dialect.other(received.method, path, received.body)
            if found is not None:
                self.requests.append(received)
                received.stats = {"kind": "other", "path": path, "arr": received.at_s}
                return 200, json.dumps(found).encode()
        problem = {"error": {"message": f"no route {received.method} {path}"}}
        return 404, json.dumps(problem).encode()

    def _record(self, received: ReceivedRequest, ask: ServerRequest) -> None:
        self.requests.append(received)
        self._arrival.set()
        received.stats = {
            "kind": "chat",
            "tag": tag_of(ask),
            "arr": received.at_s,
            "bytes": ask.body_bytes,
            "msgs": len(ask.said),
            "tools": ask.tools,
            "after_tool": bool(ask.said) and ask.said[-1].role == "tool",
        }


class _ScriptPlayer:
    """Plays one scripted answer."""

    def __init__(
        self,
        received: ReceivedRequest,
        dialect: Dialect,
        ask: ServerRequest,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._received, self._dialect, self._ask = received, dialect, ask
        self._reader, self._writer = reader, writer

    async def run(self, steps: ScriptedAnswer) -> None:
        received = self._received
        rest = list(steps)
        try:
            while rest and isinstance(rest[0], Delay | WaitForTest | HangUntilDisconnect):
                await self._wait(rest.pop(0))
            received.first_s = time.time()
            refusal = next((s for s in rest if isinstance(s, Fail | Overflow)), None)
            if refusal is not None:
                await self._refuse(refusal)
            elif self._ask.stream:
                await self._stream(rest)
            else:
                await self._whole(rest)
        except ConnectionEnded:
            received.outcome = "cut"
        else:
            received.outcome = "answered"

    async def _refuse(self, step: Fail | Overflow) -> None:
        refusal = self._dialect.error_response(step)
        headers = {**refusal.headers, **(step.headers if isinstance(step, Fail) else {})}
        if isinstance(step, Fail) and step.retry_after:
            headers["Retry-After"] = step.retry_after
        await write_whole(self._writer, refusal.status, refusal.body, headers)

    async def _whole(self, steps: ScriptedAnswer) -> None:
        for step in steps:
            if isinstance(step, Raw):
                await write_whole(self._writer, 200, step.data)
                return
        content = [step for step in steps if isinstance(step, _CONTENT)]
        await write_whole(self._writer, 200, self._dialect.full_response(self._ask, content))

    async def _stream(self, steps: list[ScriptStep]) -> None:
        shape = next((s for s in steps if isinstance(s, BodyFraming)), BodyFraming())
        pipe = BodyStream(self._reader, self._writer, shape, self._ask.content_type)
        await pipe.open()
        recorded = next((s for s in steps if isinstance(s, Replay)), None)
        if recorded is not None:
            await pipe.send(recorded.data)
            await pipe.end()
            return
        speaker = self._dialect.make_streamer(self._ask)
        for event in speaker.begin():
            await pipe.send(event)
        for step in steps:
            await self._perform(step, speaker, pipe)
        if shape.end:
            for event in speaker.end():
                await pipe.send(event)
        await pipe.end()

    async def _perform(self, step: ScriptStep, speaker: AnswerStreamer, pipe: BodyStream) -> None:
        match step:
            case Say() | CallTools() | ReportedUsage() | Stop():
                await self._say(step, speaker, pipe)
            case StreamFault():
                for event in speaker.write_error(step):
                    await pipe.send(event)
            case Delay() | WaitForTest() | HangUntilDisconnect():
                await pipe.flush()
                await self._wait(step)
            case Comments() | Raw() | LongLine() | Cut():
                await self._misbehave(step, pipe)
            case BodyFraming() | Fail() | Overflow() | Replay():
                pass  # already done

    async def _say(self, step: Content, speaker: AnswerStreamer, pipe: BodyStream) -> None:
        gap_s = step.gap_s if isinstance(step, Say) else 0.0
        for count, event in enumerate(speaker.write(step), 1):
            await pipe.send(event)
            if gap_s:
                await pipe.flush()
                await asyncio.sleep(gap_s)
            elif count % YIELD_EVERY == 0:
                await pipe.flush()

    async def _misbehave(self, step: Comments | Raw | LongLine | Cut, pipe: BodyStream) -> None:
        match step:
            case Comments():
                await self._comment(step, pipe)
            case Raw(data):
                await pipe.send(data)
            case LongLine(size_bytes):
                for _ in range(0, size_bytes, 1 << 16):
                    await pipe.send(b"x" * (1 << 16))
                    await pipe.flush()
            case Cut(how):
                await pipe.cut(how)

    async def _comment(self, step: Comments, pipe: BodyStream) -> None:
        sent = 0
        while step.times is None or sent < step.times:
            await pipe.send(b": " + step.text.encode() + b"\n\n")
            await pipe.flush()
            sent += 1
            if step.times is None:
                await asyncio.sleep(step.every_s)

    async def _wait(self, step: ScriptStep) -> None:
        match step:
            case Delay(seconds):
                await asyncio.sleep(seconds)
            case WaitForTest(opened):
                await opened.wait()
            case HangUntilDisconnect():
                await self._reader.read(1)
                raise ConnectionResetError("the client left")
            case _:
                pass


def _parsed(raw: bytes) -> Json:
    try:
        return json.loads(raw) if raw else None
    except ValueError:
        return None
