"""The official Python client of OpenAI's API, against `/v1/chat/completions` of a real gateway."""

import base64
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, TypeAlias

import pytest
from openai import (
    APIError,
    AuthenticationError,
    BadRequestError,
    InternalServerError,
    NotFoundError,
    OpenAI,
    UnprocessableEntityError,
)
from openai.types.chat import ChatCompletionToolParam

from homarus.testing.model_server import (
    CallTools,
    Fail,
    HangUntilDisconnect,
    ModelServer,
    Overflow,
    ReportedUsage,
    Say,
    ScriptedCall,
    Stop,
)
from tests.peers.gateway import TOKEN, Running
from tests.peers.http_api import api_gateway, open_client, transcript

pytestmark = pytest.mark.peers

Connect: TypeAlias = Callable[..., OpenAI]

PNG = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJg"
    "gg=="
)
WEATHER: ChatCompletionToolParam = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Running, ModelServer]]:
    with api_gateway(tmp_path_factory.mktemp("api")) as found:
        yield found


@pytest.fixture
def gateway(world: tuple[Running, ModelServer]) -> Running:
    return world[0]


@pytest.fixture
def model(world: tuple[Running, ModelServer]) -> ModelServer:
    world[1].clear()
    return world[1]


@pytest.fixture
def connect(gateway: Running) -> Iterator[Connect]:
    """Make clients of the gateway; all are closed when the test ends."""
    with ExitStack() as stack:

        def make(token: str = TOKEN, **headers: str) -> OpenAI:
            return stack.enter_context(open_client(gateway, token, **headers))

        yield make


@pytest.fixture
def client(connect: Connect) -> OpenAI:
    return connect()


def ask(client: OpenAI, *messages: Any, **more: Any) -> Any:
    sent = [{"role": "user", "content": one} if isinstance(one, str) else one for one in messages]
    return client.chat.completions.create(**{"model": "openclaw:main", "messages": sent, **more})


def sent_to_model(model: ModelServer, index: int = -1) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = model.requests[index].body["messages"]
    return messages


def test_chat_answer_has_text_usage_and_reason(model: ModelServer, client: OpenAI) -> None:
    model.script([Say("Hello there."), ReportedUsage(120, 7, cached=100, reasoning=2)])
    found = ask(client, "Hi")
    assert found.id.startswith("chatcmpl_") and found.object == "chat.completion"
    assert found.model == "openclaw:main"
    (choice,) = found.choices
    assert (choice.message.content, choice.finish_reason) == ("Hello there.", "stop")
    assert found.usage.prompt_tokens_details.cached_tokens == 100
    assert found.usage.total_tokens == found.usage.prompt_tokens + found.usage.completion_tokens
    assert (found.usage.prompt_tokens, found.usage.completion_tokens) == (120, 7)


def test_chat_usage_counts_every_model_call(model: ModelServer, client: OpenAI) -> None:
    model.script(
        [CallTools(ScriptedCall("read", {"path": "none.txt"})), ReportedUsage(10, 2)],
        [Say("done"), ReportedUsage(20, 3)],
    )
    usage = ask(client, "Read it").usage
    assert (usage.prompt_tokens, usage.completion_tokens) == (30, 5)


def test_chat_stream_is_the_same_text_with_usage(model: ModelServer, client: OpenAI) -> None:
    model.script([Say(["Hel", "lo ", "you"], gap_s=0.01), ReportedUsage(11, 3)])
    chunks = list(ask(client, "Hi", stream=True, stream_options={"include_usage": True}))
    deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
    assert deltas[0].role == "assistant"
    assert "".join(delta.content or "" for delta in deltas) == "Hello you"
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert chunks[-1].choices == [] and chunks[-1].usage.prompt_tokens == 11
    assert len({chunk.id for chunk in chunks}) == 1


def test_chat_stream_has_text_before_the_model_ends(model: ModelServer, client: OpenAI) -> None:
    model.script([Say(["first ", "second"], gap_s=1.0)])
    stream, begin_s = iter(ask(client, "Hi", stream=True)), time.monotonic()
    text = next(chunk for chunk in stream if chunk.choices[0].delta.content)
    assert text.choices[0].delta.content == "first"
    assert time.monotonic() - begin_s < 0.9
    assert "".join(c.choices[0].delta.content or "" for c in stream) == " second"


def test_chat_conversation_reaches_model_with_its_roles(model: ModelServer, client: OpenAI) -> None:
    model.script([Say("Ada.")])
    ask(
        client,
        {"role": "system", "content": "Talk like a pirate."},
        "My name is Ada",
        {"role": "assistant", "content": "Ahoy Ada"},
        "Who am I?",
    )
    system, *others = sent_to_model(model)
    assert "Talk like a pirate." in json.dumps(system)
    assert [one["role"] for one in others] == ["user", "assistant", "user"]
    assert [one["content"] for one in others[:2]] == ["My name is Ada", "Ahoy Ada"]
    assert others[2]["content"].endswith("Who am I?")


def test_chat_user_has_a_session_with_its_own_history(model: ModelServer, client: OpenAI) -> None:
    model.script([Say("one")], [Say("two")])
    ask(client, "First", user="Ann@Example")
    ask(client, "invented", {"role": "assistant", "content": "x"}, "Second", user="ann@example")
    roles = [(one["role"], one["content"][-6:]) for one in sent_to_model(model)[1:]]
    assert [role for role, _ in roles] == ["user", "assistant", "user"]
    assert "invented" not in json.dumps(sent_to_model(model)[1:])


def test_chat_header_chooses_agent_and_session(
    gateway: Running, model: ModelServer, connect: Connect
) -> None:
    model.script([Say("one")], [Say("two")])
    headers = {"x-openclaw-agent-id": "ops", "x-openclaw-session-key": "agent:ops:main"}
    client = connect(**headers)
    ask(client, "First")
    ask(client, "Second", model="openclaw")
    roles = ["user", "assistant"] * 2
    wait_until(lambda: [one["role"] for one in transcript(gateway, "ops")] == roles)


@pytest.mark.parametrize("name", ["gpt-4o", "openclaw:nobody", "agent:"])
def test_chat_unknown_agent_is_not_found(client: OpenAI, name: str) -> None:
    with pytest.raises(NotFoundError) as caught:
        ask(client, "Hi", model=name)
    assert caught.value.code == "model_not_found"


def test_chat_session_of_other_agent_is_refused(connect: Connect) -> None:
    headers = {"x-openclaw-agent-id": "main", "x-openclaw-session-key": "agent:ops:main"}
    with pytest.raises(BadRequestError, match="ops"):
        ask(connect(**headers), "Hi")


# --- tools -------------------------------------------------------------------------------------


def test_chat_tool_call_and_its_result_without_session(model: ModelServer, client: OpenAI) -> None:
    model.script([Say("Let me look."), CallTools(ScriptedCall("get_weather", {"city": "Rome"}))])
    found = ask(client, "Rain in Rome?", tools=[WEATHER])
    (choice,) = found.choices
    assert choice.finish_reason == "tool_calls"
    (call,) = choice.message.tool_calls
    assert (call.function.name, json.loads(call.function.arguments)) == (
        "get_weather",
        {"city": "Rome"},
    )
    names = [tool["function"]["name"] for tool in model.requests[-1].body["tools"]]
    assert "get_weather" in names and "read" in names
    model.script([Say("Sunny.")])
    result = {"role": "tool", "tool_call_id": call.id, "content": "sun"}
    answer = ask(client, "Rain in Rome?", choice.message, result, tools=[WEATHER])
    assert answer.choices[0].message.content == "Sunny."
    assert [one["role"] for one in sent_to_model(model)[1:]] == ["user", "assistant", "tool"]
    assert sent_to_model(model)[-1]["content"] == "sun"


def test_chat_tool_results_continue_the_session_of_a_user(
    model: ModelServer, client: OpenAI
) -> None:
    calls = [ScriptedCall("get_weather", {"city": city}) for city in ("Rome", "Oslo")]
    model.script([CallTools(*calls)], [Say("Sun and snow.")])
    more: Any = {"tools": [WEATHER], "user": "tools-user"}
    message = ask(client, "Rome and Oslo?", **more).choices[0].message
    assert len(message.tool_calls) == 2
    results = [
        {"role": "tool", "tool_call_id": call.id, "content": text}
        for call, text in zip(message.tool_calls, ("sun", "snow"), strict=True)
    ]
    with pytest.raises(BadRequestError, match="no result"):
        ask(client, results[0], **more)
    with pytest.raises(BadRequestError, match="waits for a result"):
        ask(client, *results, {**results[0], "tool_call_id": "unknown"}, **more)
    assert ask(client, *results, **more).choices[0].message.content == "Sun and snow."
    assert [one["content"] for one in sent_to_model(model)[-2:]] == ["sun", "snow"]


def test_chat_stream_has_tool_calls(model: ModelServer, client: OpenAI) -> None:
    model.script([CallTools(ScriptedCall("get_weather", {"city": "Rome"}))])
    chunks = list(ask(client, "Rain?", tools=[WEATHER], stream=True))
    calls = [chunk.choices[0].delta.tool_calls for chunk in chunks if chunk.choices]
    ((call,),) = [one for one in calls if one]
    assert (call.index, call.function.name) == (0, "get_weather")
    assert chunks[-1].choices[0].finish_reason == "tool_calls"


def test_chat_own_and_client_calls_of_one_answer_both_run(
    gateway: Running, model: ModelServer, client: OpenAI
) -> None:
    gateway.home.workspace.mkdir(exist_ok=True)
    (gateway.home.workspace / "note.txt").write_text("umbrella")
    own = ScriptedCall("read", {"path": "note.txt"})
    model.script([CallTools(own, ScriptedCall("get_weather", {"city": "Rome"}))], [Say("Take it.")])
    more: Any = {"tools": [WEATHER], "user": "mixed"}
    (call,) = ask(client, "Rain?", **more).choices[0].message.tool_calls
    assert call.function.name == "get_weather"
    ask(client, {"role": "tool", "tool_call_id": call.id, "content": "rain"}, **more)
    results = [one["content"] for one in sent_to_model(model) if one["role"] == "tool"]
    assert "umbrella" in results[0] and results[1] == "rain"


def test_chat_without_the_tools_of_the_agent_offers_its_own(
    model: ModelServer, client: OpenAI
) -> None:
    model.script([Say("no tools")], [Say("mine")])
    ask(client, "Hi", extra_body={"disableTools": True})
    assert not model.requests[-1].body.get("tools")
    ask(client, "Hi", tools=[WEATHER], extra_body={"disableTools": True})
    names = [tool["function"]["name"] for tool in model.requests[-1].body["tools"]]
    assert names == ["get_weather"]


def test_chat_tool_choice_is_obeyed_or_an_error(model: ModelServer, client: OpenAI) -> None:
    model.script([Say("no tools")])
    ask(client, "Hi", tools=[WEATHER], tool_choice="none")
    names = [tool["function"]["name"] for tool in model.requests[-1].body["tools"]]
    assert "get_weather" not in names
    model.script([Say("I will not")])
    with pytest.raises(UnprocessableEntityError) as caught:
        ask(client, "Hi", tools=[WEATHER], tool_choice="required")
    assert caught.value.code == "tool_choice_not_met"
    named = {"type": "function", "function": {"name": "other"}}
    with pytest.raises(BadRequestError, match="other"):
        ask(client, "Hi", tools=[WEATHER], tool_choice=named)


@pytest.mark.parametrize(
    "more",
    [
        {"n": 2},
        {"response_format": {"type": "json_object"}},
        {"parallel_tool_calls": False, "tools": [WEATHER]},
        {"logprobs": True},
        {"temperature": 9},
        {"max_tokens": 0},
        {"tools": [WEATHER, WEATHER]},
        {"tools": [{"type": "function", "function": {"name": "bad name"}}]},
        {"tool_choice": "required"},
    ],
    ids=str,
)
def test_chat_field_that_cannot_be_obeyed_is_refused(client: OpenAI, more: Any) -> None:
    with pytest.raises(BadRequestError):
        ask(client, "Hi", **more)


def test_chat_sampling_reaches_the_model(model: ModelServer, client: OpenAI) -> None:
    model.script([Say("cut"), Stop("length")])
    more: Any = {"temperature": 0.25, "top_p": 0.5, "max_completion_tokens": 33, "stop": "END"}
    assert ask(client, "Hi", **more).choices[0].finish_reason == "length"
    body = model.requests[-1].body
    assert (body["temperature"], body["top_p"], body["stop"]) == (0.25, 0.5, ["END"])
    assert 33 in (body.get("max_tokens"), body.get("max_completion_tokens"))


# --- images and files --------------------------------------------------------------------------


def test_chat_image_reaches_the_model(model: ModelServer, client: OpenAI) -> None:
    model.script([Say("A dot.")])
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}
    question = {"role": "user", "content": [{"type": "text", "text": "What?"}, image]}
    assert ask(client, question).choices[0].message.content == "A dot."
    (sent,) = [one for one in sent_to_model(model)[-1]["content"] if one["type"] == "image_url"]
    assert sent["image_url"]["url"].startswith("data:image/png;base64,")


def test_chat_image_of_an_earlier_message_reaches_the_model(
    model: ModelServer, client: OpenAI
) -> None:
    model.script([Say("Still a dot.")])
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}
    question = {"role": "user", "content": [{"type": "text", "text": "What?"}, image]}
    ask(client, question, {"role": "assistant", "content": "A dot."}, "Sure?")
    assert "image_url" in json.dumps(sent_to_model(model)[1])


def test_chat_document_is_read(model: ModelServer, client: OpenAI) -> None:
    model.script([Say("It says hello.")])
    data = base64.b64encode(b"The secret word is heliotrope.").decode()
    file = {"file_data": f"data:text/plain;base64,{data}", "filename": "secret.txt"}
    part = {"type": "file", "file": file}
    ask(client, {"role": "user", "content": [{"type": "text", "text": "Read"}, part]})
    assert "heliotrope" in json.dumps(sent_to_model(model))


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:9/cat.png",
        "http://169.254.169.254/latest/meta-data",
        "file:///etc/passwd",
        "data:image/png;base64,AAAA",
        "data:image/png;base64,!!!",
    ],
)
def test_chat_image_that_may_not_be_read_is_refused(client: OpenAI, url: str) -> None:
    part = {"type": "image_url", "image_url": {"url": url}}
    with pytest.raises(BadRequestError):
        ask(client, {"role": "user", "content": [part]})


def test_chat_more_urls_than_allowed_are_refused(client: OpenAI) -> None:
    part = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
    with pytest.raises(BadRequestError, match="8 parts"):
        ask(client, {"role": "user", "content": [part] * 9})


# --- errors ------------------------------------------------------------------------------------


def test_chat_wrong_token_is_an_authentication_error(connect: Connect) -> None:
    with pytest.raises(AuthenticationError):
        ask(connect("wrong"), "Hi")


def test_chat_context_overflow_is_a_bad_request(model: ModelServer, client: OpenAI) -> None:
    model.script(*[[Overflow()]] * 6)
    with pytest.raises(BadRequestError) as caught:
        ask(client, "Hi")
    assert caught.value.code == "context_length_exceeded"


def test_chat_error_of_model_before_text_is_a_status_in_streams(
    model: ModelServer, client: OpenAI
) -> None:
    model.script(*[[Fail(400, "no such thing")]] * 3)
    with pytest.raises(BadRequestError):
        ask(client, "Hi", stream=True)


def test_chat_credential_of_gateway_that_fails_is_a_server_error(
    model: ModelServer, client: OpenAI
) -> None:
    model.script(*[[Fail(401, "bad key")]] * 3)
    with pytest.raises(InternalServerError) as caught:
        ask(client, "Hi")
    assert caught.value.status_code == 502


def test_chat_empty_message_is_refused(client: OpenAI) -> None:
    for messages in (["  "], [{"role": "assistant", "content": "x"}]):
        with pytest.raises(BadRequestError):
            ask(client, *messages)


# --- idempotency -------------------------------------------------------------------------------


def test_chat_idempotency_key_is_answered_once(connect: Connect, model: ModelServer) -> None:
    client = connect(**{"Idempotency-Key": "one-time"})
    model.script([Say("only once"), ReportedUsage(9, 4)])
    first = ask(client, "Hi")
    second = ask(client, "Hi")
    assert first == second
    assert len(model.requests) == 1
    with pytest.raises(APIError) as caught:
        ask(client, "Something else")
    assert caught.value.code == "idempotency_conflict"


def test_chat_idempotency_key_at_once_is_one_run(connect: Connect, model: ModelServer) -> None:
    client = connect(**{"Idempotency-Key": "twice-at-once"})
    model.script([Say(["slow ", "answer"], gap_s=0.4)])
    answers: list[Any] = []
    threads = [threading.Thread(target=lambda: answers.append(ask(client, "Hi"))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [one.choices[0].message.content for one in answers] == ["slow answer"] * 3
    assert len({one.id for one in answers}) == 1 and len(model.requests) == 1


def test_chat_without_key_every_request_is_a_run(model: ModelServer, client: OpenAI) -> None:
    model.script([Say("one")], [Say("two")])
    assert ask(client, "Hi").id != ask(client, "Hi").id


# --- disconnects, approvals --------------------------------------------------------------------


def test_chat_client_that_leaves_a_stream_stops_the_run(model: ModelServer, client: OpenAI) -> None:
    model.script([Say("begun "), HangUntilDisconnect()])
    stream = ask(client, "Hi", stream=True)
    next(iter(stream))
    stream.close()
    wait_until(lambda: model.requests[-1].outcome == "client left")


def test_chat_client_that_leaves_with_a_key_gets_the_answer_later(
    connect: Connect, model: ModelServer
) -> None:
    client = connect(**{"Idempotency-Key": "comes-back"})
    model.script([Say(["long ", "answer"], gap_s=0.5)])
    stream = ask(client, "Hi", stream=True)
    next(iter(stream))
    stream.close()
    assert (
        "".join(chunk.choices[0].delta.content or "" for chunk in ask(client, "Hi", stream=True))
        == "long answer"
    )
    assert len(model.requests) == 1


def wait_until(done: Any) -> None:
    deadline_s = time.monotonic() + 10
    while not done():
        assert time.monotonic() < deadline_s, "it did not happen in time"
        time.sleep(0.02)
