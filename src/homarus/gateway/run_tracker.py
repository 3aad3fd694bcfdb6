"""Track the runs that clients started, and for a while how they ended."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal, TypeAlias

from homarus.agent.run import RunOutcome
from homarus.core.clock import Clock
from homarus.core.errors import InvalidRequestError, UnavailableError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json

ENDED_TTL_S = 600.0
MAX_ENDED = 1_000
_MAX_MESSAGES = 1_000
CRASHED = "the run broke off: a bug, written to the log"

RunStatus: TypeAlias = Literal["ok", "error", "timeout"]


class RunFailedError(UnavailableError):
    """A run ended without an answer; `payload` is sent with the error, and has its `result`."""

    def __init__(self, run_id: str, message: str, result: Json = None) -> None:
        super().__init__(message)
        self.payload: Json = {"runId": run_id, "status": "error", "summary": message}
        if result is not None:
            self.payload["result"] = result


@dataclass(frozen=True, slots=True)
class EndedRun:
    """How a run ended, as `agent.wait` reports it."""

    run_id: str
    status: RunStatus
    started_ms: int
    ended_ms: int
    error: str = ""
    recorded_s: float = 0.0


@dataclass(frozen=True, slots=True)
class PendingRun:
    """A run that was requested and has not ended."""

    run_id: str
    session_key: str
    outcome: asyncio.Future[RunOutcome]


class RunTracker:
    """The pending runs of clients, and those that ended in the last minutes."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._pending: dict[str, PendingRun] = {}
        self._claims: dict[str, tuple[str, asyncio.Future[None]]] = {}
        self._ended: OrderedDict[str, EndedRun] = OrderedDict()
        self._waiting: dict[str, list[asyncio.Future[EndedRun]]] = {}
        self._messages: OrderedDict[tuple[str, int], str] = OrderedDict()

    def track(
        self,
        run_id: str,
        session_key: str,
        outcome: asyncio.Future[RunOutcome],
        on_end: Callable[[RunOutcome | None], None],
    ) -> None:
        """Track a run; `on_end` gets its outcome, None when it was dropped or crashed."""
        self._pending[run_id] = PendingRun(run_id, session_key, outcome)

        def ended(future: asyncio.Future[RunOutcome]) -> None:
            self._pending.pop(run_id, None)
            failed = future.cancelled() or future.exception() is not None
            result = None if failed else future.result()
            self.record_end(run_id, result, dropped=future.cancelled())
            on_end(result)

        outcome.add_done_callback(ended)

    def record_message(self, session_key: str, at_ms: int, run_id: str) -> None:
        """Record which request a message of a session, sent at this time, belongs to."""
        self._messages[session_key, at_ms] = run_id
        if len(self._messages) > _MAX_MESSAGES:
            self._messages.popitem(last=False)

    def add_message_key(self, session_key: str, message: dict[str, Json]) -> None:
        """Add to a user message the key by which the client that sent it recognises it."""
        run_id = self._messages.get((session_key, message["timestamp"]))
        if run_id and message["role"] == "user":
            message["idempotencyKey"] = f"{run_id}:user"

    @contextmanager
    def claim(self, run_id: str, session_key: str) -> Iterator[None]:
        """Reserve a run id while its run is prepared; a second claim raises InvalidRequestError."""
        if run_id in self._claims:
            raise InvalidRequestError(f"run {run_id} is being started")
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._claims[run_id] = (session_key, done)
        try:
            yield
        finally:
            del self._claims[run_id]
            done.set_result(None)

    def is_claimed(self, run_id: str) -> bool:
        """Return whether this run is being prepared."""
        return run_id in self._claims

    async def prepared(self, session_key: str) -> None:
        """Wait until no run of the session is being prepared."""
        claims = [done for key, done in self._claims.values() if key == session_key]
        if claims:
            await asyncio.wait(claims)

    def find_pending(self, run_id: str) -> PendingRun | None:
        return self._pending.get(run_id)

    @property
    def count(self) -> int:
        """How many runs are pending."""
        return len(self._pending)

    @property
    def sessions(self) -> frozenset[str]:
        """The sessions that have pending runs."""
        return frozenset(run.session_key for run in self._pending.values())

    def for_session(self, session_key: str) -> tuple[PendingRun, ...]:
        """Return the pending runs of a session, queued ones included."""
        return tuple(run for run in self._pending.values() if run.session_key == session_key)

    async def wait(self, run_id: str, timeout_s: float) -> EndedRun | None:
        """Wait for a run, even one that was not requested yet; None when that takes longer."""
        self._expire()
        if found := self._ended.get(run_id):
            return found
        waiter: asyncio.Future[EndedRun] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(run_id, []).append(waiter)
        try:
            async with asyncio.timeout(timeout_s):
                return await waiter
        except TimeoutError:
            return None
        finally:
            left = [one for one in self._waiting.pop(run_id, []) if one is not waiter]
            if left:
                self._waiting[run_id] = left

    def record_end(self, run_id: str, outcome: RunOutcome | None, *, dropped: bool = False) -> None:
        """Record how a run ended, and wake those who wait for it."""
        now_ms = self._clock.now_ms()
        aborted = dropped or (outcome is not None and outcome.status == "aborted")
        answered = outcome is not None and outcome.status == "answered"
        error = str(outcome.error or "") if outcome else "" if dropped else CRASHED
        ended = EndedRun(
            run_id=run_id,
            status="timeout" if aborted else "ok" if answered else "error",
            started_ms=now_ms - (outcome.duration_ms if outcome else 0),
            ended_ms=now_ms,
            error=error,
            recorded_s=self._clock.monotonic(),
        )
        self._ended.pop(run_id, None)
        self._ended[run_id] = ended
        self._expire()
        for waiter in self._waiting.get(run_id, ()):
            if not waiter.done():
                waiter.set_result(ended)

    def _expire(self) -> None:
        oldest = self._clock.monotonic() - ENDED_TTL_S
        while self._ended:
            first = next(iter(self._ended))
            if len(self._ended) <= MAX_ENDED and self._ended[first].recorded_s > oldest:
                return
            del self._ended[first]
