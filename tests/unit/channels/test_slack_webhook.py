"""Slack's signed requests: events, interactions and slash commands by HTTP."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from homarus.channels.base import WebhookRequest, WebhookResponse
from homarus.channels.slack.adapter import SlackChannel
from homarus.core.clock import SystemClock
from homarus.core.errors import StoreError
from homarus.core.message import Button, Json
from homarus.testing.fakes import RecordingHandler
from homarus.testing.slack_server import ADA, GENERAL, SlackServer
from homarus.testing.slack_server.events import encode_form, make_callback, sign_request
from tests.unit.channels.slack_stage import DM, SECRET, bot, running, send

FORM = "application/x-www-form-urlencoded"


def http_bot(slack: SlackServer, **said: Json) -> SlackChannel:
    return bot(slack, mode="http", signingSecret=SECRET, **said)


@asynccontextmanager
async def serving(channel: SlackChannel, handler: RecordingHandler) -> AsyncIterator[None]:
    """Run the channel, and wait until it accepts requests."""
    event = callback({"type": "hello"})
    async with running(channel, handler), asyncio.timeout(30):
        # Only a request shows it.
        while (await channel.handle_webhook(signed(event))).status == 503:  # noqa: ASYNC110 - see above
            await asyncio.sleep(0)
        yield


def signed(
    body: bytes,
    kind: str = "application/json",
    *,
    secret: str = SECRET,
    late_s: float = 0.0,
    retry: int = 0,
) -> WebhookRequest:
    headers = sign_request(body, secret, SystemClock().now_ms() / 1000 - late_s)
    headers |= {"content-type": kind}
    headers |= {"x-slack-retry-num": str(retry)} if retry else {}
    return WebhookRequest("POST", "/slack/events", headers=headers, body=body)


def callback(event: Mapping[str, Json]) -> bytes:
    return json.dumps(make_callback(event)).encode()


async def test_slack_signed_event_is_stored_before_it_is_answered() -> None:
    async with SlackServer() as slack:
        channel, handler = http_bot(slack), RecordingHandler()
        message, ((_, event),) = slack.acts.say("hello")
        body = callback(event)
        async with serving(channel, handler):
            for retry in range(4):
                answer = await channel.handle_webhook(signed(body, retry=retry))
                assert answer == WebhookResponse(200) and len(handler.got) == retry + 1
        assert set(handler.ids) == {f"{DM}:{message['ts']}"}
        assert not slack.books.of("apps.connections.open")


# Each is made when its test runs: a signature holds for five minutes.
@pytest.mark.parametrize(
    "make_request",
    [
        lambda: signed(callback({}), secret="another"),
        lambda: signed(callback({}), late_s=400),
        lambda: signed(callback({}), late_s=-400),
        lambda: WebhookRequest("POST", "/slack/events", body=callback({})),
        lambda: WebhookRequest("GET", "/slack/events", headers=sign_request(b"", SECRET, 1)),
        lambda: WebhookRequest(
            "POST", "/slack/events", headers=signed(b"{}").headers, body=callback({"type": "x"})
        ),
    ],
    ids=["other secret", "too old", "from the future", "unsigned", "get", "other body"],
)
async def test_slack_forged_or_old_request_is_refused(
    make_request: Callable[[], WebhookRequest],
) -> None:
    async with SlackServer() as slack:
        channel, handler = http_bot(slack), RecordingHandler()
        async with serving(channel, handler):
            assert (await channel.handle_webhook(make_request())).status == 401
        assert not handler.got


async def test_slack_request_without_signature_is_refused_before_its_body() -> None:
    async with SlackServer() as slack:
        channel = http_bot(slack)
        right = signed(b"{}")
        assert channel.verify_request(right)
        for name in ("x-slack-signature", "x-slack-request-timestamp"):
            headers = {key: value for key, value in right.headers.items() if key != name}
            assert not channel.verify_request(WebhookRequest("POST", "/x", headers=headers))
        assert not bot(slack).verify_request(right) and bot(slack).path == ""


async def test_slack_challenge_is_answered_before_the_login() -> None:
    body = json.dumps({"type": "url_verification", "challenge": "3eZbr", "token": "x"}).encode()
    async with SlackServer() as slack:
        answer = await http_bot(slack).handle_webhook(signed(body))
    assert (answer.status, answer.body) == (200, b"3eZbr")
    assert answer.content_type.startswith("text/plain")


async def test_slack_event_that_cannot_be_stored_comes_again() -> None:
    async with SlackServer() as slack:
        channel, handler = http_bot(slack), RecordingHandler()
        _, ((_, event),) = slack.acts.say("hello")
        request = signed(callback(event))
        assert (await channel.handle_webhook(request)).status == 503  # it does not run yet
        handler.kept = {"bot": "U0LOBSTER", "team": "T0TEAM", "last": "9999999999.000001"}
        async with serving(channel, handler):
            handler.failures.append(StoreError("no room"))
            assert (await channel.handle_webhook(request)).status == 503
            assert (await channel.handle_webhook(request)).status == 200
        assert handler.texts == ["hello"]


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b"no json", "application/json", 400),
        (b"[]", "application/json", 400),
        (b"[" * 100_000, "application/json", 400),
        (b'{"type": "app_rate_limited"}', "application/json", 200),
        (b'{"type": "event_callback"}', "application/json", 200),
        (b'{"type": "event_callback", "event": 5}', "application/json", 200),
        (b"payload=no", FORM, 400),
        (b"payload=[]", FORM, 400),
        (b"payload=%7B%22type%22%3A%22view_submission%22%7D", FORM, 200),
        (b"\xff", FORM, 400),
        (b"command=%2Fopenclaw", FORM, 200),
    ],
)
async def test_slack_unexpected_body_is_answered_and_breaks_nothing(
    body: bytes, kind: str, status: int
) -> None:
    async with SlackServer() as slack:
        channel, handler = http_bot(slack), RecordingHandler()
        async with serving(channel, handler):
            assert (await channel.handle_webhook(signed(body, kind))).status == status
            _, ((_, event),) = slack.acts.say("still there")
            assert (await channel.handle_webhook(signed(callback(event)))).status == 200
        assert handler.texts == ["still there"]


async def test_slack_press_and_slash_command_come_as_forms() -> None:
    async with SlackServer() as slack:
        channel, handler = http_bot(slack), RecordingHandler()
        async with serving(channel, handler):
            sent = await send(channel, "Now?", GENERAL, buttons=((Button("Yes", "y"),),))
            ((_, press),) = slack.acts.press(GENERAL, sent.message_id, "Yes")
            body = encode_form({"payload": json.dumps(press)})
            assert await channel.handle_webhook(signed(body, FORM)) == WebhookResponse(200)
            ((_, command),) = slack.acts.slash("/openclaw", "status & more", GENERAL)
            body = encode_form(command)
            assert await channel.handle_webhook(signed(body, FORM)) == WebhookResponse(200)
        assert handler.texts == ["Yes", "/status & more"]
        assert handler.got[1].sender == ADA


async def test_slack_slow_interaction_is_acknowledged_and_handled_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("homarus.channels.slack.adapter.ACKNOWLEDGE_S", 0.01)
    gate = asyncio.Event()

    class Slow(RecordingHandler):
        async def __call__(self, *args: Any, **named: Any) -> None:
            await gate.wait()
            await super().__call__(*args, **named)

    async with SlackServer() as slack:
        channel, handler = http_bot(slack), Slow()
        async with serving(channel, handler):
            ((_, command),) = slack.acts.slash("/openclaw", "hi")
            answer = await channel.handle_webhook(signed(encode_form(command), FORM))
            assert answer.status == 200 and not handler.got
            gate.set()
            await handler.received(1)


async def test_slack_interaction_that_cannot_be_stored_says_so() -> None:
    async with SlackServer() as slack:
        channel, handler = http_bot(slack), RecordingHandler(StoreError("no room"))
        async with serving(channel, handler):
            ((_, command),) = slack.acts.slash("/openclaw", "hi")
            request = signed(encode_form(command), FORM)
            assert (await channel.handle_webhook(request)).status == 503
            assert (await channel.handle_webhook(request)).status == 200
        assert handler.texts == ["hi"]


class GatedHandler(RecordingHandler):
    """A handler that stores the message `slow` only when it may."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting, self.may_store = asyncio.Event(), asyncio.Event()

    async def __call__(self, event: Any, cursor: Any = None, acknowledge: Any = None) -> None:
        if getattr(event, "text", "") == "slow":
            self.waiting.set()
            await self.may_store.wait()
        await super().__call__(event, cursor, acknowledge)


async def test_slack_cursor_has_every_chat_of_requests_at_once() -> None:
    async with SlackServer() as slack:
        channel, handler = http_bot(slack), GatedHandler()
        bodies = []
        for text, user in (("slow", ADA), ("fast", "U0BOB"), ("last", "U0EVE")):
            _, ((_, event),) = slack.acts.say(text, user=user)
            bodies.append(callback(event))
        async with serving(channel, handler), asyncio.TaskGroup() as group:
            slow = group.create_task(channel.handle_webhook(signed(bodies[0])))
            await handler.waiting.wait()
            assert (await channel.handle_webhook(signed(bodies[1]))).status == 200
            handler.may_store.set()
            assert (await slow).status == 200
            assert (await channel.handle_webhook(signed(bodies[2]))).status == 200
        assert handler.kept is not None
        assert set(handler.kept["places"]) == {DM, "D0BOB", "D0EVE"}


async def test_slack_http_account_reads_what_it_missed() -> None:
    async with SlackServer() as slack:
        channel, handler = http_bot(slack), RecordingHandler()
        async with serving(channel, handler):
            pass
        assert handler.kept is not None
        first_ts = str(handler.kept["last"])  # what is read starts at the next millisecond
        while slack.world.next_ts() <= first_ts:  # noqa: ASYNC110 - a clock has no event
            await asyncio.sleep(0)
        await slack.say("missed")
        async with serving(channel, handler):
            await handler.received(1)
        assert handler.texts == ["missed"]
