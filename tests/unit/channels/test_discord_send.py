"""The Discord channel on our fake of Discord: what it sends, and how often."""

import subprocess
import sys
from pathlib import Path

import pytest

from homarus.channels.base import ChannelContext
from homarus.channels.discord import TRAITS, create, gateway
from homarus.channels.discord.outbound import components_json, nonce_for
from homarus.channels.discord.settings import DiscordSettings
from homarus.core.clock import SystemClock
from homarus.core.errors import (
    ChannelAuthError,
    ChannelError,
    ConfigError,
    MediaTooLargeError,
    MissingExtraError,
    SendError,
)
from homarus.core.message import Button, Extras, Media, Outbound, Poll
from homarus.testing.clock import FakeClock
from homarus.testing.discord_server import (
    BOT,
    CHANNEL,
    EVE,
    FORUM,
    GUILD,
    DiscordServer,
)
from homarus.testing.fakes import RecordingHandler
from tests.unit.channels.discord_stage import bot, running, send, to

ROOM = str(CHANNEL)


@pytest.fixture(autouse=True)
def _quick_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway, "READY_S", 0.01)


async def test_discord_message_mentions_no_one_and_has_nonce() -> None:
    async with DiscordServer() as server:
        theirs = server.say("hello", CHANNEL)
        receipt = await send(bot(server), "hi", ROOM, reply_to=theirs, silent=True)
        (request,) = server.books.of("POST messages")
    assert request.data == {
        "content": "hi",
        "nonce": nonce_for("key-1"),
        "enforce_nonce": True,
        "allowed_mentions": {"parse": [], "replied_user": False},
        "message_reference": {"message_id": theirs, "fail_if_not_exists": False},
        "flags": 4096,
    }
    assert receipt.message_id == server.sent(ROOM)[0]["id"] and receipt.thread_id == ""


async def test_discord_same_key_twice_is_one_message() -> None:
    async with DiscordServer() as server:
        channel = bot(server)
        first, second = await send(channel, "hi"), await send(channel, "hi")
        other = await send(channel, "hi", key="key-2")
        assert first == second != other and len(server.sent(server.dm())) == 2
        assert len(server.books.of("POST dm")) == 1  # the direct channel is remembered


async def test_discord_reply_to_missing_message_is_sent_without() -> None:
    async with DiscordServer() as server:
        channel = bot(server)
        await send(channel, "one", ROOM, reply_to="123")
        await send(channel, "two", ROOM, reply_to="interaction:9", key="key-2")
        assert [row["content"] for row in server.sent(ROOM)] == ["one", "two"]


@pytest.mark.parametrize(
    ("trouble", "kind", "retryable", "after_s"),
    [
        ({"status": 429, "retry_after": 2.5}, SendError, True, 2.5),
        ({"status": 403, "number": 50013}, SendError, False, None),
        ({"status": 404, "number": 10003}, SendError, False, None),
        ({"status": 400, "number": 50035}, SendError, False, None),
        ({"status": 401}, ChannelAuthError, None, None),
        ({"status": 500, "taken": True}, ChannelError, None, None),
        ({"status": 502}, ChannelError, None, None),
        ({"status": 0, "taken": True}, ChannelError, None, None),
    ],
    ids=str,
)
async def test_discord_answers_map_to_errors(
    trouble: dict[str, int], kind: type[Exception], retryable: bool | None, after_s: float | None
) -> None:
    async with DiscordServer() as server:
        server.trouble("POST messages", **trouble)
        with pytest.raises(ChannelError) as caught:
            await send(bot(server), "hi", ROOM)
    error = caught.value
    assert issubclass(type(error), kind) and isinstance(error, SendError) == (kind is SendError)
    assert getattr(error, "retryable", None) is retryable
    assert getattr(error, "after_s", None) == after_s
    assert server.token not in str(error)


async def test_discord_mark_is_set_right_before_message() -> None:
    async with DiscordServer() as server:
        marks = list[int]()

        async def mark() -> None:
            marks.append(len(server.books.requests))

        await bot(server).send_marked(Outbound(to(), "hi", "k"), mark)
        assert marks == [1]  # the direct channel was asked for before
        server.trouble("POST dm", status=500)
        with pytest.raises(ChannelError):
            await bot(server).send_marked(Outbound(to(f"user:{EVE}"), "hi", "k"), mark)
        assert marks == [1]


async def test_discord_retries_are_ours_and_for_rate_limits_only() -> None:
    async with DiscordServer() as server:
        retry = bot(server).capabilities.retry
        assert (retry.attempts, retry.min_delay_s, retry.max_delay_s) == (3, 0.5, 30.0)
        assert (retry.jitter, retry.only_rate_limits) == (0.1, True)
        other = bot(server, retry={"attempts": 5, "minDelayMs": 900}).capabilities.retry
        assert (other.attempts, other.min_delay_s, other.only_rate_limits) == (5, 0.9, True)


# Looking up


async def test_discord_lookup_finds_nonce_or_text_and_no_other() -> None:
    async with DiscordServer() as server:
        channel = bot(server)
        receipt = await send(channel, " hello ", ROOM)
        again = bot(server)  # another process: it remembers nothing
        assert await again.look_up(Outbound(to(ROOM), "hello", "key-1")) == receipt
        assert await again.look_up(Outbound(to(ROOM), "hallo", "key-1")) is None
        assert await channel.look_up(Outbound(to(ROOM), "hello", "key-2")) is None
        for nowhere in ("999", "user:999"):
            assert await again.look_up(Outbound(to(nowhere), "hello", "key-1")) is None
        server.say("theirs", CHANNEL)
        assert await again.look_up(Outbound(to(ROOM), "theirs", "key-1")) is None


async def test_discord_lookup_reads_only_since_first_attempt() -> None:
    clock = SystemClock()
    async with DiscordServer() as server:
        await send(bot(server), "hello", ROOM)
        asked = Outbound(to(ROOM), "hello", "key-9", started_ms=clock.now_ms())
        found = await bot(server).look_up(asked)
        assert found and found.message_id == server.sent(ROOM)[0]["id"]
        late = Outbound(to(ROOM), "hello", "key-9", started_ms=clock.now_ms() + 3_600_000)
        assert await bot(server).look_up(late) is None


async def test_discord_lookup_reads_several_pages() -> None:
    clock = SystemClock()
    async with DiscordServer() as server:
        started_ms = clock.now_ms()
        for number in range(150):
            server.say(f"m{number}", CHANNEL)
        receipt = await send(bot(server), "hello", ROOM)
        asked = Outbound(to(ROOM), "hello", "key-1", started_ms=started_ms)
        assert await bot(server).look_up(asked) == receipt


# Files, buttons, polls


async def test_discord_files_go_in_one_message_with_text(tmp_path: Path) -> None:
    files = []
    for name in ("a.txt", 'b "x".txt'):
        (tmp_path / name.replace('"', "")).write_text(name)
        files.append(
            Media("document", "text/plain", name, path=str(tmp_path / name.replace('"', "")))
        )
    async with DiscordServer() as server:
        channel = bot(server)
        await send(channel, "look", ROOM, media=tuple(files))
        await send(channel, "look", ROOM, media=tuple(files))
        (message,) = server.sent(ROOM)
        assert message["content"] == "look" and len(message["attachments"]) == 2
        found = await bot(server).look_up(
            Outbound(to(ROOM), "look", "k", Extras(media=tuple(files)))
        )
        assert found and found.message_id == message["id"]
        assert sorted(server.world.files.values()) == [b"a.txt", b'b "x".txt']


async def test_discord_file_too_large_or_missing_is_refused(tmp_path: Path) -> None:
    async with DiscordServer() as server:
        channel = bot(server, mediaMaxMb=0.001)
        (tmp_path / "a").write_bytes(b"x" * 5_000)
        for path in (tmp_path / "a", tmp_path / "none"):
            with pytest.raises(SendError) as caught:
                await send(channel, "", ROOM, media=(Media(path=str(path)),))
            assert not caught.value.retryable
        assert not server.books.of("POST messages")


@pytest.mark.parametrize("rows", [[1], [5, 5, 5, 5, 5], [7], [25], [1] * 8, [3, 6], [2] * 12])
async def test_discord_any_rows_of_buttons_are_accepted(rows: list[int]) -> None:
    made = tuple(
        tuple(Button(f"{row}.{n} " + "x" * 90, "d" * (n * 40)) for n in range(size))
        for row, size in enumerate(rows)
    )
    async with DiscordServer() as server:
        await send(bot(server), "choose", ROOM, buttons=made)
        (message,) = server.sent(ROOM)
    parts = [part for row in message["components"] for part in row["components"]]
    labels = [one["label"] for part in parts for one in part.get("options", [part])]
    assert len(labels) == sum(rows) and labels[0].startswith("0.0 ")


def test_discord_button_without_label_is_left_out() -> None:
    assert components_json(((Button("", "x"),),)) == []


async def test_discord_poll_has_hours_and_options() -> None:
    poll = Poll("Sail?", ("yes", "no"), duration_s=5_400, is_multiple=True)
    async with DiscordServer() as server:
        channel = bot(server)
        channel.check_poll(to(ROOM), poll)
        theirs = server.say("What about today?", CHANNEL)
        await send(channel, "Sail?", ROOM, poll=poll, reply_to=theirs)
        (message,) = server.sent(ROOM)
        found = await bot(server).look_up(Outbound(to(ROOM), "Sail?", "k", Extras(poll=poll)))
    assert message["poll"]["duration"] == 2 and message["poll"]["allow_multiselect"]
    assert message["message_reference"]["message_id"] == theirs
    assert message["content"] == "" and found and found.message_id == message["id"]


@pytest.mark.parametrize(
    "poll",
    [
        Poll("", ("a",)),
        Poll("q" * 301, ("a",)),
        Poll("q", ()),
        Poll("q", ("x" * 56,)),
        Poll("q", ("a",) * 11),
        Poll("q", ("a",), duration_s=40 * 86_400),
    ],
)
async def test_discord_impossible_poll_is_refused_before(poll: Poll) -> None:
    async with DiscordServer() as server:
        with pytest.raises(SendError, match="Discord refuses this poll"):
            bot(server).check_poll(to(ROOM), poll)


# Threads


async def test_discord_titled_message_starts_thread_once() -> None:
    async with DiscordServer() as server:
        channel = bot(server)
        first = await send(channel, "plans", ROOM, thread_title="Plans")
        second = await send(channel, "plans", ROOM, thread_title="Plans")
        assert first == second and first.thread_id == first.message_id
        rest = await send(channel, "more", ROOM, thread=first.thread_id, key="key-2")
        assert [row["id"] for row in server.sent(first.thread_id)] == [rest.message_id]
        asked = Outbound(to(ROOM), "plans", "key-1", Extras(thread_title="Plans"))
        assert await bot(server).look_up(asked) == first


async def test_discord_titled_message_without_thread_is_sent_once() -> None:
    asked = Outbound(to(ROOM), "plans", "key-1", Extras(thread_title="Plans"))
    async with DiscordServer() as server:
        channel = bot(server)
        server.trouble("POST message thread", status=429, retry_after=300)
        with pytest.raises(ChannelError) as unknown:  # a refusal would be sent again
            await send(channel, "plans", ROOM, thread_title="Plans")
        assert not isinstance(unknown.value, SendError)
        server.trouble("POST message thread", status=403, number=50013)
        found = await bot(server).look_up(asked)
        assert found and found.message_id == server.sent(ROOM)[0]["id"] and not found.thread_id
        server.trouble("POST message thread", status=403, number=50013)
        receipt = await send(channel, "plans", ROOM, thread_title="Plans")
        assert receipt == found and len(server.sent(ROOM)) == 1


async def test_discord_thread_in_direct_chat_is_refused_unsent() -> None:
    async with DiscordServer() as server:
        with pytest.raises(SendError, match="no threads in this chat"):
            await send(bot(server), "plans", thread_title="Plans")
        assert server.sent(server.dm()) == []


async def test_discord_post_of_forum_is_found_again() -> None:
    async with DiscordServer() as server:
        channel = bot(server)
        receipt = await send(channel, "a boat", str(FORUM), thread_title="Boat")
        assert server.sent(receipt.thread_id)[0]["content"] == "a boat"
        asked = Outbound(to(str(FORUM)), "a boat", "key-1", Extras(thread_title="Boat"))
        assert await bot(server).look_up(asked) == receipt
        other = Outbound(to(str(FORUM)), "a boat", "key-1", Extras(thread_title="Ship"))
        assert await bot(server).look_up(other) is None
        with pytest.raises(SendError):
            await send(channel, "no title", str(FORUM))


async def test_discord_reply_starts_thread_where_set() -> None:
    guilds = {str(GUILD): {"channels": {ROOM: {"autoThread": True}}}}
    async with DiscordServer() as server:
        theirs = server.say("when?", CHANNEL)
        channel = bot(server, guilds=guilds)
        receipt = await send(channel, "at six", ROOM, thread_on=theirs)
        assert receipt.thread_id == theirs
        assert [row["content"] for row in server.sent(theirs)] == ["at six"]
        assert await send(channel, "at six", ROOM, thread_on=theirs) == receipt
        asked = Outbound(to(ROOM), "at six", "key-1", Extras(thread_on=theirs))
        assert await bot(server, guilds=guilds).look_up(asked) == receipt
        gone = await send(channel, "late", ROOM, thread_on="123", key="key-2")
        assert gone.thread_id == "" and server.sent(ROOM)[-1]["content"] == "late"
        plain = await send(bot(server), "now", ROOM, thread_on=theirs, key="key-3")
        assert plain.thread_id == ""


# Other abilities


async def test_discord_replaced_prompt_has_no_buttons() -> None:
    async with DiscordServer() as server:
        channel = bot(server)
        ours = (await send(channel, "May I?", ROOM, buttons=((Button("Yes", "y"),),))).message_id
        assert server.sent(ROOM)[0]["components"]
        await send(channel, "Allowed.", ROOM, replaces=ours, key="key-2")
        assert server.sent(ROOM)[0]["components"] == []


async def test_discord_edit_delete_react_and_type() -> None:
    async with DiscordServer() as server:
        channel = bot(server)
        ours = (await send(channel, "one", ROOM)).message_id
        await channel.edit(to(ROOM), ours, "two")
        replaced = await send(channel, "three", ROOM, replaces=ours, key="key-2")
        assert replaced.message_id == ours and server.sent(ROOM)[0]["content"] == "three"
        await channel.react(to(ROOM), ours, "👍")
        await channel.react(to(ROOM), ours, "<:boat:12>")
        reactions = server.sent(ROOM)[0]["reactions"]
        assert [one["emoji"] for one in reactions] == [
            {"name": "👍", "id": None},
            {"name": "boat", "id": "12"},
        ]
        await channel.react(to(ROOM), ours, "")
        assert len(server.books.of("DELETE reaction")) == 2
        await channel.show_typing(to(ROOM), on=True)
        await channel.show_typing(to(ROOM), on=False)
        assert server.rest.typing == [ROOM]
        await channel.delete(to(ROOM), ours)
        assert server.sent(ROOM) == []
        with pytest.raises(SendError):
            await channel.edit(to(ROOM), ours, "four")
        with pytest.raises(SendError, match="no message of Discord"):
            await channel.edit(to(ROOM), "x/../y", "four")


@pytest.mark.parametrize("chat", ["#general", "general", "user:ada", "1/2", ""])
async def test_discord_chat_that_is_no_id_is_refused(chat: str) -> None:
    async with DiscordServer() as server:
        with pytest.raises(SendError, match="Discord's") as caught:
            await send(bot(server), "hi", chat)
        assert not caught.value.retryable and not server.books.requests


async def test_discord_fetch_refuses_other_servers_and_large_files() -> None:
    async with DiscordServer() as server:
        channel = bot(server)
        for url in ("http://127.0.0.1:1/x", "https://example.org/attachments/1", "file:///etc/x"):
            with pytest.raises(ChannelError, match="not on a server of Discord's"):
                await channel.fetch(Media(ref=url), 100)
        with pytest.raises(MediaTooLargeError):
            await channel.fetch(Media(ref=server.url, size=101), 100)
        file = server.rest.store_file("a", b"x" * 200, "text/plain")
        with pytest.raises(MediaTooLargeError):
            await channel.fetch(Media(ref=file["url"]), 100)
        with pytest.raises(ChannelError, match="404"):
            await channel.fetch(Media(ref=f"{server.url}/attachments/1/9/none"), 100)


async def test_discord_rest_answers_parse_as_messages_of_library(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a")
    rows = ((Button("Yes", "y"),), tuple(Button(f"{n}", f"{n}") for n in range(6)))
    async with DiscordServer() as server:
        desk, channel = RecordingHandler(), bot(server)
        media = (Media("document", "text/plain", "a.txt", path=str(tmp_path / "a.txt")),)
        theirs = server.say("hello", CHANNEL)
        await send(channel, "one", ROOM, buttons=rows, media=media, reply_to=theirs)
        await send(channel, "q", ROOM, poll=Poll("q", ("a",)), key="key-2")
        async with running(server, channel, desk):
            pass
        answers = [one.answer for one in server.books.of("POST messages")]
        connection = gateway.DiscordConnection(
            channel._rest, channel._settings, SystemClock(), lambda _name, _args: None
        )
        first, second = [connection.parse_message(ROOM, answer) for answer in answers]
    assert type(first).__module__ == "discord.message" and first.author.id == BOT
    assert first.content == "one" and first.attachments[0].filename == "a.txt"
    assert [len(getattr(row, "children", ())) for row in first.components] == [1, 1]
    assert first.reference and str(first.reference.message_id) == theirs
    assert second.poll and second.poll.question == "q"


# Settings


def test_discord_account_is_created_without_importing_library() -> None:
    code = (
        "import sys; from homarus.channels.base import ChannelContext\n"
        "from homarus.channels.discord import Settings, create\n"
        "from homarus.testing.clock import FakeClock\n"
        "settings = Settings.read({'token': 'x' * 30})\n"
        "create(ChannelContext('discord', 'default', FakeClock()), settings)\n"
        "assert not {'discord', 'aiohttp'} & {*sys.modules}\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def settings(**said: object) -> DiscordSettings:
    return DiscordSettings.read(said)


@pytest.mark.parametrize("token", ["", "  ", "with space in it........", "short"])
def test_discord_without_usable_token_is_config_error(token: str) -> None:
    context = ChannelContext("discord", "default", FakeClock())
    with pytest.raises(ConfigError) as caught:
        create(context, settings(token=token))
    assert caught.value.key == "channels.discord.token"
    assert not token.strip() or token not in str(caught.value)


def test_discord_token_of_environment_is_for_default_account() -> None:
    env = {"DISCORD_BOT_TOKEN": "Bot " + "x" * 30}
    create(ChannelContext("discord", "default", FakeClock(), env=env), settings())
    with pytest.raises(ConfigError):
        create(ChannelContext("discord", "work", FakeClock(), env=env), settings())


def test_discord_without_library_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("homarus.channels.discord.find_spec", lambda _name: None)
    with pytest.raises(MissingExtraError, match="needs a package"):
        create(ChannelContext("discord", "default", FakeClock()), settings(token="x" * 30))


def test_discord_limits_follow_settings() -> None:
    context = ChannelContext("discord", "default", FakeClock())
    said = {"token": "x" * 30, "textChunkLimit": 9_000, "maxLinesPerMessage": 5, "mediaMaxMb": 1}
    capabilities = create(context, settings(**said)).capabilities
    assert (capabilities.text_limit, capabilities.max_lines) == (2_000, 5)
    assert (capabilities.media_max_bytes, capabilities.max_files) == (1024 * 1024, 10)
    assert (capabilities.max_buttons, capabilities.typing_s) == (25, 10.0)
    capabilities = create(context, settings(token="x" * 30)).capabilities
    assert capabilities.media_max_bytes == 10 * 1024 * 1024
    assert TRAITS.normalize_id("<@!42>") == "42" == TRAITS.normalize_id("42")
    assert TRAITS.normalize_id("ada") == ""


def test_discord_older_keys_of_direct_messages_are_converted() -> None:
    said = settings(token="x" * 30, dm={"policy": "open", "allowFrom": ["*"], "groupEnabled": True})
    assert (said.common.dm_policy, said.common.allow_from) == ("open", ("*",))
    assert settings(dm={"enabled": False}).common.dm_policy == "disabled"
