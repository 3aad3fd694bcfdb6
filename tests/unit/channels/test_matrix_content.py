"""Our messages as events of Matrix: they fit, they call nobody, and their names count once."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homarus.channels.matrix.api import Object
from homarus.channels.matrix.content import (
    MAX_BYTES,
    edit_content,
    media_content,
    reaction_content,
    text_content,
    transaction,
)
from homarus.core.errors import SendFailed
from homarus.core.message import Media, MediaKind


def size(content: Object) -> int:
    return len(json.dumps(content, ensure_ascii=False).encode("utf-8", "replace"))


@given(st.text(min_size=1), st.text())
def test_a_name_is_the_same_for_the_same_and_fits_an_address(key: str, part: str) -> None:
    name = transaction(key, part)
    assert name == transaction(key, part)
    assert re.fullmatch(r"[\w-]{20,40}", name, re.ASCII)
    assert transaction(key, f"{part}x") != name != transaction(f"{key}x", part)


def test_without_a_key_every_name_is_new() -> None:
    assert transaction("") != transaction("")


@given(st.text(max_size=4_000), st.sampled_from(["", "$x"]), st.sampled_from([None, "$t"]))
def test_whatever_is_said_fits_and_calls_nobody(
    text: str, reply_to: str, thread: str | None
) -> None:
    html = f"<b>{text}</b>"
    for content in (
        text_content(html, text, reply_to=reply_to, thread=thread),
        edit_content(html, text, "$old"),
    ):
        assert content["m.mentions"] == {} and size(content) <= MAX_BYTES
        inner = content.get("m.new_content", content)
        assert inner["body"] == text and inner["m.mentions"] == {}


@pytest.mark.parametrize("worst", ["\x01", "漢", "\u2028"])
def test_markup_goes_before_words_do(worst: str) -> None:
    plain, html = worst * 4_000, f"<p>{worst * 9_000}</p>"
    for content in (text_content(html, plain), edit_content(html, plain, "$old")):
        assert size(content) <= MAX_BYTES
        assert content.get("m.new_content", content)["body"] == plain


def test_what_does_not_fit_at_all_is_refused_for_good() -> None:
    with pytest.raises(SendFailed) as caught:
        text_content("x" * 70_000, "x" * 70_000)
    assert not caught.value.retryable


def test_markup_is_sent_only_where_there_is_some() -> None:
    assert "formatted_body" not in text_content("plain", "plain")
    assert text_content("<b>b</b>", "b")["formatted_body"] == "<b>b</b>"


def test_a_thread_shows_as_an_answer_where_threads_are_not_known() -> None:
    assert text_content("a", "a", thread="$t")["m.relates_to"] == {
        "rel_type": "m.thread",
        "event_id": "$t",
        "m.in_reply_to": {"event_id": "$t"},
        "is_falling_back": True,
    }
    both = text_content("a", "a", thread="$t", reply_to="$x")["m.relates_to"]
    assert both["m.in_reply_to"] == {"event_id": "$x"} and both["is_falling_back"] is False


@pytest.mark.parametrize(
    ("kind", "shown"),
    [("image", "m.image"), ("sticker", "m.image"), ("video", "m.video"), ("document", "m.file")],
)
def test_a_file_says_what_it_is(kind: MediaKind, shown: str) -> None:
    content = media_content(Media(kind, "a/b", "f.x"), "mxc://a/b", 5)
    assert content["msgtype"] == shown and content["body"] == content["filename"] == "f.x"
    assert content["info"] == {"size": 5, "mimetype": "a/b"} and content["m.mentions"] == {}


def test_words_with_a_file_are_its_caption() -> None:
    content = media_content(Media("image", name="f.x"), "mxc://a/b", 5, html="<b>b</b>", plain="b")
    assert (content["body"], content["filename"]) == ("b", "f.x")
    assert content["formatted_body"] == "<b>b</b>"


@pytest.mark.parametrize(
    ("kind", "as_voice", "is_voice"),
    [
        ("audio", False, False),
        ("audio", True, True),
        ("voice", False, True),
        ("image", True, False),
    ],
)
def test_a_voice_message_is_one(kind: MediaKind, as_voice: bool, is_voice: bool) -> None:
    content = media_content(Media(kind), "mxc://a/b", 5, as_voice=as_voice)
    assert ("org.matrix.msc3245.voice" in content) is is_voice


def test_a_reaction_names_its_message() -> None:
    assert reaction_content("$x", "👀")["m.relates_to"]["key"] == "👀"
