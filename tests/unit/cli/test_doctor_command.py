"""`homarus doctor` prints problems with their fixes, one summary line, and details on request."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from homarus.cli.doctor import command
from homarus.cli.models import command as models
from homarus.cli.setup import command as setup
from tests.openclaw_databases import put_profiles

PROVIDER = {"baseUrl": "http://127.0.0.1:9", "models": [{"id": "m", "name": "M"}]}
WORKING = {
    "models": {"providers": {"x": PROVIDER}},
    "agents": {"defaults": {"model": {"primary": "x/m"}}},
}


def run(home: Path, config: object, *args: str) -> Result:
    (home / ".openclaw/openclaw.json").write_text(json.dumps(config), encoding="utf-8")
    assert CliRunner().invoke(setup, []).exit_code == 0
    return CliRunner().invoke(command, list(args))


def test_doctor_of_a_working_home_is_one_line(home: Path) -> None:
    done = run(home, WORKING)
    assert (done.exit_code, done.output) == (0, "No problems found.\n")


def test_doctor_shows_problems_first_with_their_fix(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    model = {"primary": "openai/gpt-5.2"}
    missing = {"agents": {"defaults": {"model": model}}, "talk": {"voiceId": "x"}}
    lines = run(home, missing).output.splitlines()
    assert lines[0].startswith("✗ model: ") and lines[1].startswith("  → ")
    assert lines[2].startswith("! config: ") and "talk" in lines[2]
    assert lines[-1] == "1 problem, 1 warning."
    assert len(lines) == 4


def test_doctor_names_settings_without_effect_only_if_set(home: Path) -> None:
    for option in ("--all", "--json"):
        assert "canvasHost" not in run(home, WORKING, option).output
    done = run(home, {**WORKING, "canvasHost": {"enabled": True}, "session": {"mainKey": "x"}})
    assert done.exit_code == 0 and "canvasHost (there is no canvas)" in done.output
    assert "session.mainKey (the key of the main session" in done.output
    assert done.output.endswith("No problems found, 1 warning.\n")
    assert "talk" not in done.output


@pytest.mark.parametrize(
    ("heartbeat", "shown"),
    [
        ({"target": "telegramm"}, "heartbeat.target 'telegramm' is no channel"),
        ({"target": "telegram", "accountId": "work"}, "heartbeat.accountId 'work' is no account"),
        ({"target": "last", "accountId": "work"}, "heartbeat.accountId 'work' is no account"),
        ({"session": "agent:other:main"}, "heartbeat.session 'agent:other:main' is of another"),
        ({"model": "nope/x"}, "heartbeat.model of agent main"),
        ({"target": "none", "to": "7", "accountId": "x"}, ""),
        ({"target": "telegram", "accountId": "default", "session": "main"}, ""),
        ({"every": "0m", "target": "telegramm"}, ""),
    ],
)
def test_doctor_names_heartbeats_that_never_run(
    home: Path, heartbeat: dict[str, str], shown: str
) -> None:
    defaults = {"model": {"primary": "x/m"}, "heartbeat": heartbeat}
    config = {**WORKING, "agents": {"defaults": defaults}, "channels": {"telegram": {}}}
    output = run(home, config).output
    assert (shown in output and "  → " in output) if shown else "heartbeat" not in output


def test_doctor_names_accounts_whose_settings_are_refused(home: Path) -> None:
    bot = {"enabled": True, "botToken": "1:x", "webhookHost": "bad host"}
    done = run(home, {**WORKING, "channels": {"telegram": bot}})
    assert done.exit_code == 1
    assert "✗ channel telegram:default: " in done.output and "webhookHost" in done.output
    unused = {"telegram": {**bot, "enabled": False}, "discord": {"token": "x"}}
    assert run(home, {**WORKING, "channels": unused}).exit_code == 0


def test_doctor_all_shows_every_check(home: Path) -> None:
    shown = run(home, WORKING, "--all").output
    for text in ("✓ config: ", "✓ agent main: ", "· model: x/m", "✓ disk: "):
        assert text in shown
    again = CliRunner().invoke(command, ["--verbose"]).output
    assert len(again.splitlines()) == len(shown.splitlines())


def test_doctor_shows_where_file_tools_reach(home: Path) -> None:
    assert "✓ agent main: file tools stay in the workspace" in run(home, WORKING, "--all").output
    done = run(home, {**WORKING, "tools": {"fs": {"workspaceOnly": False}}})
    assert "! agent main: in your conversations file tools read and write the whole" in done.output
    assert done.output.endswith("No problems found, 1 warning.\n")


def test_doctor_json_is_complete(home: Path) -> None:
    found = json.loads(run(home, WORKING, "--json").output)
    assert found["ok"] and found["notBuilt"] == []
    named = json.loads(run(home, {**WORKING, "canvasHost": {}}, "--json").output)
    assert named["notBuilt"] == ["canvasHost"]
    assert {"config", "agent main", "model", "state", "disk"} <= {
        row["about"] for row in found["findings"]
    }


def test_doctor_and_status_show_credentials_of_openclaw(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    database = home / ".openclaw/state/openclaw.sqlite"
    profile = {"type": "api_key", "provider": "openai", "key": "sk-test"}
    put_profiles(home / ".openclaw", {"openai:manual": profile})
    config = {"agents": {"defaults": {"model": {"primary": "openai/gpt-5.2"}}}}
    shown = run(home, config, "--all").output
    assert f"· credentials: read from OpenClaw's {database}: openai:manual" in shown
    status = json.loads(CliRunner().invoke(models, ["status", "--json"]).output)
    assert status["key"]["source"] == f"the auth profile openai:manual of OpenClaw ({database})"
    database.write_bytes(b"no database" * 200)
    assert "those of OpenClaw cannot be read" in run(home, config).output


def test_doctor_names_tool_names_that_mean_nothing(home: Path) -> None:
    done = run(home, {**WORKING, "tools": {"deny": ["shel"]}})
    assert "tools.deny: 'shel' is no tool and no group; did you mean shell" in done.output
    assert done.exit_code == 0


def test_doctor_warns_of_commands_that_run_as_root(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chats = {**WORKING, "channels": {"telegram": {"enabled": False}}}
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert "! exec: the exec tool runs commands as root" in run(home, chats).output
    denied = {**chats, "tools": {"exec": {"security": "deny"}}}
    assert "as root" not in run(home, denied).output
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert "as root" not in run(home, chats).output


def test_doctor_names_webhooks_that_cannot_be_served(home: Path) -> None:
    hooks: dict[str, object] = {"enabled": True, "token": "short"}
    done = run(home, {**WORKING, "hooks": hooks})
    assert done.exit_code == 1 and "✗ hooks: hooks.token: " in done.output
    gateway = {"auth": {"token": "t" * 24}}
    done = run(home, {**WORKING, "gateway": gateway, "hooks": hooks | {"token": "t" * 24}})
    assert done.exit_code == 1 and "something else" in done.output


def test_doctor_names_transforms_that_are_not_run(home: Path) -> None:
    mapping = {"id": "old", "match": {"path": "x"}, "transform": {"module": "old.ts"}}
    gmail = {"account": "me@mail.example", "pushToken": "p" * 20}
    hooks = {"enabled": True, "token": "h" * 24, "mappings": [mapping], "gmail": gmail}
    done = run(home, {**WORKING, "hooks": hooks}, "--all")
    assert done.exit_code == 0 and "! hooks: the mapping old " in done.output
    assert (
        "JavaScript" in done.output and "✓ hooks: webhooks are served below /hooks" in done.output
    )
    assert "hooks.gmail.account" in done.output and "gog" in done.output


def test_doctor_names_what_is_wrong_with_the_file_of_jobs(home: Path) -> None:
    file = home / ".openclaw/cron/jobs.json"
    file.parent.mkdir()
    file.write_text('{"version": 1, "jobs": [', encoding="utf-8")
    done = run(home, WORKING)
    assert (
        done.exit_code == 1 and "✗ cron: ~/.openclaw/cron/jobs.json cannot be read" in done.output
    )
    file.write_text('{"version": 1, "jobs": [{"id": "x", "name": "odd"}]}', encoding="utf-8")
    done = run(home, WORKING)
    assert done.exit_code == 0 and "! cron: " in done.output and "job 'odd'" in done.output
    file.write_text('{"version": 1, "jobs": []}', encoding="utf-8")
    assert "✓ cron: ~/.openclaw/cron/jobs.json: 0 jobs" in run(home, WORKING, "--all").output
