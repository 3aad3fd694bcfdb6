"""Resolving a model's name to its provider, and the errors when that fails."""

import asyncio
from pathlib import Path

import pytest

from homarus.config.model_refs import ModelRef
from homarus.config.paths import Paths
from homarus.config.schema import Config
from homarus.core.errors import UnknownNameError, UserError
from homarus.core.message import Message, user_message
from homarus.providers import resolution as connecting
from homarus.providers import weights
from homarus.providers.anthropic import AnthropicProvider
from homarus.providers.base import ModelRequest, Provider
from homarus.providers.endpoint import ProviderConnection
from homarus.providers.local import LocalProvider
from homarus.providers.openai import OpenAIProvider
from homarus.providers.registry import api_names
from homarus.providers.resolution import provider_names, resolve_model, resolve_typed_model
from homarus.providers.responses import ResponsesProvider
from tests.unit.providers.builders import first_of

OWN = {"baseUrl": "http://10.0.0.1:8000/v1", "models": [{"id": "big"}, {"id": "small"}]}


def providers(**entries: object) -> Config:
    return Config.model_validate({"models": {"providers": entries}})


def settings_of(provider: Provider) -> ProviderConnection:
    assert isinstance(provider, OpenAIProvider | ResponsesProvider)
    return provider._settings


def test_vendor_reached_with_environment_key() -> None:
    provider, model = first_of("openai/gpt-5.2", env={"OPENAI_API_KEY": " sk-1 "})
    settings = settings_of(provider)
    assert (settings.name, settings.base_url) == ("openai", "https://api.openai.com/v1")
    assert settings.api_key == "sk-1"
    assert (model.ref, model.known) == ("openai/gpt-5.2", True)


def test_configured_key_address_and_headers_win() -> None:
    entry = {
        "baseUrl": "https://proxy.example/v1",
        "apiKey": "mine",
        "headers": {"X-Team": "a"},
        "authHeader": False,
    }
    provider, _ = first_of("openai/gpt-5.2", providers(OpenAI=entry), {"OPENAI_API_KEY": "other"})
    settings = settings_of(provider)
    assert settings.base_url == "https://proxy.example/v1"
    assert settings.api_key == "mine"
    assert settings.headers == {"X-Team": "a"}
    assert not settings.auth_header


def test_missing_key_error_names_variables_and_command() -> None:
    with pytest.raises(UserError) as caught:
        first_of("google/gemini-3-flash-preview")
    assert "google" in caught.value.message
    for place in ("GEMINI_API_KEY", "GOOGLE_API_KEY", "homarus models auth add google"):
        assert place in caught.value.fix


def test_local_server_needs_no_key() -> None:
    provider, model = first_of("ollama/llama3.2:3b")
    assert settings_of(provider).base_url == "http://127.0.0.1:11434/v1"
    assert not model.known


def test_own_server_may_take_key_from_environment() -> None:
    config = providers(**{"my-box": OWN})
    assert settings_of(first_of("my-box/big", config)[0]).api_key == ""
    assert settings_of(first_of("my-box/big", config, {"MY_BOX_API_KEY": "k"})[0]).api_key == "k"


def test_ollama_api_address_gets_v1_suffix() -> None:
    for url in ("http://10.0.0.1:11434", "http://10.0.0.1:11434/", "http://10.0.0.1:11434/v1"):
        config = providers(ollama={"baseUrl": url, "api": "ollama"})
        base_url = settings_of(first_of("ollama/qwen3", config)[0]).base_url
        assert base_url == "http://10.0.0.1:11434/v1"


def test_unknown_model_is_used() -> None:
    _, model = first_of("openai/gpt-99", env={"OPENAI_API_KEY": "k"})
    assert (model.id, model.known) == ("gpt-99", False)


def test_closed_model_list_refuses_others() -> None:
    with pytest.raises(UnknownNameError) as caught:
        first_of("mine/bigg", providers(mine=OWN))
    assert caught.value.nearest == ("big",)
    listed = {"apiKey": "k", "models": [{"id": "ours"}]}
    assert first_of("openai/gpt-99", providers(openai=listed))[1].id == "gpt-99"


def test_unknown_provider_error_names_closest() -> None:
    with pytest.raises(UnknownNameError) as caught:
        first_of("antropic/claude-opus-4-6")
    assert caught.value.nearest[0] == "anthropic"
    with pytest.raises(UnknownNameError) as caught:
        first_of("zzz/model")
    assert "models.providers.zzz" in caught.value.fix


def test_provider_without_address_is_refused() -> None:
    with pytest.raises(UserError) as caught:
        first_of("mine/m", providers(mine={"apiKey": "k"}))
    assert "models.providers.mine.baseUrl" in caught.value.fix


@pytest.mark.parametrize(
    "entry",
    [
        {"baseUrl": "https://x.example", "api": "github-copilot"},
        {"baseUrl": "https://x.example", "models": [{"id": "m", "api": "github-copilot"}]},
    ],
)
def test_unimplemented_api_error_lists_implemented(entry: object) -> None:
    with pytest.raises(UserError) as caught:
        first_of("mine/m", providers(mine=entry))
    assert "not built" in caught.value.message
    assert "openai-completions" in caught.value.fix


def test_api_of_model_wins_over_provider() -> None:
    entry = {
        "baseUrl": "https://x.example",
        "api": "anthropic-messages",
        "models": [{"id": "m", "api": "openai-completions"}, {"id": "n"}],
    }
    assert first_of("mine/m", providers(mine=entry))[0].api == "openai-completions"
    assert first_of("mine/n", providers(mine=entry))[0].api == "anthropic-messages"


def test_anthropic_vendor_uses_messages_api() -> None:
    provider, model = first_of("anthropic/claude-opus-4-6", env={"ANTHROPIC_API_KEY": "sk-ant-1"})
    assert isinstance(provider, AnthropicProvider)
    settings = provider._settings
    assert (settings.base_url, settings.api_key) == ("https://api.anthropic.com", "sk-ant-1")
    assert (provider.api, model.known) == ("anthropic-messages", True)
    proxied = providers(anthropic={"baseUrl": "http://proxy:1", "api": "openai-completions"})
    assert first_of("anthropic/claude-opus-4-6", proxied)[0].api == "openai-completions"


@pytest.mark.parametrize(
    ("entry", "api"),
    [
        ({}, "openai-responses"),
        ({"baseUrl": "https://eu.api.openai.com/v1"}, "openai-responses"),
        ({"baseUrl": "https://proxy.example/v1"}, "openai-completions"),
        ({"baseUrl": "https://openai.com.example/v1"}, "openai-completions"),
        ({"baseUrl": "https://proxy.example/v1", "api": "openai-responses"}, "openai-responses"),
        ({"api": "openai-completions"}, "openai-completions"),
        ({"models": [{"id": "gpt-5.2", "api": "openai-completions"}]}, "openai-completions"),
    ],
)
def test_openai_uses_responses_and_stand_ins_use_chat(entry: object, api: str) -> None:
    provider, _ = first_of("openai/gpt-5.2", providers(openai=entry), {"OPENAI_API_KEY": "k"})
    assert provider.api == api


def test_every_listed_api_is_served() -> None:
    for api in api_names():
        entry = {"baseUrl": "http://h", "api": api}
        provider, _ = first_of("mine/m", providers(mine=entry))
        assert provider.api == ("openai-completions" if api == "ollama" else api)


def test_auth_header_left_to_wire_unless_configured() -> None:
    for told, sent in (({}, None), ({"authHeader": True}, True), ({"authHeader": False}, False)):
        entry = {"baseUrl": "http://h", "apiKey": "k", "api": "anthropic-messages", **told}
        provider, _ = first_of("mine/m", providers(mine=entry))
        assert isinstance(provider, AnthropicProvider)
        assert provider._settings.auth_header is sent


def test_replace_mode_hides_unconfigured_vendors() -> None:
    config = Config.model_validate({"models": {"mode": "replace", "providers": {"mine": OWN}}})
    with pytest.raises(UnknownNameError):
        first_of("openai/gpt-5.2", config, {"OPENAI_API_KEY": "k"})
    assert provider_names(config) == ("mine", "local")


def test_resolve_model_accepts_aliases_and_bare_names() -> None:
    listed = {"agents": {"defaults": {"models": {"groq/x": {"alias": "Fast"}}}}}
    config = Config.model_validate(listed)
    assert resolve_model(config, "fast") == ModelRef("groq", "x")
    assert resolve_model(config, "gpt-5.2") == ModelRef("openai", "gpt-5.2")
    assert resolve_model(config, "demo") == ModelRef("local", "demo")
    assert resolve_model(config, "claude-next") == ModelRef("anthropic", "claude-next")
    assert resolve_model(config, "openrouter/a/b") == ModelRef("openrouter", "a/b")


def test_typed_bare_name_means_the_only_provider_that_lists_it() -> None:
    entries = {"Mine": OWN, "other": {"models": [{"id": "big"}, {"id": "gpt-5.2"}]}}
    config = providers(**entries)
    assert resolve_typed_model(config, " small ") == ModelRef("mine", "small")
    assert resolve_typed_model(config, "gpt-5.2") == ModelRef("other", "gpt-5.2")
    with pytest.raises(UserError, match="2 providers list big") as caught:
        resolve_typed_model(config, "big")
    assert caught.value.fix == "write mine/big or other/big"
    assert resolve_model(config, "small") == ModelRef("anthropic", "small")  # as in OpenClaw


@pytest.mark.parametrize(
    ("name", "ref"),
    [
        ("fast", ModelRef("groq", "x")),
        ("gpt-5.2", ModelRef("openai", "gpt-5.2")),
        ("opus-4.6", ModelRef("anthropic", "claude-opus-4-6")),
        ("claude-next", ModelRef("anthropic", "claude-next")),
        ("mine/other", ModelRef("mine", "other")),
    ],
)
def test_typed_name_of_a_known_model_resolves(name: str, ref: ModelRef) -> None:
    listed = {"agents": {"defaults": {"models": {"groq/x": {"alias": "Fast"}}}}}
    assert resolve_typed_model(Config.model_validate(listed), name, ["claude-next"]) == ref


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("smal", "mine/small"),
        ("claude-opus-4-66", "claude-opus-4-6"),
        ("zzz", "write provider/model"),
    ],
)
def test_typed_unknown_bare_name_error_names_closest(name: str, fix: str) -> None:
    with pytest.raises(UnknownNameError, match=f"unknown model '{name}'") as caught:
        resolve_typed_model(providers(mine=OWN), name)
    assert fix in caught.value.fix


@pytest.mark.parametrize("text", ["", " ", "/", "openai/", "/gpt"])
def test_resolve_model_incomplete_name_raises(text: str) -> None:
    with pytest.raises(UserError, match="is not a model"):
        resolve_model(Config(), text)


@pytest.mark.parametrize("has_extra", [True, False])
def test_missing_demo_model_error_names_onboard_then_pull(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, has_extra: bool
) -> None:
    found = object() if has_extra else None
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: found)
    with pytest.raises(UserError) as caught:
        first_of("local/demo", home=tmp_path)
    fix = caught.value.fix
    assert fix.startswith("homarus onboard ") and fix.endswith("homarus models pull demo")
    assert ("install 'homarus[local]', then homarus models pull" in fix) is not has_extra


def test_local_file_opened_by_path(tmp_path: Path) -> None:
    file = tmp_path / "Mine.gguf"
    file.write_bytes(b"GGUF")
    told = providers(local={"models": [{"id": str(file), "contextWindow": 9000, "maxTokens": 99}]})
    for ref, config in ((f"local/{file}", Config()), (f"local/{file}", told)):
        provider, model = first_of(ref, config, home=tmp_path)
        assert isinstance(provider, LocalProvider)
        assert provider._settings.path == file
        assert model.ref == f"local/{file}"
        assert not model.calls_tools
        asyncio.run(provider.close())
    assert (model.window, model.max_tokens) == (9000, 99)
    provider, _ = first_of("local/~/Mine.gguf", home=tmp_path)
    assert isinstance(provider, LocalProvider)
    assert provider._settings.path == file
    asyncio.run(provider.close())


@pytest.mark.parametrize("name", ["mine.gguf", "../mine.gguf", "Demo2"])
def test_local_model_must_be_demo_or_full_path(name: str) -> None:
    with pytest.raises(UnknownNameError) as caught:
        first_of(f"local/{name}")
    assert "local/demo" in caught.value.fix


@pytest.mark.model
def test_demo_model_connects_and_answers(demo_weights: Path, tmp_path: Path) -> None:
    cache = Paths.find({}, tmp_path).models_cache
    cache.mkdir(parents=True)
    (cache / weights.DEMO.file).symlink_to(demo_weights)

    provider, model = first_of("local/demo", home=tmp_path)
    assert isinstance(provider, LocalProvider)
    assert provider._settings.prompt_tokens == connecting.DEMO_PROMPT_TOKENS

    async def main() -> Message:
        try:
            stream = provider.stream(
                ModelRequest(model.id, "", (user_message("Hi"),), max_tokens=4)
            )
            items = [item async for item in stream]
        finally:
            await provider.close()
        assert isinstance(items[-1], Message)
        return items[-1]

    assert asyncio.run(main()).text
