"""The scripted server's Bedrock dialect: the official client understands it."""

import asyncio
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, EventStreamError
from urllib3.exceptions import ProtocolError

from homarus.testing.model_server import (
    BodyFraming,
    CallTools,
    Cut,
    Fail,
    ModelServer,
    Overflow,
    ReportedUsage,
    Say,
    ScriptedAnswer,
    ScriptedCall,
    Stop,
    StreamFault,
    Think,
)
from homarus.testing.model_server.bedrock import SIGNATURE

MODEL = "us.anthropic.claude-haiku-4-5-20251001-v1:0"
HI = [{"role": "user", "content": [{"text": "hi"}]}]


@contextmanager
def client(url: str) -> Iterator[Any]:
    session = boto3.Session("AKID", "secret", region_name="us-east-1")
    config = Config(retries={"total_max_attempts": 1})
    with closing(session.client("bedrock-runtime", endpoint_url=url, config=config)) as opened:
        yield opened


def streamed(url: str, messages: list[Any], **fields: Any) -> list[Any]:
    """One streamed answer, its socket closed however the stream ends."""
    with client(url) as asked:
        answer = asked.converse_stream(modelId=MODEL, messages=messages, **fields)
        with closing(answer["stream"]) as stream:
            return list(stream)


async def played(
    steps: ScriptedAnswer, messages: list[Any] | None = None, **fields: Any
) -> list[Any]:
    """The events of one streamed answer, as boto3 reads them."""
    async with asyncio.timeout(60), ModelServer() as server:
        server.script(steps)
        return await asyncio.to_thread(streamed, server.url, messages or HI, **fields)


async def test_boto3_reads_streamed_text_and_usage() -> None:
    events = await played([Say(["Hé", "llo ", "🦞"]), ReportedUsage(20, 3, 5)])
    assert [next(iter(event)) for event in events] == [
        "messageStart",
        *["contentBlockDelta"] * 3,
        "contentBlockStop",
        "messageStop",
        "metadata",
    ]
    said = [e["contentBlockDelta"]["delta"]["text"] for e in events if "contentBlockDelta" in e]
    assert "".join(said) == "Héllo 🦞"
    assert events[-2]["messageStop"] == {"stopReason": "end_turn"}
    assert events[-1]["metadata"]["usage"] == {
        "inputTokens": 15,
        "outputTokens": 3,
        "totalTokens": 23,
        "cacheReadInputTokens": 5,
        "cacheWriteInputTokens": 0,
    }


async def test_boto3_reads_reasoning_text_and_calls_in_order() -> None:
    calls = CallTools(ScriptedCall("read", {"path": "a" * 30}, id="c1"), ScriptedCall("ls", {}))
    events = await played([Think(["Hm", "m"]), Say("a"), Say("b"), calls])
    starts = [event["contentBlockStart"] for event in events if "contentBlockStart" in event]
    assert [start["contentBlockIndex"] for start in starts] == [2, 3]
    assert starts[0]["start"]["toolUse"] == {"toolUseId": "c1", "name": "read"}
    deltas = [event["contentBlockDelta"] for event in events if "contentBlockDelta" in event]
    by_index = {n: [d["delta"] for d in deltas if d["contentBlockIndex"] == n] for n in range(4)}
    assert by_index[0] == [
        {"reasoningContent": {"text": "Hm"}},
        {"reasoningContent": {"text": "m"}},
        {"reasoningContent": {"signature": SIGNATURE}},
    ]
    assert by_index[1] == [{"text": "a"}, {"text": "b"}]
    assert "".join(d["toolUse"]["input"] for d in by_index[2]) == '{"path": "%s"}' % ("a" * 30)
    stops = [e["contentBlockStop"]["contentBlockIndex"] for e in events if "contentBlockStop" in e]
    assert stops == [0, 1, 2, 3]
    assert events[-2]["messageStop"]["stopReason"] == "tool_use"


async def test_boto3_reads_complete_answer() -> None:
    async with ModelServer() as server:
        server.script([Think("hm"), Say(["a", "b"]), CallTools(ScriptedCall("read", {"p": 1}))])
        with client(server.url) as asked:
            whole: Any = await asyncio.to_thread(asked.converse, modelId=MODEL, messages=HI)
    content = whole["output"]["message"]["content"]
    assert [next(iter(block)) for block in content] == ["reasoningContent", "text", "toolUse"]
    assert content[2]["toolUse"]["input"] == {"p": 1}
    assert whole["stopReason"] == "tool_use"


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, "ValidationException"),
        (403, "UnrecognizedClientException"),
        (408, "ModelTimeoutException"),
        (424, "ModelErrorException"),
        (429, "ThrottlingException"),
        (500, "InternalServerException"),
        (503, "ServiceUnavailableException"),
    ],
)
async def test_boto3_knows_error_by_its_name(status: int, code: str) -> None:
    with pytest.raises(ClientError) as caught:
        await played([Fail(status)])
    assert caught.value.response["Error"]["Code"] == code
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == status


async def test_boto3_reads_overflow_and_length_stop() -> None:
    with pytest.raises(ClientError, match="Input is too long"):
        await played([Overflow()])
    events = await played([Say("a"), Stop("length")])
    assert events[-2]["messageStop"]["stopReason"] == "max_tokens"


async def test_boto3_raises_exception_inside_stream() -> None:
    with pytest.raises(EventStreamError, match=r"throttlingException.*slow down"):
        await played([Say("a"), StreamFault("slow down", "throttlingException")])


async def test_boto3_notices_cut() -> None:
    with pytest.raises(ProtocolError):
        await played([Say("a"), Cut("reset")])


async def test_boto3_reads_one_byte_at_a_time() -> None:
    assert len(await played([Say("a"), BodyFraming(piece_bytes=1)])) == 5


async def test_bedrock_markers_count_results_as_tool_messages() -> None:
    turns = [
        {"role": "user", "content": [{"text": "MOCK:tool:read:{}§MOCK:next MOCK:say:done§"}]},
        {
            "role": "assistant",
            "content": [{"toolUse": {"toolUseId": "c", "name": "read", "input": {}}}],
        },
        {
            "role": "user",
            "content": [{"toolResult": {"toolUseId": "c", "content": [{"text": "x"}]}}],
        },
    ]
    tool = {"toolSpec": {"name": "read", "inputSchema": {"json": {"type": "object"}}}}
    async with ModelServer() as server:
        tools = {"tools": [tool]}
        events = await asyncio.to_thread(streamed, server.url, turns, toolConfig=tools)
        received = server.requests[0]
    assert events[1]["contentBlockDelta"]["delta"] == {"text": "done"}
    assert received.stats["after_tool"]
    assert received.stats["tools"] == 1
    assert received.path.endswith(
        "/model/us.anthropic.claude-haiku-4-5-20251001-v1%3A0/converse-stream"
    )
