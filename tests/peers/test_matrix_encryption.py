"""Encrypted rooms on a real Synapse, with an encrypting client of matrix-nio as the person."""

import asyncio
import io
import json
import os
import re
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from nio.crypto import Olm
from nio.crypto.attachments import decrypt_attachment

from homarus.channels.matrix.adapter import MatrixChannel
from homarus.channels.matrix.encryption import crypto as crypto_module
from homarus.core.errors import ChannelAuthError
from homarus.core.message import Media
from homarus.testing.fakes import RecordingHandler
from homarus.testing.model_server import ModelServer, Say
from tests.e2e.program import Home
from tests.peers.encrypted_person import EncryptedPerson, checked, new_user, online
from tests.peers.gateway import TOKEN, Running, new_home, running_gateway
from tests.peers.matrix_bot import Bot, new_bot, out, reading, running
from tests.peers.synapse import SERVER, WAIT_S, Synapse

pytestmark = pytest.mark.peers

PASSPHRASE = "eight words or so"


@dataclass
class Talk:
    """A person and a bot in an encrypted room; the bot may be started again."""

    synapse: Synapse
    bot: Bot
    person: EncryptedPerson
    state: Path
    room: str = ""

    def channel(self, **settings: Any) -> MatrixChannel:
        given = {"encryption": True, **settings}
        return self.bot.channel(self.state, **given)

    async def meet(self, channel: MatrixChannel) -> None:
        self.room = await self.person.create(self.bot.id)
        await reading(channel, self.room)
        await self.person.member(self.room, self.bot.id)


@asynccontextmanager
async def talk(synapse: Synapse, folder: Path) -> AsyncIterator[Talk]:
    user = await asyncio.to_thread(new_user, synapse)
    bot = await asyncio.to_thread(new_bot, synapse)
    async with online(synapse, folder / "phone", user) as person:
        yield Talk(synapse, bot, person, folder / "state")


async def test_synapse_encrypted_talk_goes_on_after_restart(
    synapse: Synapse, tmp_path: Path
) -> None:
    async with talk(synapse, tmp_path) as each:
        desk, channel = RecordingHandler(), each.channel()
        async with running(channel, desk):
            await each.meet(channel)
            first = await each.person.say(each.room, "one")
            (got,) = await desk.received(1)
            assert (got.text, got.id, got.metadata.kind) == ("one", first, "direct")
            sent = [await channel.send(out(each.room, "answer one", "key")) for _ in range(2)]
            assert sent[0] == sent[1]
            seen = await each.person.sees("answer one")
            assert seen.sender == each.bot.id and sent[0].message_id == seen.event_id
        await each.person.say(each.room, "while it was off")
        again = each.channel()
        async with running(again, desk):
            await desk.received(2)
            await each.person.say(each.room, "after")
            await desk.received(3)
            await again.send(out(each.room, "answer two", "key2"))
            await each.person.sees("answer two")
        assert desk.texts == ["one", "while it was off", "after"]
        raw = await asyncio.to_thread(_event, each, first)
        assert raw["type"] == "m.room.encrypted" and "one" not in str(raw["content"])


def _event(each: Talk, event_id: str) -> dict[str, Any]:
    path = f"/_matrix/client/v3/rooms/{each.room}/event/{event_id}"
    found: dict[str, Any] = each.synapse.ask("GET", path, token=each.bot.token)
    return found


async def test_synapse_new_device_of_person_reads_and_writes(
    synapse: Synapse, tmp_path: Path
) -> None:
    async with talk(synapse, tmp_path) as each:
        desk, channel = RecordingHandler(), each.channel()
        async with running(channel, desk):
            await each.meet(channel)
            await each.person.say(each.room, "from the phone")
            await desk.received(1)
            await channel.send(out(each.room, "before", "k1"))
            await each.person.sees("before")
            async with online(synapse, tmp_path / "tablet", each.person.id) as tablet:
                await tablet.member(each.room, each.bot.id)
                await tablet.say(each.room, "from the tablet")
                await desk.received(2)
                await channel.send(out(each.room, "to both", "k2"))
                await tablet.sees("to both")
                await each.person.sees("to both")
        assert desk.texts == ["from the phone", "from the tablet"]


async def test_synapse_missing_key_is_reported_and_recovered(
    synapse: Synapse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The person's client loses the key on its way; its next key file brings it."""
    monkeypatch.setattr(crypto_module, "NOTICE_AFTER_MS", 0)
    monkeypatch.setattr(crypto_module, "CHECK_EVERY_S", 0.05)
    async with talk(synapse, tmp_path) as each:
        desk, channel = RecordingHandler(), each.channel()
        async with running(channel, desk):
            await each.meet(channel)
            olm = each.person.client.olm
            olm.create_outbound_group_session(each.room)
            session = olm.outbound_group_sessions[each.room]
            session.mark_as_shared()  # with no one
            lost = await each.person.say(each.room, "nobody has my key")
            await each.person.sees(crypto_module.NOTICE)
            (listed,) = (await channel.run_key_action("devices", {}))["unreadable"]
            assert listed == {"room": each.room, "count": 1}
            file = tmp_path / "keys.txt"
            await asyncio.to_thread(olm.export_keys, str(file), PASSPHRASE)
            given = {"text": file.read_text(), "passphrase": PASSPHRASE}
            assert (await channel.run_key_action("import", given))["added"] >= 1
            await each.person.client.room_typing(each.room)
            del olm.outbound_group_sessions[each.room]
            await each.person.say(each.room, "next")
            await desk.received(2)
            listed = (await channel.run_key_action("devices", {}))["unreadable"]
        assert desk.texts == ["nobody has my key", "next"] and not listed
        assert desk.ids[0] == lost


async def test_synapse_lost_store_is_named_and_new_device_goes_on(
    synapse: Synapse, tmp_path: Path
) -> None:
    async with talk(synapse, tmp_path) as each:
        desk, channel = RecordingHandler(), each.channel()
        async with running(channel, desk):
            await each.meet(channel)
            await each.person.say(each.room, "one")
            await desk.received(1)
            exported = await channel.run_key_action("export", {"passphrase": PASSPHRASE})
        (each.state / "credentials" / "matrix" / "default.keys.sqlite").unlink()
        with pytest.raises(ChannelAuthError, match="are lost"):
            await each.channel().run(desk)
        local = each.bot.id.removeprefix("@").partition(":")[0]
        password = {"accessToken": None, "userId": f"@{local}:{SERVER}", "password": "bot-secret"}
        renewed = each.channel(**password)
        async with running(renewed, desk):
            await each.person.until(lambda: len(_devices(each)) == 2)
            await each.person.say(each.room, "two")
            await desk.received(2)
            given = {"text": exported["text"], "passphrase": PASSPHRASE}
            assert (await renewed.run_key_action("import", given))["added"] >= 1
            await renewed.send(out(each.room, "I have a new device", "k"))
            await each.person.sees("I have a new device")
        assert desk.texts == ["one", "two"]


def _devices(each: Talk) -> list[Any]:
    return list(each.person.client.device_store[each.bot.id])


async def test_synapse_encrypted_files_go_both_ways(synapse: Synapse, tmp_path: Path) -> None:
    async with talk(synapse, tmp_path) as each:
        desk, channel = RecordingHandler(), each.channel()
        client = each.person.client
        async with running(channel, desk):
            await each.meet(channel)
            uploaded, keys = await client.upload(
                io.BytesIO(b"my secret file"), "text/plain", "a.txt", encrypt=True, filesize=14
            )
            file = {**keys, "url": checked(uploaded).content_uri}
            await each.person.say(each.room, "a.txt", msgtype="m.file", file=file)
            (got,) = await desk.received(1)
            assert await channel.fetch(got.media[0], 1_000) == b"my secret file"
            path = tmp_path / "b.bin"
            path.write_bytes(b"\x00our secret file")
            media = Media(path=str(path), name="b.bin", mime="application/x-thing")
            await channel.send(out(each.room, "", "key", media=(media,)))
            seen = await each.person.sees("b.bin")
            sealed = checked(await client.download(seen.url)).body
            opened = decrypt_attachment(sealed, seen.key["k"], seen.hashes["sha256"], seen.iv)
        assert opened == b"\x00our secret file" and b"secret" not in sealed


@pytest.mark.parametrize("begins", ["person", "operator"])
async def test_synapse_devices_verify_each_other(
    synapse: Synapse, tmp_path: Path, begins: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("homarus.channels.matrix.encryption.verification.READY_WAIT_S", 0)
    async with talk(synapse, tmp_path) as each:
        desk, channel, client = RecordingHandler(), each.channel(), each.person.client
        async with running(channel, desk):
            await each.meet(channel)
            (ours,) = _devices(each)
            theirs = {"userId": each.person.id, "deviceId": each.person.device}
            await channel.run_key_action("devices", theirs)
            if begins == "person":
                checked(await client.start_key_verification(client.device_store[each.bot.id][ours]))
                pending = await _until_state(channel, {}, "offered")
                await channel.run_key_action("verify.accept", pending)
            else:
                begun = await channel.run_key_action("verify.begin", theirs)
                await channel.run_key_action("verify.show", begun)
            shown = await _until_state(channel, {}, "comparing")
            sas = await each.person.until(lambda: each.person.sas)
            await each.person.until(lambda: sas.established_sas)
            assert tuple(shown["decimals"]) == tuple(sas.get_decimals())
            checked(await client.confirm_short_auth_string(sas.transaction_id))
            await channel.run_key_action("verify.confirm", {"id": shown["id"], "match": True})
            await _until_state(channel, {"id": shown["id"]}, "done")
            await each.person.until(lambda: sas.verified)
            listed = await channel.run_key_action("devices", {"userId": each.person.id})
        assert [row["trust"] for row in listed["devices"]] == ["verified"]
        assert client.olm.is_device_verified(client.device_store[each.bot.id][ours])


async def _until_state(channel: MatrixChannel, id_: dict[str, Any], state: str) -> dict[str, Any]:
    async with asyncio.timeout(WAIT_S):
        while True:
            if id_:
                rows = [await channel.run_key_action("verify.show", id_)]
            else:
                rows = (await channel.run_key_action("verify.pending", {}))["verifications"]
            found = [row for row in rows if row["state"] == state]
            if found:
                return found[0]
            await asyncio.sleep(0.02)


async def test_synapse_exported_keys_are_read_by_other_client(
    synapse: Synapse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("homarus.channels.matrix.encryption.key_files.ROUNDS", 10_000)
    async with talk(synapse, tmp_path) as each:
        desk, channel = RecordingHandler(), each.channel()
        async with running(channel, desk):
            await each.meet(channel)
            await each.person.say(each.room, "one")
            await desk.received(1)
            exported = await channel.run_key_action("export", {"passphrase": PASSPHRASE})
        file = tmp_path / "ours.txt"
        file.write_text(exported["text"])
        found = await asyncio.to_thread(Olm.import_keys_static, str(file), PASSPHRASE)
        assert [one.room_id for one in found] == [each.room]


# The whole program


@asynccontextmanager
async def _serving(home: Home) -> AsyncIterator[Running]:
    manager = running_gateway(home)
    gateway = await asyncio.to_thread(manager.__enter__)
    try:
        yield gateway
    finally:
        await asyncio.to_thread(manager.__exit__, None, None, None)


def _home(each: Talk, folder: Path, model: ModelServer) -> Home:
    names = ("PATH", "PYTHONPATH", "LANG", "TZ")
    kept = {name: os.environ[name] for name in names if name in os.environ}
    folder.mkdir()
    home = new_home(folder, kept, model)
    config = json.loads((home.state / "openclaw.json").read_text(encoding="utf-8"))
    matrix = {"homeserver": each.synapse.url, "accessToken": each.bot.token, "encryption": True}
    matrix |= {"dmPolicy": "open", "allowFrom": ["*"]}
    home.configure({**config, "channels": {"matrix": matrix}})
    return home


async def _verify_in_terminal(each: Talk, gateway: Running) -> str:
    """Run `homarus matrix verify`, answer it when the strings are the same; return its output."""
    words = ("matrix", "verify", each.person.id, each.person.device)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "homarus", *words, "--url", gateway.url, "--token", TOKEN),
        stdin=PIPE, stdout=PIPE, stderr=PIPE, env=gateway.home.env, cwd=gateway.home.path,
    )  # fmt: skip
    assert process.stdin and process.stdout and process.stderr
    shown = ""
    while not (found := re.search(r"or (\d{4}) (\d{4}) (\d{4})", shown)):
        line = await process.stderr.readline()
        assert line, shown
        shown += line.decode()
    sas = await each.person.until(lambda: each.person.sas)
    assert [str(number) for number in sas.get_decimals()] == list(found.groups())
    assert all(symbol in shown for symbol, _ in sas.get_emoji())
    checked(await each.person.client.confirm_short_auth_string(sas.transaction_id))
    out, _ = await process.communicate(b"y\n")
    return out.decode()


@pytest.mark.timeout(300)
async def test_synapse_gateway_answers_encrypted_and_verifies_in_terminal(
    synapse: Synapse, model: ModelServer, tmp_path: Path
) -> None:
    async with talk(synapse, tmp_path) as each:
        home = _home(each, tmp_path / "home", model)
        model.script([Say("I read you.")], [Say("Still here.")])
        async with _serving(home) as gateway:
            each.room = await each.person.create(each.bot.id)
            await each.person.member(each.room, each.bot.id)
            await each.person.say(each.room, "Can you read this?")
            await each.person.sees("I read you.")
            done = await _verify_in_terminal(each, gateway)
            assert done == f"Device {each.person.device} is verified.\n"
            ours = each.person.client.device_store[each.bot.id]
            await each.person.until(lambda: all(one.verified for one in ours.values()))
        async with _serving(home) as gateway:
            await each.person.say(each.room, "And now?")
            await each.person.sees("Still here.")
            to = ("--url", gateway.url, "--token", TOKEN)
            listed = await asyncio.to_thread(home.run, "matrix", "devices", "--json", *to)
        trust = {row["deviceId"]: row["trust"] for row in listed.json["devices"]}
        assert trust[each.person.device] == "verified"
        file = tmp_path / "keys.txt"
        exported = await asyncio.to_thread(  # without a gateway, on the file
            home.run, "matrix", "keys", "export", str(file), text=f"{PASSPHRASE}\n"
        )
        assert "room keys are in" in exported.out and file.stat().st_mode & 0o777 == 0o600
