"""The words of a message, without what programs put around them."""

import time
from datetime import UTC

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homarus.core.message import Address, Inbound, InboundMetadata, Media
from homarus.memory.cleaning import clean_assistant, clean_user
from homarus.sessions.envelope import EnvelopeOptions, format_envelope, prepend_notes

AT_MS = 1_771_322_400_000


def test_clean_user_envelope_is_removed() -> None:
    inbound = Inbound(
        "1",
        Address("telegram", "42"),
        "42",
        "Is the shop open?",
        at_ms=AT_MS,
        metadata=InboundMetadata(name="Ann"),
        media=(Media("image", mime="image/png", path="/home/me/cat.png"),),
    )
    told = prepend_notes(format_envelope(inbound, EnvelopeOptions(zone=UTC)), "- yesterday's note")
    assert clean_user(told) == "Is the shop open?"


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ("[Wed 2026-01-28 20:30 EST] Is it the weekend?", "Is it the weekend?"),
        ("System: [2026-01-28 20:30:11 EST] exec finished\n\nwhat now?", "what now?"),
        ("<media:image>", ""),
        ("[media attached: /x/y.png (image/png)]\nlook at this", "look at this"),
        ("hello\n[message_id: 77]", "hello"),
        ("a\x07b\x1b[31mred\u202ekcab", "ab[31mredkcab"),
        ("Read HEARTBEAT.md if it exists. If nothing needs attention, reply HEARTBEAT_OK.", ""),
        ("Pre-compaction memory flush. Store durable memories now.", ""),
        ("Look through it. Then answer NO_REPLY; answer it at once.", ""),
        ("What does the word NO_REPLY mean?", "What does the word NO_REPLY mean?"),
        ("   \n ", ""),
    ],
)
def test_clean_user_keeps_user_text(told: str, said: str) -> None:
    assert clean_user(told) == said


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ("NO_REPLY", ""),
        ("**HEARTBEAT_OK**", ""),
        ("HEARTBEAT_OK", ""),
        ("[[reply_to_current]] It is open.", "It is open."),
        ("<think>hm, hm</think>It is open.", "It is open."),
        ("Here you are.\nMEDIA:/tmp/a.png", "Here you are."),
        ("The meeting is at 5.", "The meeting is at 5."),
    ],
)
def test_clean_assistant_keeps_answer_text(told: str, said: str) -> None:
    assert clean_assistant(told) == said


def test_clean_secrets_are_redacted() -> None:
    key = "sk-" + "a1B2" * 8
    for clean in (clean_user, clean_assistant):
        told = clean(f"my key is {key}, keep it")
        assert key not in told
        assert told.startswith("my key is ***")


@given(st.text())
def test_clean_any_text_leaves_nothing_invisible(text: str) -> None:
    for clean in (clean_user, clean_assistant):
        told = clean(text)
        assert told == told.strip()
        assert not any(ch < " " and ch not in "\n\t" for ch in told)
        told.encode()


@pytest.mark.parametrize(
    "unit", ["eyJaaaaa-", "<think>", " ", "[image ", "reply ", "NO_REPLY ", "[[reply_to:", "://a:"]
)
def test_clean_long_message_finishes_in_time(unit: str) -> None:
    text = f"x{unit * (200_000 // len(unit))}y"
    began_s = time.process_time()
    clean_user(text)
    clean_assistant(text)
    assert time.process_time() - began_s < 15  # by the square it would be a minute


def test_clean_emoji_sequence_stays_together() -> None:
    assert (
        clean_user("the \U0001f468\u200d\U0001f469 came") == "the \U0001f468\u200d\U0001f469 came"
    )
