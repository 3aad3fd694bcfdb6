"""The catalogue of models, and how the config overrides it."""

from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homarus.config.model_refs import ModelRef, parse_model_ref
from homarus.config.schema import Config
from homarus.providers import catalog
from homarus.providers.catalog import MODELS, VENDORS, Price, known_models, lookup_model, vendors


def config(**providers: object) -> Config:
    return Config.model_validate({"models": {"providers": providers}})


EMPTY = config()


@pytest.mark.parametrize("vendor", VENDORS.values(), ids=VENDORS)
def test_vendor_with_key_has_known_default_model(vendor: catalog.Vendor) -> None:
    url = urlsplit(vendor.base_url)
    if vendor.is_own_server:
        assert (url.scheme, url.hostname, vendor.default) == ("http", "127.0.0.1", "")
    else:
        assert url.scheme == ("" if vendor.is_cloud else "https")
        assert lookup_model(EMPTY, ModelRef(vendor.id, vendor.default)).known
    assert not vendor.base_url.endswith("/")


@pytest.mark.parametrize("model", MODELS.values(), ids=str)
def test_table_rows_are_plausible(model: catalog.ModelInfo) -> None:
    assert model.provider in VENDORS or model.provider == catalog.LOCAL
    assert 0 < model.max_tokens < model.window
    assert model.price.cache_read <= model.price.input <= model.price.output
    assert model.known
    assert parse_model_ref(model.ref, "") == ModelRef(model.provider, model.id)


def test_openclaw_default_models_are_listed() -> None:
    for ref in ("anthropic/claude-opus-4-6", "openai/gpt-5.2", "google/gemini-3-pro-preview"):
        assert lookup_model(EMPTY, ModelRef(*ref.split("/", 1))).known


@given(st.text(min_size=1), st.text(min_size=1))
def test_lookup_unknown_model_returns_guess_with_note(provider: str, model: str) -> None:
    found = lookup_model(EMPTY, ModelRef(provider, model))
    assert found.provider == provider
    if (provider, model) not in MODELS:
        assert found.window == catalog.UNKNOWN_WINDOW
        assert not found.known


def test_lookup_local_server_model_gets_small_window() -> None:
    assert lookup_model(EMPTY, ModelRef("ollama", "llama3.2")).window == catalog.OWN_SERVER_WINDOW


def test_lookup_demo_model_has_no_tools_and_a_note() -> None:
    model = lookup_model(EMPTY, ModelRef("local", "demo"))
    assert not model.calls_tools
    assert "demo model" in model.note
    assert "homarus models set" in model.note
    own = lookup_model(EMPTY, ModelRef("local", "/models/mine.gguf"))
    assert (own.calls_tools, own.note, own.ref) == (False, "", "local//models/mine.gguf")


def test_lookup_openrouter_auto_by_either_name() -> None:
    for name in ("auto", "openrouter/auto"):
        assert lookup_model(EMPTY, ModelRef("openrouter", name)).id == "openrouter/auto"


def test_lookup_configured_fields_override_table() -> None:
    told = {"id": "gpt-5.2", "contextWindow": 1000, "cost": {"input": 9}, "name": "Ours"}
    model = lookup_model(config(openai={"models": [told]}), ModelRef("openai", "gpt-5.2"))
    assert (model.name, model.window, model.price) == ("Ours", 1000, Price(input=9))
    assert (model.max_tokens, model.reasoning, model.sees_images) == (128_000, True, True)


def test_lookup_configured_model_has_headers_and_compat() -> None:
    told = {
        "id": "m",
        "input": ["text", "image"],
        "reasoning": True,
        "maxTokens": 77,
        "headers": {"X-Team": "a"},
        "compat": {"supportsStore": False, "maxTokensField": "max_tokens"},
    }
    model = lookup_model(
        config(mine={"baseUrl": "http://x/v1", "models": [told]}), ModelRef("mine", "m")
    )
    assert model.sees_images
    assert model.reasoning
    assert model.max_tokens == 77
    assert model.headers == {"X-Team": "a"}
    assert model.compat == {"supportsStore": False, "maxTokensField": "max_tokens"}
    assert not model.known  # nobody said how much it holds


def test_provider_entry_found_by_any_spelling() -> None:
    told = config(MyServer={"models": [{"id": "m", "contextWindow": 5000}]})
    assert lookup_model(told, ModelRef("myserver", "m")).window == 5000


def test_known_models_lists_configured_first_and_once() -> None:
    told = config(openai={"models": [{"id": "ours"}, {"id": "gpt-4o"}]})
    ids = [model.id for model in known_models(told, "openai")]
    assert ids[:2] == ["ours", "gpt-4o"]
    assert len(ids) == len(set(ids))
    assert "gpt-5.2" in ids
    assert known_models(told, "nobody") == []


def test_vendors_replace_mode_keeps_only_configured() -> None:
    told = Config.model_validate(
        {"models": {"mode": "replace", "providers": {"openai": {"apiKey": "k"}}}}
    )
    assert list(vendors(told)) == ["openai"]
    assert vendors(EMPTY) is VENDORS


def test_vendor_key_is_first_nonempty_variable() -> None:
    google = VENDORS["google"]
    assert google.key_in({"GOOGLE_API_KEY": "b", "GEMINI_API_KEY": " "}) == ("GOOGLE_API_KEY", "b")
    assert google.key_in({"GOOGLE_API_KEY": "b", "GEMINI_API_KEY": "a"}) == ("GEMINI_API_KEY", "a")
    assert google.key_in({}) == ("", "")
