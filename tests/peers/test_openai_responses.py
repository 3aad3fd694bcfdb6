"""The official Python client of OpenAI's API, against `/v1/responses` of a real gateway."""

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest
from openai import APIError, BadRequestError, InternalServerError, NotFoundError, OpenAI
from openai.types.responses import FunctionToolParam

from homarus.testing.model_server import (
    CallTools,
    Cut,
    Fail,
    ModelServer,
    ReportedUsage,
    Say,
    ScriptedCall,
    Stop,
)
from tests.peers.gateway import Running
from tests.peers.http_api import api_gateway, open_client

pytestmark = pytest.mark.peers

WEATHER: FunctionToolParam = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather of a city",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    "strict": False,
}
CALL = ScriptedCall("get_weather", {"city": "Rome"})


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Running, ModelServer]]:
    with api_gateway(tmp_path_factory.mktemp("api")) as found:
        yield found


@pytest.fixture
def model(world: tuple[Running, ModelServer]) -> ModelServer:
    world[1].clear()
    return world[1]


@pytest.fixture
def client(world: tuple[Running, ModelServer]) -> Iterator[OpenAI]:
    with open_client(world[0]) as client:
        yield client


def ask(client: OpenAI, said: Any, **more: Any) -> Any:
    return client.responses.create(**{"model": "openclaw:main", "input": said, **more})


def sent_to_model(model: ModelServer) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = model.requests[-1].body["messages"]
    return messages


def test_response_has_text_status_and_usage(model: ModelServer, client: OpenAI) -> None:
    model.script([Say("Hello there."), ReportedUsage(120, 7, cached=100, reasoning=2)])
    found = ask(client, "Hi", instructions="Be brief.", user="someone")
    assert found.id.startswith("resp_") and found.object == "response"
    assert (found.status, found.output_text, found.error) == ("completed", "Hello there.", None)
    assert found.usage.input_tokens_details.cached_tokens == 100
    assert (found.usage.input_tokens, found.usage.output_tokens) == (120, 7)
    assert "Be brief." in json.dumps(sent_to_model(model)[0])


def test_response_stream_has_events_in_order(model: ModelServer, client: OpenAI) -> None:
    model.script([Say(["Hel", "lo"], gap_s=0.05), ReportedUsage(5, 2)])
    events = list(ask(client, "Hi", stream=True))
    names = [event.type for event in events]
    assert names[:4] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
    ]
    assert set(names[4:-4]) == {"response.output_text.delta"}
    assert names[-4:] == [
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    final = events[-1].response
    assert "".join(deltas) == final.output_text == "Hello"
    assert final.usage.input_tokens == 5
    assert len({event.response.id for event in events if hasattr(event, "response")}) == 1


def test_response_stream_helper_of_client_works(model: ModelServer, client: OpenAI) -> None:
    model.script([Say(["a ", "b"], gap_s=0.02)])
    with client.responses.stream(model="openclaw", input="Hi") as stream:
        for _event in stream:
            pass
        assert stream.get_final_response().output_text == "a b"


def test_response_function_call_and_output_of_a_user(model: ModelServer, client: OpenAI) -> None:
    model.script([CallTools(CALL)], [Say("Sunny.")])
    more: Any = {"tools": [WEATHER], "user": "resp-tools"}
    first = ask(client, "Rain in Rome?", **more)
    assert first.status == "incomplete"
    (call,) = first.output
    assert (call.type, call.name, call.arguments) == (
        "function_call",
        "get_weather",
        '{"city": "Rome"}',
    )
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "sun"}
    second = ask(client, [output], **more)
    assert (second.status, second.output_text) == ("completed", "Sunny.")
    assert [one["role"] for one in sent_to_model(model)[1:]] == ["user", "assistant", "tool"]


def test_response_conversation_with_call_needs_no_session(
    model: ModelServer, client: OpenAI
) -> None:
    model.script([CallTools(CALL)], [Say("Sunny.")])
    (call,) = ask(client, "Rain?", tools=[WEATHER]).output
    said = [
        {"role": "user", "content": "Rain?"},
        call.model_dump(),
        {"type": "function_call_output", "call_id": call.call_id, "output": "sun"},
    ]
    assert ask(client, said, tools=[WEATHER]).output_text == "Sunny."
    assert [one["role"] for one in sent_to_model(model)[1:]] == ["user", "assistant", "tool"]


def test_response_continues_the_previous_one(model: ModelServer, client: OpenAI) -> None:
    model.script([CallTools(CALL)], [Say("Sunny.")], [Say("Rome.")])
    first = ask(client, "Rain?", tools=[WEATHER])
    output = {
        "type": "function_call_output",
        "call_id": first.output[0].call_id,
        "output": [{"type": "input_text", "text": "sun"}],
    }
    second = ask(client, [output], previous_response_id=first.id, tools=[WEATHER])
    assert second.output_text == "Sunny."
    third = ask(client, "Where?", previous_response_id=second.id)
    assert third.output_text == "Rome." and third.previous_response_id == second.id
    roles = [one["role"] for one in sent_to_model(model)[1:]]
    assert roles == ["user", "assistant", "tool", "assistant", "user"]


def test_response_previous_one_must_exist(client: OpenAI) -> None:
    for name in ("resp_00000000-0000-0000-0000-000000000000", "something"):
        with pytest.raises(NotFoundError) as caught:
            ask(client, "Hi", previous_response_id=name)
        assert caught.value.code == "previous_response_not_found"


def test_response_stream_has_function_calls(model: ModelServer, client: OpenAI) -> None:
    model.script([Say("Let me look."), CallTools(CALL)])
    events = list(ask(client, "Rain?", tools=[WEATHER], stream=True))
    names = [event.type for event in events]
    assert "response.function_call_arguments.delta" in names
    assert "response.function_call_arguments.done" in names
    final = events[-1].response
    assert (final.status, [item.type for item in final.output]) == (
        "incomplete",
        ["message", "function_call"],
    )
    assert [e.output_index for e in events if e.type == "response.output_item.done"] == [0, 1]


def test_response_that_reaches_its_limit_is_incomplete(model: ModelServer, client: OpenAI) -> None:
    model.script([Say("cut"), Stop("length")], [Say("cut"), Stop("length")])
    found = ask(client, "Hi", max_output_tokens=16)
    assert (found.status, found.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert list(ask(client, "Hi", stream=True))[-1].type == "response.incomplete"


def test_response_file_is_read(model: ModelServer, client: OpenAI) -> None:
    data = base64.b64encode(b"The secret word is heliotrope.").decode()
    source = {"type": "base64", "data": data, "media_type": "text/plain", "filename": "s.txt"}
    for part in (
        {"type": "input_file", "file_data": f"data:text/plain;base64,{data}", "filename": "s.txt"},
        {"type": "input_file", "source": source},
    ):
        model.script([Say("ok")])
        ask(client, [{"role": "user", "content": [{"type": "input_text", "text": "Read"}, part]}])
        assert "heliotrope" in json.dumps(sent_to_model(model)[-1])


@pytest.mark.parametrize(
    "more",
    [
        {"background": True},
        {"text": {"format": {"type": "json_object"}}},
        {"conversation": "conv_1"},
        {"max_tool_calls": 1},
        {"parallel_tool_calls": False},
        {"tools": [{"type": "web_search"}]},
    ],
    ids=str,
)
def test_response_field_that_cannot_be_obeyed_is_refused(client: OpenAI, more: Any) -> None:
    with pytest.raises(BadRequestError):
        ask(client, "Hi", **more)


@pytest.mark.parametrize(
    "said",
    [
        "",
        [],
        [{"role": "assistant", "content": "only I spoke"}],
        [{"type": "function_call_output", "call_id": "x", "output": "y"}],
        [{"type": "mcp_call", "id": "x"}],
        [{"role": "user", "content": [{"type": "input_image"}]}],
        [{"role": "user", "content": [{"type": "input_image", "image_url": "ftp://a/b"}]}],
    ],
    ids=str,
)
def test_response_input_that_is_invalid_is_refused(client: OpenAI, said: Any) -> None:
    with pytest.raises(BadRequestError):
        ask(client, said)


def test_response_failure_before_text_has_a_status(model: ModelServer, client: OpenAI) -> None:
    model.script(*[[Fail(401)]] * 3)
    with pytest.raises(InternalServerError):
        ask(client, "Hi", stream=True)


def test_response_failure_after_text_is_an_event(model: ModelServer, client: OpenAI) -> None:
    for _ in range(6):
        model.script([Say(["begun ", "and"], gap_s=0.2), Cut("reset")])
    try:
        events = list(ask(client, "Hi", stream=True))
    except APIError:
        pytest.fail("an event of the stream says it, not an exception")
    assert events[-1].type == "response.failed"
    assert events[-1].response.status == "failed" and events[-1].response.error.message
