"""Order credentials and compute their cooldowns; pure functions.

A failure starts a cooldown of 1, 5, 25, then 60 minutes; an empty account one of 5 hours, doubling
to 24. A success ends it. Errors of the request itself do not count.

Two rules keep a burst from counting as many failures, by the time a request started: a failure of a
request that started before the last recorded failure belongs to the same incident and adds nothing;
a success that started before it changes nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Literal, TypeAlias

from homarus.core.errors import (
    AllAttemptsFailedError,
    AnswerTooLongError,
    AuthError,
    BadRequestError,
    BillingError,
    ContentFilterError,
    ContextOverflowError,
    ImageTooLargeError,
    OverloadedError,
    ProviderError,
    ProviderTimeoutError,
    RateLimitError,
    StreamError,
    UnreachableError,
)
from homarus.core.fast_dataclass import dataclass, replace

CredentialKind: TypeAlias = Literal["oauth", "token", "api_key"]
FailureReason: TypeAlias = Literal["auth", "format", "rate_limit", "billing", "timeout", "unknown"]
# A credential, and a model of it or "" for all: limits of models are independent.
Slot: TypeAlias = tuple[str, str]

KINDS: tuple[CredentialKind, ...] = (
    "oauth",
    "token",
    "api_key",
)  # the cheapest for its owner first
MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
COOLDOWN_MINUTES = (1, 5, 25, 60)  # the last for every further failure
# A later time was not written by a correct clock.
LONGEST_REST_MS = 31 * 24 * HOUR_MS
LONGEST_WAIT_S = 24 * 3600.0
_PER_MODEL: frozenset[FailureReason] = frozenset({"rate_limit", "timeout", "unknown"})


@dataclass(frozen=True, slots=True)
class CooldownLimits:
    """`auth.cooldowns` for one provider."""

    billing_backoff_ms: int = 5 * HOUR_MS
    billing_max_ms: int = 24 * HOUR_MS
    window_ms: int = 24 * HOUR_MS


@dataclass(frozen=True, slots=True)
class CredentialUsage:
    """A credential's usage. Times are wall-clock milliseconds; 0 is never."""

    last_used_ms: int = 0
    cooldown_until_ms: int = 0
    disabled_until_ms: int = 0
    disabled_reason: str = ""
    error_count: int = 0
    failure_counts: Mapping[str, int] = field(default_factory=dict)
    last_failure_ms: int = 0

    @property
    def is_clean(self) -> bool:
        """Return whether a success would change nothing."""
        return self == CredentialUsage(last_used_ms=self.last_used_ms)


UNUSED = CredentialUsage()


@dataclass(frozen=True, slots=True)
class CredentialResult:
    """The result of one request: no `reason` is a success. `begun_ms` is when it started."""

    profile_id: str
    provider: str
    model: str
    reason: FailureReason | None
    begun_ms: int
    at_ms: int
    after_s: float | None = None


def reason_of(error: ProviderError) -> FailureReason | None:
    """Return what an error means for the credential; None: nothing."""
    match error:
        case (
            BadRequestError()
            | ContextOverflowError()
            | ContentFilterError()
            | ImageTooLargeError()
            | AllAttemptsFailedError()
            | AnswerTooLongError()
        ):
            return None  # another credential would get the same error
        case OverloadedError() | UnreachableError() | StreamError():
            return None  # the service's failure, for every caller
        case AuthError():
            return "auth"
        case BillingError():
            return "billing"
        case RateLimitError():
            return "rate_limit"
        case ProviderTimeoutError():
            return "timeout"
        case _:
            return "unknown"


def cooldown_ms(failures: int) -> int:
    """Return the cooldown after so many failures in a row: 1, 5, 25, 60 minutes."""
    return COOLDOWN_MINUTES[min(failures, len(COOLDOWN_MINUTES)) - 1] * MINUTE_MS


def billing_ms(failures: int, limits: CooldownLimits) -> int:
    """Return the cooldown of an empty account: doubled each time, up to a day."""
    longest_ms = min(limits.billing_max_ms, LONGEST_REST_MS)
    return min(longest_ms, limits.billing_backoff_ms << min(failures - 1, 32))


def cooldown_until_ms(usage: CredentialUsage, now_ms: int) -> int:
    """Return when the credential may be used again; 0: now."""
    both = (usage.cooldown_until_ms, usage.disabled_until_ms)
    return max((ms for ms in both if now_ms < ms <= now_ms + LONGEST_REST_MS), default=0)


def apply_result(
    usage: Mapping[Slot, CredentialUsage], mark: CredentialResult, limits: CooldownLimits
) -> dict[Slot, CredentialUsage]:
    """Return the slots that a result changes, with their new values."""
    whole: Slot = (mark.profile_id, "")
    if mark.reason is None:
        before = usage.get(whole, UNUSED)
        used_ms = max(before.last_used_ms, mark.at_ms)
        after = {whole: replace(_cleared(before, mark), last_used_ms=used_ms)}
        of_model: Slot = (mark.profile_id, mark.model)
        if mark.model and of_model in usage:
            after[of_model] = _cleared(usage[of_model], mark)
    else:
        slot = (mark.profile_id, mark.model if mark.reason in _PER_MODEL else "")
        after = {slot: _failed(usage.get(slot, UNUSED), mark.reason, mark, limits)}
    return {slot: new for slot, new in after.items() if new != usage.get(slot, UNUSED)}


def _is_old_news(usage: CredentialUsage, mark: CredentialResult) -> bool:
    """Return whether the request started before the last failure, by a plausible clock."""
    return mark.begun_ms < usage.last_failure_ms <= mark.at_ms + MINUTE_MS


def _cleared(usage: CredentialUsage, mark: CredentialResult) -> CredentialUsage:
    if _is_old_news(usage, mark):
        return usage
    return CredentialUsage(last_used_ms=usage.last_used_ms)


def _failed(
    usage: CredentialUsage, reason: FailureReason, mark: CredentialResult, limits: CooldownLimits
) -> CredentialUsage:
    if reason == "format":
        return usage
    if _is_old_news(usage, mark):
        return _asked_to_wait(usage, mark)
    since_ms = mark.at_ms - usage.last_failure_ms
    forgotten = not -MINUTE_MS <= since_ms <= limits.window_ms
    counts = {} if forgotten else dict(usage.failure_counts)
    counts[reason] = counts.get(reason, 0) + 1
    errors = (0 if forgotten else usage.error_count) + 1
    usage = replace(usage, error_count=errors, failure_counts=counts, last_failure_ms=mark.at_ms)
    if reason == "billing":
        until_ms = mark.at_ms + billing_ms(counts[reason], limits)
        return replace(usage, disabled_until_ms=until_ms, disabled_reason=reason)
    until_ms = mark.at_ms + cooldown_ms(errors)
    return _asked_to_wait(replace(usage, cooldown_until_ms=until_ms), mark)


def _asked_to_wait(usage: CredentialUsage, mark: CredentialResult) -> CredentialUsage:
    """Return the delay a service asked for, when it is longer."""
    wait_s = min(max(0.0, mark.after_s or 0.0), LONGEST_WAIT_S)
    until_ms = mark.at_ms + round(wait_s * 1000)
    if mark.reason == "rate_limit" and until_ms > usage.cooldown_until_ms:
        return replace(usage, cooldown_until_ms=until_ms)
    return usage


@dataclass(frozen=True, slots=True)
class CredentialRank:
    """What decides a credential's position."""

    id: str
    kind: CredentialKind
    last_used_ms: int = 0
    rests_until_ms: int = 0
    is_last_good: bool = False
    is_implicit: bool = False  # from the config or the environment: after those of the file


def order_credentials(
    standings: Sequence[CredentialRank], listed: Sequence[str] | None, preferred: str = ""
) -> list[CredentialRank]:
    """Return the credentials of a provider in the order to try.

    With a list: those on it, in its order. Without: by kind, the one that worked last first, then
    the one used longest ago. Those in cooldown come last, the earliest end first.
    """
    by_id = {each.id: each for each in standings}
    if listed is None:
        order = sorted(by_id.values(), key=_place)
    else:
        order = [by_id[id_] for id_ in dict.fromkeys(listed) if id_ in by_id]
    ready = [each for each in order if not each.rests_until_ms]
    ready.sort(key=lambda each: each.id != preferred)
    resting = [each for each in order if each.rests_until_ms]
    resting.sort(key=lambda each: each.rests_until_ms)
    return ready + resting


def _place(each: CredentialRank) -> tuple[bool, int, bool, int]:
    last_used_ms = 0 if each.is_implicit else each.last_used_ms  # these keep the search order
    return each.is_implicit, KINDS.index(each.kind), not each.is_last_good, last_used_ms
