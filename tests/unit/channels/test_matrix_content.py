"""Our messages as Matrix events: they fit, mention no one, and are idempotent."""

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
from homarus.core.errors import SendError
from homarus.core.message import Media, MediaKind


def size(content: Object) -> int:
    return len(json.dumps(content, ensure_ascii=False).encode("utf-8", "replace"))


@given(st.text(min_size=1), st.text())
def test_transaction_id_is_stable_and_url_safe(key: str, part: str) -> None:
    name = transaction(key, part)
    assert name == transaction(key, part)
    assert re.fullmatch(r"[\w-]{20,40}", name, re.ASCII)
    assert transaction(key, f"{part}x") != name != transaction(f"{key}x", part)


def test_transaction_id_without_key_is_unique() -> None:
    assert transaction("") != transaction("")


@given(st.text(max_size=4_000), st.sampled_from(["", "$x"]), st.sampled_from([None, "$t"]))
def test_content_any_text_fits_and_mentions_no_one(
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
def test_content_over_limit_drops_markup_first(worst: str) -> None:
    plain, html = worst * 4_000, f"<p>{worst * 9_000}</p>"
    for content in (text_content(html, plain), edit_content(html, plain, "$old")):
        assert size(content) <= MAX_BYTES
        assert content.get("m.new_content", content)["body"] == plain


def test_content_too_large_is_refused_permanently() -> None:
    with pytest.raises(SendError) as caught:
        text_content("x" * 70_000, "x" * 70_000)
    assert not caught.value.retryable


def test_content_without_markup_has_no_formatted_body() -> None:
    assert "formatted_body" not in text_content("plain", "plain")
    assert text_content("<b>b</b>", "b")["formatted_body"] == "<b>b</b>"


def test_content_in_thread_has_reply_fallback() -> None:
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
def test_content_of_file_names_its_type(kind: MediaKind, shown: str) -> None:
    content = media_content(Media(kind, "a/b", "f.x"), "mxc://a/b", 5)
    assert content["msgtype"] == shown and content["body"] == content["filename"] == "f.x"
    assert content["info"] == {"size": 5, "mimetype": "a/b"} and content["m.mentions"] == {}


def test_content_of_file_with_text_has_caption() -> None:
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
def test_content_of_voice_message_is_marked_as_voice(
    kind: MediaKind, as_voice: bool, is_voice: bool
) -> None:
    content = media_content(Media(kind), "mxc://a/b", 5, as_voice=as_voice)
    assert ("org.matrix.msc3245.voice" in content) is is_voice


def test_content_of_reaction_names_its_message() -> None:
    assert reaction_content("$x", "👀")["m.relates_to"]["key"] == "👀"
