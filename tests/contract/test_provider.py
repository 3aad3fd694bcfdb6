"""What every Provider promises (homarus/providers/base.py), over every provider.

A row of ROWS is a name and a stage: a provider whose answers the test decides. To add a provider,
write its stage and add the row; what it cannot do, it leaves out of `can`.
"""

import asyncio
import itertools
import threading
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import pytest

from homarus.core.clock import SystemClock
from homarus.core.errors import OverloadedError, ProviderError, RateLimitError
from homarus.core.message import (
    Image,
    Message,
    Origin,
    Part,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    user_message,
)
from homarus.providers import anthropic, bedrock, google, local, openai, responses, vertex
from homarus.providers.base import (
    AttemptRetried,
    Delta,
    ModelRequest,
    Provider,
    TextDelta,
    ThinkingDelta,
    ToolSpec,
)
from homarus.testing.fakes import Hang, ScriptedProvider
from homarus.testing.model_server import (
    CallTools,
    Fail,
    HangUntilDisconnect,
    ModelServer,
    Say,
    ScriptedCall,
    ScriptStep,
    Think,
)

MODEL = "model-1"
STATUSES = {RateLimitError: 429, OverloadedError: 503}


class Harness(Protocol):
    """A provider on stage: each `will_…` decides one coming answer, in order."""

    provider: Provider

    def will_say(self, text: str, *, thinking: str = "") -> None: ...

    def will_call(self, *calls: tuple[str, dict[str, object]]) -> None: ...

    def will_hang(self) -> None:
        """Say something, then nothing more."""
        ...

    def will_fail(self, kind: type[ProviderError]) -> None: ...

    def asked(self) -> int:
        """How often the vendor was asked."""
        ...

    async def noticed(self) -> None:
        """Returns when the vendor's end noticed that nobody listens any more."""
        ...


@dataclass(frozen=True)
class Row:
    name: str
    stage: Callable[[], AbstractAsyncContextManager[Harness]]
    can: frozenset[str] = frozenset({"think", "call", "fail", "history", "together"})


class ServedStage:
    """A wire format, against the scripted server."""

    def __init__(self, provider: Provider, server: ModelServer) -> None:
        self.provider, self._server = provider, server

    def will_say(self, text: str, *, thinking: str = "") -> None:
        steps: list[ScriptStep] = [Think(thinking)] if thinking else []
        self._server.script([*steps, Say(text.split("\0"))] if text else steps)

    def will_call(self, *calls: tuple[str, dict[str, object]]) -> None:
        self._server.script([CallTools(*(ScriptedCall(name, args) for name, args in calls))])

    def will_hang(self) -> None:
        self._server.script([Say("I was saying"), HangUntilDisconnect()])

    def will_fail(self, kind: type[ProviderError]) -> None:
        self._server.script([Fail(STATUSES[kind])])

    def asked(self) -> int:
        return len(self._server.requests)

    async def noticed(self) -> None:
        request = self._server.requests[-1]
        await request.ended.wait()
        assert request.outcome == "client left"


class ScriptedStage:
    """The fake that other tests use must keep the same promises."""

    def __init__(self) -> None:
        self._script: deque[Message | ProviderError | Hang] = deque()
        self._scripted = ScriptedProvider(self._answers())
        self.provider: Provider = self._scripted

    def _answers(self) -> Iterator[Message | ProviderError | Hang]:
        while self._script:
            yield self._script.popleft()

    def _will(self, *parts: Part) -> None:
        origin = Origin(self._scripted.api, self._scripted.name, MODEL)
        self._script.append(Message("assistant", parts, origin=origin))

    def will_say(self, text: str, *, thinking: str = "") -> None:
        thought: tuple[Part, ...] = (Thinking(thinking),) if thinking else ()
        self._will(*thought, *((Text(text.replace("\0", "")),) if text else ()))

    def will_call(self, *calls: tuple[str, dict[str, object]]) -> None:
        self._will(*(ToolCall(f"call_{i}", name, args) for i, (name, args) in enumerate(calls)))

    def will_hang(self) -> None:
        self._script.append(Hang())

    def will_fail(self, kind: type[ProviderError]) -> None:
        self._script.append(kind(f"scripted/{MODEL}: it failed", fix="try again"))

    def asked(self) -> int:
        return len(self._scripted.requests)

    async def noticed(self) -> None:
        await asyncio.sleep(0)


class LocalStage:
    """The in-process provider, over an engine that plays its part in the worker's thread."""

    def __init__(self) -> None:
        self._script: deque[list[local.Chunk] | None] = deque()
        self._asked = 0
        self._stopped = threading.Event()
        settings = local.LocalModelSettings(Path("model.gguf"))
        self.provider: Provider = local.LocalProvider(settings, lambda _: self, SystemClock())

    def handle_chat_completions(self, _body: local.Chunk, see: local.See, /) -> None:
        self._asked += 1
        chunks = self._script.popleft()
        # An answer without an end: once begun, it goes on until it is stopped.
        hanging = itertools.repeat(_chunk(content="I was saying"))
        if any(see(chunk) for chunk in (hanging if chunks is None else chunks)):
            self._stopped.set()

    def will_say(self, text: str, *, thinking: str = "") -> None:
        thought = [_chunk(reasoning_content=thinking)] if thinking else []
        said = [_chunk(content=piece) for piece in text.split("\0")]
        end: local.Chunk = {"choices": [{"delta": {}, "finish_reason": "stop"}]}
        self._script.append([*thought, *said, end])

    def will_call(self, *calls: tuple[str, dict[str, object]]) -> None:
        raise AssertionError("it has no tools")

    def will_hang(self) -> None:
        self._script.append(None)

    def will_fail(self, kind: type[ProviderError]) -> None:
        raise AssertionError("nobody limits it")

    def asked(self) -> int:
        return self._asked

    async def noticed(self) -> None:
        assert await asyncio.to_thread(self._stopped.wait, 20)


def _chunk(**delta: str) -> local.Chunk:
    return {"choices": [{"delta": delta}]}


@asynccontextmanager
async def local_stage() -> AsyncIterator[Harness]:
    stage = LocalStage()
    yield stage
    await stage.provider.close()


@asynccontextmanager
async def openai_stage() -> AsyncIterator[Harness]:
    async with ModelServer() as server:
        provider = openai.create(openai.ProviderConnection("served", server.url, "sk-contract-key"))
        yield ServedStage(provider, server)
        await provider.close()


@asynccontextmanager
async def anthropic_stage() -> AsyncIterator[Harness]:
    async with ModelServer() as server:
        provider = anthropic.create(
            anthropic.ProviderConnection("served", server.url, "sk-contract-key")
        )
        yield ServedStage(provider, server)
        await provider.close()


@asynccontextmanager
async def responses_stage() -> AsyncIterator[Harness]:
    async with ModelServer() as server:
        provider = responses.create(
            responses.ProviderConnection("served", server.url, "sk-contract-key")
        )
        yield ServedStage(provider, server)
        await provider.close()


@asynccontextmanager
async def google_stage() -> AsyncIterator[Harness]:
    async with ModelServer() as server:
        provider = google.create(google.ProviderConnection("served", server.url, "AI-contract-key"))
        yield ServedStage(provider, server)
        await provider.close()


@asynccontextmanager
async def bedrock_stage() -> AsyncIterator[Harness]:
    env = {"AWS_ACCESS_KEY_ID": "AKIDCONTRACT", "AWS_SECRET_ACCESS_KEY": "contract-secret"}
    async with ModelServer() as server:
        provider = bedrock.create(bedrock.ProviderConnection("served", server.url, env=env))
        yield ServedStage(provider, server)
        await provider.close()


@asynccontextmanager
async def vertex_stage() -> AsyncIterator[Harness]:
    async with ModelServer() as server:
        settings = vertex.ProviderConnection("served", server.url, "AQ.contract-key")
        provider = vertex.create(replace(settings, model_id=MODEL))
        yield ServedStage(provider, server)
        await provider.close()


@asynccontextmanager
async def scripted_stage() -> AsyncIterator[Harness]:
    yield ScriptedStage()


ROWS = [
    Row("openai", openai_stage),
    Row("responses", responses_stage),
    Row("anthropic", anthropic_stage),
    Row("google", google_stage),
    Row("bedrock", bedrock_stage),
    Row("vertex", vertex_stage),
    Row("local", local_stage, frozenset({"think", "history", "together"})),
    Row("scripted", scripted_stage),
]


@pytest.fixture(params=ROWS, ids=lambda row: row.name)
def row(request: pytest.FixtureRequest) -> Row:
    chosen: Row = request.param
    return chosen


def needs(row: Row, ability: str) -> None:
    if ability not in row.can:
        pytest.skip(f"{row.name} cannot {ability}")


@asynccontextmanager
async def run(row: Row) -> AsyncIterator[Harness]:
    async with asyncio.timeout(30), row.stage() as stage:
        yield stage


def ask(text: str = "Hello", *messages: Message) -> ModelRequest:
    tools = (ToolSpec("read", "Read a file.", {"type": "object", "properties": {}}),)
    return ModelRequest(MODEL, "Be brief.", (*messages, user_message(text)), tools)


async def collect(
    stage: Harness, request: ModelRequest | None = None
) -> tuple[list[Delta], Message]:
    deltas: list[Delta] = []
    message: Message | None = None
    async for piece in stage.provider.stream(request or ask()):
        assert message is None, "something came after the Message"
        if isinstance(piece, Message):
            message = piece
        else:
            deltas.append(piece)
    assert message is not None, "no Message came"
    return deltas, message


async def test_stream_yields_deltas_then_one_complete_message(row: Row) -> None:
    async with run(row) as stage:
        stage.will_say("One \0two\0 three 🦞.")
        deltas, message = await collect(stage)
        assert message.role == "assistant"
        assert message.text == "One two three 🦞."
        assert "".join(d.text for d in deltas if isinstance(d, TextDelta)) == message.text
        assert all(d.text for d in deltas if not isinstance(d, AttemptRetried)), (
            "a delta says something"
        )


async def test_stream_message_origin_names_model_and_stop(row: Row) -> None:
    async with run(row) as stage:
        stage.will_say("Done.")
        _, message = await collect(stage)
        origin = message.origin
        assert origin is not None
        assert (origin.api, origin.provider) == (stage.provider.api, stage.provider.name)
        assert origin.model == MODEL
        assert origin.stop == "stop"
        assert origin.error == ""
        assert origin.usage.total >= 0
        assert origin.usage.cost >= 0


async def test_stream_reasoning_separated_from_text(row: Row) -> None:
    needs(row, "think")
    async with run(row) as stage:
        stage.will_say("Four.", thinking="Two and two.")
        deltas, message = await collect(stage)
        assert message.thinking == "Two and two."
        assert message.text == "Four."
        thought = [d.text for d in deltas if isinstance(d, ThinkingDelta)]
        assert "".join(thought) == "Two and two."


async def test_stream_tool_calls_complete_with_unique_ids(row: Row) -> None:
    needs(row, "call")
    async with run(row) as stage:
        stage.will_call(("read", {"path": "a.md", "limit": 5}), ("read", {"path": "b.md"}))
        _, message = await collect(stage)
        assert [(c.name, dict(c.args)) for c in message.calls] == [
            ("read", {"path": "a.md", "limit": 5}),
            ("read", {"path": "b.md"}),
        ]
        ids = [call.id for call in message.calls]
        assert all(ids)
        assert len(set(ids)) == 2
        assert message.origin is not None
        assert message.origin.stop == "toolUse"


async def test_stream_empty_answer_is_returned(row: Row) -> None:
    async with run(row) as stage:
        stage.will_say("")
        deltas, message = await collect(stage)
        assert deltas == []
        assert message.text == ""
        assert message.calls == ()
        assert message.origin is not None
        assert message.origin.stop == "stop"


@pytest.mark.parametrize("kind", [RateLimitError, OverloadedError])
async def test_stream_failure_raises_its_class_once_with_fix(
    row: Row, kind: type[ProviderError]
) -> None:
    needs(row, "fail")
    async with run(row) as stage:
        stage.will_fail(kind)
        with pytest.raises(ProviderError) as caught:
            await collect(stage)
        assert type(caught.value) is kind
        assert MODEL in caught.value.message
        assert caught.value.fix
        assert stage.asked() == 1, "nothing is retried here"


async def test_stream_cancel_stops_vendor(row: Row) -> None:
    async with run(row) as stage:
        stage.will_hang()
        began = asyncio.Event()

        async def listen() -> None:
            async for piece in stage.provider.stream(ask()):
                if isinstance(piece, TextDelta):
                    began.set()

        async with asyncio.TaskGroup() as group:
            listening = group.create_task(listen())
            await began.wait()
            listening.cancel()
        assert listening.cancelled()
        await stage.noticed()


async def test_stream_closed_early_stops_vendor(row: Row) -> None:
    async with run(row) as stage:
        stage.will_hang()
        stream = stage.provider.stream(ask())
        async for _ in stream:
            break
        assert isinstance(stream, AsyncGenerator)
        await stream.aclose()
        await stage.noticed()


async def test_provider_answers_after_failure_and_abort(row: Row) -> None:
    needs(row, "fail")
    async with run(row) as stage:
        stage.will_fail(OverloadedError)
        stage.will_hang()
        stage.will_say("Still here.")
        with pytest.raises(OverloadedError):
            await collect(stage)
        stream = stage.provider.stream(ask())
        async for _ in stream:
            break
        assert isinstance(stream, AsyncGenerator)
        await stream.aclose()
        _, message = await collect(stage)
        assert message.text == "Still here."


async def test_concurrent_streams_do_not_mix(row: Row) -> None:
    needs(row, "together")
    async with run(row) as stage:
        for n in range(8):
            stage.will_say("\0".join(f"{n}" for _ in range(20)))
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(collect(stage)) for _ in range(8)]
        texts = sorted(task.result()[1].text for task in tasks)
        assert texts == [f"{n}" * 20 for n in range(8)]


async def test_any_history_can_be_requested(row: Row) -> None:
    needs(row, "history")
    async with run(row) as stage:
        stage.will_say("Fine.")
        origin = Origin("other", "other", "other-1", "aborted")
        lost = ToolCall("c1", "read", {"path": "a"})
        broken = ToolCall("c2|fc_long" * 20, "", {}, broken="{oops")
        history = (
            user_message(""),
            Message("assistant", (), origin=origin),
            Message("assistant", (Thinking("hm", "sig"), Text("I"), lost, broken), origin=origin),
            user_message("wait", Image("aGk=", "image/png")),
            Message("tool", (ToolResult(broken.id, "", (Image("aGk=", "image/png"),)),)),
            Message("tool", (ToolResult("nobody-asked", "read", (Text("x"),)),)),
            Message("tool", (ToolResult("c1", "read", (), is_error=True),)),
        )
        _, message = await collect(stage, ask("and now? \ud800", *history))
        assert message.text == "Fine."


async def test_close_unused_and_twice_is_allowed(row: Row) -> None:
    async with run(row) as stage:
        await stage.provider.close()
        await stage.provider.close()
