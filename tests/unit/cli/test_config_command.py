"""`homarus config`, as a person types it."""

import json
import subprocess
import sys
from pathlib import Path

from click.testing import CliRunner, Result

from homarus.cli.config import command
from homarus.core.errors import ConfigError, UserError


def config(home: Path, text: str) -> Path:
    file = home / ".openclaw/openclaw.json"
    file.write_text(text)
    return file


def run(*args: str) -> Result:
    return CliRunner().invoke(command, args, standalone_mode=False)


def refused(*args: str) -> UserError:
    error = run(*args).exception
    assert isinstance(error, UserError)
    return error


def test_get_prints_text_bare_and_anything_else_as_json(home: Path) -> None:
    config(home, "{agents: {defaults: {workspace: '~/w', timeoutSeconds: 5}, list: [{id: 'a'}]}}")
    assert run("get", "agents.defaults.workspace").output == "~/w\n"
    assert run("get", "agents.defaults.timeoutSeconds").output == "5\n"
    assert run("get", "agents.list[0].id", "--json").output == '"a"\n'
    assert json.loads(run("get", "agents.list").output) == [{"id": "a"}]
    assert json.loads(run("get").output)["agents"]["defaults"]["timeoutSeconds"] == 5


def test_get_hides_secrets_in_sections_and_prints_a_requested_one(home: Path) -> None:
    config(home, "{models: {providers: {x: {apiKey: 'sk-1'}, y: {apiKey: '${KEY}'}}}}")
    shown = run("get", "models").output
    assert "sk-1" not in shown
    assert "__OPENCLAW_REDACTED__" in shown
    assert "${KEY}" in shown
    assert run("get", "models.providers.x.apiKey").output == "sk-1\n"


def test_get_distinguishes_unset_from_unknown_keys(home: Path) -> None:
    config(home, "{}")
    assert "is not set" in refused("get", "agents.defaults.workspace").message
    unknown = refused("get", "agents.defaults.workspce")
    assert "there is no key" in unknown.message
    assert unknown.fix == "did you mean workspace?"


def test_get_works_on_an_invalid_config(home: Path) -> None:
    config(home, "{agnts: 1, logging: {level: 'info'}}")
    assert run("get", "logging.level").output == "info\n"


def test_set_accepts_json5_or_text_and_prints_one_line(home: Path) -> None:
    file = config(home, "{ // mine\n}")
    done = run("set", "agents.defaults.model", "openai/gpt-5.2")
    assert done.stdout == "agents.defaults.model is set in ~/.openclaw/openclaw.json\n"
    assert done.stderr.startswith("warning: OpenClaw cannot read agents.defaults.model: ")
    run("set", "agents.defaults.timeoutSeconds", "30")
    run("set", 'agents.defaults.models["openai/gpt-5.2"]', "{alias: 'g'}")
    run("set", "agents.defaults.skipBootstrap", "true")
    assert "// mine" in file.read_text()
    defaults = json.loads(run("get", "agents.defaults").output)
    assert defaults == {
        "model": "openai/gpt-5.2",
        "timeoutSeconds": 30,
        "models": {"openai/gpt-5.2": {"alias": "g"}},
        "skipBootstrap": True,
    }


def test_set_twice_reports_no_change(home: Path) -> None:
    config(home, "{}")
    run("set", "logging.level", "debug")
    assert (
        run("set", "logging.level", "debug").output == "~/.openclaw/openclaw.json says so already\n"
    )


def test_set_with_json_requires_json5_and_answers_in_json(home: Path) -> None:
    config(home, "{logging: {}}")
    assert "not JSON5" in refused("set", "logging.level", "debug", "--json").message
    report = json.loads(run("set", "logging.level", "'debug'", "--json").output)
    assert report["ok"]
    assert report["changed"] == ["logging.level"]


def test_set_with_invalid_value_changes_nothing(home: Path) -> None:
    file = config(home, "{}")
    error = refused("set", "agents.defaults.timeoutSeconds", "soon")
    assert isinstance(error, ConfigError)
    assert "expected a whole number" in error.message
    assert "not a key path" in refused("set", "a..b", "1").message
    assert file.read_text() == "{}"


def test_set_warns_of_a_setting_without_effect(home: Path) -> None:
    config(home, "{browser: {}}")
    result = run("set", "canvasHost.enabled", "true")
    assert result.stderr == "warning: canvasHost is not built yet and has no effect\n"


def test_unset_removes_a_key_or_reports_it_missing(home: Path) -> None:
    file = config(home, "{logging: {level: 'info', file: 'x'}}")
    assert run("unset", "logging.file").output.startswith("logging.file is removed in ")
    assert "file" not in file.read_text()
    assert "is not set" in refused("unset", "logging.file").message
    assert "no key" in refused("unset", "logging.fle").message


def test_validate_reports_a_valid_config(home: Path) -> None:
    assert run("validate").output == "~/.openclaw/openclaw.json does not exist: all defaults\n"
    config(home, "{}")
    result = run("validate")
    assert (result.output, result.return_value) == ("~/.openclaw/openclaw.json is valid\n", 0)


def test_validate_lists_every_error(home: Path) -> None:
    file = config(home, "{\n one: 1,\n logging: {\n  level: 5}, talk: {}}")
    result = run("validate")
    assert result.return_value == 2
    first, second, third = result.stderr.splitlines()
    assert first.startswith(f"{file}:2: one: unknown key")
    assert second.startswith(f"{file}:4: logging.level: expected one of")
    assert third.startswith("warning: ")
    report = json.loads(run("validate", "--json").output)
    assert report["ok"] is False
    assert [(issue["line"], issue["key"]) for issue in report["issues"]] == [
        (2, "one"),
        (4, "logging.level"),
    ]
    assert len(report["warnings"]) == 1


def test_validate_reports_a_syntax_error_like_others(home: Path) -> None:
    config(home, "{\n a: }")
    report = json.loads(run("validate", "--json").output)
    assert [issue["line"] for issue in report["issues"]] == [2]


def test_schema_is_a_json_schema_with_config_keys(home: Path) -> None:
    schema = json.loads(run("schema").output)
    assert {"agents", "models", "$schema"} <= schema["properties"].keys()
    assert "timeoutSeconds" in schema["$defs"]["AgentDefaults"]["properties"]
    model = schema["$defs"]["AgentDefaults"]["properties"]["model"]
    assert {"type": "string"} in schema["$defs"]["ModelChoice"]["anyOf"]
    assert "ModelChoice" in json.dumps(model)


def test_get_imports_neither_pydantic_nor_the_key_list(home: Path) -> None:
    config(home, "{channels: {telegram: {enabled: true}}}")
    program = (
        "import sys; from homarus.cli.config import command\n"
        "command.main(['get', 'channels'], standalone_mode=False)\n"
        "print([name for name in ('pydantic', 'json5', 'asyncio', 'homarus.config.known_keys')"
        " if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_set_model_of_unknown_provider_warns_with_the_nearest(home: Path) -> None:
    file = config(home, "{}")
    result = run("set", "agents.defaults.model.primary", "opnai/gpt-5.2")
    assert "unknown provider 'opnai'" in result.stderr and "openai" in result.stderr
    assert "opnai/gpt-5.2" in file.read_text()
    assert "Warning" not in run("set", "agents.defaults.model.primary", "openai/gpt-5.2").stderr


def test_validate_warns_about_tool_name_that_means_nothing(home: Path) -> None:
    config(home, '{tools: {deny: ["file_wriet", "shell"]}}')
    found = json.loads(run("validate", "--json").output)
    (text,) = [each for each in found["warnings"] if "file_wriet" in each]
    assert found["ok"] and "did you mean file_write" in text
