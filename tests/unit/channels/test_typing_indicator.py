"""The typing indicator: refreshed while it is wanted, and given up in time."""

import asyncio
from collections.abc import Awaitable, Callable

from homarus.channels.typing_indicator import TypingIndicator
from homarus.core.errors import ChannelError
from homarus.testing.clock import FakeClock


class Chat:
    """Count the typing requests."""

    def __init__(self) -> None:
        self.signs: list[float] = []
        self.clock = FakeClock()
        self.broken: Exception | None = None

    async def typing(self) -> None:
        self.signs.append(self.clock.monotonic())
        if self.broken:
            raise self.broken


class AtOnce(TypingIndicator):
    """An indicator without initial delay."""

    initial_delay_s = 0.0


async def play(
    act: Callable[[Chat, TypingIndicator], Awaitable[None]],
    kind: type[TypingIndicator] = AtOnce,
    **rules: float,
) -> Chat:
    chat = Chat()
    typing = kind(chat.typing, chat.clock, interval_s=6.0, **rules)
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        task = group.create_task(typing.run())
        await act(chat, typing)
        task.cancel()
    return chat


async def test_typing_is_refreshed_before_it_expires() -> None:
    async def act(chat: Chat, typing: TypingIndicator) -> None:
        await chat.clock.advance(100)
        typing.refresh()
        await chat.clock.advance(13)

    assert (await play(act)).signs == [100, 106, 112]


async def test_typing_stops_with_answer_and_does_not_return() -> None:
    async def act(chat: Chat, typing: TypingIndicator) -> None:
        typing.refresh()
        await chat.clock.advance(7)
        typing.stop()
        typing.refresh()
        await chat.clock.advance(60)

    assert (await play(act)).signs == [0, 6]


async def test_typing_of_hanging_run_ends() -> None:
    async def act(chat: Chat, typing: TypingIndicator) -> None:
        typing.refresh()
        await chat.clock.advance(15)
        typing.refresh()
        await chat.clock.advance(600)
        assert chat.signs[-1] <= 35
        typing.refresh()
        await chat.clock.advance(1)

    chat = await play(act, ttl_s=20.0)
    assert chat.signs == [0, 6, 12, 18, 24, 30, 615]


async def test_typing_refused_by_service_is_not_repeated() -> None:
    async def act(chat: Chat, typing: TypingIndicator) -> None:
        chat.broken = ChannelError("no rights")
        typing.refresh()
        await chat.clock.advance(60)

    assert (await play(act)).signs == [0]


async def test_typing_is_not_shown_for_immediate_answer() -> None:
    async def quick(chat: Chat, typing: TypingIndicator) -> None:
        typing.refresh()
        await chat.clock.advance(0.2)
        typing.stop()
        await chat.clock.advance(60)

    async def slow(chat: Chat, typing: TypingIndicator) -> None:
        typing.refresh()
        await chat.clock.advance(1)

    assert (await play(quick, TypingIndicator)).signs == []
    assert len((await play(slow, TypingIndicator)).signs) == 1
