"""Devices and keys of an encrypted Matrix account: verification, key files, lost keys."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from nio.crypto import Olm
from nio.crypto.sas import Sas
from nio.events import ToDeviceEvent

from homarus.channels.base import ChannelContext
from homarus.channels.matrix import create
from homarus.channels.matrix.adapter import MatrixChannel
from homarus.channels.matrix.encryption.key_files import export_keys, read_keys
from homarus.channels.matrix.encryption.sas import Party, SasError, SasExchange
from homarus.channels.matrix.encryption.store import RoomKeys, last_device, open_store
from homarus.channels.matrix.settings import MatrixSettings
from homarus.core.clock import SystemClock
from homarus.core.errors import ChannelAuthError, ChannelError, MissingExtraError, UserError
from homarus.testing.clock import FakeClock
from homarus.testing.fakes import RecordingHandler
from tests.unit.channels.matrix_keys import DEVICE, ROOM, Keys, Person, bot, play
from tests.unit.channels.matrix_server import ME, TOKEN, Server, running

ANN, BOB = Party("@ann:test", "PHONE", "annkey"), Party("@bob:test", "LAPTOP", "bobkey")
PHONE = {"userId": "@alice:test", "deviceId": "PHONE"}
PASSPHRASE = "correct horse – Pferd"


# Short strings


def exchange(*, old: bool = False) -> tuple[SasExchange, SasExchange]:
    """Return both sides of an exchange whose strings can be compared."""
    ann, bob = SasExchange(ANN, BOB, "t"), SasExchange(BOB, ANN, "t")
    start = dict(ann.start())
    if old:
        start["message_authentication_codes"] = ["hkdf-hmac-sha256"]
        ann._start = start
    ann.on_accepted(bob.accept(start))
    bob.on_key({"key": ann.public_key})
    ann.on_key({"key": bob.public_key})
    return ann, bob


@pytest.mark.parametrize("old", [False, True])
def test_sas_strings_are_same_on_both_sides(old: bool) -> None:
    ann, bob = exchange(old=old)
    assert ann.emoji() == bob.emoji() and len(ann.emoji()) == 7
    assert ann.decimals() == bob.decimals() and len(ann.decimals()) == 3
    bob.check_mac(ann.mac())
    ann.check_mac(bob.mac())


def test_sas_commitment_is_that_of_specification() -> None:
    """With the current method: unpadded base64, 43 characters."""
    start = SasExchange(ANN, BOB, "t").start()
    accept = SasExchange(BOB, ANN, "t").accept(start)
    assert accept["message_authentication_code"] == "hkdf-hmac-sha256.v2"
    assert len(str(accept["commitment"])) == 43


def test_sas_changed_key_is_refused() -> None:
    ann, bob = SasExchange(ANN, BOB, "t"), SasExchange(BOB, ANN, "t")
    ann.on_accepted(bob.accept(ann.start()))
    with pytest.raises(SasError, match="changed its key"):
        ann.on_key({"key": SasExchange(BOB, ANN, "t").public_key})


@pytest.mark.parametrize(
    "change",
    [
        {"mac": {}},
        {"mac": {"ed25519:LAPTOP": "x"}},
        {"keys": "x"},
        {"mac": 5},
        {"mac": {"ed25519:LAPTOP": 5}},
    ],
    ids=str,
)
def test_sas_wrong_proof_is_refused(change: dict[str, Any]) -> None:
    ann, bob = exchange()
    with pytest.raises(SasError):
        ann.check_mac({**bob.mac(), **change})


def test_sas_second_commitment_is_refused() -> None:
    """After our key is known, another key could be chosen so that the strings match."""
    ann, bob = SasExchange(ANN, BOB, "t"), SasExchange(BOB, ANN, "t")
    start = ann.start()
    ann.on_accepted(bob.accept(start))
    with pytest.raises(SasError, match="wrong time"):
        ann.on_accepted(SasExchange(BOB, ANN, "t").accept(start))


def test_sas_start_after_agreement_is_refused() -> None:
    """The side that accepts a start sends its key last, so it needs no commitment."""
    ann, bob = SasExchange(ANN, BOB, "t"), SasExchange(BOB, ANN, "t")
    ann.on_accepted(bob.accept(ann.start()))
    for side in (ann, bob):
        with pytest.raises(SasError, match="wrong time"):
            side.accept(SasExchange(BOB, ANN, "t").start())


def test_sas_commitment_to_own_start_only_is_awaited() -> None:
    ann, bob = SasExchange(ANN, BOB, "t"), SasExchange(BOB, ANN, "t")
    accept = bob.accept(ann.start())
    with pytest.raises(SasError, match="wrong time"):
        bob.on_accepted(accept)


def test_sas_start_that_cannot_be_encoded_is_refused() -> None:
    start = SasExchange(ANN, BOB, "t").start()
    with pytest.raises(SasError, match="malformed"):
        SasExchange(BOB, ANN, "t").accept({**start, "from_device": "\ud800"})


def test_sas_unknown_method_is_refused() -> None:
    start = SasExchange(ANN, BOB, "t").start()
    for change in ({"method": "x"}, {"hashes": ["md5"]}, {"key_agreement_protocols": 5}):
        with pytest.raises(SasError, match="unknown way"):
            SasExchange(BOB, ANN, "t").accept({**start, **change})
    with pytest.raises(SasError, match="wrong time"):
        SasExchange(BOB, ANN, "t").check_mac({"mac": {"ed25519:PHONE": "x"}})


# Verification


async def _deliver(person: Person) -> list[dict[str, Any]]:
    """Pass what came to a person's device to matrix-nio, and its answers to ours."""
    got = person.keys.inbox.pop((person.user, person.device), [])
    for event in got:
        parsed = ToDeviceEvent.parse_event(json.loads(json.dumps(event)))
        person.olm.handle_to_device_event(parsed)
    _post(person)
    return got


def _post(person: Person, *more: Any) -> None:
    queued = [*person.olm.outgoing_to_device_messages, *more]
    person.olm.outgoing_to_device_messages.clear()
    for message in queued:
        person.keys.deliver(person.user, message.type, message.as_dict()["messages"])


async def _sync(server: Server, keys: Keys) -> None:
    """Let our device get what waits for it."""
    count = len(server.seen("GET /sync"))
    server.feed(keys.sync(f"s{count}"))
    await server.until("GET /sync", count + 1)


def _sas(person: Person) -> Sas:
    (found,) = person.olm.key_verifications.values()
    return found


async def test_matrix_verification_begun_by_person_ends_verified(tmp_path: Path) -> None:
    async with play() as (server, keys):
        alice, matrix = Person(keys), bot(server, tmp_path)
        async with running(matrix, RecordingHandler()):
            await matrix.run_key_action("devices", {"userId": "@alice:test"})
            alice.meet(ME)
            ours = alice.olm.device_store[ME][DEVICE]
            _post(alice, alice.olm.create_sas(ours))
            await _sync(server, keys)
            (pending,) = (await matrix.run_key_action("verify.pending", {}))["verifications"]
            assert (pending["state"], pending["deviceId"]) == ("offered", "PHONE")
            id_ = {"id": pending["id"]}
            await matrix.run_key_action("verify.accept", id_)
            await _deliver(alice)
            await _sync(server, keys)
            shown = await matrix.run_key_action("verify.show", id_)
            await _deliver(alice)
            sas = _sas(alice)
            assert [(one["symbol"], one["name"]) for one in shown["emoji"]] == sas.get_emoji()
            assert tuple(shown["decimals"]) == tuple(sas.get_decimals())
            sas.accept_sas()
            _post(alice, sas.get_mac())
            await _sync(server, keys)
            confirmed = await matrix.run_key_action("verify.confirm", {**id_, "match": True})
            await _deliver(alice)
            listed = await matrix.run_key_action("devices", {})
        assert confirmed["state"] == "done" and sas.verified
        assert alice.olm.is_device_verified(ours)
        assert [row["trust"] for row in listed["devices"]] == ["verified"]


async def test_matrix_verification_begun_by_operator_ends_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("homarus.channels.matrix.encryption.verification.READY_WAIT_S", 0)
    async with play() as (server, keys):
        alice, matrix = Person(keys), bot(server, tmp_path)
        async with running(matrix, RecordingHandler()):
            begun = await matrix.run_key_action("verify.begin", {"userId": "@alice:test"})
            id_ = {"id": begun["id"]}
            alice.meet(ME)
            await matrix.run_key_action("verify.show", id_)  # matrix-nio knows no requests
            await _deliver(alice)
            sas = _sas(alice)
            _post(alice, sas.accept_verification())
            await _sync(server, keys)
            await _deliver(alice)
            await _sync(server, keys)
            shown = await matrix.run_key_action("verify.show", id_)
            assert tuple(shown["decimals"]) == tuple(sas.get_decimals())
            await matrix.run_key_action("verify.confirm", {**id_, "match": True})
            sas.accept_sas()
            await _deliver(alice)
            _post(alice, sas.get_mac())
            await _sync(server, keys)
            done = await matrix.run_key_action("verify.show", id_)
        assert done["state"] == "done" and sas.verified


async def test_matrix_verification_with_wrong_strings_is_cancelled(tmp_path: Path) -> None:
    async with play() as (server, keys):
        alice, matrix = Person(keys), bot(server, tmp_path)
        async with running(matrix, RecordingHandler()):
            await matrix.run_key_action("devices", {"userId": "@alice:test"})
            alice.meet(ME)
            _post(alice, alice.olm.create_sas(alice.olm.device_store[ME][DEVICE]))
            await _sync(server, keys)
            (pending,) = (await matrix.run_key_action("verify.pending", {}))["verifications"]
            id_ = {"id": pending["id"]}
            with pytest.raises(ChannelError, match="nothing to compare"):
                await matrix.run_key_action("verify.confirm", {**id_, "match": True})
            await matrix.run_key_action("verify.accept", id_)
            await _deliver(alice)
            await _sync(server, keys)
            ended = await matrix.run_key_action("verify.confirm", {**id_, "match": False})
            await _deliver(alice)
            listed = await matrix.run_key_action("devices", {})
            with pytest.raises(ChannelError, match="no such verification"):
                await matrix.run_key_action("verify.show", {"id": "other"})
        assert ended["state"] == "cancelled" and not alice.olm.key_verifications
        assert [row["trust"] for row in listed["devices"]] == ["unverified"]


async def test_matrix_verification_by_request_ends_with_done(tmp_path: Path) -> None:
    """The form of current clients: request, ready, start … done."""
    async with play() as (server, keys):
        alice, matrix = Person(keys), bot(server, tmp_path)
        async with running(matrix, RecordingHandler()):
            await matrix.run_key_action("devices", {"userId": "@alice:test"})

            def post(kind: str, content: dict[str, Any]) -> None:
                body = {"transaction_id": "t", **content}
                keys.deliver(alice.user, f"m.key.verification.{kind}", {ME: {DEVICE: body}})

            def got() -> dict[str, Any]:
                (event,) = keys.inbox.pop((alice.user, "PHONE"))
                return {**event["content"], "kind": event["type"].rpartition(".")[2]}

            keys_of = alice.olm.account.identity_keys["ed25519"]
            theirs = Party(alice.user, "PHONE", keys_of)
            ours = Party(ME, DEVICE, keys.devices[ME][DEVICE]["keys"][f"ed25519:{DEVICE}"])
            side = SasExchange(theirs, ours, "t")
            at_ms = SystemClock().now_ms()
            request = {"from_device": "PHONE", "methods": ["m.sas.v1"], "timestamp": at_ms}
            post("request", request)
            await _sync(server, keys)
            await matrix.run_key_action("verify.accept", {"id": "t"})
            assert got()["kind"] == "ready"
            post("start", dict(side.start()))
            await _sync(server, keys)
            side.on_accepted(got())
            post("key", {"key": side.public_key})
            await _sync(server, keys)
            side.on_key(got())
            shown = await matrix.run_key_action("verify.show", {"id": "t"})
            assert [(one["symbol"], one["name"]) for one in shown["emoji"]] == side.emoji()
            post("mac", dict(side.mac()))
            await _sync(server, keys)
            await matrix.run_key_action("verify.confirm", {"id": "t", "match": True})
            mac, done = keys.inbox.pop((alice.user, "PHONE"))
            side.check_mac(mac["content"])
        assert done["type"] == "m.key.verification.done"


async def test_matrix_verification_begun_by_operator_by_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A person who accepts late gets the start again."""
    monkeypatch.setattr("homarus.channels.matrix.encryption.verification.READY_WAIT_S", 0)
    async with play() as (server, keys):
        alice, matrix = Person(keys), bot(server, tmp_path)
        async with running(matrix, RecordingHandler()):
            begun = await matrix.run_key_action("verify.begin", {"userId": "@alice:test"})
            id_ = {"id": begun["id"]}

            def post(kind: str, content: Any) -> None:
                body = {**content, "transaction_id": begun["id"]}
                keys.deliver(alice.user, f"m.key.verification.{kind}", {ME: {DEVICE: body}})

            def got(kind: str) -> dict[str, Any]:
                *_, event = keys.inbox.pop((alice.user, "PHONE"))
                assert event["type"] == f"m.key.verification.{kind}"
                found: dict[str, Any] = event["content"]
                return found

            assert got("request")["methods"] == ["m.sas.v1"]
            await matrix.run_key_action("verify.show", id_)
            early = got("start")
            post("ready", {"from_device": "PHONE", "methods": ["m.sas.v1"]})
            await _sync(server, keys)
            start = got("start")
            theirs = Party(alice.user, "PHONE", alice.olm.account.identity_keys["ed25519"])
            ours = Party(ME, DEVICE, keys.devices[ME][DEVICE]["keys"][f"ed25519:{DEVICE}"])
            side = SasExchange(theirs, ours, begun["id"])
            post("accept", side.accept(start))
            await _sync(server, keys)
            side.on_key(got("key"))
            post("key", {"key": side.public_key})
            await _sync(server, keys)
            shown = await matrix.run_key_action("verify.show", id_)
            assert shown["decimals"] == side.decimals() and early == start
            await matrix.run_key_action("verify.confirm", {**id_, "match": True})
            side.check_mac(got("mac"))
            post("mac", side.mac())
            await _sync(server, keys)
            done = await matrix.run_key_action("verify.show", id_)
            assert done["state"] == "done" and got("done")


async def test_matrix_second_commitment_cancels_verification(tmp_path: Path) -> None:
    async with play() as (server, keys):
        alice, matrix = Person(keys), bot(server, tmp_path)
        async with running(matrix, RecordingHandler()):
            begun = await matrix.run_key_action("verify.begin", {"userId": "@alice:test"})
            theirs = Party(alice.user, "PHONE", alice.olm.account.identity_keys["ed25519"])
            ours = Party(ME, DEVICE, keys.devices[ME][DEVICE]["keys"][f"ed25519:{DEVICE}"])

            async def post(kind: str, content: Any) -> dict[str, Any]:
                body = {**content, "transaction_id": begun["id"]}
                keys.deliver(alice.user, f"m.key.verification.{kind}", {ME: {DEVICE: body}})
                await _sync(server, keys)
                *_, event = keys.inbox.pop((alice.user, "PHONE"))
                return {**event["content"], "kind": event["type"].rpartition(".")[2]}

            start = await post("ready", {"from_device": "PHONE", "methods": ["m.sas.v1"]})
            content = {key: value for key, value in start.items() if key != "kind"}
            sides = [SasExchange(theirs, ours, begun["id"]) for _ in range(2)]
            first, second = (side.accept(content) for side in sides)
            assert (await post("accept", first))["kind"] == "key"
            ended = await post("accept", second)
            shown = await matrix.run_key_action("verify.show", {"id": begun["id"]})
        assert (ended["kind"], ended["code"]) == ("cancel", "m.unexpected_message")
        assert shown["state"] == "cancelled"


async def test_matrix_offers_of_strangers_end_no_verification(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("homarus.channels.matrix.encryption.verification.MAX_PENDING", 3)
    async with play() as (server, keys):
        Person(keys)
        Person(keys, "@eve:test", "EVE")
        matrix = bot(server, tmp_path)
        async with running(matrix, RecordingHandler()):
            begun = await matrix.run_key_action("verify.begin", {"userId": "@alice:test"})
            for number in range(5):
                content = {
                    "from_device": "EVE",
                    "transaction_id": f"t{number}",
                    "timestamp": SystemClock().now_ms(),
                }
                keys.deliver("@eve:test", "m.key.verification.request", {ME: {DEVICE: content}})
            await _sync(server, keys)
            shown = await matrix.run_key_action("verify.show", {"id": begun["id"]})
            pending = (await matrix.run_key_action("verify.pending", {}))["verifications"]
        assert shown["state"] == "requested"
        assert [one["id"] for one in pending] == [begun["id"], "t4"]


async def test_matrix_expired_verification_takes_no_answer(tmp_path: Path) -> None:
    clock = FakeClock()
    async with play() as (server, keys):
        alice, matrix = Person(keys), bot(server, tmp_path, clock)
        async with running(matrix, RecordingHandler()):
            begun = await matrix.run_key_action("verify.begin", {"userId": "@alice:test"})
            keys.inbox.clear()
            await clock.advance(601)
            body = {"transaction_id": begun["id"], "methods": ["m.sas.v1"]}
            keys.deliver(alice.user, "m.key.verification.ready", {ME: {DEVICE: body}})
            await _sync(server, keys)
            with pytest.raises(ChannelError, match="no such verification"):
                await matrix.run_key_action("verify.show", {"id": begun["id"]})
        assert (alice.user, "PHONE") not in keys.inbox


# Key files


def _room_keys(count: int = 3) -> RoomKeys:
    from nio.crypto import InboundGroupSession, OutboundGroupSession

    keys = RoomKeys()
    for _ in range(count):
        made = OutboundGroupSession()
        keys.add(InboundGroupSession(made.session_key, "signing", "sender", ROOM))
    return keys


def test_key_file_round_trip_keeps_every_key() -> None:
    keys = _room_keys()
    text, count = export_keys(keys, PASSPHRASE)
    found, failed = read_keys(text.replace("\n", "\r\n"), PASSPHRASE)
    assert (count, failed) == (3, 0)
    assert {one.id for one in found} == {one.id for one in keys}


def test_key_file_is_shared_with_other_clients(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("homarus.channels.matrix.encryption.key_files.ROUNDS", 1_000)
    text, _ = export_keys(_room_keys(1), "plain words")
    file = tmp_path / "keys.txt"
    file.write_text(text)
    (theirs,) = Olm.import_keys_static(str(file), "plain words")
    Olm.export_keys_static([theirs], str(file.with_suffix(".out")), "plain words")
    (back,), _ = read_keys(file.with_suffix(".out").read_text(), "plain words")
    assert back.id == theirs.id


@pytest.mark.parametrize("change", ["", "x", "cut", "rounds", "empty"])
def test_key_file_damaged_or_foreign_is_refused(change: str) -> None:
    text, _ = export_keys(_room_keys(1), PASSPHRASE)
    lines = text.split("\n")
    damaged = {
        "": text,
        "x": "no keys",
        "cut": "\n".join([*lines[:2], *lines[3:]]),
        "rounds": "\n".join([lines[0], "AQ" + "/" * 90, *lines[2:]]),
        "empty": "\n".join([lines[0], lines[-2]]),
    }[change]
    with pytest.raises(UserError):
        read_keys(damaged, "another passphrase")


def test_key_file_with_short_passphrase_is_refused() -> None:
    with pytest.raises(UserError, match="at least 8"):
        export_keys(_room_keys(1), "short")


def test_imported_key_never_replaces_better_one() -> None:
    keys = _room_keys(1)
    (session,) = keys
    later = type(session).import_session(session.export_session(0), "signing", "sender", ROOM, [])
    assert not keys.add(later)


async def test_matrix_imported_key_opens_kept_message(tmp_path: Path) -> None:
    async with play() as (server, keys):
        alice, matrix, desk = Person(keys), bot(server, tmp_path), RecordingHandler()
        async with running(matrix, desk):
            alice.share(ME)
            keys.inbox.clear()
            server.feed(keys.sync("s1", alice.write("hello")))
            await server.until("GET /sync", 3)
            text, _ = export_keys(alice.olm.inbound_group_store, PASSPHRASE)
            given = {"text": text, "passphrase": PASSPHRASE}
            assert (await matrix.run_key_action("import", given))["added"] == 1
            assert (await matrix.run_key_action("import", given))["known"] == 1
            server.feed(keys.sync("s2"))
            await desk.received(1)
            exported = await matrix.run_key_action("export", {"passphrase": PASSPHRASE})
        assert desk.texts == ["hello"] and exported["count"] == 1


# Lost keys and the start


async def test_matrix_lost_keys_of_token_are_named(tmp_path: Path) -> None:
    async with play() as (server, _keys):
        first = server.syncs[0]
        async with running(bot(server, tmp_path / "one"), RecordingHandler()):
            pass
        server.restart(first)
        with pytest.raises(ChannelAuthError, match="are lost") as caught:
            await bot(server, tmp_path / "two").run(RecordingHandler())
        assert "new accessToken" in str(caught.value.fix)


def _by_password(server: Server, state: Path) -> MatrixChannel:
    given = {"homeserver": server.url, "userId": ME, "password": "p", "encryption": True}
    context = ChannelContext("matrix", "default", SystemClock(), state=state)
    return create(context, MatrixSettings.read(given))


async def test_matrix_lost_keys_with_password_make_new_device(tmp_path: Path) -> None:
    async with play() as (server, keys):
        logins = iter([DEVICE, "D2"])

        def login(asked: Any) -> tuple[int, Any]:
            name = asked.data.get("device_id") or next(logins)
            server.on("GET /account/whoami", (200, {"user_id": ME, "device_id": name}))
            return 200, {"access_token": f"t-{name}", "device_id": name, "user_id": ME}

        server.on("POST /login", login)
        server.on(
            "POST /keys/upload", lambda asked: (200, keys.upload(ME, _sender(asked), asked.data))
        )
        first = server.syncs[0]
        async with running(_by_password(server, tmp_path), RecordingHandler()):
            pass
        (tmp_path / "credentials" / "matrix" / "default.keys.sqlite").unlink()
        with pytest.raises(ChannelError, match="new device") as caught:
            await _by_password(server, tmp_path).run(RecordingHandler())
        assert not isinstance(caught.value, ChannelAuthError)  # so it is restarted
        server.restart(first)
        async with running(_by_password(server, tmp_path), RecordingHandler()):
            assert set(keys.devices[ME]) == {DEVICE, "D2"}


def _sender(asked: Any) -> str:
    return str(asked.headers["authorization"]).removeprefix("Bearer t-")


async def test_matrix_device_removed_at_server_is_published_again(tmp_path: Path) -> None:
    async with play() as (server, keys):
        first = server.syncs[0]
        async with running(bot(server, tmp_path), RecordingHandler()):
            pass
        published = keys.devices.pop(ME)
        server.restart(first)
        async with running(bot(server, tmp_path), RecordingHandler()):
            assert keys.devices[ME] == published


async def test_matrix_private_keys_are_stored_before_upload(tmp_path: Path) -> None:
    """A key that was uploaded and then forgotten could never open what it sealed."""
    async with play() as (server, keys):
        first = server.syncs[0]
        server.on("POST /keys/upload", (500, b"lost on the way"))
        with pytest.raises(ChannelError):
            await bot(server, tmp_path).run(RecordingHandler())
        lost = server.seen("POST /keys/upload")[0].data
        keys.upload(ME, DEVICE, lost)  # it had arrived
        server.on("POST /keys/upload", lambda asked: (200, keys.upload(ME, DEVICE, asked.data)))
        alice, desk = Person(keys), RecordingHandler()
        server.restart(first)
        async with running(bot(server, tmp_path), desk):
            alice.share(ME)
            server.feed(keys.sync("s1", alice.write("hello")))
            await desk.received(1)
        assert desk.texts == ["hello"]


def test_matrix_key_file_names_its_device(tmp_path: Path) -> None:
    file = tmp_path / "default.keys.sqlite"
    assert last_device(file) is None
    store = open_store(file, ME, DEVICE)
    Olm(ME, DEVICE, store)
    store.close()
    assert last_device(file) == (ME, DEVICE)


def test_matrix_encryption_without_extra_names_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("homarus.channels.matrix.find_spec", lambda _name: None)
    given = {"homeserver": "http://hs.test", "accessToken": TOKEN, "encryption": True}
    context = ChannelContext("matrix", "default", SystemClock())
    with pytest.raises(MissingExtraError, match="encryption of Matrix") as caught:
        create(context, MatrixSettings.read(given))
    assert "matrix-e2ee" in str(caught.value.fix)


def test_matrix_without_encryption_imports_no_library() -> None:
    code = (
        "import sys\n"
        "from homarus.channels.base import ChannelContext\n"
        "from homarus.channels.matrix import Settings, adapter, chat_actions, create\n"
        "from homarus.core.clock import SystemClock\n"
        "for on in (False, True):\n"
        "    given = {'homeserver': 'http://x', 'accessToken': 't', 'encryption': on}\n"
        "    create(ChannelContext('matrix', 'default', SystemClock()), Settings.read(given))\n"
        "print(sorted({'nio', 'vodozemac', 'peewee'} & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"
