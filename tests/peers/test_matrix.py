"""The Matrix channel on a real Synapse, with users of matrix-nio."""

import asyncio
import base64
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from homarus.channels.matrix.api import HomeserverClient, MatrixRefusedError
from homarus.core.channel_event import (
    MemberJoined,
    MessageDeleted,
    MessageEdited,
    ReactionChanged,
)
from homarus.core.errors import MediaTooLargeError, SendError
from homarus.core.message import Address, Media
from homarus.testing.fakes import RecordingHandler
from tests.peers.matrix_bot import Bot, new_bot, out, reading, running
from tests.peers.synapse import MAX_UPLOAD_BYTES, WAIT_S, People, Person, Synapse

pytestmark = pytest.mark.peers

HOSTILE = (
    'tab\t, line\nend, "quotes", & <b>, @everyone @room, 👩‍👩‍👧 \u202e \x1b[31m \x00, '
    + "x" * 3_000
)
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@dataclass
class Harness:
    """A user, a running bot, and a room they share."""

    person: Person
    bot: Bot
    channel: Any
    desk: RecordingHandler
    room: str

    async def ask(self, method: str, path: str, data: dict[str, Any] | None = None) -> Any:
        """Send a request in the bot's name."""
        return await asyncio.to_thread(
            self.bot.server.ask, method, f"/_matrix/client{path}", data, self.bot.token
        )

    async def until(self, what: str, holds: Callable[[list[Any]], bool]) -> None:
        """Wait until the user's view of the room satisfies a condition."""
        async with asyncio.timeout(WAIT_S):
            while True:
                if holds(await self.person.do(what, room=self.room)):
                    return
                await asyncio.sleep(0.02)

    async def seen(self, event_id: str) -> dict[str, Any]:
        """Return an event of ours, as matrix-nio parsed it."""
        (event, *_) = await self.person.sees(self.room, lambda one: one["id"] == event_id)
        return event


@dataclass
class Scene:
    synapse: Synapse
    people: People

    def play(
        self,
        body: Callable[[Harness], Awaitable[None]],
        *,
        direct: bool = True,
        **settings: Any,
    ) -> None:
        async def main() -> None:
            bot = new_bot(self.synapse)
            person = await asyncio.to_thread(self.people.new, "alice")
            channel, desk = bot.channel(**settings), RecordingHandler()
            async with running(channel, desk):
                if direct:
                    room = await person.dm(bot.id)
                else:
                    room = await person.create("Kitchen", bot.id)
                await reading(channel, room)
                await body(Harness(person, bot, channel, desk, room))

        asyncio.run(main())


@pytest.fixture
def scene(synapse: Synapse, people: People) -> Scene:
    return Scene(synapse, people)


def test_synapse_text_goes_both_ways_in_direct_room(scene: Scene) -> None:
    async def body(stage: Harness) -> None:
        event = await stage.person.say(stage.room, "hello 👋\nthere")
        (inbound,) = await stage.desk.received(1)
        assert (inbound.id, inbound.text, inbound.sender) == (
            event,
            "hello 👋\nthere",
            stage.person.id,
        )
        assert inbound.address == Address("matrix", stage.room)
        assert inbound.metadata.kind == "direct" and inbound.metadata.name == "Alice"
        assert not inbound.metadata.is_bot and not inbound.metadata.mentioned
        assert inbound.at_ms > 1_700_000_000_000
        receipt = await stage.channel.send(out(stage.room, "hi yourself", "k1"))
        shown = await stage.seen(receipt.message_id)
        assert (shown["class"], shown["body"]) == ("RoomMessageText", "hi yourself")
        assert shown["sender"] == stage.bot.id
        assert shown["source"]["content"]["m.mentions"] == {}

    scene.play(body)


def test_synapse_read_receipt_and_typing_are_shown(scene: Scene) -> None:
    async def body(stage: Harness) -> None:
        to = Address("matrix", stage.room)
        event = await stage.person.say(stage.room, "hello")
        await stage.desk.received(1)
        await stage.until("read", lambda read: f"{stage.bot.id} {event}" in read)
        await stage.channel.show_typing(to, on=True)
        await stage.until("typing", lambda signs: [stage.bot.id] in signs)
        await stage.channel.show_typing(to, on=False)
        await stage.until("typing", lambda signs: signs[-1] == [])

    scene.play(body)


def test_synapse_room_is_group_with_mentions(scene: Scene) -> None:
    async def body(stage: Harness) -> None:
        other = "@somebody:else.org"
        pill = f'<a href="https://matrix.to/#/{stage.bot.id}">Homarus</a>: you?'
        said: list[tuple[str, dict[str, Any]]] = [
            ("just talking", {"m.mentions": {}}),
            ("you there", {"m.mentions": {"user_ids": [stage.bot.id]}}),
            ("somebody else", {"m.mentions": {"user_ids": [other]}}),
            ("everybody", {"m.mentions": {"room": True}}),
            ("Homarus: typed by hand", {"m.mentions": {}}),
            (
                "Homarus: you?",
                {"format": "org.matrix.custom.html", "formatted_body": pill},
            ),
        ]
        for text, more in said:
            await stage.person.say(stage.room, text, **more)
        got = await stage.desk.received(len(said))
        assert {(one.metadata.kind, one.metadata.title) for one in got} == {("group", "Kitchen")}
        meant = [(one.metadata.mentioned, one.metadata.mentions_others) for one in got]
        nobody, us, others = (False, False), (True, False), (False, True)
        assert meant == [nobody, us, others, others, us, us]

    scene.play(body, direct=False, autoJoin="always")


def test_synapse_third_member_makes_direct_room_a_group(scene: Scene) -> None:
    async def body(stage: Harness) -> None:
        await stage.person.say(stage.room, "we are alone")
        await stage.desk.received(1)
        third = await asyncio.to_thread(scene.people.new, "carol")
        await stage.person.do("invite", room=stage.room, user=third.id)
        await third.do("join", room=stage.room)
        await stage.person.say(stage.room, "no longer")
        kinds = [one.metadata.kind for one in await stage.desk.received(2)]
        assert kinds == ["direct", "group"]

    scene.play(body)


def test_synapse_notices_are_marked_and_emotes_name_sender(scene: Scene) -> None:
    async def body(stage: Harness) -> None:
        await stage.person.send(stage.room, {"msgtype": "m.notice", "body": "beep"})
        await stage.person.send(stage.room, {"msgtype": "m.emote", "body": "waves"})
        notice, emote = await stage.desk.received(2)
        assert notice.metadata.is_bot and notice.text == "beep"
        assert not emote.metadata.is_bot and emote.text == "* Alice waves"

    scene.play(body)


def test_synapse_invalid_events_are_skipped(scene: Scene) -> None:
    async def body(stage: Harness) -> None:
        strange: list[dict[str, Any]] = [
            {"msgtype": "m.text", "body": "  "},
            {"msgtype": "m.image", "url": 5, "info": "none", "body": "7"},
            {"msgtype": "m.text", "body": "related", "m.relates_to": "nothing"},
            {"msgtype": "m.unheard.of", "body": "?"},
            {"msgtype": "m.key.verification.request", "body": "verify me"},
        ]
        for content in strange:
            await stage.person.send(stage.room, content)
        await stage.person.say(stage.room, "still there?")
        got = await stage.desk.received(3)
        assert [one.text for one in got] == ["", "related", "still there?"]
        (broken,) = got[0].media
        assert broken.problem and not broken.ref

    scene.play(body)


def test_synapse_untrusted_text_arrives_unchanged(scene: Scene) -> None:
    async def body(stage: Harness) -> None:
        await stage.person.say(stage.room, HOSTILE)
        (inbound,) = await stage.desk.received(1)
        assert inbound.text == HOSTILE
        unmarked = HOSTILE.replace("<", "").replace("&", "")
        receipt = await stage.channel.send(out(stage.room, unmarked))
        assert (await stage.seen(receipt.message_id))["body"] == unmarked

    scene.play(body)


@pytest.mark.parametrize("worst", ["\x01", "\u2028", "漢", "😀" * 1, '"', "\\"])
def test_synapse_part_of_full_length_and_its_edit_fit_event(scene: Scene, worst: str) -> None:
    async def body(stage: Harness) -> None:
        units = len(worst.encode("utf-16-le")) // 2
        text = worst * (stage.channel.capabilities.text_limit // units)
        receipt = await stage.channel.send(out(stage.room, text))
        assert (await stage.seen(receipt.message_id))["body"] == text
        await stage.channel.edit(Address("matrix", stage.room), receipt.message_id, text[::-1])
        event = await stage.ask("GET", f"/v3/rooms/{stage.room}/event/{receipt.message_id}")
        newest = event["unsigned"]["m.relations"]["m.replace"]["content"]["m.new_content"]
        assert newest["body"] == text[::-1]

    scene.play(body)


def test_synapse_markup_has_plain_fallback(scene: Scene) -> None:
    async def body(stage: Harness) -> None:
        html = "<strong>Now</strong> &lt;tag&gt; &amp; <em>then</em>"
        receipt = await stage.channel.send(out(stage.room, html))
        shown = await stage.seen(receipt.message_id)
        assert shown["formatted_body"] == html
        assert "Now" in shown["body"] and "<tag> &" in shown["body"]
        assert "<strong>" not in shown["body"]

    scene.play(body)


def test_synapse_same_key_is_one_message(scene: Scene) -> None:
    async def body(stage: Harness) -> None:
        receipts = [await stage.channel.send(out(stage.room, "once", "key")) for _ in range(5)]
        assert len(set(receipts)) == 1
        other = await stage.channel.send(out(stage.room, "once", "other"))
        assert other not in receipts
        await stage.seen(other.message_id)
        shown = [one for one in await stage.person.shown(stage.room) if one.get("body") == "once"]
        assert len(shown) == 2

    scene.play(body)


def test_synapse_reply_names_its_message_both_ways(scene: Scene) -> None:
    async def body(stage: Harness) -> None:
        ours = await stage.channel.send(out(stage.room, "shall I?"))
        fallback = f"> <{stage.bot.id}> shall I?\n\nyes, do"
        related = {"m.in_reply_to": {"event_id": ours.message_id}}
        asked = await stage.person.say(stage.room, fallback, **{"m.relates_to": related})
        (inbound,) = await stage.desk.received(1)
        assert inbound.text == "yes, do"
        occasion = inbound.metadata
        assert (occasion.reply_to, occasion.quoted) == (ours.message_id, "shall I?")
        assert occasion.replies_to_us
        receipt = await stage.channel.send(out(stage.room, "done", reply_to=asked))
        shown = await stage.seen(receipt.message_id)
        assert shown["source"]["content"]["m.relates_to"] == {"m.in_reply_to": {"event_id": asked}}

    scene.play(body)


def test_synapse_replied_sender_is_read_from_server(
    scene: Scene,
) -> None:
    async def body(stage: Harness) -> None:
        theirs = await stage.person.say(stage.room, "my own words")
        lie = f"> <{stage.bot.id}> I promise\n\nyou promised"
        related = {"m.in_reply_to": {"event_id": theirs}}
        await stage.person.say(stage.room, lie, **{"m.relates_to": related})
        gone = {"m.in_reply_to": {"event_id": "$nothing-at-all"}}
        await stage.person.say(stage.room, "to nothing", **{"m.relates_to": gone})
        _, lied, nothing = await stage.desk.received(3)
        assert lied.metadata.quoted == "my own words" and not lied.metadata.replies_to_us
        assert nothing.metadata.reply_to and not nothing.metadata.quoted

    scene.play(body)


async def test_synapse_reply_to_message_of_earlier_process_is_known(scene: Scene) -> None:
    bot = new_bot(scene.synapse)
    person = await asyncio.to_thread(scene.people.new, "alice")
    desk = RecordingHandler()
    async with running(bot.channel(), desk):
        room = await person.dm(bot.id)
        await person.say(room, "hello")
        await desk.received(1)
        first = bot.channel()
    async with running(first, desk):
        sent = await first.send(out(room, "draft"))
        await first.edit(Address("matrix", room), sent.message_id, "the real words")
    async with running(bot.channel(), desk):
        related = {"m.in_reply_to": {"event_id": sent.message_id}}
        await person.say(room, "what did you mean?", **{"m.relates_to": related})
        inbound = (await desk.received(2))[-1]
    assert inbound.metadata.replies_to_us and inbound.metadata.quoted == "the real words"


def test_synapse_thread_is_answered_in_thread(scene: Scene) -> None:
    async def body(stage: Harness) -> None:
        root = await stage.person.say(stage.room, "a topic")
        thread = {"rel_type": "m.thread", "event_id": root, "is_falling_back": True}
        thread |= {"m.in_reply_to": {"event_id": root}}
        inside = await stage.person.say(stage.room, "a question", **{"m.relates_to": thread})
        top, inbound = await stage.desk.received(2)
        assert top.address.thread is None
        assert inbound.address.thread == root and not inbound.metadata.reply_to
        plain = await stage.channel.send(out(stage.room, "an answer", thread=root))
        reply = await stage.channel.send(out(stage.room, "to you", thread=root, reply_to=inside))
        await stage.seen(reply.message_id)
        told = await stage.ask("GET", f"/v1/rooms/{stage.room}/relations/{root}/m.thread")
        ids = [event["event_id"] for event in told["chunk"]]
        assert {inside, plain.message_id, reply.message_id} == set(ids)

    scene.play(body)


@pytest.mark.parametrize(("replies", "starts"), [("off", False), ("always", True)])
def test_synapse_threads_setting_off_or_always_is_followed(
    scene: Scene, replies: str, starts: bool
) -> None:
    async def body(stage: Harness) -> None:
        root = await stage.person.say(stage.room, "a topic")
        thread = {"rel_type": "m.thread", "event_id": root}
        await stage.person.say(stage.room, "inside", **{"m.relates_to": thread})
        threads = [one.address.thread for one in await stage.desk.received(2)]
        assert threads == [root if starts else None] * 2

    scene.play(body, threadReplies=replies)


def test_synapse_edit_of_user_is_marked(scene: Scene) -> None:
    async def body(stage: Harness) -> None:
        first = await stage.person.say(stage.room, "helo")
        new = {"msgtype": "m.text", "body": "hello"}
        related = {"rel_type": "m.replace", "event_id": first}
        await stage.person.say(
            stage.room, "* hello", **{"m.new_content": new, "m.relates_to": related}
        )
        (before,) = await stage.desk.received(1)
        (after,) = await stage.desk.events_received(1)
        assert isinstance(after, MessageEdited)
        assert (after.message_id, after.text) == (first, "hello") and after.id != before.id

    scene.play(body)


def test_synapse_edit_by_other_person_is_ignored(scene: Scene) -> None:
    async def body(stage: Harness) -> None:
        mallory = await asyncio.to_thread(scene.people.new, "mallory")
        await stage.person.do("invite", room=stage.room, user=mallory.id)
        await mallory.do("join", room=stage.room)
        first = await stage.person.say(stage.room, "mine")
        await stage.desk.received(1)
        for person, text in ((mallory, "forged"), (stage.person, "corrected")):
            new = {"msgtype": "m.text", "body": text}
            related = {"rel_type": "m.replace", "event_id": first}
            await person.say(stage.room, "*", **{"m.new_content": new, "m.relates_to": related})
        await stage.person.say(stage.room, "done")
        await stage.desk.received(2)
        edits = [one for one in stage.desk.events if isinstance(one, MessageEdited)]
        assert [(one.sender, one.text) for one in edits] == [(stage.person.id, "corrected")]

    scene.play(body, direct=False, autoJoin="always")


@pytest.mark.parametrize(("mode", "count"), [("off", 0), ("own", 2), ("all", 3)])
def test_synapse_reactions_are_noted_as_configured(scene: Scene, mode: str, count: int) -> None:
    async def body(stage: Harness) -> None:
        theirs = await stage.person.say(stage.room, "mine")
        ours = (await stage.channel.send(out(stage.room, "ours"))).message_id
        ids = list[str]()
        for target in (ours, theirs):
            related = {"rel_type": "m.annotation", "event_id": target, "key": "👍"}
            ids += [await stage.person.send(stage.room, {"m.relates_to": related}, "m.reaction")]
        await stage.person.do("redact", room=stage.room, event=ids[0])
        await stage.person.say(stage.room, "done")
        await stage.desk.received(2)
        events = stage.desk.events
        assert all(isinstance(one, ReactionChanged) for one in events) and len(events) == count
        if mode != "off":
            (added, removed) = (one for one in events if one.metadata.replies_to_us)
            assert isinstance(added, ReactionChanged) and isinstance(removed, ReactionChanged)
            assert (added.added, removed.removed) == (("👍",), ("👍",))
            assert added.message_id == removed.message_id == ours
            assert added.sender == stage.person.id

    scene.play(body, reactionNotifications=mode)


def test_synapse_redaction_is_deletion_by_redacter(scene: Scene) -> None:
    async def body(stage: Harness) -> None:
        guest = await asyncio.to_thread(scene.people.new, "guest")
        await stage.person.do("invite", room=stage.room, user=guest.id)
        await guest.do("join", room=stage.room)
        said = await guest.say(stage.room, "something rude")
        await stage.desk.received(1)
        await stage.person.do("redact", room=stage.room, event=said)
        await stage.person.say(stage.room, "done")
        await stage.desk.received(2)
        joined, deleted = stage.desk.events
        assert isinstance(joined, MemberJoined) and joined.sender == guest.id
        assert isinstance(deleted, MessageDeleted)
        assert (deleted.message_id, deleted.sender) == (said, stage.person.id)

    scene.play(body, direct=False, autoJoin="always")


@pytest.mark.parametrize("is_public", [True, False], ids=["public", "private"])
def test_synapse_upgraded_room_is_followed_across_restart(scene: Scene, is_public: bool) -> None:
    async def main() -> None:
        bot = new_bot(scene.synapse)
        person = await asyncio.to_thread(scene.people.new, "alice")
        desk = RecordingHandler()
        channel = bot.channel(autoJoin="always")
        async with running(channel, desk):
            preset = "public_chat" if is_public else "private_chat"
            room = await person.create("Kitchen", bot.id, preset=preset)
            await reading(channel, room)
            await person.say(room, "before")
            await desk.received(1)
            token = await person.do("token")
            path = f"/_matrix/client/v3/rooms/{room}/upgrade"
            upgraded = await asyncio.to_thread(
                scene.synapse.ask, "POST", path, {"new_version": "10"}, token
            )
            new = str(upgraded["replacement_room"])
            if not is_public:  # clients invite the members of the old room
                await person.do("invite", room=new, user=bot.id)
            await reading(channel, new)
            await person.say(new, "after")
            await desk.received(2)
            await channel.send(out(room, "answer"))
        channel = bot.channel(autoJoin="off")
        async with running(channel, desk):
            await person.say(new, "again")
            got = await desk.received(3)
            await channel.send(out(room, "another"))
            await person.sees(new, lambda one: one.get("body") in {"answer", "another"}, 2)
        assert [one.text for one in got] == ["before", "after", "again"]
        assert {one.address.chat for one in got} == {room}

    asyncio.run(main())


def test_synapse_own_message_can_be_edited_and_deleted(scene: Scene) -> None:
    async def body(stage: Harness) -> None:
        to = Address("matrix", stage.room)
        sent = await stage.channel.send(out(stage.room, "first"))
        await stage.channel.edit(to, sent.message_id, "second")
        await stage.channel.edit(to, sent.message_id, "second")  # edited already
        last = await stage.channel.send(out(stage.room, "third", replaces=sent.message_id))
        shown = await stage.seen(last.message_id)
        assert shown["class"] == "RoomMessageText" and shown["body"] == "* third"
        event = await stage.ask("GET", f"/v3/rooms/{stage.room}/event/{sent.message_id}")
        newest = event["unsigned"]["m.relations"]["m.replace"]["content"]["m.new_content"]
        assert newest["body"] == "third"
        await stage.channel.delete(to, sent.message_id)
        await stage.channel.delete(to, sent.message_id)
        gone = await stage.person.sees(
            stage.room, lambda one: one.get("redacts") == sent.message_id
        )
        assert gone[0]["class"] == "RedactionEvent" and len(gone) == 1

    scene.play(body)


def test_synapse_edit_of_foreign_message_is_refused(scene: Scene) -> None:
    async def body(stage: Harness) -> None:
        to = Address("matrix", stage.room)
        theirs = await stage.person.say(stage.room, "mine")
        await stage.desk.received(1)
        for event in (theirs, "$no-such-event"):
            with pytest.raises(SendError) as caught:
                await stage.channel.edit(to, event, "changed")
            assert not caught.value.retryable

    scene.play(body)


def test_synapse_reaction_is_set_once_and_removed(scene: Scene) -> None:
    async def body(stage: Harness) -> None:
        to = Address("matrix", stage.room)
        event = await stage.person.say(stage.room, "look")
        for _ in range(3):
            await stage.channel.react(to, event, "👀")
        await stage.channel.react(to, event, "✅")
        (first, second) = await stage.person.sees(
            stage.room, lambda one: one.get("reacts_to") == event, 2
        )
        assert (first["class"], first["key"], second["key"]) == ("ReactionEvent", "👀", "✅")
        await stage.channel.react(to, event, "")
        await stage.person.sees(stage.room, lambda one: bool(one.get("redacts")), 2)
        await stage.channel.react(to, event, "👀")
        await stage.person.sees(stage.room, lambda one: one.get("reacts_to") == event, 3)

    scene.play(body)


def test_synapse_files_of_users_are_fetched(scene: Scene) -> None:
    async def body(stage: Harness) -> None:
        url = await stage.person.do(
            "upload", data=base64.b64encode(PNG).decode(), mime="image/png", name="dot.png"
        )
        info = {"mimetype": "image/png", "size": len(PNG)}
        await stage.person.send(
            stage.room, {"msgtype": "m.image", "body": "dot.png", "url": url, "info": info}
        )
        voice = {"msgtype": "m.audio", "body": "a voice", "url": url, "info": {}}
        await stage.person.send(stage.room, {**voice, "org.matrix.msc3245.voice": {}})
        said = {"msgtype": "m.file", "body": "look at this", "filename": "a.bin", "url": url}
        await stage.person.send(stage.room, said)
        picture, spoken, captioned = await stage.desk.received(3)
        assert picture.text == "" and captioned.text == "look at this"
        (media,) = picture.media
        assert media == Media("image", "image/png", "dot.png", len(PNG), ref=url)
        assert spoken.media[0].kind == "voice" and captioned.media[0].name == "a.bin"
        assert await stage.channel.fetch(media, len(PNG)) == PNG
        with pytest.raises(MediaTooLargeError):
            await stage.channel.fetch(media, len(PNG) - 1)
        missing = Media(ref="mxc://localhost/nothing")
        with pytest.raises(SendError) as caught:
            await stage.channel.fetch(missing, 1_000)
        assert not caught.value.retryable

    scene.play(body)


def test_synapse_own_files_arrive(scene: Scene, tmp_path: Path) -> None:
    async def body(stage: Harness) -> None:
        picture, notes = tmp_path / "dot.png", tmp_path / "notes ü.txt"
        picture.write_bytes(PNG)
        notes.write_text("words")
        media = (
            Media("image", "image/png", "dot.png", path=str(picture)),
            Media("document", "text/plain", path=str(notes)),
        )
        first = await stage.channel.send(out(stage.room, "both", "k", media=media))
        again = await stage.channel.send(out(stage.room, "both", "k", media=media))
        assert first == again
        image, file = await stage.person.sees(stage.room, lambda one: bool(one.get("url")), 2)
        assert (image["class"], image["body"]) == ("RoomMessageImage", "both")
        assert (file["class"], file["body"]) == ("RoomMessageFile", "notes ü.txt")
        got = await stage.person.do("download", url=image["url"])
        assert (base64.b64decode(got["data"]), got["mime"]) == (PNG, "image/png")
        got = await stage.person.do("download", url=file["url"])
        assert base64.b64decode(got["data"]) == b"words"

    scene.play(body)


def test_synapse_oversized_file_is_refused_before_and_by_server(
    scene: Scene, tmp_path: Path
) -> None:
    async def body(stage: Harness) -> None:
        assert stage.channel.capabilities.media_max_bytes == MAX_UPLOAD_BYTES
        big = tmp_path / "big.bin"
        big.write_bytes(bytes(MAX_UPLOAD_BYTES + 1))
        gone = Media(path=str(tmp_path / "gone"))
        for media in (Media(path=str(big)), gone):
            with pytest.raises(SendError) as caught:
                await stage.channel.send(out(stage.room, "", media=(media,)))
            assert not caught.value.retryable
        server = HomeserverClient(stage.bot.server.url, stage.bot.token)
        try:
            with pytest.raises(MatrixRefusedError) as refused:
                await server.upload(big.read_bytes(), "", "big.bin")
            assert refused.value.errcode == "M_TOO_LARGE"
        finally:
            await server.close()

    scene.play(body)


def test_synapse_oversized_event_is_refused_permanently(scene: Scene) -> None:
    async def body(stage: Harness) -> None:
        with pytest.raises(SendError) as caught:
            await stage.channel.send(out(stage.room, "x" * 70_000))
        assert not caught.value.retryable

    scene.play(body)


def test_synapse_send_to_user_id_reuses_direct_room(scene: Scene) -> None:
    async def body(stage: Harness) -> None:
        assert (await stage.channel.send(out(stage.person.id, "here?"))).message_id
        await stage.person.sees(stage.room, lambda one: one.get("body") == "here?")
        other = await asyncio.to_thread(scene.people.new, "bob")
        first = await stage.channel.send(out(f"user:{other.id}", "hello Bob"))
        second = await stage.channel.send(out(other.id, "still me"))
        room = await other.invitation()
        await other.do("join", room=room)
        for receipt in (first, second):
            await stage.ask("GET", f"/v3/rooms/{room}/event/{receipt.message_id}")
        await other.say(room, "hello bot")
        (inbound,) = await stage.desk.received(1)
        assert inbound.metadata.kind == "direct" and inbound.address.chat == room

    scene.play(body)


def test_synapse_room_is_found_by_alias(scene: Scene) -> None:
    async def body(stage: Harness) -> None:
        alias = f"#kitchen-{stage.bot.id[5:13]}:localhost"
        quoted = alias.replace("#", "%23")
        await stage.ask("PUT", f"/v3/directory/room/{quoted}", {"room_id": stage.room})
        for place in (alias, f"room:{stage.room}"):
            receipt = await stage.channel.send(out(place, f"by {place}"))
            assert (await stage.seen(receipt.message_id))["body"] == f"by {place}"
        for place in ("nowhere", "#no-such-room:localhost", "!nowhere:localhost"):
            with pytest.raises(SendError) as caught:
                await stage.channel.send(out(place, "lost"))
            assert not caught.value.retryable

    scene.play(body, direct=False, autoJoin="always")
