"""The strict fake of Telegram is as strict as it says."""

import asyncio
import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homarus.channels.service_client import ServiceClient, ServiceResponse, UploadFile
from homarus.core.message import Json
from homarus.core.text import utf16_len
from homarus.testing.telegram_server import ADA, GROUP, TelegramServer
from homarus.testing.telegram_server.telegram_html import BadMarkupError, parse, trimmed

Ask = Callable[..., Awaitable[ServiceResponse]]


@asynccontextmanager
async def play(**made: Any) -> AsyncIterator[tuple[TelegramServer, Ask]]:
    async with TelegramServer(**made) as telegram:
        api = ServiceClient("Telegram", telegram.url)

        async def ask(method: str, **params: Json) -> ServiceResponse:
            return await api.send_json("POST", f"/bot{telegram.token}/{method}", params)

        try:
            telegram.say("hello")
            yield telegram, ask
        finally:
            await api.close()


# Its HTML


@pytest.mark.parametrize(
    ("source", "text", "entities"),
    [
        ("plain", "plain", []),
        ("<b>x</b>", "x", [("bold", 0, 1)]),
        ("🦞<i>ä🦞</i>", "🦞ä🦞", [("italic", 2, 3)]),
        ("<b>a<i>b</i></b>", "ab", [("bold", 0, 2), ("italic", 1, 1)]),
        ("&lt;&amp;&gt;&quot;&#33;&#x1F99E;", '<&>"!🦞', []),
        ("&nbsp;& &x", "&nbsp;& &x", []),
        ('<a href="https://x.org?a=1&amp;b=2">x</a>', "x", [("text_link", 0, 1)]),
        ("<a>x</a>", "x", []),
        ('<pre><code class="language-py">x</code></pre>', "x", [("pre", 0, 1)]),
        ('<span class="tg-spoiler">x</span>', "x", [("spoiler", 0, 1)]),
        ("<blockquote expandable>x</blockquote>", "x", [("expandable_blockquote", 0, 1)]),
        ("<b></b>x", "x", []),
        ("<B>x</b>", "x", [("bold", 0, 1)]),
        ("a > b", "a > b", []),
    ],
)
def test_html_is_parsed_as_telegram_does(
    source: str, text: str, entities: list[tuple[str, int, int]]
) -> None:
    found, marked = parse(source)
    assert found == text
    assert [(one["type"], one["offset"], one["length"]) for one in marked] == entities


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("ä<x>", 'Unsupported start tag "x" at byte offset 2'),
        ("a < b", 'Unsupported start tag "" at byte offset 2'),
        ("<b", "Unclosed start tag at byte offset 0"),
        ("<a href=", "Unclosed start tag at byte offset 0"),
        ("<b>x", 'Can\'t find end tag corresponding to start tag "b"'),
        ("x</b>", "Unexpected end tag at byte offset 1"),
        (
            "<b>x</i>",
            'Unmatched end tag at byte offset 4, expected "</b>", found "</i>"',
        ),
        ("<b>x</b", "Unclosed end tag at byte offset 4"),
        ("<span>x</span>", 'Tag "span" must have class "tg-spoiler" at byte offset 0'),
        ("<b x>y</b>", "Expected equal sign in declaration of an attribute"),
    ],
)
def test_html_invalid_is_refused_with_telegrams_text(source: str, words: str) -> None:
    with pytest.raises(BadMarkupError) as caught:
        parse(source)
    assert str(caught.value).startswith(words)


@given(st.text(alphabet="<>/&;#\"'=ab iu🦞x\n", max_size=60))
def test_html_any_text_is_parsed_or_refused(source: str) -> None:
    try:
        text, entities = trimmed(*parse(source))
    except BadMarkupError:
        return
    for one in entities:
        assert 0 <= one["offset"] < one["offset"] + one["length"] <= utf16_len(text)


# Limits


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"text": "x" * 4097}, "message is too long"),
        ({"text": "🦞" * 2049}, "message is too long"),
        ({"text": " \n "}, "message text is empty"),
        ({"text": "<b></b>", "parse_mode": "HTML"}, "message text is empty"),
        ({"text": "<b>", "parse_mode": "HTML"}, "can't parse entities: Can't find end tag"),
        ({"text": "x", "parse_mode": "Magic"}, "unsupported parse_mode"),
        ({"text": "x", "chat_id": 5}, "chat not found"),
        ({"text": "x", "chat_id": None}, "field"),
        ({"text": "x", "message_thread_id": 1}, "message thread not found"),
        ({"text": "x", "reply_parameters": {"message_id": 99}}, "message to be replied not found"),
        ({"text": "x", "wrong": 1}, "no parameter is called ['wrong']"),
        (
            {
                "text": "x",
                "reply_markup": {"inline_keyboard": [[{"text": "a", "callback_data": "ä" * 33}]]},
            },
            "BUTTON_DATA_INVALID",
        ),
        ({"text": "x", "reply_markup": {"inline_keyboard": [[{"text": "a"}]]}}, "can't parse"),
    ],
)
async def test_message_invalid_is_refused_as_telegram_does(
    params: dict[str, Json], words: str
) -> None:
    async with play() as (telegram, ask):
        answer = await ask("sendMessage", **{"chat_id": ADA, **params})
        assert answer.status == answer.data["error_code"] == 400
        assert answer.data["description"].startswith(f"Bad Request: {words}")
        assert not telegram.sent(ADA)


async def test_message_limit_counts_shown_utf16_units() -> None:
    async with play() as (_telegram, ask):
        markup = "<b>" + "🦞" * 2048 + "</b>"
        answer = await ask("sendMessage", chat_id=ADA, text=markup, parse_mode="HTML")
        assert answer.data["ok"] and answer.data["result"]["entities"][0]["length"] == 4096


async def test_caption_has_its_own_limit() -> None:
    async with TelegramServer() as telegram:
        telegram.say("hello")
        api = ServiceClient("Telegram", telegram.url)
        path = f"/bot{telegram.token}/sendDocument"
        file = {"document": UploadFile('a\r\n"b.bin', b"--\r\n\r\n--x--")}
        for size, status in ((1024, 200), (1025, 400)):
            fields = {"chat_id": str(ADA), "caption": "x" * size}
            assert (await api.send_form(path, fields, file)).status == status
        await api.close()
        first = next(iter(telegram.world.files.values()))
        assert first.content == b"--\r\n\r\n--x--"


# Who may ask, and what it knows


async def test_wrong_token_and_wrong_method_differ() -> None:
    async with TelegramServer() as telegram:
        api = ServiceClient("Telegram", telegram.url)
        statuses = [
            (await api.get(path)).status
            for path in (
                "/bot1:wrong/getMe",
                "/botwrong/getMe",
                f"/bot{telegram.token}/nothing",
                f"/bot{telegram.token}/getMe",
                f"/bot{telegram.token}/getMe?x=1",
                f"/file/bot{telegram.token}/nothing",
            )
        ]
        await api.close()
        assert statuses == [401, 404, 404, 200, 400, 404]


# Updates


async def test_updates_stay_until_offset_confirms_them() -> None:
    async with play() as (telegram, ask):
        telegram.say("again")
        numbers = [one["update_id"] for one in (await ask("getUpdates")).data["result"]]
        assert len(numbers) == 2
        assert len((await ask("getUpdates", limit=1)).data["result"]) == 1
        assert len((await ask("getUpdates", offset=numbers[0])).data["result"]) == 2
        assert len((await ask("getUpdates", offset=numbers[1])).data["result"]) == 1
        assert len((await ask("getUpdates", offset=-1)).data["result"]) == 1
        assert (await ask("getUpdates", offset=numbers[1] + 1)).data["result"] == []


async def test_second_poll_ends_the_first() -> None:
    async def _wait(ask: Ask, offset: int) -> ServiceResponse:
        return await ask("getUpdates", offset=offset, timeout=50)

    async with play() as (telegram, ask):
        (update,) = (await ask("getUpdates")).data["result"]
        after = update["update_id"] + 1
        async with asyncio.TaskGroup() as group:
            first = group.create_task(_wait(ask, after))
            await telegram.until_asked("getUpdates", 2)
            second = group.create_task(_wait(ask, after))
            await telegram.until_called("getUpdates", 2)
            telegram.say("news")
        assert first.result().status == 409
        assert "terminated by other getUpdates" in first.result().data["description"]
        assert second.result().data["result"][0]["message"]["text"] == "news"


async def test_updates_of_unwanted_kinds_are_not_delivered() -> None:
    async with play() as (telegram, ask):
        await ask("getUpdates", allowed_updates=["message_reaction"])
        telegram.say("not wanted")
        telegram.react(ADA, 1, "👍")
        kinds = [set(one) - {"update_id"} for one in (await ask("getUpdates")).data["result"]]
        assert kinds == [{"message"}, {"message_reaction"}]


async def test_poll_with_webhook_set_is_refused() -> None:
    async with play() as (_telegram, ask):
        refused = await ask("setWebhook", url="http://x.example")
        assert "HTTPS" in refused.data["description"]
        assert (await ask("setWebhook", url="https://x.example", secret_token="a b")).status == 400
        assert (await ask("setWebhook", url="https://127.0.0.1:9/x")).data["ok"]
        assert (await ask("getUpdates")).status == 409
        info = (await ask("getWebhookInfo")).data["result"]
        assert (info["url"], info["pending_update_count"]) == ("https://127.0.0.1:9/x", 1)
        await ask("deleteWebhook", drop_pending_updates=True)
        assert (await ask("getUpdates")).data["result"] == []


# Trouble


async def test_fault_hits_only_its_calls() -> None:
    async with play() as (telegram, ask):
        telegram.trouble("sendMessage", status=429, retry_after=3)
        telegram.trouble("sendMessage", status=502, taken=True)
        assert (await ask("getMe")).status == 200
        refused = await ask("sendMessage", chat_id=ADA, text="one")
        assert refused.data["parameters"] == {"retry_after": 3}
        assert (await ask("sendMessage", chat_id=ADA, text="two")).status == 502
        assert (await ask("sendMessage", chat_id=ADA, text="three")).status == 200
        assert [one["text"] for one in telegram.sent(ADA)] == ["two", "three"]
        assert [one.taken for one in telegram.books.of("sendMessage")] == [False, True, True]


# As a process


def test_server_process_accepts_user_actions_over_http() -> None:
    command = [sys.executable, "-m", "homarus.testing.telegram_server", "--token", "1:abc"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            url = server.stdout.readline().strip()

            def post(path: str, **body: Json) -> Any:
                data = json.dumps(body).encode()
                headers = {"Content-Type": "application/json"}
                request = urllib.request.Request(f"{url}{path}", data, headers)
                with urllib.request.urlopen(request, timeout=30) as answer:
                    return json.load(answer)

            made = post("/control/say", text="@lobster_bot hi", chat=GROUP)["made"]
            assert made["entities"][0]["type"] == "mention"
            post("/control/redeliver", renumbered=True)
            post("/control/trouble", method="sendMessage", status=429, retry_after=1)
            updates = post("/bot1:abc/getUpdates")["result"]
            assert [one["message"]["text"] for one in updates] == ["@lobster_bot hi"] * 2
            with urllib.request.urlopen(f"{url}/control/books", timeout=30) as answer:
                books = json.load(answer)
            assert [one["method"] for one in books["calls"]] == ["getUpdates"]
            assert len(books["pending"]) == 2 and len(books["messages"]) == 1
            with pytest.raises(urllib.error.HTTPError):
                post("/control/dance")
        finally:
            server.kill()
