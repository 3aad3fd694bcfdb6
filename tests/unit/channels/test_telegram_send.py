"""Sending: calls, fallbacks after a refusal, and the meaning of errors."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from homarus.channels.base import SupportsPolls
from homarus.channels.telegram import api
from homarus.core.errors import ChannelAuthError, ChannelError, SendError
from homarus.core.message import Address, Button, Json, Media, MediaKind, Outbound, Poll
from homarus.testing.telegram_server import ADA, GROUP, TelegramServer
from tests.unit.channels.telegram_stage import bot, send, to


@asynccontextmanager
async def at_work(**said: Json) -> AsyncIterator[Any]:
    """Run a body with a private chat, a group, and a bot that may write there."""
    known: dict[str, Any] = {"server": said.pop("server", {})}
    async with TelegramServer(**known["server"]) as telegram:
        telegram.say("hello")
        telegram.say("hello all", chat=GROUP)
        yield telegram, bot(telegram, **said)


# Text


async def test_send_text_arrives_with_markup_and_receipt() -> None:
    async with at_work() as (telegram, channel):
        receipt = await send(channel, "a <b>bold</b> &lt;word&gt; <pre><code>x</code></pre>")
        (sent,) = telegram.sent(ADA)
        assert receipt.message_id == str(sent["message_id"])
        assert sent["text"] == "a bold <word> x"
        assert [one["type"] for one in sent["entities"]] == ["bold", "pre"]
        (call,) = telegram.books.of("sendMessage")
        assert call.params == {
            "chat_id": ADA,
            "text": "a <b>bold</b> &lt;word&gt; <pre><code>x</code></pre>",
            "parse_mode": "HTML",
        }


async def test_send_reply_accepts_both_forms_of_message_id() -> None:
    async with at_work() as (telegram, channel):
        for id_ in ("1", f"{ADA}:1", f"{ADA}:1:1780000000", "999", "callback:7", "-5:1"):
            await send(channel, "yes", reply_to=id_)
        answered = [one.get("reply_to_message", {}).get("message_id") for one in telegram.sent(ADA)]
        assert answered == [1, 1, 1, None, None, None]


async def test_send_silent_without_link_preview() -> None:
    async with at_work(linkPreview=False) as (telegram, channel):
        await send(channel, "hi", silent=True)
        (call,) = telegram.books.of("sendMessage")
        assert call.params["disable_notification"] is True
        assert call.params["link_preview_options"] == {"is_disabled": True}


async def test_send_topic_is_named_except_general() -> None:
    async with at_work() as (telegram, channel):
        telegram.say("hi", chat=GROUP, thread=42)
        await send(channel, "there", chat=GROUP, thread="42")
        await send(channel, "here", chat=GROUP, thread="1")
        threads = [one.get("message_thread_id") for one in telegram.sent(GROUP)]
        assert threads == [42, None]
        with pytest.raises(SendError, match="topic is gone") as caught:
            await send(channel, "nowhere", chat=GROUP, thread="43")
        assert not caught.value.retryable
        with pytest.raises(SendError, match="no topic"):
            await send(channel, "nowhere", chat=GROUP, thread="x")


async def test_send_public_channel_is_addressed_by_name() -> None:
    async with at_work() as (telegram, channel):
        telegram.world.chat(-1009, "channel", "News").shown["username"] = "news"
        await channel.send(Outbound(Address("telegram", "@news"), "hi"))
        assert telegram.sent(-1009)[0]["text"] == "hi"


@pytest.mark.parametrize("chat", ["", "ada", "@", "1e5", "٣", "-", "9" * 30])
async def test_send_invalid_chat_is_refused_without_call(chat: str) -> None:
    async with at_work() as (telegram, channel):
        with pytest.raises(SendError) as caught:
            await channel.send(Outbound(Address("telegram", chat), "hi"))
        assert not caught.value.retryable and not telegram.books.calls


# Buttons


async def test_send_buttons_are_in_rows_and_invalid_ones_dropped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with at_work() as (telegram, channel):
        fits, over = "ä" * 32, "ä" * 32 + "x"
        rows = (
            (Button("Yes", "y"), Button("Long", fits)),
            (Button("Too long", over), Button("", "x"), Button("Empty", "")),
        )
        await send(channel, "?", buttons=rows)
        await send(channel, "?", buttons=(rows[1],))
        first, second = telegram.sent(ADA)
        assert first["reply_markup"]["inline_keyboard"] == [
            [{"text": "Yes", "callback_data": "y"}, {"text": "Long", "callback_data": fits}]
        ]
        assert "reply_markup" not in second
    assert "left out" in caplog.text


@pytest.mark.parametrize(
    ("features", "private", "group"),
    [
        ({"inlineButtons": "off"}, False, False),
        ({"inlineButtons": "dm"}, True, False),
        ({"inlineButtons": "group"}, False, True),
        ({"inlineButtons": "all"}, True, True),
        ({"inlineButtons": "allowlist"}, True, True),
        ({}, True, True),
        (["inlineButtons"], True, True),
        ([], False, False),
    ],
)
async def test_send_buttons_are_shown_where_configured(
    features: Json, private: bool, group: bool
) -> None:
    async with at_work(capabilities=features) as (telegram, channel):
        for chat in (ADA, GROUP):
            await send(channel, "?", chat=chat, buttons=((Button("Yes", "y"),),))
        assert ("reply_markup" in telegram.sent(ADA)[0]) is private
        assert ("reply_markup" in telegram.sent(GROUP)[0]) is group


# Fallbacks after a refusal


async def test_send_unparsable_markup_is_resent_once_as_plain_text() -> None:
    async with at_work() as (telegram, channel):
        await send(channel, "a <b>bold</b> <blink>&lt;word&gt;</blink> & more")
        (sent,) = telegram.sent(ADA)
        assert "parse_mode" not in telegram.books.of("sendMessage")[1].params
        assert "bold" in sent["text"] and "<b>" not in sent["text"] and "&lt;" not in sent["text"]
        assert [one.status for one in telegram.books.of("sendMessage")] == [400, 200]


async def test_send_text_refused_twice_fails_permanently() -> None:
    async with at_work() as (telegram, channel):
        words = "Bad Request: can't parse entities: whatever"
        telegram.trouble("sendMessage", status=400, words=words, times=5)
        with pytest.raises(SendError) as caught:
            await send(channel, "hi")
        assert not caught.value.retryable and len(telegram.books.of("sendMessage")) == 2


async def test_send_migrated_group_uses_new_id(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with at_work() as (telegram, channel):
        telegram.world.chat(-77, "group", "Old")
        telegram.acts.upgrade(-77, -10077)
        await send(channel, "one", chat=-77)
        await send(channel, "two", chat=-77)
        assert [one["text"] for one in telegram.sent(-10077)] == ["one", "two"]
        assert len(telegram.books.of("sendMessage")) == 3
        await channel.show_typing(to(-77), on=True)
        assert telegram.world.actions[0]["chat_id"] == -10077
    assert "-77" in caplog.text and "-10077" in caplog.text


# Errors


@pytest.mark.parametrize(
    ("trouble", "retryable", "after_s"),
    [
        ({"status": 429, "retry_after": 7}, True, 7.0),
        ({"status": 429}, True, None),
        ({"status": 403, "page": True}, True, None),
        ({"status": 413, "page": True}, False, None),
        ({"status": 400, "words": "Bad Request: message is too long"}, False, None),
    ],
)
async def test_send_refusal_says_whether_retry_is_useful(
    trouble: dict[str, Json], retryable: bool, after_s: float | None
) -> None:
    async with at_work() as (telegram, channel):
        telegram.trouble("sendMessage", **trouble)
        with pytest.raises(SendError) as caught:
            await send(channel, "hi")
        assert (caught.value.retryable, caught.value.after_s) == (retryable, after_s)
        assert len(telegram.books.of("sendMessage")) == 1 and not telegram.sent(ADA)


@pytest.mark.parametrize("taken", [True, False])
@pytest.mark.parametrize("trouble", [{"status": 500}, {"status": 502, "page": True}, {"status": 0}])
async def test_send_without_response_leaves_outcome_unknown(
    trouble: dict[str, Json], taken: bool
) -> None:
    async with at_work() as (telegram, channel):
        telegram.trouble("sendMessage", taken=taken, **trouble)
        with pytest.raises(ChannelError) as caught:
            await send(channel, "hi")
        assert not isinstance(caught.value, SendError)
        assert len(telegram.books.of("sendMessage")) == 1
        assert len(telegram.sent(ADA)) == taken


async def test_send_timeout_leaves_outcome_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(api, "MIN_RESPONSE_S", 0.0)
    async with at_work(timeoutSeconds=1) as (telegram, channel):
        telegram.trouble("sendMessage", taken=True, wait_s=30.0, status=200)
        with pytest.raises(ChannelError, match="within 1 s") as caught:
            await send(channel, "hi")
        assert not isinstance(caught.value, SendError)


async def test_send_unreachable_server_is_retryable() -> None:
    async with TelegramServer() as telegram:
        channel = bot(telegram)
    with pytest.raises(SendError) as caught:
        await send(channel, "hi")
    assert caught.value.retryable


async def test_send_revoked_token_stops_channel() -> None:
    async with at_work() as (telegram, channel):
        telegram.token = "700000001:another"
        with pytest.raises(ChannelAuthError):
            await send(channel, "hi")


@pytest.mark.parametrize(
    ("words", "fix"),
    [
        ("bot was blocked by the user", "unblock"),
        ("bot can't initiate conversation with a user", "write to the bot first"),
        ("bot was kicked from the supergroup chat", "add the bot"),
        ("user is deactivated", "gone"),
    ],
)
async def test_send_blocked_by_user_is_explained(words: str, fix: str) -> None:
    async with at_work() as (telegram, channel):
        telegram.acts.block(ADA, words)
        with pytest.raises(SendError) as caught:
            await send(channel, "hi")
        assert not caught.value.retryable and fix in caught.value.fix


async def test_send_unknown_chat_is_explained() -> None:
    async with at_work() as (_telegram, channel):
        with pytest.raises(SendError, match="chat not found") as caught:
            await send(channel, "hi", chat=404)
        assert not caught.value.retryable and "id" in caught.value.fix


async def test_send_errors_and_logs_hide_token(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    async with at_work() as (telegram, channel):
        for trouble in ({"status": 0}, {"status": 500}, {"status": 429}, {"status": 401}):
            telegram.trouble("sendMessage", **trouble)
            with pytest.raises(ChannelError) as caught:
                await send(channel, "<b")
            chain: BaseException | None = caught.value
            while chain:
                assert telegram.token not in repr(chain) + str(chain)
                chain = chain.__cause__ or chain.__context__
        await send(channel, "<b")
        assert telegram.token not in caplog.text


# Editing and deleting


async def test_edit_unchanged_message_is_no_error() -> None:
    async with at_work() as (telegram, channel):
        receipt = await send(channel, "one")
        await channel.edit(to(), receipt.message_id, "<i>two</i>")
        await channel.edit(to(), receipt.message_id, "<i>two</i>")
        again = await send(channel, "three", replaces=receipt.message_id)
        same = await send(channel, "three", replaces=f"{ADA}:{receipt.message_id}")
        assert receipt == again == same
        assert [one["text"] for one in telegram.sent(ADA)] == ["three"]
        with pytest.raises(SendError) as caught:
            await channel.edit(to(), "99", "x")
        assert not caught.value.retryable
        with pytest.raises(SendError):
            await channel.edit(to(), "callback:1", "x")


async def test_edit_unparsable_markup_falls_back_to_plain_text() -> None:
    async with at_work() as (telegram, channel):
        receipt = await send(channel, "one")
        await channel.edit(to(), receipt.message_id, "two <nothing>")
        assert telegram.sent(ADA)[0]["text"].startswith("two")


async def test_delete_missing_message_is_no_error() -> None:
    async with at_work() as (telegram, channel):
        receipt = await send(channel, "one")
        await channel.delete(to(), receipt.message_id)
        assert not telegram.sent(ADA)
        with pytest.raises(SendError):
            await channel.delete(to(), receipt.message_id)


async def test_react_sets_and_clears_and_rejects_unknown_emoji() -> None:
    async with at_work() as (telegram, channel):
        shown = telegram.world.chats[ADA].reactions
        await channel.react(to(), f"{ADA}:1", "👀")
        assert shown[1] == [{"type": "emoji", "emoji": "👀"}]
        await channel.react(to(), "1", "")
        assert shown[1] == []
        with pytest.raises(SendError, match="list of its own") as caught:
            await channel.react(to(), "1", "🦞")
        assert not caught.value.retryable


# Drafts


async def test_draft_uses_one_id_in_private_chats_only() -> None:
    async with at_work() as (telegram, channel):
        assert channel.can_draft(to()) and not channel.can_draft(to(GROUP))
        await channel.draft(to(), "run-1", "one")
        await channel.draft(to(), "run-1", "one <b>two</b>")
        await channel.draft(to(), "run-2", "broken <b>two")
        await channel.draft(to(GROUP), "run-1", "one")
        first, second, third = telegram.world.drafts
        assert first["draft_id"] == second["draft_id"] != third["draft_id"]
        assert [one["text"] for one in telegram.world.drafts[:2]] == ["one", "one two"]
        assert len(telegram.books.of("sendMessageDraft")) == 4


async def test_draft_unsupported_server_is_called_once() -> None:
    async with at_work(server={"without": ("sendMessageDraft",)}) as (telegram, channel):
        await channel.draft(to(), "run-1", "one")
        await channel.draft(to(), "run-1", "one two")
        telegram.say("hi", user=22)
        assert not channel.can_draft(to()) and not channel.can_draft(to(22))
        assert len(telegram.books.of("sendMessageDraft")) == 1


async def test_draft_rate_limit_has_retry_after() -> None:
    async with at_work() as (telegram, channel):
        telegram.trouble("sendMessageDraft", status=429, retry_after=3)
        with pytest.raises(SendError) as caught:
            await channel.draft(to(), "run-1", "one")
        assert caught.value.after_s == 3.0 and channel.can_draft(to())


# Files


PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256))


@pytest.mark.parametrize(
    ("kind", "name", "mime", "field"),
    [
        ("image", "a.png", "image/png", "photo"),
        ("image", "a.gif", "image/gif", "animation"),
        ("document", 'a "b".pdf', "application/pdf", "document"),
        ("audio", "a.mp3", "audio/mpeg", "audio"),
        ("voice", "a.ogg", "audio/ogg", "voice"),
        ("video", "a.mp4", "video/mp4", "video"),
    ],
)
async def test_send_file_uses_method_of_its_kind_with_caption(
    tmp_path: Path, kind: MediaKind, name: str, mime: str, field: str
) -> None:
    (tmp_path / "file").write_bytes(PNG)
    async with at_work() as (telegram, channel):
        media = Media(kind, mime, name, path=str(tmp_path / "file"))
        receipt = await send(channel, "see <b>this</b>", media=(media,), reply_to="1")
        (sent,) = telegram.sent(ADA)
        assert receipt.message_id == str(sent["message_id"]) and field in sent
        assert (sent["caption"], sent["caption_entities"][0]["type"]) == ("see this", "bold")
        assert sent["reply_to_message"]["message_id"] == 1
        assert [file.content for file in telegram.world.files.values()] == [PNG]


async def test_send_audio_as_voice_when_requested(tmp_path: Path) -> None:
    (tmp_path / "a.mp3").write_bytes(PNG)
    async with at_work() as (telegram, channel):
        media = Media("audio", "audio/mpeg", path=str(tmp_path / "a.mp3"))
        await send(channel, "", media=(media,), as_voice=True)
        words = "Bad Request: VOICE_MESSAGES_FORBIDDEN"
        telegram.trouble("sendVoice", status=400, words=words)
        await send(channel, "", media=(media,), as_voice=True)
        first, second = telegram.sent(ADA)
        assert "voice" in first and "audio" in second and second["audio"]["file_name"] == "a.mp3"


async def test_send_image_unsupported_as_photo_goes_as_document(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(PNG)
    (tmp_path / "big.png").write_bytes(PNG + bytes(10 * 1024 * 1024))
    async with at_work() as (telegram, channel):
        telegram.trouble("sendPhoto", status=400, words="Bad Request: PHOTO_INVALID_DIMENSIONS")
        for name in ("a.png", "big.png"):
            await send(channel, "see", media=(Media("image", path=str(tmp_path / name)),))
        assert all("document" in one for one in telegram.sent(ADA))
        assert len(telegram.books.of("sendPhoto")) == 1


async def test_send_file_known_to_telegram_is_sent_by_id() -> None:
    async with at_work() as (telegram, channel):
        file = telegram.world.add_file(PNG, "documents/{number}")
        await send(channel, "", media=(Media("document", ref=file.id),))
        assert telegram.sent(ADA)[0]["document"]["file_id"] == file.id


async def test_send_unparsable_caption_goes_as_plain_text(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(PNG)
    async with at_work() as (telegram, channel):
        await send(channel, "see <b>", media=(Media("image", path=str(tmp_path / "a.png")),))
        assert telegram.sent(ADA)[0]["caption"].startswith("see")


async def test_send_file_too_large_or_missing_fails_permanently(tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(bytes(1024 * 1024 + 1))
    async with at_work(mediaMaxMb=1) as (telegram, channel):
        for name in ("big", "missing", "."):
            with pytest.raises(SendError) as caught:
                await send(channel, "", media=(Media(path=str(tmp_path / name)),))
            assert not caught.value.retryable
        assert not telegram.books.calls


async def test_send_message_has_one_file() -> None:
    async with at_work() as (_telegram, channel):
        two = (Media(ref="a"), Media(ref="b"))
        for more in ({"media": two}, {"media": two[:1], "replaces": "1"}):
            with pytest.raises(SendError, match="one file"):
                await send(channel, "", **more)
        sticker = Media("sticker", ref="a")
        with pytest.raises(SendError, match="sticker"):
            await send(channel, "words", media=(sticker,))


# Polls


async def test_send_poll_arrives_as_a_poll() -> None:
    async with at_work() as (telegram, channel):
        poll = Poll("Lunch?", ("Pizza", "Soup"), is_multiple=True)
        receipt = await send(channel, "Lunch?", poll=poll, silent=True)
        (sent,) = telegram.sent(ADA)
        assert receipt.message_id == str(sent["message_id"])
        assert sent["poll"]["question"] == "Lunch?" and sent["poll"]["allows_multiple_answers"]
        assert [each["text"] for each in sent["poll"]["options"]] == ["Pizza", "Soup"]
        (call,) = telegram.books.of("sendPoll")
        assert call.params["disable_notification"] is True and "parse_mode" not in call.params


@pytest.mark.parametrize(
    "poll",
    [
        Poll("x" * 301, ("a", "b")),
        Poll("Lunch?", ("a",)),
        Poll("Lunch?", tuple(map(str, range(11)))),
        Poll("Lunch?", ("a", "b" * 101)),
        Poll("Lunch?", ("a", "b"), duration_s=3600),
    ],
)
async def test_poll_that_telegram_refuses_is_not_sent(poll: Poll) -> None:
    async with at_work() as (telegram, channel):
        assert isinstance(channel, SupportsPolls)
        with pytest.raises(SendError, match="refuses this poll") as caught:
            channel.check_poll(to(ADA), poll)
        assert not caught.value.retryable and not telegram.sent(ADA)
