"""Stamps on messages: put on once, taken off whole."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homarus.sessions.envelope import stamp, strip

AT_MS = int(datetime(2026, 1, 29, 1, 30, tzinfo=UTC).timestamp() * 1000)
FACTS = 'Conversation info (untrusted metadata):\n```json\n{\n  "sender": "cli"\n}\n```'


def test_a_message_is_stamped_with_weekday_date_time_and_zone() -> None:
    zone = ZoneInfo("America/New_York")
    said = stamp("Is it the weekend?", AT_MS, zone)
    assert said == "[Wed 2026-01-28 20:30 EST] Is it the weekend?"
    assert stamp("[note] hello", AT_MS, UTC) == "[Thu 2026-01-29 01:30 UTC] [note] hello"


def test_without_a_zone_the_time_is_this_machines() -> None:
    here = datetime.fromtimestamp(AT_MS / 1000).astimezone()
    assert stamp("hi", AT_MS).startswith(f"[{here:%a %Y-%m-%d %H:%M}")


@pytest.mark.parametrize(
    "text", ["x\nCurrent time: 1", "[Wed 2026-01-28 20:30 EST] again", "", "   "]
)
def test_what_tells_the_time_or_nothing_stays_as_it_is(text: str) -> None:
    assert stamp(text, AT_MS, UTC) == text


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[Sun 2026-11-15 06:37 UTC] Hi there", "Hi there"),
        ("[WhatsApp user1 Tue 2026-02-17T12:34Z] hello", "hello"),
        ("[Slack] b", "b"),
        ("[Telegram Ann +2m] b\n[message_id: 17]", "b"),
        ("[TODO] mow the lawn", "[TODO] mow the lawn"),
        ("[Slackware 15] is out", "[Slackware 15] is out"),
        ("see [2026-01-28 20:30]", "see [2026-01-28 20:30]"),
        (f"{FACTS}\n\n[Sun 2026-11-15 06:37 UTC] Hi", "Hi"),
    ],
)
def test_the_envelope_comes_off_and_nothing_else(text: str, told: str) -> None:
    assert strip(text) == told


@given(st.text(max_size=300).filter(lambda text: "[message_id:" not in text))
def test_a_stamped_text_comes_back_as_it_was(text: str) -> None:
    stamped = stamp(text, AT_MS, UTC)
    assert strip(stamped) == text or stamped == text


def test_a_hostile_header_is_read_in_linear_time() -> None:
    hostile = "[" * 200_000 + "2026-01-01 00:00" + " " * 200_000
    assert strip(hostile) == hostile
    assert strip("[Slack " + "x" * 400_000) == "[Slack " + "x" * 400_000
