"""What a messaging tool has said, and what counts as saying it again."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homarus.agent.reply.said import Said, normalize
from homarus.core.message import Address, ToolCall, ToolReturn

HERE = Address("telegram", "-100:7", "work", "5")
TEXT = "The pump has failed."


def said(name: str = "message", *, error: bool = False, **args: Any) -> Said:
    found = Said(HERE)
    found.start(ToolCall("1", name, {"message": TEXT, **args}))
    found.end(ToolReturn("1", name, (), is_error=error))
    return found


@pytest.mark.parametrize(
    "args",
    [
        {},
        {"action": "send", "channel": "Telegram"},
        {"target": "-100:7"},
        {"target": "telegram:-100:7", "accountId": "work", "threadId": 5},
        {"to": "chat:-100:7"},
        {"target": "telegram:work:-100:7"},
        {"target": "-100:7:topic:5"},
        {"targets": ["9", "-100:7"], "action": "reply"},
        {"message": "", "caption": TEXT},
    ],
)
def test_what_is_said_here_counts(args: dict[str, Any]) -> None:
    assert said(**args).repeats(TEXT) and said(**args).anything


@pytest.mark.parametrize(
    "args",
    [
        {"target": "9"},
        {"target": "7"},
        {"target": "discord:-100:7"},
        {"target": "telegram:home:-100:7"},
        {"target": "-100:7:topic:6"},
        {"channel": "discord"},
        {"accountId": "home"},
        {"threadId": "6"},
        {"action": "react"},
        {"action": "poll"},
        {"dryRun": True},
        {"message": 7},
        {"targets": "9"},
        {"name": "sessions_send"},
        {"error": True},
    ],
)
def test_what_is_said_elsewhere_or_not_at_all_does_not(args: dict[str, Any]) -> None:
    assert not said(**args).repeats(TEXT) and not said(**args).anything


@pytest.mark.parametrize(
    "text",
    [
        "the  PUMP has\nfailed.",
        "The pump has failed. 🦞",
        "👩🏽‍🔧 The pump has failed.",
        "pump has failed",
        "Done! The pump has failed.",
    ],
)
def test_case_space_emoji_and_next_to_nothing_make_no_difference(text: str) -> None:
    assert said().repeats(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "🦞",
        "failed",
        "The pump has failed. A new one comes on Monday, with the usual van.",
        "Yes",
    ],
)
def test_what_says_more_or_something_else_is_no_repetition(text: str) -> None:
    assert not said().repeats(text)


def test_a_short_word_is_repeated_only_by_itself() -> None:
    assert said(message="Done.").repeats("done.")
    assert not said(message="Done.").repeats("It is done. Almost.")


def test_a_result_without_a_call_and_a_chat_nobody_knows_are_no_trouble() -> None:
    found = Said(None)
    found.start(ToolCall("1", "message", {"message": TEXT}))
    found.end(ToolReturn("1", "message", ()))
    found.end(ToolReturn("2", "message", ()))
    assert not found.anything


@given(st.text())
def test_comparing_is_stable(text: str) -> None:
    assert normalize(normalize(text)) == normalize(text)
