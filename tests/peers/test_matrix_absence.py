"""The Matrix channel disconnected from a real Synapse: restarts, outages, invites, tokens."""

import asyncio
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from homarus.channels.inbound import InboundPipeline, admit_all
from homarus.core.clock import SystemClock
from homarus.core.errors import ChannelAuthError, ChannelError, DiskFullError, SendError
from homarus.core.retry import Backoff
from homarus.core.tasks import supervise
from homarus.store.journal import InboxRecord
from homarus.testing.fakes import RecordingHandler
from homarus.testing.memory_store import MemoryStore
from tests.peers.matrix_bot import Bot, new_bot, out, reading, running
from tests.peers.synapse import WAIT_S, People, Person, Synapse, running_synapse

pytestmark = pytest.mark.peers

LIMIT = 10  # events of a room in one response, in these tests
NO_KEYS = {
    "type": "m.room.encryption",
    "state_key": "",
    "content": {"algorithm": "m.megolm.v1.aes-sha2"},
}


async def meet(synapse: Synapse, people: People) -> tuple[Bot, Person]:
    bot = await asyncio.to_thread(new_bot, synapse)
    return bot, await asyncio.to_thread(people.new, "alice")


async def acquainted(bot: Bot, person: Person, desk: RecordingHandler) -> str:
    """Return the room where both have talked before."""
    channel = bot.channel(initialSyncLimit=LIMIT)
    async with running(channel, desk):
        room = await person.dm(bot.id)
        await person.say(room, "hello")
        await desk.received(1)
    return room


async def test_synapse_messages_before_first_start_are_ignored(
    synapse: Synapse, people: People
) -> None:
    bot, person = await meet(synapse, people)
    room = await person.dm(bot.id)
    await asyncio.to_thread(synapse.ask, "POST", f"/_matrix/client/v3/join/{room}", {}, bot.token)
    await person.say(room, "long ago")
    desk = RecordingHandler()
    channel = bot.channel()
    async with running(channel, desk):
        await reading(channel, room)
        await person.say(room, "now")
        await desk.received(1)
    assert desk.texts == ["now"]


async def test_synapse_messages_while_stopped_are_read_once_in_order(
    synapse: Synapse, people: People
) -> None:
    bot, person = await meet(synapse, people)
    desk = RecordingHandler()
    room = await acquainted(bot, person, desk)
    missed = [f"missed {number}" for number in range(2 * LIMIT + 105)]
    for text in missed:
        await person.say(room, text)
    channel = bot.channel(initialSyncLimit=LIMIT)
    async with running(channel, desk):
        await desk.received(len(missed) + 1)
        await person.say(room, "last")
        await desk.received(len(missed) + 2)
    assert desk.texts == ["hello", *missed, "last"]
    assert all(one.metadata.name == "Alice" for one in desk.got)


async def test_synapse_stop_during_batch_rereads_it(synapse: Synapse, people: People) -> None:
    bot, person = await meet(synapse, people)
    desk = RecordingHandler()
    room = await acquainted(bot, person, desk)
    for number in range(5):
        await person.say(room, f"missed {number}")
    before = desk.kept

    class Fails(RecordingHandler):
        """A store with room for two more messages."""

        async def __call__(self, *args: Any, **named: Any) -> None:
            if len(self.got) == 2:
                raise DiskFullError("no room")
            await super().__call__(*args, **named)

    full = Fails(kept=before)
    with pytest.raises(ExceptionGroup) as caught:
        async with running(bot.channel(), full):
            await asyncio.Event().wait()
    assert caught.group_contains(DiskFullError)
    assert full.texts == ["missed 0", "missed 1"] and full.kept == before
    async with running(bot.channel(), full_again := RecordingHandler(kept=full.kept)):
        await full_again.received(5)
    assert full_again.texts == [f"missed {number}" for number in range(5)]
    assert full_again.cursors[:4] == [before] * 4 and full_again.cursors[4] != before


async def test_synapse_hundred_rereads_are_answered_once(synapse: Synapse, people: People) -> None:
    bot, person = await meet(synapse, people)
    desk = RecordingHandler()
    room = await acquainted(bot, person, desk)
    await person.say(room, "once, please")
    answered = list[InboxRecord]()

    class Forgetful:
        """A handler that always returns the same cursor."""

        async def __call__(self, *args: Any, **named: Any) -> None:
            await receive(*args, **named)

        def mark_connected(self) -> None:
            pass

        async def load_cursor(self) -> Mapping[str, Any] | None:
            return desk.kept

        async def save_cursor(self, cursor: Mapping[str, Any]) -> None:
            desk.kept = cursor

    async with MemoryStore() as store:
        pipeline = InboundPipeline(
            store.journal,
            SystemClock(),
            admit=admit_all(lambda one: one.address.chat),
            submit=lambda _session, row: answered.append(row),
        )
        async with pipeline.running():
            for _ in range(100):
                channel = bot.channel()
                receive = pipeline.handler_for(channel)
                pipeline.last_ms.clear()
                async with asyncio.timeout(WAIT_S), asyncio.TaskGroup() as group:
                    task = group.create_task(channel.run(Forgetful()))
                    while True:
                        if pipeline.last_ms:
                            break
                        await asyncio.sleep(0.005)
                    task.cancel()
        (row,) = await store.journal.inbox_records()
    assert len(answered) == 1 and row.duplicates >= 98


async def test_synapse_killed_server_is_resumed(tmp_path: Path) -> None:
    async def main(server: Synapse, people: People) -> None:
        bot, person = await meet(server, people)
        desk, channel = RecordingHandler(), bot.channel()
        async with asyncio.timeout(3 * WAIT_S), asyncio.TaskGroup() as group:
            patience = Backoff(first_s=0.05, max_s=0.5)
            task = group.create_task(
                supervise(
                    "matrix", lambda: channel.run(desk), clock=SystemClock(), backoff=patience
                )
            )
            room = await person.dm(bot.id)
            await person.say(room, "before")
            await desk.received(1)
            first = await channel.send(out(room, "sent before", "key"))
            await asyncio.to_thread(server.stop, signal.SIGKILL)
            with pytest.raises(ChannelError):
                await channel.send(out(room, "sent before", "key"))
            await asyncio.to_thread(server.start)
            await person.say(room, "after")
            await desk.received(2)
            again = await channel.send(out(room, "sent before", "key"))
            task.cancel()
        assert desk.texts == ["before", "after"]
        assert again == first  # the same key, before and after a restart

    with running_synapse(tmp_path) as server:
        people = People(server)
        try:
            await main(server, people)
        finally:
            people.close()


async def test_synapse_send_while_server_is_down_is_retryable(
    tmp_path: Path, synapse: Synapse
) -> None:
    bot = new_bot(synapse)
    channel = bot.channel(homeserver="http://127.0.0.1:9")
    with pytest.raises(SendError) as caught:
        await channel.run(RecordingHandler())
    assert caught.value.retryable


async def test_synapse_invite_while_stopped_is_joined_and_answered(
    synapse: Synapse, people: People
) -> None:
    bot, person = await meet(synapse, people)
    desk = RecordingHandler()
    await acquainted(bot, person, desk)
    room = await person.create("Talk", direct=True)
    await person.say(room, "not for you")
    await person.do("invite", room=room, user=bot.id)
    for number in range(LIMIT + 5):
        await person.say(room, f"for you {number}")
    channel = bot.channel(initialSyncLimit=LIMIT, autoJoin="always")
    async with running(channel, desk):
        await desk.received(LIMIT + 6)
        await person.say(room, "and now")
        await desk.received(LIMIT + 7)
    expected = [f"for you {number}" for number in range(LIMIT + 5)]
    assert desk.texts == ["hello", *expected, "and now"]


@pytest.mark.parametrize(
    ("settings", "follows"),
    [
        ({}, {"private"}),
        ({"groups": {"*": {}}}, {"private", "room", "listed"}),
        ({"autoJoin": "always"}, {"private", "room", "listed"}),
        ({"autoJoin": "off"}, set()),
        ({"autoJoin": "allowlist", "autoJoinAllowlist": ["LISTED"]}, {"listed"}),
        ({"autoJoin": "allowlist", "autoJoinAllowlist": ["PERSON"]}, {"private", "room", "listed"}),
    ],
    # The text of a set has another order in each process.
    ids=["default", "groups", "always", "off", "listed", "person"],
)
async def test_synapse_invites_follow_config(
    synapse: Synapse, people: People, settings: dict[str, Any], follows: set[str]
) -> None:
    bot, person = await meet(synapse, people)
    rooms = {
        "private": await person.dm(bot.id),
        "room": await person.create("Kitchen", bot.id),
        "listed": await person.create("Garden", bot.id),
    }
    names = {"LISTED": rooms["listed"], "PERSON": person.id}
    given = dict(settings)
    if "autoJoinAllowlist" in given:
        given["autoJoinAllowlist"] = [names[one] for one in given["autoJoinAllowlist"]]
    channel = bot.channel(**given)
    async with running(channel, RecordingHandler()):
        for name in follows:
            await reading(channel, rooms[name])
        members = {name: await person.do("members", room=id_) for name, id_ in rooms.items()}
    assert {name for name, here in members.items() if bot.id in here} == follows


async def test_synapse_unknown_token_stops_channel(synapse: Synapse) -> None:
    bot = new_bot(synapse)
    wrong = bot.channel(accessToken="syt_not_a_token")
    with pytest.raises(ChannelAuthError) as caught:
        await wrong.run(RecordingHandler())
    assert "M_UNKNOWN_TOKEN" in str(caught.value) and "accessToken" in str(caught.value)
    assert "syt_not_a_token" not in str(caught.value)
    with pytest.raises(ChannelAuthError):
        await wrong.probe()
    with pytest.raises(ChannelAuthError) as caught:
        await bot.channel(userId="@somebody:else").run(RecordingHandler())
    assert bot.id in str(caught.value)
    assert await bot.channel(userId=bot.id).probe() == bot.id


async def test_synapse_revoked_token_stops_channel(synapse: Synapse, people: People) -> None:
    bot, person = await meet(synapse, people)
    desk, channel = RecordingHandler(), bot.channel()

    async def talk_and_end() -> None:
        room = await person.dm(bot.id)
        await person.say(room, "hello")
        await desk.received(1)
        logout = "/_matrix/client/v3/logout"
        await asyncio.to_thread(synapse.ask, "POST", logout, {}, bot.token)

    async with asyncio.timeout(2 * WAIT_S), asyncio.TaskGroup() as group:
        group.create_task(talk_and_end())
        with pytest.raises(ChannelAuthError):
            await channel.run(desk)


async def test_synapse_password_login_reuses_one_device(
    synapse: Synapse, people: People, tmp_path: Path
) -> None:
    bot, person = await meet(synapse, people)
    by_name = {"accessToken": None, "userId": bot.id, "password": "bot-secret"}
    file = tmp_path / "credentials" / "matrix" / "default.json"
    desk = RecordingHandler()

    def devices() -> int:
        place = "/_matrix/client/v3/devices"
        return len(synapse.ask("GET", place, token=bot.token)["devices"])

    before = await asyncio.to_thread(devices)
    channel = bot.channel(tmp_path, **by_name)
    async with running(channel, desk):
        room = await person.dm(bot.id)
        await person.say(room, "hello")
        await desk.received(1)
        first = await channel.send(out(room, "once", "key"))
    kept = file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600 and "bot-secret" not in kept
    channel = bot.channel(tmp_path, **by_name)
    async with running(channel, desk):
        assert await channel.send(out(room, "once", "key")) == first
    assert file.read_text() == kept
    file.write_text(kept.replace("syt_", "old_"))  # a revoked token
    channel = bot.channel(tmp_path, **by_name)
    async with running(channel, desk):
        assert await channel.send(out(room, "once", "key")) == first
    assert await asyncio.to_thread(devices) == before + 1
    wrong = bot.channel(None, **{**by_name, "password": "wrong"})
    with pytest.raises(ChannelAuthError) as caught:
        await wrong.run(RecordingHandler())
    assert "password" in str(caught.value) and "wrong" not in str(caught.value)


async def test_synapse_encrypted_room_is_notified_once(synapse: Synapse, people: People) -> None:
    bot, person = await meet(synapse, people)
    desk = RecordingHandler()
    room = await acquainted(bot, person, desk)
    sealed = await person.create("Sealed", bot.id, direct=True, state=[NO_KEYS])
    secret = {"algorithm": "m.megolm.v1.aes-sha2", "ciphertext": "x", "session_id": "y"}
    for _ in range(2):
        channel = bot.channel()
        async with running(channel, desk):
            await reading(channel, sealed)
            for _ in range(3):
                await person.send(sealed, secret, "m.room.encrypted")
            await person.sees(sealed, lambda one: one["class"] == "RoomMessageNotice")
            with pytest.raises(SendError) as caught:
                await channel.send(out(sealed, "in the open"))
            assert not caught.value.retryable
            before = len(desk.got)
            await person.say(room, "here then")
            await desk.received(before + 1)
    notices = [
        one for one in await person.shown(sealed) if one["sender"] == bot.id and "body" in one
    ]
    assert [one["class"] for one in notices] == ["RoomMessageNotice"]
    assert "encrypted" in notices[0]["body"]
    assert desk.texts == ["hello", "here then", "here then"]


async def test_synapse_removed_from_room_is_refused_permanently(
    synapse: Synapse, people: People
) -> None:
    bot, person = await meet(synapse, people)
    desk, channel = RecordingHandler(), bot.channel(autoJoin="always")
    async with running(channel, desk):
        room = await person.create("Kitchen", bot.id, preset="private_chat")
        await reading(channel, room)
        token = await person.do("token")
        kick = {"user_id": bot.id, "reason": "enough"}
        place = f"/_matrix/client/v3/rooms/{room}/kick"
        await asyncio.to_thread(synapse.ask, "POST", place, kick, token)
        with pytest.raises(SendError) as caught:
            await channel.send(out(room, "but"))
        assert not caught.value.retryable and "M_FORBIDDEN" in str(caught.value)


async def test_synapse_rate_limit_has_retry_after(tmp_path: Path) -> None:
    async def main(server: Synapse, people: People) -> None:
        bot, person = await meet(server, people)
        channel = bot.channel()
        async with running(channel, RecordingHandler()):
            room = await person.dm(bot.id)
            await reading(channel, room)

            async def hurry() -> None:
                for _ in range(20):
                    await channel.send(out(room, "quick"))

            with pytest.raises(SendError) as caught:
                await hurry()
        assert caught.value.retryable
        assert caught.value.after_s is not None and 0 < caught.value.after_s < 60

    with running_synapse(tmp_path, rc_message={"per_second": 0.2, "burst_count": 3}) as server:
        people = People(server)
        try:
            await main(server, people)
        finally:
            people.close()
