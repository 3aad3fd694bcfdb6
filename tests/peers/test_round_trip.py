"""One folder used by OpenClaw, by us, by OpenClaw and by us again loses and changes nothing.

Every file that neither program had a reason to change is compared by its bytes.
"""

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from homarus.testing.model_server import ModelServer, Say
from tests.e2e.program import Done, Home
from tests.peers.gateway import new_home, running_gateway
from tests.peers.install import Original, bare_env

pytestmark = [pytest.mark.peers, pytest.mark.timeout(1200)]  # the first run installs it

READY_S = 90.0
KEY = "agent:main:main"
TOKEN = "round-trip-" + "0123456789abcdef"
FREE = {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0}
# What both programs write with every turn; the conversation itself is checked separately.
WRITTEN = ("agents/main/sessions/", "logs/", "identity/", "devices/")
OURS = ("state.sqlite", "gateway", "homarus", "last-good", "main.homarus.sqlite", "media/", "lock")


class Folder:
    """A home that both programs use, with the model behind them."""

    def __init__(self, home: Home, original: Original, model: ModelServer) -> None:
        self.home, self.original, self.model = home, original, model
        self.env = {**bare_env(home.path), "NO_PROXY": "127.0.0.1"}

    def openclaw(self, *args: str) -> Done:
        done = self.original.run(*args, env=self.env, cwd=self.home.path)
        assert done.status == 0, done.err
        return done

    def files(self) -> dict[str, bytes]:
        """Return every file with its bytes, without those of one turn and our own."""
        state = self.home.state
        found = {str(file.relative_to(state)): file for file in state.rglob("*") if file.is_file()}
        return {
            name: file.read_bytes()
            for name, file in sorted(found.items())
            if not name.startswith(WRITTEN) and not any(part in name for part in OURS)
        }

    def entry(self) -> dict[str, Any]:
        index = self.home.state / "agents/main/sessions/sessions.json"
        entry: dict[str, Any] = json.loads(index.read_text(encoding="utf-8"))[KEY]
        return entry

    def transcript(self) -> bytes:
        name = f"{self.entry()['sessionId']}.jsonl"
        return (self.home.state / "agents/main/sessions" / name).read_bytes()

    def sent(self) -> str:
        return json.dumps(self.model.requests[-1].body, ensure_ascii=False)

    @contextmanager
    def openclaw_gateway(self) -> Iterator[int]:
        """Run OpenClaw's gateway while the block lasts."""
        port = json.loads((self.home.state / "openclaw.json").read_text())["gateway"]["port"]
        process = subprocess.Popen(
            self.original.command("gateway", "run"),
            env=self.env,
            cwd=self.home.path,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            deadline_s = time.monotonic() + READY_S
            while not _accepts(port):
                assert process.poll() is None, "OpenClaw's gateway ended"
                assert time.monotonic() < deadline_s, "OpenClaw's gateway is not ready"
                time.sleep(0.2)
            yield port
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def _accepts(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture
def folder(original: Original, model: ModelServer, tmp_path: Path) -> Folder:
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "TZ") if name in os.environ}
    home = new_home(tmp_path, kept, model)
    config = json.loads((home.state / "openclaw.json").read_text(encoding="utf-8"))
    provider = config["models"]["providers"]["mock"]
    provider["api"] = "openai-completions"
    provider["models"][0].update(reasoning=False, input=["text"], cost=FREE)
    remote = {"baseUrl": model.url, "apiKey": "sk-test"}
    config["agents"]["defaults"]["memorySearch"] = {
        "provider": "openai",
        "model": "embed-1",
        "remote": remote,
        "query": {"minScore": 0},
    }
    auth = {"mode": "token", "token": TOKEN}
    config["gateway"] = {"mode": "local", "port": _free_port(), "auth": auth}
    home.configure(config)
    return Folder(home, original, model)


def found(done: Done) -> str:
    """Return the text that a search found, from the JSON between other lines of output."""
    results = json.loads(done.out[done.out.index("{") :])["results"]
    return "\n".join(result["snippet"] for result in results)


def test_folder_survives_openclaw_homarus_openclaw_homarus(folder: Folder) -> None:
    home, model = folder.home, folder.model
    # OpenClaw: a workspace, a note, a job, a conversation, an index.
    folder.openclaw("setup", "--workspace", str(home.workspace))
    (home.workspace / "MEMORY.md").write_text("- Ann's boat is called Lobster.\n", encoding="utf-8")
    with folder.openclaw_gateway():
        job = ("--every", "24h", "--system-event", "Look at the mail", "--session", "main")
        folder.openclaw("cron", "add", "--name", "Mail", *job)
        refused = home.run("gateway", "run")
        assert refused.status != 0 and "a gateway of OpenClaw" in refused.err
    model.script([Say("First answer.")])
    folder.openclaw(
        "agent", "--local", "--agent", "main", "--thinking", "off", "--message", "First question"
    )
    folder.openclaw("memory", "index")
    assert "Lobster" in found(folder.openclaw("memory", "search", "boat", "--json"))
    before, transcript, entry = folder.files(), folder.transcript(), folder.entry()
    assert {"openclaw.json", "cron/jobs.json", "memory/main.sqlite"} <= before.keys()

    # Ours: the same conversation, search, and every command that only looks.
    assert "1 conversation" in home.run("doctor", "--all").out
    assert home.run("sessions", "--json").json["count"] == 1
    with running_gateway(home) as gateway:
        assert "jobs      1, next run " in home.run("status", OPENCLAW_GATEWAY_TOKEN=TOKEN).out
        model.script([Say("Second answer.")])
        done = home.run("agent", "--message", "Second question", OPENCLAW_GATEWAY_TOKEN=TOKEN)
        assert done.status == 0, done.err + gateway.log
    assert "First question" in folder.sent() and "First answer." in folder.sent()
    assert "Lobster" in found(home.run("memory", "search", "boat", "--json"))
    assert folder.files() == before
    assert folder.transcript().startswith(transcript)
    kept = (
        "sessionId",
        "thinkingLevel",
        "lastChannel",
        "lastTo",
        "lastAccountId",
    )  # not skillsSnapshot: each program lists the skills that it has
    assert {key: folder.entry().get(key) for key in kept} == {key: entry.get(key) for key in kept}

    # OpenClaw again: it goes on, finds, and has its job.
    transcript = folder.transcript()
    model.script([Say("Third answer.")])
    folder.openclaw("agent", "--local", "--agent", "main", "--message", "Third question")
    assert "Second question" in folder.sent() and "Second answer." in folder.sent()
    assert "Lobster" in found(folder.openclaw("memory", "search", "boat", "--json"))
    assert folder.transcript().startswith(transcript)
    (saved,) = json.loads((home.state / "cron/jobs.json").read_text(encoding="utf-8"))["jobs"]
    assert saved["name"] == "Mail" and saved["enabled"]
    before = folder.files()

    # And ours again, without a gateway.
    transcript = folder.transcript()
    model.script([Say("Fourth answer.")])
    assert home.run("agent", "--message", "Fourth question").status == 0
    for text in ("First question", "Second answer.", "Third question", "Third answer."):
        assert text in folder.sent()
    assert folder.files() == before
    assert folder.transcript().startswith(transcript)


def test_openclaw_agent_command_runs_no_agent_of_its_own_after_refusal(folder: Folder) -> None:
    home, model = folder.home, folder.model
    config = json.loads((home.state / "openclaw.json").read_text(encoding="utf-8"))
    config["tools"] = {**config.get("tools", {}), "deny": ["group:nothing"]}
    home.configure(config)
    asked = len(model.requests)
    with running_gateway(home) as gateway:
        folder.env |= {
            "OPENCLAW_GATEWAY_PORT": str(gateway.port),
            "OPENCLAW_GATEWAY_TOKEN": TOKEN,
        }
        done = folder.openclaw("agent", "--agent", "main", "--message", "Hello")
    assert "there is no such group of tools" in done.out and "embedded" not in done.err
    assert len(model.requests) == asked
