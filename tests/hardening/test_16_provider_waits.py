"""A run that waits for a provider has no place in `main`, waits for a bounded time, and names why.

Any number of conversations whose provider hangs, stalls or asks for a long wait must not hold up a
conversation with a healthy provider.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from homarus.agent.lane_release import LaneReleasingProvider
from homarus.agent.run import RunOutcome
from homarus.app import App
from homarus.core.errors import ProviderTimeoutError, RateLimitError
from homarus.core.lanes import LanePlace, Lanes
from homarus.core.message import Address, Inbound, Message, RunOptions, user_message
from homarus.core.tasks import task_group
from homarus.process import open_app
from homarus.providers.base import AttemptRetried, Delta, ModelRequest, TextDelta
from homarus.providers.concurrency_limiter import (
    MAX_COUNTED_S,
    PROBE_S,
    ConcurrencyLimiter,
    LimiterClosedError,
)
from homarus.testing.clock import FakeClock
from homarus.testing.fakes import GUARD_S, assistant_message
from homarus.testing.model_server import Fail, HangUntilDisconnect, ModelServer, Say, ScriptStep
from tests.waiting import settle, until

STUCK = 10  # more than the places of `main`
WIDTH = 2


@asynccontextmanager
async def program(folder: Path, **servers: ModelServer) -> AsyncIterator[App]:
    """Open the program with a provider for each server, the first as the primary model's.

    The lane `main` is two wide.
    """
    providers: dict[str, Any] = {
        name: {"baseUrl": server.url, "apiKey": "k", "models": [{"id": "m", "name": "M"}]}
        for name, server in servers.items()
    }
    config = {
        "models": {"providers": providers},
        "agents": {
            "defaults": {"maxConcurrent": WIDTH, "model": {"primary": f"{next(iter(servers))}/m"}}
        },
    }
    state = folder / ".openclaw"
    state.mkdir()
    (state / "openclaw.json").write_text(json.dumps(config))
    async with asyncio.timeout(GUARD_S), open_app({"HOME": str(folder)}) as app:
        yield app


async def ask(app: App, name: str, model: str, timeout_s: float | None = None) -> RunOutcome:
    """Send a message in a session of its own."""
    options = RunOptions(model=f"{model}/m", timeout_s=timeout_s)
    inbound = Inbound(name, Address("webchat", "1"), "ann", "hi", options=options, run_id=name)
    return await app.control.ask(f"agent:main:{name}", inbound)


@pytest.mark.parametrize("first_words", [[], [Say("Once upon a time")]], ids=["hangs", "stalls"])
async def test_stuck_providers_do_not_delay_healthy_one(
    tmp_path: Path, first_words: list[Say]
) -> None:
    async with ModelServer() as stuck, ModelServer() as healthy:
        steps: list[ScriptStep] = [*first_words, HangUntilDisconnect()]
        stuck.script(*[steps] * STUCK)
        healthy.script([Say("well")])
        async with program(tmp_path, stuck=stuck, healthy=healthy) as app, task_group() as group:
            waiting = [group.create_task(ask(app, f"stuck{n}", "stuck")) for n in range(STUCK)]
            await until(lambda: len(stuck.requests) == STUCK)
            await until(lambda: app.lanes.snapshot()["main"][:2] == (0, 0))
            outcome = await ask(app, "fifth", "healthy")
            assert (outcome.status, outcome.text) == ("answered", "well")
            assert not any(task.done() for task in waiting)
            for number in range(STUCK):
                await app.control.stop(f"agent:main:stuck{number}")


async def test_long_retry_after_fails_at_once_and_names_the_cause(tmp_path: Path) -> None:
    async with ModelServer() as limited, ModelServer() as healthy:
        limited.script([Fail(429, retry_after="7200")])
        async with program(tmp_path, limited=limited, healthy=healthy) as app:
            first = await ask(app, "one", "limited")
            assert isinstance(first.error, RateLimitError)
            later = [await ask(app, f"later{n}", "limited") for n in range(WIDTH + 1)]
            assert {type(outcome.error) for outcome in later} == {RateLimitError}
            assert "limited/m is rate limited until 20" in str(later[0].error)
            assert len(limited.requests) == 1
            assert (await ask(app, "other", "healthy")).status == "answered"


async def test_short_retry_after_is_waited_for(tmp_path: Path) -> None:
    async with ModelServer() as healthy:
        healthy.script([Fail(429, retry_after="0.05")], [Say("late")])
        async with program(tmp_path, healthy=healthy) as app:
            assert (await ask(app, "one", "healthy")).text == "late"


async def test_deadline_during_rate_limit_names_rate_limit(tmp_path: Path) -> None:
    async with ModelServer() as limited:
        limited.script([Fail(429, retry_after="30")])
        async with program(tmp_path, healthy=limited) as app:
            for name in ("first", "second"):  # one that was refused, one that was not sent
                outcome = await ask(app, name, "healthy", timeout_s=6.0)
                assert isinstance(outcome.error, RateLimitError), outcome.error


async def test_deadline_before_first_byte_names_silent_model(tmp_path: Path) -> None:
    async with ModelServer() as stuck:
        stuck.script([HangUntilDisconnect()])
        async with program(tmp_path, healthy=stuck) as app:
            outcome = await ask(app, "one", "healthy", timeout_s=2.0)
            assert isinstance(outcome.error, ProviderTimeoutError)
            assert "healthy/m has sent nothing for" in str(outcome.error)


class PacedProvider:
    """A provider that yields what the test feeds it."""

    name = api = "paced"

    def __init__(self) -> None:
        self.pieces: asyncio.Queue[Delta | Message] = asyncio.Queue()

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta | Message]:
        while True:
            piece = await self.pieces.get()
            yield piece
            if isinstance(piece, Message):
                return

    async def close(self) -> None:
        pass


async def consume(
    provider: LaneReleasingProvider, place: LanePlace, seen: list[tuple[Delta | Message, bool]]
) -> None:
    request = ModelRequest("m", "", (user_message("hi"),))
    async for piece in provider.stream(request):
        seen.append((piece, place.is_held))  # noqa: PERF401 - the test reads it meanwhile


async def wait_for_release(place: LanePlace) -> None:
    await until(lambda: not place.is_held)


async def test_place_is_held_only_while_an_answer_is_received() -> None:
    lanes, inner = Lanes({"main": 1}), PacedProvider()
    seen: list[tuple[Delta | Message, bool]] = []
    async with lanes.open_place("main") as place, task_group() as group:
        await place.acquire(resumes=False)
        task = group.create_task(consume(LaneReleasingProvider(inner, place), place, seen))
        await wait_for_release(place)
        inner.pieces.put_nowait(AttemptRetried("p", "m", "r", "e", "p/m"))
        await until(lambda: len(seen) == 1)
        await wait_for_release(place)  # between two attempts
        inner.pieces.put_nowait(TextDelta("a"))
        await until(lambda: len(seen) == 2)
        assert seen[-1] == (TextDelta("a"), True)
        await wait_for_release(place)  # the answer stalls
        inner.pieces.put_nowait(assistant_message("ab"))
        await task
        assert seen[-1][1] and place.is_held  # for the tool calls of the answer
    assert lanes.snapshot()["main"] == (0, 0, 1)


async def test_run_that_resumes_goes_before_new_runs_and_within_width() -> None:
    lanes, order = Lanes({"main": 1}), list[str]()
    async with lanes.open_place("main") as resumed, lanes.open_place("main") as busy:
        await busy.acquire(resumes=False)

        async def new() -> None:
            async with lanes.enter("main"):
                order.append("new")

        async def resume() -> None:
            await resumed.acquire()
            order.append("resumed")
            resumed.release()

        async with task_group() as group:
            group.create_task(new())
            await settle()
            group.create_task(resume())
            await settle()
            assert order == [] and lanes.depth("main") == 2
            busy.release()
    assert order == ["resumed", "new"]


async def test_place_of_abandoned_task_is_not_acquired_again() -> None:
    lanes = Lanes({"main": 1})
    async with lanes.open_place("main") as place:
        pass
    with pytest.raises(asyncio.CancelledError):
        await place.acquire()
    async with asyncio.timeout(GUARD_S), lanes.enter("main"):
        pass


async def test_limiter_closed_for_long_admits_one_probe_a_minute() -> None:
    clock = FakeClock(patient=False)
    limiter = ConcurrencyLimiter(clock)
    async with limiter.enter():
        limiter.on_rate_limited(7200.0)
    with pytest.raises(LimiterClosedError):
        async with limiter.enter():
            pass
    await clock.sleep(PROBE_S)
    async with limiter.enter():
        with pytest.raises(LimiterClosedError):
            async with limiter.enter():
                pass
        limiter.on_success()  # sooner than the service said
    async with limiter.enter():
        assert clock.monotonic() == PROBE_S


async def test_limiter_long_refusal_fails_requests_that_wait() -> None:
    limiter, failed = ConcurrencyLimiter(FakeClock()), list[float]()
    limiter.on_rate_limited(0.0)  # one at a time from now on

    async def wait() -> None:
        try:
            async with limiter.enter():
                pass
        except LimiterClosedError as exc:
            failed.append(exc.left_s)

    async with task_group() as group, limiter.enter():
        for _ in range(3):
            group.create_task(wait())
        await settle()
        limiter.on_rate_limited(7200.0)
        await settle()
        assert failed == [7200.0] * 3


async def test_limiter_request_that_hangs_stops_counting() -> None:
    clock, entered = FakeClock(patient=False), asyncio.Event()
    limiter = ConcurrencyLimiter(clock)
    limiter.on_rate_limited(0.0)

    async def enter() -> None:
        async with limiter.enter():
            entered.set()

    async with task_group() as group, limiter.enter():  # hangs
        group.create_task(enter())
        await settle()
        assert not entered.is_set()
        await clock.sleep(MAX_COUNTED_S)
        limiter._wake()  # which a timer does
        await settle()
        assert entered.is_set()
