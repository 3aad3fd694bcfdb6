import json
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homarus.config.paths import Paths
from homarus.config.schema import Config
from homarus.core.errors import HomarusError, UnknownNameError, UnreachableError
from homarus.providers.catalog import ModelInfo, Price
from homarus.providers.model_discovery import (
    DiscoveredModel,
    DiscoveredModelCache,
    parse_model_list,
)
from homarus.providers.model_router import ModelRouter
from homarus.testing.clock import FakeClock
from homarus.testing.model_server import ModelServer

LISTS = {
    "openrouter": {
        "data": [
            {
                "id": "maker/big",
                "context_length": 131072,
                "architecture": {"input_modalities": ["text", "image"]},
                "supported_parameters": ["tools", "reasoning"],
                "pricing": {"prompt": "0.000001", "completion": "0.000004"},
                "top_provider": {"max_completion_tokens": 8000},
            }
        ]
    },
    "groq": {"data": [{"id": "big", "context_window": 131072, "max_completion_tokens": 8000}]},
    "vllm": {"data": [{"id": "big", "max_model_len": 131072}]},
    "google": {
        "models": [{"name": "models/big", "inputTokenLimit": 131072, "outputTokenLimit": 8000}]
    },
    "a bare list": [{"id": "big", "context_length": 131072}],
}


@pytest.mark.parametrize("service", LISTS)
def test_parse_model_list_reads_each_dialect(service: str) -> None:
    (told,) = parse_model_list(json.dumps(LISTS[service]).encode())
    assert told.id in {"big", "maker/big"} and told.window == 131072


def test_parse_model_list_reads_prices_and_abilities() -> None:
    (told,) = parse_model_list(json.dumps(LISTS["openrouter"]).encode())
    assert (told.input, told.output, told.max_tokens) == (1.0, 4.0, 8000)
    assert told.sees_images and told.reasoning


@given(st.binary(max_size=200) | st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["data", "id", "pricing",
        "context_length", "architecture", "top_provider", "input_modalities"]), inner),
).map(lambda tree: json.dumps(tree).encode()))  # fmt: skip
def test_parse_model_list_any_answer_is_read_or_refused(body: bytes) -> None:
    with suppress(HomarusError):
        assert len(parse_model_list(body)) < 200


def test_discovered_models_complete_only_unknown_ones(tmp_path: Path) -> None:
    learned = DiscoveredModelCache(tmp_path)
    learned.save(
        "p",
        [DiscoveredModel("m", window=5_000, max_tokens=100, input=2.0), DiscoveredModel("silent")],
    )
    guess = ModelInfo("p", "m", known=False, note="guessed")
    assert learned.complete(guess).window == 5_000
    assert learned.complete(guess).price == Price(input=2.0)
    assert learned.complete(guess).note == ""
    assert learned.complete(ModelInfo("p", "m", window=7)).window == 7
    assert not learned.complete(ModelInfo("p", "silent", known=False)).known


def test_saved_list_is_loaded_and_broken_one_ignored(tmp_path: Path) -> None:
    DiscoveredModelCache(tmp_path).save("p/../q", [DiscoveredModel("m", window=5)])
    assert list(tmp_path.iterdir()) == [tmp_path / "p_.._q.json"]
    assert DiscoveredModelCache(tmp_path).models("p/../q")["m"].window == 5
    (tmp_path / "p_.._q.json").write_text('{"models": [{"id": 1, "x": 2}]}')
    assert DiscoveredModelCache(tmp_path).models("p/../q") == {}


def test_model_list_full_entry_matches_stored_json(tmp_path: Path) -> None:
    full = DiscoveredModel("m", "Model", 5_000, 100, 2.0, 3.0, 0.5, True, False)
    DiscoveredModelCache(tmp_path).save("p", [full])
    stored = {
        "id": "m",
        "name": "Model",
        "window": 5_000,
        "max_tokens": 100,
        "input": 2.0,
        "output": 3.0,
        "cache_read": 0.5,
        "sees_images": True,
    }  # a false value is not stored
    text = (tmp_path / "p.json").read_text(encoding="utf-8")
    assert text == json.dumps({"version": 1, "models": [stored]})
    assert DiscoveredModelCache(tmp_path).models("p")["m"] == DiscoveredModel(
        "m", "Model", 5_000, 100, 2.0, 3.0, 0.5, True
    )


async def test_refresh_fetches_from_the_service(tmp_path: Path) -> None:
    async with ModelServer() as server:
        provider = {"baseUrl": server.url, "apiKey": "sk-x"}
        config = Config.model_validate({"models": {"providers": {"own": provider}}})
        paths = Paths.find({"HOME": str(tmp_path)})
        models = ModelRouter(config, {}, paths, FakeClock(patient=False))
        try:
            with pytest.raises(UnknownNameError):
                await models.refresh("owm")
            result = await models.refresh("own")
        finally:
            await models.close()
    assert result >= 1


async def test_refresh_unreachable_service_is_reported(tmp_path: Path) -> None:
    config = Config.model_validate(
        {"models": {"providers": {"own": {"baseUrl": "http://127.0.0.1:9"}}}}
    )
    models = ModelRouter(config, {}, Paths.find({"HOME": str(tmp_path)}), FakeClock(patient=False))
    with pytest.raises(UnreachableError):
        await models.refresh("own")
