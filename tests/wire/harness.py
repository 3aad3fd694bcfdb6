"""The five wires as one suite sees them: how to call, record and read each."""

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

from homarus.core.errors import ProviderError
from homarus.core.message import Image, Message, Part, Text, Thinking, ToolCall, user_message
from homarus.providers import (
    anthropic,
    anthropic_stream,
    bedrock,
    bedrock_stream,
    chat_stream,
    google,
    google_stream,
    openai,
    responses,
    responses_stream,
)
from homarus.providers.base import ModelRequest, TextDelta, ThinkingDelta
from homarus.providers.eventstream import FrameReader
from homarus.providers.sse import EventReader
from homarus.testing.model_server import ModelServer, ScriptStep
from homarus.testing.model_server.bedrock import frame

DATA = Path(__file__).parents[1] / "data" / "wire"
REQUEST = ModelRequest("m", "", (user_message("hi"),))
AWS_ENV = {
    "AWS_ACCESS_KEY_ID": "AKID",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_REGION": "us-east-1",
}
Expected = Mapping[str, Any]


@dataclass(frozen=True)
class Wire:
    """One wire: its adapter, its stream assembler, and how its recordings are compared.

    `check` compares an answer with what a recording means.
    """

    name: str
    module: ModuleType
    assembler: Callable[[], Any]
    check: Callable[[Message, Expected], None]
    env: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.name

    @property
    def is_sse(self) -> bool:
        return self.name != "bedrock"

    @property
    def streams(self) -> list[Path]:
        return sorted((DATA / self.name).glob("*.sse" if self.is_sse else "*.jsonl"))

    def recorded(self, stream: Path, newline: bytes = b"\n") -> bytes:
        """Return the bytes that the service sent."""
        if self.is_sse:
            return stream.read_bytes().replace(b"\r\n", b"\n").replace(b"\n", newline)
        events = map(json.loads, stream.read_text(encoding="utf-8").splitlines())
        return b"".join(framed(name, json.dumps(payload).encode()) for name, payload in events)

    def read(self, data: bytes, cuts: Sequence[int] = (), *, ended: bool = True) -> Any:
        """Return the assembler after a stream that came in the pieces between `cuts`."""
        assembler = self.assembler()
        for event in self.events(data, cuts, ended=ended):
            assembler.add(*event)
        return assembler

    def events(
        self, data: bytes, cuts: Sequence[int] = (), *, ended: bool = True
    ) -> Iterator[tuple[Any, ...]]:
        edges = [0, *sorted({cut % (len(data) + 1) for cut in cuts}), len(data)]
        pieces = [data[start:end] for start, end in pairwise(edges)]
        if not self.is_sse:
            frames = FrameReader()
            for one in (each for piece in pieces for each in frames.feed(piece)):
                yield one.headers[":event-type"], json.loads(one.payload)
            return
        reader = EventReader()
        events = [event for piece in pieces for event in reader.feed(piece)]
        for event in (*events, *(reader.end() if ended else ())):
            if event != "[DONE]":
                yield (json.loads(event),)

    async def request(
        self, url: str, *, idle_s: float = 5.0
    ) -> tuple[str, str, Message | ProviderError]:
        """Call the adapter; return the streamed text and reasoning, and the message or error."""
        provider = self.module.create(
            self.module.ProviderConnection("mock", url, idle_s=idle_s, env=self.env)
        )
        text, thinking, message = "", "", None
        try:
            async with asyncio.timeout(20 if self.name == "bedrock" else 10):
                async for piece in provider.stream(REQUEST):
                    assert message is None, "the message is the last"
                    match piece:
                        case TextDelta(more):
                            text += more
                        case ThinkingDelta(more):
                            thinking += more
                        case Message():
                            message = piece
        except ProviderError as exc:
            return text, thinking, exc
        finally:
            await provider.close()
        assert message is not None
        return text, thinking, message

    def play(
        self, *steps: ScriptStep, idle_s: float = 5.0
    ) -> tuple[str, str, Message | ProviderError]:
        """Call the adapter against the scripted server."""

        async def main() -> tuple[str, str, Message | ProviderError]:
            async with ModelServer() as server:
                server.script(list(steps))
                return await self.request(server.url, idle_s=idle_s)

        return asyncio.run(main())

    def outcome(self, *steps: ScriptStep, idle_s: float = 5.0) -> Message | ProviderError:
        return self.play(*steps, idle_s=idle_s)[2]

    def outcome_of_bytes(self, answer: bytes) -> Message | ProviderError:
        """Call the adapter against a server that answers with exactly these bytes."""

        async def main() -> Message | ProviderError:
            async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                await reader.readuntil(b"\r\n\r\n")
                writer.write(answer)
                await writer.drain()
                writer.close()

            server = await asyncio.start_server(connected, "127.0.0.1", 0)
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
            try:
                return (await self.request(url))[2]
            finally:
                server.close()

        return asyncio.run(main())


def framed(name: str, payload: bytes) -> bytes:
    """Return one frame of Bedrock's event stream."""
    return frame({":message-type": "event", ":event-type": name}, payload)


def expected(stream: Path) -> Expected:
    """Return what a recording means."""
    found: dict[str, Any] = json.loads(stream.with_suffix(".json").read_text(encoding="utf-8"))
    return found


def usage_of(usage: Any) -> dict[str, Any]:
    return {name: value for name, value in asdict(usage).items() if value}


def view(part: Part) -> dict[str, Any]:
    """Return a part as the recordings of Anthropic and Bedrock describe it."""
    match part:
        case Text(text):
            return {"text": text}
        case Thinking(text, signature):
            return {"thinking": text, "signature": signature}
        case Image(data, mime):
            return {"image": data, "mime": mime}
        case ToolCall():
            broken = {"broken": part.broken} if part.broken else {}
            return {"call": part.name, "args": dict(part.args), **broken}
        case _:
            raise AssertionError(part)


def _check_parts(message: Message, want: Expected) -> None:
    assert [view(part) for part in message.parts] == want["parts"]


def _check_texts(message: Message, want: Expected) -> None:
    assert (message.text, message.thinking) == (want["text"], want["thinking"])
    assert [{"name": c.name, "args": dict(c.args)} for c in message.calls] == want["calls"]


def _check_responses(message: Message, want: Expected) -> None:
    _check_texts(message, want)
    thoughts = [p.signature for p in message.parts if isinstance(p, Thinking)]
    phases = [p.signature for p in message.parts if isinstance(p, Text) and p.signature]
    # What must come back with the next request, and what is neither text nor call.
    assert {
        "signed": [json.loads(signature)["id"] for signature in thoughts if signature],
        "phases": [json.loads(signature)["phase"] for signature in phases],
        "images": [asdict(part) for part in message.parts if isinstance(part, Image)],
    } == {key: want.get(key, []) for key in ("signed", "phases", "images")}


def _check_google(message: Message, want: Expected) -> None:
    assert (message.text, message.thinking) == (want["text"], want["thinking"])
    assert [(c.name, c.args, c.signature, c.broken) for c in message.calls] == [
        (c["name"], c["args"], c["signature"], "") for c in want["calls"]
    ]
    for call, wanted in zip(message.calls, want["calls"], strict=True):
        assert call.id == wanted.get("id", call.id)
        assert call.id
    images = [part for part in message.parts if isinstance(part, Image)]
    assert [{"mime": i.mime, "data": i.data} for i in images] == want["images"]
    signed = [part.signature for part in message.parts if isinstance(part, Text)]
    assert "".join(signed) == want.get("text_signature", "")


OPENAI = Wire(
    "openai",
    openai,
    chat_stream.ChatStreamAssembler,
    _check_texts,
)
RESPONSES = Wire(
    "responses",
    responses,
    responses_stream.ResponsesStreamAssembler,
    _check_responses,
)
ANTHROPIC = Wire(
    "anthropic",
    anthropic,
    anthropic_stream.AnthropicStreamAssembler,
    _check_parts,
)
GOOGLE = Wire(
    "google",
    google,
    google_stream.GeminiStreamAssembler,
    _check_google,
)
BEDROCK = Wire(
    "bedrock",
    bedrock,
    bedrock_stream.ConverseStreamAssembler,
    _check_parts,
    AWS_ENV,
)
WIRES = (OPENAI, RESPONSES, ANTHROPIC, GOOGLE, BEDROCK)
RECORDINGS = [(wire, stream) for wire in WIRES for stream in wire.streams]
