"""An answer that does not end is stopped at a bound, once, and costs the other clients nothing."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from homarus.agent.loop import MAX_SAVED_CHARS
from homarus.core.errors import AnswerTooLongError
from homarus.core.message import Message
from homarus.providers import endpoint
from homarus.providers.answer_filter import MAX_ANSWER_CHARS
from homarus.providers.base import Delta, ModelRequest, Provider, TextDelta, ThinkingDelta
from homarus.providers.catalog import ModelInfo
from homarus.providers.concurrency_limiter import ConcurrencyLimiter
from homarus.providers.fallback import FallbackProvider, FallbackTarget
from homarus.providers.rotation import reason_of
from homarus.testing.clock import FakeClock
from homarus.testing.model_server import Raw
from tests.unit.agent.harness import KEY, Harness, message
from tests.unit.providers.harness import OPENAI

PIECE = "word " * 200


class EndlessProvider:
    """A provider whose answer does not end."""

    name = api = "endless"

    def __init__(self, kind: type[TextDelta | ThinkingDelta]) -> None:
        self._kind, self.calls, self.sent_chars = kind, 0, 0

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta | Message]:
        self.calls += 1
        while True:
            self.sent_chars += len(PIECE)
            yield self._kind(PIECE)

    async def close(self) -> None:
        pass


def fallback_over(provider: Provider) -> FallbackProvider:
    clock = FakeClock(patient=False)

    async def opened() -> Provider:
        return provider

    model = ModelInfo("p", "m", reasoning=True)
    way = FallbackTarget(model, "", opened, lambda _error: None, ConcurrencyLimiter(clock))
    return FallbackProvider([way], clock, name="p", api="x")


@pytest.mark.parametrize("kind", [TextDelta, ThinkingDelta])
def test_endless_answer_is_stopped_once_and_clipped(
    tmp_path: Path, kind: type[TextDelta | ThinkingDelta]
) -> None:
    harness, endless = Harness(tmp_path), EndlessProvider(kind)
    harness.provider = fallback_over(endless)
    outcome = harness.run(message())
    assert isinstance(outcome.error, AnswerTooLongError)
    assert endless.calls == 1  # a retry would be as long
    assert endless.sent_chars <= MAX_ANSWER_CHARS + 2 * len(PIECE)
    assert "did not end" in harness.replies()[-1]

    async def saved_chars() -> int:
        session = await harness.sessions.load(KEY, "main")
        partial = session.messages[-1]
        return len(partial.text) + len(partial.thinking)

    assert 0 < asyncio.run(saved_chars()) < MAX_SAVED_CHARS + 200


def test_endless_answer_does_not_count_against_the_credential() -> None:
    assert reason_of(AnswerTooLongError("too long")) is None


async def test_endless_tool_arguments_are_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "MAX_LONG_EVENTS_BYTES", 100_000)
    call = '{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"%s"}}]}}]}'
    piece = Raw(f"data: {call % ('x' * 10_000)}\n\n".encode())
    error = await OPENAI.error_of(*[piece] * 20)
    assert isinstance(error, AnswerTooLongError)


async def test_endless_stream_of_small_events_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "MAX_ANSWER_BYTES", 10_000)
    piece = Raw(b'data: {"choices":[{"delta":{"tool_calls":[{"index":0}]}}]}\n\n' * 10)
    error = await OPENAI.error_of(*[piece] * 100)
    assert isinstance(error, AnswerTooLongError)


def test_longest_real_answer_fits_into_the_bound() -> None:
    longest_tokens, chars_per_token = 128_000, 4
    assert longest_tokens * chars_per_token <= MAX_ANSWER_CHARS
    assert longest_tokens * 400 <= endpoint.MAX_ANSWER_BYTES
