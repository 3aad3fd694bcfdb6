"""The provider for OpenAI's chat completions API and services compatible with it.

`create` makes a Provider from a `ProviderConnection`. `models` holds what is known of each model
(price, abilities, flags); other models get a plain request.
"""

from collections.abc import Iterable

from homarus.core.message import Json, Part
from homarus.providers.base import Delta, ModelRequest, ToolSpec
from homarus.providers.catalog import ModelInfo
from homarus.providers.chat_request import ChatMessageRenderer, tool_list
from homarus.providers.chat_stream import ChatStreamAssembler, parse_object
from homarus.providers.compat import ChatCompat, resolve_compat
from homarus.providers.conversation import encode_json
from homarus.providers.endpoint import ProviderConnection
from homarus.providers.http_provider import SseCall, SseProvider, check_end
from homarus.providers.provider_errors import (
    ErrorContext,
    VendorError,
    error_from_vendor,
    problem_in,
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


class OpenAIProvider(SseProvider["_ChatRequestBuilder", ChatStreamAssembler]):
    """A service that implements chat completions."""

    api = API

    def _make_builder(self, model: ModelInfo) -> "_ChatRequestBuilder":
        compat = resolve_compat(self._settings.base_url, self._settings.compat, model.compat)
        return _ChatRequestBuilder(model, self.name, compat)

    async def _prepare(
        self, request: ModelRequest, model: ModelInfo, subject: ErrorContext
    ) -> SseCall[ChatStreamAssembler]:
        body = self._builder(model).body(request)
        return SseCall("/chat/completions", body, model.headers, ChatStreamAssembler(), {})

    def _read(
        self, data: str, reply: ChatStreamAssembler, subject: ErrorContext
    ) -> Iterable[Delta]:
        if data.startswith(DONE):
            reply.done = True
            return ()
        chunk = parse_object(data)
        if chunk.get("error") or chunk.get("object") == "error":
            raise error_from_vendor(subject, problem_in(chunk), midway=True)
        return reply.add(chunk)

    def _parts(self, call: SseCall[ChatStreamAssembler], subject: ErrorContext) -> tuple[Part, ...]:
        if not call.reply.whole:
            check_end(call.reply, subject)
        if call.reply.finish in _BAD_ENDS:
            raise error_from_vendor(subject, _BAD_ENDS[call.reply.finish], midway=True)
        return call.reply.message_parts()


create = OpenAIProvider


class _ChatRequestBuilder:
    def __init__(self, model: ModelInfo, provider: str, compat: ChatCompat) -> None:
        self._model, self._compat = model, compat
        sees = model.sees_images or not model.known
        self._turns = ChatMessageRenderer(
            compat, provider=provider, model=model.id, sees_images=sees
        )
        self._tools: tuple[tuple[ToolSpec, ...], bytes] = ((), b"[]")
        self._system: tuple[str, bytes] = ("", b"")

    def body(self, request: ModelRequest) -> bytes:
        turns = self._turns.render(request.messages)
        if request.system:
            turns.insert(0, self._system_turn(request.system))
        fields = self._fields(request)
        pieces = [encode_json(fields)[:-1]]
        for number, turn in enumerate(turns):  # one copy of a long conversation, not two
            pieces += [b"," if number else b',"messages":[', turn]
        pieces.append(b"]" if turns else b',"messages":[]')
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

    def _system_turn(self, text: str) -> bytes:
        if text != self._system[0]:
            role = "developer" if self._thinks and self._compat.developer_role else "system"
            self._system = (text, encode_json({"role": role, "content": text}))
        return self._system[1]

    def _tool_list(self, tools: tuple[ToolSpec, ...]) -> bytes:
        if tools != self._tools[0]:
            self._tools = (tools, tool_list(tools, strict=self._compat.strict is True))
        return self._tools[1]
