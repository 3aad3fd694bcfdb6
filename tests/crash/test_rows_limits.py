"""Rows 21 to 23 and 41: no space, a failing disk, no file descriptors, and a blocked loop."""

import asyncio
import errno
import os
import resource
import socket
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from homarus.core.errors import ToolError
from homarus.sessions.recovery import MAX_ATTEMPTS
from homarus.tools.exec.run import run_plan
from tests.crash.conftest import MakeRig
from tests.crash.harness import wait_for
from tests.crash.random_kills import ECHO, side_effect_call
from tests.unit.tools.exec_builders import open_plan

pytestmark = pytest.mark.slow

COMMITS = 12  # more than one turn makes


@pytest.mark.parametrize("at", range(1, COMMITS))
def test_row_21_no_space_at_nth_commit_of_turn(make_rig: MakeRig, at: int) -> None:
    """What cannot be kept is not acknowledged, or is told; with room again, it goes on."""
    rig = make_rig()
    rig.start(f"store.commit:enospc:{at}")
    messages = [rig.offer(side_effect_call(rig.side)), rig.offer(ECHO, "another")]
    verdict = rig.settle(reported=True)
    assert sorted([*verdict.answered, *verdict.reported]) == sorted(one["id"] for one in messages)
    assert rig.side_effects(messages[0]["nonce"]) <= 1
    later = rig.offer(ECHO, "a third")
    assert later["id"] in rig.settle(reported=True).answered
    assert rig.gateway is not None and not rig.gateway.ended()


def test_row_21_no_space_at_start_is_refused_with_reason(make_rig: MakeRig) -> None:
    """The one thing a start writes is that it gives up on what ended the program three times."""
    rig = make_rig()
    message = rig.offer(ECHO)
    for _ in range(MAX_ATTEMPTS):
        rig.start("provider.streaming:kill9").wait()
    assert rig.start("store.commit:enospc:1").wait() == 1
    assert rig.inbox_record(message["id"]).state == "running"
    assert "no room to write" in rig.output and "Traceback" not in rig.output
    rig.start()
    wait_for(lambda: rig.inbox_record(message["id"]).state == "parked" or None, "it is parked")


@pytest.mark.parametrize("at", [1, 4])
def test_row_21_no_space_from_nth_commit_until_restart(make_rig: MakeRig, at: int) -> None:
    """Before anything was kept, and in the middle of a turn. It stays, and acknowledges no more."""
    rig = make_rig()
    rig.start(f"store.commit:enospc:{at}+")
    messages = [rig.offer(side_effect_call(rig.side), f"chat-{n}") for n in range(3)]
    wait_for(lambda: "no room to write" in rig.logged(), "it is said aloud")
    verdict = rig.verdict(within_s=600)
    assert not verdict.answered and not verdict.lost
    assert at > 1 or sorted(verdict.waiting) == sorted(one["id"] for one in messages)
    assert rig.gateway is not None and not rig.gateway.ended(), "it stays, and waits for room"
    rig.kill()
    rig.start()
    assert sorted(rig.settle().answered) == sorted(one["id"] for one in messages)
    assert max(rig.side_effects(one["nonce"]) for one in messages) <= 1


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of a few megabytes; usually only root can make one."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)]
    if os.geteuid() or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("no small file system can be mounted here: that takes root")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


def test_row_21_full_disk_recovers_when_space_returns(make_rig: MakeRig, small_disk: Path) -> None:
    rig = make_rig(state=small_disk)
    rig.start()
    before = rig.offer(ECHO)
    rig.settle()
    filler = small_disk / "filler"
    fill(filler)
    during = [rig.offer(side_effect_call(rig.side), f"chat-{n}") for n in range(3)]
    wait_for(lambda: "no room to write" in rig.logged(), "it is said aloud")
    assert rig.verdict().answered == [before["id"]]
    assert rig.gateway is not None and not rig.gateway.ended(), "it stays, and waits for room"
    filler.unlink()
    verdict = rig.settle(reported=True)
    assert sorted([*verdict.answered, *verdict.reported]) == sorted(
        [before["id"], *(one["id"] for one in during)]
    )
    assert max(rig.side_effects(one["nonce"]) for one in during) <= 1
    later = rig.offer(ECHO, "another")
    assert later["id"] in rig.settle(reported=True).answered


def test_row_21_disk_fills_during_turn(make_rig: MakeRig, small_disk: Path) -> None:
    """Not even that the run failed can be written down; with room again, it goes on."""
    rig = make_rig(state=small_disk)
    rig.start()
    message = rig.offer(side_effect_call(rig.side, "sleep 2"))
    wait_for(lambda: rig.side_effects(message["nonce"]) or None, "the tool runs")
    filler = small_disk / "filler"
    fill(filler)
    wait_for(lambda: "could not be written down" in rig.logged(), "it is said aloud")
    filler.unlink()
    assert rig.settle().answered == [message["id"]]
    assert rig.side_effects(message["nonce"]) == 1


def fill(file: Path) -> None:
    """Use up every byte."""
    with file.open("wb", buffering=0) as out:
        for size in (1 << 16, 4096, 512, 1):
            with suppress(OSError):
                while True:
                    out.write(b"x" * size)


@pytest.mark.parametrize("at", [2, 3, 5])
def test_row_22_disk_failure_ends_gateway_and_acknowledges_nothing(
    make_rig: MakeRig, at: int
) -> None:
    """After a failed sync nobody knows what is on the disk: to go on would be to guess."""
    rig = make_rig()
    message = rig.offer(ECHO)
    gateway = rig.start(f"store.commit:eio:{at}")
    assert gateway.wait() not in {0, -9}
    assert "Traceback" not in rig.output
    verdict = rig.verdict(within_s=600)
    assert verdict.answered == [message["id"]] or verdict.waiting == [message["id"]]
    rig.start()
    assert rig.settle().answered == [message["id"]]


def open_files(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def test_row_23_no_open_files_left_is_tool_error(make_rig: MakeRig) -> None:
    rig = make_rig()
    gateway = rig.start()
    rig.offer(side_effect_call(rig.side))
    rig.settle()
    limits = resource.prlimit(gateway.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(gateway.pid, resource.RLIMIT_NOFILE, (open_files(gateway.pid), limits[1]))
    message = rig.offer(side_effect_call(rig.side))
    verdict = rig.settle(reported=True)
    resource.prlimit(gateway.pid, resource.RLIMIT_NOFILE, limits)
    assert message["id"] in [*verdict.answered, *verdict.reported]
    assert rig.side_effects(message["nonce"]) == 0
    after = rig.offer(side_effect_call(rig.side))
    assert after["id"] in rig.settle().answered and rig.side_effects(after["nonce"]) == 1
    assert not gateway.ended()


@pytest.mark.parametrize("number", [errno.EAGAIN, errno.ENOMEM, errno.EMFILE])
@pytest.mark.parametrize("what", ["Popen", "pipe", "socketpair"])
def test_row_23_failed_fork_is_tool_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, what: str
) -> None:
    def refuse(*_args: Any, **_more: Any) -> Any:
        raise OSError(number, os.strerror(number))

    owner: dict[str, object] = {"Popen": subprocess, "pipe": os, "socketpair": socket}
    before = open_files(os.getpid())

    async def main() -> None:
        async with open_plan(tmp_path, "true", timeout_s=5) as plan:
            monkeypatch.setattr(owner[what], what, refuse)
            with pytest.raises(ToolError, match=os.strerror(number)):
                await run_plan(plan)
            monkeypatch.undo()

    asyncio.run(main())
    assert open_files(os.getpid()) == before, "nothing is left open"
