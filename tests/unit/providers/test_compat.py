"""The flags of services with a chat completions API."""

import pytest

from homarus.providers.compat import Compat, compat_of


def test_openai_host_gets_full_flags_and_others_plain() -> None:
    own = compat_of("https://api.openai.com/v1")
    assert own.developer_role
    assert own.store
    assert own.max_tokens_field == "max_completion_tokens"
    assert compat_of("http://127.0.0.1:11434/v1") == Compat()
    assert not Compat().developer_role


@pytest.mark.parametrize(
    "url", ["https://api.openai.com.evil.example/v1", "https://notopenai.com", "http://[bad", ""]
)
def test_lookalike_host_gets_plain_flags(url: str) -> None:
    assert compat_of(url) == Compat()


def test_overrides_of_model_win_over_provider_and_address() -> None:
    provider = {"supportsStore": False, "maxTokensField": "max_tokens", "unknown": 1}
    model = {"maxTokensField": "max_completion_tokens", "requiresMistralToolIds": True}
    compat = compat_of("https://api.openai.com/v1", provider, model)
    assert compat.developer_role
    assert not compat.store
    assert compat.max_tokens_field == "max_completion_tokens"
    assert compat.mistral_tool_ids


def test_override_of_wrong_type_is_ignored() -> None:
    assert compat_of("", {"supportsStore": "yes", "maxTokensField": None}) == Compat()
