"""Retrying: which errors, how often, how long between."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homarus.core.errors import AuthFailed, Overloaded, ProviderError, RateLimited
from homarus.core.retry import Backoff, retry
from homarus.testing.clock import FakeClock

PLAIN = Backoff(first_s=1, factor=2, most_s=30, jitter=0)


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


def attempt(calls: Calls, clock: FakeClock, attempts: int = 4) -> str:
    on = (Overloaded, RateLimited)
    return asyncio.run(retry(calls, on=on, attempts=attempts, backoff=PLAIN, clock=clock))


def test_the_first_success_is_returned_without_waiting() -> None:
    calls, clock = Calls(), FakeClock(patient=False)
    assert attempt(calls, clock) == "answer"
    assert (calls.made, clock.slept) == (1, [])


def test_listed_errors_are_tried_again_after_growing_waits() -> None:
    calls, clock = Calls(*[Overloaded("busy")] * 3), FakeClock(patient=False)
    assert attempt(calls, clock) == "answer"
    assert (calls.made, clock.slept) == (4, [1, 2, 4])


def test_the_last_error_is_raised_when_the_attempts_are_used_up() -> None:
    errors = [Overloaded(f"busy {n}") for n in range(9)]
    calls, clock = Calls(*errors), FakeClock(patient=False)
    with pytest.raises(Overloaded, match="busy 3"):
        attempt(calls, clock, attempts=4)
    assert (calls.made, clock.slept) == (4, [1, 2, 4])


def test_any_other_error_is_raised_at_once() -> None:
    calls, clock = Calls(AuthFailed("no")), FakeClock(patient=False)
    with pytest.raises(AuthFailed):
        attempt(calls, clock)
    assert (calls.made, clock.slept) == (1, [])


def test_a_wait_the_server_asked_for_is_kept_instead_of_ours() -> None:
    calls = Calls(RateLimited("slow down", after_s=7.5), RateLimited("slow down", after_s=0))
    clock = FakeClock(patient=False)
    assert attempt(calls, clock) == "answer"
    assert clock.slept == [7.5, 0]


def test_a_server_that_names_no_wait_gets_ours() -> None:
    calls, clock = Calls(RateLimited("slow down")), FakeClock(patient=False)
    attempt(calls, clock)
    assert clock.slept == [1]


def test_cancelling_during_a_wait_stops_the_retrying() -> None:
    async def main() -> None:
        calls, clock = Calls(*[Overloaded("busy")] * 9), FakeClock()
        async with asyncio.TaskGroup() as group:
            task = group.create_task(
                retry(calls, on=(ProviderError,), attempts=9, backoff=PLAIN, clock=clock)
            )
            await clock.advance(1.5)  # one wait is over, the second is not
            task.cancel()
        assert task.cancelled()
        assert calls.made == 2

    asyncio.run(main())


@given(
    st.integers(1, 100_000),
    st.floats(0.001, 60),
    st.floats(1, 10),
    st.floats(0.001, 3600),
    st.floats(0, 1),
)
def test_a_delay_is_never_negative_never_above_the_cap_and_never_overflows(
    attempts: int, first_s: float, factor: float, most_s: float, jitter: float
) -> None:
    delay_s = Backoff(first_s, factor, most_s, jitter).delay_s(attempts)
    assert 0 <= delay_s <= most_s
    assert delay_s >= min(first_s, most_s) * (1 - jitter) * 0.999


def test_delays_without_jitter_double_up_to_the_cap() -> None:
    assert [PLAIN.delay_s(n) for n in range(1, 8)] == [1, 2, 4, 8, 16, 30, 30]
