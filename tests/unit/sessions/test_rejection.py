"""Which messages later requests leave out, and which ones follow each other rightly."""

from dataclasses import replace

import pytest

from homarus.core.message import (
    Message,
    StopInfo,
    StopReason,
    Text,
    Thinking,
    ToolCall,
    user_message,
)
from homarus.sessions.rejection import (
    CONTENT_ERRORS,
    SUPERSEDED,
    indexed_without_rejected,
    leave_out_rejected,
)
from homarus.sessions.transcript import INJECTED, decode_message, message_draft
from tests.unit.agent.builders import ORIGIN, result, said, summary

FILTERED, INVALID = "provider.content_filtered", "provider.bad_request"


def failed(
    code: str = "provider.auth", *parts: Text | Thinking, stop: StopReason = "error"
) -> Message:
    return Message("assistant", parts, 0, replace(ORIGIN, stop=stop, error="no", code=code))


def call(call_id: str, name: str = "exec") -> Message:
    return said(ToolCall(call_id, name, {}))


def texts(*messages: Message) -> list[str]:
    return [f"{message.role}: {message.text}" for message in leave_out_rejected(messages)]


@pytest.mark.parametrize(
    "code",
    ["", "provider.auth", "provider.unreachable", "provider.all_failed", *sorted(CONTENT_ERRORS)],
)
def test_question_rejected_by_service_is_left_out(code: str) -> None:
    history = [user_message("a"), said("b"), user_message("hi"), failed(code), user_message("hi")]
    assert texts(*history) == ["user: a", "assistant: b", "user: hi"]


def test_last_question_is_sent_until_another_follows() -> None:
    history = [user_message("hi"), failed()]
    assert [one.text for one in leave_out_rejected(history)][:1] == ["hi"]
    repeated = [user_message("hi"), failed("provider.context_overflow"), call("c"), result("c", "")]
    assert [one.role for one in leave_out_rejected(repeated) if one.calls or one.text] == [
        "user",
        "assistant",
    ]
    later = [*repeated, said("done"), user_message("next")]
    assert texts(*later)[0] == "user: hi", "the run went on and answered it"


@pytest.mark.parametrize("code", ["run.stopped.spend_cap", "run.broke", "user"])
def test_question_that_never_reached_a_service_stays(code: str) -> None:
    history = [user_message("one"), failed(code), user_message("two")]
    assert texts(*history) == ["user: one", "assistant: ", "user: two"]


def test_question_stopped_before_an_answer_is_left_out() -> None:
    stopped = failed("", Thinking("hm"), stop="aborted")
    by_person = replace(
        stopped, origin=replace(ORIGIN, stop="aborted", stopped=StopInfo("r", "rpc"))
    )
    for end in (stopped, by_person):
        assert texts(user_message("one"), end, user_message("two")) == ["user: two"]


def test_question_interrupted_by_newer_message_stays() -> None:
    end = failed(SUPERSEDED, stop="aborted")
    assert texts(user_message("book"), end, user_message("to Paris"))[::2] == [
        "user: book",
        "user: to Paris",
    ]


def test_question_with_partial_answer_stays() -> None:
    partial = failed("provider.stream", Text("It is"))
    assert texts(user_message("one"), partial, user_message("go on")) == [
        "user: one",
        "assistant: It is",
        "user: go on",
    ]


def test_partial_answer_that_was_filtered_is_left_out() -> None:
    partial = failed(FILTERED, Text("It is"))
    assert texts(user_message("one"), partial, user_message("two")) == ["user: two"]


def test_consecutive_questions_without_failure_stay() -> None:
    history = [user_message("one"), user_message("two"), said("ok"), call("c"), result("c", "x")]
    history += [user_message("steer"), user_message("more")]
    assert leave_out_rejected(history) is history


def test_several_failures_in_a_row_are_all_left_out() -> None:
    history = [user_message("one"), failed(), user_message("two"), failed(INVALID)]
    assert texts(*history, user_message("three")) == ["user: three"]


def test_tool_results_survive_a_failure_of_the_service() -> None:
    history = [user_message("do"), call("c"), result("c", "out"), failed("provider.overloaded")]
    kept = leave_out_rejected([*history, user_message("next")])
    assert [one.role for one in kept] == ["user", "assistant", "tool", "user"]
    assert kept[1].calls


@pytest.mark.parametrize("code", sorted(CONTENT_ERRORS))
def test_refused_tool_results_are_replaced_by_a_note(code: str) -> None:
    history = [user_message("do"), call("a", "read"), result("a", "fine"), call("b", "web_fetch")]
    history += [result("b", "poison"), user_message("and quickly"), failed(code)]
    kept = leave_out_rejected([*history, user_message("next")])
    assert [one.role for one in kept] == ["user", "assistant", "tool", "assistant", "user"]
    assert "web_fetch" in kept[3].text and not kept[3].calls
    assert "poison" not in repr(kept) and "quickly" not in repr(kept)


def test_summary_and_injected_messages_stay() -> None:
    before, note = summary("we met"), Message("assistant", (Text("note"),), 0, INJECTED)
    history = [before, user_message("hi"), note, failed(INVALID), user_message("b")]
    assert [one.text for one in leave_out_rejected(history)] == [before.text, "note", "b"]


def test_indexes_are_those_of_the_given_messages() -> None:
    history = [user_message("a"), failed(), user_message("b"), said("c")]
    assert [index for index, _ in indexed_without_rejected(history)] == [2, 3]


def test_error_code_survives_the_transcript() -> None:
    entry = message_draft(failed(FILTERED)).at("e", None, 1)
    decoded = decode_message(entry)
    assert decoded is not None and decoded.origin is not None
    assert decoded.origin.code == FILTERED
    assert "errorCode" not in message_draft(said("fine")).data["message"]
