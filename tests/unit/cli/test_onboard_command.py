"""`homarus onboard --non-interactive`, `configure` and `setup`, in a home of their own."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from homarus.cli.main import group
from homarus.core.errors import HomarusError
from homarus.gateway.wizard import model_section
from homarus.providers.catalog import VENDORS

CUSTOM = ("--custom-base-url", "http://127.0.0.1:9/v1", "--custom-model-id", "m-1")
QUIET = ("onboard", "--non-interactive", "--skip-health", "--skip-daemon")


@pytest.fixture(autouse=True)
def _no_models(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def no_servers(_config: object, _probe: object = None) -> list[Any]:
        return [(VENDORS["ollama"], None)]

    for vendor in VENDORS.values():
        for name in (*vendor.key_names, *vendor.account_names):
            monkeypatch.delenv(name, raising=False)
    for module in ("default_model", "model_report"):
        monkeypatch.setattr(f"homarus.providers.{module}.probe_local_servers", no_servers)
    monkeypatch.setattr(model_section, "probe_local_servers", no_servers)


def run(*args: str, text: str = "") -> Result:
    return CliRunner().invoke(group, args, input=text, standalone_mode=False)


def done(*args: str, text: str = "") -> str:
    result = run(*args, text=text)
    assert result.exception is None and not result.return_value, result.exception
    return result.output


def refused(*args: str) -> HomarusError:
    error = run(*args).exception
    assert isinstance(error, HomarusError), error
    return error


def config(home: Path) -> Any:
    return json.loads((home / ".openclaw" / "openclaw.json").read_text(encoding="utf-8"))


def test_onboard_by_options_writes_the_config_and_reports_it(home: Path) -> None:
    options = (*CUSTOM, "--custom-api-key", "-", "--name", "Nyx", "--workspace", str(home / "ws"))
    told = json.loads(done(*QUIET, *options, "--json", text="sk-from-stdin\n"))
    assert told["ok"] and told["model"] == "custom/m-1" and told["workspace"] == str(home / "ws")
    assert told["url"] == "http://127.0.0.1:18789/"
    written = config(home)
    assert written["agents"]["defaults"]["workspace"] == "~/ws"
    assert written["agents"]["list"][0]["identity"] == {"name": "Nyx"}
    profiles = home / ".openclaw" / "agents" / "main" / "agent" / "auth-profiles.json"
    assert "sk-from-stdin" in profiles.read_text(encoding="utf-8")
    assert "sk-from-stdin" not in json.dumps(written)
    before = (home / ".openclaw" / "openclaw.json").read_bytes()
    done(*QUIET)  # a second run without answers changes nothing
    assert (home / ".openclaw" / "openclaw.json").read_bytes() == before
    done(*QUIET, "--name", "Ada", "--gateway-port", "18900")
    assert config(home)["agents"]["list"][0]["identity"] == {"name": "Ada"}
    assert config(home)["gateway"]["port"] == 18_900
    assert config(home)["agents"]["defaults"]["model"] == {"primary": "custom/m-1"}


def test_onboard_by_options_finds_a_key_in_the_environment(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MISTRAL_API_KEY", "sk-env")
    text = done(*QUIET)
    assert "Start the gateway: homarus gateway run" in text and "#token" not in text
    assert config(home)["agents"]["defaults"]["model"]["primary"] == "mistral/mistral-large-latest"
    done(*QUIET, "--model", "mistral-small-latest", "--auth-choice", "mistral-api-key")
    assert config(home)["agents"]["defaults"]["model"]["primary"] == "mistral/mistral-small-latest"


def test_onboard_by_options_takes_model_for_another_service(home: Path) -> None:
    error = refused(*QUIET, *CUSTOM[:2])
    assert error.fix == "give --model"
    done(*QUIET, *CUSTOM[:2], "--model", "m-2")
    assert config(home)["agents"]["defaults"]["model"]["primary"] == "custom/m-2"


@pytest.mark.parametrize(
    ("options", "message", "fix"),
    [
        ((), "Which model should answer?", "--auth-choice"),
        (("--auth-choice", "gemini-api-key"), "The API key of Google", "--google-api-key"),
        (("--auth-choice", "opnai"), "unknown --auth-choice 'opnai'", "openai"),
        (("--auth-choice", "ollama"), "Ollama does not answer", "start it"),
        (("--auth-choice", "custom-api-key"), "The base URL", "--custom-base-url"),
        ((*CUSTOM, "--workspace", "~/.openclaw"), "--workspace: ", ""),
        ((*CUSTOM, "--workspace", "/dev/null/ws"), "--workspace: cannot use", ""),
        (("--openai-api-key", "a b"), "that is not a key", "copy all of it"),
        (("--openai-api-key", "a", "--xai-api-key", "b"), "one key", "models auth add"),
        (("--mode", "remote"), "on its own machine", "--url"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_onboard_by_options_names_what_is_missing(
    home: Path, options: tuple[str, ...], message: str, fix: str
) -> None:
    error = refused(*QUIET, *options)
    assert message in error.message and fix in error.fix


def test_onboard_by_options_fails_when_the_model_does_not_answer(home: Path) -> None:
    error = refused("onboard", "--non-interactive", *CUSTOM, "--custom-api-key", "sk-x")
    assert "--skip-health" in error.fix
    assert not (home / ".openclaw" / "openclaw.json").exists()


def test_configure_asks_for_one_section_and_reads_plain_lines(home: Path) -> None:
    text = done("configure", "workspace", text="\n".join(["Nyx", "~/.openclaw", "~/ws", ""]))
    assert "What is the agent called?" in text and "Which model" not in text
    assert config(home)["agents"]["list"][0]["identity"] == {"name": "Nyx"}
    assert (home / "ws" / "AGENTS.md").exists()
    assert config(home)["wizard"]["lastRunCommand"] == "configure"
    assert "! " in text  # the state directory cannot be a workspace
    text = done("configure", text="gatewy\n4\n70000\n18901\n\n\n")
    assert "did you mean gateway?" in text and "from 1 to 65535" in text
    assert config(home)["gateway"]["port"] == 18_901


def test_configure_unknown_section_names_the_nearest(home: Path) -> None:
    assert "did you mean channels?" in refused("configure", "chanels").fix
    assert "model, workspace, channels" in refused("configure", "zzz").fix


def test_configure_input_that_ends_says_how_to_continue(home: Path) -> None:
    result = run("configure", "workspace", text="Nyx\n")
    assert result.return_value == 130 and "Stopped" in result.output
    assert not (home / ".openclaw" / "openclaw.json").exists()


@pytest.mark.parametrize("has_extra", [True, False])
def test_setup_prints_a_next_step_that_works(
    home: Path, monkeypatch: pytest.MonkeyPatch, has_extra: bool
) -> None:
    real = importlib.util.find_spec

    def find_spec(name: str) -> Any:
        return (object() if has_extra else None) if name == "xllamacpp" else real(name)

    monkeypatch.setattr("importlib.util.find_spec", find_spec)
    text = done("setup")
    assert "No model can answer yet" in text and "homarus onboard" in text
    assert "homarus models auth add PROVIDER" in text and "homarus models pull demo" in text
    assert ("pip install 'homarus[local]', then homarus models pull demo" in text) is not has_extra
    assert "Next: homarus chat" not in text
    monkeypatch.setenv("OPENAI_API_KEY", "sk-env")
    assert done("setup").endswith("Next: homarus chat\n")
    assert json.loads(done("setup", "--json"))["next"] == ["Next: homarus chat"]
