"""The rules of order and cooldown."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homarus.core.errors import (
    AllAttemptsFailedError,
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
    ThinkingUnsupportedError,
    UnreachableError,
)
from homarus.providers.rotation import (
    HOUR_MS,
    KINDS,
    MINUTE_MS,
    UNUSED,
    CooldownLimits,
    CredentialKind,
    CredentialRank,
    CredentialResult,
    CredentialUsage,
    FailureReason,
    Slot,
    apply_result,
    billing_ms,
    cooldown_ms,
    cooldown_until_ms,
    order_credentials,
    reason_of,
)

NOW = 1_800_000_000_000
WHOLE: Slot = ("p", "")


def marked(
    reason: FailureReason | None, at_ms: int = NOW, begun_ms: int | None = None, model: str = ""
) -> CredentialResult:
    return CredentialResult("p", "x", model, reason, at_ms if begun_ms is None else begun_ms, at_ms)


def after(
    usage: CredentialUsage, *marks: CredentialResult, limits: CooldownLimits | None = None
) -> CredentialUsage:
    """What becomes of a credential."""
    slots = {WHOLE: usage}
    for mark in marks:
        slots |= apply_result(slots, mark, limits or CooldownLimits())
    return slots[WHOLE]


def test_cooldown_grows_from_minute_to_hour() -> None:
    assert [cooldown_ms(n) // MINUTE_MS for n in range(1, 8)] == [1, 5, 25, 60, 60, 60, 60]
    assert cooldown_ms(10**9) == HOUR_MS


@given(st.integers(1, 60))
def test_cooldown_follows_openclaw_formula(failures: int) -> None:
    assert cooldown_ms(failures) == min(60, 5 ** (failures - 1)) * MINUTE_MS


def test_billing_cooldown_doubles_from_five_hours_to_a_day() -> None:
    assert [billing_ms(n, CooldownLimits()) // HOUR_MS for n in (1, 2, 3, 4, 500)] == [
        5,
        10,
        20,
        24,
        24,
    ]
    own = CooldownLimits(billing_backoff_ms=HOUR_MS, billing_max_ms=3 * HOUR_MS)
    assert [billing_ms(n, own) // HOUR_MS for n in (1, 2, 3)] == [1, 2, 3]


def test_four_failures_cool_down_longer_each() -> None:
    usage, at_ms, rests = UNUSED, NOW, []
    for _ in range(5):
        usage = after(usage, marked("rate_limit", at_ms))
        rests.append((usage.cooldown_until_ms - at_ms) // MINUTE_MS)
        at_ms = usage.cooldown_until_ms
    assert rests == [1, 5, 25, 60, 60]
    assert usage.error_count == 5
    assert usage.failure_counts == {"rate_limit": 5}


def test_billing_failure_disables_with_reason_and_own_count() -> None:
    usage = after(UNUSED, marked("timeout"), marked("billing", NOW + 1))
    assert usage.disabled_until_ms == NOW + 1 + 5 * HOUR_MS
    assert usage.disabled_reason == "billing"
    assert usage.failure_counts == {"timeout": 1, "billing": 1}
    again = after(usage, marked("billing", NOW + 6 * HOUR_MS))
    assert again.disabled_until_ms == NOW + 16 * HOUR_MS


def test_failures_reset_after_a_day() -> None:
    usage = after(UNUSED, marked("auth"), marked("auth", NOW + MINUTE_MS))
    assert usage.error_count == 2
    within = after(usage, marked("auth", NOW + 24 * HOUR_MS))
    assert within.error_count == 3
    beyond = after(usage, marked("auth", NOW + 25 * HOUR_MS))
    assert (beyond.error_count, beyond.failure_counts) == (1, {"auth": 1})
    assert beyond.cooldown_until_ms == NOW + 25 * HOUR_MS + MINUTE_MS


@given(
    st.lists(st.sampled_from(["auth", "rate_limit", "billing", "timeout", "unknown"]), max_size=9)
)
def test_success_clears_failures(reasons: list[FailureReason]) -> None:
    failed = after(UNUSED, *(marked(reason, NOW + at) for at, reason in enumerate(reasons)))
    usage = after(failed, marked(None, NOW + 100))
    assert usage == CredentialUsage(last_used_ms=NOW + 100)
    assert usage.is_clean


def test_burst_of_concurrent_failures_counts_once() -> None:
    burst = [marked("rate_limit", NOW + at, begun_ms=NOW - 5) for at in range(1000)]
    usage = after(UNUSED, *burst)
    assert usage.error_count == 1
    assert usage.cooldown_until_ms == NOW + MINUTE_MS


def test_success_started_before_failure_changes_nothing() -> None:
    failed = after(UNUSED, marked("rate_limit"))
    late = after(failed, marked(None, NOW + 5, begun_ms=NOW - 5))
    assert late == replace(failed, last_used_ms=NOW + 5)


@given(
    st.integers(0, 10**6),
    st.integers(1, 10**6),
    st.sampled_from(["auth", "billing", "timeout"]),
)
def test_result_applied_twice_counts_once(begun: int, took: int, reason: FailureReason) -> None:
    mark = marked(reason, NOW + begun + took, begun_ms=NOW + begun)
    assert after(UNUSED, mark, mark) == after(UNUSED, mark)


@pytest.mark.parametrize(("asked_s", "rest_s"), [(20.0, 60), (600.0, 600), (float("nan"), 60)])
def test_requested_longer_cooldown_is_honoured(asked_s: float, rest_s: int) -> None:
    usage = after(UNUSED, replace(marked("rate_limit"), after_s=asked_s))
    assert usage.cooldown_until_ms == NOW + rest_s * 1000
    endless = after(UNUSED, replace(marked("rate_limit"), after_s=float("inf")))
    assert endless.cooldown_until_ms == NOW + 24 * HOUR_MS


def test_later_failure_of_burst_may_extend_cooldown() -> None:
    usage = after(
        UNUSED,
        marked("rate_limit"),
        replace(marked("rate_limit", NOW + 5, begun_ms=NOW - 5), after_s=300.0),
    )
    assert usage.cooldown_until_ms == NOW + 5 + 300_000
    assert usage.error_count == 1


def test_model_limit_cools_model_and_refusal_cools_credential() -> None:
    slots = apply_result({}, marked("rate_limit", model="big"), CooldownLimits())
    assert set(slots) == {("p", "big")}
    slots |= apply_result(slots, marked("auth", model="big"), CooldownLimits())
    assert set(slots) == {("p", "big"), WHOLE}
    slots |= apply_result(slots, marked(None, NOW + 1, model="small"), CooldownLimits())
    assert slots[WHOLE].is_clean
    assert slots["p", "big"].error_count == 1
    slots |= apply_result(slots, marked(None, NOW + 2, model="big"), CooldownLimits())
    assert slots["p", "big"].is_clean


ERRORS: list[tuple[ProviderError, FailureReason | None]] = [
    (AuthError("x"), "auth"),
    (BillingError("x"), "billing"),
    (RateLimitError("x"), "rate_limit"),
    (ProviderTimeoutError("x"), "timeout"),
    (ProviderError("x"), "unknown"),
    (BadRequestError("x", status=400), None),
    (ThinkingUnsupportedError("x", status=400), None),
    (ContextOverflowError("x", status=400), None),
    (ContentFilterError("x", status=400), None),
    (ImageTooLargeError("x", status=400), None),
    (OverloadedError("x"), None),
    (UnreachableError("x"), None),
    (StreamError("x"), None),
    (AllAttemptsFailedError((AuthError("x"),)), None),
]


@pytest.mark.parametrize(("error", "reason"), ERRORS, ids=lambda value: type(value).__name__)
def test_unrelated_errors_do_not_count(error: ProviderError, reason: FailureReason | None) -> None:
    assert reason_of(error) == reason


def test_bad_request_changes_nothing() -> None:
    usage = CredentialUsage(error_count=2, last_failure_ms=NOW - 1, cooldown_until_ms=NOW + 1)
    assert after(usage, marked("format")) == usage


@given(st.integers(0, 2**53), st.integers(0, 2**53))
def test_invalid_timestamps_never_cool_down_forever(until_ms: int, failed_ms: int) -> None:
    usage = CredentialUsage(cooldown_until_ms=until_ms, last_failure_ms=failed_ms)
    assert cooldown_until_ms(usage, NOW) <= NOW + 31 * 24 * HOUR_MS
    failed = after(usage, marked("auth"))
    assert failed.error_count == (0 if NOW < failed_ms <= NOW + MINUTE_MS else 1)
    soon = NOW + 2 * MINUTE_MS
    assert after(usage, marked(None, soon)).is_clean or failed_ms > soon


IDS = [f"p{n}" for n in range(6)]
standings = st.lists(
    st.builds(
        CredentialRank,
        id=st.sampled_from(IDS),
        kind=st.sampled_from(KINDS),
        last_used_ms=st.integers(0, 5),
        rests_until_ms=st.sampled_from([0, 0, NOW, NOW + 1]),
        is_last_good=st.booleans(),
        is_implicit=st.booleans(),
    ),
    unique_by=lambda each: each.id,
)


@given(standings, st.none() | st.lists(st.sampled_from([*IDS, "gone"])), st.sampled_from(IDS))
def test_order_cooling_credentials_last_without_repeats(
    given_: list[CredentialRank], listed: list[str] | None, preferred: str
) -> None:
    ordered = order_credentials(given_, listed, preferred)
    resting = [bool(each.rests_until_ms) for each in ordered]
    assert resting == sorted(resting)
    wakes = [each.rests_until_ms for each in ordered if each.rests_until_ms]
    assert wakes == sorted(wakes)
    names = [each.id for each in ordered]
    expected = {each.id for each in given_} & (set(listed) if listed is not None else set(IDS))
    assert sorted(names) == sorted(expected)
    ready = {each.id for each in ordered if not each.rests_until_ms}
    if preferred in ready:
        assert names[0] == preferred


@given(standings)
def test_order_without_list_uses_kind_last_good_and_age(
    given_: list[CredentialRank],
) -> None:
    ready = [each for each in order_credentials(given_, None) if not each.rests_until_ms]
    own = [each for each in ready if not each.is_implicit]
    assert ready[: len(own)] == own, "keys from the environment come after the file's"
    places = [(KINDS.index(e.kind), not e.is_last_good, e.last_used_ms) for e in own]
    assert places == sorted(places)


@given(standings, st.lists(st.sampled_from(IDS), unique=True))
def test_order_list_is_respected(given_: list[CredentialRank], listed: list[str]) -> None:
    ready = [each.id for each in order_credentials(given_, listed) if not each.rests_until_ms]
    assert ready == [id_ for id_ in listed if id_ in ready]


def test_order_rotates_through_all_of_a_kind() -> None:
    kind: CredentialKind = "api_key"
    used = dict.fromkeys(IDS[:3], 0)
    turns = []
    for turn in range(1, 7):
        rows = [CredentialRank(id_, kind, last_used_ms=ms) for id_, ms in used.items()]
        turns.append(order_credentials(rows, None)[0].id)
        used[turns[-1]] = turn
    assert turns == [*IDS[:3], *IDS[:3]]
