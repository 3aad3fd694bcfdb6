"""Limit what models may cost, per run and per day: reserve before a call, settle after it.

`SpendLimiter` keeps the totals, `SpendLimitedProvider` is a provider that reserves from them. A
call reserves its maximum cost: its prompt, and an answer no longer than the remaining budget
allows. So a limit is never exceeded, also by concurrent runs; only a fallback model that is more
expensive than the first one may cost more than was reserved. The day's total is a record of the
store; what a crash left reserved counts as spent. Without a limit nothing is written.
"""

import logging
import math
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

from homarus.agent.context.tokens import request_tokens
from homarus.config import schema
from homarus.core.errors import SpendLimitError, StoreError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json, Message
from homarus.providers.base import AttemptRetried, Delta, ModelRequest, Provider
from homarus.providers.catalog import ModelInfo, Price
from homarus.store.base import Store

log = logging.getLogger(__name__)

KIND = "spend"  # of store records, whose ids are days
MIN_ANSWER_TOKENS = 512  # a shorter answer is not worth the call
_DEFAULT_ANSWER_TOKENS = 4_096
_MAX_DAYS = 60
_MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class CostQuote:
    """The maximum cost of a call, and the answer length it allows."""

    usd: float
    prompt_usd: float
    max_tokens: int


@dataclass(frozen=True, slots=True)
class Reservation:
    """Money reserved for one call."""

    run: str
    day: str
    quote: CostQuote


def quote_call(
    price: Price, prompt_tokens: int, max_tokens: int, left_usd: float
) -> CostQuote | None:
    """Return a quote for the longest affordable answer; None when only a uselessly short one is.

    One call gets at most half of what is left, unless an answer of default length needs more:
    other runs may be calling, too.
    """
    prompt_usd = prompt_tokens * max(price.input, price.cache_write) / _MILLION
    left = left_usd - prompt_usd
    if left < 0:
        return None
    if price.output <= 0:
        return CostQuote(prompt_usd, prompt_usd, max_tokens)
    default_usd = min(left, _DEFAULT_ANSWER_TOKENS * price.output / _MILLION)
    tokens = min(max_tokens, int(max(left / 2, default_usd) * _MILLION / price.output))
    if tokens < min(MIN_ANSWER_TOKENS, max_tokens):
        return None
    return CostQuote(prompt_usd + tokens * price.output / _MILLION, prompt_usd, tokens)


@dataclass(slots=True)
class _SpendTotal:
    """What was spent, and what is reserved for calls in progress."""

    spent: float = 0.0
    reserved: float = 0.0

    @property
    def used(self) -> float:
        return self.spent + self.reserved


class SpendLimiter:
    """Keeps the totals of the runs and of the day. One for all runs of a process."""

    def __init__(
        self,
        store: Store,
        caps: Callable[[], schema.SpendConfig],
        now_ms: Callable[[], int],
        day_of: Callable[[int], str],
    ) -> None:
        self._store, self._caps = store, caps
        self._now_ms, self._day_of = now_ms, day_of
        self._runs: dict[str, _SpendTotal] = {}
        self._days: dict[str, _SpendTotal] = {}

    @property
    def is_capped(self) -> bool:
        caps = self._caps()
        return caps.per_run_usd is not None or caps.per_day_usd is not None

    async def reserve(
        self, run: str, price: Price, prompt_tokens: int, max_tokens: int
    ) -> Reservation:
        """Reserve the maximum cost of a call. Raises SpendLimitError when too little is left."""
        day = self._day_of(self._now_ms())
        day_total = await self._load_day(day)
        run_total = self._runs.setdefault(run, _SpendTotal())
        caps = self._caps()
        run_left, day_left = _left(caps.per_run_usd, run_total), _left(caps.per_day_usd, day_total)
        quote = quote_call(price, prompt_tokens, max_tokens, min(run_left, day_left))
        if quote is None and day_left <= run_left:
            raise _day_limit_error(caps.per_day_usd or 0.0, day_total.spent)
        if quote is None:
            raise _run_limit_error(caps.per_run_usd or 0.0, run_total.spent)
        reservation = Reservation(run, day, quote)
        for total in (run_total, day_total):
            total.reserved += quote.usd
        try:
            await self._write(day)
        except BaseException:
            self._release(reservation, 0.0)
            raise
        return reservation

    async def settle(self, reservation: Reservation, usd: float) -> None:
        """Replace a reservation by the actual cost."""
        self._release(reservation, usd)
        try:
            await self._write(reservation.day)
        except StoreError as exc:  # the record then has the reservation: more than was spent
            log.warning("what a call cost is not written down: %s", exc)

    def _release(self, reservation: Reservation, usd: float) -> None:
        for total in (self._runs.get(reservation.run), self._days.get(reservation.day)):
            if total is not None:
                total.reserved = max(0.0, total.reserved - reservation.quote.usd)
                total.spent += max(0.0, usd)

    def end(self, run: str) -> float:
        """Drop a run's total and return it."""
        return self._runs.pop(run, _SpendTotal()).spent

    async def _load_day(self, day: str) -> _SpendTotal:
        """Load a day's total. What another process left reserved counts as spent."""
        if day not in self._days:
            data = await self._store.record(KIND, day)
            quote = _SpendTotal(_number(data, "usd") + _number(data, "held"))
            if self._days.setdefault(day, quote) is quote:  # else a concurrent call loaded it first
                await self._delete_old_days()
        return self._days[day]

    async def _write(self, day: str) -> None:
        if self._caps().per_day_usd is None or day not in self._days:
            return
        async with self._store.transaction() as transaction:
            total = self._days[day]  # read here, not earlier: it may have changed meanwhile
            transaction.put_record(KIND, day, {"usd": total.spent, "held": total.reserved})

    async def _delete_old_days(self) -> None:
        days = sorted(await self._store.records(KIND))
        old_days = days[: max(0, len(days) - _MAX_DAYS)]
        if old_days:
            async with self._store.transaction() as transaction:
                for day in old_days:
                    transaction.delete_record(KIND, day)
                    self._days.pop(day, None)


def _number(data: Json, name: str) -> float:
    value = data.get(name) if data else None
    return max(0.0, float(value)) if isinstance(value, int | float) else 0.0


def _left(cap: float | None, total: _SpendTotal) -> float:
    return math.inf if cap is None else cap - total.used


def _day_limit_error(cap: float, spent: float) -> SpendLimitError:
    return SpendLimitError(
        f"today's budget of ${cap:.2f} for models is used up (${spent:.2f} spent)",
        fix="it starts anew tomorrow; agents.defaults.spend.perDayUsd sets it",
    )


def _run_limit_error(cap: float, spent: float) -> SpendLimitError:
    return SpendLimitError(
        f"the next step would cost more than one run may: ${cap:.2f} (${spent:.2f} spent)",
        fix="ask for less at once; agents.defaults.spend.perRunUsd sets it",
    )


def with_spend_limit(
    provider: Provider, limiter: SpendLimiter, model: ModelInfo, run: str
) -> Provider:
    """Return the provider with the spend limit of a run; itself when there is no limit."""
    return SpendLimitedProvider(provider, limiter, model, run) if limiter.is_capped else provider


class SpendLimitedProvider:
    """A provider that reserves and settles the cost of each call."""

    def __init__(
        self, provider: Provider, limiter: SpendLimiter, model: ModelInfo, run: str
    ) -> None:
        self.name, self.api = provider.name, provider.api
        self._provider, self._limiter, self._model, self._run = provider, limiter, model, run

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta | Message]:
        """Reserve, call, settle."""
        max_tokens = request.max_tokens or self._model.max_tokens
        tokens = request_tokens(request)
        reservation = await self._limiter.reserve(self._run, self._model.price, tokens, max_tokens)
        if reservation.quote.max_tokens < max_tokens:
            request = replace(request, max_tokens=reservation.quote.max_tokens)
        cost, settled = 0.0, False
        try:
            async for piece in self._provider.stream(request):
                if isinstance(piece, Message):
                    cost = piece.origin.usage.cost if piece.origin else cost
                    settled = True
                    await self._limiter.settle(reservation, cost)
                elif not isinstance(piece, AttemptRetried):
                    cost = reservation.quote.prompt_usd  # the cost if the stream breaks from now on
                yield piece
        finally:
            if not settled:
                await self._limiter.settle(reservation, cost)

    async def close(self) -> None:
        await self._provider.close()
