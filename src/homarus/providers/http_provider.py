"""The base of the providers that call a model service over HTTP."""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Generic, Protocol, TypeVar

from homarus.core.clock import Clock, SystemClock
from homarus.core.errors import BadRequestError, ProviderTimeoutError, StreamError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Message, Origin, Part, StopReason, Usage
from homarus.providers.base import Delta, ModelRequest
from homarus.providers.catalog import ModelInfo, Price
from homarus.providers.chat_stream import MalformedChunkError
from homarus.providers.endpoint import ProviderConnection, ProviderEndpoint
from homarus.providers.provider_errors import ErrorContext, VendorError, stream_error


class StreamAssembler(Protocol):
    """Assembles one streamed answer; `done` says that no more events follow."""

    @property
    def done(self) -> bool: ...

    @property
    def finish(self) -> str: ...

    def stop(self) -> StopReason: ...

    def usage(self, price: Price) -> Usage: ...


BuilderT = TypeVar("BuilderT")
ReplyT = TypeVar("ReplyT", bound=StreamAssembler)
_WITHOUT_REASONING = "it does not take back the reasoning of earlier answers: they go without now"
WINDOW_FULL = VendorError(0, "there is no room for an answer", "context_window_exceeded")


class HttpProvider(ABC, Generic[BuilderT]):
    """A model service; `BuilderT` builds the requests for one model.

    `models` holds what is known of each model. No connection is opened before the first request.
    """

    api: str

    def __init__(
        self,
        settings: ProviderConnection,
        *,
        models: Iterable[ModelInfo] = (),
        clock: Clock | None = None,
    ) -> None:
        self.name, self._clock = settings.name, clock or SystemClock()
        self._settings = settings = replace(settings, base_url=self._address(settings.base_url))
        self._models = {model.id: model for model in models}
        self._endpoint = ProviderEndpoint(settings, self._clock, key_header=self._key_header)
        self._builders: dict[str, BuilderT] = {}

    async def close(self) -> None:
        await self._endpoint.close()

    @abstractmethod
    def _make_builder(self, model: ModelInfo) -> BuilderT: ...

    @property
    def _key_header(self) -> str:
        return "Authorization"

    def _address(self, base_url: str) -> str:
        return base_url

    def _model(self, model_id: str) -> ModelInfo:
        return self._models.get(model_id) or ModelInfo(self.name, model_id, known=False)

    def _builder(self, model: ModelInfo) -> BuilderT:
        """Return the request builder of a model, which caches what it has rendered."""
        builder = self._builders.get(model.id)
        if builder is None:
            builder = self._builders[model.id] = self._make_builder(model)
        return builder

    def _message(
        self, reply: StreamAssembler, parts: tuple[Part, ...], model: ModelInfo
    ) -> Message:
        origin = Origin(self.api, self.name, model.id, reply.stop(), reply.usage(model.price))
        return Message("assistant", parts, self._clock.now_ms(), origin)


def check_end(reply: StreamAssembler, subject: ErrorContext) -> None:
    """Raise StreamError for an answer that is incomplete."""
    if not (reply.done or reply.finish):
        raise stream_error(subject, "its answer ended before its end")


@dataclass(frozen=True, slots=True)
class SseCall(Generic[ReplyT]):
    """A request that is ready to be sent. `names` maps tool names on the wire to ours."""

    path: str
    body: bytes
    headers: Mapping[str, str]
    reply: ReplyT
    names: Mapping[str, str]


class SseProvider(HttpProvider[BuilderT], Generic[BuilderT, ReplyT]):
    """A service that streams its answers as server-sent events."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | Message, None]:
        model = self._model(request.model)
        subject = self._endpoint.subject(request.model)
        call = await self._prepare(request, model, subject)
        reply = call.reply
        try:
            async with (
                self._endpoint.post(call.path, call.body, subject, call.headers) as answer,
                aclosing(answer.events()) as events,
            ):
                async for data in events:
                    if data.strip():
                        for delta in self._read(data, reply, subject):
                            yield delta
                    if (reply.finish or reply.done) and await answer.is_over(done=reply.done):
                        break
        except (StreamError, ProviderTimeoutError):
            if not (reply.done or reply.finish):
                raise  # a connection lost after the end of the answer loses nothing
        except BadRequestError as exc:
            if not self._drops_reasoning(exc, model):
                raise
            raise stream_error(subject, _WITHOUT_REASONING) from exc
        except MalformedChunkError as exc:
            raise stream_error(subject, f"its answer is malformed: {exc}") from exc
        yield self._message(reply, self._parts(call, subject), model)

    def _drops_reasoning(self, refusal: BadRequestError, model: ModelInfo) -> bool:
        """Return whether the next request omits the reasoning that was refused."""
        return False

    @abstractmethod
    async def _prepare(
        self, request: ModelRequest, model: ModelInfo, subject: ErrorContext
    ) -> SseCall[ReplyT]: ...

    @abstractmethod
    def _read(self, data: str, reply: ReplyT, subject: ErrorContext) -> Iterable[Delta]:
        """Return the deltas of an event. Raises the error that it reports."""

    @abstractmethod
    def _parts(self, call: SseCall[ReplyT], subject: ErrorContext) -> tuple[Part, ...]:
        """Return the parts of the answer. Raises the error of an incomplete or refused one."""
