"""Edits, reactions, redactions and joins of rooms, on a fake homeserver."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homarus.channels.matrix.chat_events import (
    EventOrigin,
    parse_reaction,
    redacted_id,
    to_join,
    to_reaction,
)
from homarus.channels.matrix.events import MatrixIdentity, QuotedMessage
from homarus.channels.matrix.rooms import MatrixRoom
from homarus.core.channel_event import (
    MemberJoined,
    MessageDeleted,
    MessageEdited,
    ReactionChanged,
)
from homarus.core.message import Address, Outbound
from homarus.testing.fakes import RecordingHandler
from tests.unit.channels.matrix_server import ME, Server, channel, event, running, serving, sync
from tests.unit.channels.test_matrix_events import SHAPES

ORIGIN = EventOrigin(MatrixRoom("!r"), MatrixIdentity("matrix", "default", ME), False, 5_000)


def reaction(target: str, emoji: str, id_: str = "$reaction", **more: Any) -> dict[str, Any]:
    relation = {"rel_type": "m.annotation", "event_id": target, "key": emoji}
    return event("", id_, type="m.reaction", content={"m.relates_to": relation}, **more)


def redaction(target: str, id_: str = "$redaction", **more: Any) -> dict[str, Any]:
    return event("", id_, type="m.room.redaction", content={"redacts": target}, **more)


def edit(target: str, text: str, id_: str = "$edit", **more: Any) -> dict[str, Any]:
    content = {
        "msgtype": "m.text",
        "body": f"* {text}",
        "m.new_content": {"msgtype": "m.text", "body": text},
        "m.relates_to": {"rel_type": "m.replace", "event_id": target},
    }
    return event("", id_, content=content, **more)


def member(user: str, membership: str, before: str = "", id_: str = "$member") -> dict[str, Any]:
    previous = {"unsigned": {"prev_content": {"membership": before}}} if before else {}
    content = {"membership": membership, "displayname": user[1:4].title()}
    joined = event("", id_, type="m.room.member", content=content, sender=user)
    return {**joined, "state_key": user, **previous}


async def heard(
    server: Server, *events: dict[str, Any], kept: str = "s0", **settings: Any
) -> list[Any]:
    """Return what a room's events become; a last message says that all were read."""
    server.syncs = [
        sync("s0", event("earlier", "$earlier")),
        sync("s1", *events),
        sync("s2", event("last", "$last")),
    ]
    desk = RecordingHandler(kept={"since": kept})
    async with running(channel(server, **settings), desk):
        while "last" not in desk.texts:
            await desk.received(len(desk.got) + 1)
    return desk.events


async def test_matrix_reaction_to_our_message_is_noted_and_removed() -> None:
    async with serving() as server:
        server.on("GET /rooms/!r/event/.our", (200, event("mine", "$our", sender=ME)))
        changes = await heard(
            server, reaction("$our", "👍"), redaction("$reaction"), reactionNotifications="own"
        )
    added, removed = changes
    assert isinstance(added, ReactionChanged) and isinstance(removed, ReactionChanged)
    assert (added.added, added.removed, added.message_id) == (("👍",), (), "$our")
    assert (removed.added, removed.removed, removed.message_id) == ((), ("👍",), "$our")
    assert added.metadata.replies_to_us and removed.metadata.replies_to_us
    assert added.sender == "@alice:test" and added.address == Address("matrix", "!r")


@pytest.mark.parametrize(("mode", "count"), [(None, 0), ("off", 0), ("own", 0), ("all", 1)])
async def test_matrix_reaction_to_message_of_others_needs_all(mode: str | None, count: int) -> None:
    async with serving() as server:
        server.on("GET /rooms/!r/event/.theirs", (200, event("theirs", "$theirs")))
        changes = await heard(server, reaction("$theirs", "👍"), reactionNotifications=mode)
        assert len(changes) == count
        if mode in {None, "off"}:
            assert not server.seen("GET /rooms/!r/event/.*")


async def test_matrix_reaction_in_thread_is_noted_in_thread() -> None:
    relation = {"rel_type": "m.thread", "event_id": "$root"}
    content = {"msgtype": "m.text", "body": "mine", "m.relates_to": relation}
    async with serving() as server:
        server.on("GET /rooms/!r/event/.our", (200, event("", sender=ME, content=content)))
        (added,) = await heard(server, reaction("$our", "👍"), reactionNotifications="own")
    assert added.address.thread == "$root"


async def test_matrix_redacted_message_is_deleted_by_redacter() -> None:
    async with serving() as server:
        (deleted,) = await heard(
            server, event("secret", "$said"), redaction("$said", sender="@moderator:test")
        )
    assert isinstance(deleted, MessageDeleted)
    assert (deleted.message_id, deleted.sender) == ("$said", "@moderator:test")


async def test_matrix_redacted_text_is_not_quoted_again() -> None:
    answer = {"m.relates_to": {"m.in_reply_to": {"event_id": "$said"}}}
    content = {"msgtype": "m.text", "body": "answer", **answer}
    async with serving() as server:
        server.syncs = [
            sync("s0"),
            sync("s1", event("secret", "$said"), redaction("$said")),
            sync("s2", event("", "$answer", content=content)),
        ]
        server.on("GET /rooms/!r/event/.said", (200, event("", "$said", content={})))
        desk = RecordingHandler(kept={"since": "s0"})
        async with running(channel(server), desk):
            _, inbound = await desk.received(2)
    assert inbound.metadata.quoted == ""


async def test_matrix_redaction_of_other_events_is_ignored() -> None:
    async with serving() as server:
        gone = event("", "$gone", type="m.reaction", content={})
        server.on("GET /rooms/!r/event/.gone", (200, gone))
        server.on("GET /rooms/!r/event/.broken", (502, b"proxy"))
        events = [redaction(f"${name}", f"$r{name}") for name in ("gone", "broken", "unknown")]
        assert await heard(server, *events, redaction("", "$r")) == []


async def test_matrix_edit_counts_only_by_author_of_message() -> None:
    async with serving() as server:
        server.on("GET /rooms/!r/event/.old", (200, event("old", "$old")))
        changes = await heard(
            server,
            event("first", "$said"),
            edit("$said", "forged", "$e1", sender="@mallory:test"),
            edit("$unknown", "of nothing", "$e2"),
            edit("$said", "second", "$e3"),
            edit("$old", "newer", "$e4"),
        )
    assert all(isinstance(one, MessageEdited) for one in changes)
    assert [(one.message_id, one.text) for one in changes] == [
        ("$said", "second"),
        ("$old", "newer"),
    ]


async def test_matrix_join_of_group_is_noted_and_profile_change_is_not() -> None:
    unknown = member("@dora:test", "join", id_="$m4") | {"unsigned": {"replaces_state": "$x"}}
    async with serving() as server:
        server.on(
            "GET /rooms/!r/joined_members", (200, {"joined": {ME: {}, "@a:t": {}, "@b:t": {}}})
        )
        changes = await heard(
            server,
            member("@carol:test", "join", "invite", "$m1"),
            member("@carol:test", "join", "join", "$m2"),
            member("@dave:test", "leave", "join", "$m3"),
            unknown,
            member("@erin:test", "join", id_="$m5"),
        )
    assert [(type(one), one.sender) for one in changes] == [
        (MemberJoined, "@carol:test"),
        (MemberJoined, "@erin:test"),
    ]


async def test_matrix_joins_before_our_own_are_not_noted() -> None:
    async with serving() as server:
        server.syncs = [
            (200, {"next_batch": "s0"}),
            sync("s1", member("@carol:test", "join", id_="$m1"), event("hello", "$1")),
        ]
        desk = RecordingHandler(kept={"since": "s0"})
        async with running(channel(server), desk):
            await desk.received(1)
    assert desk.events == []


async def test_matrix_reaction_to_sent_message_needs_no_request() -> None:
    async with serving() as server:
        server.syncs = [sync("s0", event("earlier"))]
        desk = RecordingHandler(kept={"since": "s0"})
        matrix = channel(server, reactionNotifications="own")
        async with running(matrix, desk):
            await matrix.send(Outbound(Address("matrix", "!r"), "hello", "key"))
            assert matrix._account is not None
            found = await matrix._account.find_event("!r", "$sent")
        assert found == QuotedMessage(ME, "hello") and not server.seen("GET /rooms/.*/event/.*")


@given(SHAPES, SHAPES)
def test_matrix_chat_events_any_shape_raises_nothing(content: Any, unsigned: Any) -> None:
    shape = event("", content=content, unsigned=unsigned, state_key="@alice:test")
    found = parse_reaction(shape)
    if found is not None:
        assert found.message_id.startswith("$") and found.emoji
        assert to_reaction(shape, ORIGIN, found, None) is not None
    assert redacted_id(shape) in {"", get_redacts(content)}
    to_join({**shape, "type": "m.room.member"}, ORIGIN)


@given(st.text())
def test_matrix_reaction_emoji_is_one_bounded_line(emoji: str) -> None:
    found = parse_reaction(reaction("$x", emoji))
    assert found is None or (len(found.emoji) <= 80 and "\n" not in found.emoji)


def get_redacts(content: Any) -> Any:
    return content.get("redacts") if isinstance(content, dict) else ""
