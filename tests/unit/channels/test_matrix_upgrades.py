"""Upgrades of rooms, on a fake homeserver."""

from typing import Any

import pytest

from homarus.channels.matrix.rooms import JoinedRooms
from homarus.core.errors import SendError
from homarus.core.message import Address, Outbound
from homarus.testing.fakes import RecordingHandler
from tests.unit.channels.matrix_server import ME, channel, event, running, serving, sync

SUCCESSORS = f"PUT /user/{ME}/account_data/homarus.room_upgrades"


def state(kind: str, content: dict[str, Any], **more: Any) -> dict[str, Any]:
    shown = event("", f"${kind}", type=kind, content=content, sender="@alice:test")
    return {**shown, "state_key": "", **more}


def tombstone(new: str, **more: Any) -> dict[str, Any]:
    return state("m.room.tombstone", {"replacement_room": new, "body": "moved"}, **more)


def create(old: str) -> dict[str, Any]:
    return state("m.room.create", {"predecessor": {"room_id": old, "event_id": "$t"}})


def upgraded(since: str, *events: dict[str, Any], old: str = "!old", new: str = "!new") -> Any:
    """Return a sync response in which we are in both rooms."""
    rooms = {
        old: {"state": {"events": [tombstone(new)]}},
        new: {"state": {"events": [create(old)]}, "timeline": {"events": events}},
    }
    return 200, {"next_batch": since, "rooms": {"join": rooms}}


def replacement(since: str, *events: dict[str, Any], old: str = "!old") -> Any:
    """Return a sync response in which we have just joined the replacement."""
    room = {
        "state": {"events": [create(old), joined(ME)]},
        "timeline": {"events": events, "limited": True, "prev_batch": "p"},
    }
    return 200, {"next_batch": since, "rooms": {"join": {"!new": room}}}


def joined(user: str) -> dict[str, Any]:
    return state("m.room.member", {"membership": "join"}, state_key=user)


async def test_matrix_upgrade_is_followed_and_keeps_conversation() -> None:
    async with serving() as server:
        server.on("POST /join/!new", (200, {"room_id": "!new"}))
        server.on("PUT /user/.*", (200, {}))
        missed = {"chunk": [event("in between", "$2")], "end": ""}
        server.on("GET /rooms/!new/messages", (200, missed))
        server.syncs = [
            sync("s0", event("earlier"), room="!old"),
            sync("s1", event("before", "$1"), tombstone("!new"), room="!old"),
            replacement("s2", event("after", "$3")),
        ]
        matrix, desk = channel(server), RecordingHandler(kept={"since": "s0"})
        async with running(matrix, desk):
            got = await desk.received(3)
            await matrix.send(Outbound(Address("matrix", "!old"), "answer", "key"))
            await matrix.send(Outbound(Address("matrix", "!new"), "another", "key2"))
            (saved,) = await server.until(SUCCESSORS)
            receipts = await server.until("POST /rooms/!new/receipt/.*")
        (asked,) = server.seen("POST /join/!new")
        assert asked.query == {"server_name": "test", "via": "test"}
        assert [one.text for one in got] == ["before", "in between", "after"]
        assert {one.address.chat for one in got} == {"!old"}
        assert len(server.seen("PUT /rooms/!new/send/.*")) == 2
        assert not server.seen("PUT /rooms/!old/send/.*")
        assert saved.data == {"successors": {"!old": "!new"}}
        assert receipts[-1].path.endswith("$3")


async def test_matrix_upgrade_is_known_after_restart() -> None:
    async with serving() as server:
        server.on("PUT /user/.*", (200, {}))
        server.syncs = [upgraded("now"), sync("s1", event("hello", "$1"), room="!new")]
        desk = RecordingHandler(kept={"since": "s0"})
        async with running(channel(server), desk):
            (inbound,) = await desk.received(1)
        assert inbound.address.chat == "!old" and not server.seen("POST /join/.*")


async def test_matrix_stored_upgrade_is_known_without_old_room() -> None:
    content = {"successors": {"!old": "!new", "!oldest": "!old", "!bad": 5}}
    stored = {"type": "homarus.room_upgrades", "content": content}
    async with serving() as server:
        said = sync("now", event("earlier"), room="!new")
        assert said is not None
        server.syncs = [
            (200, {**said[1], "account_data": {"events": [stored]}}),
            sync("s1", event("hello", "$1"), room="!new"),
        ]
        matrix, desk = channel(server), RecordingHandler(kept={"since": "s0"})
        async with running(matrix, desk):
            (inbound,) = await desk.received(1)
            await matrix.send(Outbound(Address("matrix", "!oldest"), "answer", "key"))
        assert inbound.address.chat == "!oldest"
        assert server.seen("PUT /rooms/!new/send/.*")


@pytest.mark.parametrize(
    ("groups", "chat"),
    [
        ({"!old": {}}, "!old"),
        ({"!new": {}}, "!new"),
        ({"!old": {}, "!new": {}}, "!new"),
        ({"*": {}}, "!old"),
    ],
    ids=["old", "new", "both", "any"],
)
async def test_matrix_upgraded_room_uses_listed_id(groups: dict[str, Any], chat: str) -> None:
    async with serving() as server:
        server.on("PUT /user/.*", (200, {}))
        server.syncs = [upgraded("now"), sync("s1", event("hello", "$1"), room="!new")]
        desk = RecordingHandler(kept={"since": "s0"})
        async with running(channel(server, groups=groups), desk):
            (inbound,) = await desk.received(1)
    assert inbound.address.chat == chat


async def test_matrix_room_that_claims_predecessor_is_not_followed() -> None:
    async with serving() as server:
        rooms = {"!trusted": {}, "!forged": {"state": {"events": [create("!trusted")]}}}
        server.syncs = [
            (200, {"next_batch": "now", "rooms": {"join": rooms}}),
            sync("s1", event("obey", "$1"), room="!forged"),
        ]
        matrix, desk = channel(server), RecordingHandler(kept={"since": "s0"})
        async with running(matrix, desk):
            (inbound,) = await desk.received(1)
            await matrix.send(Outbound(Address("matrix", "!trusted"), "answer", "key"))
        assert inbound.address.chat == "!forged"
        assert server.seen("PUT /rooms/!trusted/send/.*")


async def test_matrix_replacement_that_denies_upgrade_is_left() -> None:
    async with serving() as server:
        server.on("POST /join/!new", (200, {}))
        server.on("POST /rooms/!new/leave", (200, {}))
        server.syncs = [
            sync("s0", event("earlier"), room="!old"),
            sync("s1", tombstone("!new"), room="!old"),
        ]
        matrix, desk = channel(server), RecordingHandler(kept={"since": "s0"})
        async with running(matrix, desk):
            await server.until("POST /join/!new")
            with pytest.raises(SendError) as caught:
                await matrix.send(Outbound(Address("matrix", "!old"), "answer", "key"))
            assert caught.value.retryable
        server.syncs = [
            sync("s0", event("earlier"), room="!old"),
            sync("s1", tombstone("!new"), room="!old"),
            replacement("s2", old="!another"),
        ]
        matrix = channel(server)
        async with running(matrix, RecordingHandler(kept={"since": "s0"})):
            await server.until("POST /rooms/!new/leave")
            await matrix.send(Outbound(Address("matrix", "!old"), "answer", "key"))
        assert server.seen("PUT /rooms/!old/send/.*") and not server.seen(SUCCESSORS)


async def test_matrix_refused_replacement_is_joined_by_invite() -> None:
    invite = state("m.room.member", {"membership": "invite"}, state_key=ME)
    invited = {"invite": {"!new": {"invite_state": {"events": [invite]}}}}
    forbidden = {"errcode": "M_FORBIDDEN", "error": "you are not invited"}
    answers = [(403, forbidden), (200, {})]
    async with serving() as server:
        server.on("POST /join/!new", lambda _asked: answers.pop(0))
        server.syncs = [
            sync("s0", event("earlier"), tombstone("!new"), room="!old"),
            (200, {"next_batch": "s1", "rooms": invited}),
        ]
        desk = RecordingHandler(kept={"since": "s0"})
        async with running(channel(server, autoJoin="off"), desk):
            await server.until("POST /join/!new", 2)
    assert not answers


async def test_matrix_direct_room_stays_direct_after_upgrade() -> None:
    async with serving() as server:
        server.on("PUT /user/.*", (200, {}))
        direct = {"type": "m.direct", "content": {"@alice:test": ["!old"]}}
        both: Any
        _, both = upgraded("now")
        server.syncs = [
            (200, {**both, "account_data": {"events": [direct]}}),
            sync("s1", event("hello", "$1"), room="!new"),
        ]
        desk = RecordingHandler(kept={"since": "s0"})
        async with running(channel(server), desk):
            (inbound,) = await desk.received(1)
            (saved,) = await server.until(f"PUT /user/{ME}/account_data/m.direct")
        assert saved.data == {"@alice:test": ["!old", "!new"]}
        assert inbound.metadata.kind == "direct"


async def test_matrix_replacement_that_removed_us_is_not_joined_again() -> None:
    stored = {"type": "homarus.room_upgrades", "content": {"successors": {"!old": "!new"}}}
    rooms = {"!old": {"state": {"events": [tombstone("!new")]}}}
    async with serving() as server:
        first = {"next_batch": "now", "rooms": {"join": rooms}}
        server.syncs = [
            (200, {**first, "account_data": {"events": [stored]}}),
            sync("s1", event("hello", "$1"), room="!other"),
        ]
        desk = RecordingHandler(kept={"since": "s0"})
        async with running(channel(server), desk):
            await desk.received(1)
        assert not server.seen("POST /join/.*")


@pytest.mark.parametrize("content", [{"replacement_room": 5}, {"replacement_room": "x"}, {}])
async def test_matrix_malformed_tombstone_is_ignored(content: dict[str, Any]) -> None:
    async with serving() as server:
        broken = state("m.room.tombstone", content)
        named = tombstone("!new", state_key="x")
        server.syncs = [
            sync("s0", broken, named, room="!old"),
            sync("s1", event("hello", "$1"), room="!old"),
        ]
        desk = RecordingHandler(kept={"since": "s0"})
        async with running(channel(server), desk):
            await desk.received(1)
        assert not server.seen("POST /join/.*")


def test_rooms_cyclic_successors_end_the_search() -> None:
    rooms = JoinedRooms()
    rooms.successors = {"!a": "!b", "!b": "!a"}
    assert rooms.newest("!a") == "!b" and rooms.predecessors("!a") == ["!b"]
