"""`homarus models` as a person or a program meets it."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from homarus.cli.models import command
from homarus.config.load import load_config
from homarus.config.model_refs import ModelRef
from homarus.config.paths import Paths
from homarus.core.errors import UnknownNameError, UserError
from homarus.memory.embed import minilm
from homarus.providers import default_model, model_router, weights
from homarus.providers.catalog import VENDORS, Vendor
from homarus.providers.model_discovery import DiscoveredModel
from homarus.providers.resolution import check_reachable
from homarus.providers.weights import Progress


class Home:
    """A person's home directory, the servers on the machine, and what is in the environment."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.env: dict[str, str] = {}
        self.servers: dict[str, tuple[str, ...]] = {}
        self.pulled = 0

    @property
    def config(self) -> Path:
        return self.path / ".openclaw" / "openclaw.json"

    @property
    def weights(self) -> Path:
        return self.path / ".cache" / "homarus" / "models" / weights.DEMO.file

    def configure(self, text: str) -> None:
        self.config.parent.mkdir(exist_ok=True)
        self.config.write_text(text)

    async def list_models(self, server: Vendor) -> tuple[str, ...] | None:
        return self.servers.get(server.id)

    def pull(self, cache_dir: Path, progress: Progress) -> bool:
        assert cache_dir == self.weights.parent
        self.pulled += 1
        progress(0, 93_000_000)
        return self.pulled == 1

    def run(self, *args: str) -> Result:
        names = [name for vendor in VENDORS.values() for name in vendor.key_names]
        names += [
            "XDG_CACHE_HOME",
            "OPENCLAW_STATE_DIR",
            "OPENCLAW_CONFIG_PATH",
            "OPENCLAW_PROFILE",
        ]
        env = {**dict.fromkeys(names), "HOME": str(self.path), **self.env}
        return CliRunner().invoke(command, args, env=env)

    def told(self, *args: str) -> Any:
        result = self.run(*args, "--json")
        assert result.exception is None
        return json.loads(result.stdout)

    def refused(self, *args: str) -> UserError:
        result = self.run(*args)
        assert isinstance(result.exception, UserError)
        return result.exception


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    made = Home(tmp_path)
    monkeypatch.setattr(default_model, "list_models", made.list_models)
    monkeypatch.setattr(weights, "pull_weights", made.pull)
    return made


def test_models_alone_prints_the_status(home: Home) -> None:
    assert home.run().stdout == home.run("status").stdout
    assert home.told() == home.told("status")


def test_status_without_any_model_offers_the_demo_model(home: Home) -> None:
    told = home.told("status")
    assert told["model"] == "local/demo"
    assert told["key"] is None
    assert told["demo"] == {"present": False, "path": None}
    assert told["servers"] == {"ollama": None, "lmstudio": None}
    assert told["problem"]["fix"].endswith("homarus models pull demo")
    assert "demo model" in told["note"]
    shown = home.run("status").stdout
    for words in ("local/demo", "not fetched", "Ollama at 127.0.0.1:11434", "no answer"):
        assert words in shown


def test_status_masks_a_key(home: Home) -> None:
    home.env["OPENAI_API_KEY"] = "sk-proj-0123456789abcdef"
    told = home.told("status")
    assert told["model"] == "openai/gpt-5.2"
    assert told["key"] == {"source": "OPENAI_API_KEY", "shown": "sk-…cdef"}
    assert told["problem"] is None
    for result in (home.run("status"), home.run("status", "--json"), home.run("list", "--all")):
        assert "0123456789" not in result.output


def test_status_hides_a_short_key_completely(home: Home) -> None:
    home.env["GROQ_API_KEY"] = "short-secret"
    assert home.told("status")["key"]["shown"] == "…"


def test_status_with_missing_key_reports_it_and_exits_zero(home: Home) -> None:
    home.configure('{agents: {defaults: {model: "openai/gpt-5.2"}}}')
    result = home.run("status")
    assert result.exit_code == 0
    assert "missing" in result.stdout
    assert "OPENAI_API_KEY" in result.stdout


def test_status_uses_keys_of_the_configuration(home: Home) -> None:
    home.configure('{env: {vars: {MISTRAL_API_KEY: "abcdefghijklmnopqrst"}}}')
    assert home.told("status")["model"] == "mistral/mistral-large-latest"


def test_status_uses_the_model_of_the_default_agent(home: Home) -> None:
    home.configure(
        '{agents: {defaults: {model: "openai/gpt-5.2"}, list: [{id: "ops", model: "xai/grok-4"}]}}'
    )
    told = home.told("status")
    assert told["model"] == "xai/grok-4"
    assert "ops" in told["why"]


def test_status_lists_local_servers_even_when_unused(home: Home) -> None:
    home.env["OPENAI_API_KEY"] = "k"
    home.servers["ollama"] = ("llama3.2", "qwen3")
    assert home.told("status")["servers"]["ollama"] == ["llama3.2", "qwen3"]


def test_status_with_broken_config_is_a_user_error(home: Home) -> None:
    home.configure("{agents: {defalts: {}}}")
    assert "agents.defalts" in home.refused("status").message


def test_list_prints_usable_models_and_all_with_option(home: Home) -> None:
    home.env["OPENAI_API_KEY"] = "k"
    home.servers["lmstudio"] = ("gemma-3",)
    home.configure(
        """{
        models: {providers: {mine: {baseUrl: "http://10.0.0.1/v1",
                                    models: [{id: "big", contextWindow: 9000}]}}},
        }"""
    )
    rows = {row["key"]: row for row in home.told("list")["models"]}
    assert set(rows) >= {"openai/gpt-5.2", "openai/gpt-4o", "lmstudio/gemma-3", "mine/big"}
    assert "anthropic/claude-opus-4-6" not in rows
    assert rows["mine/big"]["contextWindow"] == 9000
    assert rows["mine/big"]["tags"] == ["default"]
    everything = {row["key"]: row for row in home.told("list", "--all")["models"]}
    assert set(everything) > set(rows)
    assert everything["anthropic/claude-opus-4-6"]["missing"] == "needs ANTHROPIC_API_KEY"
    assert not everything["local/demo"]["available"]
    shown = home.run("list", "--all").stdout.splitlines()
    assert len(shown) == len(everything)
    assert shown[0].split()[0] == "mine/big"


def test_list_with_allowlist_omits_other_models(home: Home) -> None:
    home.env["OPENAI_API_KEY"] = "k"
    home.configure('{agents: {defaults: {models: {"groq/some": {alias: "fast"}}}}}')
    everything = {row["key"]: row for row in home.told("list", "--all")["models"]}
    assert everything["groq/some"]["tags"] == ["alias fast"]
    assert everything["groq/some"]["missing"] == "needs GROQ_API_KEY"
    assert everything["openai/gpt-4o"]["missing"] == "not ready"


def test_list_that_is_empty_explains_why(home: Home) -> None:
    assert "No model" in home.run("list").stdout


def test_set_writes_the_model_and_prints_what_is_missing(home: Home) -> None:
    result = home.run("set", "openai/gpt-5-mini")
    assert result.exit_code == 0
    assert "openai/gpt-5-mini answers from now on" in result.stdout
    assert "OPENAI_API_KEY" in result.stderr
    written = json.loads(home.config.read_text())
    assert written["agents"]["defaults"]["model"] == {"primary": "openai/gpt-5-mini"}
    again = home.told("set", "openai/gpt-5-mini")
    assert (again["ok"], again["changed"]) == (True, False)
    home.env["OPENAI_API_KEY"] = "k"
    assert home.told("status")["problem"] is None


def test_set_keeps_the_file_and_extends_the_allowlist(home: Home) -> None:
    home.configure(
        """{
        // mine
        agents: {defaults: {model: "xai/grok-4", models: {"xai/grok-4": {alias: "grok"}}}},
        }"""
    )
    assert home.run("set", "gpt-5.2").exit_code == 0
    assert "// mine" in home.config.read_text()
    assert home.told("status")["model"] == "openai/gpt-5.2"
    assert "openai/gpt-5.2" in home.config.read_text().split("models", 1)[1]
    assert home.run("set", "grok").exit_code == 0
    assert home.told("status")["model"] == "xai/grok-4"


@pytest.mark.parametrize("name", ["opnai/gpt-5.2", "gtp", "", "openai/", "local/nothing"])
def test_set_unreachable_model_is_refused(home: Home, name: str) -> None:
    home.refused("set", name)
    assert not home.config.exists()


def test_pull_fetches_and_prints_the_licence_once(home: Home) -> None:
    first = home.run("pull", "demo")
    assert first.exit_code == 0
    assert "Apache" in first.stdout
    assert "93 MB" in first.stderr
    assert "~/.cache/homarus/models" in first.stdout
    second = home.run("pull", "demo")
    assert "already" in second.stdout
    assert "Apache" not in second.stdout


def test_pull_knows_two_models(home: Home) -> None:
    error = home.refused("pull", "llama")
    assert isinstance(error, UnknownNameError)
    assert error.nearest == ("demo", "minilm")


def test_pull_if_needed_fetches_when_demo_is_the_model(home: Home) -> None:
    assert home.run("pull", "demo", "--if-needed").exit_code == 0
    assert home.pulled == 1


@pytest.mark.parametrize("better", ["key", "server", "config"])
def test_pull_if_needed_does_nothing_with_another_model(home: Home, better: str) -> None:
    if better == "key":
        home.env["ANTHROPIC_API_KEY"] = "k"
    elif better == "server":
        home.servers["ollama"] = ("llama3.2",)
    else:
        home.configure('{agents: {defaults: {model: "openai/gpt-5.2"}}}')
    result = home.run("pull", "demo", "--if-needed")
    assert result.exit_code == 0
    assert "not needed" in result.stdout
    assert home.pulled == 0


def test_pull_if_needed_is_silent_when_weights_exist(home: Home) -> None:
    home.weights.parent.mkdir(parents=True)
    with home.weights.open("wb") as file:
        file.write(b"GGUF")
        file.truncate(weights.DEMO.size)
    result = home.run("pull", "demo", "--if-needed")
    assert (result.exit_code, result.output, home.pulled) == (0, "", 0)
    told = home.told("status")
    assert told["demo"] == {"present": True, "path": str(home.weights)}
    assert told["problem"] is None


def test_status_accepts_a_stored_credential_as_key(home: Home) -> None:
    profiles = home.path / ".openclaw" / "agents" / "main" / "agent" / "auth-profiles.json"
    profiles.parent.mkdir(parents=True)
    key = {"type": "api_key", "provider": "openai", "key": "sk-of-a-person"}
    profiles.write_text(json.dumps({"version": 1, "profiles": {"openai:default": key}}))
    found = home.told("status")
    assert found["model"].startswith("openai/") and found["problem"] is None
    assert found["key"] == {"source": "the auth profile openai:default", "shown": "api_key"}
    assert "sk-of" not in json.dumps(found)
    rows = home.told("list")["models"]
    assert rows and all(row["key"].startswith("openai/") for row in rows)


WINDOW = """{models: {providers: {box: {baseUrl: "http://127.0.0.1:9/v1",
  models: [{id: "m", name: "M"%s}]}}}, agents: {defaults: {model: {primary: "box/m"}}}}"""


def test_status_knows_a_configured_or_fetched_window(home: Home) -> None:
    home.configure(WINDOW % "")
    guess = home.told("status")
    assert not guess["known"] and "is not known" in guess["note"]
    lists = home.weights.parent / "lists"
    lists.mkdir(parents=True)
    told = {"version": 1, "models": [{"id": "m", "window": 9_000}]}
    (lists / "box.json").write_text(json.dumps(told))
    learned = home.told("status")
    assert (learned["known"], learned["contextWindow"], learned["note"]) == (True, 9_000, "")
    assert [row["contextWindow"] for row in home.told("list")["models"]] == [9_000]
    home.configure(WINDOW % ", contextWindow: 12000")
    said = home.told("status")
    assert (said["known"], said["contextWindow"], said["note"]) == (True, 12_000, "")


def test_pull_fetches_the_sentence_model_by_name(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    pulled: list[Path] = []

    def pull(cache_dir: Path, progress: Progress) -> bool:
        progress(0, 22_000_000)
        pulled.append(cache_dir)
        return len(pulled) == 1

    monkeypatch.setattr(minilm, "pull", pull)
    first = home.run("pull", "minilm")
    assert "~/.cache/homarus/models/all-minilm-l6-v2" in first.stdout
    assert "Apache License 2.0" in first.stdout
    assert "22 MB" in first.stderr
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    second = home.run("pull", "minilm")
    assert "already" in second.stdout
    assert "pip install 'homarus[vectors]'" in second.stderr
    monkeypatch.setattr(minilm, "find", lambda cache_dir: cache_dir)
    assert home.run("pull", "minilm", "--if-needed").output == ""
    assert len(pulled) == 2


class Listing:
    """What a provider lists, in place of a request to it."""

    def __init__(self, *ids: str) -> None:
        self.ids = ids

    async def fetch(self, config: object, provider: str, key: str) -> list[DiscoveredModel]:
        return [DiscoveredModel(each, window=8_000) for each in self.ids]


def test_list_shows_what_refresh_has_fetched(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    listing = Listing("gpt-5.2", "gpt-new", "text-embedding-3-large")
    monkeypatch.setattr(model_router, "fetch_model_list", listing.fetch)
    home.env["OPENAI_API_KEY"] = "k"
    assert home.told("refresh", "OpenAI") == {
        "ok": True,
        "provider": "openai",
        "models": 2,
        "listed": 2,
    }
    assert "openai has 2 models for chat" in home.run("refresh", "openai").stdout
    rows = home.told("list")["models"]
    assert [row["key"] for row in rows] == ["openai/gpt-5.2", "openai/gpt-new"]
    assert rows[1]["contextWindow"] == 8_000


def test_refresh_counts_what_the_configuration_leaves(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_router, "fetch_model_list", Listing("m", "other").fetch)
    home.configure(WINDOW % "")
    assert home.told("refresh", "box") | {"ok": True} == {
        "ok": True,
        "provider": "box",
        "models": 1,
        "listed": 2,
    }
    assert "It lists 2" in home.run("refresh", "box").stderr
    assert [row["key"] for row in home.told("list")["models"]] == ["box/m"]


def test_refresh_unknown_provider_names_the_nearest(home: Home) -> None:
    error = home.refused("refresh", "opnai")
    assert isinstance(error, UnknownNameError) and error.nearest[0] == "openai"
    assert "models.providers.zzz" in home.refused("refresh", "zzz").fix


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("openai/gpt-5.22", "did you mean openai/gpt-5.2"),
        ("openai/zzz", "homarus models refresh openai"),
        ("box/anything", "homarus models refresh box"),
        ("ollama/llama", "did you mean ollama/llama3.2"),
    ],
)
def test_set_unknown_model_of_known_provider_warns(home: Home, name: str, words: str) -> None:
    home.servers["ollama"] = ("llama3.2",)
    home.configure('{models: {providers: {box: {baseUrl: "http://127.0.0.1:9/v1"}}}}')
    result = home.run("set", name)
    assert result.exit_code == 0 and f"{name} answers from now on" in result.stdout
    assert "Warning: no list has" in result.stderr and words in result.stderr
    assert words in home.told("set", name)["warning"]
    assert home.told("status")["model"] == name


@pytest.mark.parametrize("name", ["openai/gpt-5.2", "ollama/llama3.2", "box/m"])
def test_set_known_model_does_not_warn(home: Home, name: str) -> None:
    home.servers["ollama"] = ("llama3.2",)
    home.configure(WINDOW % "")
    assert "Warning" not in home.run("set", name).stderr


def test_set_unlisted_model_of_an_own_provider_warns_and_lists_it(home: Home) -> None:
    home.configure(
        """{models: {providers: {Mine: {
            baseUrl: "http://127.0.0.1:9/v1", models: [{id: "alpha", name: "Alpha"}], // mine
        }}}}"""
    )
    result = home.run("set", "mine/beta")
    assert result.exit_code == 0 and "mine/beta answers from now on" in result.stdout
    assert "Warning: no list has mine/beta" in result.stderr
    assert "Before it can" not in result.stderr and "// mine" in home.config.read_text()
    assert "Warning" not in home.run("set", "mine/beta").stderr
    assert home.told("status")["model"] == "mine/beta"
    config = load_config(Paths.find({}, home.path), {}).config
    assert [model.id for model in config.models.providers["Mine"].models] == ["alpha", "beta"]
    with pytest.raises(UserError, match="unknown model 'mine/nope'"):
        check_reachable(config, ModelRef("mine", "nope"))


def test_set_unlisted_model_of_an_included_list_is_refused(home: Home) -> None:
    home.configure('{models: {$include: "./models.json"}}')
    text = '{"providers": {"mine": {"baseUrl": "http://h/v1", "models": [{"id": "alpha"}]}}}'
    (home.config.parent / "models.json").write_text(text, encoding="utf-8")
    assert home.run("set", "mine/alpha").exit_code == 0
    assert "models.providers.mine.models" in home.refused("set", "mine/beta").fix
