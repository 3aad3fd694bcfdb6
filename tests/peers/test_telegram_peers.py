"""Our strict Telegram fake checked by python-telegram-bot, and a smoke test of another server.

The fake is ours, so a green run against it proves only that we agree with ourselves. Here an
independent library must parse every response and every update of the fake, to the last field, and
the fake must accept the library's calls. telegram-test-api is an independent server; it checks next
to nothing, and shows that polling, a message in and an answer out work.
"""

import asyncio
import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from homarus.channels.service_client import ServiceClient
from homarus.core.errors import SendError
from homarus.core.message import Address, Button, Extras, Json, Media, Outbound, Poll
from homarus.core.native_command import NativeCommand
from homarus.testing.fakes import RecordingHandler
from homarus.testing.telegram_server import ADA, GROUP, TelegramServer
from homarus.testing.telegram_server.methods import METHODS
from tests.peers.install import npm, venv
from tests.unit.channels.telegram_stage import bot, running, send, to

pytestmark = pytest.mark.peers

HERE = Path(__file__).parent
LIBRARY = HERE / "telegram_library.py"
LOCK = HERE.parent.parent / "requirements" / "telegram.lock"
WAIT_S = 60.0
# The results of methods; the others return true.
TYPES = {
    "getMe": "User",
    "getFile": "File",
    "getUpdates": "Update",
    "getWebhookInfo": "WebhookInfo",
    "editMessageText": "Message",
    **{name: "Message" for name in METHODS if name.startswith("send")},
} | {"sendChatAction": "", "sendMessageDraft": ""}


@pytest.fixture(scope="module")
def library() -> Path:
    return venv(LOCK)


async def test_fake_telegram_responses_and_updates_parse_in_library(
    library: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").write_bytes(b"some bytes")
    server = await whole_session(tmp_path / "file")
    told = [("Update", update) for update in server.acts.updates]
    asked = set[str]()
    for call in server.books.calls:
        asked.add(call.method)
        if call.status != 200:
            assert call.answer["ok"] is False and call.answer["error_code"] == call.status
            assert set(call.answer.get("parameters", ())) <= {"migrate_to_chat_id", "retry_after"}
        elif kind := TYPES.get(call.method):
            result = call.answer["result"]
            told += [(kind, one) for one in (result if isinstance(result, list) else [result])]
        else:
            assert call.answer["result"] is True
    assert asked >= {*METHODS, "getUpdates", "setWebhook", "deleteWebhook", "getWebhookInfo"}
    kinds = {name for update in server.acts.updates for name in update} - {"update_id"}
    assert kinds == {
        "message",
        "edited_message",
        "channel_post",
        "edited_channel_post",
        "callback_query",
        "message_reaction",
    }
    lines = "".join(json.dumps({"type": kind, "data": data}) + "\n" for kind, data in told)
    done = subprocess.run(
        [library, LIBRARY, "judge"],
        input=lines,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert len(told) > 40


async def whole_session(file: Path) -> TelegramServer:
    """Do once everything that users and our bot can do."""
    async with TelegramServer() as telegram:
        desk, channel = (
            RecordingHandler(),
            bot(
                telegram,
                commands=(NativeCommand("new", "Start anew"),),
                reactionNotifications="all",
            ),
        )
        people_begin(telegram)
        async with running(channel, desk):
            await telegram.until_heard(WAIT_S)
            for text in ('<b>x</b> <pre><code class="language-py">y</code></pre>', "<i>z"):
                await send(channel, text, reply_to="1")
            await send(channel, "in a topic", chat=GROUP, thread="42")
            await channel.send(Outbound(Address("telegram", "-1009"), "to the channel"))
            asked = await send(channel, "?", buttons=((Button("Yes", "yes"),),))
            telegram.press(ADA, int(asked.message_id), "yes")
            telegram.react(ADA, int(asked.message_id), "👍", "🔥")
            await channel.edit(to(), asked.message_id, "a <u>b</u> <a href='https://x.org'>c</a>")
            await channel.react(to(), "1", "👀")
            await channel.show_typing(to(), on=True)
            await channel.draft(to(), "run", "draft")
            await send_files(channel, file)
            await channel.delete(to(), asked.message_id)
            await refusals(telegram, channel)
            await telegram.until_called("answerCallbackQuery", wait_s=WAIT_S)
            await channel.fetch(desk.got[-1].media[0] if desk.got[-1].media else photo(desk), 99)
        await bare_calls(telegram)
        return telegram


def photo(desk: RecordingHandler) -> Media:
    return next(media for one in desk.got for media in one.media)


def people_begin(telegram: TelegramServer) -> None:
    telegram.world.allowed = (*telegram.world.allowed, "message_reaction")
    said = telegram.say("hello @lobster_bot 🦞")
    telegram.edit(ADA, said["message_id"], "hello /new")
    telegram.say("answer", reply_to=1)
    telegram.world.chat(GROUP, forum=True)
    telegram.say("to all", chat=GROUP, user=22)
    telegram.say("in a topic", chat=GROUP, thread=42, anonymous=True)
    telegram.world.chat(-1009, "channel", "News")
    post = telegram.say("news", chat=-1009)
    telegram.edit(-1009, post["message_id"], "old news")
    for kind in ("photo", "document", "voice", "audio", "video", "video_note", "animation",
                 "sticker"):  # fmt: skip
        telegram.attach(kind, b"some bytes", name="a.bin", mime="application/x-test")
    where = {"latitude": 52.5, "longitude": 13.4}
    for more in (
        {"location": where},
        {"venue": {"location": where, "title": "Bar", "address": "Street 1"}},
        {"contact": {"phone_number": "+49", "first_name": "Bob"}},
        {"dice": {"emoji": "🎲", "value": 4}},
        {"quote": {"text": "lo", "position": 3}, "text": "quoting", "reply_to": 1},
        {
            "text": "forwarded",
            "forward_origin": {
                "type": "user",
                "date": 1_780_000_000,
                "sender_user": telegram.world.person(22),
            },
        },
    ):
        telegram.say(**more)


async def send_files(channel: Any, file: Path) -> None:
    kinds: list[tuple[Any, str]] = [
        ("image", "image/png"),
        ("image", "image/gif"),
        ("document", "text/plain"),
        ("audio", "audio/mpeg"),
        ("voice", "audio/ogg"),
        ("video", "video/mp4"),
        ("sticker", "image/webp"),
    ]
    for kind, mime in kinds:
        media = Media(kind, mime, f"a.{mime[-3:]}", path=str(file))
        words = "" if kind == "sticker" else "<b>see</b>"
        await channel.send(Outbound(to(), words, "key", Extras(media=(media,))))
    poll = Poll("Which colour?", ("Red", "Blue"))
    await channel.send(Outbound(to(), "", "key", Extras(poll=poll)))


async def refusals(telegram: TelegramServer, channel: Any) -> None:
    telegram.world.chat(-77, "group", "Old")
    telegram.acts.upgrade(-77, -10077)
    await send(channel, "moved", chat=-77)
    telegram.trouble("sendMessage", status=429, retry_after=3)
    for chat in (ADA, 404):
        with pytest.raises(SendError):
            await send(channel, "x", chat=chat)


async def bare_calls(telegram: TelegramServer) -> None:
    """Make the calls that our bot does not use in this session."""
    api = ServiceClient("Telegram", telegram.url)
    for method, params in (
        ("deleteMyCommands", {}),
        ("setWebhook", {"url": "https://127.0.0.1:9/x", "secret_token": "x"}),
        ("getWebhookInfo", {}),
        ("getUpdates", {}),
        ("deleteWebhook", {}),
    ):
        await api.send_json("POST", f"/bot{telegram.token}/{method}", params)
    await api.close()


async def test_fake_telegram_serves_client_of_library(library: Path) -> None:
    async def main() -> dict[str, Any]:
        async with TelegramServer() as telegram:
            telegram.say("hello")
            telegram.trouble("sendChatAction", status=429, retry_after=7)
            asked = (LIBRARY, "talk", telegram.url, telegram.token, str(ADA))
            process = await asyncio.create_subprocess_exec(
                library, *asked, stdout=asyncio.subprocess.PIPE, env={}
            )
            try:
                async with asyncio.timeout(WAIT_S):
                    told, _ = await process.communicate()
            finally:
                with suppress(ProcessLookupError):  # it has ended, as it should
                    process.kill()
                await process.wait()
            found: dict[str, Any] = json.loads(told)
            return found

    told = await main()
    assert told == {
        "me": "lobster_bot",
        "heard": ["hello"],
        "entities": ["bold:2:1"],
        "edited": "b",
        "file": "bytes",
        "refusals": [
            "Message is too long",
            "Can't parse entities: can't find end tag corresponding to start tag \"b\"",
            "Chat not found",
            "after 7",
        ],
        "deleted": True,
    }


# Another server


TOKEN = "123456:smoke-test_token"
NODE = """
const TelegramServer = require('telegram-test-api');
const net = require('net');
const free = net.createServer().listen(0, '127.0.0.1', () => {
  const port = free.address().port;
  free.close(async () => {
    const server = new TelegramServer({port, host: '127.0.0.1'});
    await server.start();
    console.log(server.config.apiURL);
  });
});
"""


@contextmanager
def another_server() -> Iterator[str]:
    folder = npm(HERE / "telegram_test_api")
    command = ["node", "-e", NODE]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            yield server.stdout.readline().strip()
        finally:
            server.kill()


async def test_telegram_channel_works_with_independent_server() -> None:
    async def main(url: str) -> None:
        person = ServiceClient("telegram-test-api", url)
        server = TelegramServer(token=TOKEN)
        desk, channel = RecordingHandler(), bot(server, apiRoot=url)
        async with running(channel, desk):
            said: Json = {
                "botToken": TOKEN,
                "date": 1_780_000_000,
                "from": {"id": 5, "first_name": "Eve", "is_bot": False},
                "chat": {"id": 5, "first_name": "Eve", "type": "private"},
                "text": "/start now",
                "entities": [{"type": "bot_command", "offset": 0, "length": 6}],
            }
            await person.send_json("POST", "/sendCommand", said)
            (heard,) = await desk.received(1)
            assert (heard.sender, heard.text, heard.address.chat) == ("5", "/start now", "5")
            receipt = await send(channel, "<b>hi</b>", chat=5, reply_to=heard.id)
            await channel.edit(to(5), receipt.message_id, "hi!")
        told = await person.send_json("POST", "/getUpdates", {"token": TOKEN, "chatId": 5})
        await person.close()
        (answer,) = told.data["result"]
        assert str(answer["messageId"]) == receipt.message_id
        assert answer["message"]["text"] == "hi!"

    with another_server() as url:
        await main(url)
