"""`homarus import` of a home that OpenClaw 2026.9.6 made: every kind, and an unchanged source."""

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from homarus.testing.model_server import ModelServer, Say
from tests.e2e.program import Done, Home
from tests.openclaw_databases import file_contents
from tests.peers.gateway import new_home
from tests.peers.install import Original, bare_env

pytestmark = [pytest.mark.peers, pytest.mark.timeout(1200)]  # the first run installs it

READY_S = 180.0
KEY = "sk-" + "import-test"  # no key of a service


class SourceProgram:
    """OpenClaw in a home of its own."""

    def __init__(self, folder: Path, newest: Original) -> None:
        self.folder, self._newest = folder, newest
        self._env = {**bare_env(folder), "NO_PROXY": "127.0.0.1"}

    def run(self, *args: str, text: str = "") -> Done:
        done = subprocess.run(
            self._newest.command(*args),
            env=self._env,
            cwd=self.folder,
            input=text,
            capture_output=True,
            text=True,
            timeout=READY_S,
            check=False,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def check(self, *args: str, text: str = "") -> None:
        done = self.run(*args, text=text)
        assert done.status == 0, done.err + done.out

    @contextmanager
    def gateway(self) -> Iterator[None]:
        """Run the gateway while the block lasts."""
        with (self.folder / "gateway.log").open("w") as log:
            process = subprocess.Popen(
                self._newest.command("gateway", "run"),
                env=self._env, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
            try:
                deadline_s = time.monotonic() + READY_S
                while "[gateway] ready" not in (text := Path(log.name).read_text()):
                    assert process.poll() is None and time.monotonic() < deadline_s, text
                    time.sleep(0.2)
                yield
            finally:
                os.killpg(process.pid, signal.SIGTERM)
                try:
                    process.wait(timeout=20)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()


@pytest.fixture
def source(newest: Original, model: ModelServer, tmp_path: Path) -> SourceProgram:
    """Return a home with a conversation, a note, a credential and a job."""
    (tmp_path / "source").mkdir()
    program = SourceProgram(tmp_path / "source", newest)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    skipped = ("daemon", "health", "channels", "skills", "search", "ui", "hooks")
    program.check(
        "onboard", "--non-interactive", "--accept-risk", "--auth-choice", "custom-api-key",
        "--custom-base-url", model.url, "--custom-api-key", "sk-test",
        "--custom-provider-id", "mock", "--custom-model-id", "mock-1",
        "--gateway-auth", "token", "--gateway-token", "import-0123456789abcdef",
        "--gateway-port", str(port), "--json", *(f"--skip-{each}" for each in skipped),
    )  # fmt: skip
    model.script([Say("The lamp is green.")])
    program.check("agent", "--local", "--agent", "main", "--message", "Which colour?")
    program.check("models", "auth", "paste-api-key", "--provider", "openai", text=f"{KEY}\n")
    with program.gateway():
        program.check(
            "cron", "add", "--name", "Morning", "--cron", "0 7 * * *", "--session", "isolated",
            "--message", "What is new?", "--json",
        )  # fmt: skip
    notes = program.folder / ".openclaw/workspace/memory"
    notes.mkdir(parents=True, exist_ok=True)
    (notes / "2026-11-15.md").write_text("# 2026-11-15\n")
    return program


def test_home_of_newest_openclaw_is_imported_unchanged(
    source: SourceProgram, model: ModelServer, tmp_path: Path
) -> None:
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "TZ") if name in os.environ}
    (tmp_path / "target").mkdir()
    home: Home = new_home(tmp_path / "target", kept, model)
    before = file_contents(source.folder)
    planned = home.run("import", str(source.folder), "--dry-run", "--json").json["kinds"]
    counts = home.run("import", str(source.folder), "--json").json["kinds"]
    assert counts == planned
    assert file_contents(source.folder) == before
    for kind in ("sessions", "memory", "cronJobs", "credentials"):
        assert counts[kind]["imported"] == 1, counts
        assert counts[kind]["after"] == counts[kind]["before"] + 1
    profiles = json.loads((home.state / "agents/main/agent/auth-profiles.json").read_text())
    assert profiles["profiles"]["openai:manual"]["key"] == KEY
    model.script([Say("Still green.")])
    assert "Still green." in home.run("agent", "--message", "And now?").out
    assert "The lamp is green." in json.dumps(model.requests[-1].body)
    again = home.run("import", str(source.folder), "--json").json["kinds"]
    assert not any(one["imported"] + one["updated"] for one in again.values())
