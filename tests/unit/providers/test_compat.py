"""The flags of services that speak the chat dialect."""

import pytest

from homarus.providers.compat import Compat, compat_of


def test_openai_itself_gets_everything_and_a_stranger_the_plain_dialect() -> None:
    own = compat_of("https://api.openai.com/v1")
    assert own.developer_role
    assert own.store
    assert own.max_tokens_field == "max_completion_tokens"
    assert compat_of("http://127.0.0.1:11434/v1") == Compat()
    assert not Compat().developer_role


@pytest.mark.parametrize(
    "url", ["https://api.openai.com.evil.example/v1", "https://notopenai.com", "http://[bad", ""]
)
def test_a_name_that_only_looks_like_it_is_a_stranger(url: str) -> None:
    assert compat_of(url) == Compat()


def test_the_model_wins_over_the_provider_and_both_over_the_address() -> None:
    provider = {"supportsStore": False, "maxTokensField": "max_tokens", "unknown": 1}
    model = {"maxTokensField": "max_completion_tokens", "requiresMistralToolIds": True}
    compat = compat_of("https://api.openai.com/v1", provider, model)
    assert compat.developer_role
    assert not compat.store
    assert compat.max_tokens_field == "max_completion_tokens"
    assert compat.mistral_tool_ids


def test_a_value_of_the_wrong_kind_is_passed_over() -> None:
    assert compat_of("", {"supportsStore": "yes", "maxTokensField": None}) == Compat()
