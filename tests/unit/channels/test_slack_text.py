"""Decode Slack's markup, emoji names and timestamps."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homarus.channels.slack.emoji import _NAMES, emoji_name, emoji_sign
from homarus.channels.slack.inbound import SlackIdentity
from homarus.channels.slack.missed_messages import SlackReadPosition
from homarus.channels.slack.text import decode_text, escape_text
from homarus.channels.slack.timestamps import parse_ts, require_ts, ts_from_ms, ts_to_ms
from homarus.channels.slack.traits import TRAITS
from homarus.core.errors import SendError
from homarus.core.message import Address


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("hello <@U1> and <@U2|bob>", "hello @Ann and @bob"),
        ("<@U9>", "@U9"),
        ("in <#C1|general> or <#C2>", "in #general or #C2"),
        ("<!here> <!channel|x> <!everyone>", "@here @channel @everyone"),
        ("<!subteam^S1|@sailors> <!subteam^S2>", "@sailors @S2"),
        ("<!date^1392734382^Posted {date_num}|in 2014>", "in 2014"),
        ("<https://x.io/?a=1&amp;b=2>", "https://x.io/?a=1&b=2"),
        ("<https://x.io|the page>", "the page (https://x.io)"),
        ("<http://x.io|x.io> <mailto:a@x.io|a@x.io>", "http://x.io a@x.io"),
        ("1 &lt; 2 &amp;&amp; &amp;lt; &quot;", "1 < 2 && &lt; &quot;"),
        ("a < b > c <> <@> <|x>", "a < b > c <> <@> <|x>"),
        ("&lt;@U1&gt;", "<@U1>"),
    ],
)
def test_slack_markup_is_decoded_as_people_read_it(markup: str, text: str) -> None:
    assert decode_text(markup, {"U1": "Ann"}).text == text


def test_slack_mentions_are_people_and_groups() -> None:
    found = decode_text("<@U1> <@U1> <@W2> <!subteam^S1>", {})
    assert found.people == ("U1", "W2") and found.mentions_group
    assert not decode_text("<!here>", {}).mentions_group


@given(st.text())
def test_slack_escaped_text_decodes_to_itself(text: str) -> None:
    assert decode_text(escape_text(text), {}).text == text


@given(st.text(alphabet="<>@#!|^U1&;ab\n"))
def test_slack_any_markup_can_be_decoded(markup: str) -> None:
    decode_text(markup, {"U1": "<@U1>"})


def test_slack_common_emoji_have_names_both_ways() -> None:
    for emoji, name in _NAMES.items():
        assert emoji_name(emoji) == name and emoji_sign(name) == emoji
    assert emoji_sign("thumbsup::skin-tone-3") == "👍"
    assert emoji_name("❤️") == "heart" and emoji_name(":Party_Parrot:") == "party_parrot"
    assert emoji_sign("party_parrot") == ":party_parrot:" and emoji_sign("") == ""
    assert emoji_name("𓂀") == emoji_name("two words") == ""


def test_slack_timestamps_are_ids_and_times() -> None:
    ts = "1700000000.000100"
    assert parse_ts(ts) == parse_ts(f"C1:{ts}") == parse_ts(f"C1:{ts}", "C1") == ts
    assert parse_ts(f"C1:{ts}", "C2") == parse_ts("press:C1:1.5") == parse_ts("") == ""
    assert ts_to_ms(ts) == 1_700_000_000_000 and ts_to_ms("x") == 0
    assert ts_from_ms(1_700_000_000_123) == "1700000000.123000"
    assert require_ts(f"D1:{ts}", Address("slack", "U1")) == ts
    with pytest.raises(SendError):
        require_ts(f"C2:{ts}", Address("slack", "C1"))


def test_slack_ids_are_ids_and_names_are_none() -> None:
    for id_ in ("U0123ABCD", "W1", "B1", "C1", "G1", "D1"):
        assert TRAITS.canonical_id(id_) == id_
    for name in ("ada", "#general", "general", "u0123abcd", "C 1", "", "X1", "U1\n"):
        assert TRAITS.canonical_id(name) == ""
    assert TRAITS.is_group_id("C1") and TRAITS.is_group_id("G1") and not TRAITS.is_group_id("D1")


def test_slack_cursor_keeps_the_places_used_last() -> None:
    me = SlackIdentity("U1", team="T1")
    position = SlackReadPosition(me)
    assert not position.load(None, 1_000)
    for number in range(150):
        position = position.after(f"C{number}", None, f"{number + 10}.000001")
    position = position.after("C100", "5.5", "3.000001").after("C60", None, "2.000001")
    assert len(position.places) == 100 and position.last == "159.000001"
    assert position.places["C60"] == "70.000001"  # an older message moves nothing back
    assert [*position.places][-2:] == ["C100/5.5", "C60"] and "C50" not in position.places
    again = SlackReadPosition(me)
    assert again.load(position.encode(), 1_000) and again.encode() == position.encode()
    assert not again.load({**position.encode(), "team": "T2"}, 1_000)
    odd = {**position.encode(), "places": {"C1": 5, "C2": "x", "C3": "1.5"}, "last": []}
    assert again.load(odd, 1_500) and again.places == {"C3": "1.5"} and again.last == "1.500000"
