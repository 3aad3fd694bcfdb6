"""Escape probes: what a deliberately weak sandbox does not hold against is reported, all of it."""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from homarus.core.errors import SandboxError
from homarus.tools.sandbox import bubblewrap
from homarus.tools.sandbox.base import EscapeProbeResult, Sandbox, SandboxReport, SandboxSpec
from homarus.tools.sandbox.probe_list import PROBES, ProbeFacts, ProbePart, make_programs
from homarus.tools.sandbox.probes import find_namespace_fix, judge, measure_sandbox
from tests.unit.tools.probe_builders import WeakSandbox, is_root, require_bwrap, run_directly

LIMITS = {name for name, probe in PROBES.items() if probe.group == "limits"}
# What bubblewrap alone, without a filter of system calls, does not hold against.
UNFILTERED = {
    *("ptrace-self", "seccomp", "keyctl", "add-key", "keyctl-i386", "io-uring", "userfaultfd"),
    *("vsock", "unix-socket-workspace"),
}
NETWORK = {"abstract-socket", "udp-loopback", "tcp-loopback"}
DNS = {"dns", "dns-ipv6"}  # what they show without a sandbox depends on the machine's network
# What depends on the kernel's configuration where there is no filter.
DEPENDS_ON_KERNEL = {
    *("io-uring", "userfaultfd", "vsock", "bpf", "keyctl", "add-key", "keyctl-i386", "devices"),
    *("sys-writes", "cgroup-writes", "user-namespace", "user-namespace-clone", "mount", "mknod"),
    *("raw-socket", "packet-socket", "proc-writes"),
}


def all_held(*failed: str) -> list[EscapeProbeResult]:
    return [EscapeProbeResult(name, name not in failed) for name in PROBES]


def failed_in(report: SandboxReport) -> set[str]:
    assert [each.name for each in report.probes] == list(PROBES), report
    return {each.name for each in report.probes if not each.has_held}


@pytest.mark.parametrize(
    ("failed", "level"),
    [
        ((), "L3"),
        (("fork-bomb",), "L2"),
        (("memory-bomb-tree", "disk-bomb"), "L2"),
        (("keyctl",), "L1"),
        (("dns", "fork-bomb"), "L1"),
        (("signals",), "L1"),
        (("state-directory",), "L0"),
        (("hard-link", "dns"), "L0"),
    ],
)
def test_level_follows_from_the_groups_of_failed_probes(
    failed: tuple[str, ...], level: str
) -> None:
    report = judge("weak", all_held(*failed))
    assert report.level == level
    assert bool(report.problem) == bool(report.fix) == bool(failed)
    assert all(name in report.problem for name in failed)


def test_probe_without_a_result_counts_as_not_held() -> None:
    report = judge("weak", [each for each in all_held() if each.name != "symlink"])
    assert report.level == "L0"
    assert "symlink" in report.problem


async def test_sandbox_that_refuses_to_be_prepared_reports_reason_and_fix(tmp_path: Path) -> None:
    class Refusing(WeakSandbox):
        async def prepare(self, spec: SandboxSpec) -> None:
            raise SandboxError("there is no bwrap", fix="apt-get install bubblewrap")

    report = await measure_sandbox(Refusing(), tmp_path)
    assert (report.level, report.problem) == ("L0", "there is no bwrap")
    assert report.fix == "apt-get install bubblewrap"
    assert list(tmp_path.iterdir()) == []


async def test_launcher_that_does_not_start_reports_level_zero(tmp_path: Path) -> None:
    sandbox = WeakSandbox(uses_bwrap=False)

    async def fail(*_: object) -> str:
        return "bwrap: Creating new namespace failed"

    report = await measure_sandbox(sandbox, tmp_path, run=fail)
    assert report.level == "L0"
    assert "Creating new namespace failed" in report.problem
    assert report.fix


async def test_programs_that_cannot_be_executed_report_the_mount_option(tmp_path: Path) -> None:
    async def refuse(*_: object) -> str:
        return "probe:control:126\nprobe:mount:126\n"

    report = await measure_sandbox(WeakSandbox(uses_bwrap=False), tmp_path, run=refuse)
    assert report.level == "L0"
    assert "noexec" in report.fix


async def test_probe_that_did_not_report_counts_as_not_held(tmp_path: Path) -> None:
    async def stop_early(*_: object) -> str:
        return "probe:control:0\nprobe:mount:1\nprobe:fork-bomb-started:0\n"

    report = await measure_sandbox(WeakSandbox(uses_bwrap=False), tmp_path, run=stop_early)
    held = {each.name for each in report.probes if each.has_held}
    assert held == {"mount", "fork-bomb", "udp-loopback", "outside-write"}


async def test_measure_removes_what_a_killed_one_left(tmp_path: Path) -> None:
    async def stop(*_: object) -> str:
        return ""

    old, young = tmp_path / "probe-00000000", tmp_path / "probe-11111111"
    for folder in (old, young):
        (folder / "workspace").mkdir(0o700, parents=True)
    os.utime(old, (1, 1))
    await measure_sandbox(WeakSandbox(uses_bwrap=False), tmp_path, run=stop)
    assert list(tmp_path.iterdir()) == [young]


async def test_part_that_fails_early_leaves_nothing_of_a_slow_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def stop(*_: object) -> str:
        return ""

    def make_slowly(part: ProbePart, facts: ProbeFacts) -> dict[str, bytes]:
        if part == "disk":
            time.sleep(0.1)
        return make_programs(part, facts)

    monkeypatch.setattr("homarus.tools.sandbox.probes.make_programs", make_slowly)
    await measure_sandbox(WeakSandbox(uses_bwrap=False), tmp_path, run=stop)
    await asyncio.get_running_loop().shutdown_default_executor()
    assert list(tmp_path.iterdir()) == []


async def test_control_characters_of_a_launcher_are_escaped(tmp_path: Path) -> None:
    async def fail(*_: object) -> str:
        return "bwrap: \x1b]0;title\x07 failed"

    report = await measure_sandbox(WeakSandbox(uses_bwrap=False), tmp_path, run=fail)
    assert "failed" in report.problem
    assert "\x1b" not in report.problem


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("user/max_user_namespaces", "0\n"),
        ("kernel/unprivileged_userns_clone", "0\n"),
        ("kernel/apparmor_restrict_unprivileged_userns", "1\n"),
    ],
)
def test_namespace_fix_names_the_setting_that_forbids(
    tmp_path: Path, name: str, value: str
) -> None:
    (tmp_path / name).parent.mkdir(0o700)
    (tmp_path / name).write_text(value)
    assert f"sysctl -w {name.replace('/', '.')}=" in find_namespace_fix(tmp_path)


def test_namespace_fix_without_such_a_setting_names_the_commands(tmp_path: Path) -> None:
    assert "sysctl" not in find_namespace_fix(tmp_path)


@pytest.mark.slow
async def test_command_without_a_sandbox_fails_every_probe(tmp_path: Path) -> None:
    with_folder = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        sandbox = WeakSandbox(uses_bwrap=False, fds=(with_folder,))
        report = await measure_sandbox(sandbox, tmp_path)
    finally:
        os.close(with_folder)
    held = {each.name for each in report.probes if each.has_held}
    allowed = DEPENDS_ON_KERNEL | DNS
    if not is_root():  # an ordinary user has no such rights either
        allowed |= {"setuid", "capabilities", "ptrace", "read-only"}
    assert held <= allowed
    assert report.level == "L0"
    assert len(sandbox.destroyed) == 3
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("without", "extra", "expected"),
    [
        ((), (), set()),
        ((), ("--share-net",), NETWORK),
        (("--disable-userns",), (), {"user-namespace", "user-namespace-clone"}),
        ((), ("--proc", "/proc"), {"proc-writes"} if is_root() else set()),  # a writable one
    ],
)
async def test_weak_bubblewrap_fails_exactly_the_probes_of_its_gaps(
    tmp_path: Path, without: tuple[str, ...], extra: tuple[str, ...], expected: set[str]
) -> None:
    require_bwrap()
    report = await measure_sandbox(WeakSandbox(without=without, extra=extra), tmp_path)
    failed = failed_in(report)
    depends = DNS if "--share-net" in extra else set()
    certain = UNFILTERED | LIMITS | expected
    assert failed - depends <= certain
    assert failed >= certain - (DEPENDS_ON_KERNEL - expected)
    assert report.level == "L1"


@pytest.mark.slow
async def test_bubblewrap_with_the_machine_bound_fails_the_file_probes(tmp_path: Path) -> None:
    require_bwrap()
    extra = ("--bind", str(tmp_path), str(tmp_path))
    report = await measure_sandbox(WeakSandbox(extra=extra), tmp_path)
    failed = failed_in(report)
    files = {"state-directory", "other-workspace", "outside-write", "symlink", "proc-root"}
    assert failed >= files | {"unix-socket-outside"}
    assert report.level == "L0"


@pytest.mark.slow
async def test_bubblewrap_with_the_processes_of_the_machine_fails(tmp_path: Path) -> None:
    require_bwrap()
    # Namespaces one by one, without that of processes.
    each = ("--unshare-user", "--unshare-ipc", "--unshare-net", "--unshare-uts")
    report = await measure_sandbox(WeakSandbox(without=("--unshare-all",), extra=each), tmp_path)
    assert failed_in(report) >= {"processes", "signals"}


def as_ordinary_user(make: Callable[[Path], Sandbox], folder: Path) -> SandboxReport:
    """Measure as a user without rights, in a process of its own.

    The user may be unable to execute the interpreter, so the commands have no supervisor, and what
    it limits is not limited.
    """
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reader)
            os.chdir("/")
            os.environ["HOME"] = str(folder)
            os.setgroups([])
            os.setresgid(65534, 65534, 65534)
            os.setresuid(65534, 65534, 65534)
            found = asyncio.run(measure_sandbox(make(folder), folder, run=run_directly))
            rows = [[each.name, each.has_held, each.detail] for each in found.probes]
            os.write(writer, json.dumps([found.level, found.problem, rows]).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        level, problem, rows = json.loads(file.read() or b'["L0", "the child failed", []]')
    os.waitpid(pid, 0)
    probes = tuple(EscapeProbeResult(*row) for row in rows)
    return SandboxReport("weak", level, probes, problem)


@pytest.fixture
def users_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        os.chown(name, 65534, 65534)
        yield Path(name)


@pytest.mark.slow
@pytest.mark.skipif(not is_root(), reason="only root becomes another user")
def test_bubblewrap_as_an_ordinary_user_fails_only_the_unfiltered(users_folder: Path) -> None:
    require_bwrap()
    report = as_ordinary_user(lambda _folder: WeakSandbox(), users_folder)
    assert failed_in(report) <= UNFILTERED | LIMITS, report.problem
    assert report.level == "L1"
    assert list(users_folder.iterdir()) == []


@pytest.mark.slow
@pytest.mark.skipif(not is_root(), reason="only root becomes another user")
def test_bubblewrap_as_an_ordinary_user_isolates(users_folder: Path) -> None:
    require_bwrap()
    report = as_ordinary_user(bubblewrap.create, users_folder)
    assert failed_in(report) <= LIMITS, report.problem
    assert report.level == "L2"


_MEASURE = """
import asyncio, pathlib, sys
from homarus.tools.sandbox.probes import measure_sandbox
from tests.unit.tools.probe_builders import WeakSandbox
report = asyncio.run(measure_sandbox(WeakSandbox(), pathlib.Path(sys.argv[1])))
print(report.level, report.problem, report.fix, sep="|")
"""


_EXECUTE = """
import asyncio, pathlib, sys
from homarus.core.errors import SandboxError
from tests.unit.tools.sandbox_builders import FULL_ACCESS, SandboxRegistry, check_config
home = pathlib.Path(sys.argv[1])
config = check_config({"agents": {"defaults": {"sandbox": {"mode": "all"}}}}).config
sandbox = SandboxRegistry(lambda: config, home / "state").open(
    "main", "agent:main:main", home, FULL_ACCESS
)
try:
    asyncio.run(sandbox.make_launch(f"touch {home}/ran"))
    print("L9||launched")
except SandboxError as exc:
    print("L0", exc.message, exc.fix, sep="|")
"""


@pytest.mark.parametrize("program", [_MEASURE, _EXECUTE], ids=["measure", "command"])
def test_machine_without_user_namespaces_gets_reason_and_fix(tmp_path: Path, program: str) -> None:
    require_bwrap()
    script = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"'
    words = ["unshare", "-Ur", "sh", "-c", script, "sh", sys.executable, "-c", program]
    done = subprocess.run(
        [*words, str(tmp_path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    level, problem, fix = done.stdout.strip().split("|")
    assert level == "L0"
    assert "namespace" in problem
    assert "sysctl -w user.max_user_namespaces=" in fix
    assert not (tmp_path / "ran").exists()
