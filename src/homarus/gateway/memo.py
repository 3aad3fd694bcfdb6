"""What the gateway remembers between requests: answers and runs. All of it is bounded.

Answers are the results of `agent`, word for word, for whoever asks twice within minutes; that a
run happens once is the journal's promise. Runs are kept a while after
they ended, for those who ask how it went.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal, TypeAlias

from homarus.agent.run import Outcome
from homarus.core.clock import Clock
from homarus.core.errors import InvalidRequest, Unavailable
from homarus.core.message import Json
from homarus.core.value import dataclass
from homarus.gateway.spending import Spending

ANSWER_TTL_S = 300.0
MAX_ANSWERS = 1_000
MAX_ANSWER_CHARS = 8_000_000  # of all of them
ENDED_TTL_S = 600.0
MAX_ENDED = 1_000

RunStatus: TypeAlias = Literal["ok", "error", "timeout"]


class RunFailed(Unavailable):
    """A run ended without an answer; `payload` goes with the error."""

    def __init__(self, run_id: str, message: str) -> None:
        super().__init__(message)
        self.payload: Json = {"runId": run_id, "status": "error", "summary": message}


class Answers:
    """Final answers by their idempotency key."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: OrderedDict[str, tuple[float, Json | RunFailed, int]] = OrderedDict()
        self._chars = 0

    def get(self, key: str) -> Json | None:
        """What was answered before; the failure is raised again when it was one."""
        self._expire()
        found = self._kept.get(key)
        if found is None:
            return None
        if isinstance(found[1], RunFailed):
            raise found[1].with_traceback(None)
        return found[1]

    def put(self, key: str, answer: Json | RunFailed, chars: int = 0) -> None:
        """Keep an answer; `chars` is how long it is, when that is more than a few lines."""
        self._drop(key)
        self._kept[key] = (self._clock.monotonic(), answer, chars)
        self._chars += chars
        self._expire()

    def _drop(self, key: str) -> None:
        _, _, chars = self._kept.pop(key, (0.0, None, 0))
        self._chars -= chars

    def _expire(self) -> None:
        oldest = self._clock.monotonic() - ANSWER_TTL_S
        while self._kept:
            first = next(iter(self._kept))
            few = len(self._kept) <= MAX_ANSWERS and self._chars <= MAX_ANSWER_CHARS
            if few and self._kept[first][0] > oldest:
                return
            self._drop(first)


@dataclass(frozen=True, slots=True)
class Ended:
    """How a run went, as `agent.wait` tells it."""

    run_id: str
    status: RunStatus
    started_ms: int
    ended_ms: int
    error: str = ""
    kept_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Going:
    """A run that was asked for and has not ended."""

    run_id: str
    session_key: str
    outcome: asyncio.Future[Outcome]


class Runs:
    """The runs that clients started."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._going: dict[str, Going] = {}
        self._claims: dict[str, tuple[str, asyncio.Future[None]]] = {}
        self._ended: OrderedDict[str, Ended] = OrderedDict()
        self._waiting: dict[str, list[asyncio.Future[Ended]]] = {}

    def follow(
        self,
        run_id: str,
        session_key: str,
        outcome: asyncio.Future[Outcome],
        done: Callable[[Outcome | None], None],
    ) -> None:
        """Keep an eye on a run; `done` gets its outcome, None when it was dropped or broke."""
        self._going[run_id] = Going(run_id, session_key, outcome)

        def ended(future: asyncio.Future[Outcome]) -> None:
            self._going.pop(run_id, None)
            broke = future.cancelled() or future.exception() is not None
            found = None if broke else future.result()
            self.note(run_id, found, dropped=future.cancelled())
            done(found)

        outcome.add_done_callback(ended)

    @contextmanager
    def claim(self, run_id: str, session_key: str) -> Iterator[None]:
        """Be the only one who prepares this run; whoever comes second is refused."""
        if run_id in self._claims:
            raise InvalidRequest(f"run {run_id} is being started")
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._claims[run_id] = (session_key, done)
        try:
            yield
        finally:
            del self._claims[run_id]
            done.set_result(None)

    def is_claimed(self, run_id: str) -> bool:
        """Whether somebody prepares this run."""
        return run_id in self._claims

    async def prepared(self, session_key: str) -> None:
        """Wait for the session's runs that are being prepared now."""
        claims = [done for key, done in self._claims.values() if key == session_key]
        if claims:
            await asyncio.wait(claims)

    def going(self, run_id: str) -> Going | None:
        return self._going.get(run_id)

    @property
    def count(self) -> int:
        """How many have not ended."""
        return len(self._going)

    def of(self, session_key: str) -> tuple[Going, ...]:
        """Every run of a session that has not ended, those that wait their turn too."""
        return tuple(run for run in self._going.values() if run.session_key == session_key)

    async def settle(self, session_key: str, timeout_s: float = 5.0) -> bool:
        """Wait until the session's runs have ended; whether they have."""
        futures = [run.outcome for run in self.of(session_key)]
        if not futures:
            return True
        _, going = await asyncio.wait(futures, timeout=timeout_s)
        return not going

    async def wait(self, run_id: str, timeout_s: float) -> Ended | None:
        """How a run went; None when that takes longer. It may be one that begins only later."""
        self._expire()
        if found := self._ended.get(run_id):
            return found
        promise: asyncio.Future[Ended] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(run_id, []).append(promise)
        try:
            async with asyncio.timeout(timeout_s):
                return await promise
        except TimeoutError:
            return None
        finally:
            left = [one for one in self._waiting.pop(run_id, []) if one is not promise]
            if left:
                self._waiting[run_id] = left

    def note(self, run_id: str, outcome: Outcome | None, *, dropped: bool = False) -> None:
        """A run ended."""
        now_ms = self._clock.now_ms()
        aborted = dropped or (outcome is not None and outcome.status == "aborted")
        answered = outcome is not None and outcome.status == "answered"
        error = str(outcome.error or "") if outcome else "" if dropped else BROKEN
        ended = Ended(
            run_id=run_id,
            status="timeout" if aborted else "ok" if answered else "error",
            started_ms=now_ms - (outcome.duration_ms if outcome else 0),
            ended_ms=now_ms,
            error=error,
            kept_s=self._clock.monotonic(),
        )
        self._ended.pop(run_id, None)
        self._ended[run_id] = ended
        self._expire()
        for promise in self._waiting.get(run_id, ()):
            if not promise.done():
                promise.set_result(ended)

    def _expire(self) -> None:
        oldest = self._clock.monotonic() - ENDED_TTL_S
        while self._ended:
            first = next(iter(self._ended))
            if len(self._ended) <= MAX_ENDED and self._ended[first].kept_s > oldest:
                return
            del self._ended[first]


BROKEN = "the run broke off: a bug, written to the log"


class Memo:
    """All of it, for one gateway."""

    def __init__(self, clock: Clock) -> None:
        self.answers = Answers(clock)
        self.runs = Runs(clock)
        self.spending = Spending()
