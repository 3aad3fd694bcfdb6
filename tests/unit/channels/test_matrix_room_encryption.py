"""Which rooms count as encrypted: what is sent there, and what is read."""

from pathlib import Path
from typing import Any

import pytest

from homarus.channels.matrix.sync import CANNOT_READ
from homarus.core.errors import SendError
from homarus.core.message import Address, Outbound
from homarus.testing.fakes import RecordingHandler
from tests.unit.channels.matrix_keys import ENCRYPTION, ROOM, Person, bot, play
from tests.unit.channels.matrix_server import ME, channel, event, running, serving, sync

TO = Address("matrix", ROOM)
SENT = "PUT /rooms/!r/send/.*"
ENCRYPTED: dict[str, Any] = {"type": "m.room.encrypted", "content": {}}
NO_STATE = ("GET /rooms/!r/state/m.room.encryption", (404, {"errcode": "M_NOT_FOUND"}))
PLAIN_START = {"next_batch": "s0", "rooms": {"join": {ROOM: {}}}}


async def test_matrix_encrypted_event_does_not_encrypt_room(tmp_path: Path) -> None:
    """Any member can send one; what the room is, its state says."""
    forged = {**ENCRYPTION, "event_id": "$forged"}
    del forged["state_key"]
    async with play() as (server, _keys):
        server.syncs = [(200, PLAIN_START)]
        server.on(*NO_STATE)
        matrix, desk = bot(server, tmp_path), RecordingHandler()
        async with running(matrix, desk):
            server.feed(sync("s1", event("x", "$x", **ENCRYPTED), event("one", "$1")))
            server.feed(sync("s2", forged, event("two", "$2")))
            await desk.received(2)
            await matrix.send(Outbound(TO, "fine", "k"))
        assert desk.texts == ["one", "two"]
        assert "/m.room.message/" in server.seen(SENT)[0].path


async def test_matrix_encrypted_event_does_not_silence_plain_account() -> None:
    async with serving() as server:
        server.syncs = [(200, PLAIN_START)]
        server.on(*NO_STATE)
        matrix, desk = channel(server), RecordingHandler()
        async with running(matrix, desk):
            server.feed(sync("s1", event("x", "$x", **ENCRYPTED), event("one", "$1")))
            await desk.received(1)
            await matrix.send(Outbound(TO, "fine", "k"))
        assert [one.data["body"] for one in server.seen(SENT)] == ["fine"]


async def test_matrix_unknown_state_of_room_is_fetched_with_message() -> None:
    """As when encryption was switched on with the account itself, which the sync leaves out."""
    async with serving() as server:
        server.syncs = [(200, PLAIN_START)]
        server.on("GET /rooms/!r/state/m.room.encryption", (200, ENCRYPTION["content"]))
        matrix, desk = channel(server), RecordingHandler()
        async with running(matrix, desk):
            server.feed(sync("s1", event("x", "$x", **ENCRYPTED)))
            (notice,) = await server.until(SENT)
            with pytest.raises(SendError, match="is encrypted"):
                await matrix.send(Outbound(TO, "secret", "k"))
        assert notice.data["body"] == CANNOT_READ


async def test_matrix_plain_account_sends_nothing_before_state_is_known() -> None:
    async with serving() as server:
        server.syncs = []
        server.on("GET /rooms/!r/state/m.room.encryption", (200, ENCRYPTION["content"]))
        matrix = channel(server)
        async with running(matrix, RecordingHandler()):
            with pytest.raises(SendError, match="is encrypted"):
                await matrix.send(Outbound(TO, "secret", "k"))
        assert not server.seen(SENT)


async def test_matrix_decrypted_message_is_answered_encrypted(tmp_path: Path) -> None:
    """Also when the homeserver hides that the room is encrypted."""
    async with play() as (server, keys):
        server.syncs = [(200, PLAIN_START)]
        server.on(*NO_STATE)
        alice, matrix, desk = Person(keys), bot(server, tmp_path), RecordingHandler()
        async with running(matrix, desk):
            alice.share(ME)
            server.feed(keys.sync("s1", alice.write("secret")))
            await desk.received(1)
            await matrix.send(Outbound(TO, "answer", "k"))
        assert alice.read(server.seen(SENT)[0].data)["body"] == "answer"


async def test_matrix_unencrypted_message_after_first_start_is_ignored(tmp_path: Path) -> None:
    async with play() as (server, keys):
        alice, desk = Person(keys), RecordingHandler()
        async with running(bot(server, tmp_path), desk):
            alice.share(ME)
            server.feed(keys.sync("s1", event("by the server", "$c"), alice.write("one")))
            await desk.received(1)
        assert desk.texts == ["one"]


async def test_matrix_unencrypted_message_in_joined_room_is_ignored(tmp_path: Path) -> None:
    async with play() as (server, keys):
        server.syncs = [(200, {"next_batch": "s0"})]
        alice, desk = Person(keys), RecordingHandler()
        invite = {"type": "m.room.member", "state_key": ME, "content": {"membership": "invite"}}
        async with running(bot(server, tmp_path), desk):
            alice.share(ME)
            plain = event("by the server", "$c")
            server.feed(keys.sync("s1", invite, plain, alice.write("one"), state=[ENCRYPTION]))
            await desk.received(1)
        assert desk.texts == ["one"]


async def test_matrix_replacement_of_encrypted_room_is_encrypted(tmp_path: Path) -> None:
    """Else an upgrade would switch off what cannot be switched off."""
    state: dict[str, Any] = {"state_key": "", "sender": "@alice:test"}
    content = {"predecessor": {"room_id": ROOM}}
    create = {**state, "type": "m.room.create", "content": content}
    moved = {"replacement_room": "!new"}
    tombstone = {**state, "type": "m.room.tombstone", "content": moved}
    async with play() as (server, keys):
        old: dict[str, Any] = {"state": {"events": [ENCRYPTION, tombstone]}}
        first = {ROOM: old, "!new": {"state": {"events": [create]}}}
        server.syncs = [(200, {"next_batch": "s0", "rooms": {"join": first}})]
        server.on("PUT /user/.*", (200, {}))
        _alice, matrix = Person(keys), bot(server, tmp_path)
        async with running(matrix, RecordingHandler()):
            await server.until("PUT /user/.*")
            await matrix.send(Outbound(TO, "secret", "k"))
        (sent,) = server.seen("PUT /rooms/!new/send/.*")
        assert "/m.room.encrypted/" in sent.path and b"secret" not in sent.body
