"""The provider for Amazon Bedrock, by its ConverseStream API.

An empty address in the `ProviderConnection` stands for AWS's own, an empty key (a Bedrock API key)
for AWS's search for credentials. `models` holds what is known of each model. Needs the extra
`homarus[bedrock]`, imported at the first request.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from dataclasses import replace
from typing import TypeAlias

from homarus.core.clock import Clock
from homarus.core.errors import AuthError, ProviderTimeoutError, StreamError
from homarus.core.message import Json, Message, Part
from homarus.providers.anthropic_blocks import (
    AnthropicTurn,
    called_names,
    gone_tools,
    opens_with_thought,
    tool_schemas,
    wire_names,
)
from homarus.providers.anthropic_thinking import (
    INTERLEAVED_BETA,
    ClaudeModel,
    has_budget,
    is_thinking,
    parse_claude_model,
    thinking_fields,
)
from homarus.providers.aws import SIGN_IN, SignedRequest, Signer, check_installed
from homarus.providers.base import Delta, ModelRequest, ToolSpec
from homarus.providers.bedrock_request import (
    API,
    ConverseBlock,
    ConverseRequest,
    ConverseTurnBuilder,
    encode_converse,
)
from homarus.providers.bedrock_stream import ConverseStreamAssembler
from homarus.providers.catalog import ModelInfo
from homarus.providers.chat_stream import MalformedChunkError
from homarus.providers.endpoint import ProviderConnection, ProviderEndpoint
from homarus.providers.eventstream import EventStreamFrame, FrameError, FrameReader
from homarus.providers.http_provider import WINDOW_FULL, HttpProvider, check_end
from homarus.providers.provider_errors import (
    ErrorContext,
    VendorError,
    error_from_vendor,
    stream_error,
)

__all__ = ["API", "BedrockProvider", "ProviderConnection", "create"]

APIS = ("bedrock-converse-stream",)
NEEDS_ADDRESS = False  # the region determines it
SIGNING_THREADS = 2
_Turn: TypeAlias = AnthropicTurn[ConverseBlock]
STREAM_TYPE = "application/vnd.amazon.eventstream"
# The HTTP status that corresponds to an exception inside a stream.
_STATUSES = {
    "validationException": 400,
    "accessDeniedException": 403,
    "modelTimeoutException": 408,
    "modelStreamErrorException": 424,
    "throttlingException": 429,
    "internalServerException": 500,
    "serviceUnavailableException": 503,
}
# Stop reasons of answers that the model did not end itself.
_FILTERED = frozenset({"guardrail_intervened", "content_filtered"})
_BROKEN = {
    "malformed_model_output": "the model's answer cannot be read",
    "malformed_tool_use": "the model asked for a tool in a way that cannot be read",
}
# The caller's params that are Converse's own; other params go to the model.
_CONFIG = {
    **{name: name for name in ("maxTokens", "temperature", "topP", "stopSequences")},
    "max_tokens": "maxTokens",
    "top_p": "topP",
    "stop": "stopSequences",
    "stop_sequences": "stopSequences",
}
_TOP = frozenset(
    {
        *("additionalModelResponseFieldPaths", "guardrailConfig", "outputConfig"),
        *("performanceConfig", "promptVariables", "requestMetadata", "serviceTier", "toolConfig"),
    }
)
_OURS = frozenset({"messages", "system", "modelId", "cacheRetention"})
_SAMPLING = ("temperature", "topP", "top_k")


def create(
    settings: ProviderConnection, *, models: Iterable[ModelInfo] = (), clock: Clock | None = None
) -> "BedrockProvider":
    """Return a provider; it imports and opens nothing before its first request."""
    check_installed()
    return BedrockProvider(settings, models=models, clock=clock)


class BedrockProvider(HttpProvider["_ConverseRequestBuilder"]):
    """Bedrock in one region, for one account."""

    api = API

    def __init__(
        self,
        settings: ProviderConnection,
        *,
        models: Iterable[ModelInfo] = (),
        clock: Clock | None = None,
    ) -> None:
        super().__init__(settings, models=models, clock=clock)
        self._signer = Signer(
            settings.base_url, settings.env, bearer=bool(settings.api_key.strip())
        )
        # Own threads: waiting for credentials must not block other work.
        self._threads = ThreadPoolExecutor(SIGNING_THREADS, thread_name_prefix="homarus-aws")
        self._has_origin = False  # the signer knows the address after the first request

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta | Message]:
        model = self._model(request.model)
        converse, names = self._builder(model).build(request)
        signed = await self._sign(converse)
        subject = self._endpoint.subject(request.model)
        headers = {**signed.headers, "Accept": STREAM_TYPE, **model.headers}
        reply, reader = ConverseStreamAssembler(), FrameReader()
        try:
            async with (
                self._endpoint.post(signed.path, signed.body, subject, headers) as answer,
                aclosing(answer.iter_bytes()) as pieces,
            ):
                async for piece in pieces:
                    for frame in reader.feed(piece):
                        for delta in reply.add(*_event(frame, subject)):
                            yield delta
                    if reply.finish and await answer.is_over(done=reply.done):
                        break
        except (StreamError, ProviderTimeoutError):
            if not reply.finish:
                raise  # a connection lost after the end of the answer loses nothing
        except (MalformedChunkError, FrameError) as exc:
            raise stream_error(subject, f"its answer is malformed: {exc}") from exc
        except AuthError as exc:
            fix = exc.fix if self._settings.api_key.strip() else SIGN_IN
            raise AuthError(exc.message, fix=fix, status=exc.status) from exc
        yield self._message(reply, _parts(reply, names, subject), model)

    async def close(self) -> None:
        await super().close()
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._signer.close()

    def _make_builder(self, model: ModelInfo) -> "_ConverseRequestBuilder":
        return _ConverseRequestBuilder(model, self.name)

    async def _sign(self, converse: ConverseRequest) -> SignedRequest:
        """Serialise and sign the request in a thread: it may have to fetch credentials."""
        where = self._settings.base_url or "AWS"
        secrets = (self._settings.api_key.strip(),)
        subject = ErrorContext(self.name, converse.model, where, secrets)
        signed = await asyncio.get_running_loop().run_in_executor(
            self._threads, lambda: self._signer.sign(encode_converse(converse), subject)
        )
        if not self._has_origin:
            settings = replace(self._settings, base_url=signed.origin)
            self._endpoint, self._has_origin = ProviderEndpoint(settings, self._clock), True
        return signed


class _ConverseRequestBuilder:
    def __init__(self, model: ModelInfo, provider: str) -> None:
        self._model = model
        # The id of an inference profile may not name the model; its name may.
        self._claude = parse_claude_model(model.id) or parse_claude_model(
            model.name.replace(" ", "-")
        )
        thinking = self._claude is not None and self._claude.version >= (3, 7)
        self._thinks = thinking and (model.reasoning or not model.known)
        self._rich = self._claude is not None or "nova" in model.id.lower()
        sees = model.sees_images or not model.known
        self._turns = ConverseTurnBuilder(provider=provider, model=model.id, sees_images=sees)
        self._tools: tuple[tuple[ToolSpec, ...], list[Json], dict[str, str]] = ((), [], {})

    def build(self, request: ModelRequest) -> tuple[ConverseRequest, Mapping[str, str]]:
        """Return the request and our names of its tools; earlier messages come from the cache."""
        # Newer models bind their reasoning to the context before it, and Converse does not accept
        # the field that allows dropping it when the context changed: it is not replayed.
        replays = self._claude is None or not self._claude.binds
        turns = self._turns.build(request.messages, reasoning=replays)
        fields = self._fields(request, turns)
        tools, names = self._offer(request, turns)
        marker = _marker(self._claude, request.params)
        converse = ConverseRequest(
            request.model, request.system, turns, tools, self._rich, marker, fields
        )
        return converse, names

    def _fields(self, request: ModelRequest, turns: list[_Turn]) -> dict[str, Json]:
        """Return every field but messages, system and tools; the caller's params override ours."""
        top, config, own = _sorted(request.params)
        wanted = config.pop("maxTokens", None) or request.max_tokens
        most = self._model.limit_tokens(wanted)
        extra = {**self._thinking(request, turns, most), **own}
        if wanted or has_budget(extra):  # a budget needs an explicit limit
            config["maxTokens"] = most
        sampled = self._claude is None or self._claude.takes_sampling
        if is_thinking(extra) or not sampled:  # the model refuses them
            for name in _SAMPLING:
                config.pop(name, None)
                extra.pop(name, None)
        fields = {"inferenceConfig": config, "additionalModelRequestFields": _without_nulls(extra)}
        return {**{name: value for name, value in fields.items() if value}, **top}

    def _thinking(self, request: ModelRequest, turns: list[_Turn], most: int) -> dict[str, Json]:
        if not self._thinks:
            return {}
        fields = dict(thinking_fields(self._claude, request.thinking, most))
        if has_budget(fields):
            if not opens_with_thought(turns):
                return {}  # the service refuses it while another model's tool calls are open
            if self._claude is not None and self._claude.version >= (4, 0):
                fields["anthropic_beta"] = [INTERLEAVED_BETA]
        elif is_thinking(fields):
            thinking = fields["thinking"].items()
            fields["thinking"] = {k: v for k, v in thinking if k != "block_binding"}
        return fields

    def _offer(
        self, request: ModelRequest, turns: list[_Turn]
    ) -> tuple[list[Json], Mapping[str, str]]:
        if request.tools and self._model.calls_tools:
            if request.tools != self._tools[0]:
                named = wire_names(request.tools)
                ours = {wire: spec.name for wire, spec in named.items()}
                self._tools = (request.tools, tool_schemas(named), ours)
            return self._tools[1:]
        return tool_schemas(gone_tools(called_names(turns))), {}


def _sorted(params: Mapping[str, Json]) -> tuple[dict[str, Json], dict[str, Json], dict[str, Json]]:
    """Split the caller's params into top-level, Converse's and the model's own."""
    top: dict[str, Json] = {}
    config: dict[str, Json] = {}
    own: dict[str, Json] = {}
    for name, value in params.items():
        if name in _CONFIG:
            alone = isinstance(value, str) and _CONFIG[name] == "stopSequences"
            config[_CONFIG[name]] = [value] if alone else value
        elif name in _TOP:
            top[name] = value
        elif name in {"inferenceConfig", "additionalModelRequestFields"}:
            held = config if name == "inferenceConfig" else own
            held.update(value if isinstance(value, Mapping) else {})
        elif name not in _OURS:
            own[name] = value
    return _without_nulls(top), _without_nulls(config), own


def _marker(claude: ClaudeModel | None, params: Mapping[str, Json]) -> dict[str, Json]:
    """Return the cache point for a model that accepts one in every place."""
    retention = params.get("cacheRetention")
    if claude is None or retention == "none":
        return {}
    if claude.version < (3, 7) and claude != ClaudeModel("haiku", (3, 5)):
        return {}
    lasts = retention == "long" and claude.version >= (4, 5)
    return {"type": "default", **({"ttl": "1h"} if lasts else {})}


def _without_nulls(fields: Mapping[str, Json]) -> dict[str, Json]:
    return {name: value for name, value in fields.items() if value is not None}


def _parts(
    reply: ConverseStreamAssembler, names: Mapping[str, str], subject: ErrorContext
) -> tuple[Part, ...]:
    """Return the parts of an answer. Raises the error of an incomplete or refused one."""
    check_end(reply, subject)
    if reply.finish in _BROKEN:
        raise stream_error(subject, _BROKEN[reply.finish])
    if reply.finish in _FILTERED:
        words = f"its filter stopped the answer ({reply.finish})"
        raise error_from_vendor(subject, VendorError(0, words, "content_filter"), midway=True)
    parts = reply.message_parts(names)
    if reply.finish == "model_context_window_exceeded" and not parts:
        raise error_from_vendor(subject, WINDOW_FULL, midway=True)
    return parts


def _event(frame: EventStreamFrame, subject: ErrorContext) -> tuple[str, Mapping[str, Json]]:
    """Decode a frame into its event name and payload. Raises the error that it reports."""
    headers = frame.headers
    kind = headers.get(":message-type", "event")
    if kind == "error":
        code, words = headers.get(":error-code", ""), headers.get(":error-message", "")
        raise error_from_vendor(subject, VendorError(0, words or code, code.lower()), midway=True)
    try:
        held = json.loads(frame.payload.decode()) if frame.payload else {}
    except (ValueError, RecursionError) as exc:
        raise MalformedChunkError(f"{exc} in {frame.payload[:80]!r}") from exc
    if not isinstance(held, dict):
        raise MalformedChunkError(f"{frame.payload[:80]!r} is not an object")
    if kind == "exception":
        raise _exception(headers.get(":exception-type", ""), held, subject)
    return headers.get(":event-type", ""), held


def _exception(name: str, held: Mapping[str, Json], subject: ErrorContext) -> Exception:
    words = held.get("message") or held.get("Message") or held.get("originalMessage") or name
    status = _STATUSES.get(name[:1].lower() + name[1:], 0)
    return error_from_vendor(subject, VendorError(status, str(words), name.lower()), midway=True)
