"""A plan with a launch: the supervisor starts the launcher with its limits, and cleans up."""

import errno
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from homarus.tools.exec.plan import ExecPlan
from homarus.tools.exec.result_text import format_ending
from homarus.tools.exec.run import CommandResult, run_plan
from homarus.tools.exec.sandbox_launcher import restrict_scope
from homarus.tools.exec.sandboxed_plan import make_sandboxed_plan
from homarus.tools.sandbox.base import ControlGroup, SandboxLaunch

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="sandboxes need Linux")

ENV = {"PATH": "/usr/bin:/bin"}


@contextmanager
def open_sandboxed_plan(
    folder: Path, command: str, *, options: dict[str, Any] | None = None, **launch: Any
) -> Iterator[ExecPlan]:
    """Yield a plan whose launcher is a plain shell."""
    launch.setdefault("argv", ("/bin/sh", "-c", command))
    launch.setdefault("env", ENV)
    folder_fd = os.open(folder, os.O_RDONLY)
    try:
        plan = make_sandboxed_plan(
            command,
            SandboxLaunch(**launch),
            folder=str(folder),
            folder_fd=folder_fd,
            workspace=folder,
            env=ENV,
            requested_env={},
            timeout_s=60.0,
            **(options or {}),
        )
    finally:
        os.close(folder_fd)
    try:
        yield plan
    finally:
        plan.close()


async def run_launch(folder: Path, command: str, **launch: Any) -> CommandResult:
    with open_sandboxed_plan(folder, command, **launch) as plan:
        return await run_plan(plan)


async def test_launch_runs_with_exactly_its_environment(tmp_path: Path) -> None:
    result = await run_launch(tmp_path, "", argv=("/usr/bin/env",), env={"A": "1"})
    assert (result.output, result.exit_code) == ("A=1\n", 0)


async def test_launch_inherits_only_its_descriptors(tmp_path: Path) -> None:
    kept, lock = os.open(tmp_path, os.O_RDONLY), os.open(tmp_path, os.O_RDONLY)
    try:
        options: dict[str, Any] = {"fds": (kept,), "lock_fd": lock}
        result = await run_launch(tmp_path, "echo /proc/self/fd/*", **options)
    finally:
        os.close(kept)
        os.close(lock)
    found = {int(each.rpartition("/")[2]) for each in result.output.split()}
    assert kept in found and lock not in found
    assert len(found - {0, 1, 2, kept}) <= 1  # the folder that the shell reads


async def test_launch_sets_the_limits_of_processes(tmp_path: Path) -> None:
    limits = (("RLIMIT_NOFILE", 100), ("RLIMIT_CORE", 0))
    result = await run_launch(tmp_path, "ulimit -n; ulimit -c", rlimits=limits)
    assert result.output.split() == ["100", "0"]


async def test_launch_with_unusable_cgroup_runs_nothing(tmp_path: Path) -> None:
    group = ControlGroup(str(tmp_path / "missing" / "homarus-x"))
    result = await run_launch(tmp_path, "echo ran", cgroups=(group,))
    assert "homarus-x could not be made" in result.refusal
    assert result.output == "" and not result.is_success
    group = ControlGroup(str(tmp_path / "plain"))  # no cgroup: it has no file to be entered by
    (tmp_path / "plain").mkdir()
    result = await run_launch(tmp_path, "echo ran", cgroups=(group,))
    assert "File exists" in result.refusal and result.output == ""


async def test_launch_of_missing_launcher_is_a_refusal(tmp_path: Path) -> None:
    result = await run_launch(tmp_path, "", argv=("/nonexistent/bwrap",))
    assert "/nonexistent/bwrap cannot be executed" in result.refusal


async def test_launch_cleanup_runs_after_the_command(tmp_path: Path) -> None:
    cleanup = (("/bin/sh", "-c", f"echo cleaned >> {tmp_path}/log"), ("/nonexistent/x",))
    result = await run_launch(tmp_path, "echo ran >> log; exit 3", cleanup=cleanup)
    assert result.exit_code == 3
    assert (tmp_path / "log").read_text() == "ran\ncleaned\n"


async def test_launch_cleanup_finds_the_helpers_of_the_launcher_alive(tmp_path: Path) -> None:
    # An engine ends its container by its helper; without that, cgroups are left.
    text = "sleep 60 >/dev/null 2>&1 & echo $! > helper"
    script = f"kill -0 $(cat {tmp_path}/helper) && echo alive > {tmp_path}/log"
    await run_launch(tmp_path, text, cleanup=(("/bin/sh", "-c", script),))
    assert (tmp_path / "log").read_text() == "alive\n"
    assert not Path("/proc", (tmp_path / "helper").read_text().strip()).exists()


async def test_launch_reads_the_input_of_the_plan(tmp_path: Path) -> None:
    with open_sandboxed_plan(tmp_path, "cat", options={"stdin": "hello"}) as plan:
        assert (await run_plan(plan)).output == "hello"


async def test_launch_with_terminal_leaves_it_to_the_sandbox(tmp_path: Path) -> None:
    argv = ("/usr/bin/setsid", "--ctty", "/bin/sh", "-c", ": > /dev/tty && tty")
    with open_sandboxed_plan(tmp_path, "", options={"pty": True}, argv=argv) as plan:
        result = await run_plan(plan)
    assert result.exit_code == 0 and "/dev/pts/" in result.output


@pytest.mark.slow
async def test_launch_that_fills_the_disk_is_ended_with_the_reason(tmp_path: Path) -> None:
    command = "while :; do head -c 1000000 /dev/zero >> big; sleep 0.01; done"
    limits: dict[str, Any] = {"disk_folders": (str(tmp_path),), "disk_bytes": 5 << 20}
    result = await run_launch(tmp_path, command, **limits)
    assert not result.is_success
    assert "it wrote more than 5 MB" in format_ending(result)


@pytest.mark.slow
async def test_launch_that_fills_the_disk_by_a_deleted_file_is_ended(tmp_path: Path) -> None:
    command = "exec 3> gone; rm gone; while :; do head -c 4000000 /dev/zero >&3; sleep 0.02; done"
    limits: dict[str, Any] = {"disk_folders": (str(tmp_path),), "disk_bytes": 40 << 20}
    result = await run_launch(tmp_path, command, **limits)
    assert "it wrote more than 40 MB" in format_ending(result)


def test_landlock_forbids_abstract_sockets_and_signals_of_others(tmp_path: Path) -> None:
    name = f"\0homarus-{tmp_path.name}-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(name)
        server.listen()
        child = os.fork()
        if child == 0:
            status = 0
            try:
                if not restrict_scope():
                    os._exit(9)
                with socket.socket(socket.AF_UNIX) as client:
                    status |= client.connect_ex(name) != errno.EPERM
                with suppress(PermissionError):
                    os.kill(os.getppid(), 0)
                    status |= 2
            finally:
                os._exit(status)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code == 9:
        pytest.skip("this kernel has no Landlock rules about signals and sockets")
    assert code == 0


def test_sandboxed_plan_digest_is_over_what_decides(tmp_path: Path) -> None:
    def digest(command: str = "true", **launch: Any) -> str:
        with open_sandboxed_plan(tmp_path, command, **launch) as plan:
            return plan.digest

    same = digest(identity=("bwrap",))
    assert digest(identity=("bwrap",), argv=("/bin/sh", "--seccomp", "17"), lock_fd=17) == same
    others = [
        digest("false", identity=("bwrap",)),
        digest(identity=("bwrap", "--share-net")),
        digest(identity=("bwrap",), env={"A": "1"}),
        digest(identity=("bwrap",), rlimits=(("RLIMIT_CPU", 1),)),
        digest(identity=("bwrap",), cgroups=(ControlGroup("/x", (("pids.max", "9"),)),)),
        digest(identity=("bwrap",), uses_landlock=True),
        digest(identity=("bwrap",), disk_bytes=1),
        digest(identity=("bwrap",), options={"stdin": "x"}),
        digest(identity=("bwrap",), options={"pty": True}),
    ]
    assert len({same, *others}) == len(others) + 1


def test_sandboxed_plan_close_closes_the_launch(tmp_path: Path) -> None:
    closed: list[str] = []
    with open_sandboxed_plan(tmp_path, "true", close=lambda: closed.append("closed")):
        assert closed == []
    assert closed == ["closed"]
