"""The typing sign: given again and again while it is wanted, and given up in time."""

import asyncio
from collections.abc import Awaitable, Callable

from homarus.channels.typing import Typing
from homarus.core.errors import ChannelError
from homarus.testing.clock import FakeClock


class Chat:
    """Counts the signs it was given."""

    def __init__(self) -> None:
        self.signs: list[float] = []
        self.clock = FakeClock()
        self.broken: Exception | None = None

    async def typing(self) -> None:
        self.signs.append(self.clock.monotonic())
        if self.broken:
            raise self.broken


class AtOnce(Typing):
    """One that gives the sign without waiting whether the answer is there before."""

    soon_s = 0.0


def play(
    act: Callable[[Chat, Typing], Awaitable[None]], kind: type[Typing] = AtOnce, **rules: float
) -> Chat:
    chat = Chat()

    async def main() -> None:
        typing = kind(chat.typing, chat.clock, interval_s=6.0, **rules)
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            task = group.create_task(typing.run())
            await act(chat, typing)
            task.cancel()

    asyncio.run(main())
    return chat


def test_the_sign_is_given_again_before_it_fades() -> None:
    async def act(chat: Chat, typing: Typing) -> None:
        await chat.clock.advance(100)
        typing.touch()
        await chat.clock.advance(13)

    assert play(act).signs == [100, 106, 112]


def test_it_stops_when_the_answer_is_there_and_does_not_come_back() -> None:
    async def act(chat: Chat, typing: Typing) -> None:
        typing.touch()
        await chat.clock.advance(7)
        typing.stop()
        typing.touch()
        await chat.clock.advance(60)

    assert play(act).signs == [0, 6]


def test_a_run_that_hangs_does_not_type_for_ever() -> None:
    async def act(chat: Chat, typing: Typing) -> None:
        typing.touch()
        await chat.clock.advance(15)
        typing.touch()
        await chat.clock.advance(600)
        assert chat.signs[-1] <= 35
        typing.touch()
        await chat.clock.advance(1)

    chat = play(act, ttl_s=20.0)
    assert chat.signs == [0, 6, 12, 18, 24, 30, 615]


def test_a_service_that_refuses_is_not_asked_again() -> None:
    async def act(chat: Chat, typing: Typing) -> None:
        chat.broken = ChannelError("no rights")
        typing.touch()
        await chat.clock.advance(60)

    assert play(act).signs == [0]


def test_an_answer_that_is_there_at_once_needs_no_sign() -> None:
    async def quick(chat: Chat, typing: Typing) -> None:
        typing.touch()
        await chat.clock.advance(0.2)
        typing.stop()
        await chat.clock.advance(60)

    async def slow(chat: Chat, typing: Typing) -> None:
        typing.touch()
        await chat.clock.advance(1)

    assert play(quick, Typing).signs == []
    assert len(play(slow, Typing).signs) == 1
