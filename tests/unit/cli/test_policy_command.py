"""`homarus policy explain`: every layer's verdict, without a gateway."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from homarus.cli.policy import command
from homarus.core.errors import UnknownNameError, UserError
from homarus.store.base import SessionRecord
from homarus.store.sqlite import open_store

GROUP = "agent:main:telegram:group:-100"
CONFIG: dict[str, Any] = {
    "agents": {
        "defaults": {"model": {"primary": "mock/m"}},
        "list": [{"id": "main"}, {"id": "work", "tools": {"profile": "messaging"}}],
    },
    "tools": {
        "byProvider": {"ollama": {"deny": ["exec"]}},
        "elevated": {"allowFrom": {"telegram": ["7"]}},
    },
    "channels": {
        "telegram": {
            "botToken": "1:x",
            "allowFrom": ["7"],
            "groups": {"-100": {"tools": {"deny": ["shell"]}, "toolsBySender": {"9": {}}}},
        }
    },
}


@pytest.fixture(autouse=True)
def config(home: Path) -> None:
    (home / ".openclaw/openclaw.json").write_text(json.dumps(CONFIG))
    (home / ".openclaw/workspace").mkdir()


def run(*args: str) -> Result:
    return CliRunner().invoke(command, ["explain", *args], standalone_mode=False)


def explain(*args: str) -> dict[str, Any]:
    done = run(*args, "--json")
    assert done.exception is None, done.exception
    found: dict[str, Any] = json.loads(done.output)
    return found


def test_explain_prints_every_layer_and_the_taint_rules(home: Path) -> None:
    done = run("read")
    lines = done.output.splitlines()
    assert lines[0] == "read: allow, by default: no rule forbids it"
    assert "the owner in agent:main:main, model mock/m" in lines[1]
    layers = [line.split()[0] for line in lines[2:12]]
    assert layers == [
        "profile", "allow", "deny", "owner-only", "byProvider", "elevated", "sandbox/sub-agent",
        "tool", "exec", "taint",
    ]  # fmt: skip
    assert "untrusted content" in lines[12] and len(lines) == 18
    assert not (home / ".openclaw/workspace/AGENTS.md").exists()  # nothing is made


@pytest.mark.parametrize(
    ("args", "tool", "action", "layer"),
    [
        (("read", "--agent", "work"), "read", "deny", "profile"),
        (("bash", "--model", "ollama/tiny"), "exec", "deny", "byProvider"),
        (("file_write",), "write", "allow", "default"),
        (("cron", "--sender", "telegram:8"), "cron", "deny", "owner-only"),
        (("cron", "--sender", "telegram:7"), "cron", "allow", "owner-only"),
        (("shell", "--session", GROUP, "--sender", "8"), "exec", "deny", "deny"),
        (("shell", "--session", GROUP, "--sender", "9"), "exec", "ask", "exec"),
        (("session_status", "--session", "agent:main:subagent:1"), "session_status", "deny",
         "sandbox/sub-agent"),
    ],
)  # fmt: skip
def test_explain_names_the_layer_that_decides(
    args: tuple[str, ...], tool: str, action: str, layer: str
) -> None:
    found = explain(*args)
    assert (found["tool"], found["action"], found["layer"]) == (tool, action, layer)
    assert len(found["verdicts"]) == 10 and found["taintRules"]["exec"]


def test_explain_of_command_uses_its_preparation() -> None:
    found = explain("exec", "--args", '{"command": "echo $(id)"}')
    assert found["action"] == "ask" and found["notes"] == []
    found = explain("exec", "--args", '{"cmd": "ls"}')
    assert "not prepared" in found["notes"][0] and "cmd" in found["notes"][0]


def test_explain_uses_stored_settings_of_session(home: Path) -> None:
    key = "agent:main:telegram:direct:7"

    async def save() -> None:
        data = {"execSecurity": "deny", "elevatedLevel": "full", "sessionId": "s"}
        async with open_store(home / ".openclaw") as store, store.transaction() as transaction:
            transaction.put_session(SessionRecord(key, "main", "s", 1, data))

    asyncio.run(save())
    found = explain("exec", "--session", key, "--sender", "telegram:7")
    assert found["exec"]["security"] == "deny" and found["elevated"] == "full"
    assert (found["action"], found["layer"]) == ("deny", "exec")
    assert explain("exec", "--session", key, "--sender", "telegram:8")["elevated"] == "off"


@pytest.mark.parametrize(
    "args", [("exec", "--args", "{"), ("exec", "--args", "[]"), ("exec", "--sender", "8")]
)
def test_explain_unclear_question_is_refused(args: tuple[str, ...]) -> None:
    error = run(*args).exception
    assert isinstance(error, UserError) and error.fix


def test_explain_unknown_tool_suggests_the_closest() -> None:
    error = run("exce").exception
    assert isinstance(error, UnknownNameError) and "exec" in error.fix


def sandboxed(home: Path, **tools: Any) -> None:
    agents = {"defaults": {"model": {"primary": "mock/m"}, "sandbox": {"mode": "non-main"}}}
    tree = {**CONFIG, "agents": agents, "tools": {**CONFIG["tools"], **tools}}
    (home / ".openclaw/openclaw.json").write_text(json.dumps(tree))


def test_explain_of_sandboxed_session_shows_layer_and_place(home: Path) -> None:
    key = "agent:main:telegram:direct:7"
    sandboxed(home, sandbox={"tools": {"deny": ["write"], "alsoAllow": ["memory_get"]}})
    found = explain("write", "--session", key)
    assert (found["action"], found["layer"]) == ("deny", "sandbox/sub-agent")
    assert found["reason"] == "write is denied by 'write' of tools.sandbox.tools"
    assert found["isSandboxed"] and found["place"] is None
    found = explain("memory_search", "--session", key)
    assert "the default tools of sandboxes, extended by tools.sandbox.tools" in found["reason"]
    assert explain("memory_get", "--session", key)["action"] == "allow"
    found = explain("exec", "--session", key, "--args", '{"command": "echo $(id)"}')
    assert (found["action"], found["layer"], found["place"]) == ("allow", "exec", "sandbox")
    assert "sandbox of level L2" in found["reason"]
    assert "in the sandbox of the agent, if level L2" in found["notes"][0]
    assert explain("exec")["place"] == "gateway" and not explain("exec")["isSandboxed"]


def test_explain_of_elevated_command_says_that_it_leaves_the_sandbox(home: Path) -> None:
    key, sender = "agent:main:telegram:direct:7", ("--sender", "telegram:7")
    sandboxed(home)
    args = ("exec", "--session", key, "--args", '{"command": "touch x", "elevated": true}')
    found = explain(*args, *sender)
    assert (found["action"], found["place"]) == ("ask", "gateway")
    assert "outside the sandbox" in found["notes"][0]
    found = explain(*args, "--sender", "telegram:8")
    assert (found["action"], found["place"]) == ("deny", None)
    assert "runs nowhere" in found["notes"][0]
