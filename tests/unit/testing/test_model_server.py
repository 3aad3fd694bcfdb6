"""The scripted server: the official client understands it, and it breaks as it is told."""

import asyncio
import json
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import openai
import pytest

from homarus.testing.model_server import (
    BodyFraming,
    CallTools,
    Comments,
    Cut,
    Delay,
    Fail,
    HangUntilDisconnect,
    ModelServer,
    Overflow,
    Raw,
    ReportedUsage,
    Say,
    ScriptedAnswer,
    ScriptedCall,
    Stop,
    StreamFault,
    Think,
    WaitForTest,
)
from homarus.testing.model_server.dialect import ServerMessage, ServerRequest
from homarus.testing.model_server.markers import Markers
from homarus.testing.model_server.openai import embedding


@asynccontextmanager
async def played(*answers: ScriptedAnswer) -> AsyncIterator[tuple[openai.AsyncOpenAI, ModelServer]]:
    async with (
        asyncio.timeout(60),
        ModelServer() as server,
        openai.AsyncOpenAI(base_url=server.url, api_key="k", max_retries=0) as client,
    ):
        server.script(*answers)
        yield client, server


async def stream(client: openai.AsyncOpenAI, text: str = "hi") -> list[Any]:
    chunks = await client.chat.completions.create(
        model="m",
        messages=[{"role": "user", "content": text}],
        stream=True,
        stream_options={"include_usage": True},
    )
    return [chunk async for chunk in chunks]


def text_of(chunks: list[Any]) -> str:
    return "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)


def finish_of(chunks: list[Any]) -> str | None:
    ends = [c.choices[0].finish_reason for c in chunks if c.choices]
    return next((end for end in reversed(ends) if end), None)


def asked(*messages: tuple[str, str]) -> list[Any]:
    return [{"role": role, "content": text} for role, text in messages]


# What the official client understands


async def test_openai_sdk_reads_streamed_text_and_usage() -> None:
    async with played([Say(["Hé", "llo ", "🦞"]), ReportedUsage(20, 3, 5, 1)]) as (client, _):
        chunks: Any = await stream(client)
    assert text_of(chunks) == "Héllo 🦞"
    assert finish_of(chunks) == "stop"
    usage = chunks[-1].usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (20, 3, 23)
    assert usage.prompt_tokens_details.cached_tokens == 5
    assert usage.completion_tokens_details.reasoning_tokens == 1


async def test_openai_sdk_reads_interleaved_tool_calls() -> None:
    steps = [
        CallTools(
            ScriptedCall("read", {"path": "a" * 30}, id="c1"), ScriptedCall("ls", {"all": True})
        )
    ]
    async with played(steps) as (client, _):
        chunks: Any = await stream(client)
    names: dict[int, str] = {}
    arguments: dict[int, str] = {}
    order = []
    for chunk in chunks:
        for call in (chunk.choices[0].delta.tool_calls or ()) if chunk.choices else ():
            names[call.index] = call.function.name or names[call.index]
            arguments[call.index] = arguments.get(call.index, "") + call.function.arguments
            order.append(call.index)
    assert names == {0: "read", 1: "ls"}
    assert [json.loads(a) for a in arguments.values()] == [{"path": "a" * 30}, {"all": True}]
    assert order[:4] == [0, 1, 0, 1]
    assert finish_of(chunks) == "tool_calls"


async def test_openai_sdk_reads_complete_answer() -> None:
    async with played(
        [Think("hm"), Say(["a", "b"]), CallTools(ScriptedCall("read", {"p": 1}))]
    ) as (client, _server):
        whole: Any = await client.chat.completions.create(model="m", messages=asked(("user", "hi")))
    message = whole.choices[0].message
    assert message.content == "ab"
    assert json.loads(message.tool_calls[0].function.arguments) == {"p": 1}
    assert whole.choices[0].finish_reason == "tool_calls"
    assert whole.usage.total_tokens > 0


@pytest.mark.parametrize(
    ("step", "error"),
    [
        (Fail(400), openai.BadRequestError),
        (Fail(401), openai.AuthenticationError),
        (Fail(402), openai.APIStatusError),
        (Fail(403), openai.PermissionDeniedError),
        (Fail(404), openai.NotFoundError),
        (Fail(429, retry_after="3"), openai.RateLimitError),
        (Fail(500), openai.InternalServerError),
        (Fail(529), openai.InternalServerError),
        (Overflow(), openai.BadRequestError),
    ],
)
async def test_openai_sdk_raises_matching_error(
    step: Any, error: type[openai.APIStatusError]
) -> None:
    async with played([step]) as (client, _server):
        with pytest.raises(error) as caught:
            await stream(client)
        raised = caught.value
    assert raised.status_code == getattr(step, "status", 400)
    assert raised.response.headers.get("retry-after", "") == getattr(step, "retry_after", "")
    if isinstance(step, Overflow):
        assert raised.code == "context_length_exceeded"


@pytest.mark.parametrize(
    ("steps", "error"),
    [
        ([Say("a"), StreamFault()], openai.APIError),
        ([Say("a"), Cut()], openai.APIConnectionError),
        ([Say("a"), Cut("reset")], openai.APIConnectionError),
        ([Say("a"), Cut("half-close")], openai.APIConnectionError),
        ([Raw(b"data: {oops\n\n")], json.JSONDecodeError),
    ],
)
async def test_openai_sdk_notices_faults_midway(
    steps: ScriptedAnswer, error: type[Exception]
) -> None:
    async with played(steps) as (client, _server):
        with pytest.raises(error):
            await stream(client)


@pytest.mark.parametrize(
    "shape",
    [
        BodyFraming(piece_bytes=1),
        BodyFraming(newline=b"\r\n"),
        BodyFraming(framing="close"),
        BodyFraming(piece_bytes=5),
    ],
)
async def test_openai_sdk_reads_every_framing(shape: BodyFraming) -> None:
    async with played([Say(["é🦞", "x"]), Comments(times=2), shape]) as (client, _):
        chunks: Any = await stream(client)
    assert text_of(chunks) == "é🦞x"


async def test_openai_sdk_lists_models_and_gets_embeddings() -> None:
    async def scene(client: openai.AsyncOpenAI, _server: ModelServer) -> Any:
        models = [model.id async for model in await client.models.list()]
        made = await client.embeddings.create(model="e", input=["red lobster", "blue sky"])
        plain = await client.embeddings.create(
            model="e", input="red lobster", encoding_format="float"
        )
        return models, made.data, plain.data

    async with played() as (client, _server):
        models, made, plain = await scene(client, _server)
    assert models == ["mock-1"]
    assert made[0].embedding == pytest.approx(embedding("red lobster"), abs=1e-6)
    assert plain[0].embedding == pytest.approx(embedding("red lobster"))


def test_embeddings_of_shared_words_are_near() -> None:
    def near(a: str, b: str) -> float:
        return sum(x * y for x, y in zip(embedding(a), embedding(b), strict=True))

    assert near("the red lobster", "the red lobster") == pytest.approx(1)
    assert near("the red lobster", "a red lobster") > near("the red lobster", "blue skies above")
    assert sum(x * x for x in embedding("")) == pytest.approx(1)


# What it keeps


async def test_server_records_headers_body_and_times() -> None:
    async with played() as (client, server):
        await stream(client, "one")
        await stream(client, "two")
        one, two = server.requests
    assert (one.method, one.path) == ("POST", "/v1/chat/completions")
    assert one.headers["authorization"] == "Bearer k"
    assert two.body["messages"][0]["content"] == "two"
    assert one.at_s <= one.first_s <= one.end_s <= two.at_s
    assert one.outcome == "answered"


async def test_server_counts_peak_of_concurrent_requests() -> None:
    async with played() as (client, server):
        gate = asyncio.Event()
        answer: ScriptedAnswer = [WaitForTest(gate), Say("x")]
        server.script(*[answer] * 5)
        async with asyncio.TaskGroup() as group:
            for _ in range(5):
                group.create_task(stream(client))
            await server.arrived(5)
            gate.set()
        await stream(client)
        result = server.peak
    assert result == 5


async def test_server_notices_client_disconnect() -> None:
    async with played() as (client, server):
        server.script([Say("a"), HangUntilDisconnect()], [Say(["word "] * 100_000)], [Comments()])
        for _ in range(3):
            chunks = await client.chat.completions.create(
                model="m", messages=asked(("user", "hi")), stream=True
            )
            async for _chunk in chunks:
                break
            await chunks.close()
            await server.requests[-1].ended.wait()
        result = [request.outcome for request in server.requests]
    assert result == ["client left"] * 3


async def test_server_passes_test_failure_unchanged() -> None:
    async def main() -> None:
        async with ModelServer():
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        await main()


async def test_server_exit_ends_waiting_connections() -> None:
    async with asyncio.timeout(10), ModelServer() as server:
        server.script([HangUntilDisconnect()])
        port = int(server.url.split(":")[2].partition("/")[0])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        body = b'{"stream":true}'
        head = b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body)
        writer.write(head + body)
        await server.arrived(1)
    assert await reader.read() == b""
    writer.close()


@pytest.mark.parametrize(
    "sent", [b"\r\n", b"nonsense\r\n\r\n", b"GET /nowhere HTTP/1.1\r\n\r\n", b"\xff" * 10]
)
async def test_server_ignores_client_without_http(sent: bytes) -> None:
    async with asyncio.timeout(10), ModelServer() as server:
        port = int(server.url.split(":")[2].partition("/")[0])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        writer.write_eof()
        answer = await reader.read()
        assert answer == b"" or answer.startswith(b"HTTP/1.1 404")
        writer.close()
        async with openai.AsyncOpenAI(base_url=server.url, api_key="k") as client:
            assert text_of(await stream(client))


# Markers


async def marked(text: str) -> list[Any]:
    async with played() as (client, _):
        chunks: list[Any] = await stream(client, text)
    return chunks


@pytest.mark.parametrize("text", ["hello", "MOCK:short", "Hi MOCK:short T#a-1"])
async def test_markers_none_or_short_give_short_reply(text: str) -> None:
    assert text_of(await marked(text)) == "Hello from the mock model."


async def test_markers_select_reply_content() -> None:
    assert text_of(await marked("MOCK:long:3")) == "word0000 word0001 word0002 "
    assert text_of(await marked("MOCK:long:2:1")) == "word0000 word0001 "
    assert text_of(await marked("MOCK:say:Grüß: dich§ please")) == "Grüß: dich"
    assert text_of(await marked("repeat this MOCK:echo")) == "repeat this"
    assert text_of(await marked("MOCK:empty")) == ""
    assert finish_of(await marked("MOCK:length MOCK:say:half§")) == "length"
    thinking = await marked("MOCK:think:hm§ MOCK:say:ok§")
    assert thinking[1].choices[0].delta.model_extra["reasoning_content"] == "hm"
    assert text_of(await marked("MOCK:bytes:2 MOCK:crlf MOCK:say:é§")) == "é"


async def test_markers_tools_are_called_together_then_short_reply() -> None:
    text = 'Run MOCK:tool:exec:{"command":"echo {a}"}§ MOCK:tool:ls:{}§ T#x'
    calls = [
        call
        for chunk in await marked(text)
        if chunk.choices
        for call in chunk.choices[0].delta.tool_calls or ()
    ]
    assert {c.function.name for c in calls if c.function.name} == {"exec", "ls"}
    args = "".join(c.function.arguments for c in calls if c.index == 0)
    assert json.loads(args) == {"command": "echo {a}"}
    async with played() as (client, _server):
        function = {"name": "exec", "arguments": "{}"}
        called = {"id": "c", "type": "function", "function": function}
        history: list[Any] = [
            *asked(("user", text)),
            {"role": "assistant", "content": None, "tool_calls": [called]},
            {"role": "tool", "tool_call_id": "c", "content": "out"},
        ]
        result: Any = await client.chat.completions.create(model="m", messages=history)
    assert result.choices[0].message.content == "Hello from the mock model."


async def test_markers_next_separates_requests_of_one_message() -> None:
    text = "MOCK:tool:a:{}§ MOCK:next MOCK:tool:b:{}§ MOCK:next MOCK:say:end§"
    async with played() as (client, _server):
        message: Any
        history: list[Any] = asked(("user", "MOCK:say:old§"), ("assistant", "old"), ("user", text))
        got = []
        for _ in range(4):
            whole = await client.chat.completions.create(model="m", messages=history)
            message = whole.choices[0].message
            got.append(
                message.tool_calls[0].function.name if message.tool_calls else message.content
            )
            history.append(message.model_dump(exclude_none=True))
        result = got
    assert result == ["a", "b", "end", "Hello from the mock model."]


async def test_markers_are_found_before_messages_a_gateway_adds() -> None:
    async with played() as (client, _server):
        history = asked(("user", "MOCK:say:yes§"), ("user", "[context: it is Tuesday]"))
        whole = await client.chat.completions.create(model="m", messages=history)
        answered = [*history, *asked(("assistant", "yes"), ("user", "thanks"))]
        after = await client.chat.completions.create(model="m", messages=answered)
        result: Any = whole.choices[0].message.content, after.choices[0].message.content
    assert result == ("yes", "Hello from the mock model.")


async def test_markers_fail_refuses_given_number_of_times() -> None:
    short = "Hello from the mock model."
    limited, overflow = (429, "0.5"), (400, None)
    async with played() as (client, _server):
        got: list[Any] = []
        for text in ("MOCK:fail:429:2:0.5",) * 3 + ("MOCK:overflow:1",) * 2 + ("MOCK:fail:401",):
            try:
                got.append(text_of(await stream(client, text)))
            except openai.APIStatusError as exc:
                got.append((exc.status_code, exc.response.headers.get("retry-after")))
        result = got
    assert result == [limited, limited, short, overflow, short, (401, None)]


async def test_markers_faults_break_stream() -> None:
    async with played() as (client, _server):
        with pytest.raises(openai.APIConnectionError):
            await stream(client, "MOCK:cut:100")
        with pytest.raises(json.JSONDecodeError):
            await stream(client, "MOCK:malformed")


async def test_server_delays_and_stops_are_steps() -> None:
    async with played([Delay(0.001), Say("x"), Stop("filtered")]) as (client, _):
        chunks: Any = await stream(client)
    assert finish_of(chunks) == "content_filter"


def test_server_process_serves_and_reports_statistics() -> None:
    command = [sys.executable, "-m", "homarus.testing.model_server"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            body = json.dumps(
                {"model": "m", "messages": asked(("user", "MOCK:say:hello§ T#t-7"))}
            ).encode()
            opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            with opener.open(f"{url}/chat/completions", body, timeout=30) as answer:
                assert json.load(answer)["choices"][0]["message"]["content"] == "hello"
            root = url.removesuffix("/v1")
            with opener.open(f"{root}/_stats?clear=1", timeout=30) as answer:
                (stats,) = json.load(answer)
            assert (stats["kind"], stats["tag"], stats["msgs"]) == ("chat", "t-7", 1)
            assert stats["arr"] <= stats["first"] <= stats["end"]
            with opener.open(f"{root}/_stats", timeout=30) as answer:
                assert json.load(answer) == []
        finally:
            process.terminate()


def test_markers_delay_with_times_delays_only_first_requests() -> None:
    markers = Markers()
    ask = ServerRequest(
        "m", True, [ServerMessage("user", "MOCK:delay:5000:1 MOCK:short")], 0, 1, {}
    )
    first, second = markers.steps(ask), markers.steps(ask)
    assert [type(step) for step in first] == [Delay, Say]
    assert [type(step) for step in second] == [Say]
