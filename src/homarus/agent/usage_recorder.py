"""Report the usage and cost of every model call, failed ones included."""

from collections.abc import AsyncIterator, Callable

from homarus.core.errors import ProviderError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Message, Usage
from homarus.core.text import one_line
from homarus.providers.base import NOT_TRIED, AttemptRetried, Delta, ModelRequest, Provider
from homarus.store.base import UsageRecord

_MAX_CHARS = 200


@dataclass(frozen=True, slots=True)
class ProviderCall:
    """One model call; `error` says why it failed."""

    provider: str
    model: str
    usage: Usage
    error: str = ""


def to_usage_record(call: ProviderCall, run: str, session: str, at_ms: int) -> UsageRecord:
    """Return a call as a usage record of the store."""
    return UsageRecord(run, session, call.provider, call.model, at_ms, call.usage, call.error)


class UsageRecordingProvider:
    """A provider that reports each call when it ends."""

    def __init__(
        self, provider: Provider, model: str, on_call: Callable[[ProviderCall], None]
    ) -> None:
        self.name, self.api = provider.name, provider.api
        self._provider, self._model, self._on_call = provider, model, on_call

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta | Message]:
        """Stream an answer, and report the call and the failed attempts before it."""
        try:
            async for piece in self._provider.stream(request):
                if isinstance(piece, AttemptRetried) and piece.reason != NOT_TRIED:
                    self._fail(piece.provider, piece.model, piece.error)
                elif isinstance(piece, Message) and piece.origin:
                    origin = piece.origin
                    self._on_call(ProviderCall(origin.provider, origin.model, origin.usage))
                yield piece
        except ProviderError as exc:
            provider, _, model = self._model.partition("/")
            self._fail(provider, model, str(exc))
            raise

    def _fail(self, provider: str, model: str, error: str) -> None:
        self._on_call(ProviderCall(provider, model, Usage(), one_line(error, _MAX_CHARS)))

    async def close(self) -> None:
        await self._provider.close()
