"""The scripted server's Responses dialect: the official client understands it."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import openai
import pytest
from openai.types.responses import Response

from homarus.testing.model_server import (
    BodyFraming,
    CallTools,
    Cut,
    Fail,
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
)


def played(
    scene: Callable[[openai.AsyncOpenAI, ModelServer], Awaitable[Any]], *answers: ScriptedAnswer
) -> Any:
    async def main() -> Any:
        async with (
            asyncio.timeout(60),
            ModelServer() as server,
            openai.AsyncOpenAI(base_url=server.url, api_key="k", max_retries=0) as client,
        ):
            server.script(*answers)
            return await scene(client, server)

    return asyncio.run(main())


async def stream(client: openai.AsyncOpenAI, given: Any = "hi") -> list[Any]:
    events = await client.responses.create(
        model="m", input=given, stream=True, include=["reasoning.encrypted_content"]
    )
    return [event async for event in events]


def streamed(*steps: Any) -> list[Any]:
    events: list[Any] = played(lambda client, _: stream(client), list(steps))
    return events


STEPS = (
    Think(["Let me ", "see."]),
    Say(["Hé", "llo ", "🦞"]),
    CallTools(ScriptedCall("read", {"path": "a" * 30}, id="c1"), ScriptedCall("ls", {"all": True})),
    ReportedUsage(20, 3, 5, 1),
)


def test_responses_sdk_reads_reasoning_text_calls_and_usage() -> None:
    events = streamed(*STEPS)
    assert [event.sequence_number for event in events] == list(range(len(events)))
    text = [e.delta for e in events if e.type == "response.output_text.delta"]
    assert text == ["Hé", "llo ", "🦞"]
    thought = [e.delta for e in events if e.type == "response.reasoning_summary_text.delta"]
    assert thought == ["Let me ", "see."]
    final: Response = events[-1].response
    assert final.status == "completed"
    assert final.output_text == "Héllo 🦞"
    reasoning, _, *calls = final.output
    assert reasoning.type == "reasoning"
    assert reasoning.encrypted_content
    assert [json.loads(c.arguments) for c in calls if c.type == "function_call"] == [
        {"path": "a" * 30},
        {"all": True},
    ]
    assert final.usage is not None
    assert (final.usage.input_tokens, final.usage.output_tokens) == (20, 3)
    assert final.usage.input_tokens_details.cached_tokens == 5
    assert final.usage.output_tokens_details.reasoning_tokens == 1


def test_responses_pieces_add_up_to_items_and_final_event() -> None:
    events = streamed(*STEPS)
    pieces: dict[int, str] = {}
    done: dict[int, Any] = {}
    order = []
    for event in events:
        if event.type.endswith(".delta"):
            pieces[event.output_index] = pieces.get(event.output_index, "") + event.delta
            order.append(event.output_index)
        elif event.type == "response.output_item.done":
            done[event.output_index] = event.item
    assert [done[index] for index in sorted(done)] == events[-1].response.output
    told = [done[0].summary[0].text, done[1].content[0].text]
    told += [done[2].arguments, done[3].arguments]
    assert [pieces[index] for index in sorted(pieces)] == told
    assert order[5:9] == [2, 3, 2, 3], "the pieces of calls come in turns"


def test_responses_sdk_accumulated_stream_is_equal() -> None:
    async def scene(client: openai.AsyncOpenAI, _server: ModelServer) -> Any:
        async with client.responses.stream(model="m", input="hi") as events:
            return await events.get_final_response()

    assert played(scene, STEPS).output_text == "Héllo 🦞"


def test_responses_sdk_reads_complete_answer() -> None:
    async def scene(client: openai.AsyncOpenAI, _server: ModelServer) -> Any:
        return await client.responses.create(model="m", input="hi")

    whole = played(scene, [Think("hm"), Say(["a", "b"]), CallTools(ScriptedCall("read", {"p": 1}))])
    assert whole.output_text == "ab"
    assert json.loads(whole.output[-1].arguments) == {"p": 1}
    assert whole.usage.total_tokens > 0


@pytest.mark.parametrize(
    ("reason", "told"), [("length", "max_output_tokens"), ("filtered", "content_filter")]
)
def test_responses_cut_answer_gives_reason(reason: Any, told: str) -> None:
    last = streamed(Say("a"), Stop(reason))[-1]
    assert last.type == "response.incomplete"
    assert last.response.incomplete_details.reason == told


@pytest.mark.parametrize(
    ("step", "error"),
    [
        (Fail(400), openai.BadRequestError),
        (Fail(401), openai.AuthenticationError),
        (Fail(429, retry_after="3"), openai.RateLimitError),
        (Fail(500), openai.InternalServerError),
        (Overflow(), openai.BadRequestError),
    ],
)
def test_responses_sdk_raises_matching_error(step: Any, error: type[openai.APIStatusError]) -> None:
    with pytest.raises(error):
        streamed(step)


def test_responses_error_midway_is_own_event() -> None:
    trouble = next(event for event in streamed(Say("a"), StreamFault()) if event.type == "error")
    assert trouble.code == "server_error"


@pytest.mark.parametrize("steps", [[Say("a"), Cut()], [Raw(b"data: {oops\n\n")]])
def test_responses_sdk_notices_broken_stream(steps: ScriptedAnswer) -> None:
    with pytest.raises((openai.APIConnectionError, json.JSONDecodeError)):
        streamed(*steps)


def test_responses_any_framing_is_read() -> None:
    assert (
        streamed(*STEPS, BodyFraming(piece_bytes=1, newline=b"\r\n"))[-1].type
        == "response.completed"
    )


def test_responses_markers_count_calls_of_one_turn_once() -> None:
    question = {
        "role": "user",
        "content": "T#x MOCK:tool:ls:{}§MOCK:tool:ls:{}§ MOCK:next MOCK:echo",
    }

    async def scene(client: openai.AsyncOpenAI, server: ModelServer) -> Any:
        made = (await stream(client, [question]))[-1].response.output
        results = [
            {"type": "function_call_output", "call_id": call.call_id, "output": "x"}
            for call in made
        ]
        given = [question, *(call.model_dump() for call in made), *results]
        again = (await stream(client, given))[-1].response
        return len(made), again.output_text, server.requests[1].stats

    calls, text, stats = played(scene)
    assert (calls, text) == (2, "T#x")
    assert (stats["tag"], stats["after_tool"]) == ("x", True)
