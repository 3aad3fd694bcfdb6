"""The words that mean silence."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homarus.core.silent_reply import (
    is_blank_checklist,
    is_silent_text,
    may_be_silent,
    strip_heartbeat_ack,
    strip_heartbeat_token,
)

WORDS = st.lists(st.sampled_from(["HEARTBEAT_OK", "**", "`", " ", "\n", "All is well", ".", "<b>"]))


def words(text: str) -> list[str]:
    # A token inside markup is found in the text without its tags.
    return re.findall(r"[A-Za-z]+", text.replace("HEARTBEAT_OK", " ").replace("<b>", " "))


@pytest.mark.parametrize(
    "text", ["", "N", "NO_", "**NO_REPLY", "NO_REPLY.", "HEART", "_HEARTBEAT_OK_"]
)
def test_may_be_silent_prefix_of_a_token_is_true(text: str) -> None:
    assert may_be_silent(text)


@pytest.mark.parametrize("text", ["No", "NO way", "NOT", "NO_REPLY yes", "Heart", "- NO_REPLY"])
def test_may_be_silent_other_text_is_false(text: str) -> None:
    assert not may_be_silent(text)


@given(WORDS.map("".join))
def test_strip_heartbeat_ack_removes_only_the_token(text: str) -> None:
    found = strip_heartbeat_ack(text, heartbeat=False)
    if not found.skip:
        assert words(found.text) == words(text)
    assert not found.text.startswith("HEARTBEAT_OK ")


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("<code>HEARTBEAT_OK</code> all good", "all good"),
        ("**HEARTBEAT_OK** all good", "** all good"),
        ("All good HEARTBEAT_OK!!!", "All good!!!"),
        ("All good <b>HEARTBEAT_OK</b>.", "All good."),
        ("\U0001f99e HEARTBEAT_OK \U0001f99e", "\U0001f99e\U0001f99e"),
        ("x HEARTBEAT_OK.....", "x HEARTBEAT_OK....."),
        ("**HEARTBEAT_OK**", "****"),
    ],
)
def test_strip_heartbeat_token_inside_markup_leaves_the_rest(text: str, rest: str) -> None:
    assert strip_heartbeat_token(text, heartbeat=False).text == rest
    assert strip_heartbeat_token(text, heartbeat=True, max_chars=0).text == rest


def test_strip_heartbeat_ack_with_markup_alone_is_skipped() -> None:
    assert strip_heartbeat_ack("**HEARTBEAT_OK**", heartbeat=False).skip


def test_strip_heartbeat_ack_keeps_longer_word() -> None:
    assert strip_heartbeat_ack("HEARTBEAT_OKAY then", heartbeat=False).text == "HEARTBEAT_OKAY then"
    assert strip_heartbeat_ack("HEARTBEAT_OKAY then", heartbeat=True).skip


def test_strip_heartbeat_ack_of_alert_keeps_its_lines() -> None:
    alert = "Two things:\n- the pump\n- the van, which is late again"
    assert strip_heartbeat_ack(f"{alert}\n\nHEARTBEAT_OK", heartbeat=True).text == alert


def test_strip_heartbeat_ack_repeated_tokens_is_fast() -> None:
    assert strip_heartbeat_ack("HEARTBEAT_OK " * 20_000, heartbeat=True, max_chars=30).found
    assert is_silent_text("NO_REPLY " * 20_000)
    assert is_silent_text("x", "") is False


def test_blank_checklist_with_empty_boxes_is_blank() -> None:
    assert is_blank_checklist("# Tasks\n\n- [ ]\n- [x] \n*\n")
    assert not is_blank_checklist("- [ ] water the plants")
    assert not is_blank_checklist(None)
