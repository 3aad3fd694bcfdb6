"""The provider for Anthropic's messages API and services compatible with it.

`create` makes a Provider from a `ProviderConnection`. `models` holds what is known of each model;
other models get a plain request. The parts of a request that do not change from turn to turn
(tools, system, all but the newest messages) carry cache markers.
"""

from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import urlsplit

from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json, Part
from homarus.providers.anthropic_blocks import (
    AnthropicTurn,
    called_names,
    gone_tools,
    opens_with_thought,
    wire_names,
)
from homarus.providers.anthropic_request import (
    API,
    AnthropicMessageRenderer,
    tool_list,
    turn_json,
    with_cache_marker,
)
from homarus.providers.anthropic_stream import AnthropicStreamAssembler
from homarus.providers.anthropic_thinking import (
    BINDING_BETA,
    INTERLEAVED_BETA,
    has_budget,
    is_thinking,
    parse_claude_model,
    thinking_fields,
)
from homarus.providers.base import Delta, ModelRequest, ToolSpec
from homarus.providers.catalog import ModelInfo
from homarus.providers.chat_stream import parse_object
from homarus.providers.conversation import encode_json
from homarus.providers.endpoint import ProviderConnection
from homarus.providers.http_provider import WINDOW_FULL, SseCall, SseProvider, check_end
from homarus.providers.provider_errors import (
    ErrorContext,
    VendorError,
    error_from_vendor,
    problem_in,
)

__all__ = ["API", "AnthropicProvider", "ProviderConnection", "create"]

APIS = ("anthropic-messages",)
VERSION = "2023-06-01"
OAUTH_BETA = "oauth-2025-04-20"
OAUTH_KEY = "sk-ant-oat"  # the prefix of a subscription's OAuth token; API keys have another one
MARKED_TURNS = 2  # together with tools and system these are the four markers the vendor allows
# Cache markers by their names in OpenClaw's config.
_MARKERS = {
    "short": b'{"type":"ephemeral"}',
    "long": b'{"type":"ephemeral","ttl":"1h"}',
    "none": b"",
}
_RETENTION = "cacheRetention"
_SAMPLING = ("temperature", "top_k", "top_p")


class AnthropicProvider(SseProvider["_AnthropicRequestBuilder", AnthropicStreamAssembler]):
    """A service that implements the messages API."""

    api = API

    @property
    def _is_token(self) -> bool:
        return self._settings.api_key.strip().startswith(OAUTH_KEY)

    @property
    def _key_header(self) -> str:
        return "Authorization" if self._is_token else "x-api-key"

    def _make_builder(self, model: ModelInfo) -> "_AnthropicRequestBuilder":
        return _AnthropicRequestBuilder(model, self.name)

    async def _prepare(
        self, request: ModelRequest, model: ModelInfo, subject: ErrorContext
    ) -> SseCall[AnthropicStreamAssembler]:
        built = self._builder(model).build(request)
        path, headers = await self._locate(model, built.betas, subject)
        return SseCall(path, built.body, headers, AnthropicStreamAssembler(), built.names)

    async def _locate(
        self, model: ModelInfo, betas: Sequence[str], subject: ErrorContext
    ) -> tuple[str, Mapping[str, str]]:
        """Return the path and the headers of a request."""
        path = "/messages" if _ends_in_v1(self._settings.base_url) else "/v1/messages"
        return path, self._headers(model, betas)

    def _headers(self, model: ModelInfo, betas: Sequence[str]) -> dict[str, str]:
        """Return the model's headers; configured betas are added to ours."""
        headers = {"anthropic-version": VERSION}
        wanted = [OAUTH_BETA] if self._is_token else []
        for name, value in (*self._settings.headers.items(), *model.headers.items()):
            if name.lower() == "anthropic-beta":
                wanted += [beta.strip() for beta in value.split(",")]
            else:
                headers = {k: v for k, v in headers.items() if k.lower() != name.lower()}
                headers[name] = value
        if joined := ",".join(dict.fromkeys(filter(None, (*wanted, *betas)))):
            headers["anthropic-beta"] = joined
        return headers

    def _read(
        self, data: str, reply: AnthropicStreamAssembler, subject: ErrorContext
    ) -> Iterable[Delta]:
        event = parse_object(data)
        if event.get("type") == "error" or event.get("error"):
            raise error_from_vendor(subject, problem_in(event), midway=True)
        return reply.add(event)

    def _parts(
        self, call: SseCall[AnthropicStreamAssembler], subject: ErrorContext
    ) -> tuple[Part, ...]:
        reply = call.reply
        check_end(reply, subject)
        parts = reply.message_parts(call.names)
        if reply.finish == "refusal":
            words = reply.refusal or "its filter stopped the answer"
            raise error_from_vendor(subject, VendorError(0, words, "content_filter"), midway=True)
        if reply.finish == "model_context_window_exceeded" and not parts:
            raise error_from_vendor(subject, WINDOW_FULL, midway=True)
        return parts


create = AnthropicProvider


@dataclass(frozen=True, slots=True)
class _PreparedRequest:
    """An encoded request. `names` maps tool names on the wire to ours."""

    body: bytes
    betas: tuple[str, ...]
    names: Mapping[str, str]


class _AnthropicRequestBuilder:
    def __init__(self, model: ModelInfo, provider: str) -> None:
        self._model = model
        self._claude = parse_claude_model(model.id)
        self._thinks = model.reasoning or (not model.known and self._claude is not None)
        self._turns = AnthropicMessageRenderer(
            provider=provider,
            model=model.id,
            sees_images=model.sees_images or not model.known,
            unsigned=self._claude is None,
        )
        self._tools: tuple[tuple[ToolSpec, ...], bytes, bytes, dict[str, str]] = ((), b"", b"", {})

    def build(self, request: ModelRequest) -> _PreparedRequest:
        fields = self._fields(request)
        bound = self._claude is not None and self._claude.binds
        turns = self._turns.render(request.messages, reasoning=is_thinking(fields) or not bound)
        if has_budget(fields) and not opens_with_thought(turns):
            # The service refuses it while another model's tool calls are open.
            del fields["thinking"]
        marker = self._marker(request.params)
        tools, names = self._offer(request, fields, turns, marker)
        pieces = [encode_json(fields)[:-1], tools, b',"messages":[', _joined(turns, marker), b"]"]
        if request.system.strip():
            system = encode_json({"type": "text", "text": request.system})
            pieces += [
                b',"system":[',
                with_cache_marker(system, marker) if marker else system,
                b"]",
            ]
        return _PreparedRequest(b"".join((*pieces, b"}")), self._betas(fields), names)

    def _fields(self, request: ModelRequest) -> dict[str, Json]:
        """Return every field but system, messages and tools; the caller's params override ours."""
        ours = {"messages", "system", _RETENTION}
        params = {k: v for k, v in request.params.items() if k not in ours}
        if stop := params.pop("stop", None):  # the name that other wires have for it
            params.setdefault("stop_sequences", [stop] if isinstance(stop, str) else stop)
        max_tokens = self._model.limit_tokens(params.pop("max_tokens", None) or request.max_tokens)
        level = request.thinking if self._thinks else "off"
        fields: dict[str, Json] = {
            "model": request.model,
            "max_tokens": max_tokens,
            "stream": True,
            **thinking_fields(self._claude, level, max_tokens),
            **params,
        }
        if is_thinking(fields) or not (self._claude is None or self._claude.takes_sampling):
            for name in _SAMPLING:  # a thinking model refuses them
                fields.pop(name, None)
        return {name: value for name, value in fields.items() if value is not None}

    def _marker(self, params: Mapping[str, Json]) -> bytes:
        if "cache_control" in params:  # the caller sets its own markers
            return b""
        return _MARKERS.get(str(params.get(_RETENTION)), _MARKERS["short"])

    def _betas(self, fields: Mapping[str, Json]) -> tuple[str, ...]:
        thinking = fields.get("thinking")
        if self._claude is None or not isinstance(thinking, dict):
            return ()
        if "block_binding" in thinking:
            return (BINDING_BETA,)
        return (INTERLEAVED_BETA,) if has_budget(fields) and self._claude.version >= (4, 0) else ()

    def _offer(
        self,
        request: ModelRequest,
        fields: dict[str, Json],
        turns: Sequence[AnthropicTurn[bytes]],
        marker: bytes,
    ) -> tuple[bytes, Mapping[str, str]]:
        """Return the tools as a field of the request, and our names of them."""
        if "tools" in fields:
            return b"", {}
        if request.tools and self._model.calls_tools:
            if (request.tools, marker) != self._tools[:2]:
                named = wire_names(request.tools)
                ours = {wire: spec.name for wire, spec in named.items()}
                self._tools = (request.tools, marker, tool_list(named, marker), ours)
            return b',"tools":' + self._tools[2], self._tools[3]
        fields.pop("tool_choice", None)
        if gone := called_names(turns):
            fields["tool_choice"] = {"type": "none"}
            return b',"tools":' + tool_list(gone_tools(gone)), {}
        return b"", {}


def _joined(turns: Sequence[AnthropicTurn[bytes]], marker: bytes) -> bytes:
    """Return the turns as JSON; markers end the last two turns of the user."""
    users = [index for index, turn in enumerate(turns) if turn.role == "user"]
    ends = frozenset(users[-MARKED_TURNS:])
    return b",".join(
        turn_json(turn, marker if index in ends else b"") for index, turn in enumerate(turns)
    )


def _ends_in_v1(base_url: str) -> bool:
    try:
        return urlsplit(base_url).path.rstrip("/").endswith("/v1")
    except ValueError:  # not a URL; the request will raise an error
        return False
