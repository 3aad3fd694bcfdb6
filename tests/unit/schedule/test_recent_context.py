"""The last messages that a reminder repeats: how many, and how long."""

import pytest

from homarus.core.message import Message, Text, user_message
from homarus.schedule.recent_context import read_recent_context
from homarus.sessions.session import SessionRepository
from homarus.testing.clock import FakeClock
from homarus.testing.memory_store import MemoryStore

KEY = "agent:main:main"


async def fill(*texts: str) -> MemoryStore:
    """Return a store whose session has these messages, of both sides in turns."""
    clock, store = FakeClock(), MemoryStore()
    session = await SessionRepository(store, clock).load(KEY, "main")
    for number, text in enumerate(texts):
        message = user_message(text) if number % 2 == 0 else Message("assistant", (Text(text),))
        await session.append(message)
    return store


async def test_recent_context_has_the_last_messages() -> None:
    store = await fill("one", "two", "three\nlines", "four")
    assert await read_recent_context(store, KEY, 3) == (
        "- Assistant: two\n- User: three lines\n- Assistant: four"
    )


@pytest.mark.parametrize("count", [0, -1])
async def test_recent_context_of_no_messages_is_empty(count: int) -> None:
    store = await fill("one")
    assert await read_recent_context(store, KEY, count) == ""
    assert await read_recent_context(store, "agent:main:other", 3) == ""


async def test_recent_context_is_short() -> None:
    store = await fill(*(f"{number} " + "x" * 1_000 for number in range(12)))
    lines = (await read_recent_context(store, KEY, 50)).splitlines()
    assert len(lines) == 3 and lines[-1].startswith("- Assistant: 11 x")
    assert all(len(line) <= 240 for line in lines)
    assert sum(map(len, lines)) <= 700
