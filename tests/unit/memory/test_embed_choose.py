"""Which embedder is taken, and what is said about it."""

import importlib.metadata
import json
import shutil
import sys
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from homarus.config.memory import MemoryConfig, MemorySearchConfig, embedder_names
from homarus.config.paths import Paths
from homarus.config.schema import Config
from homarus.core.errors import AuthError, ConfigError, UnreachableError
from homarus.memory.base import FallbackNotice
from homarus.memory.embed import minilm
from homarus.memory.embed.access import resolve_access
from homarus.memory.embed.backends import (
    EMBEDDERS,
    AutoSelection,
    AvailableEmbedder,
    EmbedderRequest,
)
from homarus.memory.embed.base import EmbeddingCost, close
from homarus.memory.embed.selection import EmbedderSelection, select_embedder
from homarus.memory.embed.wordllama import WordLlamaEmbedder
from homarus.memory.spec import MemorySpec, resolve_memory_spec
from homarus.testing.clock import FakeClock
from tests.unit.memory.embed_server import EmbedServer, Reply

pytest.importorskip("numpy")

KEY = "sk-test-0123456789abcdef"
GOOGLE = "generativelanguage.googleapis.com"


def make_spec(
    tmp_path: Path,
    search: dict[str, Any] | None = None,
    env: dict[str, str] | None = None,
    providers: dict[str, Any] | None = None,
) -> MemorySpec:
    told: dict[str, Any] = {"agents": {"defaults": {"memorySearch": search or {}}}}
    if providers:
        told["models"] = {"providers": providers}
    paths = Paths.find({"XDG_CACHE_HOME": str(tmp_path / "cache")}, tmp_path)
    return resolve_memory_spec(Config.model_validate(told), paths, env or {}, "main")


def take(spec: MemorySpec, **more: Any) -> EmbedderSelection:
    """What is chosen, closed again: nothing was opened."""
    chosen = select_embedder(spec, tell=lambda _text: None, **more)
    close(chosen.embedder)
    return chosen


def hide(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    for name in names:
        monkeypatch.setitem(sys.modules, name, None)


# auto


def test_auto_nothing_configured_selects_wordllama(tmp_path: Path) -> None:
    chosen = take(make_spec(tmp_path))
    assert chosen.provider == "wordllama"
    assert [one.provider for one in chosen.tried] == ["local", "openai", "gemini", "voyage"]
    assert chosen.sent_to == ""


def test_auto_nothing_available_selects_words_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hide(monkeypatch, "wordllama")
    chosen = take(make_spec(tmp_path))
    assert (chosen.embedder, chosen.provider) == (None, "none")
    assert "by their words" in chosen.why
    assert chosen.problem == "" and chosen.fallback is None  # that is no failure


def test_auto_without_numpy_tries_no_vendor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hide(monkeypatch, "numpy")
    chosen = take(make_spec(tmp_path, env={"OPENAI_API_KEY": KEY}))
    assert chosen.embedder is None
    assert all("package" in one.outcome for one in chosen.tried)


@pytest.mark.parametrize(
    ("env", "provider", "host"),
    [
        ({"OPENAI_API_KEY": KEY, "GEMINI_API_KEY": KEY}, "openai", "api.openai.com"),
        ({"GEMINI_API_KEY": KEY, "VOYAGE_API_KEY": KEY}, "gemini", GOOGLE),
        ({"GOOGLE_API_KEY": KEY}, "gemini", GOOGLE),
        ({"VOYAGE_API_KEY": KEY}, "voyage", "api.voyageai.com"),
    ],
)  # fmt: skip
def test_auto_vendor_key_selects_vendor_and_names_host(
    tmp_path: Path, env: dict[str, str], provider: str, host: str
) -> None:
    chosen = take(make_spec(tmp_path, env=env))
    assert chosen.provider == provider
    assert chosen.sent_to == host
    assert f"is sent to {host}" in chosen.why
    assert KEY not in f"{chosen} {chosen.why}"
    assert chosen.embedder is not None
    assert chosen.embedder.model.dims in {1536, 768, 1024}


def test_auto_local_model_precedes_vendor_keys(tmp_path: Path, minilm_folder: Path) -> None:
    spec = make_spec(tmp_path, env={"OPENAI_API_KEY": KEY})
    shutil.copytree(minilm_folder, minilm.folder_in(spec.models_cache))
    chosen = take(spec)
    assert (chosen.provider, chosen.sent_to, chosen.tried) == ("local", "", ())
    assert chosen.embedder and chosen.embedder.model.name == "all-MiniLM-L6-v2"


def test_auto_local_model_without_packages_is_skipped(
    tmp_path: Path, minilm_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = make_spec(tmp_path, env={"VOYAGE_API_KEY": KEY})
    shutil.copytree(minilm_folder, minilm.folder_in(spec.models_cache))
    hide(monkeypatch, "onnxruntime")
    chosen = take(spec)
    assert chosen.provider == "voyage"
    assert "package" in chosen.tried[0].outcome


def test_auto_gguf_model_path_is_skipped_and_named(tmp_path: Path) -> None:
    search = {"local": {"modelPath": "~/models/embed.gguf"}}
    chosen = take(make_spec(tmp_path, search, {"OPENAI_API_KEY": KEY}))
    assert chosen.provider == "openai"
    assert "GGUF" in chosen.tried[0].outcome


# Named


def test_provider_none_or_vectors_disabled_selects_words_only(tmp_path: Path) -> None:
    for search in ({"provider": "none"}, {"store": {"vector": {"enabled": False}}}):
        chosen = take(make_spec(tmp_path, search, {"OPENAI_API_KEY": KEY}))
        assert chosen.embedder is None
        assert chosen.why.startswith("memorySearch.")
        assert chosen.problem == ""


def test_provider_unavailable_is_reported_as_problem(tmp_path: Path) -> None:
    told: list[str] = []
    chosen = select_embedder(make_spec(tmp_path, {"provider": "openai"}), tell=told.append)
    assert chosen.embedder is None
    assert chosen.fallback == FallbackNotice("openai", "there is no key for openai")
    assert "OPENAI_API_KEY" in chosen.problem
    assert told and "openai cannot be had" in told[0]


def test_provider_unavailable_uses_fallback_and_reports_it(tmp_path: Path) -> None:
    told: list[str] = []
    search = {"provider": "gemini", "fallback": "wordllama"}
    chosen = select_embedder(make_spec(tmp_path, search), tell=told.append)
    assert chosen.provider == "wordllama"
    assert chosen.fallback and chosen.fallback.wanted == "gemini"
    assert len(told) == 1
    close(chosen.embedder)


def test_fallback_uses_default_address_and_model(tmp_path: Path) -> None:
    search = {
        "provider": "local",
        "fallback": "voyage",
        "model": "mine",
        "remote": {"baseUrl": "http://other.test/v1", "apiKey": "other-key-123456"},
    }
    chosen = take(make_spec(tmp_path, search, {"VOYAGE_API_KEY": KEY}))
    assert chosen.sent_to == "api.voyageai.com"
    assert chosen.embedder and chosen.embedder.model.name == "voyage-3.5"


def test_fallback_auto_is_openai_then_gemini_then_local(tmp_path: Path) -> None:
    env = {"OPENAI_API_KEY": KEY, "GEMINI_API_KEY": KEY, "VOYAGE_API_KEY": KEY}
    order = []
    for provider in ("voyage", "auto"):
        failed: dict[str, str] = {"voyage": "over quota"}
        spec = make_spec(tmp_path, {"provider": provider, "fallback": "auto"}, env)
        while (chosen := take(spec, without=failed)).embedder:
            order.append(chosen.provider)
            failed[chosen.provider] = "over quota"
        assert chosen.tried[-1].provider == "local"
    assert order == ["openai", "gemini"] * 2
    without_key = make_spec(tmp_path, {"provider": "openai", "fallback": "auto"}, env)
    chosen = take(replace(without_key, env={}), without={"openai": "refused"})
    assert chosen.fallback == FallbackNotice("openai", "refused")


def test_selection_skips_providers_that_failed(tmp_path: Path) -> None:
    env = {"OPENAI_API_KEY": KEY, "VOYAGE_API_KEY": KEY}
    chosen = take(make_spec(tmp_path, env=env), without={"openai": "the key was refused"})
    assert chosen.provider == "voyage"
    assert "the key was refused" in [one.outcome for one in chosen.tried]
    named = take(make_spec(tmp_path, {"provider": "openai"}, env), without={"openai": "refused"})
    assert (named.embedder, named.fallback) == (None, FallbackNotice("openai", "refused"))


def test_fastembed_selected_by_name_is_not_imported(tmp_path: Path) -> None:
    pytest.importorskip("fastembed")
    chosen = take(make_spec(tmp_path, {"provider": "fastembed"}))
    assert chosen.embedder
    assert chosen.embedder.model.id == "fastembed/BAAI/bge-small-en-v1.5//384"
    assert chosen.sent_to == ""


# Addresses and keys


def serve(spec: MemorySpec) -> tuple[EmbedderSelection, list[EmbeddingCost]]:
    paid: list[EmbeddingCost] = []
    clock = FakeClock(patient=False)
    chosen = select_embedder(spec, paid=paid.append, tell=lambda _text: None, clock=clock)
    assert chosen.embedder
    try:
        chosen.embedder.embed(["tea"])
    finally:
        chosen.embedder.close()
    return chosen, paid


def test_key_order_is_remote_then_config_then_environment(
    tmp_path: Path,
) -> None:
    with EmbedServer() as server:
        entry = {"openai": {"baseUrl": f"{server.url}/v1", "apiKey": "config-key-123456"}}
        env = {"OPENAI_API_KEY": "env-key-1234567"}
        search: dict[str, Any] = {"provider": "openai", "model": "mine"}
        with_own = {**search, "remote": {"apiKey": "own-key-1234567", "headers": {"X-A": "b"}}}
        serve(make_spec(tmp_path, with_own, env, entry))
        serve(make_spec(tmp_path, search, env, entry))
        del entry["openai"]["apiKey"]
        chosen, paid = serve(make_spec(tmp_path, search, env, entry))
        sent = [seen.headers["authorization"] for seen in server.seen]
        keys = ["own-key-1234567", "config-key-123456", "env-key-1234567"]
        assert sent == [f"Bearer {key}" for key in keys]
        assert server.seen[0].headers["x-a"] == "b"
        assert chosen.sent_to == ""  # it is on this machine
        assert paid[0].cost_usd == 0.0  # what such a server takes is not known


@pytest.mark.parametrize("provider", ["openai", "gemini", "voyage", "ollama", "auto"])
def test_chat_credentials_are_not_sent_to_other_address(tmp_path: Path, provider: str) -> None:
    names = ("OPENAI_API_KEY", "GEMINI_API_KEY", "VOYAGE_API_KEY", "OLLAMA_API_KEY")
    env = dict.fromkeys(names, KEY)
    with EmbedServer() as server, EmbedServer() as chats:
        server.dims = 768 if provider in {"gemini", "ollama"} else 1024
        entry = {"baseUrl": chats.url, "headers": {"X-Own": KEY, "Authorization": f"Bearer {KEY}"}}
        entries = dict.fromkeys(("openai", "google", "voyage", "ollama"), entry)
        search: dict[str, Any] = {"provider": provider, "remote": {"baseUrl": server.url}}
        for providers in (None, entries):
            chosen, _ = serve(make_spec(tmp_path, search, env, providers))
            assert "key" not in chosen.why
        search["remote"]["apiKey"] = "own-key-1234567"
        search["remote"]["headers"] = {"X-Mine": "1"}
        serve(make_spec(tmp_path, search, env, entries))
        assert KEY not in repr([seen.headers for seen in server.seen])
        assert "own-key-1234567" in repr(server.seen[-1].headers)
        assert server.seen[-1].headers["x-mine"] == "1"
        assert chats.seen == []


@pytest.mark.parametrize(
    ("base_url", "is_sent"),
    [
        ("https://api.openai.com/v1", True),
        ("https://API.OpenAI.com:443/v1/", True),
        ("http://api.openai.com/v1", False),
        ("https://api.openai.com:8443/v1", False),
        ("https://api.openai.com.evil.test/v1", False),
        ("https://api.openai.com@evil.test/v1", False),
        ("https://proxy.test/v1", True),
        ("https://proxy.test:444/v1", False),
        ("//proxy.test/v1", False),
        ("nowhere", False),
        ("https://[proxy", False),
    ],
)
def test_chat_key_is_used_for_vendor_and_chat_address(
    tmp_path: Path, base_url: str, is_sent: bool
) -> None:
    entry = {"openai": {"baseUrl": "https://proxy.test/chat"}}
    search = {"provider": "openai", "model": "m", "remote": {"baseUrl": base_url}}
    chosen = take(make_spec(tmp_path, search, {"OPENAI_API_KEY": KEY}, entry))
    assert ("by the key in OPENAI_API_KEY" in chosen.why) is is_sent


def test_own_server_needs_no_key(tmp_path: Path) -> None:
    with EmbedServer() as server:
        chosen, _ = serve(make_spec(tmp_path, {"remote": {"baseUrl": f"{server.url}/v1"}}))
        assert chosen.provider == "openai"
        assert "authorization" not in server.seen[0].headers
        search = {"provider": "ollama", "remote": {"baseUrl": f"{server.url}/v1"}, "model": "x"}
        chosen, _ = serve(make_spec(tmp_path, search))
        assert server.seen[-1].path == "/api/embed"
        search = {"provider": "gemini", "remote": {"baseUrl": f"{server.url}/v1beta/openai"}}
        server.dims = 768
        serve(make_spec(tmp_path, search, {"GEMINI_API_KEY": KEY}))
        path = "/v1beta/models/gemini-embedding-001:batchEmbedContents"
        assert server.seen[-1].path == path


@pytest.mark.parametrize(
    ("provider", "written", "name"),
    [
        ("gemini", "models/gemini-embedding-001", "gemini-embedding-001"),
        ("gemini", "google/gemini-embedding-001", "gemini-embedding-001"),
        ("openai", "openai/text-embedding-3-large", "text-embedding-3-large"),
        ("voyage", "voyage-3-lite", "voyage-3-lite"),
    ],
)
def test_model_name_provider_prefix_is_removed(
    tmp_path: Path, provider: str, written: str, name: str
) -> None:
    env = {"OPENAI_API_KEY": KEY, "GEMINI_API_KEY": KEY, "VOYAGE_API_KEY": KEY}
    chosen = take(make_spec(tmp_path, {"provider": provider, "model": written}, env))
    assert chosen.embedder and chosen.embedder.model.name == name


def test_auth_profile_key_is_used_and_login_is_not(tmp_path: Path) -> None:
    folder = Paths.find({}, tmp_path).agent_dir("main")
    folder.mkdir(parents=True)
    login = {"type": "oauth", "provider": "openai", "access": "x" * 20, "refresh": "y" * 20}
    profiles = {
        "openai:login": login,
        "voyage:default": {"type": "api_key", "provider": "voyage", "key": KEY},
    }
    (folder / "auth-profiles.json").write_text(json.dumps({"version": 1, "profiles": profiles}))
    chosen = take(make_spec(tmp_path))
    assert chosen.provider == "voyage"
    assert "the auth profile voyage:default" in chosen.why
    access = resolve_access(Config(), Paths.find({}, tmp_path), {}, "main")
    assert access("openai").key is None


def test_key_refused_error_names_its_source(tmp_path: Path) -> None:
    with EmbedServer() as server:
        entry = {"openai": {"baseUrl": f"{server.url}/v1"}}
        spec = make_spec(tmp_path, {"provider": "openai"}, {"OPENAI_API_KEY": KEY}, entry)
        chosen = select_embedder(spec)
        assert chosen.embedder
        server.replies.append(Reply(401, b"{}"))
        with pytest.raises(AuthError) as caught:
            chosen.embedder.embed(["tea"])
        assert caught.value.fix == "check the key in OPENAI_API_KEY"
        chosen.embedder.close()


def test_ollama_not_running_is_reported(tmp_path: Path) -> None:
    search = {"provider": "ollama", "remote": {"baseUrl": "http://127.0.0.1:9"}}
    chosen = select_embedder(make_spec(tmp_path, search), clock=FakeClock(patient=False))
    assert chosen.embedder and chosen.embedder.model.dims == 768
    with pytest.raises(UnreachableError, match=r"127\.0\.0\.1:9"):
        chosen.embedder.embed(["tea"])
    chosen.embedder.close()


def test_spec_without_access_has_no_key(tmp_path: Path) -> None:
    spec = MemorySpec("main", tmp_path, tmp_path / "i", tmp_path, tmp_path, tmp_path)
    assert spec.settings == MemoryConfig()
    chosen = take(replace(spec, search=MemorySearchConfig(provider="voyage")))
    assert "VOYAGE_API_KEY" in chosen.problem


# Third parties


def test_embedder_from_entry_point_is_selected_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def create(request: EmbedderRequest) -> AvailableEmbedder:
        return AvailableEmbedder(WordLlamaEmbedder(), f"{request.provider} is installed")

    module = SimpleNamespace(AUTO=AutoSelection(order=5), create=create)
    monkeypatch.setitem(sys.modules, "cloud_embedder", module)
    entries = {"homarus.embedders": (EntryPoint("cloud", "cloud_embedder", "homarus.embedders"),)}
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda *, group: entries.get(group, ()))
    assert take(make_spec(tmp_path, {"provider": "cloud"})).why == "cloud is installed"
    assert take(make_spec(tmp_path)).provider == "cloud"  # auto knows it, too


def test_embedder_of_unknown_name_is_a_config_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'openai', 'voyage' or 'wordllama'") as caught:
        make_spec(tmp_path, {"provider": "opnai"})
    assert caught.value.key == "memorySearch.provider"
    with pytest.raises(ConfigError, match=r"memorySearch\.fallback"):
        make_spec(tmp_path, {"fallback": "base"})  # a module of the package, but no embedder


def test_embedder_names_agree_with_loader() -> None:
    assert embedder_names() == list(EMBEDDERS.names())
