"""A text as outbox records of one service: split, with captions and notes."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homarus.channels.base import TTL_MS, Capabilities
from homarus.channels.chunk import measure
from homarus.channels.outbound import build_outbox_records, with_reply_to
from homarus.config.channels import AccountSettings
from homarus.core.approval_button import make_approval_buttons
from homarus.core.message import Address, Button, Extras, Inbound, Media, TextStyle
from homarus.store.journal import OutboxRecord

CHAT = Address("svc", "chat")
UNITS = ("utf16", "codepoint", "byte")
USUAL = AccountSettings()
FILES = Capabilities(caption_limit=20, media_max_bytes=1_000_000)
PHOTO = Media("image", "image/png", "photo.png", 500, path="/m/photo.png")
PAPER = Media("document", "application/pdf", "paper.pdf", 900, path="/m/paper.pdf")


def packed(
    text: str, extras: Extras, capabilities: Capabilities = FILES, **settings: Any
) -> list[OutboxRecord]:
    rules = AccountSettings.model_validate(settings)
    return build_outbox_records("r", text, CHAT, capabilities, rules, extras=extras, at_ms=0)


def seen(parcels: list[OutboxRecord]) -> list[tuple[str, str]]:
    return [(one.text, "".join(file.name for file in one.extras.media)) for one in parcels]


@given(st.text(), st.integers(1, 50), st.sampled_from(UNITS))
def test_outbox_records_of_reply_fit_limit_and_keep_words(text: str, limit: int, unit: Any) -> None:
    parcels = build_outbox_records(
        "run", text, CHAT, Capabilities(limit, unit), USUAL, at_ms=5, first=2
    )
    assert [one.id for one in parcels] == [f"run:{n}" for n in range(2, 2 + len(parcels))]
    assert all(one.text.strip() for one in parcels)
    for one in parcels:
        assert measure(one.text, unit) <= limit or len(one.text) == 1
        assert (one.run, one.address, one.at_ms, one.expires_ms) == ("run", CHAT, 5, 5 + TTL_MS)
    if "`" not in text and "~" not in text:  # a fence that is cut is closed and reopened
        kept = "".join("".join(one.text.split()) for one in parcels)
        assert kept == "".join(text.replace("\0", "\ufffd").split())


def test_outbox_records_of_lone_surrogate_are_sendable() -> None:
    (parcel,) = build_outbox_records("r", "a\ud83db\0", CHAT, Capabilities(), USUAL, at_ms=0)
    assert parcel.text == "a\ufffdb\ufffd"


def test_outbox_records_of_blank_reply_are_none() -> None:
    assert build_outbox_records("r", " \n\t ", CHAT, Capabilities(), USUAL, at_ms=0) == []


def test_outbox_records_follow_account_limit_and_chunk_mode() -> None:
    assert len(packed("one two three", Extras(), textChunkLimit=5)) == 3
    assert len(packed("one\n\ntwo", Extras(), chunkMode="newline")) == 2


def test_outbox_records_short_text_is_caption_of_first_file() -> None:
    extras = Extras(media=(PHOTO, PAPER))
    assert seen(packed("look", extras)) == [("look", "photo.png"), ("", "paper.pdf")]
    assert seen(packed("", extras)) == [("", "photo.png"), ("", "paper.pdf")]


def test_outbox_records_text_too_long_for_caption_precedes_files() -> None:
    long = "more than twenty characters"
    assert seen(packed(long, Extras(media=(PHOTO,)))) == [(long, ""), ("", "photo.png")]
    plain = Capabilities(media_max_bytes=1_000)
    assert seen(packed("look", Extras(media=(PHOTO,)), plain)) == [("look", ""), ("", "photo.png")]


def test_outbox_records_unsendable_file_is_described() -> None:
    lost = Media(name="no`te.txt", problem="no such file")
    assert seen(packed("here", Extras(media=(lost,)))) == [
        ("here\n\n(`no'te.txt` was not sent: no such file)", "")
    ]
    none = Capabilities()
    assert seen(packed("", Extras(media=(PHOTO,)), none)) == [
        ("(a file that cannot be sent here: `photo.png`)", "")
    ]
    big = Media(name="film.mp4", size=2_500_000, path="/m/film.mp4")
    ((told, _),) = seen(packed("", Extras(media=(big,))))
    assert told == "(`film.mp4` was not sent: it has 2.5 MB, and 1.0 MB is the limit here)"
    assert "0.0 MB" in packed("", Extras(media=(PHOTO,)), mediaMaxMb=0.0001)[0].text


@given(
    st.text(max_size=60),
    st.integers(0, 3),
    st.integers(1, 30),
    st.sampled_from(("off", "first", "all")),
    st.sampled_from(("", "9")),
)
def test_outbox_records_extras_are_on_the_right_record(
    text: str, files: int, limit: int, mode: str, replaces: str
) -> None:
    buttons = ((Button("ok", "yes"),),)
    extras = Extras("7", replaces, (PHOTO,) * files, as_voice=True, buttons=buttons, silent=True)
    carries = Capabilities(limit, caption_limit=10, media_max_bytes=1_000, max_buttons=9)
    found = [one.extras for one in packed(text, extras, carries, replyToMode=mode)]
    assert sum(len(one.media) for one in found) == files
    assert all(len(one.media) <= 1 for one in found)
    assert [bool(one.media) for one in found] == [one.as_voice for one in found]
    assert all(one.silent for one in found)
    for number, one in enumerate(found):
        first, last = number == 0, number == len(found) - 1
        assert one.reply_to == ("7" if first or mode == "all" else "")
        assert one.buttons == (buttons if last else ())
        assert one.replaces == (replaces if first and not one.media else "")
    if replaces and text.strip() and "\0" not in text:
        assert found[0].replaces == "9"


@pytest.mark.parametrize(
    ("mode", "first", "named", "expected"),
    [
        ("off", 0, "", ""),
        ("off", 0, "5", "5"),
        ("first", 0, "", "m1"),
        ("first", 3, "", ""),
        ("first", 3, "5", "5"),
        ("all", 3, "", "m1"),
    ],
)
def test_outbox_records_reply_to_follows_mode(
    mode: str, first: int, named: str, expected: str
) -> None:
    rules = AccountSettings.model_validate({"replyToMode": mode})
    inbound = Inbound("m1", CHAT, "ann", "hi")
    assert with_reply_to(inbound, Extras(reply_to=named), rules, first).reply_to == expected


# Choices, several files, threads

YES_NO = ((Button("Yes", "y"), Button("No", "n")),)


def test_outbox_records_choices_without_buttons_are_a_numbered_list() -> None:
    assert seen(packed("Shall I?", Extras(buttons=YES_NO))) == [("Shall I?\n\n1. Yes\n2. No", "")]
    (parcel,) = packed("Shall I?", Extras(buttons=YES_NO), Capabilities(max_buttons=1))
    assert (parcel.text, parcel.extras.buttons) == ("Shall I?\n\n1. Yes\n2. No", ())


def test_outbox_records_choices_with_buttons_are_no_list() -> None:
    (parcel,) = packed("Shall I?", Extras(buttons=YES_NO), Capabilities(max_buttons=2))
    assert (parcel.text, parcel.extras.buttons) == ("Shall I?", YES_NO)


@pytest.mark.parametrize(("chat", "has_list"), [("-100", True), ("42", False)])
def test_outbox_records_choices_follow_the_kind_of_chat(chat: str, has_list: bool) -> None:
    capabilities, to = (
        Capabilities(max_buttons=9, button_chats="direct"),
        Address("telegram", chat),
    )
    (parcel,) = build_outbox_records(
        "r", "Shall I?", to, capabilities, USUAL, extras=Extras(buttons=YES_NO), at_ms=0
    )
    assert ("1. Yes" in parcel.text, parcel.extras.buttons == ()) == (has_list, has_list)


def test_outbox_records_buttons_of_approval_are_never_a_list() -> None:
    row = make_approval_buttons("4f2a91c0-0000", offers_always=False)
    assert seen(packed("Allow?", Extras(buttons=(row,)))) == [("Allow?", "")]


def test_outbox_records_several_files_go_with_one_message() -> None:
    several = Capabilities(caption_limit=20, media_max_bytes=1_000_000, max_files=2)
    files = Extras(media=(PHOTO, PAPER, PHOTO))
    assert seen(packed("look", files, several)) == [
        ("look", "photo.pngpaper.pdf"),
        ("", "photo.png"),
    ]
    long = "more than twenty characters"
    assert seen(packed(long, files, several))[:2] == [(long, ""), ("", "photo.pngpaper.pdf")]


def test_outbox_records_buttons_go_with_text_where_files_have_none() -> None:
    slack = Capabilities(
        caption_limit=99, media_max_bytes=1_000_000, max_buttons=9, has_file_buttons=False
    )
    extras = Extras(media=(PHOTO,), buttons=YES_NO)
    records = packed("Shall I?", extras, slack)
    assert seen(records) == [("Shall I?", ""), ("", "photo.png")]
    assert [one.extras.buttons for one in records] == [YES_NO, ()]
    records = packed("", extras, slack)
    assert seen(records) == [("1. Yes\n2. No", "photo.png")]
    (record,) = packed("Shall I?", extras, replace(slack, has_file_buttons=True))
    assert record.extras.buttons == YES_NO


def test_outbox_records_subject_is_first_line_where_service_has_none() -> None:
    (record,) = packed("at noon", Extras(subject="Lunch\ntime"), Capabilities(dialect="plain"))
    assert (record.text, record.extras.subject) == ("Lunch time\n\nat noon", "")


def test_outbox_records_first_creates_thread_that_others_join() -> None:
    extras, letters = Extras(thread_title="Plans", subject="Lunch"), Capabilities(has_subject=True)
    first, second = packed("one two", extras, letters, textChunkLimit=4)
    assert (first.extras.thread_title, first.extras.subject) == ("Plans", "Lunch")
    assert (first.extras.thread_from, second.extras.thread_from) == ("", "r:0")
    assert (second.extras.thread_title, second.extras.subject) == ("", "")


def test_outbox_records_first_names_message_for_thread() -> None:
    first, second = packed("one two", Extras(thread_on="m1"), textChunkLimit=4)
    assert (first.extras.thread_on, second.extras.thread_on) == ("m1", "")


def test_outbox_records_of_forum_join_thread_of_first() -> None:
    forum = Capabilities(text_limit=4, has_new_threads=True)
    assert [one.extras.thread_from for one in packed("one two", Extras(), forum)] == ["", "r:0"]
    inside = Address("svc", "chat", thread="7")
    records = build_outbox_records("r", "one two", inside, forum, USUAL, at_ms=0)
    assert [one.extras.thread_from for one in records] == ["", ""]


def test_outbox_records_for_signal_have_styles() -> None:
    signal = Capabilities(dialect="signal")
    (parcel,) = packed("a **b**", Extras(), signal)
    assert (parcel.text, parcel.extras.styles) == ("a b", (TextStyle(2, 1, "BOLD"),))
