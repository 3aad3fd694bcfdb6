"""The escape probes: what a sandbox holds against on this machine, measured inside it.

A probe tries something that a command must not be able to do. It is harmless where it succeeds: it
mounts over its own empty folder, sends signal 0, opens files of the kernel without writing to them,
and its bombs stop by themselves. All probes run in three commands at once, each in a throw-away
sandbox with small limits.
"""

import asyncio
import errno
import logging
import os
import re
import secrets
import shutil
import signal
import socket
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeAlias

from homarus.core.errors import HomarusError, SandboxError
from homarus.core.fast_dataclass import dataclass
from homarus.core.private_files import make_private_dir
from homarus.core.text import escape_controls
from homarus.tools.sandbox.base import (
    EscapeProbeResult,
    Sandbox,
    SandboxCommand,
    SandboxLaunch,
    SandboxLevel,
    SandboxReport,
    SandboxSpec,
)
from homarus.tools.sandbox.probe_list import (
    CONTROL,
    LIMITS,
    PARTS,
    PROBES,
    ProbeFacts,
    ProbePart,
    make_programs,
    make_script,
)
from homarus.tools.sandbox.probe_program import machine_architecture

log = logging.getLogger(__name__)

TIMEOUT_S: Final = 30.0
# What starts a launch, returns its output when it has ended, and closes it.
LaunchRunner: TypeAlias = Callable[[SandboxLaunch, Path, float], Awaitable[str]]

_LINE: Final = re.compile(r"^probe:([a-z0-9-]+):(\d+)(?::(.*))?$", re.MULTILINE)
_NOT_STARTED: Final = (126, 127)  # what sh returns for a program that cannot be started
_EXECUTABLE_MODE: Final = 0o755
_SOCKET_MODE: Final = 0o666  # a user of a container may be another one
_PROBE_FOLDER: Final = "probe"
_LEFTOVER_S: Final = 10 * TIMEOUT_S


async def measure_sandbox(
    sandbox: Sandbox,
    scratch: Path,
    *,
    options: Mapping[str, object] | None = None,
    run: LaunchRunner | None = None,
) -> SandboxReport:
    """Run the escape probes in sandboxes below `scratch`, and return the level that holds.

    Nothing is left in `scratch`. A sandbox that cannot be made has the level L0, with the reason
    and the fix; this raises nothing else than the cancellation of the caller.
    """
    architecture = machine_architecture()
    if architecture is None:
        problem = f"there are no escape probes for processors of the kind {os.uname().machine}"
        return SandboxReport(sandbox.name, "L0", (), problem, "use x86_64 or aarch64")
    folder = scratch / f"{_PROBE_FOLDER}-{secrets.token_hex(4)}"
    results: list[EscapeProbeResult] = []
    error: BaseException | None = None
    try:
        await asyncio.to_thread(_remove_leftovers, scratch)
        make_private_dir(folder)
        with _make_bait(folder) as bait:
            measure = _Measure(sandbox, folder, bait, run or _run_supervised, options)
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(measure.run_part(part)) for part in PARTS]
            results = [each for task in tasks for each in task.result()]
            results += bait.results()
    except* (HomarusError, OSError) as caught:
        error = _first_error(caught)
    finally:
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
    if error is not None:
        return _unusable(sandbox.name, error)
    order = list(PROBES)
    return judge(sandbox.name, sorted(results, key=lambda each: order.index(each.name)))


def _remove_leftovers(scratch: Path) -> None:
    """Remove the folders of measures that were killed; one that is under way is younger."""
    for folder in scratch.glob(f"{_PROBE_FOLDER}-*"):
        with suppress(OSError):
            if time.time() - folder.lstat().st_mtime > _LEFTOVER_S:
                shutil.rmtree(folder, ignore_errors=True)


def judge(backend: str, results: "list[EscapeProbeResult]") -> SandboxReport:
    """Return the report: the level, and for one below L3 the reason and what helps."""
    failed = [each.name for each in results if not each.has_held]
    failed += [name for name in PROBES if name not in {each.name for each in results}]
    groups = {PROBES[name].group for name in failed}
    level: SandboxLevel = "L3"
    if "files" in groups:
        level = "L0"
    elif groups & {"kernel", "network", "processes"}:
        level = "L1"
    elif groups:
        level = "L2"
    if not failed:
        return SandboxReport(backend, level, tuple(results))
    fix = _LIMITS_FIX if groups <= {"limits"} else _ISOLATION_FIX.format(backend=backend)
    shown = ", ".join(failed[:_MAX_NAMED]) + (", …" if len(failed) > _MAX_NAMED else "")
    return SandboxReport(backend, level, tuple(results), f"it does not hold against {shown}", fix)


_MAX_NAMED: Final = 6
_LIMITS_FIX: Final = (
    "the gateway needs cgroups of its own with the controllers pids and memory: run it as a "
    "service of systemd with Delegate=yes, or as root"
)
_ISOLATION_FIX: Final = (
    "homarus sandbox probe --backend {backend} shows each probe; update the kernel and the "
    "programs of the backend, or choose another sandbox.backend"
)


def _unusable(backend: str, error: BaseException) -> SandboxReport:
    """Return the report of a sandbox that could not be made."""
    if isinstance(error, HomarusError):
        return SandboxReport(backend, "L0", (), error.message, error.fix)
    fix = "check the permissions and the free space of the state directory"
    return SandboxReport(backend, "L0", (), f"the probes could not be prepared: {error}", fix)


def _first_error(caught: BaseExceptionGroup[BaseException]) -> BaseException:
    first = caught.exceptions[0]
    return _first_error(first) if isinstance(first, BaseExceptionGroup) else first


class _Measure:
    """One measure: makes a throw-away sandbox for each part, and interprets what it prints."""

    def __init__(
        self,
        sandbox: Sandbox,
        folder: Path,
        bait: "_Bait",
        run: LaunchRunner,
        options: Mapping[str, object] | None,
    ) -> None:
        self._sandbox, self._folder, self._bait, self._run = sandbox, folder, bait, run
        self._options = options
        self._preparing = asyncio.Lock()

    async def run_part(self, part: ProbePart) -> list[EscapeProbeResult]:
        """Return the results of the probes of one part."""
        spec = self._make_spec(part)
        facts = self._bait.make_facts(spec.workspace, self._read_only_targets(spec))
        # Not in a thread: one that outlives a cancelled part would write after the removal.
        self._write_programs(spec, facts, part)
        async with self._preparing:  # the first one may have to find out what the machine has
            await self._sandbox.prepare(spec)
        try:
            launch = self._sandbox.spawn(spec, SandboxCommand(make_script(part, facts)))
            output = await self._run(launch, spec.workspace, TIMEOUT_S)
        finally:
            with suppress(HomarusError, OSError):
                await self._sandbox.destroy(spec.name)
        if not _has_control(output):
            raise _not_started(output)
        return list(_interpret(part, output))

    def _make_spec(self, part: ProbePart) -> SandboxSpec:
        base = self._folder / part
        workspace, tmp = base / "workspace", base / "tmp"
        for each in (workspace, tmp):
            make_private_dir(each)
        # Growth of the disk ends a command: only that of the part that tests it.
        limits = LIMITS if part == "disk" else replace(LIMITS, disk_bytes=0)
        name = f"{self._folder.name}-{part}"
        return SandboxSpec(name, workspace, tmp, limits=limits, options=self._options)

    def _read_only_targets(self, spec: SandboxSpec) -> tuple[str, ...]:
        """Return the folders of this machine that the backend says are read-only inside."""
        own = {spec.workspace, spec.tmp}
        return tuple(
            each.target
            for each in self._sandbox.mounts(spec)
            if each.source not in own and not each.is_writable and each.source.is_dir()
        )

    def _write_programs(self, spec: SandboxSpec, facts: ProbeFacts, part: ProbePart) -> None:
        if part == "isolation":
            self._bait.place(spec.workspace)
        folder = spec.workspace / "p"
        make_private_dir(folder / "m")  # where the probe of mounts mounts
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        for name, data in make_programs(part, facts).items():
            fd = os.open(folder / name, flags, _EXECUTABLE_MODE)
            with os.fdopen(fd, "wb") as file:
                os.fchmod(fd, _EXECUTABLE_MODE)  # whatever the umask is
                file.write(data)


def _has_control(output: str) -> bool:
    """Return whether programs ran inside; without, no answer of a probe means anything."""
    return any((name, code) == (CONTROL, "0") for name, code, _seen in _LINE.findall(output))


def _not_started(output: str) -> SandboxError:
    """Return the reason why no command, or no program of ours, could be run inside."""
    if code := next((code for name, code, _ in _LINE.findall(output) if name == CONTROL), ""):
        return SandboxError(
            f"the escape probes could not be executed inside (status {code})",
            fix="have the state directory on a file system that is not mounted with noexec",
        )
    last = escape_controls(" ".join(output.split()))[-_MAX_REASON_CHARS:]
    last = last or "the command ended without output"
    return SandboxError(f"no command could be run: {last}", fix=find_namespace_fix())


def find_namespace_fix(root: Path = Path("/proc/sys")) -> str:
    """Return which setting of the kernel keeps programs from making user namespaces.

    Without such a setting, return how to see what the launcher says.
    """
    for name, bad, good in _NAMESPACE_SETTINGS:
        with suppress(OSError):
            if (root / name.replace(".", "/")).read_text(encoding="ascii").strip() == bad:
                return (
                    f"user namespaces are off: run sysctl -w {name}={good} as root, and write it to"
                    " /etc/sysctl.d/60-homarus.conf so that it stays"
                )
    return "homarus sandbox probe shows it again; homarus doctor shows what is missing"


# The settings that switch user namespaces off, with the value that does and one that does not.
_NAMESPACE_SETTINGS: Final = (
    ("user.max_user_namespaces", "0", "15000"),
    ("kernel.unprivileged_userns_clone", "0", "1"),
    ("kernel.apparmor_restrict_unprivileged_userns", "1", "0"),
)
_MAX_REASON_CHARS: Final = 300


def _interpret(part: ProbePart, output: str) -> Iterator[EscapeProbeResult]:
    """Yield what the lines of a part say about each of its probes."""
    lines = {name: (int(code), seen) for name, code, seen in _LINE.findall(output)}
    for name, probe in PROBES.items():
        if probe.part != part or probe.is_seen_outside:
            continue
        found = lines.get(name)
        if found is None:
            # A bomb may take the shell that reports with it, after it was announced.
            was_ended = f"{name}-started" in lines
            detail = "the command was ended" if was_ended else "the probe did not report"
            yield EscapeProbeResult(
                name, has_held=was_ended, detail=_with_limit(detail, probe.limit)
            )
        else:
            code, seen = found
            has_held = probe.has_held(code) and code not in _NOT_STARTED
            detail = escape_controls(seen) or describe_code(code)
            yield EscapeProbeResult(name, has_held, _with_limit(detail, probe.limit))


def _with_limit(detail: str, limit: str) -> str:
    return f"{detail} (limit: {limit})" if limit else detail


def describe_code(code: int) -> str:
    """Return the meaning of a probe's exit code as text."""
    if code == 0:
        return "succeeded"
    if code in _NOT_STARTED:
        return "the probe could not be started"
    if code > 128:
        with suppress(ValueError):
            return f"killed by {signal.Signals(code - 128).name}"
    name = errno.errorcode.get(code, str(code))
    return f"refused: {name}"


@dataclass(frozen=True, slots=True)
class _Bait:
    """What the probes try to reach: files, sockets and the process of this program."""

    folder: Path
    token: str
    abstract_name: bytes
    unix_socket: socket.socket
    udp: socket.socket
    tcp: socket.socket

    def make_facts(self, workspace: Path, read_only: tuple[str, ...]) -> ProbeFacts:
        """Return what the programs and scripts need to know."""
        return ProbeFacts(
            outside=str(self.folder),
            workspace=str(workspace),
            pid=os.getpid(),
            started_ticks=_started_ticks(),
            abstract_name=self.abstract_name,
            udp_port=self.udp.getsockname()[1],
            tcp_port=self.tcp.getsockname()[1],
            token=self.token,
            read_only=read_only,
        )

    def place(self, workspace: Path) -> None:
        """Put a listening socket and a symlink to the outside into the workspace."""
        _bind_below(self.unix_socket, workspace, "host.sock")
        self.unix_socket.listen()
        (workspace / "link").symlink_to(self.folder / "state" / "secret")

    def results(self) -> list[EscapeProbeResult]:
        """Return what is seen outside: datagrams that arrived, files that changed."""
        try:
            self.udp.recv(100, socket.MSG_DONTWAIT)
            has_held, detail = False, "a datagram arrived at a port of this machine"
        except OSError:
            has_held, detail = True, "no datagram arrived"
        results = [EscapeProbeResult("udp-loopback", has_held, detail)]
        text = (self.folder / "state" / "secret").read_text(encoding="utf-8")
        is_same = text == self.token
        detail = "unchanged" if is_same else "a file outside was changed"
        return [*results, EscapeProbeResult("outside-write", is_same, detail)]


@contextmanager
def _make_bait(folder: Path) -> Iterator[_Bait]:
    """Open the sockets and write the files that the probes try to reach."""
    outside, token = folder / "outside", secrets.token_hex(8)
    for name in ("state/secret", "other-workspace/MEMORY.md"):
        make_private_dir((outside / name).parent)
        fd = os.open(outside / name, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            file.write(token)
    with ExitStack() as stack:
        unix, outer, abstract = (
            stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(3)
        )
        _bind_below(outer, outside, "host.sock")
        outer.listen()
        abstract_name = f"\0homarus-probe-{token}".encode()
        abstract.bind(abstract_name)
        abstract.listen()
        udp = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        tcp = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
        for each in (udp, tcp):
            each.bind(("127.0.0.1", 0))
        tcp.listen()
        yield _Bait(outside, token, abstract_name, unix, udp, tcp)


def _bind_below(sock: socket.socket, folder: Path, name: str) -> None:
    """Bind to a path that may be longer than the address of a unix socket."""
    fd = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        sock.bind(f"/proc/self/fd/{fd}/{name}")
        (folder / name).chmod(_SOCKET_MODE)
    finally:
        os.close(fd)


def _started_ticks() -> int:
    """Return when this process started, by which it is told from one inside of the same number."""
    stat = Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace")
    return int(stat.rpartition(")")[2].split()[19])


async def _run_supervised(launch: SandboxLaunch, folder: Path, timeout_s: float) -> str:
    """Run a launch as the commands of agents are run, and return its output."""
    from homarus.tools.exec.run import run_plan
    from homarus.tools.exec.sandboxed_plan import make_sandboxed_plan

    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        plan = make_sandboxed_plan(
            "escape probes",
            launch,
            folder=str(folder),
            folder_fd=fd,
            workspace=folder,
            env={},
            requested_env={},
            timeout_s=timeout_s,
        )
    except BaseException:
        launch.close()
        raise
    finally:
        os.close(fd)
    try:
        result = await run_plan(plan)
    finally:
        plan.close()
    return f"{result.output}\n{result.refusal}"
