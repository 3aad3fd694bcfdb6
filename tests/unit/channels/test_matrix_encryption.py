"""Encrypted rooms: our channel on a fake homeserver, people on matrix-nio's machine."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from peewee import PeeweeException

from homarus.channels.matrix.adapter import MatrixChannel
from homarus.channels.matrix.encryption import crypto as crypto_module
from homarus.channels.matrix.encryption.store import KeyStore
from homarus.core.chat_action import ChatAction
from homarus.core.errors import SendError
from homarus.core.message import Address, Extras, Media, Outbound
from homarus.testing.fakes import RecordingHandler
from tests.unit.channels.matrix_keys import ENCRYPTION, ROOM, Keys, Person, bot, play
from tests.unit.channels.matrix_server import ME, Server, event, running

TO = Address("matrix", ROOM)
SENT = "PUT /rooms/!r/send/.*"


async def test_matrix_encrypted_message_is_read(tmp_path: Path) -> None:
    async with play() as (server, keys):
        alice, desk = Person(keys), RecordingHandler()
        async with running(bot(server, tmp_path), desk):
            alice.share(ME)
            server.feed(keys.sync("s1", alice.write("hello")))
            (inbound,) = await desk.received(1)
        assert (inbound.text, inbound.sender, inbound.id) == ("hello", "@alice:test", "$PHONE1")


async def test_matrix_reply_to_encrypted_room_is_encrypted(tmp_path: Path) -> None:
    async with play() as (server, keys):
        alice, matrix = Person(keys), bot(server, tmp_path)
        async with running(matrix, RecordingHandler()):
            for _ in range(2):  # the second is a retry
                extras = Extras(reply_to="$1")
                await matrix.send(Outbound(TO, "secret words", "key", extras))
        first, again = server.seen(SENT)
        assert first.path == again.path and "/m.room.encrypted/" in first.path
        assert b"secret" not in first.body and b"$1" in first.body
        assert alice.read(first.data)["body"] == "secret words"
        assert len(server.seen("PUT /sendToDevice/.*")) == 1


async def test_matrix_edit_and_thread_stay_related(tmp_path: Path) -> None:
    async with play() as (server, keys):
        alice, matrix = Person(keys), bot(server, tmp_path)
        async with running(matrix, RecordingHandler()):
            await matrix.send(Outbound(TO, "new words", "k", Extras(replaces="$old")))
            await matrix.send(Outbound(Address("matrix", ROOM, thread="$root"), "in thread", "k2"))
        edit, threaded = (one.data for one in server.seen(SENT))
        assert edit["m.relates_to"] == {"rel_type": "m.replace", "event_id": "$old"}
        assert alice.read(edit)["m.new_content"]["body"] == "new words"
        assert threaded["m.relates_to"]["event_id"] == "$root" and "body" not in threaded


async def test_matrix_reaction_is_not_encrypted(tmp_path: Path) -> None:
    async with play() as (server, _keys):
        matrix = bot(server, tmp_path)
        async with running(matrix, RecordingHandler()):
            await matrix.react(TO, "$1", "👍")
        (sent,) = server.seen(SENT)
        assert "/m.reaction/" in sent.path


async def test_matrix_late_key_opens_kept_message_once(tmp_path: Path) -> None:
    async with play() as (server, keys):
        alice, desk = Person(keys), RecordingHandler()
        async with running(bot(server, tmp_path), desk):
            alice.share(ME)
            held = keys.inbox.pop((ME, "D"))
            message = alice.write("hello")
            server.feed(keys.sync("s1", message), keys.sync("s2", message))
            (asked, *_) = await server.until("PUT /sendToDevice/m.room_key_request/.*")
            assert asked.data["messages"].keys() <= {"@alice:test", ME}
            keys.inbox[ME, "D"] = held
            server.feed(keys.sync("s3"), keys.sync("s4", event("later", room=ROOM)))
            await desk.received(1)
        assert desk.texts == ["hello"]


async def test_matrix_kept_message_survives_restart(tmp_path: Path) -> None:
    async with play() as (server, keys):
        alice, desk = Person(keys), RecordingHandler()
        alice.meet(ME)
        first = server.syncs[0]
        async with running(bot(server, tmp_path), desk):
            alice.share(ME)
            held = keys.inbox.pop((ME, "D"))
            server.feed(keys.sync("s1", alice.write("hello")), keys.sync("s2"))
            await server.until("GET /sync", 4)
        keys.inbox[ME, "D"] = held
        server.restart(first)
        async with running(bot(server, tmp_path), desk):
            server.feed(keys.sync("s3"))
            await desk.received(1)
        assert desk.texts == ["hello"]


async def test_matrix_keys_are_stored_before_next_request(tmp_path: Path) -> None:
    """The next request tells the homeserver to forget what came to our device."""
    async with play() as (server, keys):
        alice, first = Person(keys), server.syncs[0]
        matrix = bot(server, tmp_path)
        failing = RecordingHandler(OSError("the disk is full"), kept={"since": "s0"})
        message = await _run_until_disk_is_full(server, keys, alice, matrix, failing)
        assert not keys.inbox.get((ME, "D"))
        server.restart(first, keys.sync("s1", message))
        desk = RecordingHandler(kept={"since": "s0"})
        async with running(bot(server, tmp_path), desk):
            await desk.received(1)
        assert desk.texts == ["hello"]


async def _run_until_disk_is_full(
    server: Server, keys: Keys, alice: Person, matrix: MatrixChannel, desk: RecordingHandler
) -> dict[str, Any]:
    """Return a message whose key arrived, and that could not be stored."""
    message: dict[str, Any] = {}

    async def write() -> None:
        await matrix._wait_for_login()
        alice.share(ME)
        message.update(alice.write("hello"))
        server.feed(keys.sync("s1", message))

    with pytest.raises(ExceptionGroup, match="unhandled"):  # noqa: PT012 - both must run
        async with asyncio.TaskGroup() as group:
            group.create_task(write())
            await matrix.run(desk)
    return message


async def test_matrix_repeated_device_messages_do_no_harm(tmp_path: Path) -> None:
    async with play() as (server, keys):
        alice, desk = Person(keys), RecordingHandler()
        async with running(bot(server, tmp_path), desk):
            alice.share(ME)
            again = [*keys.inbox[ME, "D"]]
            server.feed(keys.sync("s1", alice.write("one")))
            await desk.received(1)
            keys.inbox[ME, "D"] = again
            server.feed(keys.sync("s2", alice.write("two")))
            await desk.received(2)
        assert desk.texts == ["one", "two"]


async def test_matrix_forged_sender_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with play() as (server, keys):
        alice, mallory, desk = Person(keys), Person(keys, "@mallory:test"), RecordingHandler()
        async with running(bot(server, tmp_path), desk):
            mallory.share(ME)
            forged = mallory.write("as alice", "$forged") | {"sender": "@alice:test"}
            alice_key = alice.olm.account.identity_keys["curve25519"]
            renamed = mallory.write("as alice", "$renamed") | {"sender": "@alice:test"}
            renamed["content"] = {**renamed["content"], "sender_key": alice_key}
            server.feed(keys.sync("s1", forged, renamed, mallory.write("as myself")))
            await desk.received(1)
        assert desk.texts == ["as myself"]
    assert "came from no device of @alice:test" in caplog.text


async def test_matrix_replayed_message_is_refused_after_restart(tmp_path: Path) -> None:
    async with play() as (server, keys):
        alice, desk, first = Person(keys), RecordingHandler(), server.syncs[0]
        async with running(bot(server, tmp_path), desk):
            alice.share(ME)
            message = alice.write("pay 5")
            replayed = message | {"event_id": "$again"}
            server.feed(keys.sync("s1", message, replayed))
            await desk.received(1)
        server.restart(first)
        async with running(bot(server, tmp_path), desk):
            server.feed(keys.sync("s2", replayed, alice.write("done")))
            await desk.received(2)
        assert desk.texts == ["pay 5", "done"]


@pytest.mark.parametrize("is_named", [True, False], ids=["sender key", "no sender key"])
async def test_matrix_stranger_cannot_hide_key_of_session(tmp_path: Path, is_named: bool) -> None:
    """Newer clients leave the sender's key out."""

    def write(text: str) -> dict[str, Any]:
        message = alice.write(text)
        if not is_named:
            del message["content"]["sender_key"]
        return message

    async with play() as (server, keys):
        alice, eve, desk = Person(keys), Person(keys, "@eve:test", "EVE"), RecordingHandler()
        first = server.syncs[0]
        async with running(bot(server, tmp_path), desk):
            alice.share(ME, "@eve:test")
            held = keys.inbox.pop((ME, "D"))
            eve.meet(ME)
            session = alice.olm.outbound_group_sessions[ROOM]
            content = {"algorithm": "m.megolm.v1.aes-sha2", "room_id": ROOM}
            content |= {"session_id": session.id, "session_key": session.session_key}
            _give(eve, keys, "m.room_key", content)
            server.feed(keys.sync("s1"), keys.sync("s2"))
            await server.until("GET /sync", 4)
            keys.inbox[ME, "D"] = held
            server.feed(keys.sync("s3", write("one")))
            await desk.received(1)
        server.restart(first)
        async with running(bot(server, tmp_path), desk):
            server.feed(keys.sync("s4", write("two")))
            await desk.received(2)
        assert desk.texts == ["one", "two"]


def _give(person: Person, keys: Keys, kind: str, content: dict[str, Any]) -> None:
    """Send an Olm message to our device."""
    device = person.olm.device_store[ME]["D"]
    session = person.olm.session_store.get(device.curve25519)
    sealed = person.olm._olm_encrypt(session, device, kind, content)
    keys.deliver(person.user, "m.room.encrypted", {ME: {"D": sealed}})


async def test_matrix_key_forwarded_by_stranger_is_ignored(tmp_path: Path) -> None:
    async with play() as (server, keys):
        alice, eve, desk = Person(keys), Person(keys, "@eve:test", "EVE"), RecordingHandler()
        async with running(bot(server, tmp_path), desk):
            alice.share("@eve:test")
            message = alice.write("hello")
            eve.read(message["content"], alice.user)
            eve.meet(ME)
            server.feed(keys.sync("s1", message))  # the key is requested
            await server.until("PUT /sendToDevice/m.room_key_request/.*")
            session = eve.olm.inbound_group_store.get(
                ROOM, message["content"]["sender_key"], message["content"]["session_id"]
            )
            content = {
                "algorithm": "m.megolm.v1.aes-sha2",
                "forwarding_curve25519_key_chain": [],
                "room_id": ROOM,
                "sender_claimed_ed25519_key": session.ed25519,
                "sender_key": session.sender_key,
                "session_id": session.id,
                "session_key": session.export_session(0),
            }
            _give(eve, keys, "m.forwarded_room_key", content)
            eve.share(ME)
            server.feed(keys.sync("s2", eve.write("hi")))
            await desk.received(1)
        assert desk.texts == ["hi"]


HOSTILE: list[dict[str, Any]] = [
    {},
    {"type": "m.room.encrypted"},
    {"type": "m.room.encrypted", "sender": "@eve:test", "content": []},
    {"type": 5, "sender": 7, "content": "x"},
    {"type": "m.room_key", "sender": "@eve:test", "content": {"session_id": "x"}},
    {"type": "m.room_key_request", "sender": ME, "content": {"action": "request", "body": 1}},
    {"type": "m.key.verification.start", "sender": "@eve:test", "content": {}},
    {
        "type": "m.key.verification.start",
        "sender": "@eve:test",
        "content": {"transaction_id": "t", "from_device": ["x"]},
    },
    {"type": "m.key.verification.mac", "sender": "@eve:test", "content": {"transaction_id": []}},
]


async def test_matrix_flood_of_broken_messages_blocks_nothing(tmp_path: Path) -> None:
    async with play() as (server, keys):
        alice, desk = Person(keys), RecordingHandler()
        matrix = bot(server, tmp_path)
        async with running(matrix, desk):
            await matrix._wait_for_login()
            ours = keys.devices[ME]["D"]["keys"]["curve25519:D"]
            for number, body in enumerate(("", "!", "AwoB", "A" * 5_000, 5, None, "AwgB" * 99)):
                for kind in (0, 1, 2, "0"):
                    sealed = {
                        "algorithm": "m.olm.v1.curve25519-aes-sha2",
                        "sender_key": f"key{number}",
                        "ciphertext": {ours: {"type": kind, "body": body}},
                    }
                    keys.deliver("@eve:test", "m.room.encrypted", {ME: {"D": sealed}})
            keys.inbox[ME, "D"] += HOSTILE
            alice.share(ME)
            good = alice.write("hello", "$good")
            odd: list[Any] = [
                {**good, "event_id": f"$odd{number}", "content": good["content"] | changed}
                for number, changed in enumerate(
                    (
                        {"ciphertext": "AwgB"},
                        {"ciphertext": 5},
                        {"session_id": None},
                        {"sender_key": 7},
                        {"algorithm": "m.unknown"},
                        {"ciphertext": good["content"]["ciphertext"][:-4] + "AAAA"},
                    )
                )
            ]
            odd += [{**good, "event_id": "$none", "content": None}]
            server.feed(keys.sync("s1", *odd, good))
            await desk.received(1)
            server.feed((200, {"next_batch": "s2", "to_device": 5, "device_lists": [1]}))
            server.feed(keys.sync("s3", alice.write("again"), device_lists={"changed": [5]}))
            await desk.received(2)
        assert desk.texts == ["hello", "again"]


async def test_matrix_flood_of_unreadable_messages_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("homarus.channels.matrix.encryption.store.MAX_WAITING_IN_ROOM", 7)
    monkeypatch.setattr(crypto_module, "MAX_REQUESTS", 4)
    async with play() as (server, keys):
        alice, matrix, desk = Person(keys), bot(server, tmp_path), RecordingHandler()
        async with running(matrix, desk):
            alice.share(ME)
            good = alice.write("hello", "$good")
            flood = [
                {
                    **good,
                    "event_id": f"$flood{number}",
                    "content": good["content"] | {"session_id": f"session{number}"},
                }
                for number in range(30)
            ]
            server.feed(keys.sync("s1", *flood, good), keys.sync("s2"))
            await desk.received(1)
            await server.until("GET /sync", 4)
            listed = await matrix.run_key_action("devices", {})
        assert listed["unreadable"] == [{"room": ROOM, "count": 7}]
        assert len(server.seen("PUT /sendToDevice/m.room_key_request/.*")) == 4


async def test_matrix_other_encrypted_events_are_no_messages(tmp_path: Path) -> None:
    async with play() as (server, keys):
        alice, desk = Person(keys), RecordingHandler()
        async with running(bot(server, tmp_path), desk):
            alice.share(ME)
            odd = [
                {**alice.write("x", f"${kind}"), "content": alice.olm.group_encrypt(ROOM, inner)}
                for kind in ("m.room.encrypted", "m.room.member", "m.room.name")
                for inner in [{"type": kind, "content": {"name": "x", "membership": "leave"}}]
            ]
            server.feed(keys.sync("s1", *odd, alice.write("hello", "$good")))
            await desk.received(1)
        assert desk.ids == ["$good"] and not server.seen(SENT)


async def test_matrix_member_of_absent_server_delays_nothing(tmp_path: Path) -> None:
    async with play() as (server, keys):
        alice, matrix = Person(keys), bot(server, tmp_path)
        keys.members.append("@far:away")
        far = {
            "device_keys": {"@alice:test": keys.devices["@alice:test"]},
            "failures": {"away": {}},
        }
        async with running(matrix, RecordingHandler()):
            server.on("POST /keys/query", (200, far))
            for number in range(3):
                await matrix.send(Outbound(TO, f"{number}", f"k{number}"))
        asked = [one.data["device_keys"] for one in server.seen("POST /keys/query")]
        assert len([one for one in asked if "@far:away" in one]) == 1
        assert alice.read(server.seen(SENT)[2].data)["body"] == "2"


async def test_matrix_huge_device_list_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with play() as (server, keys):
        people = [Person(keys, device=f"PHONE{number}") for number in range(5)]
        bad: dict[str, Any] = {
            "PHONE9": {"keys": {}},
            "PHONE8": 5,
            "OTHER": keys.devices["@alice:test"]["PHONE0"],
        }
        keys.devices["@alice:test"] = bad | keys.devices["@alice:test"]
        monkeypatch.setattr("homarus.channels.matrix.encryption.machine.MAX_DEVICES", 5)
        matrix = bot(server, tmp_path)
        async with running(matrix, RecordingHandler()):
            await matrix.send(Outbound(TO, "hello", "key"))
        (shared,) = server.seen("PUT /sendToDevice/.*")
        assert [*shared.data["messages"]["@alice:test"]] == ["PHONE0", "PHONE1"]
        assert people[0].read(server.seen(SENT)[0].data)["body"] == "hello"
    assert "has 8 devices" in caplog.text


async def test_matrix_device_with_changed_key_gets_nothing(tmp_path: Path) -> None:
    """A homeserver that replaces the keys of a device is not believed."""
    async with play() as (server, keys):
        Person(keys)
        matrix = bot(server, tmp_path)
        async with running(matrix, RecordingHandler()):
            await matrix.send(Outbound(TO, "one", "k1"))
            Person(keys)  # the same device with other keys
            server.feed(keys.sync("s1", device_lists={"changed": ["@alice:test"]}))
            await server.until("GET /sync", 3)
            await matrix.send(Outbound(TO, "two", "k2"))
        assert len(server.seen("PUT /sendToDevice/m.room.encrypted/.*")) == 1


async def test_matrix_key_changes_when_member_leaves(tmp_path: Path) -> None:
    async with play() as (server, keys):
        alice, eve = Person(keys), Person(keys, "@eve:test", "EVE")
        keys.members.append("@eve:test")
        matrix = bot(server, tmp_path)
        async with running(matrix, RecordingHandler()):
            await matrix.send(Outbound(TO, "one", "k1"))
            keys.members.remove("@eve:test")
            left: dict[str, Any] = {"type": "m.room.member", "state_key": "@eve:test"}
            left |= {"sender": "@eve:test", "event_id": "$left", "content": {"membership": "leave"}}
            server.feed(keys.sync("s1", left))
            await server.until("GET /sync", 3)
            await matrix.send(Outbound(TO, "two", "k2"))
        one, two = (asked.data for asked in server.seen(SENT))
        assert one["session_id"] != two["session_id"]
        assert eve.read(one)["body"] == "one"
        assert [alice.read(each)["body"] for each in (one, two)] == ["one", "two"]
        with pytest.raises(Exception, match="no session found"):
            eve.read(two)


async def test_matrix_key_changes_when_we_remove_member(tmp_path: Path) -> None:
    async with play() as (server, keys):
        keys.members.append("@eve:test")
        eve, matrix = Person(keys, "@eve:test", "EVE"), bot(server, tmp_path)
        server.on("POST /rooms/!r/kick", (200, {}))
        async with running(matrix, RecordingHandler()):
            await matrix.send(Outbound(TO, "one", "k1"))
            keys.members.remove("@eve:test")
            await matrix.run_chat_action(TO, ChatAction("kick", user="@eve:test"))
            await matrix.send(Outbound(TO, "two", "k2"))
        one, two = (asked.data for asked in server.seen(SENT))
        assert eve.read(one)["body"] == "one"
        assert one["session_id"] != two["session_id"]


async def test_matrix_key_that_cannot_be_stored_ends_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The homeserver still has what came to our device: nothing asked it to forget that."""

    def fail(*_args: object) -> None:
        raise PeeweeException("the disk is full")

    async with play() as (server, keys):
        alice, matrix = Person(keys), bot(server, tmp_path)
        monkeypatch.setattr(KeyStore, "save_inbound_group_session", fail)
        await _run_until_disk_is_full(server, keys, alice, matrix, RecordingHandler())
        assert [one.query.get("since") for one in server.seen("GET /sync")] == [None, "s0"]


async def test_matrix_new_device_gets_current_key(tmp_path: Path) -> None:
    async with play() as (server, keys):
        Person(keys)
        matrix = bot(server, tmp_path)
        async with running(matrix, RecordingHandler()):
            await matrix.send(Outbound(TO, "one", "k1"))
            tablet = Person(keys, device="TABLET")
            server.feed(keys.sync("s1", device_lists={"changed": ["@alice:test"]}))
            await server.until("GET /sync", 3)
            await matrix.send(Outbound(TO, "two", "k2"))
        one, two = (asked.data for asked in server.seen(SENT))
        assert tablet.read(two)["body"] == "two"
        with pytest.raises(Exception, match="message index"):
            tablet.read(one)


async def test_matrix_unencrypted_message_in_encrypted_room_is_ignored(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with play() as (server, keys):
        alice, desk = Person(keys), RecordingHandler()
        server.syncs = [(200, {"next_batch": "s0", "rooms": {"join": {ROOM: {}}}})]
        async with running(bot(server, tmp_path), desk):
            alice.share(ME)
            server.feed(keys.sync("s1", event("before", "$b"), ENCRYPTION, alice.write("one")))
            await desk.received(2)
            server.feed(keys.sync("s2", event("by the server", "$c"), alice.write("two")))
            await desk.received(3)
        assert desk.texts == ["before", "one", "two"]
    assert "it is not encrypted, and the room is" in caplog.text


async def test_matrix_encrypted_files_go_both_ways(tmp_path: Path) -> None:
    from nio.crypto.attachments import decrypt_attachment, encrypt_attachment

    async with play() as (server, keys):
        alice, desk = Person(keys), RecordingHandler()
        matrix = bot(server, tmp_path)
        server.on("POST /_matrix/media/v3/upload", (200, {"content_uri": "mxc://test/out"}))
        file = tmp_path / "a.txt"
        file.write_text("secret words")
        async with running(matrix, desk):
            media = Media(path=str(file), mime="text/plain")
            await matrix.send(Outbound(TO, "", "key", Extras(media=(media,))))
            alice.share(ME)
            sealed, info = encrypt_attachment(b"from alice")
            file_info = info | {"url": "mxc://test/in"}
            server.feed(keys.sync("s1", alice.write("a.bin", msgtype="m.file", file=file_info)))
            (inbound,) = await desk.received(1)
            (received,) = inbound.media
            server.on("GET .*/download/test/in", (200, sealed))
            assert await matrix.fetch(received, 100) == b"from alice"
            server.on("GET .*/download/test/in", (200, b"changed on the way"))
            with pytest.raises(Exception, match="cannot be read"):
                await matrix.fetch(received, 100)
        (uploaded,), (sent,) = server.seen("POST /_matrix/media/v3/upload"), server.seen(SENT)
        assert b"secret" not in uploaded.body and b"a.txt" not in sent.body
        content = alice.read(sent.data)
        assert "url" not in content and content["filename"] == "a.txt"
        found, key = content["file"], content["file"]["key"]["k"]
        opened = decrypt_attachment(uploaded.body, key, found["hashes"]["sha256"], found["iv"])
        assert opened == b"secret words" and found["url"] == "mxc://test/out"


async def test_matrix_trust_verified_excludes_other_devices(tmp_path: Path) -> None:
    async with play() as (server, keys):
        alice, desk = Person(keys), RecordingHandler()
        matrix = bot(server, tmp_path, encryptionTrust="verified")
        async with running(matrix, desk):
            await matrix.send(Outbound(TO, "one", "k1"))
            assert not server.seen("PUT /sendToDevice/m.room.encrypted/.*")
            alice.share(ME)
            server.feed(keys.sync("s1", alice.write("hello")), keys.sync("s2"))
            await server.until("GET /sync", 4)
            fingerprint = alice.olm.account.identity_keys["ed25519"]
            who = {"userId": "@alice:test", "deviceId": "PHONE", "trust": "verified"}
            with pytest.raises(SendError, match="another one"):
                await matrix.run_key_action("trust", {**who, "fingerprint": "x"})
            await matrix.run_key_action("trust", {**who, "fingerprint": fingerprint})
            server.feed(keys.sync("s3"))
            await desk.received(1)
            await matrix.send(Outbound(TO, "two", "k2"))
        assert desk.texts == ["hello"]
        assert alice.read(server.seen(SENT)[1].data)["body"] == "two"


async def test_matrix_blocked_device_is_neither_read_nor_told(tmp_path: Path) -> None:
    async with play() as (server, keys):
        alice, tablet = Person(keys), Person(keys, device="TABLET")
        matrix, desk = bot(server, tmp_path), RecordingHandler()
        async with running(matrix, desk):
            who = {"userId": "@alice:test", "deviceId": "TABLET", "trust": "blocked"}
            await matrix.run_key_action("trust", who)
            await matrix.send(Outbound(TO, "one", "k1"))
            tablet.share(ME)
            alice.share(ME)
            server.feed(keys.sync("s1", tablet.write("stolen"), alice.write("mine")))
            await desk.received(1)
            listed = await matrix.run_key_action("devices", {})
        assert desk.texts == ["mine"]
        (shared,) = server.seen("PUT /sendToDevice/m.room.encrypted/.*")
        assert [*shared.data["messages"]["@alice:test"]] == ["PHONE"]
        assert {row["deviceId"]: row["trust"] for row in listed["devices"]} == {
            "PHONE": "unverified",
            "TABLET": "blocked",
        }


async def test_matrix_unreadable_message_is_reported_to_room_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(crypto_module, "NOTICE_AFTER_MS", 0)
    monkeypatch.setattr(crypto_module, "CHECK_EVERY_S", 0.01)
    async with play() as (server, keys):
        alice = Person(keys)
        matrix = bot(server, tmp_path)
        async with running(matrix, RecordingHandler()):
            alice.share(ME)
            keys.inbox.clear()
            server.feed(keys.sync("s1", alice.write("one"), alice.write("two")))
            server.feed(keys.sync("s2", alice.write("three")), keys.sync("s3"))
            (sent,) = await server.until(SENT)
            await server.until("GET /sync", 5)
            listed = await matrix.run_key_action("devices", {})
            assert matrix.unreadable_count == 3
        assert matrix.unreadable_count == 0  # it is not known while the account is off
        assert alice.read(sent.data)["msgtype"] == "m.notice"
        assert len(server.seen(SENT)) == 1
        assert listed["unreadable"] == [{"room": ROOM, "count": 3}]
    assert caplog.text.count("cannot be read: its key has not arrived") == 1


async def test_matrix_search_of_encrypted_room_is_refused(tmp_path: Path) -> None:
    async with play() as (server, keys):
        alice, matrix = Person(keys), bot(server, tmp_path)
        async with running(matrix, RecordingHandler()):
            with pytest.raises(SendError, match="cannot search"):
                await matrix.run_chat_action(TO, ChatAction("search", text="x"))
            alice.share(ME)
            server.feed(keys.sync("s1"))
            await server.until("GET /sync", 3)
            unread = {**alice.write("lost", "$2"), "content": {"algorithm": "m.other"}}
            chunk = {"chunk": [unread, alice.write("hello", "$1")]}
            server.on("GET /rooms/!r/messages", (200, chunk))
            found = await matrix.run_chat_action(TO, ChatAction("read"))
        texts = [row["text"] for row in found["messages"]]
        assert texts == ["(encrypted: it cannot be read)", "hello"]


def test_matrix_key_file_is_private(tmp_path: Path) -> None:
    from homarus.channels.matrix.encryption.store import open_store

    file = tmp_path / "credentials" / "matrix" / "default.keys.sqlite"
    open_store(file, ME, "D").close()
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
