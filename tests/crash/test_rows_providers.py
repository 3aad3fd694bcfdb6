"""Rows 27, 28 and 29: a model's service that is unreachable, refuses, or fails."""

import asyncio
import functools
import socket
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest

from homarus.config.paths import Paths
from homarus.config.schema import Config
from homarus.core.errors import (
    AllAttemptsFailedError,
    AuthError,
    OverloadedError,
    ProviderError,
    RateLimitError,
    UnreachableError,
)
from homarus.core.message import Message, user_message
from homarus.core.retry import Backoff
from homarus.providers import endpoint
from homarus.providers.base import AttemptRetried, Delta, ModelRequest
from homarus.providers.catalog import ModelInfo
from homarus.providers.concurrency_limiter import WIDEST, ConcurrencyLimiter
from homarus.providers.fallback import FallbackProvider, FallbackTarget, ProviderRetryPolicy
from homarus.providers.model_router import ModelRouter, ModelSelection
from homarus.testing.clock import FakeClock
from homarus.testing.fakes import assistant_message
from homarus.testing.model_server import Fail, ModelServer, Say

GUARD_S = 60.0
TRIES = ProviderRetryPolicy().tries


def models(tmp_path: Path, primary: str, second: str = "") -> tuple[ModelRouter, ModelSelection]:
    """Two services by their addresses, the second as the fallback when there is one."""
    providers: dict[str, Any] = {
        name: {"baseUrl": url, "apiKey": "k", "models": [{"id": "m", "name": "M"}]}
        for name, url in (("first", primary), ("second", second))
        if url
    }
    config = Config.model_validate({"models": {"providers": providers}})
    paths = Paths.find({"HOME": str(tmp_path)})
    road = ModelRouter(config, {}, paths, FakeClock(patient=False))
    return road, ModelSelection("main", "first/m", ("second/m",) if second else ())


async def ask(road: ModelRouter, wish: ModelSelection) -> tuple[str, list[AttemptRetried]]:
    """Return the answer, and the failures before it."""
    try:
        provider, _ = await road.connect(wish)
        pieces = [
            piece async for piece in provider.stream(ModelRequest("m", "", (user_message("hi"),)))
        ]
    finally:
        await road.close()
    (message,) = [piece for piece in pieces if isinstance(piece, Message)]
    return message.text, [piece for piece in pieces if isinstance(piece, AttemptRetried)]


@asynccontextmanager
async def refusing() -> AsyncIterator[str]:
    with closing(socket.socket()) as bound:  # bound and not listening: refused at once
        bound.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{bound.getsockname()[1]}/v1"


@asynccontextmanager
async def silent() -> AsyncIterator[str]:
    """A port whose backlog is full, so that the kernel drops new connections."""
    with ExitStack() as opened:
        full = opened.enter_context(closing(socket.socket()))
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for _ in range(4):
            one = opened.enter_context(closing(socket.socket()))
            one.setblocking(False)
            one.connect_ex(full.getsockname())
        yield f"http://127.0.0.1:{full.getsockname()[1]}/v1"


@asynccontextmanager
async def nameless() -> AsyncIterator[str]:
    yield "http://no-such-host.invalid/v1"


@asynccontextmanager
async def tls_less() -> AsyncIterator[str]:
    """What listens here speaks no TLS."""
    async with ModelServer() as server:
        yield server.url.replace("http:", "https:")


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the connection timeout, and never resolve names on the network."""
    monkeypatch.setattr(
        endpoint,
        "ProviderConnection",
        functools.partial(endpoint.ProviderConnection, connect_s=0.2),
    )

    def refuse(host: Any, *args: Any, **more: Any) -> Any:
        if str(host).endswith(".invalid"):
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return known(host, *args, **more)

    known = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("gone", [refusing, silent, nameless, tls_less])
async def test_row_27_unreachable_service_is_retried_within_budget_and_reported(
    tmp_path: Path, gone: Any
) -> None:
    async with asyncio.timeout(GUARD_S), gone() as url, ModelServer() as server:
        text, failed = await ask(*models(tmp_path, url, server.url))
        assert text == "Hello from the mock model."
        assert [one.reason for one in failed] == ["provider.unreachable"] * TRIES
        assert len(server.requests) == 1
        with pytest.raises(UnreachableError) as caught:
            await ask(*models(tmp_path, url))
        assert caught.value.fix


class Busy:
    """A service that accepts this many requests in any second, and answers 429 to the rest."""

    name, api = "busy", "scripted"
    LATENCY_S, REFUSAL_S = 0.5, 0.05

    def __init__(self, clock: FakeClock, limit: int, after_s: float | None) -> None:
        self._clock, self._limit, self._after_s = clock, limit, after_s
        self.taken: list[float] = []
        self.asked: list[float] = []

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta | Message]:
        now = self._clock.monotonic()
        self.asked.append(now)
        if sum(at > now - 1.0 for at in self.taken) >= self._limit:
            await self._clock.sleep(self.REFUSAL_S)
            raise RateLimitError("too many requests", after_s=self._after_s)
        self.taken.append(now)
        await self._clock.sleep(self.LATENCY_S)
        yield assistant_message("done")

    async def close(self) -> None:
        pass

    def peak(self, since_s: float) -> int:
        """Return the maximum of requests in any second, from a moment on."""
        times = [at for at in self.asked if at >= since_s]
        return max(sum(at <= other < at + 1.0 for other in times) for at in times)


@pytest.mark.parametrize("after_s", [None, 2.0])
async def test_row_28_thousand_sessions_after_429_keep_allowed_rate(
    after_s: float | None,
) -> None:
    limit, sessions = 50, 1_000
    clock = FakeClock()
    service = Busy(clock, limit, after_s)
    gate, outcomes = ConcurrencyLimiter(clock), list[str]()

    async def opened() -> Busy:
        return service

    async def session() -> None:
        way = FallbackTarget(ModelInfo("busy", "m"), "", opened, lambda _: None, gate)
        patience = ProviderRetryPolicy(tries=1_000, backoff=Backoff(first_s=1.0, max_s=8.0))
        provider = FallbackProvider([way], clock, patience)
        async for piece in provider.stream(ModelRequest("m", "", (user_message("hi"),))):
            if isinstance(piece, Message):
                outcomes.append(piece.text)

    async with asyncio.TaskGroup() as group:
        for _ in range(sessions):
            group.create_task(session())
        while len(outcomes) < sessions and clock.monotonic() < 600:
            await clock.advance(0.25)
    took_s = clock.monotonic()
    assert outcomes == ["done"] * sessions
    # What a service allows is not known before it refuses; ten seconds later it is.
    assert service.peak(0.0) <= WIDEST and service.peak(10.0) <= limit * 1.1
    assert len(service.asked) < 1.5 * sessions and took_s < 3 * sessions / limit


async def served(tmp_path: Path, answer: Fail, times: int) -> tuple[list[Any], int, int]:
    """Return the failures and the requests at each service when the first answers like this."""
    async with ModelServer() as first, ModelServer() as second:
        first.script(*[[answer]] * times, [Say("late")])
        text, failed = await ask(*models(tmp_path, first.url, second.url))
        assert text in {"late", "Hello from the mock model."}
        return [one.reason for one in failed], len(first.requests), len(second.requests)


@pytest.mark.parametrize("wait", ["", "7", "3600"])
async def test_row_28_rate_limit_uses_fallback_at_once(tmp_path: Path, wait: str) -> None:
    told, first, second = await served(tmp_path, Fail(429, retry_after=wait), 1)
    assert (told, first, second) == (["provider.rate_limited"], 1, 1)


LIMIT_403 = b'{"error":{"message":"Rate limit exceeded for this key","code":403}}'


@pytest.mark.parametrize(
    ("answer", "reason", "tries"),
    [
        (Fail(500), "provider.overloaded", TRIES),
        (Fail(502, body=b"<html><title>Bad gateway</title></html>"), "provider.overloaded", TRIES),
        (Fail(529), "provider.overloaded", TRIES),
        (Fail(403, body=LIMIT_403), "provider.rate_limited", 1),
        (Fail(403), "provider.auth", 1),
    ],
)
async def test_row_29_broken_service_is_not_overload_and_has_bounded_retries(
    tmp_path: Path, answer: Fail, reason: str, tries: int
) -> None:
    assert await served(tmp_path, answer, 1_000) == ([reason] * tries, tries, 1)


async def test_row_29_all_services_failing_reports_every_failure(tmp_path: Path) -> None:
    async with ModelServer() as first, ModelServer() as second:
        first.script(*[[Fail(500)]] * 1_000)
        second.script(*[[Fail(403)]] * 1_000)
        with pytest.raises(AllAttemptsFailedError) as caught:
            await ask(*models(tmp_path, first.url, second.url))
        assert isinstance(caught.value, ProviderError)
        assert "first/m" in str(caught.value) and "second/m" in str(caught.value)
        assert [type(one) for one in caught.value.tried] == [OverloadedError, AuthError]
        assert (len(first.requests), len(second.requests)) == (TRIES, 1)
