"""The Discord channel on our fake of Discord: what it receives."""

from typing import Any

import pytest

from homarus.channels.discord import gateway
from homarus.core.channel_event import MemberJoined, MessageDeleted, MessageEdited, ReactionChanged
from homarus.core.errors import ChannelAuthError, ChannelError, DiskFullError, HomarusError
from homarus.testing.discord_server import (
    ADA,
    BOT,
    CHANNEL,
    EVE,
    FORUM,
    GUILD,
    OWN_ROLE,
    ROLE,
    DiscordServer,
)
from homarus.testing.fakes import RecordingHandler
from tests.unit.channels.discord_stage import bot, running, send
from tests.waiting import until

OUR_NAME = f"<@{BOT}>"


@pytest.fixture(autouse=True)
def _quick_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway, "READY_S", 0.01)


async def test_discord_direct_message_has_user_as_chat() -> None:
    async with DiscordServer() as server:
        desk, channel = RecordingHandler(), bot(server)
        async with running(server, channel, desk):
            id_ = server.say("hello, 👩‍👩‍👧 @everyone")
            (got,) = await desk.received(1)
        assert (got.id, got.text, got.sender) == (id_, "hello, 👩‍👩‍👧 @everyone", str(ADA))
        assert (got.address.chat, got.address.thread) == (f"user:{ADA}", None)
        assert got.metadata.kind == "direct" and got.metadata.name == "Ada"
        assert desk.kept and desk.kept["dms"] == {server.dm(): str(ADA)}


async def test_discord_server_message_says_who_wrote_where() -> None:
    async with DiscordServer() as server:
        server.world.members[str(ADA)] = [str(ROLE)]
        desk, channel = RecordingHandler(), bot(server)
        async with running(server, channel, desk):
            server.say("the tide is high", CHANNEL)
            server.say(f"{OUR_NAME} when is <@{EVE}> here? <:boat:12> <#{CHANNEL}>", CHANNEL)
            server.say(f"<@&{OWN_ROLE}> hello", CHANNEL)
            server.say(f"<@{EVE}> hello", CHANNEL)
            plain, named, by_role, other = await desk.received(4)
        assert plain.address.chat == str(CHANNEL)
        metadata = plain.metadata
        assert (metadata.kind, metadata.guild, metadata.roles) == (
            "channel",
            str(GUILD),
            (str(ROLE),),
        )
        assert (metadata.guild_slug, metadata.slugs) == ("harbour", ("general",))
        assert not metadata.mentioned and not metadata.mentions_others
        assert named.metadata.mentioned and not named.metadata.mentions_others
        assert named.text == "@lobster_bot when is @Eve here? :boat: #general"
        assert by_role.metadata.mentioned and by_role.text == "@lobster_bot hello"
        assert other.metadata.mentions_others and not other.metadata.mentioned


async def test_discord_own_name_of_several_words_comes_as_one() -> None:
    async with DiscordServer() as server:
        server.world.me["global_name"] = "Harbour Bot"
        server.world.roles[-1]["name"] = "Harbour Bot"
        desk, channel = RecordingHandler(), bot(server)
        async with running(server, channel, desk):
            server.say(f"{OUR_NAME} /status", CHANNEL)
            server.say(f"<@&{OWN_ROLE}> /status", CHANNEL)
            got = await desk.received(2)
        # A command is recognised after one word.
        assert [one.text for one in got] == ["@lobster_bot /status"] * 2


async def test_discord_thread_is_chat_of_its_own_with_starter() -> None:
    async with DiscordServer() as server:
        desk, channel = RecordingHandler(), bot(server)
        async with running(server, channel, desk):
            start = server.say("shall we sail?", CHANNEL)
            server.world.add_thread(str(CHANNEL), "sailing", start, ADA)
            thread = server.world.channels[start].data
            server.gateway.notify("THREAD_CREATE", {**thread, "newly_created": True})
            server.say("yes", start)
            server.say("when?", start)
            _, first, second = await desk.received(3)
        assert first.address.chat == start and first.address.thread is None
        assert first.metadata.parent == str(CHANNEL) and first.metadata.slugs == ("general",)
        assert (first.metadata.quoted, second.metadata.quoted) == ("shall we sail?", "")
        assert not first.metadata.quotes_others


@pytest.mark.parametrize(("starter", "is_of_others"), [(ADA, False), (BOT, False), (EVE, True)])
async def test_discord_thread_starter_of_third_person_is_foreign(
    starter: int, is_of_others: bool
) -> None:
    async with DiscordServer() as server:
        place = server.world.channels[str(CHANNEL)]
        start = server.world.add_message(place, str(starter), "shall we sail?")["id"]
        server.world.add_thread(str(CHANNEL), "sailing", start, starter)
        desk, channel = RecordingHandler(), bot(server)
        async with running(server, channel, desk):
            server.say("yes", start)
            (got,) = await desk.received(1)
        assert got.metadata.quoted and got.metadata.quotes_others is is_of_others


async def test_discord_post_of_forum_comes_with_its_start() -> None:
    async with DiscordServer() as server:
        post = server.world.add_thread(str(FORUM), "sailing", "77003", ADA)
        server.world.add_message(post, str(ADA), "shall we sail?", id=post.id)
        desk, channel = RecordingHandler(), bot(server)
        async with running(server, channel, desk):
            server.say("yes", post.id)
            (got,) = await desk.received(1)
        assert (got.metadata.parent, got.metadata.quoted) == (str(FORUM), "shall we sail?")


async def test_discord_thread_starter_is_left_out_if_set() -> None:
    guilds = {str(GUILD): {"channels": {str(CHANNEL): {"includeThreadStarter": False}}}}
    async with DiscordServer() as server:
        start = server.say("shall we sail?", CHANNEL)
        server.world.add_thread(str(CHANNEL), "sailing", start, ADA)
        desk, channel = RecordingHandler(), bot(server, guilds=guilds)
        async with running(server, channel, desk):
            server.say("yes", start)
            (got,) = await desk.received(1)
        assert got.metadata.quoted == "" and got.metadata.parent == str(CHANNEL)


async def test_discord_reply_quotes_what_it_answers() -> None:
    async with DiscordServer() as server:
        desk, channel = RecordingHandler(), bot(server)
        async with running(server, channel, desk):
            ours = (await send(channel, "rain", str(CHANNEL))).message_id
            server.acts.reply("sure?", ours, CHANNEL)
            (got,) = await desk.received(1)
        metadata = got.metadata
        assert (metadata.reply_to, metadata.replies_to_us, metadata.quoted) == (ours, True, "rain")


async def test_discord_own_and_service_messages_are_not_read() -> None:
    async with DiscordServer() as server:
        desk, channel = RecordingHandler(), bot(server)
        async with running(server, channel, desk):
            await send(channel, "mine", str(CHANNEL))
            server.say("pinned something", CHANNEL, type=6)
            server.say("", CHANNEL)
            server.say("by a hook", CHANNEL, webhook_id="77")
            server.say("last", CHANNEL)
            hook, last = await desk.received(2)
        assert (hook.text, hook.metadata.is_bot, last.text) == ("by a hook", True, "last")


async def test_discord_edit_is_passed_on_and_link_preview_is_not() -> None:
    async with DiscordServer() as server:
        desk, channel = RecordingHandler(), bot(server)
        async with running(server, channel, desk):
            id_ = server.say("see https://example.org", CHANNEL)
            server.acts.add_embed(id_, CHANNEL)
            server.acts.edit(id_, "see nothing", CHANNEL)
            server.acts.add_embed(id_, CHANNEL)
            server.acts.edit(id_, "see this", CHANNEL)
            edits = await desk.events_received(1)
            server.say("end", CHANNEL)
            await desk.received(2)
        texts = [edit.text for edit in edits if isinstance(edit, MessageEdited)]
        assert texts == ["see nothing"] and edits[0].sender == str(ADA)


async def test_discord_deletions_are_passed_on_with_known_author() -> None:
    async with DiscordServer() as server:
        desk, channel = RecordingHandler(), bot(server)
        async with running(server, channel, desk):
            ids = [server.say(f"m{n}", CHANNEL) for n in range(3)]
            await desk.received(3)
            server.acts.delete(ids[0], chat=CHANNEL)
            server.acts.delete(*ids[1:], chat=CHANNEL)
            old = server.say("direct")
            server.acts.delete(old)
            found = await desk.events_received(4)
        assert all(isinstance(one, MessageDeleted) and one.sender == str(ADA) for one in found)
        assert [one.message_id for one in found if isinstance(one, MessageDeleted)] == [*ids, old]
        assert found[-1].address.chat == f"user:{ADA}"


@pytest.mark.parametrize(
    ("mode", "who", "expected"),
    [
        ("off", ADA, []),
        (None, EVE, ["ours"]),
        ("own", EVE, ["ours"]),
        ("all", EVE, ["ours", "theirs"]),
        ("allowlist", ADA, ["ours", "theirs"]),
        ("allowlist", EVE, []),
    ],
)
async def test_discord_reactions_follow_setting_of_server(
    mode: str | None, who: int, expected: list[str]
) -> None:
    guild: dict[str, Any] = {"users": [ADA]} | ({"reactionNotifications": mode} if mode else {})
    async with DiscordServer() as server:
        desk, channel = RecordingHandler(), bot(server, guilds={str(GUILD): guild})
        async with running(server, channel, desk):
            ours = (await send(channel, "rain", str(CHANNEL))).message_id
            theirs = server.say("sun", CHANNEL)
            for id_ in (ours, theirs):
                server.acts.react(id_, "👍", CHANNEL, who)
            server.say("end", CHANNEL)
            await desk.received(2)
        names = {ours: "ours", theirs: "theirs"}
        reactions = [one for one in desk.events if isinstance(one, ReactionChanged)]
        assert [names[one.message_id] for one in reactions] == expected
        assert all(one.added == ("👍",) and one.sender == str(who) for one in reactions)


async def test_discord_removed_reaction_of_own_message_is_passed_on() -> None:
    async with DiscordServer() as server:
        desk, channel = RecordingHandler(), bot(server)
        async with running(server, channel, desk):
            ours = (await send(channel, "rain")).message_id
            server.say("hello")
            server.acts.react(ours, "👍", remove=True)
            (found,) = await desk.events_received(1)
        assert isinstance(found, ReactionChanged) and found.removed == ("👍",)
        assert found.metadata.replies_to_us and found.address.chat == f"user:{ADA}"


async def test_discord_join_is_passed_on_with_members_intent() -> None:
    async with DiscordServer() as server:
        desk = RecordingHandler()
        channel = bot(server, intents={"guildMembers": True})
        async with running(server, channel, desk):
            server.acts.join(77_001, "bob")
            (found,) = await desk.events_received(1)
        assert isinstance(found, MemberJoined) and found.address.chat == str(CHANNEL)
        assert (found.sender, found.metadata.name) == ("77001", "Bob")


async def test_discord_files_come_with_their_kind_and_are_fetched() -> None:
    async with DiscordServer() as server:
        desk, channel = RecordingHandler(), bot(server)
        async with running(server, channel, desk):
            server.acts.attach(b"picture", "look", "a.png", "image/png")
            (got,) = await desk.received(1)
            (media,) = got.media
            assert (media.kind, media.name, media.size, got.text) == ("image", "a.png", 7, "look")
            assert await channel.fetch(media, 100) == b"picture"
        assert "?" not in media.ref  # its signature expires, and another makes another message


# Missed messages


async def test_discord_messages_while_away_are_read_once() -> None:
    async with DiscordServer() as server:
        server.world.members[str(ADA)] = [str(ROLE)]
        desk = RecordingHandler()
        async with running(server, bot(server), desk):
            server.say("first")
            await desk.received(1)
        server.gateway.forget_sessions()
        server.say("missed")
        server.say("missed too", CHANNEL)
        async with running(server, bot(server), desk):
            server.say("live")
            await until(lambda: "live" in desk.texts)
        assert {"missed", "missed too", "live"} <= {*desk.texts}
        assert desk.texts.index("missed") < desk.texts.index("live")
        (room,) = [one for one in desk.got if one.text == "missed too"]
        assert room.metadata.roles == (str(ROLE),) and room.metadata.guild == str(GUILD)


async def test_discord_missed_post_of_forum_is_read() -> None:
    async with DiscordServer() as server:
        desk = RecordingHandler()
        async with running(server, bot(server), desk):
            pass
        server.gateway.forget_sessions()
        post = server.world.add_thread(str(FORUM), "sailing", server.world.next_id(), ADA)
        server.world.add_message(post, str(ADA), "shall we sail?", id=post.id)
        post.data["last_message_id"] = None
        async with running(server, bot(server), desk):
            (got,) = await desk.received(1)
        assert (got.text, got.metadata.parent) == ("shall we sail?", str(FORUM))


@pytest.mark.parametrize("route", ["GET messages", "GET member"])
async def test_discord_catch_up_waits_for_rate_limits(route: str) -> None:
    async with DiscordServer() as server:
        desk = RecordingHandler()
        async with running(server, bot(server), desk):
            server.say("first", CHANNEL)
            await desk.received(1)
        server.gateway.forget_sessions()
        server.say("missed", CHANNEL)
        server.trouble(route, times=3, status=429, retry_after=0.01)
        async with running(server, bot(server), desk):
            server.say("live", CHANNEL)
            await until(lambda: "live" in desk.texts)
        assert "missed" in desk.texts and len(server.gateway.logins) == 1


async def test_discord_server_that_comes_late_is_read_then() -> None:
    async with DiscordServer() as server:
        desk = RecordingHandler()
        async with running(server, bot(server), desk):
            server.say("first", CHANNEL)
            await desk.received(1)
        server.gateway.forget_sessions()
        server.gateway.holds_guild = True
        missed = server.say("missed", CHANNEL)
        async with running(server, bot(server), desk):
            server.say("direct")
            await until(lambda: "direct" in desk.texts)
            assert "missed" not in desk.texts and desk.kept
            assert int(desk.kept["last"]) < int(missed)  # read after a crash, too
            server.gateway.give_guild()
            await until(lambda: "missed" in desk.texts)
            await until(lambda: int((desk.kept or {}).get("last", 0)) > int(missed))


async def test_discord_messages_of_server_outage_are_read_after_it() -> None:
    async with DiscordServer() as server:
        desk = RecordingHandler()
        async with running(server, bot(server), desk):
            server.gateway.lose_guild()
            server.say("one")
            await desk.received(1)
            server.world.add_message(server.world.channels[str(CHANNEL)], str(ADA), "unseen")
            server.gateway.give_guild()
            await until(lambda: "unseen" in desk.texts)


async def test_discord_thread_of_unknown_server_has_its_channel() -> None:
    async with DiscordServer() as server:
        thread = server.world.add_thread(str(CHANNEL), "sailing", "77002", ADA)
        server.gateway.holds_guild = True
        desk = RecordingHandler()
        async with running(server, bot(server), desk):
            server.say("yes", thread.id)
            server.say("no", CHANNEL)
            first, second = await desk.received(2)
        assert (first.metadata.parent, second.metadata.parent) == (str(CHANNEL), "")
        assert first.metadata.guild == str(GUILD)


async def test_discord_first_start_answers_nothing_old() -> None:
    async with DiscordServer() as server:
        server.say("long ago")
        desk = RecordingHandler()
        async with running(server, bot(server), desk):
            server.say("now")
            await desk.received(1)
        assert desk.texts == ["now"]


@pytest.mark.parametrize("written", [ADA, f"discord:{ADA}"])
async def test_discord_missed_first_message_of_allowed_person_is_read(written: int | str) -> None:
    async with DiscordServer() as server:
        desk = RecordingHandler()
        channel = bot(server, allowFrom=[written])
        async with running(server, channel, desk):
            pass
        server.gateway.forget_sessions()
        server.say("are you there?")
        async with running(server, channel, desk):
            await desk.received(1)
        assert desk.texts == ["are you there?"]


async def test_discord_channels_that_are_not_admitted_are_not_read() -> None:
    guilds: dict[str, Any] = {str(GUILD): {"channels": {"1": {}}}}
    async with DiscordServer() as server:
        desk, channel = RecordingHandler(), bot(server, guilds=guilds)
        async with running(server, channel, desk):
            pass
        server.gateway.forget_sessions()
        server.say("psst", CHANNEL)
        async with running(server, channel, desk):
            server.say("live")
            await desk.received(1)
        assert desk.texts == ["live"]
        assert not [one for one in server.books.of("GET messages") if str(CHANNEL) in one.path]


async def test_discord_messages_of_days_ago_are_not_answered() -> None:
    async with DiscordServer() as server:
        desk, channel = RecordingHandler(), bot(server)
        async with running(server, channel, desk):
            server.say("first")
            await desk.received(1)
        server.gateway.forget_sessions()
        id_ = server.say("missed")
        day_ids = (25 * 3_600_000) << 22
        place = server.world.channels[server.dm()]
        place.messages = type(place.messages)(
            {id_: {**place.messages[id_], "id": str(int(id_) - day_ids)}}
        )
        assert desk.kept
        desk.kept = {**desk.kept, "last": "1"}
        async with running(server, channel, desk):
            server.say("live")
            await desk.received(2)
        assert desk.texts == ["first", "live"]


async def test_discord_flood_is_read_again_from_history(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("homarus.channels.discord.session.MAX_QUEUED", 5)
    async with DiscordServer() as server:
        desk, channel, errors = RecordingHandler(), bot(server), list[HomarusError]()
        async with running(server, channel, desk, errors) as task:
            for number in range(20):
                server.say(f"m{number}")
            await until(task.done)
        assert [type(error) for error in errors] == [ChannelError]
        monkeypatch.undo()
        async with running(server, channel, desk):
            await until(lambda: "m19" in desk.texts)
        assert {*desk.texts} == {f"m{number}" for number in range(20)}


async def test_discord_short_break_is_resumed_without_loss() -> None:
    async with DiscordServer() as server:
        desk, channel = RecordingHandler(), bot(server)
        async with running(server, channel, desk):
            server.say("one")
            await desk.received(1)
            (login,) = server.gateway.connected
            assert login.socket
            login.socket.send({"op": 7, "d": None, "s": None, "t": None})
            await until(lambda: not server.gateway.connected)
            server.say("two")
            await desk.received(2)
        assert desk.texts == ["one", "two"] and server.gateway.resumed == 1


async def test_discord_message_not_stored_is_read_again() -> None:
    async with DiscordServer() as server:
        channel, desk, errors = bot(server), RecordingHandler(), list[HomarusError]()
        async with running(server, channel, desk, errors) as task:
            desk.failures.append(DiskFullError("no room"))
            server.say("hello")
            await until(task.done)
        assert [type(error) for error in errors] == [DiskFullError]
        async with running(server, channel, desk):
            await desk.received(1)
        assert desk.texts == ["hello"]


async def test_discord_bad_event_blocks_no_other(caplog: pytest.LogCaptureFixture) -> None:
    async with DiscordServer() as server:
        desk, channel = RecordingHandler(), bot(server)
        async with running(server, channel, desk):
            for kind in ("MESSAGE_CREATE", "MESSAGE_REACTION_ADD", "INTERACTION_CREATE"):
                frame = {"op": 0, "t": kind, "s": 90, "d": {"id": "x", "content": None}}
                server.gateway.send_raw(frame)
            server.gateway.send_raw({"op": 0, "t": "UNKNOWN_EVENT", "s": 91, "d": {}})
            server.say("still here")
            await desk.received(1)
        assert desk.texts == ["still here"]
        assert caplog.text.count("cannot be read") == 3


# Logging in


async def test_discord_wrong_token_stops_account() -> None:
    async with DiscordServer() as server:
        channel = bot(server, token="x" * 30)
        with pytest.raises(ChannelAuthError, match="token was refused"):
            await channel.run(RecordingHandler())
        with pytest.raises(ChannelAuthError):
            await channel.probe()


async def test_discord_missing_intent_names_the_switch() -> None:
    async with DiscordServer() as server:
        server.gateway.allowed_intents = ~(1 << 15)
        errors = list[HomarusError]()
        async with running(server, bot(server), RecordingHandler(), errors):
            pass
        (error,) = errors
        assert isinstance(error, ChannelAuthError) and "Message Content Intent" in error.fix


async def test_discord_outage_is_channel_error() -> None:
    async with DiscordServer() as server:
        channel, errors = bot(server), list[HomarusError]()
        async with running(server, channel, RecordingHandler(), errors) as task:
            await server.disconnect_all()
            await until(task.done)
        assert [isinstance(error, ChannelError) for error in errors] == [True]
        with pytest.raises(ChannelError, match="cannot be reached"):
            await channel.probe()


async def test_discord_presence_and_probe_are_those_of_settings() -> None:
    async with DiscordServer() as server:
        channel = bot(server, activity="the harbour", activityType=3, status="dnd")
        async with running(server, channel, RecordingHandler()):
            (login,) = server.gateway.connected
            assert login.presence["status"] == "dnd"
            assert login.presence["game"]["name"] == "the harbour"
            assert await channel.probe() == "@lobster_bot"


async def test_discord_several_accounts_run_at_once() -> None:
    async with DiscordServer() as one, DiscordServer(token="second." + "x" * 30) as two:
        desks = RecordingHandler(), RecordingHandler()
        async with (
            running(one, bot(one), desks[0]),
            running(two, bot(two, account="work"), desks[1]),
        ):
            one.say("to one")
            two.say("to two")
            first, second = [(await desk.received(1))[0] for desk in desks]
        assert (first.text, first.address.account) == ("to one", "default")
        assert (second.text, second.address.account) == ("to two", "work")
