"""The provider for OpenAI's Responses API.

Nothing is stored at the service: each request carries the complete conversation, with the model's
encrypted reasoning. `create` makes the Provider; `models` holds what is known of each model, and
other models get a plain request.
"""

import re
from collections.abc import Iterable

from homarus.core.errors import BadRequestError
from homarus.core.message import Json, Part
from homarus.providers.base import Delta, ModelRequest, ToolSpec
from homarus.providers.catalog import ModelInfo
from homarus.providers.chat_stream import parse_object
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
from homarus.providers.responses_request import ResponsesItemRenderer, tool_list
from homarus.providers.responses_stream import ResponsesStreamAssembler

__all__ = ["API", "ProviderConnection", "ResponsesProvider", "create"]

API = "openai-responses"
APIS = ("openai-responses",)
DONE = "[DONE]"  # not part of this API, but many proxies add it
MIN_OUTPUT_TOKENS = 16  # the service refuses less

_FILTERED = VendorError(0, "its filter stopped the answer", "content_filter")
_REASONING = re.compile(r"encrypted.content|\brs_\w|'reasoning' was provided", re.IGNORECASE)
_CANCELLED = VendorError(0, "it stopped with a cancel")


class ResponsesProvider(SseProvider["_ResponsesRequestBuilder", ResponsesStreamAssembler]):
    """A service that implements Responses."""

    api = API

    def _make_builder(self, model: ModelInfo) -> "_ResponsesRequestBuilder":
        compat = resolve_compat(self._settings.base_url, self._settings.compat, model.compat)
        return _ResponsesRequestBuilder(model, self.name, compat)

    def _drops_reasoning(self, refusal: BadRequestError, model: ModelInfo) -> bool:
        return self._builder(model).forgets(refusal, self._clock.now_ms())

    async def _prepare(
        self, request: ModelRequest, model: ModelInfo, subject: ErrorContext
    ) -> SseCall[ResponsesStreamAssembler]:
        body = self._builder(model).body(request)
        return SseCall("/responses", body, model.headers, ResponsesStreamAssembler(), {})

    def _read(
        self, data: str, reply: ResponsesStreamAssembler, subject: ErrorContext
    ) -> Iterable[Delta]:
        if data.startswith(DONE):
            reply.finish = reply.finish or "completed"
            return ()
        event = parse_object(data)
        if event.get("type") == "error" or event.get("error"):
            raise error_from_vendor(subject, problem_in(event), midway=True)
        return reply.add(event)

    def _parts(
        self, call: SseCall[ResponsesStreamAssembler], subject: ErrorContext
    ) -> tuple[Part, ...]:
        reply = call.reply
        check_end(reply, subject)
        if reply.finish == "failed":
            problem = problem_in({"error": reply.error or "it does not say why"})
            raise error_from_vendor(subject, problem, midway=True)
        if reply.finish == "cancelled":
            raise error_from_vendor(subject, _CANCELLED, midway=True)
        if reply.reason == "content_filter":
            raise error_from_vendor(subject, _FILTERED, midway=True)
        return reply.message_parts()


create = ResponsesProvider


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
        fields.pop("stop", None)  # the service has no such field
        return {
            name: value for name, value in fields.items() if value is not None or name == "model"
        }

    def _tool_list(self, tools: tuple[ToolSpec, ...]) -> bytes:
        if tools != self._tools[0]:
            self._tools = (tools, tool_list(tools, strict=self._compat.strict))
        return self._tools[1]
