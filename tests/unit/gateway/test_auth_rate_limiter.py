"""Guessing is slow: counted per source, bounded in memory, with no way around it for pages."""

import pytest

from homarus.config.gateway_schema import RateLimitConfig
from homarus.gateway.auth_rate_limiter import MAX_SOURCES, AuthRateLimiter, ClientSource
from homarus.gateway.origin_policy import OriginPolicy, RequestInfo
from homarus.testing.clock import FakeClock

ENTRANCE = OriginPolicy.from_config(18789, proxies=["10.0.0.1"])


def source(ip: str = "1.2.3.4", *, browser: bool = False, forwarded: bool = False) -> ClientSource:
    request = RequestInfo(ip, is_browser=browser, is_forwarded=forwarded)
    return ClientSource.from_request(request, ENTRANCE, "shared-secret")


async def test_ten_failures_lock_out_for_five_minutes() -> None:
    clock = FakeClock()
    limiter = AuthRateLimiter(clock)
    waits = [limiter.record_failure(source()) for _ in range(10)]
    assert waits == [0] * 9 + [300_000]
    await clock.advance(299.0)
    assert limiter.retry_after_ms(source()) == 1_000
    await clock.advance(1.0)
    assert limiter.retry_after_ms(source()) == 0
    assert limiter.record_failure(source()) == 0, "the count begins anew"


async def test_slow_failures_never_lock_out() -> None:
    clock = FakeClock()
    limiter = AuthRateLimiter(clock)
    for _ in range(30):
        assert limiter.record_failure(source()) == 0
        await clock.advance(7.0)


def test_sources_and_secret_kinds_are_counted_apart() -> None:
    limiter = AuthRateLimiter(FakeClock())
    for _ in range(10):
        limiter.record_failure(source())
    assert limiter.retry_after_ms(source())
    assert not limiter.retry_after_ms(source("1.2.3.5"))
    assert not limiter.retry_after_ms(
        ClientSource.from_request(RequestInfo("1.2.3.4"), ENTRANCE, "device-token")
    )


def test_success_resets_the_failures() -> None:
    limiter = AuthRateLimiter(FakeClock())
    for _ in range(9):
        limiter.record_failure(source())
    limiter.reset(source())
    assert limiter.record_failure(source()) == 0


def test_local_programs_are_exempt_and_browsers_are_not() -> None:
    """Row 3: any page can make a browser guess on localhost."""
    limiter = AuthRateLimiter(FakeClock())
    for _ in range(30):
        assert limiter.record_failure(source("127.0.0.1")) == 0
        limiter.record_failure(source("127.0.0.1", browser=True))
    assert limiter.retry_after_ms(source("127.0.0.1", browser=True))
    assert not limiter.retry_after_ms(source("127.0.0.1")), "a page cannot lock the owner out"


def test_client_through_a_proxy_is_not_exempt() -> None:
    limiter = AuthRateLimiter(FakeClock())
    for _ in range(10):
        limiter.record_failure(source("127.0.0.1", forwarded=True))
    assert limiter.retry_after_ms(source("127.0.0.1", forwarded=True))


def test_exemption_can_be_disabled() -> None:
    limiter = AuthRateLimiter(FakeClock(), RateLimitConfig(maxAttempts=2, exemptLoopback=False))
    limiter.record_failure(source("127.0.0.1"))
    assert limiter.record_failure(source("127.0.0.1")) == 300_000


def test_ipv6_network_is_one_source() -> None:
    assert source("2001:db8::1").ip == source("2001:db8::ffff:1").ip
    assert source("2001:db8::1").ip != source("2001:db8:0:1::1").ip
    assert source("::1").ip == "::1"


def test_tracked_sources_are_bounded() -> None:
    """Row 53: the limiter is not itself a way to fill the memory."""
    limiter = AuthRateLimiter(FakeClock())
    for _ in range(10):
        limiter.record_failure(source("9.9.9.9"))
    for at in range(MAX_SOURCES + 5_000):
        limiter.record_failure(
            ClientSource(str(at), "shared-secret", is_browser=False, is_local=False)
        )
    assert limiter.sources == MAX_SOURCES
    assert not limiter.retry_after_ms(source("9.9.9.9")), "the quietest are forgotten first"


@pytest.mark.parametrize("ip", ["", "not an ip", "1.2.3.4"])
def test_any_peer_is_a_valid_source(ip: str) -> None:
    limiter = AuthRateLimiter(FakeClock())
    for _ in range(10):
        limiter.record_failure(source(ip))
    assert limiter.retry_after_ms(source(ip))
