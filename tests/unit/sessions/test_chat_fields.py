"""The fields of a session's record that describe its chat."""

from dataclasses import replace

import pytest

from homarus.channels.matrix.events import MatrixIdentity, to_message
from homarus.channels.matrix.rooms import MatrixRoom
from homarus.channels.telegram.inbound import TelegramIdentity, UpdateTranslator
from homarus.core.message import Address, Inbound, InboundMetadata, Json
from homarus.sessions.chat_fields import (
    chat_fields,
    display_name,
    named_group_fields,
    session_name,
)
from homarus.sessions.envelope import MULTIPLE_SENDERS
from homarus.sessions.last_route import route_fields

GROUP_KEY = "agent:main:telegram:group:-100"
TELEGRAM = UpdateTranslator("telegram", "default", TelegramIdentity(1, "bot"))


def fields_of(inbound: Inbound, key: str, entry: dict[str, Json] | None = None) -> dict[str, Json]:
    """Return what the record has after a message, as a run writes it."""
    stored = {"chatType": "group" if ":group:" in key else "direct", **(entry or {})}
    routed = {**stored, **route_fields(stored, inbound.address, key=key)}
    changed = chat_fields(routed, inbound, key)
    return {k: v for k, v in {**routed, **changed}.items() if v is not None}


def telegram(chat: dict[str, Json], **more: Json) -> Inbound:
    sender = {"id": 42, "first_name": "Ann", "username": "ann_b"}
    message = {"message_id": 7, "date": 1, "text": "hi", "chat": chat, "from": sender, **more}
    found = TELEGRAM.to_event({"update_id": 1, "message": message}, 1)
    assert isinstance(found, Inbound)
    return found


def test_telegram_group_message_names_group() -> None:
    group = telegram({"id": -100, "type": "supergroup", "title": "Family  Chat!"})
    fields = fields_of(group, GROUP_KEY)
    assert fields["subject"] == "Family Chat!" and fields["displayName"] == "telegram:g-family-chat"
    assert (fields["channel"], fields["groupId"]) == ("telegram", "-100")
    assert fields["chatType"] == "group" and "groupChannel" not in fields
    assert fields["origin"] == {
        "provider": "telegram", "surface": "telegram", "chatType": "group", "to": "-100",
        "accountId": "default", "label": "Family Chat! id:-100", "from": "telegram:group:-100",
    }  # fmt: skip


def test_telegram_topic_message_names_topic() -> None:
    chat: dict[str, Json] = {"id": -100, "type": "supergroup", "title": "Club", "is_forum": True}
    topic = telegram(chat, message_thread_id=5, is_topic_message=True)
    fields = fields_of(topic, f"{GROUP_KEY}:topic:5")
    assert fields["groupId"] == "-100:topic:5"
    assert fields["origin"]["label"] == "Club id:-100 topic:5"


def test_telegram_direct_message_names_sender() -> None:
    direct = telegram({"id": 42, "type": "private"})
    fields = fields_of(direct, "agent:main:telegram:direct:42")
    assert fields["origin"]["label"] == "Ann (@ann_b) id:42"
    assert (fields["origin"]["from"], fields["channel"]) == ("telegram:42", "telegram")
    assert not {"subject", "groupId", "displayName"} & fields.keys()
    # The main session belongs to no channel: its chats share it.
    assert "channel" not in fields_of(direct, "agent:main:main")


def test_matrix_room_message_names_room() -> None:
    room = MatrixRoom("!r:example.org")
    room.name = "Garden"
    event = {"type": "m.room.message", "event_id": "$1", "sender": "@ann:example.org",
             "content": {"msgtype": "m.text", "body": "hi"}}  # fmt: skip
    identity = MatrixIdentity("matrix", "default", "@bot:example.org")
    inbound = to_message(event, room, identity, is_direct=False, at_ms=1)
    assert isinstance(inbound, Inbound)
    fields = fields_of(inbound, "agent:main:matrix:group:!r:example.org")
    assert (fields["subject"], fields["groupId"]) == ("Garden", "!r:example.org")
    assert fields["displayName"] == "matrix:g-garden"


def test_irc_channel_message_names_channel() -> None:
    metadata = InboundMetadata(kind="group", title="#Homarus", name="ann", handle="ann")
    inbound = Inbound("1", Address("irc", "#homarus"), "ann!a@host", "hi", metadata=metadata)
    fields = fields_of(inbound, "agent:main:irc:group:#homarus")
    assert (fields["subject"], fields["displayName"]) == ("#Homarus", "irc:g-homarus")


def test_channel_of_space_has_both_names() -> None:
    metadata = InboundMetadata(kind="channel", title="#general", team="acme", name="Ann")
    inbound = Inbound("1", Address("slack", "C1"), "U1", "hi", metadata=metadata)
    fields = fields_of(inbound, "agent:main:slack:channel:c1", {"subject": "old name"})
    assert (fields["groupChannel"], fields["space"]) == ("#general", "acme")
    assert fields["displayName"] == "slack:acme#general" and "subject" not in fields


def test_renamed_group_gets_new_name() -> None:
    chat: dict[str, Json] = {"id": -100, "type": "group", "title": "Old"}
    before = fields_of(telegram(chat), GROUP_KEY)
    after = fields_of(telegram({**chat, "title": "Новый"}), GROUP_KEY, before)
    assert (after["subject"], after["displayName"]) == ("Новый", "telegram:g-новый")


@pytest.mark.parametrize("title", ["\u202ereverse\n\nagent:main:main", "x" * 9_000, "🦞", " "])
def test_hostile_title_becomes_one_short_line(title: str) -> None:
    inbound = telegram({"id": -100, "type": "group", "title": title})
    fields = fields_of(inbound, GROUP_KEY)
    for name in ("subject", "displayName"):
        text = fields.get(name, "")
        assert len(text) <= 220 and "\n" not in text and "\u202e" not in text
    assert fields["displayName"].startswith("telegram:g-")


def test_messages_of_gateway_clients_describe_no_chat() -> None:
    for channel in ("webchat", "cli", "agent", "wake"):
        assert chat_fields({}, Inbound("1", Address(channel, "x"), "me", "hi"), GROUP_KEY) == {}


def test_merged_direct_messages_keep_former_label() -> None:
    inbound = telegram({"id": 42, "type": "private"})
    before = fields_of(inbound, "agent:main:main")
    merged = fields_of(replace(inbound, sender=MULTIPLE_SENDERS), "agent:main:main", before)
    assert merged["origin"]["label"] == "Ann (@ann_b) id:42"


def test_group_message_in_other_session_changes_no_group() -> None:
    inbound = telegram({"id": -100, "type": "group", "title": "Family"})
    fields = fields_of(inbound, "agent:main:main")
    assert not {"subject", "groupId", "displayName", "channel"} & fields.keys()
    assert fields["chatType"] == "direct"


@pytest.mark.parametrize("entry", [{"origin": 5, "subject": [], "space": {}}, {"origin": None}])
def test_damaged_record_is_described(entry: dict[str, Json]) -> None:
    inbound = telegram({"id": -100, "type": "group", "title": "Family"})
    assert fields_of(inbound, GROUP_KEY, entry)["subject"] == "Family"


def test_display_name_falls_back_to_key_label_and_sender() -> None:
    assert display_name({"displayName": "mine", "label": "x"}, "agent:main:main") == "mine"
    assert display_name({"subject": "Club"}, GROUP_KEY) == "telegram:g-club"
    assert display_name({}, GROUP_KEY).startswith("telegram:g-")
    assert display_name({"label": "taxes", "origin": {"label": "Ann"}}, "agent:main:x") == "taxes"
    assert display_name({"origin": {"label": "Ann id:42"}}, "agent:main:main") == "Ann id:42"
    assert display_name({"origin": 5}, "agent:main:main") == ""


def test_session_name_is_label_subject_or_key() -> None:
    assert session_name({"label": "taxes", "subject": "x"}, "agent:main:main") == "taxes"
    assert session_name({"subject": "Club"}, GROUP_KEY) == "Club"
    assert session_name({"origin": {"label": "Ann"}}, "agent:main:main") == "main"


def test_group_named_by_client_is_stored_but_keeps_channel() -> None:
    fields = named_group_fields({"channel": "irc"}, "telegram", " -100 ", "", "acme")
    assert fields == {"groupId": "-100", "space": "acme"}
    assert named_group_fields({}, "Telegram", "", "", "") == {"channel": "telegram"}
