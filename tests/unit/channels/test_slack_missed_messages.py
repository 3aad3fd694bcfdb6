"""What Slack's history has for a start, when Slack or the connection interrupts the reading."""

import asyncio
from collections.abc import Mapping

import pytest

from homarus.channels.base import Acknowledge
from homarus.core.channel_event import InboundEvent
from homarus.core.clock import SystemClock
from homarus.core.errors import ChannelError, SendError
from homarus.core.message import Json
from homarus.testing.fakes import RecordingHandler
from homarus.testing.slack_server import GENERAL, SlackServer
from tests.unit.channels.slack_stage import bot, running

pytestmark = pytest.mark.timeout(120)

CHANNELS = 15  # more than are read again after a connection that was lost


class WaitlessClock(SystemClock):
    """A clock that notes the waits, and on which every connection lasts a minute."""

    def __init__(self) -> None:
        self.waits_s = list[float]()
        self._steps = 0

    def monotonic(self) -> float:
        self._steps += 1
        return super().monotonic() + 60 * self._steps

    async def sleep(self, seconds: float) -> None:
        self.waits_s.append(seconds)


async def missed_in_channels(slack: SlackServer) -> tuple[Mapping[str, Json], set[str]]:
    """Return a cursor, and the texts of channels that come after it, the newest first."""
    first = RecordingHandler()
    async with running(bot(slack), first, slack):
        await slack.say("before")
        await first.received(1)
        await slack.until_acknowledged()
    assert first.kept is not None
    names = [f"C1{number}" for number in range(CHANNELS)]
    for name in names:
        slack.world.add_channel(name, name.lower())
    for name in reversed(names):
        await slack.say(f"in {name}", name)
    return first.kept, {f"in {name}" for name in names}


async def until_received(handler: RecordingHandler, texts: set[str]) -> None:
    """Wait for texts; after another lost connection, some come twice."""
    async with asyncio.timeout(60):
        while not texts <= set(handler.texts):
            await handler.received(len(handler.got) + 1)


@pytest.mark.parametrize("method", ["conversations.history", "users.conversations"])
async def test_slack_history_is_read_after_the_waits_slack_demands(method: str) -> None:
    async with SlackServer() as slack:
        cursor, texts = await missed_in_channels(slack)
        clock, handler = WaitlessClock(), RecordingHandler(kept=cursor)
        slack.trouble(method, times=3, status=429, retry_after=60)
        async with running(bot(slack, clock=clock), handler, slack):
            await handler.received(CHANNELS)
        assert set(handler.texts) == texts and clock.waits_s == [60.0] * 3


@pytest.mark.parametrize(
    ("fault", "expected"),
    [({"status": 429, "retry_after": 9}, SendError), ({"status": 500}, ChannelError)],
)
async def test_slack_history_is_not_passed_by_while_chats_are_not_listed(
    fault: dict[str, int], expected: type[Exception]
) -> None:
    async with SlackServer() as slack:
        cursor, texts = await missed_in_channels(slack)
        handler = RecordingHandler(kept=cursor)
        slack.trouble("users.conversations", times=5, **fault)
        with pytest.raises(expected):
            await bot(slack, clock=WaitlessClock()).run(handler)
        assert handler.kept == cursor
        slack._faults.clear()
        again = RecordingHandler(kept=handler.kept)
        async with running(bot(slack), again, slack):
            await again.received(CHANNELS)
        assert set(again.texts) == texts


async def test_slack_history_without_scope_to_list_is_read_where_known() -> None:
    async with SlackServer() as slack:
        cursor, _ = await missed_in_channels(slack)
        await slack.say("from a known person")
        slack.trouble("users.conversations", error="missing_scope")
        handler = RecordingHandler(kept=cursor)
        async with running(bot(slack), handler, slack):
            await handler.received(1)
        assert handler.texts == ["from a known person"]


async def test_slack_broadcast_of_thread_is_one_message_of_the_thread() -> None:
    """The history of the channel has it, and that of the thread."""
    async with SlackServer() as slack:
        first = RecordingHandler()
        async with running(bot(slack), first, slack):
            root = await slack.say("a thread", GENERAL)
            more = {"subtype": "thread_broadcast"}
            live = await slack.say("to all, live", GENERAL, thread=root["ts"], **more)
            await first.received(2)
            await slack.until_acknowledged()
        missed = await slack.say("to all, missed", GENERAL, thread=root["ts"], **more)
        again = RecordingHandler(kept=first.kept)
        async with running(bot(slack), again, slack):
            await again.received(3)
        ids = {name: f"{GENERAL}:{one['ts']}" for name, one in (("live", live), ("new", missed))}
        assert first.ids[1:] == [ids["live"]]
        # What is read again has the id that it had: the journal drops it.
        assert sorted(again.ids) == sorted([ids["live"], ids["new"], ids["new"]])
        assert {one.address.thread for one in (*first.got[1:], *again.got)} == {root["ts"]}


class InterruptedHandler(RecordingHandler):
    """A handler after whose first message Slack does not answer the next read of a history."""

    def __init__(self, slack: SlackServer, kept: Mapping[str, Json]) -> None:
        super().__init__(kept=kept)
        self._slack = slack

    async def __call__(
        self,
        event: InboundEvent,
        cursor: Mapping[str, Json] | None = None,
        acknowledge: Acknowledge | None = None,
    ) -> None:
        if not self.got:
            self._slack.trouble("conversations.history", status=500, wait_s=3_600)
        await super().__call__(event, cursor, acknowledge)


async def test_slack_lost_connection_during_reading_loses_no_channel() -> None:
    async with SlackServer() as slack:
        cursor, texts = await missed_in_channels(slack)
        handler = InterruptedHandler(slack, cursor)
        async with running(bot(slack, clock=WaitlessClock()), handler):
            await handler.received(1)
            first = slack.feed.sockets[0]
            await slack.end_socket()
            await slack.until(lambda: slack.feed.sockets and first not in slack.feed.sockets)
            await until_received(handler, texts)
        assert set(handler.texts) == texts


async def test_slack_connection_that_broke_is_followed_by_complete_reading(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("homarus.channels.slack.socket_mode.PING_INTERVAL_S", 0.1)
    async with SlackServer() as slack:
        cursor, texts = await missed_in_channels(slack)
        handler = RecordingHandler(kept=cursor)
        async with running(bot(slack, clock=WaitlessClock()), handler, slack):
            await handler.received(CHANNELS)
            slack.break_sockets()  # as when the machine was asleep
            for number in range(CHANNELS):
                await slack.say(f"later {number}", f"C1{number}")
            await slack.say("of a new person", user="U0BOB")
            later = {f"later {number}" for number in range(CHANNELS)} | {"of a new person"}
            await until_received(handler, later)
        assert set(handler.texts) == texts | later
