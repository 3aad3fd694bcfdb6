"""The programs of OpenClaw 2026.9.6, which speak protocol 4, against our gateway.

They run with an empty home and no credential of any model, so an answer counts only when it
contains a word that only our scripted model knows.
"""

from pathlib import Path
from uuid import uuid4

import pytest

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

THINK = Delay(0.5)


@pytest.fixture
def env(gateway: Running, tmp_path: Path) -> dict[str, str]:
    return {
        **bare_env(tmp_path),
        "TERM": "xterm-256color",
        "OPENCLAW_GATEWAY_PORT": str(gateway.port),
        "OPENCLAW_GATEWAY_TOKEN": TOKEN,
    }


class Client:
    """Its command line."""

    def __init__(self, newest: Original, env: dict[str, str], folder: Path) -> None:
        self._newest, self._env, self._folder = newest, env, folder

    def __call__(self, *args: str) -> Done:
        return self._newest.run(*args, env=self._env, cwd=self._folder)


@pytest.fixture
def ask(newest: Original, env: dict[str, str], tmp_path: Path) -> Client:
    return Client(newest, env, tmp_path)


def word() -> str:
    return f"lobster-{uuid4().hex[:12]}"


def test_newest_client_shows_health_models_and_log(ask: Client, gateway: Running) -> None:
    health = ask("health")
    assert health.status == 0, health.err
    assert "Agents: main (default)" in health.out and str(gateway.home.state) in health.out
    assert "client connected: cli 2026.9.6" in gateway.log
    models = ask("models", "list")
    assert "mock/mock-1" in models.out, models.err
    assert "anthropic/" not in models.out, "models without a key are left out"
    log = ask("logs", "--plain", "--limit", "20")
    assert "gateway/server client connected: cli 2026.9.6" in log.out, log.err + log.out
    assert '{"' not in log.out, "its lines are read, not shown as they are"


def test_newest_client_runs_agent_twice_in_one_session(ask: Client, model: ModelServer) -> None:
    first, second = word(), word()
    model.script([Say(first)], [Say(second)])
    done = ask("agent", "--message", "Say the word.", "--session-id", "newest-1", "--json")
    assert done.status == 0, done.err
    assert [payload["text"] for payload in done.json["result"]["payloads"]] == [first]
    done = ask("agent", "--message", "And again.", "--session-id", "newest-1")
    assert second in done.out, done.err
    assert first in str(model.requests[-1].body)  # the second knew of the first


def test_newest_client_reports_refusals(ask: Client, gateway: Running) -> None:
    url = ("--url", gateway.url, "--token")
    wrong = ask("gateway", "call", "health", *url, "wrong", "--json")
    assert wrong.status != 0 and "unauthorized" in wrong.err + wrong.out
    unknown = ask("gateway", "call", "no.such", *url, TOKEN, "--json")
    assert unknown.status != 0 and "unknown method: no.such" in unknown.err + unknown.out
    listed = ask("devices", "list", "--json")
    assert listed.status == 0 and "paired" in listed.json, listed.err


@pytest.fixture
def tui(newest: Original, gateway: Running) -> list[str]:
    debian(tmux="tmux")
    return newest.command("tui", "--url", gateway.url, "--token", TOKEN)


def test_newest_terminal_chats_shows_tools_and_stops_run(
    tui: list[str], env: dict[str, str], model: ModelServer, gateway: Running, tmp_path: Path
) -> None:
    session, first, second, third = f"newest-{word()}", word(), word(), word()
    call(gateway, "sessions.patch", key=session, verboseLevel="full")
    (gateway.home.workspace / "lamp.txt").write_text("green\n")
    with shown([*tui, "--session", session], env, tmp_path) as screen:
        screen.wait_for("connected | idle")
        model.script([THINK, Say(first)])
        screen.enter("Say the word.")
        text = screen.wait_for(first)
        assert text.count("Say the word.") == 1, text
        screen.wait_for("connected | idle")
        model.script([THINK, CallTools(ScriptedCall("read", {"path": "lamp.txt"}))], [Say(second)])
        screen.enter("Which colour has the lamp?")
        text = screen.wait_for(second)
        assert "from lamp.txt" in text, "the card of the tool"
        screen.wait_for("connected | idle")
        model.script([Say(third), HangUntilDisconnect()])
        screen.enter("Never end.")
        screen.wait_for(third)
        screen.press("Escape")
        screen.wait_for("aborted")
        assert screen.text.count(second) == 1
    assert "client connected: openclaw-tui 2026.9.6" in gateway.log


def test_newest_terminal_commands_and_sessions_work(
    tui: list[str], env: dict[str, str], model: ModelServer, tmp_path: Path
) -> None:
    session, first, second = f"n{uuid4().hex[:8]}", word(), word()  # short: it is shown cut
    with shown([*tui, "--session", session], env, tmp_path) as screen:
        screen.wait_for("connected | idle")
        model.script([THINK, Say(first)])
        screen.enter("Say the word.")
        screen.wait_for(first)
        screen.enter("/status")
        screen.wait_for("Model: mock/mock-1")
        screen.enter("/model")
        screen.wait_for("mock/mock-1  Mock")
        screen.press("Enter")
        screen.wait_for("model set to mock/mock-1")
        screen.enter("/sessions")
        screen.wait_for("Filter")
        screen.wait_for(f"({session})")
        screen.press("Escape")
        screen.wait_for("Filter", gone=True)
        screen.enter("/new")
        screen.wait_for("new session: agent:main:tui-")
        model.script([THINK, Say(second)])
        screen.enter("Say another word.")
        text = screen.wait_for(second)
        assert first not in text and "failed" not in text and "error" not in text
    assert first not in str(model.requests[-1].body), "a new session has no history"
