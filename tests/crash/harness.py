"""Run a gateway between a scripted model and the ledger, each a process of its own.

`Rig.start` starts the gateway, with or without a fault; `Rig.kill` is a `kill -9`; the ledger
decides what was lost and what was doubled.
"""

import asyncio
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias, TypeVar
from urllib.request import ProxyHandler, Request, build_opener

from homarus.store.journal import InboxRecord, OutboxRecord
from homarus.store.sqlite import SqliteStore, open_store

Flavour: TypeAlias = Literal["plain", "idempotent", "lookup"]
T = TypeVar("T")

ROOT = Path(__file__).parents[2]
GUARD_S = float(os.environ.get("CRASH_GUARD_S", "60"))  # generous, because a loaded machine is slow
POLL_S = 0.02
PASSED_ENV = ("PATH", "LANG", "PYTHONPATH")
TOKEN = "crash-0123456789abcdef"
GATEWAY = "tests.crash.scripted_gateway"
LEDGER = "tests.crash.ledger"
MODEL = "homarus.testing.model_server.__main__"

_opener = build_opener(ProxyHandler({}))  # ignores the environment's proxies


def wait_for(done: Callable[[], T | None], what: str, guard_s: float = GUARD_S) -> T:
    """Poll until the condition holds."""
    deadline = time.monotonic() + guard_s
    while not (found := done()):
        assert time.monotonic() < deadline, f"{what}: not within {guard_s:g} s"
        time.sleep(POLL_S)
    return found


class Child(Protocol):
    """A child process."""

    pid: int

    def kill(self) -> None: ...

    def wait(self, timeout_s: float = GUARD_S) -> int:
        """Return the exit status. Raises AssertionError on timeout."""
        ...

    def ended(self) -> bool: ...


class SpawnedProcess:
    """A process started with subprocess."""

    def __init__(
        self, module: str, args: Sequence[str], env: Mapping[str, str], cwd: Path, log: Path
    ) -> None:
        path = [env["PYTHONPATH"]] if "PYTHONPATH" in env else []
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, *args],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**env, "PYTHONPATH": os.pathsep.join([str(ROOT), *path])},
                cwd=cwd,
            )
        self.pid = self._process.pid

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def wait(self, timeout_s: float = GUARD_S) -> int:
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired as exc:
            raise AssertionError(f"process {self.pid} did not end") from exc

    def ended(self) -> bool:
        return self._process.poll() is not None


class ForkServer:
    """Forks processes that have everything imported; see fork_server.py."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.fork_server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
        )
        assert self._process.stdin and self._process.stdout
        self._requests, self._responses = self._process.stdin, self._process.stdout
        self._buffer = b""
        self.statuses: dict[int, int] = {}
        assert self._next(GUARD_S) == {"ready": True}

    def fork(
        self, module: str, args: Sequence[str], env: Mapping[str, str], cwd: Path, log: Path
    ) -> "ForkedProcess":
        request = {"module": module, "args": list(args), "env": dict(env)}
        self._requests.write(
            json.dumps({**request, "cwd": str(cwd), "log": str(log)}).encode() + b"\n"
        )
        self._requests.flush()
        while "status" in (response := self._next(GUARD_S)):
            self._record_exit(response)
        self.statuses.pop(response["pid"], None)
        return ForkedProcess(self, response["pid"])

    def poll(self, timeout_s: float) -> None:
        """Record processes that ended, waiting at most this long for one."""
        try:
            self._record_exit(self._next(timeout_s))
        except TimeoutError:
            return

    def close(self) -> None:
        self._requests.close()
        self._responses.close()
        self._process.kill()
        self._process.wait()

    def _record_exit(self, response: dict[str, Any]) -> None:
        self.statuses[response["pid"]] = response["status"]

    def _next(self, timeout_s: float) -> dict[str, Any]:
        deadline = time.monotonic() + timeout_s
        while b"\n" not in self._buffer:
            left_s = max(0.0, deadline - time.monotonic())
            if not select.select([self._responses], [], [], left_s)[0]:
                raise TimeoutError
            data = os.read(self._responses.fileno(), 1 << 16)
            assert data, "the fork server died"
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        found: dict[str, Any] = json.loads(line)
        return found


class ForkedProcess:
    """A process that the fork server started."""

    def __init__(self, fork_server: ForkServer, pid: int) -> None:
        self._fork_server, self.pid = fork_server, pid

    def kill(self) -> None:
        if not self.ended():
            os.kill(self.pid, signal.SIGKILL)
            self.wait()

    def wait(self, timeout_s: float = GUARD_S) -> int:
        deadline = time.monotonic() + timeout_s
        while self.pid not in self._fork_server.statuses:
            left_s = deadline - time.monotonic()
            assert left_s > 0, f"process {self.pid} did not end"
            self._fork_server.poll(left_s)
        return self._fork_server.statuses[self.pid]

    def ended(self) -> bool:
        self._fork_server.poll(0.0)
        return self.pid in self._fork_server.statuses


Launch: TypeAlias = Callable[[str, Sequence[str], Mapping[str, str], Path, Path], Child]


class Peer:
    """A process that prints its URL in its first line, and serves JSON there."""

    def __init__(self, launch: Launch, module: str, args: Sequence[str], folder: Path) -> None:
        log = folder / f"{module.split('.')[2]}-{time.monotonic_ns()}.log"
        env = {name: os.environ[name] for name in PASSED_ENV if name in os.environ}
        self.child = launch(module, args, {**env, "HOME": str(folder)}, folder, log)
        self.url = wait_for(lambda: _first_line(log), f"{module} says its address")

    def get(self, path: str) -> Any:
        with _opener.open(f"{self.url}{path}", timeout=GUARD_S) as answer:
            return json.load(answer)

    def post(self, path: str, body: object) -> Any:
        request = Request(f"{self.url}{path}", json.dumps(body).encode(), method="POST")
        with _opener.open(request, timeout=GUARD_S) as answer:
            return json.load(answer)


def _first_line(log: Path) -> str:
    if not log.exists():
        return ""
    line, end, _ = log.read_text(encoding="utf-8").partition("\n")
    return line.strip() if end else ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict of the ledger: ids of messages."""

    offered: int
    answered: list[str]
    reported: list[str]
    waiting: list[str]
    lost: list[str]
    doubled: list[str]
    worst_s: float


class Rig:
    """One state directory, with a ledger and a model of its own."""

    def __init__(
        self,
        launch: Launch,
        folder: Path,
        *,
        flavour: Flavour = "idempotent",
        text_limit: int = 4_000,
        config: Mapping[str, Any] | None = None,
        state: Path | None = None,
        concurrent: int = 50,
    ) -> None:
        self._launch, self.folder = launch, folder
        self.state = state or folder / ".openclaw"
        folder.mkdir(parents=True, exist_ok=True)
        self.model = Peer(launch, MODEL, (), folder)
        options = ("--flavour", flavour, "--text-limit", str(text_limit))
        self.ledger = Peer(launch, LEDGER, options, folder)
        self.side = folder / "side"  # the side effects of tools, a line each
        self.side.touch()
        self.log = folder / "gateway.log"
        self.log.touch()
        self.gateway: Child | None = None
        self._configure(config or {}, concurrent)

    @property
    def output(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    def start(self, fault: str = "") -> Child:
        """Start the gateway; it may have died again before this returns."""
        assert self.gateway is None or self.gateway.ended()
        own = {name: os.environ[name] for name in PASSED_ENV if name in os.environ}
        own |= {"HOME": str(self.folder), "NO_PROXY": "127.0.0.1", "HOMARUS_FAULT": fault}
        own |= {"OPENCLAW_STATE_DIR": str(self.state)}
        args = ("--ledger", self.ledger.url)
        self.gateway = self._launch(GATEWAY, args, own, self.folder, self.log)
        return self.gateway

    def wait_ready(self) -> None:
        """Wait until the gateway that was started last accepts requests."""
        assert self.gateway is not None
        gateway, words = self.gateway, f"(process {self.gateway.pid})"
        wait_for(lambda: words in self.output or gateway.ended(), "the gateway is ready")
        assert not gateway.ended(), self.output

    def kill(self) -> None:
        if self.gateway:
            self.gateway.kill()

    def close(self) -> None:
        for child in (self.gateway, self.ledger.child, self.model.child):
            if child:
                child.kill()

    def offer(self, text: str, chat: str = "chat", **more: Any) -> Any:
        """Send a message as a person; return {"id", "nonce", "marks"}."""
        return self.ledger.post("/offer", {"text": text, "chat": chat, **more})

    def fail_sends(self, *sends: Mapping[str, Any]) -> None:
        self.ledger.post("/trouble", {"sends": sends})

    def verdict(self, within_s: float = 0.0) -> Verdict:
        response = self.ledger.get(f"/verdict?withinS={within_s}")
        worst_s = response.pop("worstS")
        return Verdict(**response, worst_s=worst_s)

    def settle(
        self, guard_s: float = GUARD_S, *, unknown: bool = False, reported: bool = False
    ) -> Verdict:
        """Wait until every message has its answer, and return the verdict.

        With `reported`, a reported failure is enough. With `unknown`, a message whose send has no
        known outcome counts as settled: it stays so where a service has neither idempotency keys
        nor a lookup.
        """

        def done() -> Verdict | None:
            verdict = self.verdict()
            assert self.gateway is not None and not self.gateway.ended(), "the gateway ended"
            missing = {*verdict.waiting, *verdict.lost, *([] if reported else verdict.reported)}
            if unknown and missing:
                missing -= self.unknown()
            return None if missing and not verdict.doubled else verdict

        try:
            return wait_for(done, "every message is settled", guard_s)
        except AssertionError as exc:
            raise AssertionError(f"{exc}\n{self.verdict()}\n{self.output[-4000:]}") from exc

    def fetch_page(self, path: str) -> str:
        """Fetch a page of the gateway that was started last."""
        ready_line = [line for line in self.output.splitlines() if "is ready on" in line][-1]
        url = ready_line.partition("ws://")[2].split()[0]
        request = Request(f"http://{url}{path}", headers={"Authorization": f"Bearer {TOKEN}"})
        with _opener.open(request, timeout=GUARD_S) as answer:
            return str(answer.read().decode())

    def logged(self) -> str:
        """Return the gateway's log."""
        file = self.folder / "log.jsonl"
        return file.read_text(encoding="utf-8", errors="replace") if file.exists() else ""

    def model_requests(self, tag: str) -> list[Any]:
        """Return the model's requests for a message, by the `T#` in it."""
        return [one for one in self.model_stats() if one.get("tag") == tag]

    def model_stats(self) -> list[Any]:
        found: list[Any] = _get(self.model.url.removesuffix("/v1") + "/_stats")
        return found

    def side_effects(self, nonce: str) -> int:
        """Return how often a tool ran for a message."""
        return self.side.read_text(encoding="utf-8").splitlines().count(nonce)

    def read_store(self, body: Callable[[SqliteStore], Awaitable[T]]) -> T:
        """Read the state while another process may be writing it, without touching its lock."""

        async def main() -> T:
            async with open_store(self.state, mirror=False, read_only=True) as store:
                return await body(store)

        return asyncio.run(main())

    def inbox(self) -> list[InboxRecord]:
        async def body(store: SqliteStore) -> list[InboxRecord]:
            return list(await store.journal.inbox_records())

        return self.read_store(body)

    def inbox_record(self, message_id: str) -> InboxRecord:
        (record,) = [one for one in self.inbox() if one.message_id == message_id]
        return record

    def outbox(self) -> list[OutboxRecord]:
        async def body(store: SqliteStore) -> list[OutboxRecord]:
            return list(await store.journal.outbox_records())

        return self.read_store(body)

    def unknown(self) -> set[str]:
        """Return the messages whose reply was sent with no known outcome."""
        runs = {record.run for record in self.outbox() if record.state == "unknown"}
        return {message.message_id for message in self.inbox() if message.run in runs}

    def messages(self, session: str) -> list[dict[str, Any]]:
        """Return the transcript of a session key, as messages."""

        async def body(store: SqliteStore) -> list[dict[str, Any]]:
            record = await store.session(session)
            assert record is not None, f"no session {session}"
            entries = await store.entries(record.session_id)
            return [dict(one.data["message"]) for one in entries if one.type == "message"]

        return self.read_store(body)

    def _configure(self, config: Mapping[str, Any], concurrent: int) -> None:
        provider = {
            "baseUrl": self.model.url,
            "apiKey": "sk-test",
            "models": [{"id": "mock-1", "name": "Mock", "contextWindow": 100_000}],
        }
        base: dict[str, Any] = {
            "models": {"providers": {"mock": provider}},
            "agents": {
                "defaults": {"model": {"primary": "mock/mock-1"}, "maxConcurrent": concurrent}
            },
            "gateway": {
                "auth": {"token": TOKEN},
                "http": {"endpoints": {"metrics": {"enabled": True}}},
            },
            "logging": {"file": str(self.folder / "log.jsonl")},
            "channels": {"scripted": {"dmPolicy": "open", "allowFrom": ["*"]}},
            "session": {"dmScope": "per-channel-peer"},
            **config,
        }
        self.state.mkdir(exist_ok=True)
        (self.state / "openclaw.json").write_text(json.dumps(base))


def _get(url: str) -> Any:
    with _opener.open(url, timeout=GUARD_S) as answer:
        return json.load(answer)
