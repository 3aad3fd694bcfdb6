"""Resolve queue settings, apply the cap, and format queue prompts."""

import math
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homarus.config.schema import InboundDebounceConfig, QueueConfig
from homarus.core.errors import UserError
from homarus.core.message import Address, Inbound, InboundMetadata
from homarus.sessions.directives import QueueDirective, extract_queue
from homarus.sessions.levels import QueueDrop
from homarus.sessions.queue_policy import (
    ALBUM_MS,
    COLLECTED,
    MAX_LINE_CHARS,
    CapDecision,
    QueueSettings,
    apply_cap,
    apply_queue_command,
    collect_prompt,
    format_queue_settings,
    inbound_debounce_ms,
    parse_queue_args,
    recent_summary_lines,
    resolve_queue_settings,
    summary_line,
    summary_prompt,
)
from homarus.store.journal import InboxRecord

CONFIG = QueueConfig.model_validate(
    {
        "mode": "followup",
        "byChannel": {"telegram": "steer+backlog", "matrix": "queue"},
        "debounceMs": 10,
        "debounceMsByChannel": {"telegram": 20},
        "cap": 5,
        "drop": "new",
    }
)


def test_queue_settings_default_without_config() -> None:
    assert resolve_queue_settings(QueueConfig()) == QueueSettings("collect", 1_000, 20, "summarize")


def test_queue_settings_most_specific_value_wins() -> None:
    inline = extract_queue("/queue interrupt debounce:2s cap:1 drop:summarize")[1]
    entry = {"queueMode": "collect", "queueDebounceMs": 30, "queueCap": 7, "queueDrop": "old"}
    assert resolve_queue_settings(CONFIG) == QueueSettings("followup", 10, 5, "new")
    assert resolve_queue_settings(CONFIG, channel=" Telegram ").mode == "steer-backlog"
    assert resolve_queue_settings(CONFIG, channel="telegram").debounce_ms == 20
    assert resolve_queue_settings(CONFIG, channel="matrix").mode == "followup"
    assert resolve_queue_settings(CONFIG, channel="telegram", entry=entry) == QueueSettings(
        "collect", 30, 7, "old"
    )
    both = resolve_queue_settings(CONFIG, channel="telegram", entry=entry, inline=inline)
    assert both == QueueSettings("interrupt", 2_000, 1, "summarize")


def test_queue_debounce_of_zero_is_kept() -> None:
    assert resolve_queue_settings(CONFIG, entry={"queueDebounceMs": 0}).debounce_ms == 0
    inline = extract_queue("/queue debounce:0")[1]
    assert inline and inline == QueueDirective(debounce_ms=inline.debounce_ms)
    assert resolve_queue_settings(CONFIG, inline=inline).debounce_ms == 0


@pytest.mark.parametrize("value", [None, True, "3", -1, math.nan, math.inf, [], {}, 0.5])
def test_queue_settings_ignore_invalid_entry_numbers(value: object) -> None:
    entry = {"queueMode": value, "queueCap": value, "queueDrop": value}
    assert resolve_queue_settings(CONFIG, entry=entry) == resolve_queue_settings(CONFIG)


@pytest.mark.parametrize("text", ["/queue bogus", "/queue cap:0 drop:some debounce:soon"])
def test_queue_settings_ignore_unknown_words(text: str) -> None:
    assert resolve_queue_settings(CONFIG, inline=extract_queue(text)[1]) == resolve_queue_settings(
        CONFIG
    )


@given(st.lists(st.integers()), st.integers(1, 30), st.sampled_from(get_args(QueueDrop)))
def test_apply_cap_leaves_room_for_one_more(waiting: list[int], cap: int, drop: QueueDrop) -> None:
    decision = apply_cap(waiting, cap, drop)
    assert [*decision.dropped, *decision.kept] == waiting
    assert len(decision.kept) < cap or not decision.is_accepted
    assert decision.is_accepted or (drop == "new" and len(waiting) >= cap)


@given(st.text())
def test_summary_line_is_single_and_short(text: str) -> None:
    line = summary_line(text)
    assert len(line) <= MAX_LINE_CHARS and len(line.splitlines()) <= 1


def test_queue_prompts_match_documentation() -> None:
    assert summary_prompt(0, []) == ""
    lost = summary_prompt(2, ["a", "b"])
    assert lost == "[Queue overflow] Dropped 2 messages due to cap.\nSummary:\n- a\n- b"
    asked = collect_prompt(["one", "two"], lost)
    assert asked == f"{COLLECTED}\n\n{lost}\n\n---\nQueued #1\none\n\n---\nQueued #2\ntwo"


def test_format_queue_settings_can_be_parsed_again() -> None:
    settings = QueueSettings("steer", 1_500, 3, "old")
    text, found = extract_queue(f"/queue {format_queue_settings(settings)}")
    assert text == ""
    assert resolve_queue_settings(QueueConfig(), inline=found) == settings


def changed(*lines: str) -> tuple[list[str], dict[str, object]]:
    """Return the last reply to several `/queue` commands, and the entry afterwards."""

    entry = dict[str, object]()
    told = list[str]()
    for line in lines:
        said, fields = apply_queue_command(CONFIG, entry, parse_queue_args(line), channel="irc")
        told.append(said)
        entry = {name: value for name, value in {**entry, **fields}.items() if value is not None}
    return told, entry


def test_queue_command_shows_and_stores_settings() -> None:
    told, kept = changed("", "collect debounce:2s", "cap:3", "")
    assert told[0] == "Queue: followup debounce:10ms cap:5 drop:new"
    assert told[1] == "Queue: collect debounce:2000ms cap:5 drop:new (set for this session)"
    assert told[3] == "Queue: collect debounce:2000ms cap:3 drop:new (set for this session)"
    assert kept == {"queueMode": "collect", "queueDebounceMs": 2_000, "queueCap": 3}


@pytest.mark.parametrize("word", ["reset", "default", "CLEAR"])
def test_queue_command_reset_removes_settings(word: str) -> None:
    told, kept = changed("steer debounce:1s cap:2 drop:old", word)
    assert told[1] == "Queue: followup debounce:10ms cap:5 drop:new"
    assert kept == {}


@pytest.mark.parametrize(
    "args", ["bogus", "collect and tell me", "collect cap:0", "drop:some", "debounce:soon"]
)
def test_queue_command_with_unknown_word_raises(args: str) -> None:
    with pytest.raises(UserError, match="/queue does not understand") as caught:
        changed(args)
    assert "steer-backlog" in caught.value.fix


@pytest.mark.parametrize(
    ("rules", "channel", "album", "waits_ms"),
    [
        ({}, "telegram", "", 0),
        ({}, "telegram", "7", ALBUM_MS),
        ({"debounceMs": 200}, "telegram", "", 200),
        ({"debounceMs": 200}, "telegram", "7", ALBUM_MS),
        ({"debounceMs": 9_000, "byChannel": {"irc": 50}}, "telegram", "7", 9_000),
        ({"debounceMs": 9_000, "byChannel": {"irc": 50}}, "irc", "", 50),
        ({"debounceMs": 9_000}, "webchat", "7", 0),
    ],
)
def test_inbound_debounce_by_channel_and_album(
    rules: dict[str, object], channel: str, album: str, waits_ms: int
) -> None:
    said = Inbound("1", Address(channel, "c"), "ann", "", metadata=InboundMetadata(album=album))
    row = InboxRecord("1", "s", channel, "default", "1", "ann", "", 1, inbound=said)
    assert inbound_debounce_ms(InboundDebounceConfig.model_validate(rules), row) == waits_ms


def test_apply_cap_below_one_is_no_cap() -> None:
    assert apply_cap([1, 2, 3], 0, "new") == CapDecision((1, 2, 3))


def test_queue_summary_keeps_lines_of_last_messages_and_noun() -> None:
    assert recent_summary_lines(["a", "b", "c"], 2) == ["b", "c"]
    prompt = summary_prompt(2, ["a"], noun="item")
    assert prompt == "[Queue overflow] Dropped 2 items due to cap.\nSummary:\n- a"
    assert summary_line("one two three", 8) == "one two…"


def test_queue_settings_out_of_range_config_is_clamped() -> None:
    found = resolve_queue_settings(QueueConfig.model_construct(debounce_ms=-5, cap=0))
    assert (found.debounce_ms, found.cap, found.drop) == (0, 1, "summarize")
