"""The cost of opening a long session."""

import asyncio
import tempfile
from pathlib import Path

from bench.figure import CpuClock, Figure
from homarus.core.clock import SystemClock
from homarus.core.message import Message, Origin, Text, user_message
from homarus.sessions.session import Session, SessionRepository
from homarus.store.sqlite import open_store

ENTRIES = 10_000
KEY = "agent:main:bench"
BATCH = 500


def measure(*, quick: bool) -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(_measure(Path(folder), times=3 if quick else 7))


async def _measure(state: Path, times: int) -> list[Figure]:
    clock = SystemClock()
    async with open_store(state, mirror=False) as store:
        session = await SessionRepository(store, clock).load(KEY, "main")
        await session.start_turn(user_message("Where were we?"), provider="bench", model="mock")
        origin = Origin("openai-completions", "bench", "mock")
        for start in range(0, ENTRIES, BATCH):
            await session.append(*[_message(n, origin) for n in range(start, start + BATCH)])
        stored = len(await store.entries(session.session_id))
    spent_s = []
    for _ in range(times):
        cpu = CpuClock()
        async with open_store(state, mirror=False) as store:
            opened = await Session.load(store, clock, KEY, "main")
            spent_s.append(cpu.spent_s())
        assert len(opened.messages) > ENTRIES
    note = f"{stored} entries, best of {times}"
    return [Figure("transcript.open_cpu_s", min(spent_s), "CPU-s", note)]


def _message(number: int, origin: Origin) -> Message:
    """Return questions and answers of typical length."""
    words = (
        f"Line {number}. " + "The lamp over the harbour went out again, and nobody noticed. " * 5
    )
    if number % 2:
        return user_message(words, at_ms=number)
    return Message("assistant", (Text(words),), number, origin)
