import json
from pathlib import Path
from typing import Any

import pytest

from homarus.config.paths import Paths
from homarus.config.schema import Config
from homarus.core.errors import (
    AuthError,
    BadRequestError,
    ContentFilterError,
    ContextOverflowError,
    RateLimitError,
    UserError,
)
from homarus.providers.base import NOT_TRIED, AttemptRetried, ModelRequest
from homarus.providers.fallback import FallbackProvider
from homarus.providers.model_router import ModelRouter, ModelSelection
from homarus.testing.clock import FakeClock

SERVER = {"baseUrl": "http://127.0.0.1:9/v1", "models": [{"id": "m"}]}


def make(tmp_path: Path, config: dict[str, Any], **env: str) -> ModelRouter:
    paths = Paths.find({"HOME": str(tmp_path)})
    return ModelRouter(Config.model_validate(config), env, paths, FakeClock(patient=False))


async def ways(models: ModelRouter, wish: ModelSelection) -> list[tuple[str, str]]:
    provider, model = await models.connect(wish)
    assert isinstance(provider, FallbackProvider)
    found = [(way.model.ref, way.credential) for way in provider._ways]
    assert found[0][0] == model.ref
    return found


def configured(primary: str = "a/m", **defaults: Any) -> dict[str, Any]:
    return {
        "models": {"providers": dict.fromkeys(("a", "b", "c"), SERVER)},
        "agents": {"defaults": {"model": {"primary": primary}, **defaults}},
    }


async def test_connect_tries_selected_fallbacks_then_primary_once(tmp_path: Path) -> None:
    models = make(tmp_path, configured("a/m"))
    assert await ways(models, ModelSelection("main", "b/m", ("c/m", "b/m"))) == [
        ("b/m", ""),
        ("c/m", ""),
        ("a/m", ""),
    ]


async def test_connect_each_credential_is_a_target(tmp_path: Path) -> None:
    config = configured("openai/gpt-5.2")
    config["models"]["providers"]["openai"] = {"apiKey": "sk-config"}
    models = make(tmp_path, config, OPENAI_API_KEY="sk-env")
    assert await ways(models, ModelSelection("main")) == [
        ("openai/gpt-5.2", "config:openai"),
        ("openai/gpt-5.2", "env:OPENAI_API_KEY"),
    ]


async def test_connect_cooling_credential_used_last(tmp_path: Path) -> None:
    models = make(tmp_path, configured("openai/gpt-5.2"), OPENAI_API_KEY="sk-env")
    (candidate,) = models.credentials("main").candidates("openai", model="gpt-5.2")
    models.credentials("main").record_result(candidate, RateLimitError("slow", after_s=600))
    assert await ways(models, ModelSelection("main", None, ("a/m",))) == [("a/m", "")]
    assert await ways(models, ModelSelection("main")) == [("openai/gpt-5.2", "env:OPENAI_API_KEY")]


def test_connect_bad_request_never_cools_credential(tmp_path: Path) -> None:
    models = make(tmp_path, configured("openai/gpt-5.2"), OPENAI_API_KEY="sk-env")
    credentials = models.credentials("main")
    (candidate,) = credentials.candidates("openai")
    for harmless in (
        BadRequestError("x", status=400),
        ContextOverflowError("x"),
        ContentFilterError("x"),
    ):
        credentials.record_result(candidate, harmless)
    assert not credentials.candidates("openai")[0].cooldown_until_ms
    credentials.record_result(candidate, AuthError("x"))
    assert credentials.candidates("openai")[0].cooldown_until_ms


async def test_connect_allowed_models_limit_selection(tmp_path: Path) -> None:
    models = make(tmp_path, configured("a/m", models={"b/m": {}}))
    assert await ways(models, ModelSelection("main", "b/m", ("c/m",))) == [("b/m", ""), ("a/m", "")]
    with pytest.raises(UserError, match="not among the allowed") as refused:
        await ways(models, ModelSelection("main", "c/m"))
    assert "b/m" in refused.value.fix
    with pytest.raises(UserError):
        models.check("c/m")


async def test_connect_without_key_raises_user_error(tmp_path: Path) -> None:
    with pytest.raises(UserError) as missing:
        await ways(make(tmp_path, configured("openai/gpt-5.2")), ModelSelection("main"))
    assert "OPENAI_API_KEY" in missing.value.fix


async def test_connect_missing_weights_reported_unless_fallback(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="demo model"):
        await ways(make(tmp_path, {}), ModelSelection("main", "local/demo"))
    models = make(tmp_path, configured("a/m"))
    assert await ways(models, ModelSelection("main", None, ("local/demo",))) == [("a/m", "")]


async def test_connect_pinned_credential_is_the_only_target(tmp_path: Path) -> None:
    config = configured("openai/gpt-5.2")
    config["models"]["providers"]["openai"] = {"apiKey": "sk-config"}
    models = make(tmp_path, config, OPENAI_API_KEY="sk-env")
    pinned = ModelSelection("main", profile="env:OPENAI_API_KEY", locked=True)
    assert await ways(models, pinned) == [("openai/gpt-5.2", "env:OPENAI_API_KEY")]
    preferred = ModelSelection("main", profile="env:OPENAI_API_KEY")
    assert (await ways(models, preferred))[0] == ("openai/gpt-5.2", "env:OPENAI_API_KEY")


async def test_default_model_follows_stored_credential(tmp_path: Path) -> None:
    file = Paths.find({"HOME": str(tmp_path)}).agent_dir("main") / "auth-profiles.json"
    file.parent.mkdir(parents=True)
    profile = {"type": "api_key", "provider": "anthropic", "key": "sk-ant-x"}
    file.write_text(json.dumps({"version": 1, "profiles": {"anthropic:default": profile}}))
    file.chmod(0o600)
    models = make(tmp_path, {}, OPENAI_API_KEY="sk-env")
    choice = await models.default_model()
    assert choice.ref.startswith("anthropic/") and "anthropic:default" in choice.why
    assert (await ways(models, ModelSelection("main")))[0][1] == "anthropic:default"


async def test_default_model_is_exempt_from_allowed_models(tmp_path: Path) -> None:
    config = {"agents": {"defaults": {"models": {"groq/some": {"alias": "fast"}}}}}
    models = make(tmp_path, config, OPENAI_API_KEY="k")
    assert (await ways(models, ModelSelection("main")))[0][0].startswith("openai/")


async def test_connect_exact_model_is_tried_alone(tmp_path: Path) -> None:
    models = make(tmp_path, configured("a/m"))
    assert await ways(models, ModelSelection("main", "b/m", ("c/m",), exact=True)) == [("b/m", "")]
    assert len(await ways(models, ModelSelection("main", "b/m", ("c/m",)))) == 3


async def test_connect_exact_model_without_key_is_an_error(tmp_path: Path) -> None:
    models = make(tmp_path, configured("a/m"))
    with pytest.raises(UserError, match="no credential for openai"):
        await models.connect(ModelSelection("main", "openai/gpt-5.2", exact=True))


async def test_connect_reports_models_that_are_skipped(tmp_path: Path) -> None:
    config = configured("openai/gpt-5.2")
    models = make(tmp_path, config)
    provider, model = await models.connect(ModelSelection("main", "openai/gpt-5.2", ("a/m",)))
    assert model.ref == "a/m"
    stream = provider.stream(ModelRequest("m", "", ()))
    skipped = await anext(aiter(stream))
    assert isinstance(skipped, AttemptRetried)
    assert (skipped.provider, skipped.reason, skipped.then) == ("openai", NOT_TRIED, "a/m")
    assert "no credential for openai" in skipped.error


async def test_connect_reports_model_in_cooldown(tmp_path: Path) -> None:
    config = configured("openai/gpt-5.2")
    models = make(tmp_path, config, OPENAI_API_KEY="sk-env")
    credentials = models.credentials("main")
    (candidate,) = credentials.candidates("openai", model="gpt-5.2")
    credentials.record_result(candidate, AuthError("refused"))
    provider, model = await models.connect(ModelSelection("main", "openai/gpt-5.2", ("a/m",)))
    assert model.ref == "a/m"
    skipped = await anext(aiter(provider.stream(ModelRequest("m", "", ()))))
    assert isinstance(skipped, AttemptRetried) and "rests until" in skipped.error


def seeing_server() -> dict[str, Any]:
    """Return a server with a model that is blind, and two that see."""
    kinds = {"blind": ["text"], "eye": ["text", "image"], "owl": ["text", "image"]}
    models = [{"id": id_, "input": kind, "contextWindow": 9_000} for id_, kind in kinds.items()]
    return {"baseUrl": "http://127.0.0.1:9/v1", "models": models}


def test_image_model_of_a_seeing_or_unknown_model_is_itself(tmp_path: Path) -> None:
    config = configured() | {"models": {"providers": {"s": seeing_server()}}}
    models = make(tmp_path, config)
    assert models.find_image_model("s/owl") == "s/owl"
    assert models.find_image_model("openai/some-new-model") == "openai/some-new-model"
    assert models.find_image_model("local/demo") == models.find_image_model("") == ""


def test_image_model_of_a_blind_model_is_an_allowed_one_of_its_provider(tmp_path: Path) -> None:
    config = configured() | {"models": {"providers": {"s": seeing_server()}}}
    assert make(tmp_path, config).find_image_model("s/blind") == "s/eye"
    config["agents"]["defaults"] = {"models": {"s/blind": {}, "s/owl": {}}}
    assert make(tmp_path, config).find_image_model("s/blind") == "s/owl"
    config["agents"]["defaults"] = {"models": {"s/blind": {}}}
    assert make(tmp_path, config).find_image_model("s/blind") == ""


async def test_connect_configured_model_need_not_be_allowed(tmp_path: Path) -> None:
    models = make(tmp_path, configured("a/m", models={"a/m": {}}))
    wish = ModelSelection("main", "b/m", exact=True, is_configured=True)
    assert await ways(models, wish) == [("b/m", "")]
    with pytest.raises(UserError, match="not among the allowed models"):
        await models.connect(ModelSelection("main", "b/m", exact=True))


async def test_connection_of_a_provider_has_its_address_and_credential(tmp_path: Path) -> None:
    config = configured()
    config["models"]["providers"]["openai"] = {"apiKey": "sk-config", "headers": {"X-Org": "o"}}
    models = make(tmp_path, config, OPENAI_API_KEY="sk-env")
    opened = await models.resolve_connection("main", "OpenAI", "env:OPENAI_API_KEY")
    assert (opened.base_url, opened.api_key) == ("https://api.openai.com/v1", "sk-env")
    assert opened.headers == {"X-Org": "o"}
    assert (await models.resolve_connection("main", "a")).api_key == ""
    for provider, profile, message in (
        ("openai", "openai:none", "openai"),
        ("groq", "", "groq"),
        ("anthropic", "", "does not speak the API of OpenAI"),
        ("deepgram", "", "deepgram"),
    ):
        with pytest.raises(UserError, match=message):
            await models.resolve_connection("main", provider, profile)
