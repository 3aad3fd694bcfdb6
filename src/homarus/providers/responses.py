"""The provider for OpenAI's Responses API.

Nothing is stored at the service: each request carries the complete conversation, with the model's
encrypted reasoning. `create` makes the Provider; `models` holds what is known of each model, and
other models get a plain request.
"""

import re
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import aclosing

from homarus.core.clock import Clock, SystemClock
from homarus.core.errors import BadRequestError, ProviderTimeoutError, StreamError
from homarus.core.message import Json, Message, Origin
from homarus.providers.base import Delta, ModelRequest, ToolSpec
from homarus.providers.catalog import ModelInfo
from homarus.providers.chat_stream import MalformedChunkError, parse_object
from homarus.providers.compat import ChatCompat, resolve_compat
from homarus.providers.conversation import encode_json
from homarus.providers.endpoint import ProviderConnection, ProviderEndpoint
from homarus.providers.provider_errors import (
    ErrorContext,
    VendorError,
    error_from_vendor,
    problem_in,
    stream_error,
)
from homarus.providers.responses_request import ResponsesItemRenderer, tool_list
from homarus.providers.responses_stream import ResponsesStreamAssembler

__all__ = ["API", "ProviderConnection", "ResponsesProvider", "create"]

API = "openai-responses"
APIS = ("openai-responses",)
DONE = "[DONE]"  # not part of this API, but many proxies add it
MIN_OUTPUT_TOKENS = 16  # the service refuses less

_FORGOTTEN = "it does not take back the reasoning of earlier answers: they go without now"
_FILTERED = VendorError(0, "its filter stopped the answer", "content_filter")
_REASONING = re.compile(r"encrypted.content|\brs_\w|'reasoning' was provided", re.IGNORECASE)
_CANCELLED = VendorError(0, "it stopped with a cancel")


def create(
    settings: ProviderConnection, *, models: Iterable[ModelInfo] = (), clock: Clock | None = None
) -> "ResponsesProvider":
    """Return a provider; it opens no connection before its first request."""
    return ResponsesProvider(
        settings, {model.id: model for model in models}, clock or SystemClock()
    )


class ResponsesProvider:
    """A service that implements Responses."""

    api = API

    def __init__(
        self, settings: ProviderConnection, models: Mapping[str, ModelInfo], clock: Clock
    ) -> None:
        self.name = settings.name
        self._settings, self._models, self._clock = settings, models, clock
        self._endpoint = ProviderEndpoint(settings, clock)
        self._wires: dict[str, _ResponsesRequestBuilder] = {}

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta | Message]:
        model = self._models.get(request.model) or ModelInfo(self.name, request.model, known=False)
        subject = self._endpoint.subject(request.model)
        wire = self._wire(model)
        body = wire.body(request)
        reply = ResponsesStreamAssembler()
        try:
            async with (
                self._endpoint.post("/responses", body, subject, model.headers) as answer,
                aclosing(answer.events()) as events,
            ):
                async for data in events:
                    for delta in _read(data, reply, subject):
                        yield delta
                    if reply.status:
                        await answer.drain()
                        break
        except (StreamError, ProviderTimeoutError):
            if not reply.status:
                raise  # a connection lost after the end of the answer loses nothing
        except BadRequestError as exc:
            if not wire.forgets(exc, self._clock.now_ms()):
                raise
            raise stream_error(subject, _FORGOTTEN) from exc
        except MalformedChunkError as exc:
            raise stream_error(subject, f"its answer is malformed: {exc}") from exc
        yield self._message(reply, model, subject)

    async def close(self) -> None:
        await self._endpoint.close()

    def _wire(self, model: ModelInfo) -> "_ResponsesRequestBuilder":
        wire = self._wires.get(model.id)
        if wire is None:
            compat = resolve_compat(self._settings.base_url, self._settings.compat, model.compat)
            wire = self._wires[model.id] = _ResponsesRequestBuilder(model, self.name, compat)
        return wire

    def _message(
        self, reply: ResponsesStreamAssembler, model: ModelInfo, subject: ErrorContext
    ) -> Message:
        if not reply.status:
            raise stream_error(subject, "its answer ended before its end")
        if reply.status == "failed":
            problem = problem_in({"error": reply.error or "it does not say why"})
            raise error_from_vendor(subject, problem, midway=True)
        if reply.status == "cancelled":
            raise error_from_vendor(subject, _CANCELLED, midway=True)
        if reply.reason == "content_filter":
            raise error_from_vendor(subject, _FILTERED, midway=True)
        origin = Origin(self.api, self.name, model.id, reply.stop(), reply.usage(model.price))
        return Message("assistant", reply.message_parts(), self._clock.now_ms(), origin)


class _ResponsesRequestBuilder:
    def __init__(self, model: ModelInfo, provider: str, compat: ChatCompat) -> None:
        self._model, self._compat = model, compat
        sees = model.sees_images or not model.known
        self._items = ResponsesItemRenderer(provider=provider, model=model.id, sees_images=sees)
        self._tools: tuple[tuple[ToolSpec, ...], bytes] = ((), b"[]")

    def body(self, request: ModelRequest) -> bytes:
        fields = self._fields(request)
        items = b",".join(self._items.render(request.messages))
        pieces = [encode_json(fields)[:-1], b',"input":[', items, b"]"]
        if request.tools and self._model.calls_tools and "tools" not in fields:
            pieces += [b',"tools":', self._tool_list(request.tools)]
        return b"".join((*pieces, b"}"))

    def forgets(self, refusal: BadRequestError, now_ms: int) -> bool:
        """Return whether a refusal was about replayed reasoning, which the next request will omit.

        Another organisation's key cannot decrypt it, for example; without this the session would be
        refused for ever.
        """
        return bool(_REASONING.search(refusal.message)) and self._items.drop_earlier_reasoning(
            now_ms
        )

    def _fields(self, request: ModelRequest) -> dict[str, Json]:
        """Return all fields but input and tools; the caller's params override, null removes."""
        fields: dict[str, Json] = {"model": request.model, "stream": True, "store": False}
        if request.system:
            fields["instructions"] = request.system
        if request.max_tokens is not None:
            fields["max_output_tokens"] = max(request.max_tokens, MIN_OUTPUT_TOKENS)
        if self._model.reasoning:
            fields["include"] = ["reasoning.encrypted_content"]
            if request.thinking != "off" and self._compat.reasoning_effort:
                fields["reasoning"] = {"effort": request.thinking, "summary": "auto"}
        fields.update(request.params)
        fields.pop("input", None)
        return {
            name: value for name, value in fields.items() if value is not None or name == "model"
        }

    def _tool_list(self, tools: tuple[ToolSpec, ...]) -> bytes:
        if tools != self._tools[0]:
            self._tools = (tools, tool_list(tools, strict=self._compat.strict))
        return self._tools[1]


def _read(data: str, reply: ResponsesStreamAssembler, subject: ErrorContext) -> Sequence[Delta]:
    if not data.strip():
        return ()
    if data.startswith(DONE):
        reply.status = reply.status or "completed"
        return ()
    event = parse_object(data)
    if event.get("type") == "error" or event.get("error"):
        raise error_from_vendor(subject, problem_in(event), midway=True)
    return reply.add(event)
