"""The provider for OpenAI's chat completions API and services compatible with it.

`create` makes a Provider from a `ProviderConnection`. `models` holds what is known of each model
(price, abilities, flags); other models get a plain request.
"""

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import aclosing

from homarus.core.clock import Clock, SystemClock
from homarus.core.errors import ProviderTimeoutError, StreamError
from homarus.core.message import Json, Message, Origin
from homarus.providers.base import Delta, ModelRequest, ToolSpec
from homarus.providers.catalog import ModelInfo
from homarus.providers.chat_request import ChatMessageRenderer, tool_list
from homarus.providers.chat_stream import ChatStreamAssembler, MalformedChunkError, parse_object
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

__all__ = ["API", "OpenAIProvider", "ProviderConnection", "create"]

API = "openai-completions"
APIS = ("openai-completions", "ollama")
DONE = "[DONE]"
# Finish reasons of answers that the model did not end itself.
_BAD_ENDS = {
    "content_filter": VendorError(0, "its filter stopped the answer", "content_filter"),
    "insufficient_system_resource": VendorError(503, "it ran out of resources"),
    "error": VendorError(0, "it stopped with an error"),
    "abort": VendorError(0, "it stopped with an abort"),
}


def create(
    settings: ProviderConnection, *, models: Iterable[ModelInfo] = (), clock: Clock | None = None
) -> "OpenAIProvider":
    """Return a provider; it opens no connection before its first request."""
    return OpenAIProvider(settings, {model.id: model for model in models}, clock or SystemClock())


class OpenAIProvider:
    """A service that implements chat completions."""

    api = API

    def __init__(
        self, settings: ProviderConnection, models: Mapping[str, ModelInfo], clock: Clock
    ) -> None:
        self.name = settings.name
        self._settings, self._models, self._clock = settings, models, clock
        self._endpoint = ProviderEndpoint(settings, clock)
        self._wires: dict[str, _ChatRequestBuilder] = {}

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta | Message]:
        model = self._models.get(request.model) or ModelInfo(self.name, request.model, known=False)
        subject = self._endpoint.subject(request.model)
        body = self._wire(model).body(request)
        reply = ChatStreamAssembler()
        done = False
        try:
            async with (
                self._endpoint.post("/chat/completions", body, subject, model.headers) as answer,
                aclosing(answer.events()) as events,
            ):
                async for data in events:
                    if data.startswith(DONE):
                        done = True
                        await answer.drain()
                        break
                    if not data.strip():
                        continue
                    for delta in reply.add(_chunk(data, subject)):
                        yield delta
        except (StreamError, ProviderTimeoutError):
            if not (done or reply.finish):
                raise  # a connection lost after the end of the answer loses nothing
        except MalformedChunkError as exc:
            raise stream_error(subject, f"its answer is malformed: {exc}") from exc
        yield self._message(reply, model, subject, done=done)

    async def close(self) -> None:
        await self._endpoint.close()

    def _wire(self, model: ModelInfo) -> "_ChatRequestBuilder":
        wire = self._wires.get(model.id)
        if wire is None:
            compat = resolve_compat(self._settings.base_url, self._settings.compat, model.compat)
            wire = self._wires[model.id] = _ChatRequestBuilder(model, self.name, compat)
        return wire

    def _message(
        self, reply: ChatStreamAssembler, model: ModelInfo, subject: ErrorContext, *, done: bool
    ) -> Message:
        if not (done or reply.finish or reply.whole):
            raise stream_error(subject, "its answer ended before its end")
        if reply.finish in _BAD_ENDS:
            raise error_from_vendor(subject, _BAD_ENDS[reply.finish], midway=True)
        origin = Origin(self.api, self.name, model.id, reply.stop(), reply.usage(model.price))
        return Message("assistant", reply.message_parts(), self._clock.now_ms(), origin)


class _ChatRequestBuilder:
    def __init__(self, model: ModelInfo, provider: str, compat: ChatCompat) -> None:
        self._model, self._compat = model, compat
        sees = model.sees_images or not model.known
        self._turns = ChatMessageRenderer(
            compat, provider=provider, model=model.id, sees_images=sees
        )
        self._tools: tuple[tuple[ToolSpec, ...], bytes] = ((), b"[]")

    def body(self, request: ModelRequest) -> bytes:
        turns = self._turns.render(request.messages)
        if request.system:
            role = "developer" if self._thinks and self._compat.developer_role else "system"
            turns.insert(0, encode_json({"role": role, "content": request.system}))
        fields = self._fields(request)
        pieces = [encode_json(fields)[:-1], b',"messages":[', b",".join(turns), b"]"]
        if request.tools and self._model.calls_tools and "tools" not in fields:
            pieces += [b',"tools":', self._tool_list(request.tools)]
        return b"".join((*pieces, b"}"))

    @property
    def _thinks(self) -> bool:
        return self._model.reasoning

    def _fields(self, request: ModelRequest) -> dict[str, Json]:
        """Return all fields but messages and tools; the caller's params override, null removes."""
        fields: dict[str, Json] = {"model": request.model, "stream": True}
        if self._compat.usage_in_streaming:
            fields["stream_options"] = {"include_usage": True}
        if self._compat.store:
            fields["store"] = False
        if request.max_tokens is not None:
            fields[self._compat.max_tokens_field] = request.max_tokens
        if self._thinks:
            fields.update(self._thinking(request))
        fields.update(request.params)
        fields.pop("messages", None)
        if not fields.get("stream"):
            fields.pop("stream_options", None)
        return {
            name: value for name, value in fields.items() if value is not None or name == "model"
        }

    def _thinking(self, request: ModelRequest) -> dict[str, Json]:
        wanted = request.thinking != "off"
        match self._compat.thinking_format:
            case "zai":
                return {"thinking": {"type": "enabled" if wanted else "disabled"}}
            case "qwen":
                return {"enable_thinking": wanted}
            case _ if wanted and self._compat.reasoning_effort:
                return {"reasoning_effort": request.thinking}
            case _:
                return {}

    def _tool_list(self, tools: tuple[ToolSpec, ...]) -> bytes:
        if tools != self._tools[0]:
            self._tools = (tools, tool_list(tools, strict=self._compat.strict is True))
        return self._tools[1]


def _chunk(data: str, subject: ErrorContext) -> Mapping[str, Json]:
    chunk = parse_object(data)
    if chunk.get("error") or chunk.get("object") == "error":
        raise error_from_vendor(subject, problem_in(chunk), midway=True)
    return chunk
