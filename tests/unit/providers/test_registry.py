"""The adapters of wire formats: ours by what they declare, others by entry points."""

import importlib.metadata
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType

import pytest

from homarus.config.model_refs import ModelRef
from homarus.config.schema import Config
from homarus.core.errors import UserError
from homarus.providers import openai, registry, resolution
from homarus.providers.catalog import ModelInfo

ADAPTER = """
from homarus.providers.openai import create

APIS = ("smoke-signals",)
"""


def own_config(api: str) -> Config:
    entry = {"baseUrl": "http://h", "api": api}
    return Config.model_validate({"models": {"providers": {"mine": entry}}})


def test_registry_lists_every_api_without_importing_an_adapter() -> None:
    code = (
        "import sys; from homarus.providers import registry; print(*registry.api_names());"
        "print(*(name for name in sys.modules if name.startswith('homarus.providers.')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    names, modules = done.stdout.splitlines()
    assert {"anthropic-messages", "google-vertex", "ollama"} <= set(names.split())
    assert modules == "homarus.providers.registry"


def test_registry_declared_apis_match_each_adapter() -> None:
    for api in registry.api_names():
        assert api in registry.load_adapter(api).APIS


def test_provider_added_as_one_file_is_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "smoke.py").write_text(ADAPTER)
    (tmp_path / "openai.py").write_text(Path(openai.__file__).read_text())
    monkeypatch.setattr("homarus.providers.__path__", [*_package_path(), str(tmp_path)])
    registry._modules.cache_clear()
    try:
        assert "smoke-signals" in registry.api_names()
        resolution.check_reachable(own_config("smoke-signals"), ModelRef("mine", "m"))
        provider = resolution.open_remote(
            own_config("smoke-signals"), ModelInfo("mine", "m"), "key"
        )
        assert provider.name == "mine"
    finally:
        registry._modules.cache_clear()
        sys.modules.pop("homarus.providers.smoke", None)


def test_provider_added_by_entry_point_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("smoke_package")
    module.__dict__.update(APIS=("smoke-signals",), create=openai.create)
    monkeypatch.setitem(sys.modules, "smoke_package", module)
    entry = EntryPoint("smoke-signals", "smoke_package", "homarus.providers")
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda *, group: (entry,))
    config = own_config("smoke-signals")
    resolution.check_reachable(config, ModelRef("mine", "m"))
    assert resolution.open_remote(config, ModelInfo("mine", "m"), "key").name == "mine"
    assert "smoke-signals" in registry.api_names()


def test_model_that_an_own_server_does_not_list_is_refused_with_a_fix() -> None:
    entry = {"baseUrl": "http://h", "models": [{"id": "alpha", "name": "alpha"}]}
    config = Config.model_validate({"models": {"providers": {"mine": entry}}})
    with pytest.raises(UserError, match="unknown model 'mine/zzz'") as caught:
        resolution.check_reachable(config, ModelRef("mine", "zzz"))
    assert caught.value.fix == "add it to models.providers.mine.models"


def test_api_without_adapter_is_refused_with_known_ones() -> None:
    with pytest.raises(UserError, match="format github-copilot of mine is not built") as caught:
        resolution.check_reachable(own_config("github-copilot"), ModelRef("mine", "m"))
    assert "anthropic-messages or " in caught.value.fix


def _package_path() -> list[str]:
    import homarus.providers

    return list(homarus.providers.__path__)
