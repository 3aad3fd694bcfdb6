"""Texts sent by messaging tools, and which answers repeat them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homarus.agent.reply.duplicate_filter import SentTexts, normalize
from homarus.core.message import Address, ToolCall, ToolResult

HERE = Address("telegram", "-100:7", "work", "5")
TEXT = "The pump has failed."


def said(name: str = "message", *, error: bool = False, **args: Any) -> SentTexts:
    found = SentTexts(HERE)
    found.start(ToolCall("1", name, {"message": TEXT, **args}))
    found.end(ToolResult("1", name, (), is_error=error))
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
def test_sent_texts_message_to_this_chat_counts(args: dict[str, Any]) -> None:
    assert said(**args).contains(TEXT) and said(**args).has_any


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
def test_sent_texts_other_chats_and_failures_do_not_count(args: dict[str, Any]) -> None:
    assert not said(**args).contains(TEXT) and not said(**args).has_any


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
def test_sent_texts_ignore_case_space_emoji_and_small_additions(text: str) -> None:
    assert said().contains(text)


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
def test_sent_texts_longer_or_other_text_is_no_duplicate(text: str) -> None:
    assert not said().contains(text)


def test_sent_texts_short_text_matches_only_itself() -> None:
    assert said(message="Done.").contains("done.")
    assert not said(message="Done.").contains("It is done. Almost.")


def test_sent_texts_unknown_call_or_chat_is_ignored() -> None:
    found = SentTexts(None)
    found.start(ToolCall("1", "message", {"message": TEXT}))
    found.end(ToolResult("1", "message", ()))
    found.end(ToolResult("2", "message", ()))
    assert not found.has_any


@given(st.text())
def test_normalize_is_idempotent(text: str) -> None:
    assert normalize(normalize(text)) == normalize(text)
