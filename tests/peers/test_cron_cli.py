"""OpenClaw's programs use our jobs, and ours use theirs.

`openclaw cron …` of 2026.2.17 and of 2026.9.6 drives our gateway over its WebSocket; a
`cron/jobs.json` that OpenClaw's gateway wrote runs here, and OpenClaw lists one that we wrote.
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
from uuid import uuid4

import pytest

from homarus.testing.model_server import ModelServer, Say
from tests.e2e.program import Done, Home
from tests.peers.gateway import TOKEN, Running, call, new_home, running_gateway
from tests.peers.install import Original, bare_env

pytestmark = [pytest.mark.peers, pytest.mark.timeout(1200)]  # the first run installs it

READY_S = 120.0
VERSIONS = ["original", "newest"]
FREE = {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0}


class CronClient:
    """`openclaw cron …` of one version, against a gateway."""

    def __init__(self, program: Original, port: int, folder: Path) -> None:
        self._program, self._folder = program, folder
        self._env = {
            **bare_env(folder),
            "OPENCLAW_GATEWAY_PORT": str(port),
            "OPENCLAW_GATEWAY_TOKEN": TOKEN,
        }

    def run(self, *args: str) -> Done:
        return self._program.run("cron", *args, env=self._env, cwd=self._folder)

    def ask(self, *args: str) -> Any:
        """Return the JSON that a command prints, after whatever it prints before."""
        done = self.run(*args)
        assert done.status == 0, f"{args}: {done.err}{done.out}"
        return json.loads(done.out[done.out.index("{") :])


@pytest.fixture(params=VERSIONS)
def client(request: pytest.FixtureRequest, gateway: Running, tmp_path: Path) -> CronClient:
    return CronClient(request.getfixturevalue(request.param), gateway.port, tmp_path)


def entries_of(gateway: Running, job_id: str) -> list[dict[str, Any]]:
    """Return the runs of a job, as soon as there is one."""
    deadline_s = time.monotonic() + READY_S
    while not (entries := call(gateway, "cron.runs", id=job_id)["entries"]):
        assert time.monotonic() < deadline_s, gateway.log
        time.sleep(0.05)
    found: list[dict[str, Any]] = entries
    return found


def test_openclaw_client_adds_lists_edits_and_removes_a_job(
    client: CronClient, gateway: Running
) -> None:
    name = f"tea-{uuid4().hex[:8]}"
    event = ("--system-event", "Make tea", "--wake", "next-heartbeat", "--json")
    added = client.ask("add", "--name", name, "--every", "2h", *event)
    job_id = added["id"]
    assert added["schedule"]["everyMs"] == 7_200_000
    assert added["payload"] == {"kind": "systemEvent", "text": "Make tea"}
    listed = client.ask("list", "--json")
    assert job_id in [job["id"] for job in listed["jobs"]]
    shown = client.run("list").out
    assert job_id[:8] in shown and "every 2h" in shown and name[:8] in shown
    edited = client.ask("edit", job_id, "--name", f"{name}-2", "--cron", "0 9 * * *", "--exact")
    assert edited["name"] == f"{name}-2" and edited["schedule"]["expr"] == "0 9 * * *"
    assert client.run("disable", job_id).status == 0
    assert job_id not in [job["id"] for job in client.ask("list", "--json")["jobs"]]
    every = client.ask("list", "--all", "--json")["jobs"]
    assert [job["enabled"] for job in every if job["id"] == job_id] == [False]
    assert client.run("enable", job_id).status == 0
    status = client.ask("status", "--json")
    assert status["enabled"] is True and status["jobs"] >= 1 and status["nextWakeAtMs"]
    assert client.ask("rm", job_id, "--json")["removed"] is True
    assert job_id not in [job["id"] for job in call(gateway, "cron.list")["jobs"]]


def test_openclaw_client_runs_a_job_and_reads_its_runs(
    client: CronClient, gateway: Running, model: ModelServer
) -> None:
    word = f"lobster-{uuid4().hex[:8]}"
    model.script([Say(word)])
    turn = ("--message", "Say the word.", "--no-deliver", "--json")
    added = client.ask("add", "--name", "word", "--every", "24h", *turn)
    assert added["sessionTarget"] == "isolated" and added["delivery"]["mode"] == "none"
    assert client.run("run", added["id"], "--due").out.count('"not-due"') == 1
    started = client.ask("run", added["id"])
    assert started["ok"] is True and (started.get("ran") or started.get("enqueued"))
    [entry] = entries_of(gateway, added["id"])
    assert (entry["status"], entry["summary"]) == ("ok", word)
    [shown] = client.ask("runs", "--id", added["id"], "--limit", "5")["entries"]
    assert shown["summary"] == word and shown["jobId"] == added["id"]
    client.ask("rm", added["id"], "--json")


def test_openclaw_client_shows_what_our_gateway_refuses(client: CronClient) -> None:
    wrong = client.run("add", "--name", "x", "--cron", "nope", "--system-event", "y", "--json")
    assert wrong.status != 0 and "nope" in wrong.err + wrong.out
    unknown = client.run("run", "no-such-job")
    assert unknown.status != 0 and "no-such-job" in unknown.err + unknown.out


def test_newest_client_gets_one_job_and_waits_for_its_run(
    newest: Original, gateway: Running, model: ModelServer, tmp_path: Path
) -> None:
    client = CronClient(newest, gateway.port, tmp_path)
    word = f"lobster-{uuid4().hex[:8]}"
    model.script([Say(word)])
    turn = ("--message", "Say the word.", "--no-deliver", "--json")
    added = client.ask("add", "--name", "waits", "--every", "24h", *turn)
    assert client.ask("get", added["id"])["name"] == "waits"
    waited = client.ask("run", added["id"], "--wait", "--poll-interval", "200ms")
    assert waited["ok"] is True, waited
    assert [one["summary"] for one in client.ask("runs", added["id"])["entries"]] == [word]
    refused = client.run("add", "--name", "c", "--every", "1h", "--command", "ls", "--json")
    assert refused.status != 0, "a job that runs a command is not one of ours"
    client.ask("rm", added["id"], "--json")


@contextmanager
def openclaw_gateway(program: Original, home: Home) -> Iterator[int]:
    """Run OpenClaw's gateway on a home while the block lasts; yield its port."""
    config = json.loads((home.state / "openclaw.json").read_text(encoding="utf-8"))
    port = config["gateway"]["port"]
    log = home.path / "openclaw.log"
    with log.open("w") as output:
        process = subprocess.Popen(
            program.command("gateway", "run"),
            env={**bare_env(home.path), "NO_PROXY": "127.0.0.1"},
            cwd=home.path,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        deadline_s = time.monotonic() + READY_S
        while not _accepts(port):
            assert process.poll() is None and time.monotonic() < deadline_s, log.read_text()
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


@pytest.fixture
def home(model: ModelServer, tmp_path: Path) -> Home:
    """Return a home that both programs can use."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "TZ") if name in os.environ}
    made = new_home(tmp_path, kept, model)
    config = json.loads((made.state / "openclaw.json").read_text(encoding="utf-8"))
    provider = config["models"]["providers"]["mock"]
    provider["api"] = "openai-completions"
    provider["models"][0].update(reasoning=False, input=["text"], cost=FREE)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    auth = {"mode": "token", "token": TOKEN}
    made.configure({**config, "gateway": {"mode": "local", "port": port, "auth": auth}})
    return made


def test_jobs_that_openclaw_wrote_run_here_and_ours_are_listed_by_it(
    original: Original, model: ModelServer, home: Home
) -> None:
    turn = ("--message", "Say the word.", "--no-deliver", "--json")
    with openclaw_gateway(original, home) as port:
        client = CronClient(original, port, home.path)
        off = client.ask("add", "--name", "off", "--every", "1h", "--disabled", *turn)
        theirs = client.ask("add", "--name", "theirs", "--cron", "0 7 * * 1", "--exact", *turn)
        soon = client.ask("add", "--name", "soon", "--at", "45s", *turn)
    file = home.state / "cron/jobs.json"
    names = {job["name"] for job in json.loads(file.read_text())["jobs"]}
    assert names == {"off", "theirs", "soon"}
    word, soon_word = f"lobster-{uuid4().hex[:8]}", f"lobster-{uuid4().hex[:8]}"
    with running_gateway(home) as gateway:
        jobs = call(gateway, "cron.list", includeDisabled=True)["jobs"]
        listed = {job["id"]: job for job in jobs}
        assert listed.keys() == {off["id"], theirs["id"], soon["id"]}
        assert listed[theirs["id"]]["schedule"] == theirs["schedule"]
        assert listed[theirs["id"]]["state"]["nextRunAtMs"] == theirs["state"]["nextRunAtMs"]
        model.script([Say(word)])
        assert call(gateway, "cron.run", id=theirs["id"])["ok"] is True
        [entry] = entries_of(gateway, theirs["id"])
        assert (entry["status"], entry["summary"]) == ("ok", word)
        model.script([Say(soon_word)])
        [entry] = entries_of(gateway, soon["id"])
        assert (entry["status"], entry["summary"]) == ("ok", soon_word), "at its own time"
        assert entry["runAtMs"] >= soon["state"]["nextRunAtMs"]
        event = {"kind": "systemEvent", "text": "Look"}
        ours = call(
            gateway, "cron.add", name="ours", schedule={"everyMs": 3_600_000}, payload=event
        )
    stored = {job["id"]: job for job in json.loads(file.read_text())["jobs"]}
    assert stored.keys() == {off["id"], theirs["id"], ours["id"]}, "the other one ran, and is gone"
    with openclaw_gateway(original, home) as port:
        client = CronClient(original, port, home.path)
        read = {job["id"]: job for job in client.ask("list", "--all", "--json")["jobs"]}
        assert read.keys() == stored.keys()
        assert read[ours["id"]]["schedule"] == stored[ours["id"]]["schedule"]
        assert read[theirs["id"]]["state"]["lastStatus"] == "ok", "our run is in its state"
        [entry] = client.ask("runs", "--id", theirs["id"])["entries"]
        assert entry["summary"] == word, "our run is in its log"
        client.run("run", ours["id"])
    with running_gateway(home) as gateway:
        assert call(gateway, "cron.list")["jobs"], "and back"
