"""The flags of services with a chat completions API."""

import pytest

from homarus.providers.compat import ChatCompat, resolve_compat


def test_openai_host_gets_full_flags_and_others_plain() -> None:
    own = resolve_compat("https://api.openai.com/v1")
    assert own.developer_role
    assert own.store
    assert own.max_tokens_field == "max_completion_tokens"
    assert resolve_compat("http://127.0.0.1:11434/v1") == ChatCompat()
    assert not ChatCompat().developer_role


@pytest.mark.parametrize(
    "url", ["https://api.openai.com.evil.example/v1", "https://notopenai.com", "http://[bad", ""]
)
def test_lookalike_host_gets_plain_flags(url: str) -> None:
    assert resolve_compat(url) == ChatCompat()


def test_overrides_of_model_win_over_provider_and_address() -> None:
    provider = {"supportsStore": False, "maxTokensField": "max_tokens", "unknown": 1}
    model = {"maxTokensField": "max_completion_tokens", "requiresMistralToolIds": True}
    compat = resolve_compat("https://api.openai.com/v1", provider, model)
    assert compat.developer_role
    assert not compat.store
    assert compat.max_tokens_field == "max_completion_tokens"
    assert compat.mistral_tool_ids


def test_override_of_wrong_type_is_ignored() -> None:
    assert resolve_compat("", {"supportsStore": "yes", "maxTokensField": None}) == ChatCompat()
