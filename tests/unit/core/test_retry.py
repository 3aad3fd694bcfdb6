"""Retrying: which errors, how often, how long between."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homarus.core.errors import AuthError, OverloadedError, ProviderError, RateLimitError
from homarus.core.retry import Backoff, retry
from homarus.testing.clock import FakeClock

PLAIN = Backoff(first_s=1, factor=2, max_s=30, jitter=0)


class Calls:
    """A call that fails as listed and then answers."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.made = 0

    async def __call__(self) -> str:
        self.made += 1
        if self.errors:
            raise self.errors.pop(0)
        return "answer"


async def attempt(calls: Calls, clock: FakeClock, attempts: int = 4) -> str:
    on = (OverloadedError, RateLimitError)
    return await retry(calls, on=on, attempts=attempts, backoff=PLAIN, clock=clock)


async def test_retry_first_success_returns_without_sleeping() -> None:
    calls, clock = Calls(), FakeClock(patient=False)
    assert await attempt(calls, clock) == "answer"
    assert (calls.made, clock.slept) == (1, [])


async def test_retry_listed_errors_backs_off_and_retries() -> None:
    calls, clock = Calls(*[OverloadedError("busy")] * 3), FakeClock(patient=False)
    assert await attempt(calls, clock) == "answer"
    assert (calls.made, clock.slept) == (4, [1, 2, 4])


async def test_retry_exhausted_raises_the_last_error() -> None:
    errors = [OverloadedError(f"busy {n}") for n in range(9)]
    calls, clock = Calls(*errors), FakeClock(patient=False)
    with pytest.raises(OverloadedError, match="busy 3"):
        await attempt(calls, clock, attempts=4)
    assert (calls.made, clock.slept) == (4, [1, 2, 4])


async def test_retry_other_error_is_raised_immediately() -> None:
    calls, clock = Calls(AuthError("no")), FakeClock(patient=False)
    with pytest.raises(AuthError):
        await attempt(calls, clock)
    assert (calls.made, clock.slept) == (1, [])


async def test_retry_error_with_retry_after_uses_it() -> None:
    calls = Calls(RateLimitError("slow down", after_s=7.5), RateLimitError("slow down", after_s=0))
    clock = FakeClock(patient=False)
    assert await attempt(calls, clock) == "answer"
    assert clock.slept == [7.5, 0]


async def test_retry_error_without_retry_after_uses_backoff() -> None:
    calls, clock = Calls(RateLimitError("slow down")), FakeClock(patient=False)
    await attempt(calls, clock)
    assert clock.slept == [1]


async def test_retry_cancelled_while_sleeping_stops() -> None:
    calls, clock = Calls(*[OverloadedError("busy")] * 9), FakeClock()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(
            retry(calls, on=(ProviderError,), attempts=9, backoff=PLAIN, clock=clock)
        )
        await clock.advance(1.5)  # one wait is over, the second is not
        task.cancel()
    assert task.cancelled()
    assert calls.made == 2


@given(
    st.integers(1, 100_000),
    st.floats(0.001, 60),
    st.floats(1, 10),
    st.floats(0.001, 3600),
    st.floats(0, 1),
)
def test_backoff_delay_is_between_zero_and_max(
    attempts: int, first_s: float, factor: float, most_s: float, jitter: float
) -> None:
    delay_s = Backoff(first_s, factor, most_s, jitter).delay_s(attempts)
    assert 0 <= delay_s <= most_s
    assert delay_s >= min(first_s, most_s) * (1 - jitter) * 0.999


def test_backoff_without_jitter_doubles_up_to_max() -> None:
    assert [PLAIN.delay_s(n) for n in range(1, 8)] == [1, 2, 4, 8, 16, 30, 30]
