"""What a chat shows of a run under way, on a fake clock."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from homarus.channels.base import Capabilities, Channel, InboundHandler, Receipt
from homarus.channels.live_replies import LiveReplies
from homarus.channels.live_reply import MAX_FAILURES, UNFINISHED, LiveReply
from homarus.config.schema import Config
from homarus.core.errors import ChannelAuthError, ChannelError, SendError
from homarus.core.message import Address, Inbound, Outbound
from homarus.testing.clock import FakeClock

GUARD_S = 60.0
HERE = Address("svc", "42")
ASKED = Inbound("m1", HERE, "ann", "hi")
LONG = "A first line that is long enough to be shown. "


class Plain:
    """A service that can only send."""

    name, account = "svc", "default"

    def __init__(self, clock: FakeClock, *, idempotent: bool = False) -> None:
        self.capabilities = Capabilities(100, idempotent=idempotent)
        self.clock = clock
        self.seen: list[str] = []
        self.trouble: list[Exception] = []
        self.gate: asyncio.Event | None = None

    async def run(self, receive: InboundHandler) -> None:
        await asyncio.Event().wait()

    async def send(self, message: Outbound) -> Receipt:
        await self._note(f"send {message.key}: {message.text}")
        return Receipt(f"p{len(self.seen)}")

    async def _note(self, told: str) -> None:
        if self.gate:
            await self.gate.wait()
        if self.trouble:
            raise self.trouble.pop(0)
        self.seen.append(f"{self.clock.monotonic():g} {told}")


class Typist(Plain):
    async def show_typing(self, to: Address, *, on: bool) -> None:
        await self._note(f"typing {'on' if on else 'off'}")


class Drafter(Plain):
    def can_draft(self, to: Address) -> bool:
        return not to.chat.startswith("-")

    async def draft(self, to: Address, key: str, text: str) -> None:
        await self._note(f"draft {key}: {text}")


class Editor(Plain):
    async def edit(self, to: Address, message_id: str, text: str) -> None:
        await self._note(f"edit {message_id}: {text}")


class Reviser(Editor):
    async def delete(self, to: Address, message_id: str) -> None:
        await self._note(f"delete {message_id}")


class Reactor(Plain):
    async def react(self, to: Address, message_id: str, emoji: str) -> None:
        await self._note(f"react {message_id} {emoji or 'none'}")


class Harness:
    """One chat, and a run whose text the test sets."""

    def __init__(self, channel: Callable[[FakeClock], Plain], config: dict[str, Any]) -> None:
        self.clock = FakeClock()
        self.channel, self.text = channel(self.clock), ""
        self.config = Config.model_validate(config)
        self.live: LiveReplies

    def find(self, channel: str, account: str) -> Channel | None:
        return self.channel if (channel, account) == ("svc", "default") else None

    def show(self, asked: Inbound = ASKED) -> LiveReply | None:
        return self.live.start([asked], "run", lambda: self.text, 6.0)

    def grow(self, showing: LiveReply, more: str) -> None:
        self.text += more
        showing.update(typing=None)

    @property
    def seen(self) -> list[str]:
        return self.channel.seen


async def play(
    channel: Callable[[FakeClock], Plain],
    act: Callable[[Harness], Awaitable[None]],
    **settings: Any,
) -> list[str]:
    stage = Harness(channel, {"channels": {"svc": settings}} if settings else {})
    async with asyncio.timeout(GUARD_S), asyncio.TaskGroup() as group:
        find, config = stage.find, stage.config
        stage.live = LiveReplies(group, stage.clock, channel=find, config=lambda: config)
        await act(stage)
        await stage.clock.advance(0)
    return stage.seen


def shown(stage: Harness) -> LiveReply:
    showing = stage.show()
    assert showing is not None
    return showing


async def test_live_reply_service_without_features_is_not_called() -> None:
    async def act(stage: Harness) -> None:
        assert stage.show() is None
        elsewhere = Inbound("1", Address("other", "1"), "ann", "hi")
        assert stage.show(elsewhere) is None
        stage.live.add_ack_reaction(ASKED, "👀")
        stage.live.on_delivered("run:0")

    assert await play(Plain, act, streamMode="partial") == []


async def test_live_reply_typing_lasts_as_long_as_run() -> None:
    async def act(stage: Harness) -> None:
        showing = shown(stage)
        await stage.clock.advance(3)
        showing.update(typing=True)
        await stage.clock.advance(9)
        showing.close()
        await stage.clock.advance(60)

    assert await play(Typist, act) == [
        "3 typing on",
        "7 typing on",
        "11 typing on",
        "12 typing off",
    ]


async def test_live_reply_typing_never_shown_is_not_cleared() -> None:
    async def act(stage: Harness) -> None:
        shown(stage).close()

    assert await play(Typist, act) == []


async def test_live_reply_draft_is_updated_each_second_with_latest_text() -> None:
    async def act(stage: Harness) -> None:
        showing = shown(stage)
        for word in ("one ", "two ", "three ", "four ", "five "):
            stage.grow(showing, word)
            await stage.clock.advance(0.4)
        await stage.clock.advance(10)
        assert await showing.pause() == ""
        stage.text = ""
        showing.resume(taken=False)
        showing.close()

    assert await play(Drafter, act) == [
        "0 draft run:draft:0: one ",
        "1 draft run:draft:0: one two three ",
        "2 draft run:draft:0: one two three four five ",
    ]


async def test_live_reply_draft_shows_part_being_written() -> None:
    async def act(stage: Harness) -> None:
        showing = shown(stage)
        stage.grow(showing, "a" * 99 + " the end")
        await stage.clock.advance(0)
        showing.close()

    assert await play(Drafter, act) == ["0 draft run:draft:0: the end"]


@pytest.mark.parametrize("mode", ["off", None])
async def test_live_reply_draft_needs_support_and_setting(mode: str | None) -> None:
    async def act(stage: Harness) -> None:
        chat = "42" if mode else "-100"
        assert stage.show(Inbound("1", Address("svc", chat), "ann", "hi")) is None

    await play(Drafter, act, **({"streamMode": mode} if mode else {}))


async def test_live_reply_edits_need_setting() -> None:
    async def act(stage: Harness) -> None:
        assert stage.show() is None

    await play(Editor, act)


async def test_live_reply_message_grows_by_edits_and_answer_reuses_its_id() -> None:
    async def act(stage: Harness) -> None:
        showing = shown(stage)
        stage.grow(showing, "Short.")
        await stage.clock.advance(5)
        stage.grow(showing, " " + LONG)
        await stage.clock.advance(0.5)
        stage.grow(showing, "More.")
        await stage.clock.advance(0.5)
        stage.grow(showing, " Yet more.")
        await stage.clock.advance(5)
        assert await showing.pause() == "p1"
        stage.grow(showing, " Never shown.")
        await stage.clock.advance(5)
        showing.resume(taken=True)
        stage.text = ""
        showing.close()

    assert await play(Reviser, act, streamMode="partial") == [
        f"5 send run:preview:0: Short. {LONG}",
        f"6.2 edit p1: Short. {LONG}More. Yet more.",
    ]


async def test_live_reply_after_sent_block_starts_another_message() -> None:
    async def act(stage: Harness) -> None:
        showing = shown(stage)
        stage.grow(showing, LONG)
        await stage.clock.advance(2)
        await showing.pause()
        stage.text = ""
        showing.resume(taken=True)
        await stage.clock.advance(2)
        stage.grow(showing, LONG)
        await stage.clock.advance(2)
        assert await showing.pause() == "p2"
        showing.resume(taken=True)
        stage.text = ""
        showing.close()

    told = await play(Editor, act, streamMode="partial")
    assert told == [f"0 send run:preview:0: {LONG}", f"4 send run:preview:1: {LONG}"]


async def test_live_reply_block_mode_shows_complete_paragraphs() -> None:
    async def act(stage: Harness) -> None:
        showing = shown(stage)
        stage.grow(showing, LONG + "\n\nand half a sen")
        await stage.clock.advance(2)
        await showing.pause()
        showing.resume(taken=True)
        stage.text = ""
        showing.close()

    assert await play(Editor, act, streamMode="block") == [f"0 send run:preview:0: {LONG}"]


async def test_live_reply_without_answer_is_deleted() -> None:
    async def act(stage: Harness) -> None:
        showing = shown(stage)
        stage.grow(showing, LONG)
        await stage.clock.advance(2)
        showing.close()

    assert (await play(Reviser, act, streamMode="partial"))[1:] == ["2 delete p1"]


async def test_live_reply_without_delete_is_marked_unfinished() -> None:
    async def act(stage: Harness) -> None:
        showing = shown(stage)
        stage.grow(showing, LONG)
        await stage.clock.advance(2)
        showing.close()

    assert (await play(Editor, act, streamMode="partial"))[1:] == [f"2 edit p1: {UNFINISHED}"]


async def test_live_reply_first_send_under_way_is_not_lost() -> None:
    async def act(stage: Harness) -> None:
        gate = stage.channel.gate = asyncio.Event()
        showing = shown(stage)
        stage.grow(showing, LONG)
        await stage.clock.advance(0)
        showing.close()
        await stage.clock.advance(0)
        assert stage.seen == []
        gate.set()
        await stage.clock.advance(0)

    assert (await play(Reviser, act, streamMode="partial"))[1:] == ["0 delete p1"]


async def test_live_reply_answer_waits_for_edit_under_way() -> None:
    async def act(stage: Harness) -> None:
        gate = stage.channel.gate = asyncio.Event()
        showing = shown(stage)
        stage.grow(showing, LONG)
        await stage.clock.advance(0)
        asyncio.get_running_loop().call_soon(gate.set)
        assert await showing.pause() == "p1"
        showing.resume(taken=True)
        stage.text = ""
        showing.close()

    assert len(await play(Reviser, act, streamMode="partial")) == 1


async def test_live_reply_rate_limited_service_is_updated_less_often() -> None:
    async def act(stage: Harness) -> None:
        stage.channel.trouble = [
            SendError("too many", retryable=True, after_s=7.0),
            SendError("too many", retryable=True),
        ]
        showing = shown(stage)
        for second in range(40):
            stage.grow(showing, f"{second} ")
            await stage.clock.advance(1)
        showing.close()

    times = [float(told.split()[0]) for told in await play(Drafter, act)]
    assert times[0] == 21 and times[1] - times[0] == 7 and times[-1] - times[-2] < 4


@pytest.mark.parametrize(
    "error",
    [
        SendError("no", retryable=False),
        ChannelAuthError("no"),
        ChannelError("perhaps"),  # it may have arrived: not started again
    ],
)
async def test_live_reply_unconfirmed_or_refused_start_is_not_repeated(error: Exception) -> None:
    async def act(stage: Harness) -> None:
        stage.channel.trouble = [error]
        showing = shown(stage)
        for _ in range(5):
            stage.grow(showing, LONG)
            await stage.clock.advance(30)
        assert await showing.pause() == ""
        showing.close()

    assert await play(Editor, act, streamMode="partial") == []


async def test_live_reply_idempotent_start_is_retried_under_same_key() -> None:
    async def act(stage: Harness) -> None:
        stage.channel.trouble = [ChannelError("perhaps")]
        showing = shown(stage)
        stage.grow(showing, LONG)
        await stage.clock.advance(30)
        assert await showing.pause() == "p1"
        showing.resume(taken=True)
        stage.text = ""
        showing.close()

    def editor(clock: FakeClock) -> Plain:
        return Editor(clock, idempotent=True)

    (told,) = await play(editor, act, streamMode="partial")
    assert "run:preview:0" in told


async def test_live_reply_deleted_message_is_not_replaced() -> None:
    async def act(stage: Harness) -> None:
        showing = shown(stage)
        stage.grow(showing, LONG)
        await stage.clock.advance(2)
        stage.channel.trouble = [SendError("there is no such message", retryable=False)]
        stage.grow(showing, LONG)
        await stage.clock.advance(2)
        assert await showing.pause() == ""
        showing.close()

    assert len(await play(Editor, act, streamMode="partial")) == 1


async def test_live_reply_is_abandoned_after_several_failures() -> None:
    async def act(stage: Harness) -> None:
        stage.channel.trouble = [OSError("gone")] * (MAX_FAILURES + 5)
        showing = shown(stage)
        for _ in range(9):
            stage.grow(showing, LONG)
            await stage.clock.advance(100)
        assert len(stage.channel.trouble) == 5
        showing.close()

    assert await play(Drafter, act) == []


async def test_ack_reaction_is_added_and_removed_after_answer() -> None:
    async def act(stage: Harness) -> None:
        stage.config = stage.config.model_copy(
            update={
                "messages": stage.config.messages.model_copy(
                    update={"remove_ack_after_reply": True}
                )
            }
        )
        stage.live = LiveReplies(
            stage.live._group, stage.clock, channel=stage.find, config=lambda: stage.config
        )
        stage.live.add_ack_reaction(ASKED, "👀")
        assert stage.show() is None
        await stage.clock.advance(1)
        stage.live.on_delivered("other:0")
        stage.live.on_delivered("run:message:abc:0")
        await stage.clock.advance(1)
        stage.live.on_delivered("run:0")
        stage.live.on_delivered("run:1")
        await stage.clock.advance(1)

    assert await play(Reactor, act) == ["0 react m1 👀", "2 react m1 none"]


async def test_ack_reaction_stays_unless_config_removes_it() -> None:
    async def act(stage: Harness) -> None:
        stage.live.add_ack_reaction(ASKED, "👀")
        stage.show()
        await stage.clock.advance(1)
        stage.live.on_delivered("run:0")

    assert await play(Reactor, act) == ["0 react m1 👀"]
