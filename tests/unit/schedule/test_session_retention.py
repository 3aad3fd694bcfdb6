"""Sessions of single runs are deleted when they are old; conversations stay."""

from homarus.core.lanes import Lanes
from homarus.core.message import user_message
from homarus.schedule.session_retention import RetentionServices, prune_run_sessions
from homarus.sessions.session import SessionRepository
from homarus.testing.clock import FakeClock
from homarus.testing.memory_store import MemoryStore

HOUR_MS, DAY_S = 3_600_000, 86_400.0
ID = "0f0e0d0c-0b0a-4908-8706-050403020100"
RUN = f"agent:main:cron:job-1:run:{ID}"
SINGLE = [
    RUN, f"agent:main:hook:{ID}", f"agent:ops:hook:github:{ID}",
    "agent:main:hook:gmail:18c0ffee18c0ffee",
]  # fmt: skip
KEPT = [
    "agent:main:main", "agent:main:cron:job-1", "agent:main:hook:ci:build",
    "agent:main:hook:github:issues", "agent:main:telegram:direct:7", f"agent:main:x:hook:{ID}",
]  # fmt: skip


class Sessions:
    """A store with one session of each key, and the deletion of old ones."""

    def __init__(self) -> None:
        self.store, self.clock, self.busy = MemoryStore(), FakeClock(), set[str]()
        self.repository = SessionRepository(self.store, self.clock)

    async def fill(self, *keys: str) -> None:
        for key in keys:
            session = await self.repository.load(key, key.split(":")[1])
            await session.append(user_message("hello"))

    async def prune(self, retention_ms: int | None = 24 * HOUR_MS) -> int:
        return await prune_run_sessions(
            RetentionServices(
                self.store, self.repository, self.clock, Lanes(),
                self.busy.__contains__, lambda: retention_ms,
            )
        )  # fmt: skip

    async def keys(self) -> set[str]:
        return {one.key for one in await self.store.sessions()}


async def test_sessions_of_single_runs_are_deleted_after_a_day() -> None:
    it = Sessions()
    await it.fill(*SINGLE, *KEPT)
    await it.clock.advance(DAY_S)
    assert await it.prune() == 0
    await it.clock.advance(1)
    assert await it.prune() == len(SINGLE)
    assert await it.keys() == set(KEPT)


async def test_session_that_is_used_stays() -> None:
    it = Sessions()
    await it.fill(*SINGLE)
    await it.clock.advance(2 * DAY_S)
    await it.fill(SINGLE[1])
    it.busy.add(RUN)
    assert await it.prune() == 2
    assert await it.keys() == {RUN, SINGLE[1]}


async def test_retention_false_keeps_all() -> None:
    it = Sessions()
    await it.fill(*SINGLE)
    await it.clock.advance(400 * DAY_S)
    assert await it.prune(None) == 0 and await it.keys() == set(SINGLE)


async def test_many_old_sessions_are_deleted_at_once() -> None:
    it = Sessions()
    await it.fill(*(f"agent:main:hook:{number:08x}{ID[8:]}" for number in range(120)))
    await it.clock.advance(2 * DAY_S)
    assert await it.prune() == 120 and not await it.keys()
