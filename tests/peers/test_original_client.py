"""OpenClaw's own command-line client against our gateway.

It runs with an empty home and no credential of any model. Without a gateway it would run a model
itself, so an answer counts only when it contains a word that only our scripted model knows, and our
log shows the client.
"""

import json
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeAlias
from uuid import uuid4

import pytest
from websockets.sync.client import connect

from homarus.testing.model_server import (
    CallTools,
    Delay,
    HangUntilDisconnect,
    ModelServer,
    Say,
    ScriptedCall,
)
from tests.e2e.program import Done
from tests.peers.gateway import TOKEN, Running, call
from tests.peers.install import Original, bare_env, debian
from tests.peers.screen import shown

pytestmark = [pytest.mark.peers, pytest.mark.timeout(1200)]  # the first run installs it

KEY = "agent:main:main"
# An answer that arrives before its terminal has recorded the question leaves it waiting forever.
THINK = Delay(0.5)
# Read-only methods, with suitable params. The client must parse every answer.
READS: dict[str, dict[str, Any]] = {
    "agent.identity.get": {},
    "agents.files.get": {"agentId": "main", "name": "AGENTS.md"},
    "agents.files.list": {"agentId": "main"},
    "agents.list": {},
    "channels.status": {},
    "commands.list": {},
    "chat.history": {"sessionKey": KEY},
    "config.get": {},
    "config.schema": {},
    "cron.list": {},
    "cron.runs": {"id": "none"},
    "cron.status": {},
    "device.pair.list": {},
    "exec.approval.list": {},
    "exec.approvals.get": {},
    "health": {},
    "last-heartbeat": {},
    "logs.tail": {"limit": 5},
    "models.list": {},
    "node.list": {},
    "node.pair.list": {},
    "sessions.describe": {"key": KEY},
    "sessions.list": {},
    "sessions.messages.subscribe": {"key": KEY},
    "sessions.messages.unsubscribe": {"key": KEY},
    "sessions.subscribe": {},
    "sessions.unsubscribe": {},
    "sessions.preview": {"keys": [KEY]},
    "sessions.resolve": {"key": KEY},
    "sessions.usage": {},
    "skills.status": {},
    "status": {},
    "system-presence": {},
    "talk.config": {},
    "tts.providers": {},
    "tts.status": {},
    "usage.cost": {},
    "usage.status": {},
    "voicewake.get": {},
}
NOTHING = {"last-heartbeat"}  # whose answer may be null
WRITES = {
    "agent", "agent.wait", "agents.create", "agents.delete", "agents.files.set", "agents.update",
    "browser.request",
    "chat.abort", "chat.inject", "chat.send", "config.apply", "config.patch", "config.set",
    "cron.add", "cron.remove", "cron.run", "cron.update",
    "device.pair.approve", "device.pair.reject", "device.pair.remove", "device.token.revoke",
    "device.token.rotate", "exec.approval.request", "exec.approval.resolve",
    "exec.approval.waitDecision", "exec.approvals.set",
    "sessions.compact", "sessions.create", "sessions.delete", "sessions.patch", "sessions.reset",
    "set-heartbeats", "channels.logout", "send", "system-event", "wake",
    "skills.install", "skills.update", "wizard.cancel", "wizard.next", "wizard.start",
    "wizard.status", "channels.start", "message.action", "node.invoke", "node.pair.approve",
    "node.pair.reject", "node.rename",
}  # fmt: skip
FOR_NODES = {"skills.bins", "node.invoke.result", "node.describe"}  # from one, or about one
NEEDS_JOB = {"cron.get"}

Ask: TypeAlias = Callable[..., Done]


@pytest.fixture
def env(gateway: Running, tmp_path: Path) -> dict[str, str]:
    """Return an environment with an empty home; only it names the gateway."""
    return {
        **bare_env(tmp_path),
        "TERM": "xterm-256color",
        "OPENCLAW_GATEWAY_PORT": str(gateway.port),
        "OPENCLAW_GATEWAY_TOKEN": TOKEN,
    }


@pytest.fixture
def ask(original: Original, env: dict[str, str], tmp_path: Path) -> Ask:
    def run(*args: str) -> Done:
        return original.run(*args, env=env, cwd=tmp_path)

    return run


def claimed(gateway: Running) -> set[str]:
    """Return the methods that our gateway lists."""
    with connect(gateway.url, proxy=None) as socket:
        socket.recv()
        client = {"id": "test", "version": "1", "platform": "linux", "mode": "test"}
        params = {"minProtocol": 3, "maxProtocol": 3, "client": client, "auth": {"token": TOKEN}}
        frame = {"type": "req", "id": "1", "method": "connect", "params": params}
        socket.send(json.dumps(frame))
        hello = json.loads(socket.recv())
    assert hello["ok"], hello
    return set(hello["payload"]["features"]["methods"])


def connections(gateway: Running) -> int:
    return len(re.findall("client connected: cli ", gateway.log))


def word() -> str:
    """Return a unique word."""
    return f"lobster-{uuid4().hex[:12]}"


def test_openclaw_client_every_implemented_read_method_answers(ask: Ask, gateway: Running) -> None:
    names = claimed(gateway)
    others = WRITES | FOR_NODES | NEEDS_JOB
    assert names - READS.keys() - others == set(), "say whether these read or write"
    assert {"health", "status", "sessions.list", "chat.history", "config.get"} <= names
    before = connections(gateway)

    def call(name: str) -> tuple[str, Done]:
        url = ("--url", gateway.url, "--token", TOKEN)
        params = ("--params", json.dumps(READS[name]))
        return name, ask("gateway", "call", name, *url, *params, "--json")

    asked = sorted(names & READS.keys())
    with ThreadPoolExecutor(2) as pool:
        answers = dict(pool.map(call, asked))
    wrong = {name: done.err or done.out for name, done in answers.items() if done.status}
    assert wrong == {}
    for name, done in answers.items():
        assert isinstance(done.json, dict | list) or name in NOTHING, name
    assert connections(gateway) - before >= len(asked)


def test_openclaw_client_shows_health(ask: Ask, gateway: Running) -> None:
    before = connections(gateway)
    done = ask("health")
    assert done.status == 0, done.err
    assert "Agents: main (default)" in done.out
    assert str(gateway.home.state) in done.out
    assert connections(gateway) > before


def test_openclaw_client_shows_status(ask: Ask, gateway: Running) -> None:
    done = ask("status")
    assert done.status == 0, done.err
    assert re.search(rf"Gateway +│ local · ws://127\.0\.0\.1:{gateway.port}.*reachable", done.out)
    assert "auth token" in done.out
    assert "unreachable" not in done.out


def test_openclaw_client_runs_agent_twice_in_one_session(
    ask: Ask, gateway: Running, model: ModelServer
) -> None:
    first, second = word(), word()
    model.script([Say(first)], [Say(second)])
    before = connections(gateway)
    done = ask("agent", "--message", "Say the word.", "--session-id", "peer-1", "--json")
    assert done.status == 0, done.err
    assert done.json["status"] == "ok" and done.json["summary"] == "completed"
    assert [payload["text"] for payload in done.json["result"]["payloads"]] == [first]
    meta = done.json["result"]["meta"]
    assert meta["agentMeta"]["provider"] == "mock" and meta["durationMs"] >= 0
    done = ask("agent", "--message", "And again.", "--session-id", "peer-1")
    assert second in done.out, done.err
    assert connections(gateway) >= before + 2
    said = json.dumps(model.requests[-1].body)
    assert first in said and "And again." in said  # the second knew of the first


@pytest.mark.parametrize("whom", [("--to", "+15555550123"), ("--agent", "main")])
def test_openclaw_client_finds_session_by_person_or_agent(
    whom: tuple[str, str], ask: Ask, model: ModelServer
) -> None:
    only_ours = word()
    model.script([Say(only_ours)])
    assert only_ours in ask("agent", *whom, "--message", "Say the word.").out


def test_openclaw_client_reports_model_error(ask: Ask) -> None:
    done = ask("agent", "--session-id", "peer-2", "--json", "--message", "MOCK:fail:400")
    # As a result, because after an error it would run an agent of its own.
    assert json.loads(done.out)["status"] == "error" and "embedded" not in done.err
    assert "mock/mock-1: the request was not accepted (HTTP 400)" in done.out


def test_openclaw_client_reports_wrong_token(ask: Ask, gateway: Running) -> None:
    done = ask("gateway", "call", "health", "--url", gateway.url, "--token", "wrong", "--json")
    assert done.status != 0
    assert "1008" in done.err + done.out and "unauthorized" in done.err + done.out


def test_openclaw_client_reports_unknown_method(ask: Ask, gateway: Running) -> None:
    done = ask("gateway", "call", "no.such", "--url", gateway.url, "--token", TOKEN)
    assert done.status != 0 and "unknown method: no.such" in done.err + done.out


def test_openclaw_client_follows_log_and_lists_devices(ask: Ask, gateway: Running) -> None:
    where = ("--url", gateway.url, "--token", TOKEN)
    log = ask("logs", "--plain", "--limit", "20", *where)
    assert log.status == 0 and log.out.strip(), log.err
    devices = ask("devices", "list", "--json", *where)
    assert devices.status == 0, devices.err
    assert devices.json["paired"], "its own device was paired silently"


@pytest.fixture
def tui(original: Original, gateway: Running) -> list[str]:
    debian(tmux="tmux")
    return original.command("tui", "--url", gateway.url, "--token", TOKEN)


def test_openclaw_terminal_chats_with_agent(
    tui: list[str], env: dict[str, str], model: ModelServer, gateway: Running, tmp_path: Path
) -> None:
    first, second = word(), word()
    (gateway.home.workspace / "lamp.txt").write_text("green\n")
    with shown([*tui, "--session", "peer-tui"], env, tmp_path) as screen:
        screen.wait_for("connected | idle")
        model.script([THINK, Say(first)])
        screen.type("Say the word.")
        screen.press("Enter")
        assert "Say the word." in screen.wait_for(first)
        screen.wait_for("connected | idle")
        model.script([THINK, CallTools(ScriptedCall("read", {"path": "lamp.txt"}))], [Say(second)])
        screen.type("Which colour has the lamp?")
        screen.press("Enter")
        screen.wait_for(second)
        screen.wait_for("connected | idle")
    assert "client connected: gateway-client " in gateway.log


def test_openclaw_terminal_restores_history_and_stops_run(
    tui: list[str], env: dict[str, str], model: ModelServer, tmp_path: Path
) -> None:
    first, second = word(), word()
    session = [*tui, "--session", f"peer-{word()}"]
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
    with shown(session, env, tmp_path / "one") as screen:
        screen.wait_for("connected | idle")
        model.script([Say(first)])
        screen.type("Say the word.")
        screen.press("Enter")
        screen.wait_for(first)
    with shown(session, env, tmp_path / "two") as screen:
        assert "Say the word." in screen.wait_for(first)
        model.script([Say(second), HangUntilDisconnect()])
        screen.type("Never end.")
        screen.press("Enter")
        screen.wait_for(second)
        screen.press("Escape")
        screen.wait_for("aborted")


def test_openclaw_terminal_shows_tools_status_models_and_sessions(
    tui: list[str], env: dict[str, str], model: ModelServer, gateway: Running, tmp_path: Path
) -> None:
    session, answer = f"peer-{word()}", word()
    call(gateway, "sessions.patch", key=session, verboseLevel="full")
    (gateway.home.workspace / "lamp.txt").write_text("green\n")
    with shown([*tui, "--session", session], env, tmp_path) as screen:
        screen.wait_for("connected | idle")
        model.script([THINK, CallTools(ScriptedCall("read", {"path": "lamp.txt"}))], [Say(answer)])
        screen.enter("Which colour has the lamp?")
        assert "Read" in screen.wait_for(answer), "the card of the tool"
        screen.enter("/status")
        screen.wait_for("Recent sessions")
        screen.enter("/model")
        screen.wait_for("mock/mock-1  Mock")
        screen.press("Enter")
        screen.wait_for("model set to mock/mock-1")
        screen.enter("/sessions")
        screen.wait_for("Filter")
        screen.wait_for("→ Which colour has the lamp?")
        assert "failed" not in screen.text
