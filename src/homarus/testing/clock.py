"""A clock that a test moves explicitly, so that testing timeouts takes no time."""

import asyncio
import heapq
import itertools

# Far enough from zero that a timestamp mistaken for a duration shows.
START_MS = 1_800_000_000_000
# Loop iterations after each step of time, so that a woken task can reach its next wait.
_TURNS = 20


class FakeClock:
    """A `Clock` for tests: `advance` moves time and wakes sleepers in the order of their deadlines.

    With `patient=False` no task waits: each sleep moves the time itself and returns. `slept` lists
    every requested wait, in order.
    """

    def __init__(self, at_ms: int = START_MS, *, patient: bool = True) -> None:
        self.slept: list[float] = []
        self._start_ms = at_ms
        self._elapsed_s = 0.0
        self._patient = patient
        self._order = itertools.count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    @property
    def sleepers(self) -> int:
        """The number of tasks that wait now."""
        return sum(not waking.done() for _, _, waking in self._sleepers)

    def now_ms(self) -> int:
        return self._start_ms + round(self._elapsed_s * 1000)

    def monotonic(self) -> float:
        return self._elapsed_s

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        if not self._patient or seconds <= 0:
            self._elapsed_s += max(seconds, 0.0)
            await asyncio.sleep(0)
            return
        waking: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._elapsed_s + seconds, next(self._order), waking))
        await waking

    def step(self, seconds: float) -> None:
        """Set the wall clock forwards or backwards; no time passes."""
        self._start_ms += round(seconds * 1000)

    async def advance(self, seconds: float) -> None:
        """Move time; a task that wakes runs at its own deadline, and may sleep again."""
        await self._settle()
        until_s = self._elapsed_s + seconds
        while self._sleepers and self._sleepers[0][0] <= until_s:
            due_s, _, waking = heapq.heappop(self._sleepers)
            if waking.done():  # its sleeper was cancelled
                continue
            self._elapsed_s = max(self._elapsed_s, due_s)
            waking.set_result(None)
            await self._settle()
        self._elapsed_s = until_s

    async def _settle(self) -> None:
        for _ in range(_TURNS):
            await asyncio.sleep(0)
