"""Receiving by long poll and by webhook, against the strict fake."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from homarus.channels.base import (
    ChannelContext,
    SupportsDelete,
    SupportsDrafts,
    SupportsEdit,
    SupportsMediaFetch,
    SupportsProbe,
    SupportsReactions,
    SupportsWebhook,
    WebhookRequest,
    WebhookResponse,
)
from homarus.channels.base import SupportsTyping as CanType
from homarus.channels.telegram import create
from homarus.channels.telegram.adapter import TelegramChannel
from homarus.channels.telegram.settings import TelegramSettings
from homarus.core.channel_event import ReactionChanged
from homarus.core.clock import SystemClock
from homarus.core.errors import (
    ChannelAuthError,
    ChannelError,
    MediaTooLargeError,
    SendError,
    StoreError,
)
from homarus.core.message import Button, Json, Media
from homarus.core.native_command import NativeCommand
from homarus.testing.clock import FakeClock
from homarus.testing.fakes import RecordingHandler
from homarus.testing.model_server.body_stream import read_request, write_whole
from homarus.testing.stream_server import StreamServer
from homarus.testing.telegram_server import ADA, GROUP, TelegramServer
from tests.unit.channels.telegram_stage import WAIT_S, bot, running, send, to

SECRET = "s3cret_0123456789"
SECRET_HEADER = "x-telegram-bot-api-secret-token"
PUBLIC = "https://bot.example"


# The long poll


async def test_telegram_message_is_received_and_confirmed_by_next_poll() -> None:
    async with TelegramServer() as telegram:
        desk = RecordingHandler()
        first = telegram.say("hello")
        async with running(bot(telegram), desk):
            await desk.received(1)
            telegram.say("and again")
            await desk.received(2)
            await telegram.until_asked("getUpdates", 3)
        assert desk.texts == ["hello", "and again"]
        assert desk.got[0].id == f"{ADA}:{first['message_id']}"
        assert not telegram.world.pending
        polls = await telegram.until_asked("getUpdates", 3)
        assert "offset" not in polls[0] and polls[0]["timeout"] == 30
        assert polls[-1]["offset"] == telegram.acts.updates[-1]["update_id"] + 1
        assert "message_reaction" not in polls[0]["allowed_updates"]


async def test_telegram_restart_resumes_after_last_stored_message() -> None:
    async with TelegramServer() as telegram:
        desk = RecordingHandler()
        telegram.say("one")
        async with running(bot(telegram), desk):
            await desk.received(1)
        telegram.say("two")
        async with running(bot(telegram), desk):
            await desk.received(2)
        assert desk.texts == ["one", "two"]
        assert desk.kept is not None
        assert desk.kept["offset"] == telegram.acts.updates[-1]["update_id"] + 1


@pytest.mark.parametrize(
    "cursor", [{"offset": 99_000_000, "bot": 1}, {"offset": 99_000_000, "atMs": 1}]
)
async def test_telegram_cursor_of_other_bot_or_too_old_is_not_used(cursor: dict[str, Json]) -> None:
    async with TelegramServer() as telegram:
        desk = RecordingHandler(kept=cursor)
        telegram.say("hello")
        async with running(bot(telegram), desk):
            await desk.received(1)


async def test_telegram_message_not_stored_is_offered_again() -> None:
    async with TelegramServer() as telegram:
        desk = RecordingHandler(StoreError("no room"))
        telegram.say("hello")
        with pytest.raises(StoreError):
            await bot(telegram).run(desk)
        assert telegram.world.pending and desk.kept is None
        async with running(bot(telegram), desk):
            await desk.received(1)


async def test_telegram_hundred_duplicates_have_one_id() -> None:
    async with TelegramServer() as telegram:
        desk = RecordingHandler()
        telegram.say("hello")
        telegram.redeliver(*telegram.acts.updates * 99, renumbered=True)
        async with running(bot(telegram), desk):
            await desk.received(100)
        assert len(set(desk.ids)) == 1


async def test_telegram_unordered_updates_survive_stop_in_the_middle() -> None:
    class Full(RecordingHandler):
        async def __call__(self, *args: Any, **named: Any) -> None:
            if len(self.got) == 2:
                raise StoreError("no room")
            await super().__call__(*args, **named)

    async with TelegramServer() as telegram:
        for number in range(5):
            telegram.say(f"{number}")
        telegram.world.pending.reverse()
        full = Full()
        with pytest.raises(StoreError):
            await bot(telegram).run(full)
        desk = RecordingHandler(kept=full.kept)
        async with running(bot(telegram), desk):
            await desk.received(3)
        assert full.texts + desk.texts == list("01234")


async def test_telegram_unordered_updates_are_all_received() -> None:
    async with TelegramServer() as telegram:
        desk = RecordingHandler()
        for number in range(5):
            telegram.say(f"{number}")
        telegram.world.pending.reverse()
        async with running(bot(telegram), desk):
            await desk.received(5)
            await telegram.until_heard()
        assert sorted(one.text for one in desk.got) == list("01234")
        assert not telegram.world.pending


async def test_telegram_malformed_updates_are_skipped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    async with TelegramServer() as telegram:
        desk = RecordingHandler()
        wrong: list[Json] = [None, 5, "text", [], {}, {"chat": None}, {"message_id": "x"}]
        numbers = [telegram.acts.deliver(message=one) for one in wrong]
        telegram.acts.deliver(callback_query={"id": 5}, message=None)
        telegram.acts.deliver(my_chat_member={"chat": {}})
        telegram.acts.deliver()
        bad = {"ok": True, "result": [None, 7, {"update_id": "x"}, {"update_id": 5}]}
        telegram.trouble("getUpdates", status=200, told=bad)
        telegram.say("hello")
        async with running(bot(telegram), desk):
            await desk.received(1)
            await telegram.until_asked("getUpdates", 3)
        assert desk.got[0].text == "hello" and not telegram.world.pending
        assert f"update {numbers[-1]} is passed over" in caplog.text


async def test_telegram_update_with_two_payloads_breaks_nothing() -> None:
    async with TelegramServer() as telegram:
        desk = RecordingHandler()
        said = telegram.say("hello")
        telegram.world.pending.clear()
        telegram.acts.deliver(message=said, message_reaction={}, callback_query={"id": "1"})
        async with running(bot(telegram, reactionNotifications="own"), desk):
            await desk.received(1)
            await telegram.until_heard()


async def test_telegram_migrated_group_is_written_to_under_new_id(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with TelegramServer() as telegram:
        telegram.world.chat(-77, "group", "Old")
        telegram.world.chat(-10077)
        telegram.say(chat=-77, migrate_to_chat_id=-10077)
        channel = bot(telegram)
        async with running(channel, RecordingHandler()):
            await telegram.until_heard()
            await send(channel, "hi", chat=-77)
        assert telegram.sent(-10077)[0]["text"] == "hi"
    assert "-77 is -10077 now" in caplog.text


async def test_telegram_server_without_long_poll_is_not_hammered() -> None:
    async with TelegramServer() as telegram:
        clock, desk = FakeClock(patient=False), RecordingHandler()
        telegram.trouble("getUpdates", status=200, told={"ok": True, "result": []}, times=5)
        async with running(bot(telegram, clock=clock), desk):
            await telegram.until_asked("getUpdates", 6)
        assert clock.slept == [1.0] * 5


async def test_telegram_update_ids_may_restart_after_a_week() -> None:
    async with TelegramServer() as telegram:
        clock, desk = FakeClock(patient=False), RecordingHandler()
        telegram.say("hello")
        async with running(bot(telegram, clock=clock), desk):
            await telegram.until_asked("getUpdates", 2)
            # The waiting poll gets an empty response, a week later.
            await clock.sleep(7 * 24 * 3600)
            telegram.feed.end_wait()
            third = (await telegram.until_asked("getUpdates", 3))[2]
        assert "offset" not in third


async def test_telegram_server_with_restarted_update_ids_is_followed() -> None:
    async with TelegramServer() as telegram:
        desk = RecordingHandler(kept={"offset": 10**12})
        update = {"update_id": 5, "message": telegram.say("hello")}
        telegram.world.pending.clear()
        telegram.trouble("getUpdates", status=200, told={"ok": True, "result": [update]})
        async with running(bot(telegram), desk):
            polls = await telegram.until_asked("getUpdates", 2)
        assert [one["offset"] for one in polls] == [10**12, 6]
        assert desk.kept is not None and desk.kept["offset"] == 6


async def test_telegram_updates_without_id_cause_no_poll_storm() -> None:
    async with TelegramServer() as telegram:
        telegram.trouble("getUpdates", status=200, told={"ok": True, "result": [{}, None]})
        with pytest.raises(ChannelError, match="no number"):
            await bot(telegram).run(RecordingHandler())


@pytest.mark.parametrize("result", [None, {}, "updates", 5])
async def test_telegram_response_without_update_list_raises_error(result: Json) -> None:
    async with TelegramServer() as telegram:
        telegram.trouble("getUpdates", status=200, told={"ok": True, "result": result})
        with pytest.raises(ChannelError):
            await bot(telegram).run(RecordingHandler())


async def test_telegram_conflict_of_two_pollers_is_explained() -> None:
    async with TelegramServer() as telegram:
        told, ended = list[str](), asyncio.Event()

        async def polls() -> None:
            try:
                await bot(telegram).run(RecordingHandler())
            except ChannelError as exc:
                told.append(str(exc))
                ended.set()

        async with asyncio.TaskGroup() as group:
            group.create_task(polls())
            await telegram.until_asked("getUpdates")
            second = group.create_task(polls())
            async with asyncio.timeout(WAIT_S):
                await ended.wait()
            second.cancel()
        assert "another program polls with this token" in told[0]


@pytest.mark.parametrize("token", ["700000001:wrong", "7:x"])
async def test_telegram_unknown_token_stops_channel(token: str) -> None:
    async with TelegramServer() as telegram:
        with pytest.raises(ChannelAuthError) as caught:
            await bot(telegram, botToken=token).run(RecordingHandler())
        assert token not in str(caught.value)


async def test_telegram_not_found_at_first_call_is_wrong_token() -> None:
    async with TelegramServer() as telegram:
        telegram.trouble("getMe", status=404, words="Not Found")
        with pytest.raises(ChannelAuthError):
            await bot(telegram).run(RecordingHandler())


async def test_telegram_foreign_webhook_is_deleted_before_polling() -> None:
    async with TelegramServer() as telegram, asyncio.TaskGroup() as group:
        telegram.feed.set_webhook({"url": "https://elsewhere.example/x"}, group)
        desk = RecordingHandler()
        async with running(bot(telegram), desk):
            await telegram.until_asked("getUpdates")
            telegram.say("hello")
            await desk.received(1)


@pytest.mark.parametrize(
    "trouble",
    [
        {"status": 502},
        {"status": 502, "page": True},
        {"status": 0},
        {"status": 429, "retry_after": 5},
    ],
)
async def test_telegram_failed_poll_ends_run_for_restart(
    trouble: dict[str, Json],
) -> None:
    async with TelegramServer() as telegram:
        telegram.trouble("getUpdates", **trouble)
        with pytest.raises(ChannelError) as caught:
            await bot(telegram).run(RecordingHandler())
        assert not isinstance(caught.value, ChannelAuthError)
        assert telegram.token not in str(caught.value)


async def test_telegram_unreachable_server_error_hides_token() -> None:
    async with TelegramServer() as telegram:
        channel = bot(telegram)
    with pytest.raises(SendError) as caught:
        await channel.run(RecordingHandler())
    assert caught.value.retryable and telegram.token not in str(caught.value)
    assert telegram.token not in repr(channel) + repr(channel._settings) + repr(channel._context)


# Commands


async def test_telegram_commands_are_listed_once_as_allowed() -> None:
    async with TelegramServer() as telegram:
        custom: list[Json] = [
            {"command": "/Backup", "description": "Save  everything"},
            {"command": "new", "description": "not ours"},
            {"command": "nö", "description": "no"},
        ]
        listed = {"new": "Start anew", "dock-telegram": "Dock", "empty": ""}
        ours = tuple(NativeCommand(*command) for command in listed.items())
        channel = bot(telegram, commands=ours, customCommands=custom)
        desk = RecordingHandler()
        async with running(channel, desk):
            await telegram.until_called("deleteWebhook")
        assert telegram.world.commands == [
            {"command": "new", "description": "Start anew"},
            {"command": "dock_telegram", "description": "Dock"},
            {"command": "backup", "description": "Save everything"},
        ]
        async with running(channel, desk):
            await telegram.until_called("deleteWebhook", 2)
        assert len(telegram.books.of("setMyCommands")) == 1


@pytest.mark.parametrize("setting", [True, False, "auto"])
async def test_telegram_lists_skills_last_and_up_to_its_limit(
    setting: bool | str, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[object] = []

    def list_skills(wanted: object) -> tuple[NativeCommand, ...]:
        asked.append(wanted)
        return tuple(NativeCommand(f"skill_{number}", "About it") for number in range(120))

    async with TelegramServer() as telegram:
        settings = {"botToken": telegram.token, "apiRoot": telegram.url}
        said = TelegramSettings.read({**settings, "commands": {"nativeSkills": setting}})
        place = ChannelContext(
            "telegram", "default", SystemClock(), (NativeCommand("new", "x"),), list_skills
        )
        async with running(create(place, said), RecordingHandler()):
            await telegram.until_called("deleteWebhook")
        names = [each["command"] for each in telegram.world.commands]
    assert asked == [setting] and len(names) == 100
    assert names[:2] == ["new", "skill_0"] and "skill_119" in caplog.text


async def test_telegram_unwanted_commands_are_deleted() -> None:
    async with TelegramServer() as telegram:
        telegram.world.commands = [{"command": "old", "description": "old"}]
        settings = {"botToken": telegram.token, "apiRoot": telegram.url}
        said = TelegramSettings.read({**settings, "commands": {"native": False}})
        place = ChannelContext("telegram", "default", SystemClock(), (NativeCommand("new", "x"),))
        async with running(create(place, said), RecordingHandler()):
            await telegram.until_called("deleteWebhook")
        assert telegram.world.commands == []


async def test_telegram_refused_command_list_does_not_stop_channel(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with TelegramServer(without=("setMyCommands",)) as telegram:
        desk = RecordingHandler()
        telegram.say("hello")
        async with running(bot(telegram, commands=(NativeCommand("new", "x"),)), desk):
            await desk.received(1)
    assert "does not list our commands" in caplog.text


# Buttons and reactions


@pytest.mark.parametrize("leaves", [False, True])
async def test_telegram_button_press_is_received_and_answered(leaves: bool) -> None:
    async with TelegramServer() as telegram:
        desk, channel = RecordingHandler(leaves=leaves), bot(telegram)
        telegram.say("hello")
        async with running(channel, desk):
            await desk.received(1)
            receipt = await send(channel, "shall I?", buttons=((Button("Yes", "do:it"),),))
            press = telegram.press(ADA, int(receipt.message_id), "do:it")
            await desk.received(2)
            await telegram.until_called("answerCallbackQuery")
        assert desk.got[1].text == "Yes" and desk.got[1].id == f"callback:{press}"
        assert telegram.world.queries == {press: True}


async def test_telegram_button_press_answer_failure_still_stores_press() -> None:
    async with TelegramServer() as telegram:
        desk, channel = RecordingHandler(), bot(telegram)
        telegram.say("hello")
        telegram.trouble("answerCallbackQuery", status=400, words="Bad Request: query is too old")
        async with running(channel, desk):
            await desk.received(1)
            receipt = await send(channel, "shall I?", buttons=((Button("Yes", "y"),),))
            telegram.press(ADA, int(receipt.message_id), "y")
            await desk.received(2)
            telegram.say("still here")
            await desk.received(3)


def test_telegram_reactions_are_received_as_configured() -> None:
    async def main(wanted: str) -> list[str]:
        async with TelegramServer() as telegram:
            desk, channel = RecordingHandler(), bot(telegram, reactionNotifications=wanted)
            theirs = telegram.say("hello", chat=GROUP)
            async with running(channel, desk):
                await desk.received(1)
                ours = await send(channel, "hi", chat=GROUP)
                telegram.react(GROUP, theirs["message_id"], "🔥")
                telegram.react(GROUP, int(ours.message_id), "👍")
                telegram.say("the end", chat=GROUP)
                await desk.received(2)
            reactions = [one for one in desk.events if isinstance(one, ReactionChanged)]
            return [
                f"{one.added} {one.message_id} {one.metadata.replies_to_us}" for one in reactions
            ]

    fire, thumb = "('🔥',) 1 False", "('👍',) 2 True"
    assert asyncio.run(main("off")) == []
    assert asyncio.run(main("own")) == [thumb]
    assert asyncio.run(main("all")) == [fire, thumb]


# The webhook


def hooked(telegram: TelegramServer, **said: Json) -> TelegramChannel:
    return bot(telegram, webhookUrl=f"{PUBLIC}/tg", webhookSecret=SECRET, **said)


@asynccontextmanager
async def door(channel: TelegramChannel) -> AsyncIterator[str]:
    """Handle a request for the channel's path as the gateway does."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await read_request(reader)
        assert request is not None
        _, path, headers, body = request
        webhook = WebhookRequest("POST", path, headers=headers, body=body)
        known = path == channel.path and channel.verify_request(webhook)
        response = await channel.handle_webhook(webhook) if known else WebhookResponse(401)
        await write_whole(writer, response.status, b"")

    async with StreamServer(talk, "127.0.0.1", 0) as server:
        yield server.url


async def test_telegram_webhook_stores_message_before_response() -> None:
    async with TelegramServer() as telegram:
        channel, desk = (
            hooked(telegram),
            RecordingHandler(StoreError("no room"), StoreError("no room")),
        )
        async with door(channel) as url:
            telegram.hosts[PUBLIC] = url
            async with running(channel, desk):
                await telegram.until_called("setWebhook")
                telegram.say("hello")
                await desk.received(1)
                await telegram.until_heard()
        assert [one.status for one in telegram.books.pushes] == [503, 503, 200]
        assert desk.got[0].id == f"{ADA}:1" and desk.kept is None
        assert not telegram.books.of("getUpdates")


async def test_telegram_webhook_and_poll_give_same_message_id() -> None:
    async with TelegramServer() as telegram:
        channel, desk = hooked(telegram), RecordingHandler()
        async with door(channel) as url:
            telegram.hosts[PUBLIC] = url
            async with running(channel, desk):
                await telegram.until_called("setWebhook")
                telegram.say("hello")
                telegram.redeliver(*telegram.acts.updates)
                await desk.received(2)
        telegram.redeliver(*telegram.acts.updates)
        async with running(bot(telegram), desk):
            await desk.received(3)
        assert len(set(desk.ids)) == 1


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {SECRET_HEADER: ""},
        {SECRET_HEADER: SECRET[:-1]},
        {SECRET_HEADER: SECRET + "x"},
        {SECRET_HEADER: SECRET.upper()},
        {SECRET_HEADER: "ſ" * 16},
        {"authorization": SECRET},
    ],
)
async def test_telegram_webhook_without_secret_is_refused(headers: dict[str, str]) -> None:
    async with TelegramServer() as telegram:
        channel, desk = hooked(telegram), RecordingHandler()
        async with running(channel, desk):
            await telegram.until_called("setWebhook")
            body = json.dumps({"update_id": 1, "message": telegram.say("x")}).encode()
            webhook = WebhookRequest("POST", channel.path, headers=headers, body=body)
            assert not channel.verify_request(webhook)
            assert (await channel.handle_webhook(webhook)).status == 401
        assert not desk.got


async def test_telegram_polling_bot_refuses_webhooks() -> None:
    async with TelegramServer() as telegram:
        channel = bot(telegram)
        empty, right = (
            WebhookRequest("POST", "", headers={SECRET_HEADER: secret}) for secret in ("", SECRET)
        )
        assert channel.path == "" and not channel.verify_request(empty)
        assert not bot(telegram, webhookSecret=SECRET).verify_request(right)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"[]", 400),
        (b"null", 400),
        (b"[" * 200_000, 400),
        (b"\xff\xfe", 400),
        (b"{}", 200),
        (b'{"update_id": 1, "message": {"chat": 5}}', 200),
        (b'{"update_id": 1, "poll": {}}', 200),
    ],
)
async def test_telegram_webhook_any_body_is_answered(body: bytes, status: int) -> None:
    async with TelegramServer() as telegram:
        channel = hooked(telegram)
        headers = {SECRET_HEADER: SECRET}
        webhook = WebhookRequest("POST", channel.path, headers=headers, body=body)
        assert (await channel.handle_webhook(webhook)).status == 503  # it does not run yet
        async with running(channel, RecordingHandler()):
            await telegram.until_called("setWebhook")
            assert (await channel.handle_webhook(webhook)).status == status


async def test_telegram_refused_webhook_address_is_explained() -> None:
    async with TelegramServer() as telegram:
        plain = bot(telegram, webhookUrl="http://bot.example", webhookSecret=SECRET)
        with pytest.raises(ChannelError, match="must be https"):
            await plain.run(RecordingHandler())


# Files


async def test_telegram_file_is_fetched() -> None:
    async with TelegramServer() as telegram:
        desk, channel = RecordingHandler(), bot(telegram)
        content = bytes(range(256)) * 64
        telegram.attach("document", content, name="täst ä#?.bin")
        async with running(channel, desk):
            await desk.received(1)
            media = desk.got[0].media[0]
            assert (media.name, media.size) == ("täst ä#?.bin", len(content))
            assert await channel.fetch(media, 1_000_000) == content
            with pytest.raises(MediaTooLargeError):
                await channel.fetch(media, 100)
            assert len(telegram.books.of("getFile")) == 1
            unsized = Media(media.kind, ref=media.ref)
            with pytest.raises(MediaTooLargeError):
                await channel.fetch(unsized, 100)
            with pytest.raises(ChannelError):
                await channel.fetch(Media(ref="nothing"), 100)


async def test_telegram_file_over_limit_is_refused_before_or_by_server() -> None:
    async with TelegramServer() as telegram:
        theirs = bot(telegram, apiRoot="https://api.telegram.org")
        with pytest.raises(MediaTooLargeError):
            await theirs.fetch(Media(ref="x", size=21 * 1024 * 1024), 10**9)
        big = telegram.world.add_file(b"x" * (21 * 1024 * 1024), "documents/{number}")
        with pytest.raises(MediaTooLargeError):
            await bot(telegram).fetch(Media(ref=big.id), 10**9)


@pytest.mark.parametrize("path", ["/var/lib/x", "../../bot/getMe", "a/../b", "", 5])
async def test_telegram_file_path_that_is_invalid_is_not_fetched(path: Json) -> None:
    async with TelegramServer() as telegram:
        told = {"ok": True, "result": {"file_id": "x", "file_path": path}}
        telegram.trouble("getFile", status=200, told=told)
        with pytest.raises(ChannelError):
            await bot(telegram).fetch(Media(ref="x"), 100)


# Health, and features


async def test_telegram_probe_returns_name_and_closes_connection() -> None:
    async with TelegramServer() as telegram:
        assert await bot(telegram).probe() == "@lobster_bot"
        with pytest.raises(ChannelAuthError):
            await bot(telegram, botToken="1:wrong").probe()
        telegram.trouble("getMe", status=200, told={"ok": True, "result": None})
        with pytest.raises(ChannelError):
            await bot(telegram).probe()


async def test_telegram_proxy_of_config_is_used() -> None:
    asked = list[str]()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await read_request(reader)
        assert request is not None
        asked.append(request[1])
        told = {"ok": True, "result": {"id": 1, "username": "behind_bot"}}
        await write_whole(writer, 200, json.dumps(told).encode())

    async with TelegramServer() as telegram, StreamServer(talk, "127.0.0.1", 0) as proxy:
        channel = bot(telegram, apiRoot="http://telegram.example", proxy=proxy.url)
        assert await channel.probe() == "@behind_bot"
        assert asked == [f"http://telegram.example/bot{telegram.token}/getMe"]


async def test_telegram_supports_all_features() -> None:
    async with TelegramServer() as telegram:
        channel = bot(telegram)
        for kind in (
            CanType,
            SupportsDrafts,
            SupportsEdit,
            SupportsDelete,
            SupportsReactions,
            SupportsMediaFetch,
            SupportsProbe,
            SupportsWebhook,
        ):
            assert isinstance(channel, kind)
        able = channel.capabilities
        assert (able.text_limit, able.unit, able.dialect) == (4_000, "utf16", "telegram")
        assert (able.caption_limit, able.media_max_bytes) == (1_024, 50 * 1024 * 1024)
        assert (able.retry.attempts, able.retry.min_delay_s, able.retry.max_delay_s) == (
            3,
            0.4,
            30.0,
        )
        assert not able.idempotent


async def test_telegram_token_of_file_or_environment_is_found(tmp_path: Path) -> None:
    async with TelegramServer() as telegram:
        file = tmp_path / "token"
        file.write_text(f"{telegram.token}\n")
        file.chmod(0o600)
        said = TelegramSettings.read({"tokenFile": str(file), "apiRoot": telegram.url})
        assert await create(ChannelContext("telegram", "a", SystemClock()), said).probe()
        env = {"TELEGRAM_BOT_TOKEN": telegram.token}
        said = TelegramSettings.read({"apiRoot": telegram.url})
        place = ChannelContext("telegram", "default", SystemClock(), env=env)
        assert await create(place, said).probe()


async def test_telegram_typing_is_shown_in_chat_and_topic() -> None:
    async with TelegramServer() as telegram:
        telegram.say("hi", chat=GROUP, thread=42)
        telegram.world.chats[GROUP].shown["is_forum"] = True
        channel = bot(telegram)
        for thread in ("42", "1", None):
            await channel.show_typing(to(GROUP, thread), on=True)
        await channel.show_typing(to(GROUP), on=False)
        shown = [one.get("message_thread_id") for one in telegram.world.actions]
        assert shown == [42, 1, None]


async def test_telegram_webhook_with_a_host_is_served_by_its_own_listener() -> None:
    events = []

    @asynccontextmanager
    async def serve(account: SupportsWebhook, address: tuple[str, int]) -> AsyncIterator[None]:
        events.append((account.path, address))
        yield
        events.append((account.path, ("closed", 0)))

    async with TelegramServer() as telegram:
        settings = TelegramSettings.read(
            {"botToken": telegram.token, "apiRoot": telegram.url, "webhookUrl": f"{PUBLIC}/tg",
             "webhookSecret": SECRET, "webhookHost": "127.0.0.2"}
        )  # fmt: skip
        context = ChannelContext("telegram", "default", SystemClock(), serve_webhook=serve)
        async with running(create(context, settings), RecordingHandler()):
            await telegram.until_asked("setWebhook")
        assert events[0] == ("/tg", ("127.0.0.2", 8787))
        without_gateway = create(ChannelContext("telegram", "a", SystemClock()), settings)
        with pytest.raises(ChannelError, match="received by a gateway"):
            await without_gateway.run(RecordingHandler())
