"""`homarus agents` and `homarus prompt` without a gateway: the files themselves."""

import asyncio
import json
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from homarus.cli.agents import command as agents_command
from homarus.cli.prompt import command as prompt_command
from homarus.core.errors import UserError
from homarus.core.message import user_message
from homarus.sessions.session import SessionRepository
from homarus.store.sqlite import open_store
from homarus.testing.clock import FakeClock

PROVIDER = {
    "baseUrl": "http://127.0.0.1:9/v1",
    "apiKey": "sk-test",
    "models": [{"id": "mock-1", "name": "Mock", "contextWindow": 100_000}],
}


@pytest.fixture
def home(home: Path) -> Path:
    config = {
        "models": {"providers": {"mock": PROVIDER}},
        "agents": {"defaults": {"model": {"primary": "mock/mock-1"}}},
        "logging": {"file": str(home / "log")},
    }
    (home / ".openclaw" / "openclaw.json").write_text(json.dumps(config))
    return home


def run(*args: str, command: click.Command = agents_command, text: str = "") -> Result:
    return CliRunner().invoke(command, args, input=text, standalone_mode=False)


def told(*args: str, command: click.Command = agents_command) -> Any:
    done = run(*args, "--json", command=command)
    assert done.exception is None, done.exception
    return json.loads(done.stdout)


def refused(*args: str) -> UserError:
    error = run(*args).exception
    assert isinstance(error, UserError)
    return error


def written(home: Path) -> Any:
    return json.loads((home / ".openclaw" / "openclaw.json").read_text("utf-8"))


def test_agents_add_list_and_delete_one(home: Path) -> None:
    made = told("add", "Night Shift", "--model", "mock/mock-1", "--bind", "telegram")
    folder = home / ".openclaw" / "workspace-night-shift"
    assert made == {
        "agentId": "night-shift",
        "name": "Night Shift",
        "workspace": str(folder),
        "model": "mock/mock-1",
    }
    assert (folder / "BOOTSTRAP.md").exists()
    main, night = told("list", "--bindings")
    assert main["isDefault"] and main["id"] == "main"
    assert night["bindingDetails"] == ["telegram"] and night["model"] == "mock/mock-1"
    assert night["agentDir"] == str(home / ".openclaw" / "agents" / "night-shift" / "agent")
    assert "night-shift  Night Shift" in run("list").stdout
    assert told("delete", "night-shift", "--force")["removedBindings"] == 1
    assert [row["id"] for row in told("list")] == ["main"]
    assert not folder.exists()


def test_agents_delete_archives_its_sessions(home: Path) -> None:
    told("add", "ops")
    state = home / ".openclaw"

    async def talk() -> None:
        async with open_store(state) as store:
            session = await SessionRepository(store, FakeClock()).load("agent:ops:main", "ops")
            await session.start_turn(user_message("hi"), provider="mock", model="mock-1")

    async def left() -> int:
        async with open_store(state) as store:
            return len(await store.sessions(agent="ops"))

    asyncio.run(talk())
    assert run("delete", "ops", text="n\n").exception  # a person is asked
    assert asyncio.run(left()) == 1
    assert run("delete", "ops", text="y\n").exception is None
    assert asyncio.run(left()) == 0


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (("add", "main"), "reserved"),
        (("add", "--non-interactive"), "no name"),
        (("add", "x", "--workspace", "/"), "gateway's own state"),
        (("add", "x", "--model", "nobody/knows"), ""),
        (("add", "x", "--bind", ":"), "names no channel"),
        (("delete", "main", "--force"), "cannot be deleted"),
        (("delete", "nobody", "--force"), "nobody"),
        (("delete", "nobody", "--json"), "nobody"),
        (("set-identity",), "nothing to set"),
        (("set-identity", "--agent", "nobody", "--name", "x"), "nobody"),
        (("set-identity", "--workspace", "/nowhere", "--name", "x"), "no agent lives"),
    ],
)
def test_agents_add_with_invalid_values_changes_nothing(
    args: tuple[str, ...], why: str, home: Path
) -> None:
    before = written(home)
    assert why in str(refused(*args))
    assert written(home) == before
    assert not (home / ".openclaw" / "workspace-x").exists()


def test_agents_set_identity_from_options_or_identity_file(home: Path) -> None:
    told("add", "ops")
    done = told("set-identity", "--agent", "ops", "--name", "Nyx", "--emoji", "🌙")
    assert done == {"agentId": "ops", "identity": {"name": "Nyx", "emoji": "🌙"}}
    folder = home / ".openclaw" / "workspace-ops"
    (folder / "IDENTITY.md").write_text("---\nname: Ada\ntheme: calm\navatar: me.png\n---\n")
    told("set-identity", "--workspace", str(folder), "--from-identity", "--name", "Eva")
    entry = next(one for one in written(home)["agents"]["list"] if one["id"] == "ops")
    assert entry["identity"] == {
        "name": "Eva",
        "emoji": "🌙",
        "theme": "calm",
        "avatar": "me.png",
    }
    assert (told("list")[1]["identityName"], told("list")[1]["identityEmoji"]) == ("Eva", "🌙")


def test_agents_set_identity_creature_and_vibe_are_in_homarus_json(home: Path) -> None:
    told("set-identity", "--creature", "lobster", "--vibe", "calm", "--theme", "sea")
    assert written(home)["agents"]["list"] == [{"id": "main", "identity": {"theme": "sea"}}]
    own = json.loads((home / ".openclaw" / "homarus.json").read_text("utf-8"))
    identity = {"creature": "lobster", "vibe": "calm"}
    assert own["agents"]["list"] == [{"id": "main", "identity": identity}]
    text = run("--agent", "main", command=prompt_command).stdout
    assert "Your identity: creature: lobster; vibe: calm; theme: sea." in text


def test_agents_add_without_list_keeps_the_default_agent(home: Path) -> None:
    own = {"agents": {"defaults": {"agentId": "ada"}, "list": [{"id": "ada"}]}}
    (home / ".openclaw" / "homarus.json").write_text(json.dumps(own))
    told("add", "ops")
    rows = {row["id"]: row["isDefault"] for row in told("list")}
    assert rows == {"ada": True, "ops": False}


def test_prompt_prints_text_and_figures(home: Path) -> None:
    shown = run(command=prompt_command).stdout
    assert shown.startswith("You are Homarus,") and "## Project Context" in shown
    figures = run("--report", command=prompt_command).stdout
    assert "System prompt: " in figures and "AGENTS.md: " in figures and "exec: " in figures
    found = told("--session", "agent:main:slack:channel:c1", "--report", command=prompt_command)
    assert "text" not in found and found["sessionKey"] == "agent:main:slack:channel:c1"
    assert found["report"]["source"] == "estimate" and found["report"]["provider"] == "mock"
    names = [file["name"] for file in found["report"]["injectedWorkspaceFiles"]]
    assert names == ["AGENTS.md", "SOUL.md", "TOOLS.md", "IDENTITY.md", "USER.md"]
    assert (home / ".openclaw" / "workspace" / "AGENTS.md").exists()


def test_prompt_of_another_agent_is_its_own(home: Path) -> None:
    told("add", "ops")
    folder = home / ".openclaw" / "workspace-ops"
    (folder / "SOUL.md").write_text("Be a pirate.")
    assert "Be a pirate." in run("--agent", "ops", command=prompt_command).stdout
    assert "Be a pirate." not in run(command=prompt_command).stdout
    assert isinstance(run("--agent", "nobody", command=prompt_command).exception, UserError)
