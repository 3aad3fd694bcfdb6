"""Sending to Slack: calls, refusals, files, and what is looked up."""

import json
from pathlib import Path
from typing import Any

import pytest

from homarus.channels.base import TTL_MS
from homarus.channels.slack.api import SlackRefusedError
from homarus.channels.slack.outbound import MAX_SECTION_CHARS, make_blocks
from homarus.core.errors import ChannelAuthError, ChannelError, SendError
from homarus.core.message import Button, Extras, Media, Outbound
from homarus.store.journal import OutboxRecord
from homarus.testing.channel_contract import run_program
from homarus.testing.slack_server import ADA, GENERAL, SlackServer
from homarus.testing.slack_server.state import BOT_USER
from tests.unit.channels.slack_stage import DM, bot, send, to


async def test_slack_send_posts_text_with_key_and_without_previews() -> None:
    async with SlackServer() as slack:
        receipt = await send(bot(slack), "hello *you*", GENERAL, key="run-1:0")
        (call,) = slack.books.of("chat.postMessage")
        (sent,) = slack.sent(GENERAL)
    assert receipt.message_id == sent["ts"] and sent["text"] == "hello *you*"
    assert sent["metadata"] == {
        "event_type": "homarus_message", "event_payload": {"key": "run-1:0"},
    }  # fmt: skip
    assert call.params["unfurl_links"] == call.params["unfurl_media"] == "false"
    assert "thread_ts" not in call.params and "blocks" not in call.params


async def test_slack_send_to_person_opens_direct_chat_once_before_it_is_marked() -> None:
    async with SlackServer() as slack:
        channel, called = bot(slack), list[list[str]]()

        async def mark() -> None:
            called.append([call.method for call in slack.books.calls])

        for number in range(2):
            message = Outbound(to(f"user:{ADA}"), "hi", f"k{number}")
            await channel.send_marked(message, mark)
        assert len(slack.sent(DM)) == 2
    assert called == [["conversations.open"], ["conversations.open", "chat.postMessage"]]


@pytest.mark.parametrize(
    ("target", "chat"),
    [(f"channel:{GENERAL}", GENERAL), ("#general", GENERAL), ("#General", GENERAL), ("@ada", DM)],
)
async def test_slack_target_is_resolved_to_its_chat(target: str, chat: str) -> None:
    async with SlackServer() as slack:
        for number in range(250):
            slack.world.add_channel(f"C1{number}", f"other-{number}")
        general = slack.world.conversations.pop(GENERAL)
        slack.world.conversations[GENERAL] = general  # on the second page
        await send(bot(slack), "hi", target)
        assert len(slack.sent(chat)) == 1


@pytest.mark.parametrize("target", ["#nowhere", "@nobody", "general", "c0general", "#"])
async def test_slack_target_that_is_none_is_refused(target: str) -> None:
    async with SlackServer() as slack:
        with pytest.raises(SendError) as caught:
            await send(bot(slack), "hi", target)
    assert not caught.value.retryable and "#name" in caught.value.fix


async def test_slack_reply_goes_to_thread_of_chat_or_of_message() -> None:
    async with SlackServer() as slack:
        channel = bot(slack)
        said = await slack.say("question", GENERAL)
        await send(channel, "in thread", GENERAL, thread=said["ts"])
        await send(channel, "below", GENERAL, reply_to=f"{GENERAL}:{said['ts']}")
        await send(channel, "after a press", GENERAL, reply_to="press:x:y")
        threads = [message.get("thread_ts") for message in slack.sent(GENERAL)]
    assert threads == [said["ts"], said["ts"], None]


async def test_slack_thread_title_starts_thread_for_rest_of_reply() -> None:
    async with SlackServer() as slack:
        receipt = await send(bot(slack), "the first part", GENERAL, thread_title="Tide <!here>")
        (sent,) = slack.sent(GENERAL)
    assert receipt.thread_id == receipt.message_id == sent["ts"]
    assert sent["text"] == "*Tide &lt;!here&gt;*\nthe first part"


async def test_slack_invalid_thread_is_refused() -> None:
    async with SlackServer() as slack:
        with pytest.raises(SendError, match="no thread") as caught:
            await send(bot(slack), "hi", GENERAL, thread="topic")
        assert not caught.value.retryable and not slack.books.of("chat.postMessage")


async def test_slack_buttons_are_blocks_with_labels_and_values() -> None:
    rows = (
        (Button("Yes", "y"), Button("N" * 100, "n")),
        (Button("too much", "x" * 2001), Button("", "empty")),
        (Button("Later", "l"),),
    )
    async with SlackServer() as slack:
        await send(bot(slack), "Delete *it*?", GENERAL, buttons=rows)
        (sent,) = slack.sent(GENERAL)
    section, first, second = sent["blocks"]
    assert section["text"] == {"type": "mrkdwn", "text": "Delete *it*?", "verbatim": True}
    labels = [element["text"]["text"] for element in first["elements"] + second["elements"]]
    assert labels == ["Yes", "N" * 74 + "…", "Later"]
    assert [element["value"] for element in first["elements"]] == ["y", "n"]


def test_slack_long_text_with_buttons_is_cut_into_sections() -> None:
    text = "\n".join(f"line {number} " + "x" * 90 for number in range(40))
    blocks = make_blocks(text, ((Button("Yes", "y"),),))
    sections = [block["text"]["text"] for block in blocks[:-1]]
    assert len(sections) == 2 and all(len(one) <= MAX_SECTION_CHARS for one in sections)
    assert "\n".join(sections) == text


@pytest.mark.parametrize(
    ("fault", "kind", "retryable", "after_s"),
    [
        ({"status": 429, "retry_after": 7}, SendError, True, 7.0),
        ({"status": 429}, SendError, True, None),
        ({"error": "service_unavailable"}, SendError, True, None),
        ({"error": "msg_too_long"}, SlackRefusedError, False, None),
        ({"error": "not_in_channel"}, SlackRefusedError, False, None),
        ({"error": "missing_scope"}, SlackRefusedError, False, None),
        ({"error": "invalid_auth"}, ChannelAuthError, None, None),
        ({"error": "token_revoked"}, ChannelAuthError, None, None),
        ({"error": "account_inactive"}, ChannelAuthError, None, None),
        ({"error": "internal_error"}, ChannelError, None, None),
        ({"status": 500, "taken": True}, ChannelError, None, None),
        ({"status": 404}, SendError, True, None),
        ({"status": 0, "taken": True}, ChannelError, None, None),
    ],
    ids=str,
)
async def test_slack_errors_map_to_send_outcomes(
    fault: dict[str, Any], kind: type[Exception], retryable: bool | None, after_s: float | None
) -> None:
    async with SlackServer() as slack:
        slack.trouble("chat.postMessage", **fault)
        with pytest.raises(ChannelError) as caught:
            await send(bot(slack), "hi", GENERAL)
    assert type(caught.value) is kind
    assert getattr(caught.value, "retryable", None) is retryable
    assert getattr(caught.value, "after_s", None) == after_s
    assert "xoxb" not in str(caught.value)
    if kind is SlackRefusedError and fault["error"] != "msg_too_long":
        assert "invite" in str(caught.value) or "scope" in str(caught.value)


async def test_slack_unreachable_server_is_tried_again() -> None:
    with pytest.raises(SendError) as caught:
        await send(bot(SlackServer(port=9)), "hi", GENERAL)
    assert caught.value.retryable


@pytest.mark.parametrize("thread", [None, "root"])
async def test_slack_lookup_finds_message_by_key_in_chat_or_thread(thread: str | None) -> None:
    async with SlackServer() as slack:
        channel = bot(slack)
        root = await slack.say("question", GENERAL)
        ts = root["ts"] if thread else None
        receipt = await send(channel, "answer", GENERAL, thread=ts, key="run:0")
        for number in range(250):  # it is on a later page
            await slack.say(f"more {number}", GENERAL, thread=ts or "")
        same = Outbound(to(GENERAL, ts), "answer", "run:0")
        assert await channel.look_up(same) == receipt
        assert await channel.look_up(Outbound(to(GENERAL, ts), "answer", "run:1")) is None
        person = next(one for one in slack.world.conversations[GENERAL].messages.values())
        person["metadata"] = {"event_type": "other", "event_payload": {"key": "run:2"}}
        assert await channel.look_up(Outbound(to(GENERAL, ts), "x", "run:2")) is None


async def test_slack_lookup_reads_one_day_with_metadata() -> None:
    async with SlackServer() as slack:
        await bot(slack).look_up(Outbound(to(GENERAL), "x", "k"))
        (call,) = slack.books.of("conversations.history")
        now_s = float(slack.world.next_ts())
    assert call.params["include_all_metadata"] == "true"
    assert abs(now_s - float(call.params["oldest"]) - TTL_MS / 1000) < 60


async def test_slack_lookup_among_too_many_messages_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("homarus.channels.slack.sender.PAGE", 2)
    monkeypatch.setattr("homarus.channels.slack.sender.MAX_PAGES", 2)
    async with SlackServer() as slack:
        channel = bot(slack)
        await send(channel, "mine", GENERAL)
        for number in range(4):
            await slack.say(f"theirs {number}", GENERAL)
        with pytest.raises(SendError, match="more than 4 messages") as caught:
            await channel.look_up(Outbound(to(GENERAL), "mine", "key-1"))
        assert not caught.value.retryable  # a second message would be worse


@pytest.mark.parametrize("taken", [True, False])
@pytest.mark.parametrize("status", [500, 0])
async def test_slack_unknown_delivery_is_looked_up_and_sent_once(taken: bool, status: int) -> None:
    async with SlackServer() as slack:
        slack.trouble("chat.postMessage", status=status, taken=taken)
        async with run_program(bot(slack)) as program:
            await slack.until_connected()
            await slack.say("hello")
            await program.until(lambda: bool(slack.books.of("chat.postMessage")))
            await program.until(program.is_settled)
            (record,) = await program.journal.outbox_records()
        (sent,) = slack.sent(DM)
    assert record.state == "sent" and record.receipt == sent["ts"]


async def test_slack_file_is_uploaded_then_shared_with_its_text(tmp_path: Path) -> None:
    (tmp_path / "tide.txt").write_bytes(b"high at six")
    media = (Media("document", "text/plain", "tide.txt", 11, path=str(tmp_path / "tide.txt")),)
    async with SlackServer() as slack:
        channel, before = bot(slack), list[str]()

        async def mark() -> None:
            before.extend(call.method for call in slack.books.calls)

        said = await slack.say("question", GENERAL)
        message = Outbound(to(GENERAL, said["ts"]), "*the* tide", "k", Extras(media=media))
        receipt = await channel.send_marked(message, mark)
        (sent,) = slack.sent(GENERAL)
        assert await channel.look_up(message) == receipt
        with pytest.raises(SendError) as caught:  # an earlier process uploaded it, or none
            await bot(slack).look_up(message)
        (file,) = slack.world.files.values()
    assert not caught.value.retryable
    assert before == ["files.getUploadURLExternal"] and file.content == b"high at six"
    assert (sent["text"], sent["thread_ts"]) == ("*the* tide", said["ts"])
    assert [one["name"] for one in sent["files"]] == ["tide.txt"]
    assert receipt.message_id == sent["ts"]


@pytest.mark.parametrize("taken", [True, False])
async def test_slack_unknown_file_delivery_is_looked_up_by_file(
    tmp_path: Path, taken: bool
) -> None:
    (tmp_path / "a.txt").write_bytes(b"text")
    media = Media(name="a.txt", size=4, path=str(tmp_path / "a.txt"))
    async with SlackServer() as slack:
        slack.world.direct(ADA)
        slack.trouble("files.completeUploadExternal", status=500, taken=taken)
        async with run_program(bot(slack)) as program:
            record = OutboxRecord("r:0", "r", to(), "see", 0, 10**15, extras=Extras(media=(media,)))
            async with program.journal.transaction() as transaction:
                transaction.enqueue(record)
            program.supervisor.wake_workers()
            await program.until(program.is_settled)
            (found,) = await program.journal.outbox_records()
        assert found.state == "sent" and len(slack.sent(DM)) == 1


async def test_slack_file_of_crashed_process_stays_unknown(tmp_path: Path) -> None:
    media = Media(name="a.txt", size=4, path=str(tmp_path / "a.txt"))
    async with SlackServer() as slack:
        slack.world.direct(ADA)
        async with run_program(bot(slack)) as program:
            record = OutboxRecord("r:0", "r", to(), "", 0, 10**15, extras=Extras(media=(media,)))
            async with program.journal.transaction() as transaction:
                transaction.enqueue(record)
            async with (
                program.journal.lease("outbox:slack:default:" + DM) as lease,
                program.journal.transaction() as transaction,
            ):
                transaction.send_started("r:0", lease, at_ms=0)
            program.supervisor.wake_workers()
            await program.until(program.is_settled)
            (found,) = await program.journal.outbox_records()
        assert found.state == "unknown" and not slack.sent(DM)


@pytest.mark.parametrize(("content", "problem"), [(b"", "empty"), (b"x" * 2_000_000, "bytes")])
async def test_slack_unsendable_file_is_refused(
    tmp_path: Path, content: bytes, problem: str
) -> None:
    (tmp_path / "a.bin").write_bytes(content)
    media = (Media(name="a.bin", path=str(tmp_path / "a.bin")),)
    async with SlackServer() as slack:
        with pytest.raises(SendError, match=problem) as caught:
            await send(bot(slack, mediaMaxMb=1), "", GENERAL, media=media)
        assert not caught.value.retryable and not slack.books.calls


async def test_slack_edit_and_delete_change_own_messages_only() -> None:
    async with SlackServer() as slack:
        channel = bot(slack)
        buttons = ((Button("Yes", "y"),),)
        receipt = await send(channel, "first", GENERAL, buttons=buttons)
        await channel.edit(to(GENERAL), receipt.message_id, "second")
        (sent,) = slack.sent(GENERAL)
        assert sent["text"] == "second" and sent["blocks"] == []
        again = await send(channel, "third", GENERAL, replaces=f"{GENERAL}:{receipt.message_id}")
        assert again.message_id == receipt.message_id
        said = await slack.say("hers", GENERAL)
        for change in (
            channel.edit(to(GENERAL), said["ts"], "x"),
            channel.delete(to(GENERAL), said["ts"]),
            channel.edit(to(GENERAL), "C0OTHER:1.5", "x"),
            channel.delete(to(GENERAL), "no id"),
        ):
            with pytest.raises(SendError) as caught:
                await change
            assert not caught.value.retryable
        await channel.delete(to(GENERAL), receipt.message_id)
        assert not slack.sent(GENERAL)


async def test_slack_reactions_are_added_by_emoji_or_name_and_removed() -> None:
    async with SlackServer() as slack:
        channel = bot(slack)
        said = await slack.say("hello", GENERAL)
        message_id, key = f"{GENERAL}:{said['ts']}", (GENERAL, said["ts"])
        for emoji in ("👀", "👀", "❤️", ":lobster:", "eyes"):
            await channel.react(to(GENERAL), message_id, emoji)
        names = {name for name, users in slack.world.reactions[key].items() if users}
        assert names == {"eyes", "heart", "lobster"}
        await channel.react(to(GENERAL), message_id, "")
        assert not any(slack.world.reactions[key].values())
        with pytest.raises(SendError, match="no reaction"):
            await channel.react(to(GENERAL), message_id, "𓂀")


async def test_slack_reactions_of_earlier_process_are_removed() -> None:
    async with SlackServer() as slack:
        said = await slack.say("hello", GENERAL)
        key = (GENERAL, said["ts"])
        slack.world.reactions[key] = {"eyes": [BOT_USER, ADA], "tada": [ADA]}
        await bot(slack).react(to(GENERAL), said["ts"], "")
        assert slack.world.reactions[key] == {"eyes": [ADA], "tada": [ADA]}


async def test_slack_model_text_calls_no_channel() -> None:
    from homarus.channels.markup import render

    async with SlackServer() as slack:
        text = render("<!channel> <!here|x> <!everyone> @here <!subteam^S1> & <b>", "slack")
        await send(bot(slack), text, GENERAL)
        (sent,) = slack.sent(GENERAL)
    assert "<!" not in sent["text"] and "&lt;!channel&gt;" in sent["text"]
    assert "@here" not in sent["text"] and "&amp;" in sent["text"]


async def test_slack_lone_surrogate_and_odd_characters_are_sent() -> None:
    async with SlackServer() as slack:
        await send(bot(slack), "a \ud83d b & = + % \u2028 é", GENERAL)
        (sent,) = slack.sent(GENERAL)
        params = slack.books.of("chat.postMessage")[0].params
    assert sent["text"] == "a \ufffd b & = + % \u2028 é"
    assert json.loads(params["metadata"])["event_payload"] == {"key": "key-1"}
