"""The provider for Google's Gemini API.

`create` makes a Provider from a `ProviderConnection`. `models` holds what is known of each model;
of other models, the name tells whether they reason. The key is sent in a header, never in the URL.
"""

import json
from collections.abc import Iterable, Mapping
from urllib.parse import quote

from homarus.core.errors import ProviderError
from homarus.core.message import Json, Part
from homarus.providers.base import Delta, ModelRequest, ToolSpec
from homarus.providers.catalog import ModelInfo
from homarus.providers.chat_stream import MalformedChunkError
from homarus.providers.conversation import encode_json
from homarus.providers.endpoint import ProviderConnection
from homarus.providers.google_request import API, GeminiMessageRenderer, tool_list, wire_name
from homarus.providers.google_stream import GeminiStreamAssembler
from homarus.providers.google_thinking import generation, thinking_config, thinks
from homarus.providers.http_provider import SseCall, SseProvider
from homarus.providers.provider_errors import (
    ErrorContext,
    VendorError,
    error_from_vendor,
    problem_in,
    stream_error,
)

__all__ = ["API", "GoogleProvider", "ProviderConnection", "create"]

APIS = ("google-generative-ai",)
KEY_HEADER = "x-goog-api-key"
HOST = "generativelanguage.googleapis.com"
VERSION = "v1beta"
# Our settings that have no field at Google.
_NOT_SENT = frozenset({"contents", "cacheRetention"})
# Finish reasons of answers that the model did not end itself.
_FILTERED = frozenset(
    {
        *("SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "LANGUAGE"),
        *("IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION"),
    }
)
_BROKEN = {
    "MALFORMED_FUNCTION_CALL": "the model asked for a tool in a way that cannot be read",
    "UNEXPECTED_TOOL_CALL": "the model asked for a tool it was not given",
    "TOO_MANY_TOOL_CALLS": "the model asked for too many tools",
    "MALFORMED_RESPONSE": "the model's answer cannot be read",
    "NO_IMAGE": "the model drew nothing",
    "IMAGE_OTHER": "the model stopped drawing",
    "OTHER": "the model stopped for a reason it does not tell",
}
_REFUSED = {
    "MISSING_THOUGHT_SIGNATURE": VendorError(400, "a signature is missing", "invalid_argument")
}
# The caller's params that belong into `generationConfig`; others are top-level fields.
_CONFIG = {
    **{
        name: name
        for name in (
            *("temperature", "topP", "topK", "seed", "stopSequences", "candidateCount"),
            *("maxOutputTokens", "presencePenalty", "frequencyPenalty", "mediaResolution"),
            *("responseMimeType", "responseSchema", "responseJsonSchema", "responseModalities"),
            *("responseLogprobs", "logprobs", "speechConfig", "imageConfig", "thinkingConfig"),
        )
    },
    "maxTokens": "maxOutputTokens",
    "max_tokens": "maxOutputTokens",
    "top_p": "topP",
    "top_k": "topK",
    "stop": "stopSequences",
    "presence_penalty": "presencePenalty",
    "frequency_penalty": "frequencyPenalty",
}


class GoogleProvider(SseProvider["_GeminiRequestBuilder", GeminiStreamAssembler]):
    """A service that implements the Gemini API."""

    api = API
    _key_header = KEY_HEADER

    def _address(self, base_url: str) -> str:
        """Add the API version to Google's address when it is missing."""
        bare = base_url.rstrip("/")
        return f"{bare}/{VERSION}" if bare.endswith(HOST) else base_url

    def _make_builder(self, model: ModelInfo) -> "_GeminiRequestBuilder":
        return _GeminiRequestBuilder(model, self.name)

    async def _prepare(
        self, request: ModelRequest, model: ModelInfo, subject: ErrorContext
    ) -> SseCall[GeminiStreamAssembler]:
        builder = self._builder(model)
        body = builder.body(request)
        reply = GeminiStreamAssembler(builder.names)
        method = f"/{builder.path}:streamGenerateContent?alt=sse"
        path, headers = await self._locate(method, model, subject)
        return SseCall(path, body, headers, reply, builder.names)

    async def _locate(
        self, method: str, model: ModelInfo, subject: ErrorContext
    ) -> tuple[str, Mapping[str, str]]:
        """Return the path and the headers of a request."""
        return method, model.headers

    def _read(
        self, data: str, reply: GeminiStreamAssembler, subject: ErrorContext
    ) -> Iterable[Delta]:
        for chunk in _chunks(data, subject):
            yield from reply.add(chunk)

    def _parts(
        self, call: SseCall[GeminiStreamAssembler], subject: ErrorContext
    ) -> tuple[Part, ...]:
        if failed := _bad_end(call.reply, subject):
            raise failed
        return call.reply.message_parts()


create = GoogleProvider


class _GeminiRequestBuilder:
    def __init__(self, model: ModelInfo, provider: str) -> None:
        self._model = model
        self.path = _path(model.id)
        self.names: Mapping[str, str] = {}  # tool names on the wire to ours
        self._thinks = model.reasoning or (not model.known and thinks(model.id))
        self._turns = GeminiMessageRenderer(
            provider=provider,
            model=model.id,
            sees_images=model.sees_images or not model.known,
            draws="image" in model.id.lower(),
            signs=generation(model.id) >= (3, 0),
        )
        self._tools: tuple[tuple[ToolSpec, ...], bytes] = ((), b"[]")

    def body(self, request: ModelRequest) -> bytes:
        fields = self._fields(request)
        pieces = [encode_json(fields)[:-1], b"," if fields else b"", b'"contents":[']
        pieces += [b",".join(self._turns.render(request.messages)), b"]"]
        if request.tools and self._model.calls_tools and "tools" not in request.params:
            pieces += [b',"tools":', self._tool_list(request.tools)]
        return b"".join((*pieces, b"}"))

    def _fields(self, request: ModelRequest) -> dict[str, Json]:
        """Return all fields but contents and tools; the caller's params override, null removes."""
        fields: dict[str, Json] = {}
        if request.system.strip():
            fields["systemInstruction"] = {"parts": [{"text": request.system}]}
        config: dict[str, Json] = {}
        if request.max_tokens is not None:
            config["maxOutputTokens"] = request.max_tokens
        if self._thinks:
            config["thinkingConfig"] = thinking_config(request.model, request.thinking) or None
        for name, value in request.params.items():
            if name in _CONFIG:
                config[_CONFIG[name]] = value
            elif name == "generationConfig" and isinstance(value, Mapping):
                config.update(value)
            elif name not in _NOT_SENT:
                fields[name] = value
        fields["generationConfig"] = _without_nulls(config) or None
        return _without_nulls(fields)

    def _tool_list(self, tools: tuple[ToolSpec, ...]) -> bytes:
        if tools != self._tools[0]:
            self._tools = (tools, tool_list(tools))
            self.names = {wire_name(spec.name): spec.name for spec in reversed(tools)}
        return self._tools[1]


def _path(model_id: str) -> str:
    kind, slash, name = model_id.partition("/")
    if slash and kind in {"models", "tunedModels"}:
        return f"{kind}/{quote(name, safe='')}"
    return f"models/{quote(model_id, safe='')}"


def _without_nulls(fields: Mapping[str, Json]) -> dict[str, Json]:
    return {name: value for name, value in fields.items() if value is not None}


def _chunks(data: str, subject: ErrorContext) -> list[dict[str, Json]]:
    """Parse an event's chunks: one, or all of an answer that was not streamed."""
    try:
        parsed = json.loads(data)
    except (ValueError, RecursionError) as exc:
        raise MalformedChunkError(f"{exc} in {data[:80]!r}") from exc
    chunks = parsed if isinstance(parsed, list) else [parsed]
    for chunk in chunks:
        if not isinstance(chunk, dict):
            raise MalformedChunkError(f"{data[:80]!r} is not an object")
        if chunk.get("error"):
            raise error_from_vendor(subject, problem_in(chunk), midway=True)
    return chunks


def _bad_end(reply: GeminiStreamAssembler, subject: ErrorContext) -> ProviderError | None:
    """Return the error for an answer that is blocked, invalid or incomplete, or None."""
    end = reply.finish
    if reply.blocked or end in _FILTERED:
        word = f"its filter stopped it ({reply.blocked or end})"
        return error_from_vendor(subject, VendorError(0, word, "content_filter"), midway=True)
    if end in _BROKEN:
        return stream_error(subject, ": ".join(filter(None, (_BROKEN[end], reply.why))))
    if end in _REFUSED:
        return error_from_vendor(subject, _REFUSED[end])
    return None if end else stream_error(subject, "its answer ended before its end")
