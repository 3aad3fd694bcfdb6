"""What a request says to an agent: the conversation, its tools, its images and files."""

import base64

import pytest

from homarus.core.message import Image, ToolCall, ToolResult, Usage
from homarus.gateway.http_api.api_error import ApiError
from homarus.gateway.http_api.conversation import (
    DecodedParts,
    SentConversation,
    SentMessage,
    encode_history,
    parse_call,
    split_conversation,
)
from homarus.gateway.http_api.requested_tools import FunctionDeclaration, choose_tools
from homarus.gateway.http_api.run_answer import RunAnswer
from homarus.gateway.http_api.sent_files import _decode
from homarus.sessions.transcript import decode_stored_message

CALL = ToolCall("c1", "weather", {"city": "Rome"})
HELLO, ANSWER = SentMessage("user", "Hello"), SentMessage("assistant", "Hi")
CALLED = SentMessage("assistant", calls=(CALL,))
RESULT = SentMessage("tool", "sun", call_id="c1")


def split(*messages: SentMessage, is_single: bool = True) -> SentConversation:
    return split_conversation([" Be brief. ", ""], messages, is_single=is_single, param="messages")


def test_session_of_its_own_gets_the_whole_conversation() -> None:
    found = split(HELLO, ANSWER, SentMessage("user", "And"), SentMessage("user", "now?"))
    assert found.system == "Be brief."
    assert (found.earlier, found.text) == ((HELLO, ANSWER), "And\n\nnow?")


def test_lasting_session_gets_what_follows_the_last_answer() -> None:
    found = split(HELLO, ANSWER, SentMessage("user", "now?"), is_single=False)
    assert (found.earlier, found.text) == ((), "now?")


def test_lasting_session_gets_results_and_question() -> None:
    found = split(HELLO, CALLED, RESULT, SentMessage("user", "So?"), is_single=False)
    assert (found.results, found.text) == ((RESULT,), "So?")


def test_results_at_the_end_need_no_question() -> None:
    assert split(HELLO, CALLED, RESULT).earlier == (HELLO, CALLED, RESULT)


@pytest.mark.parametrize(
    "messages",
    [
        (),
        (ANSWER,),
        (SentMessage("user", "  \n"),),
        (HELLO, ANSWER),
        (HELLO, RESULT),
        (RESULT,),
        (HELLO, CALLED, HELLO),
        (HELLO, CALLED, RESULT, RESULT),
        (HELLO, CALLED, HELLO, RESULT),
        (HELLO, SentMessage("assistant", calls=(CALL, CALL)), RESULT),
    ],
)
def test_conversation_without_sense_is_refused(messages: tuple[SentMessage, ...]) -> None:
    with pytest.raises(ApiError) as caught:
        split(*messages)
    assert (caught.value.status, caught.value.param) == (400, "messages")


def test_history_keeps_roles_calls_results_and_images() -> None:
    picture = Image("AAAA", "image/png")
    stored = encode_history((HELLO, CALLED, RESULT), DecodedParts({id(HELLO): (picture,)}))
    question, answer, result = [decode_stored_message(each, 7) for each in stored]
    assert question and answer and result
    assert question.parts[1] == picture and question.at_ms == 7
    assert answer.calls == (CALL,)
    (part,) = result.parts
    assert isinstance(part, ToolResult) and (part.name, part.text) == ("weather", "sun")


@pytest.mark.parametrize("arguments", ["{", "[1]", "1" * 5_000, "[" * 100_000])
def test_call_with_broken_arguments_keeps_them_as_text(arguments: str) -> None:
    assert parse_call("c", "f", arguments) == ToolCall("c", "f", {}, arguments)


def declared(name: str) -> FunctionDeclaration:
    return FunctionDeclaration(name=name)


def test_choice_limits_what_is_offered() -> None:
    tools = [declared("a"), declared("b")]
    assert choose_tools(tools, "none").tools == ()
    assert [tool.name for tool in choose_tools(tools, "auto").tools] == ["a", "b"]
    named = choose_tools(tools, "auto", "b")
    assert [tool.name for tool in named.tools] == ["b"] and "`b`" in named.prompt
    assert choose_tools(tools, "required").demanded == ("a", "b")


def test_choice_that_is_not_met_is_an_error() -> None:
    tools = choose_tools([declared("a")], "required")
    tools.check(RunAnswer("", Usage(), (CALL,)))
    with pytest.raises(ApiError) as caught:
        tools.check(RunAnswer("no", Usage()))
    assert caught.value.status == 422


@pytest.mark.parametrize("count", [129])
def test_more_tools_than_allowed_are_refused(count: int) -> None:
    with pytest.raises(ApiError):
        choose_tools([declared(f"t{number}") for number in range(count)], "auto")


def test_data_url_is_decoded_with_its_type() -> None:
    data = base64.b64encode(b"hello").decode()
    assert _decode(f"data:text/plain;charset=utf-8;base64,{data}", 10, "x") == (
        "text/plain",
        b"hello",
    )
    assert _decode("data:text/plain,a%20b", 10, "x") == ("text/plain", b"a b")
    assert _decode(data, 10, "x") == ("", b"hello")


@pytest.mark.parametrize("source", ["data:text/plain;base64", "data:;base64,***", "***"])
def test_data_that_is_none_is_refused(source: str) -> None:
    with pytest.raises(ApiError) as caught:
        _decode(source, 100, "x")
    assert caught.value.status == 400


@pytest.mark.parametrize("source", ["A" * 200, "data:text/plain," + "%41" * 80])
def test_data_that_is_too_large_is_refused(source: str) -> None:
    with pytest.raises(ApiError) as caught:
        _decode(source, 100, "x")
    assert caught.value.status == 413
