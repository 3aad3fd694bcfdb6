"""Report the usage, cost and timing of every model call, failed ones included."""

import time
from collections.abc import AsyncIterator, Callable
from typing import Literal, TypeAlias

from homarus.core.errors import ProviderError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Message, Usage
from homarus.core.session_keys import agent_id_of, is_cron, is_hook, is_subagent
from homarus.core.text import one_line
from homarus.providers.base import NOT_TRIED, AttemptRetried, Delta, ModelRequest, Provider
from homarus.store.base import UsageRecord

_MAX_CHARS = 200
# What a call was for; docs/usage.md explains them.
Purpose: TypeAlias = Literal[
    "turn", "subagent", "cron", "hook", "heartbeat", "compaction", "media", "memory"
]


@dataclass(frozen=True, slots=True)
class ProviderCall:
    """One model call; `error` says why it failed.

    `ttfb_ms` is the time until its first piece, None if there was none.
    """

    provider: str
    model: str
    usage: Usage
    error: str = ""
    duration_ms: int = 0
    ttfb_ms: int | None = None


def to_usage_record(
    call: ProviderCall,
    run: str,
    session: str,
    at_ms: int,
    *,
    purpose: Purpose = "turn",
    channel: str = "",
) -> UsageRecord:
    """Return a call as a usage record of the store."""
    return UsageRecord(
        run, session, call.provider, call.model, at_ms, call.usage, call.error,
        agent=agent_id_of(session), channel=channel, purpose=purpose,
    )  # fmt: skip


def run_purpose(session: str) -> Purpose:
    """Return what the runs of a session are for, by its key."""
    if is_subagent(session):
        return "subagent"
    if is_cron(session):
        return "cron"
    return "hook" if is_hook(session) else "turn"


class UsageRecordingProvider:
    """A provider that reports each call when it ends."""

    def __init__(
        self,
        provider: Provider,
        model: str,
        on_call: Callable[[ProviderCall], None],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name, self.api = provider.name, provider.api
        self._provider, self._model, self._on_call = provider, model, on_call
        self._monotonic = monotonic
        self._started_s = self._first_s = 0.0  # of the attempt under way; 0: no piece yet

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta | Message]:
        """Stream an answer, and report the call and the failed attempts before it."""
        self._started_s, self._first_s = self._monotonic(), 0.0
        try:
            async for piece in self._provider.stream(request):
                if isinstance(piece, AttemptRetried):
                    if piece.reason != NOT_TRIED:
                        self._fail(piece.provider, piece.model, piece.error)
                    self._started_s, self._first_s = self._monotonic() + piece.wait_s, 0.0
                elif not self._first_s:
                    self._first_s = self._monotonic()
                if isinstance(piece, Message) and piece.origin:
                    origin = piece.origin
                    self._report(origin.provider, origin.model, origin.usage)
                yield piece
        except ProviderError as exc:
            provider, _, model = self._model.partition("/")
            self._fail(provider, model, str(exc))
            raise

    def _fail(self, provider: str, model: str, error: str) -> None:
        self._report(provider, model, Usage(), one_line(error, _MAX_CHARS))

    def _report(self, provider: str, model: str, usage: Usage, error: str = "") -> None:
        duration_ms = max(0, round((self._monotonic() - self._started_s) * 1000))
        ttfb_s = self._first_s - self._started_s
        ttfb_ms = max(0, round(ttfb_s * 1000)) if self._first_s else None
        self._on_call(ProviderCall(provider, model, usage, error, duration_ms, ttfb_ms))

    async def close(self) -> None:
        await self._provider.close()
