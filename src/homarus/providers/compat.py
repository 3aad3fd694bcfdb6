"""The differences between services with a chat completions API, as flags.

Flags that the config does not set (`compat` of a provider or model) follow from the address:
OpenAI's servers get everything, a few well-known services what they need, and all others the subset
that every service accepts.
"""

from collections.abc import Mapping
from dataclasses import fields, replace
from urllib.parse import urlsplit

from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json


@dataclass(frozen=True, slots=True)
class ChatCompat:
    """The flags of one service."""

    developer_role: bool = False
    store: bool = False
    reasoning_effort: bool = True
    usage_in_streaming: bool = True
    max_tokens_field: str = "max_tokens"
    thinking_format: str = "openai"  # or zai, qwen
    tool_result_name: bool = False
    assistant_after_tool_result: bool = False
    thinking_as_text: bool = False
    mistral_tool_ids: bool = False
    strict: bool | None = None  # accepts `strict` in a tool; None: unknown
    unsigned_calls: bool = False  # Gemini 3 requires a signature on each call; this waives it


_KEYS = {
    "supportsDeveloperRole": "developer_role",
    "supportsStore": "store",
    "supportsReasoningEffort": "reasoning_effort",
    "supportsUsageInStreaming": "usage_in_streaming",
    "maxTokensField": "max_tokens_field",
    "thinkingFormat": "thinking_format",
    "requiresToolResultName": "tool_result_name",
    "requiresAssistantAfterToolResult": "assistant_after_tool_result",
    "requiresThinkingAsText": "thinking_as_text",
    "requiresMistralToolIds": "mistral_tool_ids",
    "supportsStrictMode": "strict",
}

_PLAIN = ChatCompat()
_BY_DOMAIN = {
    "openai.com": ChatCompat(
        developer_role=True, store=True, max_tokens_field="max_completion_tokens"
    ),
    "openai.azure.com": ChatCompat(
        developer_role=True, store=True, max_tokens_field="max_completion_tokens"
    ),
    "mistral.ai": ChatCompat(
        reasoning_effort=False, tool_result_name=True, thinking_as_text=True, mistral_tool_ids=True
    ),
    "googleapis.com": ChatCompat(tool_result_name=True, unsigned_calls=True),
    "x.ai": ChatCompat(reasoning_effort=False),
    "z.ai": ChatCompat(reasoning_effort=False, thinking_format="zai"),
}


def resolve_compat(base_url: str, *overrides: Mapping[str, Json]) -> ChatCompat:
    """Return the flags for an address; a later override wins."""
    compat = _by_address(base_url)
    for override in overrides:
        known = {_KEYS[key]: value for key, value in override.items() if key in _KEYS}
        compat = replace(compat, **{k: v for k, v in known.items() if _fits(k, v)})
    return compat


def is_openais_own(base_url: str) -> bool:
    """Return whether the address is OpenAI's own."""
    host = _host(base_url)
    return host == "openai.com" or host.endswith(".openai.com")


def _host(base_url: str) -> str:
    try:
        return (urlsplit(base_url).hostname or "").lower()
    except ValueError:  # not a URL; the request will raise an error
        return ""


def _by_address(base_url: str) -> ChatCompat:
    host = _host(base_url)
    for domain, compat in _BY_DOMAIN.items():
        if host == domain or host.endswith("." + domain):
            return compat
    return _PLAIN


_TYPES = {
    field.name: bool if field.default is None else type(field.default)
    for field in fields(ChatCompat)
}


def _fits(name: str, value: Json) -> bool:
    return isinstance(value, _TYPES[name])
