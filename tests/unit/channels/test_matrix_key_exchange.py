"""Encrypted rooms when requests for keys fail, overlap or come too often."""

from pathlib import Path
from typing import Any

import pytest
from peewee import PeeweeException

from homarus.channels.matrix.encryption.store import KeyStore
from homarus.core.errors import ChannelError
from homarus.core.message import Address, Outbound
from homarus.testing.fakes import RecordingHandler
from tests.unit.channels.matrix_keys import DEVICE, ROOM, Keys, Person, bot, play
from tests.unit.channels.matrix_server import ME, Asked, Said, Server, running

TO = Address("matrix", ROOM)
SENT = "PUT /rooms/!r/send/.*"
ALICE = "@alice:test"


async def _sync(server: Server, keys: Keys, *events: Any, **more: Any) -> None:
    """Let our device get a response, and handle it."""
    count = len(server.seen("GET /sync"))
    server.feed(keys.sync(f"s{count}", *events, **more))
    await server.until("GET /sync", count + 1)


async def test_matrix_failed_key_claim_is_repeated_with_message(tmp_path: Path) -> None:
    """What is sent without a key could be read by no one."""
    async with play() as (server, keys):
        alice, matrix = Person(keys), bot(server, tmp_path)
        async with running(matrix, RecordingHandler()):
            server.on("POST /keys/claim", (502, b"a proxy"))
            with pytest.raises(ChannelError):
                await matrix.send(Outbound(TO, "hello", "k"))
            server.on("POST /keys/claim", lambda asked: (200, keys.claim(asked.data)))
            await matrix.send(Outbound(TO, "hello", "k"))
        (sent,) = server.seen(SENT)
        assert alice.read(sent.data)["body"] == "hello"


async def test_matrix_stop_while_key_is_stored_loses_no_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message to our device is opened once: its key must be on disk with that."""
    async with play() as (server, keys):
        alice, first, desk = Person(keys), server.syncs[0], RecordingHandler(kept={"since": "s0"})
        async with running(bot(server, tmp_path), desk):
            alice.share(ME)
            await _sync(server, keys, alice.write("one"))
            await desk.received(1)
        alice.olm.create_outbound_group_session(ROOM)
        alice.olm.outbound_group_sessions[ROOM].users_shared_with.clear()
        alice.share(ME)
        again, two = [*keys.inbox[ME, DEVICE]], alice.write("two")

        def stop(*_args: object) -> None:
            raise PeeweeException("stopped here")

        with monkeypatch.context() as patched:
            patched.setattr(KeyStore, "save_inbound_group_session", stop)
            server.restart(first, keys.sync("s1", two))
            with pytest.raises(PeeweeException):
                await bot(server, tmp_path).run(desk)
        keys.inbox[ME, DEVICE] = again
        server.restart(first, keys.sync("s1", two))
        async with running(bot(server, tmp_path), desk):
            await desk.received(2)
        assert desk.texts == ["one", "two"]


async def test_matrix_device_list_changed_during_query_is_fetched_again(tmp_path: Path) -> None:
    async with play() as (server, keys):
        Person(keys)
        matrix, tablets = bot(server, tmp_path), list[Person]()

        def query(asked: Asked) -> Said:
            found = keys.query(asked.data)
            if ALICE in asked.data["device_keys"] and not tablets:
                tablets.append(Person(keys, device="TABLET"))
                server.feed(keys.sync("s1", device_lists={"changed": [ALICE]}))
            return 200, found

        server.on("POST /keys/query", query)
        server.hold("POST /keys/query", lambda: len(server.seen("GET /sync")) >= 3 or not tablets)
        async with running(matrix, RecordingHandler()):
            await server.until("GET /sync", 2)
            await matrix.send(Outbound(TO, "one", "k1"))
            await matrix.send(Outbound(TO, "two", "k2"))
        assert tablets[0].read(server.seen(SENT)[1].data)["body"] == "two"


async def test_matrix_member_that_leaves_during_fetch_gets_no_later_key(tmp_path: Path) -> None:
    async with play() as (server, keys):
        eve, matrix = Person(keys, "@eve:test", "EVE"), bot(server, tmp_path)
        Person(keys)
        keys.members.append("@eve:test")
        left: dict[str, Any] = {"type": "m.room.member", "state_key": "@eve:test"}
        left |= {"sender": "@eve:test", "event_id": "$left", "content": {"membership": "leave"}}

        def members(_asked: Asked) -> Said:
            found = keys._members()
            if "@eve:test" in keys.members:
                keys.members.remove("@eve:test")
                server.feed(keys.sync("s1", left))
            return 200, {"chunk": found}

        server.on("GET /rooms/.*/members", members)
        server.hold("GET /rooms/.*/members", lambda: len(server.seen("GET /sync")) >= 3)
        async with running(matrix, RecordingHandler()):
            await server.until("GET /sync", 2)
            await matrix.send(Outbound(TO, "one", "k1"))
            await matrix.send(Outbound(TO, "two", "k2"))
        with pytest.raises(Exception, match="no session found"):
            eve.read(server.seen(SENT)[1].data)


async def test_matrix_strangers_that_verify_cost_one_query(tmp_path: Path) -> None:
    async with play() as (server, keys), running(bot(server, tmp_path), RecordingHandler()):
        await server.until("GET /sync", 2)
        before = len(server.seen("POST /keys/query"))
        for number in range(6):
            content = {"from_device": "NONE", "transaction_id": f"t{number}"}
            kind = ("request", "start", "key")[number % 3]
            sender = f"@eve{number % 2}:test"
            keys.deliver(sender, f"m.key.verification.{kind}", {ME: {DEVICE: content}})
        await _sync(server, keys)
        assert len(server.seen("POST /keys/query")) == before + 1


async def test_matrix_new_device_is_read_when_its_list_arrives_late(tmp_path: Path) -> None:
    async with play() as (server, keys):
        Person(keys)
        desk, matrix = RecordingHandler(), bot(server, tmp_path)
        async with running(matrix, desk):
            tablet = Person(keys, device="TABLET")
            tablet.share(ME)
            published = keys.devices[ALICE].pop("TABLET")  # its server is slow to say so
            await _sync(server, keys, tablet.write("hello"))
            await _sync(server, keys)
            assert desk.texts == []
            keys.devices[ALICE]["TABLET"] = published
            await _sync(server, keys, device_lists={"changed": [ALICE]})
            await _sync(server, keys)
            await desk.received(1)
        assert desk.texts == ["hello"]


async def test_matrix_deleted_message_is_not_read_when_key_comes(tmp_path: Path) -> None:
    async with play() as (server, keys):
        alice, desk, matrix = Person(keys), RecordingHandler(), bot(server, tmp_path)
        async with running(matrix, desk):
            alice.share(ME)
            held = keys.inbox.pop((ME, DEVICE))
            await _sync(server, keys, alice.write("oops", "$a"), alice.write("fine", "$b"))
            redaction = {"type": "m.room.redaction", "sender": ALICE, "event_id": "$gone"}
            await _sync(server, keys, redaction | {"redacts": "$a", "content": {}})
            keys.inbox[ME, DEVICE] = held
            await _sync(server, keys)
            await desk.received(1)
        assert desk.texts == ["fine"]


async def test_matrix_room_without_history_visibility_is_written(tmp_path: Path) -> None:
    """Who is invited there sees what was said, by the specification."""
    async with play() as (server, keys):
        Person(keys)
        eve, matrix = Person(keys, "@eve:test", "EVE"), bot(server, tmp_path)
        invite = {"state_key": "@eve:test", "content": {"membership": "invite"}}
        server.on(
            "GET /rooms/.*/members", lambda _asked: (200, {"chunk": [*keys._members(), invite]})
        )
        server.on(
            "GET /rooms/!r/state/m.room.history_visibility", (404, {"errcode": "M_NOT_FOUND"})
        )
        async with running(matrix, RecordingHandler()):
            await matrix.send(Outbound(TO, "hello", "k"))
        assert eve.read(server.seen(SENT)[0].data)["body"] == "hello"


async def test_matrix_refused_one_time_keys_are_replaced(tmp_path: Path) -> None:
    """As after a restored backup: the homeserver has other keys under the same names."""
    async with play() as (server, keys):
        matrix, refused = bot(server, tmp_path), list[str]()

        def upload(asked: Asked) -> Said:
            names = asked.data["one_time_keys"].keys()
            if not refused:
                refused.extend(names)
            if refused and names & set(refused):
                return 400, {"errcode": "M_UNKNOWN", "error": "One time key already exists"}
            return 200, keys.upload(ME, DEVICE, asked.data)

        async with running(matrix, RecordingHandler()):
            await server.until("GET /sync", 2)
            server.on("POST /keys/upload", upload)
            used = {"device_one_time_keys_count": {"signed_curve25519": 40}}
            await _sync(server, keys, **used)
            await _sync(server, keys, **used)
        *_, first, second = (asked.data for asked in server.seen("POST /keys/upload"))
        assert list(first["one_time_keys"]) == refused
        assert not second["one_time_keys"].keys() & set(refused)


async def test_matrix_key_is_given_to_own_verified_device_only(tmp_path: Path) -> None:
    async with play() as (server, keys):
        alice, desk, matrix = Person(keys), RecordingHandler(), bot(server, tmp_path)
        async with running(matrix, desk):
            await server.until("GET /sync", 2)
            tablet = Person(keys, ME, "TABLET")
            alice.share(ME)
            message = alice.write("hello")
            await _sync(server, keys, message)
            named = {"userId": ME, "deviceId": "TABLET"}
            await matrix.run_key_action("devices", {"userId": ME})

            async def request(id_: str) -> list[Any]:
                before = len(server.seen("PUT /sendToDevice/m.room.encrypted/.*"))
                body = {key: message["content"][key] for key in ("sender_key", "session_id")}
                body |= {"algorithm": "m.megolm.v1.aes-sha2", "room_id": ROOM}
                content = {"action": "request", "request_id": id_, "body": body}
                content["requesting_device_id"] = "TABLET"
                keys.deliver(ME, "m.room_key_request", {ME: {DEVICE: content}})
                await _sync(server, keys)
                return server.seen("PUT /sendToDevice/m.room.encrypted/.*")[before:]

            claims = len(server.seen("POST /keys/claim"))
            assert await request("unverified") == []
            assert len(server.seen("POST /keys/claim")) == claims
            fingerprint = tablet.olm.account.identity_keys["ed25519"]
            trust = {**named, "trust": "verified", "fingerprint": fingerprint}
            await matrix.run_key_action("trust", trust)
            assert len(await request("verified")) == 1
            del keys.devices[ME]["TABLET"]
            await matrix.run_key_action("devices", {"userId": ME})
            assert await request("logged out") == []
