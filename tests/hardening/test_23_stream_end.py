"""A complete answer is delivered at its last event, also when the server never closes.

Every wire format: the connection stays open after the answer, silent or with keep-alives.
"""

import asyncio
import time

import pytest

from homarus.providers import bedrock
from homarus.providers.endpoint import END_S
from homarus.testing.model_server import (
    Comments,
    HangUntilDisconnect,
    ModelServer,
    Raw,
    Say,
    ScriptStep,
)
from homarus.testing.model_server.bedrock import event
from homarus.testing.stream_server import StreamServer
from tests.unit.providers.harness import ANTHROPIC, OPENAI, RESPONSES, SSE_WIRES, WireClient, answer

MAX_S = 20.0  # far below the 120 s after which a silent connection fails

OPEN_ENDS = [HangUntilDisconnect(), Comments(every_s=0.05)]
TERMINAL_EVENTS = {
    OPENAI: b"data: [DONE]\n\n",
    ANTHROPIC: b'data: {"type":"message_stop"}\n\n',
    RESPONSES: b"",
}


@pytest.mark.parametrize("open_end", OPEN_ENDS, ids=["silent", "keep-alives"])
@pytest.mark.parametrize("wire", SSE_WIRES, ids=str)
async def test_finished_answer_is_delivered_without_a_close(
    wire: WireClient, open_end: ScriptStep
) -> None:
    started_s = time.monotonic()
    message = await wire.message_of(Raw(wire.answer), open_end)
    assert message.text == "hi"
    assert time.monotonic() - started_s < MAX_S


@pytest.mark.parametrize("wire", TERMINAL_EVENTS, ids=str)
async def test_terminal_event_is_not_followed_by_a_wait(wire: WireClient) -> None:
    async with ModelServer() as server:
        server.script([Raw(wire.answer + TERMINAL_EVENTS[wire]), HangUntilDisconnect()])
        provider = wire.create(server.url)
        async with asyncio.timeout(END_S * 0.9):  # less than the wait for an event that is missing
            assert (await answer(provider)).text == "hi"
        await provider.close()


async def test_usage_after_finish_reason_is_still_counted() -> None:
    usage = b'data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":1}}\n\n'
    steps: list[ScriptStep] = [Raw(OPENAI.answer), Raw(usage), HangUntilDisconnect()]
    message = await OPENAI.message_of(*steps)
    assert message.origin is not None and message.origin.usage.input == 7


async def test_whole_json_body_is_delivered_without_a_close() -> None:
    body = b'{"choices":[{"message":{"content":"hi"},"finish_reason":"stop"}]}'
    head = (
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    )

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(head + b"%x\r\n%s\r\n" % (len(body), body))
        await asyncio.Event().wait()

    async with asyncio.timeout(MAX_S), StreamServer(talk, "127.0.0.1", 0) as server:
        provider = OPENAI.create(server.url)
        assert (await answer(provider)).text == "hi"
        await provider.close()


@pytest.mark.parametrize("has_usage", [True, False])
async def test_bedrock_answer_is_delivered_without_a_close(*, has_usage: bool) -> None:
    frames = event("contentBlockDelta", delta={"text": "hi"}, contentBlockIndex=0)
    frames += event("messageStop", stopReason="end_turn")
    if has_usage:
        frames += event("metadata", usage={"inputTokens": 7, "outputTokens": 1})
    async with asyncio.timeout(MAX_S), ModelServer() as server:
        server.script([Raw(frames), HangUntilDisconnect()])
        settings = bedrock.ProviderConnection("mock", server.url, "a-bedrock-api-key")
        provider = bedrock.create(settings)
        message = await answer(provider)
        await provider.close()
    assert message.text == "hi" and message.origin is not None
    assert message.origin.usage.input == (7 if has_usage else 0)


async def test_unfinished_answer_of_silent_server_still_fails() -> None:
    error = await OPENAI.error_of(Say("a"), HangUntilDisconnect(), idle_s=0.05)
    assert "mock/m" in str(error)
