"""The spend limit: reserved before a call, settled after it, never exceeded."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homarus.agent.spend_limit import KIND, SpendLimiter, quote_call, with_spend_limit
from homarus.config import schema
from homarus.core.errors import DiskFullError, OverloadedError, ProviderError, SpendLimitError
from homarus.core.message import Message, Usage, user_message
from homarus.providers.base import AttemptRetried, Delta, ModelRequest, Provider, TextDelta
from homarus.providers.catalog import ModelInfo, Price
from homarus.testing.fakes import Hang, ScriptedProvider, assistant_message
from homarus.testing.memory_store import MemoryStore

PRICE = Price(input=5.0, output=25.0, cache_read=0.5, cache_write=6.25)
MODEL = ModelInfo("p", "m", max_tokens=64_000, price=PRICE)
DAY_MS = 86_400_000


class Bank:
    """A spend limiter on a store in memory, with a settable day."""

    def __init__(self, store: MemoryStore | None = None, **caps: Any) -> None:
        self.store = store or MemoryStore()
        self.caps = schema.SpendConfig.model_validate(caps)
        self.now_ms = 0
        self.spend = SpendLimiter(
            self.store, lambda: self.caps, lambda: self.now_ms, lambda ms: f"day-{ms // DAY_MS}"
        )

    async def record(self, day: str = "day-0") -> dict[str, Any]:
        return dict(await self.store.record(KIND, day) or {})


def costing(usd: float) -> Message:
    message = assistant_message("hello")
    assert message.origin
    return replace(message, origin=replace(message.origin, usage=Usage(input=9, cost=usd)))


async def ask(provider: Provider, text: str = "hi") -> list[Delta | Message]:
    request = ModelRequest("m", "system", (user_message(text),))
    return [piece async for piece in provider.stream(request)]


# --- quotes ------------------------------------------------------------------------------------


@given(
    tokens=st.integers(0, 1_000_000),
    most=st.integers(1, 128_000),
    left=st.floats(-1, 100, allow_nan=False),
    output=st.sampled_from([0.0, 0.4, 25.0, 600.0]),
)
def test_quote_never_exceeds_remaining_budget(
    tokens: int, most: int, left: float, output: float
) -> None:
    found = quote_call(replace(PRICE, output=output), tokens, most, left)
    if found:
        assert found.usd <= left + 1e-9
        assert 0 < found.max_tokens <= most
        assert found.prompt_usd <= found.usd


def test_quote_free_model_is_never_refused() -> None:
    found = quote_call(Price(), 1_000_000, 64_000, 0.0)
    assert found and found.usd == 0 and found.max_tokens == 64_000


def test_quote_answer_length_by_remaining_budget() -> None:
    found = quote_call(PRICE, 1_000, 64_000, 0.10)
    assert found and 3_000 < found.max_tokens < 4_000
    assert quote_call(PRICE, 1_000, 64_000, 0.01) is None
    assert quote_call(PRICE, 100_000, 64_000, 0.10) is None


# --- limiter -----------------------------------------------------------------------------------


async def test_spend_limit_per_run_is_enforced() -> None:
    bank = Bank(perRunUsd=0.5)
    hold = await bank.spend.reserve("r1", PRICE, 1_000, 1_000)
    await bank.spend.settle(hold, 0.45)
    with pytest.raises(SpendLimitError, match=r"\$0.50 \(\$0.45 spent\)"):
        await bank.spend.reserve("r1", PRICE, 10_000, 1_000)
    await bank.spend.reserve("r2", PRICE, 10_000, 1_000)
    assert bank.spend.end("r1") == 0.45
    assert await bank.record() == {}, "a cap on runs needs no record"


async def test_spend_limit_per_day_resets_next_day() -> None:
    bank = Bank(perDayUsd=1.0)
    for run in ("r1", "r2"):
        await bank.spend.settle(await bank.spend.reserve(run, PRICE, 1_000, 1_000), 0.49)
    with pytest.raises(SpendLimitError, match=r"today's budget of \$1.00"):
        await bank.spend.reserve("r3", PRICE, 10_000, 1_000)
    bank.now_ms = DAY_MS
    await bank.spend.reserve("r3", PRICE, 10_000, 1_000)
    assert (await bank.record())["usd"] == pytest.approx(0.98)


async def test_spend_limit_concurrent_calls_stay_below_cap() -> None:
    bank = Bank(perDayUsd=1.0)
    held: list[float] = []
    with suppress(SpendLimitError):
        for number in range(100):
            hold = await bank.spend.reserve(f"r{number}", PRICE, 1_000, 64_000)
            held.append(hold.quote.usd)
    assert len(held) > 3, "one call does not take all"
    assert sum(held) <= 1.0


async def test_spend_limit_reservation_left_by_crash_counts_as_spent() -> None:
    bank = Bank(perDayUsd=1.0)
    hold = await bank.spend.reserve("r1", PRICE, 100_000, 1_000)
    assert (await bank.record())["held"] == pytest.approx(hold.quote.usd)
    after = Bank(bank.store, perDayUsd=1.0)
    with pytest.raises(SpendLimitError):
        await after.spend.reserve("r2", PRICE, 100_000, 1_000)


async def test_spend_limit_invalid_record_counts_as_zero() -> None:
    bank = Bank(perDayUsd=1.0)
    async with bank.store.transaction() as unit:
        unit.put_record(KIND, "day-0", {"usd": "much", "held": -5})
    await bank.spend.reserve("r1", PRICE, 1_000, 1_000)


async def test_spend_limit_old_days_are_deleted() -> None:
    bank = Bank(perDayUsd=1.0)
    async with bank.store.transaction() as unit:
        for day in range(100):
            unit.put_record(KIND, f"day-{day:03}", {"usd": 1})
    await bank.spend.reserve("r1", PRICE, 1_000, 1_000)
    assert len(await bank.store.records(KIND)) <= 61


async def test_spend_limit_failed_write_releases_reservation() -> None:
    class Full(MemoryStore):
        def transaction(self) -> Any:
            raise DiskFullError("no room")

    bank = Bank(Full(), perDayUsd=0.06)
    for _ in range(3):
        with pytest.raises(DiskFullError):
            await bank.spend.reserve("r1", PRICE, 1_000, 1_000)


# --- the provider ------------------------------------------------------------------------------


def test_spend_limit_without_cap_returns_provider() -> None:
    provider = ScriptedProvider([])
    assert with_spend_limit(provider, Bank().spend, MODEL, "r") is provider


async def test_spend_limit_answer_is_charged_and_max_tokens_reduced() -> None:
    bank, provider = Bank(perRunUsd=0.2, perDayUsd=5.0), ScriptedProvider([costing(0.03)])
    pieces = await ask(with_spend_limit(provider, bank.spend, MODEL, "r1"))
    assert isinstance(pieces[-1], Message)
    most = provider.requests[0].max_tokens
    assert most and 3_000 < most < 8_000
    assert bank.spend.end("r1") == pytest.approx(0.03)
    assert await bank.record() == {"usd": pytest.approx(0.03), "held": 0.0}


async def test_spend_limit_call_failing_before_output_is_free() -> None:
    bank = Bank(perRunUsd=1.0)
    provider = with_spend_limit(
        ScriptedProvider([OverloadedError("busy")]), bank.spend, MODEL, "r1"
    )
    with pytest.raises(ProviderError):
        await ask(provider)
    assert bank.spend.end("r1") == 0.0


async def test_spend_limit_broken_stream_charges_prompt() -> None:
    bank = Bank(perRunUsd=1.0)
    provider = with_spend_limit(ScriptedProvider([Hang()]), bank.spend, MODEL, "r1")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.02):
            await ask(provider, "x" * 40_000)
    assert bank.spend.end("r1") == pytest.approx(0.075, rel=0.05)


async def test_spend_limit_stream_closed_after_answer_charges_cost() -> None:
    class Retrying(ScriptedProvider):
        async def stream(self, request: ModelRequest) -> AsyncIterator[Delta | Message]:
            yield AttemptRetried("p", "m", "overloaded", "busy", "retry")
            yield TextDelta("hello")
            yield costing(0.02)

    async def main() -> None:
        bank = Bank(perRunUsd=1.0)
        provider = with_spend_limit(Retrying([]), bank.spend, MODEL, "r1")
        stream = provider.stream(ModelRequest("m", "s", (user_message("hi"),)))
        async for piece in stream:
            if isinstance(piece, Message):
                break
        assert bank.spend.end("r1") == pytest.approx(0.02)
        assert isinstance(stream, AsyncGenerator)
        await stream.aclose()
        await provider.close()

    await main()


async def test_spend_limit_exhausted_cap_calls_no_model() -> None:
    bank, provider = Bank(perRunUsd=0.001), ScriptedProvider([])
    with pytest.raises(SpendLimitError):
        await ask(with_spend_limit(provider, bank.spend, MODEL, "r1"))
    assert provider.requests == []
