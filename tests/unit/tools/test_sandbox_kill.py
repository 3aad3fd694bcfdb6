"""After kill -9 of the process that owns sandboxed commands, nothing of them is left."""

import asyncio
import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from homarus.tools.sandbox.bubblewrap import BubblewrapSandbox
from homarus.tools.sandbox.cgroups import find_parents
from tests.unit.tools.bwrap_builders import make_spec, needs_bwrap, run_sandboxed
from tests.waiting import until

pytestmark = [pytest.mark.slow, needs_bwrap]
COUNT = 20
TEXT = "(setsid sleep 4000 &); echo up > up; exec sleep 4000"


async def own_commands(base: Path) -> None:
    """Run the commands of all sandboxes, each with the lock of its sandbox; killed meanwhile."""
    sandbox = BubblewrapSandbox(base / "scratch")
    async with asyncio.TaskGroup() as group:
        for number in range(COUNT):
            spec = make_spec(base, f"kill-{number}")
            lock = os.open(base / spec.name / "lock", os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.flock(lock, fcntl.LOCK_SH)
            work = run_sandboxed(sandbox, spec, TEXT, lock_fd=lock, pty=number % 2 == 1)
            group.create_task(work)


def find_left(base: Path, owner: int) -> Iterator[str]:
    """Yield what is left: processes, mounts, cgroups and locks."""
    for path in Path("/proc").glob("[0-9]*"):
        if int(path.name) in {os.getpid(), os.getppid()}:
            continue
        with suppress(OSError):
            if str(base).encode() in (path / "cmdline").read_bytes():
                yield f"process {path.name}"
        with suppress(OSError):
            if str(base) in str((path / "cwd").readlink()):
                yield f"process {path.name}"
        with suppress(OSError):
            if f"{base}/kill-" in (path / "mountinfo").read_text():
                yield f"mount of {path.name}"
    for folder in find_parents().folders:
        for path in Path(folder).glob(f"homarus-{owner}-*"):
            yield str(path)
    for path in base.glob("kill-*/lock"):
        with path.open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield str(path)


def start_owner(base: Path) -> "subprocess.Popen[bytes]":
    code = (
        "import asyncio, sys; from pathlib import Path;"
        "from tests.unit.tools.test_sandbox_kill import own_commands;"
        "asyncio.run(own_commands(Path(sys.argv[1])))"
    )
    root = Path(__file__).parents[3]
    return subprocess.Popen([sys.executable, "-c", code, str(base)], cwd=root)


@pytest.mark.timeout(180)
async def test_owner_killed_with_20_commands_leaves_nothing(tmp_path: Path) -> None:
    with start_owner(tmp_path) as owner:
        try:
            ups = [tmp_path / f"kill-{number}/workspace/up" for number in range(COUNT)]
            await until(lambda: all(each.exists() for each in ups) or owner.poll(), 0.05)
            assert owner.poll() is None
            assert len(list(find_left(tmp_path, owner.pid))) > COUNT
        finally:
            owner.send_signal(signal.SIGKILL)
            owner.wait()
    await until(lambda: not list(find_left(tmp_path, owner.pid)), 0.1)


@pytest.mark.timeout(180)
async def test_supervisor_killed_has_its_work_done_by_the_gateway(tmp_path: Path) -> None:
    sandbox = BubblewrapSandbox(tmp_path / "scratch")
    spec = make_spec(tmp_path, "kill-supervisor")
    async with asyncio.TaskGroup() as group:
        task = group.create_task(run_sandboxed(sandbox, spec, TEXT))
        await until(lambda: (spec.workspace / "up").exists(), 0.02)
        (supervisor,) = _find_supervisors()
        os.kill(supervisor, signal.SIGKILL)
        result = await task
    assert result.exit_code is None
    await until(lambda: not list(find_left(tmp_path, os.getpid())), 0.1)


def _find_supervisors() -> Iterator[int]:
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parent = int(path.read_bytes().rpartition(b")")[2].split()[1])
            if parent == os.getpid() and b"process_supervisor" in (
                path.with_name("cmdline").read_bytes()
            ):
                yield int(path.parent.name)
