"""Commands in bubblewrap: what they see, what they may do, and how they end."""

import asyncio
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from homarus.core.errors import SandboxError
from homarus.tools.exec.run import RunningCommand
from homarus.tools.sandbox.base import SANDBOXES, Mount, SandboxCommand, SandboxLimits
from homarus.tools.sandbox.bubblewrap import BubblewrapSandbox, explain_failure
from homarus.tools.sandbox.cgroups import CgroupParents, find_parents
from tests.unit.tools.bwrap_builders import (
    ORDINARY_ID,
    call_as_ordinary_user,
    make_spec,
    needs_bwrap,
    needs_root,
    open_sandbox_plan,
    run_directly,
    run_sandboxed,
)
from tests.waiting import until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="bubblewrap needs Linux")


@pytest.fixture
def sandbox(tmp_path: Path) -> BubblewrapSandbox:
    return BubblewrapSandbox(tmp_path / "scratch")


def test_bubblewrap_is_found_as_a_backend(tmp_path: Path) -> None:
    assert SANDBOXES.load("bubblewrap").create(tmp_path).name == "bubblewrap"


@needs_bwrap
async def test_command_sees_its_folders_and_little_else(
    tmp_path: Path, sandbox: BubblewrapSandbox
) -> None:
    spec = make_spec(tmp_path, env={"FROM_SPEC": "1"})
    (spec.workspace / "mine").write_text("text")
    text = "cat mine; id -un; hostname; ls -d /* /home /root /sys 2>/dev/null; env; echo x > out"
    result = await run_sandboxed(sandbox, spec, text, env={"ASKED": "2"})
    assert result.exit_code == 0, result.output
    words = result.output.split()
    assert words[:2] == ["textsandbox", "sandbox"]
    folders = {each for each in words if each.startswith("/") and "=" not in each}
    assert {"/workspace", "/tmp", "/usr", "/etc", "/proc", "/dev"} <= folders
    assert not folders & {"/home", "/root", "/sys", "/var", "/opt", "/srv", "/mnt"}
    names = {each.partition("=")[0] for each in words if "=" in each}
    assert names == {"PATH", "HOME", "LANG", "TMPDIR", "PWD", "FROM_SPEC", "ASKED"}
    assert (spec.workspace / "out").read_text() == "x\n"


@needs_bwrap
async def test_command_writes_only_to_its_folders(
    tmp_path: Path, sandbox: BubblewrapSandbox
) -> None:
    shown = tmp_path / "shown"
    shown.mkdir()
    (shown / "file").write_text("old")
    spec = make_spec(tmp_path, mounts=(Mount(shown, "/agent"),))
    text = (
        "for each in /x /etc/x /usr/x /dev/x /agent/x /agent/file /proc/sys/vm/swappiness"
        " /proc/sys/kernel/core_pattern; do (echo 1 > $each) 2>/dev/null && echo $each; done;"
        " cat /agent/file; echo > /tmp/a && echo > ~/b && echo > /dev/shm/c && echo wrote"
    )
    result = await run_sandboxed(sandbox, spec, text)
    assert result.output == "oldwrote\n"


@needs_bwrap
async def test_command_has_no_privileges_and_no_descriptors(
    tmp_path: Path, sandbox: BubblewrapSandbox
) -> None:
    text = (
        "grep -hE '^(CapEff|CapBnd|NoNewPrivs|Seccomp):' /proc/self/status; unshare -U true;"
        " mount -t tmpfs x /tmp; echo fds /proc/self/fd/*; ip link 2>/dev/null | grep -c '^[0-9]'"
    )
    result = await run_sandboxed(sandbox, make_spec(tmp_path), text)
    lines = result.output.split("\n")
    assert [each.split()[1] for each in lines[:4]] == ["0" * 16, "0" * 16, "1", "2"]
    assert "unshare failed: Operation not permitted" in result.output
    (fds,) = [each.split()[1:] for each in lines if each.startswith("fds")]
    assert {int(each.rpartition("/")[2]) for each in fds} <= {0, 1, 2, 3}


@needs_bwrap
async def test_command_with_terminal_gets_interrupts(
    tmp_path: Path, sandbox: BubblewrapSandbox
) -> None:
    spec = make_spec(tmp_path)
    await sandbox.prepare(spec)
    text = "trap 'echo interrupted; exit 5' INT; echo ready; while :; do sleep 0.05; done"
    with open_sandbox_plan(sandbox, spec, text, pty=True) as plan:
        async with asyncio.TaskGroup() as group:
            command = RunningCommand(plan, group)
            await until(lambda: "ready" in command.output)
            command.write(b"\x03")
            result = await command.wait()
    assert result.exit_code == 5 and "interrupted" in result.output


@needs_bwrap
async def test_command_in_background_reads_and_is_terminated(
    tmp_path: Path, sandbox: BubblewrapSandbox
) -> None:
    spec = make_spec(tmp_path)
    await sandbox.prepare(spec)
    text = (
        "trap 'echo ending; exit 7' TERM; read line; echo got $line; while :; do sleep 0.05; done"
    )
    with open_sandbox_plan(sandbox, spec, text, background=True) as plan:
        async with asyncio.TaskGroup() as group:
            command = RunningCommand(plan, group)
            command.write(b"hello\n")
            await until(lambda: "got hello" in command.output)
            result = await command.end()
    assert "ending" in result.output and result.exit_code == 7 and result.is_killed


@needs_bwrap
@pytest.mark.slow
async def test_command_that_times_out_leaves_no_process(
    tmp_path: Path, sandbox: BubblewrapSandbox
) -> None:
    spec = make_spec(tmp_path)
    text = f"trap '' TERM; (setsid sleep 98765 {tmp_path.name} &); while :; do sleep 1; done"
    result = await run_sandboxed(sandbox, spec, text, timeout_s=1.0)
    assert result.timed_out
    mark = f"98765 {tmp_path.name}"
    await until(lambda: not [each for each in _cmdlines() if mark in each], 0.02)


@needs_bwrap
@pytest.mark.slow
async def test_command_that_kills_its_group_ends_only_itself(
    tmp_path: Path, sandbox: BubblewrapSandbox
) -> None:
    for options in ({}, {"pty": True}):
        result = await run_sandboxed(
            sandbox, make_spec(tmp_path), "kill -9 0 -1; sleep 9", **options
        )
        assert result.exit_code == 137 and result.refusal == ""


@needs_bwrap
async def test_command_over_the_size_of_files_is_stopped(
    tmp_path: Path, sandbox: BubblewrapSandbox
) -> None:
    spec = make_spec(tmp_path, limits=SandboxLimits(file_bytes=10_000, open_files=50))
    text = "ulimit -n; head -c 20000 /dev/zero > big; wc -c < big"
    result = await run_sandboxed(sandbox, spec, text)
    assert result.output.split()[0] == "50" and result.output.split()[-1] == "10000"


@needs_bwrap
@needs_root
@pytest.mark.slow
async def test_bombs_as_root_are_limited_by_cgroups(
    tmp_path: Path, sandbox: BubblewrapSandbox
) -> None:
    if not find_parents().limits_all:
        pytest.skip("this machine has no cgroups that we may use")
    spec = make_spec(tmp_path, limits=SandboxLimits(pids=40, memory_bytes=60 << 20))
    forks = "n=0; while [ $n -lt 100 ]; do sleep 60 & n=$((n+1)); done; echo all; "
    result = await run_sandboxed(sandbox, spec, forks)
    assert "fork" in result.output and "all" not in result.output
    result = await run_sandboxed(sandbox, spec, "head -c 200000000 /dev/zero | tail > /dev/null")
    assert result.exit_code == 137, result.output
    parents = find_parents()
    names = [each.name for folder in parents.folders for each in Path(folder).iterdir()]
    assert not [each for each in names if f"homarus-{os.getpid()}-" in each]


@needs_bwrap
@pytest.mark.slow
def test_command_of_ordinary_user_is_limited_without_cgroups(tmp_path: Path) -> None:
    base = _give_to_ordinary_user(tmp_path)
    limits = SandboxLimits(pids=40, memory_bytes=60 << 20)
    spec = make_spec(base, limits=limits)
    _give_to_ordinary_user(tmp_path)
    sandbox = BubblewrapSandbox(base / "scratch", parents=CgroupParents())

    def run() -> list[str]:
        sandbox._prepare(spec)
        forks = "n=0; while [ $n -lt 100 ]; do sleep 60 & n=$((n+1)); done; echo all"
        memory = "head -c 200000000 /dev/zero | tail > /dev/null; echo end"
        rights = (
            "id -u; grep -E '^CapEff' /proc/self/status; mount -t tmpfs x /tmp; unshare -U true"
        )
        return [run_directly(sandbox, spec, each) for each in (forks, memory, rights)]

    forks, memory, rights = call_as_ordinary_user(run)
    assert "fork" in forks and "all" not in forks
    assert "memory exhausted" in memory or "Cannot allocate" in memory
    assert rights.startswith("1000\nCapEff:\t0000000000000000\n")
    assert "unshare failed: Operation not permitted" in rights


def _give_to_ordinary_user(tmp_path: Path) -> Path:
    base = tmp_path / "ordinary"
    base.mkdir(exist_ok=True)
    if os.geteuid() == 0:
        for path in (base, *base.rglob("*")):
            os.chown(path, ORDINARY_ID, ORDINARY_ID)
        for folder in (tmp_path, *tmp_path.parents):
            if Path(tempfile.gettempdir()) in folder.parents:
                folder.chmod(0o711)
    return base


def _cmdlines() -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(path.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace"))
        except OSError:
            continue
    return found


@needs_bwrap
async def test_secrets_of_the_environment_are_in_no_arguments(
    tmp_path: Path, sandbox: BubblewrapSandbox
) -> None:
    spec = make_spec(tmp_path, env={"TOKEN": "sekret"})
    await sandbox.prepare(spec)
    launch = sandbox.spawn(spec, SandboxCommand("true"))
    other = sandbox.spawn(replace(spec, env={"TOKEN": "other"}), SandboxCommand("true"))
    for each in (launch, other):
        each.close()
    assert "sekret" not in repr(launch) and launch.env == {}
    assert launch.identity != other.identity  # an approval of one is none of the other


@needs_bwrap
async def test_launch_identity_is_equal_for_equal_commands(
    tmp_path: Path, sandbox: BubblewrapSandbox
) -> None:
    spec = make_spec(tmp_path)
    await sandbox.prepare(spec)
    launches = [sandbox.spawn(spec, SandboxCommand("true")) for _ in range(2)]
    other = sandbox.spawn(replace(spec, mounts=(Mount(tmp_path, "/x"),)), SandboxCommand("true"))
    for each in (*launches, other):
        each.close()
    assert launches[0].argv != launches[1].argv  # both are open: other descriptors
    assert launches[0].identity == launches[1].identity != other.identity


@needs_bwrap
async def test_mounts_lists_what_is_seen(tmp_path: Path, sandbox: BubblewrapSandbox) -> None:
    extra = Mount(tmp_path / "docs", "/docs")
    extra.source.mkdir()
    spec = make_spec(tmp_path, mounts=(extra,))
    found = {each.target: each.is_writable for each in sandbox.mounts(spec)}
    assert found["/workspace"] and found["/tmp"] and not found["/usr"] and not found["/docs"]


@needs_bwrap
async def test_mount_swapped_for_a_link_is_refused(
    tmp_path: Path, sandbox: BubblewrapSandbox
) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    entry = tmp_path / "entry"
    entry.mkdir()
    spec = make_spec(tmp_path, mounts=(Mount(entry, "/agent"),))
    await sandbox.prepare(spec)
    entry.rmdir()
    entry.symlink_to(secret)
    with pytest.raises(SandboxError, match="is a link"):
        sandbox.spawn(spec, SandboxCommand("true"))


@needs_bwrap
async def test_workspace_of_other_user_is_refused(
    tmp_path: Path, sandbox: BubblewrapSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = make_spec(tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: 4242)
    with pytest.raises(SandboxError, match="runs as user 4242") as caught:
        await sandbox.prepare(spec)
    assert "chown" in caught.value.fix


async def test_missing_bwrap_is_refused_with_the_fix(
    tmp_path: Path, sandbox: BubblewrapSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda *_args, **_more: None)
    with pytest.raises(SandboxError, match="not installed") as caught:
        await sandbox.prepare(make_spec(tmp_path))
    assert "apt-get install bubblewrap" in caught.value.fix


async def test_old_bwrap_is_refused(
    tmp_path: Path, sandbox: BubblewrapSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bwrap"
    program.write_text("#!/bin/sh\necho bubblewrap 0.4.1\n")
    program.chmod(0o755)
    monkeypatch.setattr(shutil, "which", lambda *_args, **_more: str(program))
    with pytest.raises(SandboxError, match=r"bubblewrap 0.4.1; 0.8.0 or later is needed"):
        await sandbox.prepare(make_spec(tmp_path))


async def test_machine_without_filter_is_refused(
    tmp_path: Path, sandbox: BubblewrapSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    with pytest.raises(SandboxError, match="no seccomp filter for riscv64"):
        await sandbox.prepare(make_spec(tmp_path))


@pytest.mark.parametrize(
    ("sysctl", "user_id", "fix"),
    [
        ({"user/max_user_namespaces": "0"}, 0, "user.max_user_namespaces=15000"),
        ({"kernel/unprivileged_userns_clone": "0"}, 1, "kernel.unprivileged_userns_clone=1"),
        ({"kernel/apparmor_restrict_unprivileged_userns": "1"}, 1, "rule `userns,`"),
        ({"kernel/apparmor_restrict_unprivileged_userns": "1"}, 0, "in a container"),
        ({}, 1, "in a container"),
    ],
)
def test_failure_is_explained_by_the_settings_of_the_kernel(
    sysctl: dict[str, str], user_id: int, fix: str
) -> None:
    error = explain_failure(
        "setting up uid map: denied", lambda name: sysctl.get(name, ""), user_id
    )
    assert fix in error.fix


PREPARE = """
import asyncio, sys
from pathlib import Path
from homarus.core.errors import SandboxError
from homarus.tools.sandbox.base import SandboxSpec
from homarus.tools.sandbox.bubblewrap import create
base = Path(sys.argv[1])
try:
    spec = SandboxSpec("x", base / "test/workspace", base / "test/tmp")
    asyncio.run(create(base / "scratch").prepare(spec))
except SandboxError as exc:
    print("refused:", exc, exc.fix)
"""


@needs_bwrap
@pytest.mark.slow
def test_machine_without_user_namespaces_gets_a_clear_refusal(tmp_path: Path) -> None:
    make_spec(tmp_path)
    script = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"'
    words = ["unshare", "--user", "--map-root-user", "sh", "-c", script, "sh"]
    done = subprocess.run(
        [*words, sys.executable, "-c", PREPARE, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.stdout.startswith("refused: user namespaces are off"), done
    assert "sysctl -w user.max_user_namespaces" in done.stdout
