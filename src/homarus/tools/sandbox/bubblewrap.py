"""Sandboxes by bubblewrap: new namespaces for every command, without a daemon and without root.

`bwrap` starts a command in its own user, process, network, ipc, host name and cgroup namespace. It
sees the programs of this machine read-only, an `/etc` that we made, and the folders of its sandbox.
It has no capability, cannot make another user namespace, and has a seccomp filter (`seccomp.py`).
Limits for all of its processes are set by cgroups where we may make them (`cgroups.py`).

A gateway that runs as root starts commands whose user id outside is root's: without capabilities,
but the owner of root's files. So nothing of root's can be written: `/proc`, with the settings of
the kernel, is read-only.
"""

import asyncio
import hashlib
import os
import platform
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

from homarus.core.errors import SandboxError
from homarus.core.fast_dataclass import dataclass
from homarus.tools.sandbox.base import (
    Mount,
    Sandbox,
    SandboxCommand,
    SandboxLaunch,
    SandboxReport,
    SandboxSpec,
    check_sandbox_name,
)
from homarus.tools.sandbox.cgroups import CgroupParents, find_parents, make_groups, remove_groups
from homarus.tools.sandbox.mount_rules import (
    check_target,
    check_workdir,
    find_state_dirs,
    make_mount_point,
    open_mount,
)
from homarus.tools.sandbox.sandbox_etc import write_etc
from homarus.tools.sandbox.seccomp import has_filter, make_filter

NAME: Final = "bubblewrap"
HOME: Final = "/tmp/home"  # noqa: S108 - inside, where /tmp belongs to the sandbox
PATH: Final = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
_TMP: Final = "/tmp"  # noqa: S108 - inside
_SHELL: Final = "/bin/sh"
_USER_ID: Final = "1000"
_MIN_VERSION: Final = (0, 8, 0)
_SHM_BYTES: Final = 64 << 20
_TEST_S: Final = 20.0
_SYSTEM_FOLDERS: Final = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_ISOLATION: Final = (
    "--unshare-all",
    "--unshare-user",
    "--uid",
    _USER_ID,
    "--gid",
    _USER_ID,
    "--disable-userns",
    "--cap-drop",
    "ALL",
    "--die-with-parent",
    "--hostname",
    "sandbox",
    "--clearenv",
)
# Of the processes of this sandbox: holds for an ordinary user, whose processes are counted for each
# user namespace. `-u` is bash's name, `-p` that of other shells.
_LIMIT_PROCESSES: Final = "ulimit -u {0} 2>/dev/null || ulimit -p {0} 2>/dev/null; "
# Makes the command the leader of a session that has the terminal, so that interrupts reach it and
# its process group has nothing of outside in it.
_TAKE_TERMINAL: Final = ("/usr/bin/setsid", "--ctty")


def create(scratch: Path) -> Sandbox:
    """Return the backend; `scratch` is a private folder for the `/etc` of commands."""
    return BubblewrapSandbox(scratch)


@dataclass(frozen=True, slots=True)
class _Launcher:
    """The program `bwrap`: its path, and whether it mounts descriptors."""

    path: str
    mounts_descriptors: bool


@dataclass(frozen=True, slots=True)
class _InnerCommand:
    """What runs inside: the words, and what they need besides the sandbox's own.

    `fds` are inherited by the command; `proxy` is our end of the socket pair of its network.
    `identity` are the words without descriptors.
    """

    argv: tuple[str, ...]
    identity: tuple[str, ...]
    mounts: tuple[Mount, ...] = ()
    env: Mapping[str, str] | None = None
    fds: tuple[int, ...] = ()
    proxy: int = -1


class BubblewrapSandbox:
    """Starts commands by `bwrap`. A sandbox has nothing of its own besides its folders."""

    def __init__(self, scratch: Path, *, parents: CgroupParents | None = None) -> None:
        self._scratch = scratch
        self._parents = find_parents() if parents is None else parents
        self._launcher: _Launcher | None = None
        self._system: tuple[str, ...] = ()
        self._protected: tuple[Path, ...] = ()
        self._is_tested = False

    @property
    def name(self) -> str:
        return NAME

    async def prepare(self, spec: SandboxSpec) -> None:
        """Check that bwrap works here, and the folders and mounts of the sandbox."""
        await asyncio.to_thread(self._prepare, spec)

    def spawn(self, spec: SandboxSpec, command: SandboxCommand) -> SandboxLaunch:
        """Return how to start a command. Raises SandboxError for a mount that is refused."""
        launcher = self._launcher or self._find_launcher()
        with ExitStack() as opened:
            inner = self._make_inner(spec, command, opened)
            options = self._options(spec, command, inner, launcher, opened)
            data = "".join(f"{each}\0" for each in options.words).encode("utf-8", "surrogateescape")
            args_fd = _open_memory(data, opened)
            filter_fd = _open_memory(make_filter(platform.machine()), opened)
            argv = (launcher.path, "--args", str(args_fd), "--seccomp", str(filter_fd), "--")
            limits = spec.limits
            return SandboxLaunch(
                argv=(*argv, *inner.argv),
                env={},
                fds=(args_fd, filter_fd, *options.fds, *inner.fds),
                rlimits=self._rlimits(spec),
                cgroups=make_groups(self._parents, spec.name, limits),
                uses_landlock=True,
                disk_folders=(str(spec.workspace), str(spec.tmp)) if limits.disk_bytes else (),
                disk_bytes=limits.disk_bytes,
                proxy=inner.proxy,
                allowed_hosts=spec.allowed_hosts,
                network_policy=spec.network_policy,
                identity=(_hash(*options.identity, "--", *inner.identity),),
                terminates_inside=True,
                close=opened.pop_all().close,
            )

    def mounts(self, spec: SandboxSpec) -> tuple[Mount, ...]:
        """Return everything of this machine that is seen inside."""
        found = (*_system_mounts(), *_own_mounts(spec), *spec.mounts)
        if not spec.allowed_hosts:
            return found
        from homarus.tools.sandbox.network import interpreter_mounts

        return (*found, *interpreter_mounts())

    async def measure(self, options: Mapping[str, object] | None = None) -> SandboxReport:
        """Run the escape probes inside, and return the level that holds."""
        from homarus.tools.sandbox.probes import measure_sandbox

        return await measure_sandbox(self, self._scratch, options=options)

    async def destroy(self, name: str) -> None:
        """End what runs in the cgroups of a sandbox, and remove these."""
        await asyncio.to_thread(remove_groups, name, self._parents)

    def _prepare(self, spec: SandboxSpec) -> None:
        check_sandbox_name(spec.name)
        self._find_launcher()
        for folder in (spec.workspace, spec.tmp):
            _check_owner(folder)
        for mount in spec.mounts:
            check_target(mount, spec)
        launch = self.spawn(spec, SandboxCommand("exit 0", spec.workdir))
        try:
            if not self._is_tested:
                self._test(launch)
                self._is_tested = True
        finally:
            launch.close()

    def _find_launcher(self) -> _Launcher:
        if sys.platform != "linux":
            raise SandboxError(
                "bubblewrap sandboxes exist on Linux only", fix="set sandbox.backend to oci"
            )
        if not has_filter(platform.machine()):
            raise SandboxError(
                f"there is no seccomp filter for {platform.machine()}",
                fix="set sandbox.backend to oci",
            )
        if self._launcher is None:
            found = _find_bwrap()
            self._protected = find_state_dirs(Path(os.path.realpath(self._scratch)))
            self._system = tuple(_system_options(write_etc(self._scratch)))
            self._launcher = found  # last: another thread sees all or nothing
        return self._launcher

    def _test(self, launch: SandboxLaunch) -> None:
        """Start a command once. Raises SandboxError with what the machine does not allow."""
        try:
            done = subprocess.run(  # noqa: S603 - our own words
                launch.argv,
                env=dict(launch.env),
                pass_fds=launch.fds,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
                timeout=_TEST_S,
            )
        except (OSError, subprocess.TimeoutExpired) as exc:
            raise SandboxError(f"bwrap does not run: {exc}", fix=_install_fix()) from exc
        if done.returncode != 0:
            raise explain_failure(done.stderr.decode("utf-8", "replace").strip())

    def _make_inner(
        self, spec: SandboxSpec, command: SandboxCommand, opened: ExitStack
    ) -> _InnerCommand:
        """Return the words that run inside: the command, limited and with its network."""
        before = ""
        if spec.limits.pids and os.geteuid() != 0 and not self._parents.pids:
            before = _LIMIT_PROCESSES.format(spec.limits.pids)
        argv: tuple[str, ...] = (_SHELL, "-c", "--", command.text)  # a text with `-` is no option
        if before:
            argv = (_SHELL, "-c", before + 'exec "$@"', "sh", *argv)
        if _takes_terminal(command):
            argv = (*_TAKE_TERMINAL, *argv)
        inner = _InnerCommand(argv, argv)
        return self._wrap_network(inner, opened) if spec.allowed_hosts else inner

    def _wrap_network(self, inner: _InnerCommand, opened: ExitStack) -> _InnerCommand:
        """Return the command behind a stage that opens the port of the proxy."""
        from homarus.tools.sandbox.network import (  # few sandboxes have a network
            interpreter_mounts,
            open_proxy_pair,
            wrap_command,
        )

        ours, theirs = open_proxy_pair()
        for fd in (ours, theirs):
            opened.callback(os.close, fd)
        return _InnerCommand(
            wrap_command(inner.argv, theirs),
            identity=inner.argv,
            mounts=interpreter_mounts(),
            fds=(theirs,),
            proxy=ours,
        )

    def _options(
        self,
        spec: SandboxSpec,
        command: SandboxCommand,
        inner: _InnerCommand,
        launcher: _Launcher,
        opened: ExitStack,
    ) -> "_Options":
        check_workdir(spec.workdir)
        options = _Options([*_ISOLATION, *self._system], launcher, opened)
        if not _takes_terminal(command):
            options.words.append("--new-session")
        for mount in _own_mounts(spec):
            options.mount(mount, self._protected)
        # Not by bwrap, which would follow a link that a command has left there.
        with suppress(OSError):
            (spec.tmp / Path(HOME).name).mkdir(mode=0o700)
        extra = (*spec.mounts, *inner.mounts)
        for mount in sorted(extra, key=lambda each: (each.target.count("/"), each.target)):
            check_target(mount, spec)
            make_mount_point(mount, spec)
            options.mount(mount, self._protected)
        env = {"PATH": PATH, "HOME": HOME, "LANG": "C.UTF-8", "TMPDIR": _TMP}
        if command.pty:
            env["TERM"] = "xterm-256color"
        for more in (spec.env, inner.env, command.env):
            env |= more or {}
        for key, value in env.items():
            if not key or "=" in key or "\0" in key + value:
                raise SandboxError(f"{key!r} is no environment variable", fix="rename it")
            options.words += ["--setenv", key, value]
        workdir = command.workdir
        if not workdir.startswith("/") or "\0" in workdir:
            raise SandboxError(f"{workdir!r} is no folder of a sandbox", fix="use an absolute path")
        # Last: only now nothing is created in the root folder any more.
        options.words += ["--remount-ro", "/", "--chdir", workdir]
        return options

    def _rlimits(self, spec: SandboxSpec) -> tuple[tuple[str, int], ...]:
        limits = spec.limits
        values = {
            "RLIMIT_CORE": 0,
            "RLIMIT_FSIZE": limits.file_bytes,
            "RLIMIT_NOFILE": limits.open_files,
            "RLIMIT_CPU": limits.cpu_s,
            # Not the address space: programs reserve much more of it than they use.
            "RLIMIT_DATA": 0 if self._parents.memory else limits.memory_bytes,
        }
        return tuple((key, value) for key, value in values.items() if value or key == "RLIMIT_CORE")


class _Options:
    """The options of one start of bwrap, with the descriptors that they name.

    `identity` are the same words with paths instead of descriptors.
    """

    def __init__(self, words: list[str], launcher: _Launcher, opened: ExitStack) -> None:
        self.words, self.fds = words, list[int]()
        self._launcher, self._opened = launcher, opened
        self._sources: dict[int, str] = {}

    @property
    def identity(self) -> tuple[str, ...]:
        return tuple(self._sources.get(n, word) for n, word in enumerate(self.words))

    def mount(self, mount: Mount, protected: tuple[Path, ...]) -> None:
        """Mount what a path leads to now, whatever replaces it later. Raises SandboxError."""
        fd = open_mount(mount.source, protected)
        self._opened.callback(os.close, fd)
        prefix = "--bind" if mount.is_writable else "--ro-bind"
        if self._launcher.mounts_descriptors:
            self.fds.append(fd)
            self._sources[len(self.words) + 1] = str(mount.source)
            self.words += [f"{prefix}-fd", str(fd), mount.target]
        else:
            self.words += [prefix, str(Path(f"/proc/self/fd/{fd}").readlink()), mount.target]


def _takes_terminal(command: SandboxCommand) -> bool:
    return command.pty and Path(_TAKE_TERMINAL[0]).exists()


def _own_mounts(spec: SandboxSpec) -> tuple[Mount, ...]:
    return (
        Mount(Path(os.path.realpath(spec.tmp)), _TMP, is_writable=True),
        Mount(Path(os.path.realpath(spec.workspace)), spec.workdir, is_writable=True),
    )


def _system_mounts() -> Iterator[Mount]:
    yield Mount(Path("/usr"), "/usr")
    for name in _SYSTEM_FOLDERS:
        folder = Path("/", name)
        if folder.is_dir() and not folder.is_symlink():
            yield Mount(folder, str(folder))


def _system_options(etc: Path) -> Iterator[str]:
    """Yield what is the same for all commands: programs, /etc, /proc and /dev.

    As few mounts as possible: bwrap reads the list of all mounts for each.
    """
    for name in _SYSTEM_FOLDERS:
        if Path("/", name).is_symlink():
            yield from ("--symlink", str(Path("/", name).readlink()), f"/{name}")
    for mount in (*_system_mounts(), Mount(etc, "/etc")):
        yield from ("--ro-bind", str(mount.source), mount.target)
    yield from ("--proc", "/proc", "--remount-ro", "/proc")
    yield from ("--dev", "/dev", "--perms", "1777", "--size", str(_SHM_BYTES))
    yield from ("--tmpfs", "/dev/shm", "--remount-ro", "/dev")  # noqa: S108 - inside


def _find_bwrap() -> _Launcher:
    folders = f"/usr/bin:/usr/local/bin:/bin:{os.environ.get('PATH', '')}"
    path = shutil.which("bwrap", path=folders)
    if path is None:
        raise SandboxError("bubblewrap is not installed: there is no bwrap", fix=_install_fix())
    text = _ask(path, "--version")
    match = re.search(r"(\d+)\.(\d+)\.(\d+)", text)
    if match is None or tuple(int(each) for each in match.groups()) < _MIN_VERSION:
        raise SandboxError(
            f"{path} is {text.strip() or 'not bubblewrap'}; 0.8.0 or later is needed",
            fix="install a newer bubblewrap, or set sandbox.backend to oci",
        )
    return _Launcher(path, "--ro-bind-fd" in _ask(path, "--help"))


def _ask(path: str, option: str) -> str:
    try:
        done = subprocess.run(  # noqa: S603 - the program that was found
            [path, option], env={}, capture_output=True, check=False, timeout=_TEST_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode("utf-8", "replace")


def _install_fix() -> str:
    return "apt-get install bubblewrap (or the package of your system)"


def _check_owner(folder: Path) -> None:
    try:
        found = folder.stat()
    except OSError as exc:
        raise SandboxError(
            f"{folder}, a folder of the sandbox, cannot be used: {exc.strerror}",
            fix="remove the sandbox with: homarus sandbox recreate",
        ) from exc
    if not stat.S_ISDIR(found.st_mode):
        raise SandboxError(f"{folder} is not a folder", fix="remove the file")
    if found.st_uid != os.geteuid():
        raise SandboxError(
            f"{folder} belongs to user {found.st_uid}, and the gateway runs as user"
            f" {os.geteuid()}: commands in the sandbox could not write there",
            fix=f"chown -R {os.geteuid()} {folder}",
        )


def explain_failure(
    error: str, read_sysctl: Callable[[str], str] | None = None, user_id: int | None = None
) -> SandboxError:
    """Return why bwrap could not start a command, from its error and the settings of the kernel."""
    read = read_sysctl or _read_sysctl
    is_root = (os.geteuid() if user_id is None else user_id) == 0
    namespaces = read("user/max_user_namespaces")
    if namespaces == "0" or "No space left on device" in error:
        state = "off" if namespaces == "0" else "used up"
        return SandboxError(
            f"user namespaces are {state} on this machine"
            f" (user.max_user_namespaces is {namespaces})",
            fix="sysctl -w user.max_user_namespaces=15000, and the same line in /etc/sysctl.d",
        )
    if not is_root and read("kernel/unprivileged_userns_clone") == "0":
        return SandboxError(
            "ordinary users may not make user namespaces on this machine"
            " (kernel.unprivileged_userns_clone is 0)",
            fix="sysctl -w kernel.unprivileged_userns_clone=1, and the same line in /etc/sysctl.d",
        )
    if not is_root and read("kernel/apparmor_restrict_unprivileged_userns") not in {"", "0"}:
        return SandboxError(
            "AppArmor restricts user namespaces on this machine"
            " (kernel.apparmor_restrict_unprivileged_userns is 1)",
            fix="give /usr/bin/bwrap an AppArmor profile with the rule `userns,`, or"
            " sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
        )
    return SandboxError(
        f"bwrap could not start a command: {error or 'it gave no reason'}",
        fix="run `bwrap --unshare-all --ro-bind / / --proc /proc true` to see what the machine"
        " refuses; in a container, allow it user namespaces and a /proc of its own, or run the"
        " gateway outside",
    )


def _read_sysctl(name: str) -> str:
    try:
        return Path("/proc/sys", name).read_text().strip()
    except OSError:
        return ""


def _hash(*words: str) -> str:
    """Return the hash of words: among them are variables, which may be secrets."""
    data = "\0".join(words).encode("utf-8", "surrogateescape")
    return hashlib.sha256(data).hexdigest()


def _open_memory(data: bytes, opened: ExitStack) -> int:
    """Return a descriptor of memory with the data, to be read from its start."""
    fd = os.memfd_create("homarus", os.MFD_CLOEXEC)
    opened.callback(os.close, fd)
    os.write(fd, data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd
