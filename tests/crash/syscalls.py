"""`make crash-syscalls`: the n-th write, sync or rename of one turn fails, for every n.

A gateway is started and has answered once; then strace attaches to it and fails the n-th call of
one kind, counted in each of its threads, while a message with a tool call is answered. Then the
gateway is killed and started again, without strace: the message must be answered or reported,
once, its tool have run at most once, and every file be readable. n grows until no call fails.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from homarus.core.errors import HomarusError
from homarus.store.sqlite import check_database
from tests.crash.harness import ForkServer, Launch, Rig, wait_for
from tests.crash.random_kills import ECHO, side_effect_call

# Which calls, and how each fails: SQLite writes with pwrite64 and syncs with fdatasync, the files
# beside it are written with write and put in place with rename.
KINDS = {
    "pwrite64": "ENOSPC",
    "write": "ENOSPC",
    "fdatasync": "EIO",
    "fsync": "EIO",
    "rename": "EIO",
    "ftruncate": "EIO",
}
MOST = 300
PATIENCE_S = 4.0  # how long a gateway may take to recover after the failure


@dataclass(slots=True)
class Sweep:
    """The result for one kind of call."""

    kind: str
    failed: int = 0  # turns in which one failed
    died: int = 0  # gateways that exited
    problems: list[str] = field(default_factory=list)


def find_strace() -> str:
    """Return strace, installed if it is missing and that is permitted."""
    if found := shutil.which("strace"):
        return found
    if os.geteuid() == 0 and shutil.which("apt-get"):
        subprocess.run(["apt-get", "install", "-y", "-qq", "strace"], check=False)
        if found := shutil.which("strace"):
            return found
    sys.exit("crash-syscalls needs strace (Debian: apt-get install strace)")


@contextmanager
def failing(pid: int, kind: str, at: int, message: Path) -> Iterator[None]:
    """Run strace on a process and all its threads; `told` lists the calls that it failed."""
    inject = f"inject={kind}:error={KINDS[kind]}:when={at}"
    command = [
        find_strace(),
        "-f",
        "-o",
        str(message),
        "-e",
        f"trace={kind}",
        "-e",
        inject,
        "-p",
        str(pid),
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as strace:
        assert strace.stderr is not None
        line = strace.stderr.readline()
        if "attached" not in line:
            strace.kill()
            sys.exit(f"crash-syscalls: strace may not trace here: {line.strip()}")
        try:
            yield
        finally:
            strace.send_signal(signal.SIGINT)


class Turn:
    """One turn with one failure in it."""

    def __init__(self, launch: Launch, folder: Path) -> None:
        self.rig = Rig(launch, folder)
        self._told = folder / "strace.out"

    def play(self, kind: str, at: int) -> tuple[bool, bool, list[str]]:
        """Return whether a call failed, whether the gateway exited, and what did not hold."""
        rig = self.rig
        rig.start()
        rig.offer(ECHO)
        rig.settle()
        assert rig.gateway is not None
        with failing(rig.gateway.pid, kind, at, self._told):
            message = rig.offer(side_effect_call(rig.side))
            self._wait(message["id"])
        died = rig.gateway.ended()
        rig.kill()
        failed = "INJECTED" in self._told.read_text(encoding="utf-8", errors="replace")
        rig.start()
        return failed, died, list(self._wrong(message["id"], message["nonce"]))

    def _wait(self, message: str) -> None:
        """Wait until it is answered, the gateway is gone, or nothing more happens."""
        rig, deadline = self.rig, time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            verdict = rig.verdict()
            assert rig.gateway is not None
            if message in [*verdict.answered, *verdict.reported] or rig.gateway.ended():
                time.sleep(0.3)  # the files are written a moment later
                return
            time.sleep(0.05)

    def _wrong(self, message: str, nonce: str) -> Iterator[str]:
        rig = self.rig
        try:
            verdict = rig.settle(reported=True)
        except AssertionError as exc:
            yield f"not settled: {str(exc)[:2000]}"
            return
        if message not in [*verdict.answered, *verdict.reported] or verdict.doubled or verdict.lost:
            yield f"judged: {verdict}"
        if rig.side_effects(nonce) > 1:
            yield "the tool ran twice"
        wait_for(lambda: all(row.settled_ms for row in rig.inbox()), "every row is settled")
        rig.close()
        try:
            check_database(rig.state / "state.sqlite")
        except HomarusError as exc:
            yield str(exc)
        yield from _unreadable(rig.state / "agents/main/sessions")


def _unreadable(folder: Path) -> Iterator[str]:
    for file in folder.iterdir():
        text = file.read_text(encoding="utf-8")
        lines = text.splitlines() if file.suffix == ".jsonl" else [text]
        for line in lines:
            try:
                json.loads(line)
            except ValueError:
                yield f"{file.name} holds {line[:200]!r}"


def sweep(launch: Launch, kind: str) -> Sweep:
    """Fail the first, the second, … until a turn completes without a failure."""
    found = Sweep(kind)
    for at in range(1, MOST):
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            turn = Turn(launch, Path(folder))
            try:
                failed, died, problems = turn.play(kind, at)
            finally:
                turn.rig.close()
        found.problems += [f"{kind} {at}: {problem}" for problem in problems]
        if not failed:
            break
        found.failed += 1
        found.died += died
        print(f"  {kind} {at}: {'the gateway ended' if died else 'went on'}", flush=True)
    return found


def main() -> None:
    """Sweep over every kind, or those that are named."""
    find_strace()
    fork_server = ForkServer()
    try:
        found = [sweep(fork_server.fork, kind) for kind in sys.argv[1:] or KINDS]
    finally:
        fork_server.close()
    print(f"\n{'call':<12}{'fails with':<12}{'turns':>6}{'ended':>7}{'problems':>10}")
    for one in found:
        told = f"{one.failed:>6}{one.died:>7}{len(one.problems):>10}"
        print(f"{one.kind:<12}{KINDS[one.kind]:<12}{told}")
    for one in found:
        for problem in one.problems:
            print(f"\n{problem}")
    sys.exit(any(one.problems for one in found))


if __name__ == "__main__":
    main()
