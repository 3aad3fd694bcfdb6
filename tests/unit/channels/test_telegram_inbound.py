"""Telegram updates as inbound messages: a table of updates, and malformed ones."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homarus.channels.telegram.fields import MAX_TEXT_CHARS, clean, slice_utf16
from homarus.channels.telegram.inbound import (
    TelegramIdentity,
    UpdateTranslator,
    callback_query_id,
    parse_message_id,
)
from homarus.core.channel_event import ButtonPressed, MemberJoined, MessageEdited, ReactionChanged
from homarus.core.message import Inbound, Media
from homarus.core.text import utf16_len

ME = TelegramIdentity(700, "Lobster_Bot")
READER = UpdateTranslator("telegram", "default", ME, "all")
ADA = {"id": 11, "is_bot": False, "first_name": "Ada", "last_name": "Byron", "username": "ada"}
US = {"id": 700, "is_bot": True, "first_name": "Lobster", "username": "lobster_bot"}
DM = {"id": 11, "type": "private", "first_name": "Ada"}
GROUP = {"id": -1001, "type": "supergroup", "title": "Reef"}
FORUM = {**GROUP, "is_forum": True}
CHANNEL = {"id": -1009, "type": "channel", "title": "News"}
NOW_MS = 1_790_000_000_000


def message(**fields: Any) -> dict[str, Any]:
    usual = {"message_id": 5, "date": 1_780_000_000, "chat": DM, "from": ADA}
    return {key: value for key, value in {**usual, **fields}.items() if value is not None}


def read(kind: str = "message", /, **fields: Any) -> Inbound:
    found = READER.to_event({"update_id": 1, kind: message(**fields)}, NOW_MS)
    assert isinstance(found, Inbound)
    return found


def entity(kind: str, offset: int, length: int, **more: Any) -> dict[str, Any]:
    return {"type": kind, "offset": offset, "length": length, **more}


# Chat and sender


def test_to_inbound_private_message_is_direct_with_sender() -> None:
    found = read(text="hi")
    assert (found.id, found.sender, found.text, found.at_ms) == (
        "11:5",
        "11",
        "hi",
        1_780_000_000_000,
    )
    assert (found.address.chat, found.address.thread) == ("11", None)
    assert (found.metadata.kind, found.metadata.name, found.metadata.handle) == (
        "direct",
        "Ada Byron",
        "ada",
    )
    assert not found.metadata.is_bot


@pytest.mark.parametrize("kind", ["group", "supergroup"])
def test_to_inbound_group_message_has_group_title(kind: str) -> None:
    found = read(text="hi", chat={**GROUP, "type": kind})
    assert (found.id, found.metadata.kind, found.metadata.title) == ("-1001:5", "group", "Reef")


def test_to_inbound_channel_post_has_channel_as_sender() -> None:
    posted = {"chat": CHANNEL, "sender_chat": CHANNEL, "from": None}
    found = read("channel_post", text="news", **posted)
    assert (found.sender, found.metadata.kind, found.metadata.name) == ("-1009", "channel", "News")


def test_to_inbound_anonymous_admin_has_group_as_sender() -> None:
    hidden = {"id": 1087968824, "is_bot": True, "first_name": "Group"}
    found = read(text="hi", chat=GROUP, sender_chat=GROUP, **{"from": hidden})
    assert (found.sender, found.metadata.name, found.metadata.is_bot) == ("-1001", "Reef", False)


def test_to_inbound_message_of_other_bot_is_marked() -> None:
    other = {"id": 12, "is_bot": True, "first_name": "Other", "username": "other_bot"}
    assert read(text="hi", chat=GROUP, **{"from": other}).metadata.is_bot


def test_to_inbound_own_message_returns_none() -> None:
    assert READER.to_event({"message": message(text="hi", chat=GROUP, **{"from": US})}, 0) is None


# Topics


@pytest.mark.parametrize(
    ("chat", "fields", "thread"),
    [
        (FORUM, {"message_thread_id": 42, "is_topic_message": True}, "42"),
        (FORUM, {}, "1"),
        (FORUM, {"message_thread_id": 42}, "1"),  # a chain of replies in the general topic
        (GROUP, {"message_thread_id": 42}, None),
        (DM, {"message_thread_id": 42, "is_topic_message": True}, "42"),
    ],
)
def test_to_inbound_topic_is_thread_and_reply_chain_is_not(
    chat: dict[str, Any], fields: dict[str, Any], thread: str | None
) -> None:
    assert read(text="hi", chat=chat, **fields).address.thread == thread


def test_to_inbound_first_topic_message_is_no_reply() -> None:
    head = {"message_id": 42, "chat": FORUM, "from": US, "forum_topic_created": {"name": "x"}}
    topic = {"message_thread_id": 42, "is_topic_message": True, "chat": FORUM}
    occasion = read(text="hi", reply_to_message=head, **topic).metadata
    assert (occasion.reply_to, occasion.replies_to_us, occasion.quoted) == ("", False, "")


# Mentions and commands


@pytest.mark.parametrize(
    ("text", "entities", "mentioned", "elsewhere"),
    [
        ("hi", [], False, False),
        ("@lobster_bot hi", [entity("mention", 0, 12)], True, False),
        ("@LOBSTER_bot hi", [entity("mention", 0, 12)], True, False),
        ("🦞 @lobster_bot", [entity("mention", 3, 12)], True, False),
        ("@bob hi", [entity("mention", 0, 4)], False, True),
        (
            "@bob @lobster_bot",
            [entity("mention", 0, 4), entity("mention", 5, 12)],
            True,
            True,
        ),
        ("Lobster hi", [entity("text_mention", 0, 7, user=US)], True, False),
        ("Ada hi", [entity("text_mention", 0, 3, user=ADA)], False, True),
        ("/new", [entity("bot_command", 0, 4)], False, False),
        ("/new@other_bot", [entity("bot_command", 0, 14)], False, True),
        ("mail me@lobster_bot", [entity("email", 5, 14)], False, False),
        ("@lobster_bot", [], False, False),  # in a code block: Telegram marks nothing
        ("x", [entity("mention", -5, 2**70)], False, True),
    ],
)
def test_to_inbound_detects_mention(
    text: str, entities: list[Any], mentioned: bool, elsewhere: bool
) -> None:
    occasion = read(text=text, entities=entities, chat=GROUP).metadata
    assert (occasion.mentioned, occasion.mentions_others) == (mentioned, elsewhere)


def test_to_inbound_command_for_us_loses_bot_name() -> None:
    found = read(text="/model@Lobster_Bot opus", entities=[entity("bot_command", 0, 18)])
    assert (found.text, found.metadata.mentioned) == ("/model opus", True)


def test_to_inbound_command_for_other_bot_is_unchanged() -> None:
    found = read(text="/new@other_bot", entities=[entity("bot_command", 0, 14)])
    assert (found.text, found.metadata.mentions_others) == ("/new@other_bot", True)


def test_to_inbound_mention_in_caption_counts() -> None:
    photo = [{"file_id": "p", "file_unique_id": "u", "width": 1, "height": 1}]
    said = {"caption": "@lobster_bot look", "caption_entities": [entity("mention", 0, 12)]}
    found = read(photo=photo, chat=GROUP, **said)
    assert found.metadata.mentioned and found.text == "@lobster_bot look"


# Replies, quotes, forwards, edits


def test_to_inbound_reply_to_us_has_quoted_text() -> None:
    ours = {"message_id": 4, "chat": DM, "from": US, "text": "shall I?"}
    occasion = read(text="yes", reply_to_message=ours).metadata
    assert (occasion.reply_to, occasion.replies_to_us, occasion.quoted) == ("4", True, "shall I?")


def test_to_inbound_partial_quote_is_quoted_text() -> None:
    ours = {"message_id": 4, "chat": DM, "from": ADA, "text": "one two three"}
    occasion = read(text="?", reply_to_message=ours, quote={"text": "two", "position": 4}).metadata
    assert (occasion.replies_to_us, occasion.quoted) == (False, "two")


@pytest.mark.parametrize(
    ("origin", "whose"),
    [
        ({"type": "user", "date": 1, "sender_user": ADA}, "Ada Byron"),
        ({"type": "hidden_user", "date": 1, "sender_user_name": "Somebody"}, "Somebody"),
        ({"type": "chat", "date": 1, "sender_chat": GROUP}, "Reef"),
        ({"type": "channel", "date": 1, "chat": CHANNEL, "message_id": 9}, "News"),
        ({"type": "new_kind"}, "somebody"),
    ],
)
def test_to_inbound_forwarded_message_names_origin(origin: dict[str, Any], whose: str) -> None:
    assert read(text="hi", forward_origin=origin).metadata.forwarded == whose


def test_to_inbound_edit_is_separate_message() -> None:
    edited = message(text="hi!", edit_date=1_780_000_009)
    found = READER.to_event({"edited_message": edited}, NOW_MS)
    assert isinstance(found, MessageEdited)
    assert (found.id, found.message_id, found.text, found.at_ms) == (
        "11:5:1780000009",
        "5",
        "hi!",
        1_780_000_009_000,
    )


def test_to_event_new_members_are_one_join_without_us() -> None:
    bob = {"id": 12, "first_name": "Bob"}
    joined = message(chat=GROUP, new_chat_members=[US, ADA, bob])
    found = READER.to_event({"message": joined}, NOW_MS)
    assert isinstance(found, MemberJoined)
    assert (found.id, found.sender, found.metadata.name) == ("-1001:5", "11", "Ada Byron, Bob")
    alone = message(chat=GROUP, new_chat_members=[US])
    assert READER.to_event({"message": alone}, NOW_MS) is None


# Files


def file(**more: Any) -> dict[str, Any]:
    return {"file_id": "F", "file_unique_id": "u", "file_size": 9, **more}


@pytest.mark.parametrize(
    ("field", "value", "media"),
    [
        (
            "photo",
            [file(width=90, height=60), file(file_id="BIG", width=900, height=600, file_size=70)],
            Media("image", "image/jpeg", "", 70, "BIG"),
        ),
        (
            "document",
            file(file_name="a.pdf", mime_type="application/pdf"),
            Media("document", "application/pdf", "a.pdf", 9, "F"),
        ),
        (
            "document",
            file(file_name="a.png", mime_type="image/png"),
            Media("image", "image/png", "a.png", 9, "F"),
        ),
        ("audio", file(duration=1), Media("audio", "audio/mpeg", "", 9, "F")),
        ("voice", file(duration=1), Media("voice", "audio/ogg", "", 9, "F")),
        ("video", file(mime_type="video/webm"), Media("video", "video/webm", "", 9, "F")),
        ("video_note", file(length=240), Media("video", "video/mp4", "", 9, "F")),
        ("sticker", file(emoji="🦞"), Media("sticker", "image/webp", "", 9, "F")),
        (
            "sticker",
            file(is_animated=True),
            Media("sticker", "application/x-tgsticker", "", 9, "F"),
        ),
        ("sticker", file(is_video=True), Media("sticker", "video/webm", "", 9, "F")),
        ("voice", file(file_size=-1), Media("voice", "audio/ogg", "", 0, "F")),
    ],
)
def test_to_inbound_file_has_kind_and_fetch_id(field: str, value: Any, media: Media) -> None:
    assert read(**{field: value}).media == (media,)


def test_to_inbound_album_has_group_id() -> None:
    photo = [{"file_id": "p", "width": 9, "height": 9}]
    assert read(photo=photo, media_group_id="13").metadata.album == "13"
    assert read(photo=photo).metadata.album == ""


def test_to_inbound_animation_has_one_file() -> None:
    found = read(animation=file(file_name="a.mp4"), document=file(file_name="a.mp4"))
    assert found.media == (Media("video", "video/mp4", "a.mp4", 9, "F"),)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"location": {"latitude": 52.5, "longitude": 13.4}}, "[location: 52.500000, 13.400000]"),
        (
            {
                "venue": {
                    "title": "Bar",
                    "address": "Street 1",
                    "location": {"latitude": 1, "longitude": 2},
                },
                "location": {"latitude": 1, "longitude": 2},
            },
            "[venue: Bar, Street 1, 1.000000, 2.000000]",
        ),
        (
            {"contact": {"first_name": "Bob", "phone_number": "+49"}},
            "[contact: Bob, +49]",
        ),
        (
            {"poll": {"question": "Tea?", "options": [{"text": "yes"}, {"text": "no"}]}},
            "[poll: Tea? yes / no]",
        ),
        ({"dice": {"emoji": "🎲", "value": 4}}, "[dice 🎲: 4]"),
        ({"sticker": file(emoji="🦞")}, "[sticker 🦞]"),
    ],
)
def test_to_inbound_content_without_text_is_described(fields: dict[str, Any], text: str) -> None:
    assert read(**fields).text == text


@pytest.mark.parametrize(
    "fields",
    [
        {"new_chat_members": [ADA]},
        {"pinned_message": {"message_id": 1}},
        {"migrate_to_chat_id": -100},
        {"text": ""},
        {},
    ],
)
def test_to_inbound_message_without_content_returns_none(fields: dict[str, Any]) -> None:
    assert READER.to_event({"message": message(**fields)}, 0) is None


# Buttons and reactions


def press(**more: Any) -> dict[str, Any]:
    keyboard = [[{"text": "Yes, do it", "callback_data": "yes"}, {"text": "No"}], [None], 5]
    under = {"message_id": 4, "date": 1, "chat": GROUP, "from": US, "text": "shall I?"}
    under["reply_markup"] = {"inline_keyboard": keyboard}
    return {"id": "77", "from": ADA, "message": under, "chat_instance": "1", "data": "yes", **more}


def test_to_inbound_button_press_has_label_and_mention() -> None:
    update = {"callback_query": press()}
    event = READER.to_event(update, NOW_MS)
    assert isinstance(event, ButtonPressed)
    found = event.to_message()
    assert (found.id, found.text, found.sender, found.address.chat, found.at_ms) == (
        "callback:77",
        "Yes, do it",
        "11",
        "-1001",
        NOW_MS,
    )
    assert found.metadata.mentioned and found.metadata.replies_to_us and found.metadata.is_press
    assert (found.metadata.reply_to, found.metadata.quoted) == ("4", "shall I?")
    assert callback_query_id(update) == "77"


def test_to_inbound_button_press_without_visible_label_is_skipped() -> None:
    old = {"message_id": 4, "date": 0, "chat": DM}  # as Telegram sends it after 48 hours
    assert READER.to_event({"callback_query": press(message=old)}, 0) is None
    assert READER.to_event({"callback_query": press(data="other")}, 0) is None


@pytest.mark.parametrize("broken", [{"data": None}, {"message": None}, {"from": None}, {"id": 7}])
def test_to_inbound_button_press_without_parts_returns_none(broken: dict[str, Any]) -> None:
    assert READER.to_event({"callback_query": press(**broken)}, 0) is None


def reaction(*emoji: str, old: tuple[str, ...] = ()) -> dict[str, Any]:
    def listed(signs: tuple[str, ...]) -> list[dict[str, str]]:
        return [{"type": "emoji", "emoji": sign} for sign in signs]

    return {
        "chat": GROUP,
        "message_id": 4,
        "user": ADA,
        "date": 1_780_000_000,
        "old_reaction": listed(old),
        "new_reaction": listed(emoji),
    }


def test_to_inbound_reaction_has_added_emoji() -> None:
    found = READER.to_event({"message_reaction": reaction("👍", "🔥", old=("👍",))}, 0)
    assert isinstance(found, ReactionChanged)
    assert (found.message_id, found.added, found.removed) == ("4", ("🔥",), ())
    assert found.id == "reaction:-1001:4:11:1780000000:🔥"
    assert not found.metadata.replies_to_us


def test_to_event_removed_reaction_has_removed_emoji() -> None:
    found = READER.to_event({"message_reaction": reaction(old=("👍",))}, 0)
    assert isinstance(found, ReactionChanged)
    assert (found.added, found.removed) == ((), ("👍",))
    assert READER.to_event({"message_reaction": reaction("👍", old=("👍",))}, 0) is None


def test_to_inbound_reactions_only_when_configured() -> None:
    deaf = UpdateTranslator("telegram", "default", ME)
    assert deaf.to_event({"message_reaction": reaction("👍")}, 0) is None


# Ids


@pytest.mark.parametrize(
    ("id_", "number"),
    [
        ("5", 5),
        ("-1001:5", 5),
        ("-1001:5:1780000000", 5),
        ("11:5", 0),  # of another chat
        ("callback:7", 0),
        ("reaction:-1001:4:11:1:🔥", 0),
        ("", 0),
        ("٥", 0),
        ("-5", 0),
        ("9" * 40, 0),
    ],
)
def test_to_inbound_message_id_matches_each_form(id_: str, number: int) -> None:
    assert parse_message_id(id_, "-1001") == number


# Any update


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=12,
)
FIELDS = (
    "message_id", "date", "edit_date", "chat", "from", "sender_chat", "text", "caption", "entities",
    "caption_entities", "photo", "document", "sticker", "voice", "location", "venue", "poll",
    "contact", "dice", "reply_to_message", "quote", "forward_origin", "message_thread_id", "id",
    "data", "message", "user", "old_reaction", "new_reaction", "type", "offset", "length",
)  # fmt: skip
KINDS = (
    "message", "edited_message", "channel_post", "edited_channel_post", "callback_query",
    "message_reaction", "my_chat_member", "poll",
)  # fmt: skip
OBJECTS = st.recursive(
    JSON,
    lambda inner: (
        st.dictionaries(st.sampled_from(FIELDS), inner, max_size=8) | st.lists(inner, max_size=3)
    ),
    max_leaves=20,
)


@given(st.dictionaries(st.sampled_from(KINDS), OBJECTS))
def test_to_inbound_any_update_raises_nothing(update: dict[str, Any]) -> None:
    READER.to_event(update, 0)
    callback_query_id(update)


@given(st.sampled_from(KINDS[:6]), st.dictionaries(st.sampled_from(FIELDS), OBJECTS, max_size=6))
def test_to_inbound_one_wrong_field_is_tolerated_and_storable(
    kind: str, wrong: dict[str, Any]
) -> None:
    found = READER.to_event({kind: {**message(text="hi"), **press(), **wrong}}, 0)
    found = found.to_message() if isinstance(found, ButtonPressed) else found
    if isinstance(found, Inbound | MessageEdited):
        words = [found.text, found.metadata.name, found.metadata.title, found.metadata.quoted]
        "".join([*words, found.id, found.sender]).encode()
        assert "\0" not in "".join(words)


@pytest.mark.parametrize("broken", ["chat", "from", "message_id"])
def test_to_inbound_message_without_required_part_returns_none(broken: str) -> None:
    wrongs: tuple[Any, ...] = (None, "text", [], {}, {"first_name": "Eve"}, True, 1.5)
    for wrong in wrongs:
        assert READER.to_event({"message": {**message(text="hi"), broken: wrong}}, 0) is None


def test_to_inbound_location_without_coordinates_returns_none() -> None:
    for far in (10**400, -(10**400), 1e300, float("nan"), 181):
        assert read(location={"latitude": far, "longitude": 0}).text == "[location: ]"


def test_to_inbound_endless_text_is_cut() -> None:
    found = read(text="x" * 10_000_000, entities=[entity("mention", 0, 2**40)] * 10_000)
    assert len(found.text) == MAX_TEXT_CHARS


def test_to_inbound_lone_surrogates_and_nul_are_removed() -> None:
    found = read(text=json.loads('"a\\ud83dz\\u0000b"'))
    assert found.text == "a\ufffdzb"


@given(st.text(), st.integers(0, 30), st.integers(0, 30))
def test_slice_utf16_agrees_with_utf16_length(text: str, start: int, length: int) -> None:
    text = clean(text)
    units = [unit for ch in text for unit in [ch] * utf16_len(ch)]
    piece = slice_utf16(text, start, length)
    assert utf16_len(piece) == len(units[start : start + length])
