"""OpenClaw's programs see our sub-agents: in its command line, in its terminal, in its own gateway.

`openclaw sessions` of 2026.2.17 reads the files of the state directory; that of 2026.9.6 reads
OpenClaw's database alone, so that its command line is asked for `sessions.list` of our gateway.
"""

import json
import os
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from homarus.testing.model_server import HangUntilDisconnect, ModelServer, Say
from tests.e2e.program import Home
from tests.peers.gateway import TOKEN, Running, call, new_home, running_gateway
from tests.peers.install import Original, bare_env, debian
from tests.peers.screen import shown

pytestmark = [pytest.mark.peers, pytest.mark.timeout(1200)]  # the first run installs it

READY_S = 120.0


def client_env(gateway: Running, folder: Path) -> dict[str, str]:
    return {
        **bare_env(folder),
        "TERM": "xterm-256color",
        "OPENCLAW_GATEWAY_PORT": str(gateway.port),
        "OPENCLAW_GATEWAY_TOKEN": TOKEN,
    }


def start_subagent(gateway: Running, session: str, task: str) -> dict[str, Any]:
    """Start a sub-agent of a session, as a person does; return its row."""
    text = f"/subagents spawn main {task}"
    call(gateway, "chat.send", sessionKey=session, message=text, idempotencyKey=uuid4().hex)
    deadline_s = time.monotonic() + READY_S
    while True:
        found = call(gateway, "subagents.list")
        rows = [row for row in (*found["active"], *found["recent"]) if row["task"] == task]
        if rows:
            row: dict[str, Any] = rows[0]
            return row
        assert time.monotonic() < deadline_s, found
        time.sleep(0.05)


def wait_for_end(gateway: Running, row: dict[str, Any]) -> None:
    deadline_s = time.monotonic() + READY_S
    while call(gateway, "subagents.info", target=row["runId"])["subagent"]["status"] == "running":
        assert time.monotonic() < deadline_s
        time.sleep(0.05)


@pytest.mark.parametrize("version", ["original", "newest"])
def test_openclaw_client_lists_the_sessions_of_subagents(
    version: str,
    gateway: Running,
    model: ModelServer,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    program: Original = request.getfixturevalue(version)
    session = f"agent:main:peer-{uuid4().hex[:8]}"
    model.script([HangUntilDisconnect()])
    row = start_subagent(gateway, session, f"Count {version}")
    params = ("--params", json.dumps({"spawnedBy": session}), "--json")
    where = ("--url", gateway.url, "--token", TOKEN)
    done = program.run(
        "gateway", "call", "sessions.list", *params, *where,
        env=client_env(gateway, tmp_path), cwd=tmp_path,
    )  # fmt: skip
    assert done.status == 0, done.err
    [listed] = done.json["sessions"]
    assert (listed["key"], listed["spawnedBy"]) == (row["sessionKey"], session)
    assert (listed["spawnDepth"], listed["status"]) == (1, "running")
    if version == "original":
        env = {**client_env(gateway, tmp_path), "OPENCLAW_STATE_DIR": str(gateway.home.state)}
        stored = program.run("sessions", "--json", env=env, cwd=tmp_path)
        assert row["sessionKey"] in [each["key"] for each in stored.json["sessions"]], stored.err
    call(gateway, "subagents.kill", target="all")


@pytest.mark.parametrize("version", ["original", "newest"])
def test_openclaw_terminal_shows_and_stops_subagents(
    version: str,
    gateway: Running,
    model: ModelServer,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    program: Original = request.getfixturevalue(version)
    debian(tmux="tmux")
    name = f"p{uuid4().hex[:8]}"
    model.script([HangUntilDisconnect()])
    row = start_subagent(gateway, f"agent:main:{name}", f"Count boats {version}")
    tui = program.command("tui", "--url", gateway.url, "--token", TOKEN, "--session", name)
    with shown(tui, client_env(gateway, tmp_path), tmp_path) as screen:
        screen.wait_for("connected | idle")
        screen.enter("/subagents list")
        screen.wait_for(f"running · run {row['runId'][:8]}")
        screen.enter("/subagents info 1")
        screen.wait_for("Status: running")
        screen.enter("/kill all")
        screen.wait_for("Stopped 1 sub-agent.")
    found = call(gateway, "subagents.info", target=row["runId"])
    assert found["subagent"]["status"] == "killed"


def test_state_directory_with_subagents_is_read_by_openclaw(
    original: Original, model: ModelServer, tmp_path: Path
) -> None:
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "TZ") if name in os.environ}
    home = new_home(tmp_path, kept, model)
    model.script([Say("There are 42 lamps.")], [Say("42 lamps.")], [HangUntilDisconnect()])
    with running_gateway(home) as gateway:
        done = start_subagent(gateway, "agent:main:main", "Count the lamps")
        wait_for_end(gateway, done)
        killed = start_subagent(gateway, "agent:main:main", "Count the boats")
        call(gateway, "subagents.kill", target=killed["runId"])
    runs_file = home.state / "subagents/runs.json"
    written = json.loads(runs_file.read_text(encoding="utf-8"))
    assert written["version"] == 2 and {*written["runs"]} == {done["runId"], killed["runId"]}
    log = run_openclaw(original, home)
    assert "subagent" not in log.lower(), log
    read = json.loads(runs_file.read_text(encoding="utf-8"))["runs"]
    assert read == written["runs"], "OpenClaw keeps them as they are, and announces none again"
    # And back: the same sub-agents are listed, and none of them is reported again.
    requests = len(model.requests)
    with running_gateway(home) as gateway:
        rows = call(gateway, "subagents.list")["recent"]
        assert {row["runId"]: row["status"] for row in rows} == {
            done["runId"]: "done",
            killed["runId"]: "killed",
        }
    assert len(model.requests) == requests


def run_openclaw(original: Original, home: Home) -> str:
    """Run OpenClaw's gateway on a home until it listens and has read its files; return its log."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    config = json.loads((home.state / "openclaw.json").read_text(encoding="utf-8"))
    provider = config["models"]["providers"]["mock"]
    provider["api"] = "openai-completions"
    auth = {"mode": "token", "token": TOKEN}
    home.configure({**config, "gateway": {"mode": "local", "port": port, "auth": auth}})
    log = home.path / "openclaw.log"
    with log.open("w") as output:
        process = subprocess.Popen(
            original.command("gateway", "run"),
            env={**bare_env(home.path), "NO_PROXY": "127.0.0.1"},
            cwd=home.path,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            deadline_s = time.monotonic() + READY_S
            url = ("--url", f"ws://127.0.0.1:{port}", "--token", TOKEN)
            while original.run(
                "gateway", "call", "health", *url, env=bare_env(home.path), cwd=home.path
            ).status:
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < deadline_s, log.read_text()
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    return log.read_text(encoding="utf-8")
