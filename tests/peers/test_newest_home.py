"""A home that OpenClaw 2026.9.6 made, used by us and by OpenClaw again, and imported.

OpenClaw keeps sessions in SQLite. We read them and change none of its files; what is said here is
in our own store, which OpenClaw does not read. One test has all steps: OpenClaw starts slowly.
"""

import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from homarus.testing.model_server import ModelServer, Say
from tests.e2e.program import Done, Home
from tests.openclaw_databases import file_contents
from tests.peers.gateway import new_home, running_gateway
from tests.peers.install import Original, bare_env

pytestmark = [pytest.mark.peers, pytest.mark.timeout(1200)]  # the first run installs it

LONG = "The lamp of the lobster is green. " * 60  # OpenClaw compresses it
# What we add to a home; OpenClaw has none of these names.
OURS = {
    "homarus/agents/main/agent/.auth-profiles.lock",
    "homarus/agents/main/agent/auth-profiles.json",  # how OpenClaw's key fared, and no key
    "homarus/devices/paired.json", "homarus/identity/device.json", "openclaw.last-good.json",
    "state.sqlite", "state.lock",
}  # fmt: skip
READY_S = 120.0
TOKEN = "newest-home-" + "0123456789abcdef"
KEY = "sk-" + "state-database"  # no key of a service


class NewestHome:
    """A home, the program that made it, and the model behind both programs."""

    def __init__(self, folder: Path, newest: Original, model: ModelServer) -> None:
        kept = {name: os.environ[name] for name in ("PATH", "LANG", "TZ") if name in os.environ}
        self.home = Home(folder, {**kept, "HOME": str(folder), "NO_PROXY": "127.0.0.1"})
        self.newest, self.model = newest, model
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self._env = {**bare_env(folder), "NO_PROXY": "127.0.0.1"}

    def openclaw(self, *args: str) -> Done:
        done = self.newest.run(*args, env=self._env, cwd=self.home.path)
        assert done.status == 0, done.err + done.out
        return done

    def onboard(self) -> None:
        """Make the home, with a key in OpenClaw's state database, and point it to the model."""
        skipped = ("daemon", "health", "channels", "skills", "search", "ui", "hooks")
        self.openclaw(
            "onboard", "--non-interactive", "--accept-risk", "--auth-choice", "together-api-key",
            "--together-api-key", KEY, "--gateway-auth", "token", "--gateway-token", TOKEN,
            "--gateway-port", str(self.port), "--json", *(f"--skip-{each}" for each in skipped),
        )  # fmt: skip
        tree = config(self)
        provider = tree["models"]["providers"]["together"]
        provider |= {"baseUrl": self.model.url, "models": [{"id": "mock-1", "name": "Mock"}]}
        tree["agents"]["defaults"]["model"] = {"primary": "together/mock-1"}
        tree["plugins"] = {"enabled": False}  # half of the time that it takes to start
        tree["gateway"]["http"] = {"endpoints": {"chatCompletions": {"enabled": True}}}
        assert KEY not in json.dumps(tree)
        (self.home.state / "openclaw.json").write_text(json.dumps(tree, indent=2))

    @contextmanager
    def openclaw_gateway(self) -> Iterator[None]:
        """Run OpenClaw's gateway while the block lasts; its start checks all files of the home."""
        with (self.home.path / "openclaw.log").open("w+") as log:
            process = subprocess.Popen(
                self.newest.command("gateway", "run"),
                env=self._env,
                cwd=self.home.path,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                deadline_s = time.monotonic() + READY_S
                while "[gateway] ready" not in (text := Path(log.name).read_text()):
                    assert process.poll() is None, text
                    assert time.monotonic() < deadline_s, text
                    time.sleep(0.2)
                yield
            finally:
                os.killpg(process.pid, signal.SIGTERM)
                try:
                    process.wait(timeout=20)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()

    def ask_gateway(self, text: str) -> str:
        """Send a message to the main session of OpenClaw's gateway, without starting its client."""
        body = {"model": "openclaw/main", "messages": [{"role": "user", "content": text}]}
        key = {"x-openclaw-session-key": "agent:main:main"}
        url = f"http://127.0.0.1:{self.port}/v1/chat/completions"
        headers = {"Authorization": f"Bearer {TOKEN}", **key}
        with httpx2.Client(trust_env=False, timeout=READY_S) as client:
            answer = client.post(url, json=body, headers=headers)
        assert answer.status_code == 200, answer.text
        return answer.text

    def files(self) -> dict[str, str]:
        """Return the hash of every file of the home."""
        files = (file for file in self.home.path.rglob("*") if file.is_file())
        return {
            str(file.relative_to(self.home.path)): hashlib.sha256(file.read_bytes()).hexdigest()
            for file in files
        }

    def sent(self) -> str:
        return json.dumps(self.model.requests[-1].body, ensure_ascii=False)


@pytest.fixture
def folder(newest: Original, model: ModelServer, tmp_path: Path) -> NewestHome:
    (tmp_path / "home").mkdir()
    return NewestHome(tmp_path / "home", newest, model)


def config(folder: NewestHome) -> dict[str, Any]:
    tree: dict[str, Any] = json.loads((folder.home.state / "openclaw.json").read_text())
    return tree


def test_home_of_newest_openclaw_is_continued_unchanged_and_imported(
    folder: NewestHome, tmp_path: Path
) -> None:
    home, model = folder.home, folder.model
    local = ("agent", "--local", "--agent", "main", "--thinking", "off", "--message")
    folder.onboard()
    assert "entries" in config(folder)["agents"], "the shape of 2026.9"
    model.script([Say(f"First answer. {LONG}")])
    folder.openclaw(*local, "First question")
    before = folder.files()

    # Ours, without and with a gateway: the conversation is listed and continued.
    assert home.run("config", "validate").status == 0
    assert "1 conversation of OpenClaw" in home.run("doctor", "--all").out
    (listed,) = home.run("sessions", "--json").json["sessions"]
    assert listed["key"] == "agent:main:main"
    model.script([Say("Second answer.")])
    done = home.run("agent", "--message", "Second question")
    assert "Second answer." in done.out, done.err
    assert model.requests[-1].headers["authorization"] == f"Bearer {KEY}", "of OpenClaw's database"
    assert "First question" in folder.sent() and LONG.strip() in folder.sent()
    with running_gateway(home) as gateway:
        model.script([Say("Third answer.")])
        done = home.run("agent", "--message", "Third question", OPENCLAW_GATEWAY_TOKEN=TOKEN)
        assert done.status == 0, done.err + gateway.log
    assert all(text in folder.sent() for text in ("First question", "Second answer."))

    # Every file of OpenClaw has its bytes, and only known files of ours are new.
    after = folder.files()
    assert {name: after.get(name) for name in before} == before
    added = {name.removeprefix(".openclaw/") for name in after.keys() - before.keys()}
    assert {name for name in added if not name.startswith("logs/")} == OURS
    ours = [(home.state / name).read_bytes() for name in OURS]
    assert not any(KEY.encode() in data for data in ours), "the key is copied nowhere"

    # OpenClaw again: it starts, and its conversation continues, while we list it.
    with folder.openclaw_gateway():
        model.script([Say("Fourth answer.")])
        assert "Fourth answer." in folder.ask_gateway("Fourth question")
        assert "First question" in folder.sent() and "Second question" not in folder.sent()
        refused = home.run("gateway", "run")
        assert refused.status != 0 and "a gateway of OpenClaw" in refused.err
        (row,) = home.run("sessions", "--json").json["sessions"]
        assert row["sessionId"] == listed["sessionId"] and row["updatedAt"] > listed["updatedAt"]
        folder.openclaw(
            "cron", "add", "--name", "Morning", "--cron", "0 7 * * *", "--session", "isolated",
            "--message", "What is new?", "--json",
        )  # fmt: skip

    # And ours again has both.
    model.script([Say("Fifth answer.")])
    assert home.run("agent", "--message", "Fifth question").status == 0
    said = [
        "First question",
        "Second answer.",
        "Third question",
        "Fourth question",
        "Fourth answer.",
    ]
    assert all(text in folder.sent() for text in said)

    # A copy of the home without our files is imported into another one.
    source = tmp_path / "source"
    ours_alone = shutil.ignore_patterns("homarus", "state.sqlite*", "state.lock", "openclaw.last-*")
    shutil.copytree(home.path, source, ignore=ours_alone)
    notes = source / ".openclaw/workspace/memory"
    notes.mkdir(parents=True, exist_ok=True)
    (notes / "2026-11-15.md").write_text("# 2026-11-15\n")
    check_import(folder, source, tmp_path / "target")


def check_import(folder: NewestHome, source: Path, target: Path) -> None:
    """Import every kind, continue the conversation, and import again without an effect."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "TZ") if name in os.environ}
    target.mkdir()
    home, model = new_home(target, kept, folder.model), folder.model
    before = file_contents(source)
    planned = home.run("import", str(source), "--dry-run", "--json").json["kinds"]
    counts = home.run("import", str(source), "--json").json["kinds"]
    assert counts == planned
    assert file_contents(source) == before
    for kind in ("sessions", "memory", "cronJobs", "credentials"):
        assert counts[kind]["imported"] == 1, counts
        assert counts[kind]["after"] == counts[kind]["before"] + 1
    profiles = json.loads((home.state / "agents/main/agent/auth-profiles.json").read_text())
    assert KEY in {each["key"] for each in profiles["profiles"].values()}
    model.script([Say("Sixth answer.")])
    assert "Sixth answer." in home.run("agent", "--message", "Sixth question").out
    assert "First question" in folder.sent() and "Fourth answer." in folder.sent()
    again = home.run("import", str(source), "--json").json["kinds"]
    assert not any(one["imported"] + one["updated"] for one in again.values())
