import asyncio
from collections.abc import AsyncIterator, Iterable

import pytest

from homarus.core.errors import (
    AllAttemptsFailedError,
    AuthError,
    BadRequestError,
    BillingError,
    ContextOverflowError,
    OverloadedError,
    ProviderError,
    ProviderTimeoutError,
    RateLimitError,
    StreamError,
    ThinkingUnsupportedError,
)
from homarus.core.message import Message, user_message
from homarus.core.retry import Backoff
from homarus.providers.base import AttemptRetried, Delta, ModelRequest, Provider, TextDelta
from homarus.providers.catalog import ModelInfo
from homarus.providers.concurrency_limiter import ConcurrencyLimiter
from homarus.providers.fallback import FallbackProvider, FallbackTarget, ProviderRetryPolicy
from homarus.testing.clock import FakeClock
from homarus.testing.fakes import Hang, ScriptedProvider, assistant_message

PATIENCE = ProviderRetryPolicy(tries=3, attempt_s=300.0, backoff=Backoff(first_s=1.0, jitter=0.0))


class Road:
    """Ways over scripted providers, and what was marked on each."""

    def __init__(self) -> None:
        self.clock = FakeClock(patient=False)
        self.ways: list[FallbackTarget] = []
        self.providers: list[ScriptedProvider] = []
        self.marks: list[tuple[str, str]] = []

    def add(
        self, credential: str, *script: Message | ProviderError | Hang, reasoning: bool = True
    ) -> "Road":
        provider = ScriptedProvider(script)
        self.providers.append(provider)
        model = ModelInfo("p", credential, reasoning=reasoning)

        async def opened() -> Provider:
            return provider

        def mark(exc: ProviderError | None) -> None:
            self.marks.append((credential, exc.code if exc else "good"))

        self.ways.append(
            FallbackTarget(model, credential, opened, mark, ConcurrencyLimiter(self.clock))
        )
        return self

    def ask(self, request: ModelRequest | None = None) -> list[Delta | Message]:
        async def main() -> list[Delta | Message]:
            asked = request or ModelRequest("x", "", (user_message("hi"),))
            return [
                p async for p in FallbackProvider(self.ways, self.clock, PATIENCE).stream(asked)
            ]

        return asyncio.run(main())


def answer(pieces: Iterable[Delta | Message]) -> str:
    (message,) = [piece for piece in pieces if isinstance(piece, Message)]
    return message.text


def retried(pieces: Iterable[Delta | Message]) -> list[tuple[str, str, float]]:
    return [(p.model, p.reason, p.wait_s) for p in pieces if isinstance(p, AttemptRetried)]


def test_fallback_first_working_target_is_the_only_one_called() -> None:
    road = Road().add("a", assistant_message("one")).add("b", assistant_message("two"))
    assert answer(road.ask()) == "one"
    assert road.providers[1].requests == [] and road.marks == [("a", "good")]


@pytest.mark.parametrize(
    "error", [AuthError("no"), BillingError("no"), RateLimitError("no", after_s=5)]
)
def test_fallback_refused_credential_recorded_and_next_tried(error: ProviderError) -> None:
    road = Road().add("a", error).add("b", assistant_message("two"))
    pieces = road.ask()
    assert answer(pieces) == "two"
    assert retried(pieces) == [("a", error.code, 0.0)]
    assert road.marks == [("a", error.code), ("b", "good")]


def test_fallback_overloaded_target_backs_off_then_tries_next() -> None:
    road = Road().add("a", *[OverloadedError("busy")] * 3).add("b", assistant_message("two"))
    pieces = road.ask()
    assert answer(pieces) == "two"
    assert [wait for _, _, wait in retried(pieces)] == [1.0, 2.0, 0.0]
    assert len(road.providers[0].requests) == 3


def test_fallback_last_target_waits_as_long_as_requested() -> None:
    road = Road().add("a", RateLimitError("slow down", after_s=7.0), assistant_message("late"))
    pieces = road.ask()
    assert answer(pieces) == "late" and retried(pieces) == [("a", "provider.rate_limited", 7.0)]


def test_fallback_wait_over_a_minute_raises() -> None:
    road = Road().add("a", RateLimitError("tomorrow", after_s=3600))
    with pytest.raises(RateLimitError):
        road.ask()
    assert len(road.providers[0].requests) == 1


@pytest.mark.parametrize(
    "error", [BadRequestError("bad", status=400), ContextOverflowError("too long")]
)
def test_fallback_error_common_to_all_targets_stops(error: ProviderError) -> None:
    road = Road().add("a", error).add("b", assistant_message("two"))
    with pytest.raises(type(error)):
        road.ask()
    assert road.providers[1].requests == []


def test_fallback_missing_model_tries_next_target() -> None:
    road = (
        Road()
        .add("a", BadRequestError("no such model", status=404))
        .add("b", assistant_message("two"))
    )
    assert answer(road.ask()) == "two"


def test_fallback_all_failed_error_names_each() -> None:
    road = Road().add("a", AuthError("key a")).add("b", AuthError("key b", fix="mend b"))
    with pytest.raises(AllAttemptsFailedError, match="key a; key b") as failed:
        road.ask()
    assert failed.value.fix == "mend b" and len(failed.value.tried) == 2


def test_fallback_text_of_failed_attempt_is_void() -> None:
    class Torn(ScriptedProvider):
        async def stream(self, request: ModelRequest) -> AsyncIterator[Delta | Message]:
            yield TextDelta("half a sen")
            raise StreamError("cut")

    road = Road().add("a").add("b", assistant_message("whole"))
    torn = Torn([])

    async def opened() -> Provider:
        return torn

    first = road.ways[0]
    road.ways[0] = FallbackTarget(first.model, "a", opened, first.mark, first.limiter)
    pieces = road.ask()
    kinds = [type(piece).__name__ for piece in pieces]
    assert kinds == ["TextDelta", "AttemptRetried"] * 3 + ["TextDelta", "Message"]


def test_fallback_refused_thinking_is_lowered() -> None:
    refused = ThinkingUnsupportedError("not that hard", status=400)
    road = Road().add("a", refused, refused, assistant_message("ok"))
    pieces = road.ask(ModelRequest("x", "", (user_message("hi"),), thinking="high"))
    assert answer(pieces) == "ok"
    assert [request.thinking for request in road.providers[0].requests] == ["high", "medium", "low"]
    assert road.marks == [("a", "good")]


def test_fallback_non_reasoning_model_gets_no_thinking() -> None:
    road = Road().add("a", assistant_message("ok"), reasoning=False)
    road.ask(ModelRequest("x", "", (user_message("hi"),), thinking="high"))
    assert road.providers[0].requests[0].thinking == "off"


async def test_fallback_cancel_is_not_a_failure() -> None:
    road = Road().add("a", Hang()).add("b", assistant_message("two"))

    async def main() -> None:
        async with asyncio.timeout(0.01):
            await drain()

    async def drain() -> None:
        asked = ModelRequest("x", "", (user_message("hi"),))
        async for _ in FallbackProvider(road.ways, road.clock, PATIENCE).stream(asked):
            pass

    with pytest.raises(TimeoutError):
        await main()
    assert road.marks == [] and road.providers[1].requests == []


async def test_fallback_silent_model_has_own_deadline() -> None:
    class Silent(ScriptedProvider):
        async def stream(self, request: ModelRequest) -> AsyncIterator[Delta | Message]:
            await asyncio.Event().wait()
            yield TextDelta("never")

    silent = Silent([])

    async def opened() -> Provider:
        return silent

    road = Road().add("b", assistant_message("two"))
    marks: list[str] = []

    def mark(exc: ProviderError | None) -> None:
        marks.append(type(exc).__name__)

    way = FallbackTarget(ModelInfo("p", "a"), "a", opened, mark, ConcurrencyLimiter(road.clock))
    patience = ProviderRetryPolicy(tries=1, attempt_s=0.01)
    fallback = FallbackProvider([way, *road.ways], road.clock, patience)
    pieces = [p async for p in fallback.stream(ModelRequest("x", "", (user_message("hi"),)))]
    result = answer(pieces)
    assert result == "two"
    assert marks == [ProviderTimeoutError.__name__]
