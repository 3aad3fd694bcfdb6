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
_KEPT_DAYS = 60
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
class _DailyTotal:
    """What was spent, and what is reserved for calls in progress."""

    spent: float = 0.0
    held: float = 0.0

    @property
    def used(self) -> float:
        return self.spent + self.held


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
        self._runs: dict[str, _DailyTotal] = {}
        self._days: dict[str, _DailyTotal] = {}

    @property
    def is_capped(self) -> bool:
        caps = self._caps()
        return caps.per_run_usd is not None or caps.per_day_usd is not None

    async def reserve(
        self, run: str, price: Price, prompt_tokens: int, max_tokens: int
    ) -> Reservation:
        """Reserve the maximum cost of a call. SpendCapped when it exceeds what is left."""
        day = self._day_of(self._now_ms())
        of_day = await self._account(day)
        of_run = self._runs.setdefault(run, _DailyTotal())
        caps = self._caps()
        run_left, day_left = _left(caps.per_run_usd, of_run), _left(caps.per_day_usd, of_day)
        found = quote_call(price, prompt_tokens, max_tokens, min(run_left, day_left))
        if found is None and day_left <= run_left:
            raise _day_is_over(caps.per_day_usd or 0.0, of_day.spent)
        if found is None:
            raise _run_is_over(caps.per_run_usd or 0.0, of_run.spent)
        hold = Reservation(run, day, found)
        for account in (of_run, of_day):
            account.held += found.usd
        try:
            await self._write(day)
        except BaseException:
            self._let_go(hold, 0.0)
            raise
        return hold

    async def settle(self, hold: Reservation, usd: float) -> None:
        """Replace a reservation by the actual cost."""
        self._let_go(hold, usd)
        try:
            await self._write(hold.day)
        except StoreError as exc:  # the record then has the reservation: more than was spent
            log.warning("what a call cost is not written down: %s", exc)

    def _let_go(self, hold: Reservation, usd: float) -> None:
        for account in (self._runs.get(hold.run), self._days.get(hold.day)):
            if account is not None:
                account.held = max(0.0, account.held - hold.quote.usd)
                account.spent += max(0.0, usd)

    def end(self, run: str) -> float:
        """Drop a run's total and return it."""
        return self._runs.pop(run, _DailyTotal()).spent

    async def _account(self, day: str) -> _DailyTotal:
        """Load a day's total. What another process left reserved counts as spent."""
        if day not in self._days:
            data = await self._store.record(KIND, day)
            found = _DailyTotal(_number(data, "usd") + _number(data, "held"))
            if self._days.setdefault(day, found) is found:  # else a concurrent call loaded it first
                await self._forget_old()
        return self._days[day]

    async def _write(self, day: str) -> None:
        if self._caps().per_day_usd is None or day not in self._days:
            return
        async with self._store.transaction() as unit:
            account = self._days[day]  # read here, not earlier: it may have changed meanwhile
            unit.put_record(KIND, day, {"usd": account.spent, "held": account.held})

    async def _forget_old(self) -> None:
        days = sorted(await self._store.records(KIND))
        gone = days[: max(0, len(days) - _KEPT_DAYS)]
        if gone:
            async with self._store.transaction() as unit:
                for day in gone:
                    unit.delete_record(KIND, day)
                    self._days.pop(day, None)


def _number(data: Json, name: str) -> float:
    value = data.get(name) if data else None
    return max(0.0, float(value)) if isinstance(value, int | float) else 0.0


def _left(cap: float | None, account: _DailyTotal) -> float:
    return math.inf if cap is None else cap - account.used


def _day_is_over(cap: float, spent: float) -> SpendLimitError:
    return SpendLimitError(
        f"today's budget of ${cap:.2f} for models is used up (${spent:.2f} spent)",
        fix="it starts anew tomorrow; agents.defaults.spend.perDayUsd sets it",
    )


def _run_is_over(cap: float, spent: float) -> SpendLimitError:
    return SpendLimitError(
        f"the next step would cost more than one run may: ${cap:.2f} (${spent:.2f} spent)",
        fix="ask for less at once; agents.defaults.spend.perRunUsd sets it",
    )


def with_spend_limit(
    provider: Provider, spend: SpendLimiter, model: ModelInfo, run: str
) -> Provider:
    """Return the provider with the spend limit of a run; itself when there is no limit."""
    return SpendLimitedProvider(provider, spend, model, run) if spend.is_capped else provider


class SpendLimitedProvider:
    """A provider that reserves and settles the cost of each call."""

    def __init__(self, provider: Provider, spend: SpendLimiter, model: ModelInfo, run: str) -> None:
        self.name, self.api = provider.name, provider.api
        self._provider, self._spend, self._model, self._run = provider, spend, model, run

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta | Message]:
        """Reserve, call, settle."""
        wanted = request.max_tokens or self._model.max_tokens
        tokens = request_tokens(request)
        hold = await self._spend.reserve(self._run, self._model.price, tokens, wanted)
        if hold.quote.max_tokens < wanted:
            request = replace(request, max_tokens=hold.quote.max_tokens)
        cost, settled = 0.0, False
        try:
            async for piece in self._provider.stream(request):
                if isinstance(piece, Message):
                    cost = piece.origin.usage.cost if piece.origin else cost
                    settled = True
                    await self._spend.settle(hold, cost)
                elif not isinstance(piece, AttemptRetried):
                    cost = hold.quote.prompt_usd  # the cost if the stream breaks from now on
                yield piece
        finally:
            if not settled:
                await self._spend.settle(hold, cost)

    async def close(self) -> None:
        await self._provider.close()
