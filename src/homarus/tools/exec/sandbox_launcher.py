"""What the supervisor of a sandboxed command does besides: cgroups, limits, disk, removal.

Imported by `process_supervisor.py`, which runs without our packages: this module imports none of
ours either. The launch is the JSON form of `SandboxLaunch` (see `run.py`).
"""

import os
import resource
import signal
import socket
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

DISK_POLL_S = 0.5
CLEANUP_S = 5.0  # for all cleanup commands together; the gateway waits longer
REMOVE_S = 2.0  # for all cgroups together
ENTRY_BYTES = 1024  # what an entry of a folder counts at least, so that empty files count, too
BLOCK_BYTES = 512
OPTIONAL_SETTINGS = ("memory.swap.max", "memory.oom.group")  # not every kernel has these
PR_SET_PDEATHSIG = 1
PR_SET_NO_NEW_PRIVS = 38
LANDLOCK_CREATE_RULESET = 444
LANDLOCK_RESTRICT_SELF = 446
LANDLOCK_VERSION = 1  # the flag that asks for the version
LANDLOCK_SCOPES_SINCE = 6
LANDLOCK_SCOPES = 0b11  # abstract unix sockets, signals


class LaunchError(Exception):
    """The sandbox could not be set up; the command was not run."""


class SandboxLauncher:
    """Starts the launcher of one command and removes what it leaves.

    `wake` is written to when the command has to be ended; `limit_reason` says why then.
    """

    def __init__(self, launch: dict[str, Any], wake: socket.socket) -> None:
        self._launch, self._wake = launch, wake
        self._folders: list[str] = launch["disk_folders"] if launch["disk_bytes"] else []
        self._used_at_start = [_used_bytes(each) for each in self._folders]
        self._is_watching = False
        self._child = 0
        self.limit_reason = ""

    def start(self) -> int:
        """Start the launcher in its cgroups and return its process id. Raises LaunchError."""
        for group in self._launch["cgroups"]:
            _make_cgroup(group["path"], group["settings"])
        reader, writer = os.pipe()  # closed by exec; has the error when something failed before
        parent = os.getpid()
        self._child = os.fork()
        if self._child == 0:
            self._become(parent, writer)
        os.close(writer)
        with os.fdopen(reader, "rb") as file:
            error = file.read()
        if error:
            os.waitpid(self._child, 0)
            raise LaunchError(error.decode("utf-8", "replace"))
        return self._child

    @property
    def poll_s(self) -> float | None:
        """How long to wait until `poll` is to be called; None when it is not."""
        return DISK_POLL_S if self._folders and not self._is_watching else None

    def poll(self) -> None:
        """Begin to measure the disk: a command that ends sooner never pays for it."""
        if self.poll_s is not None:
            import threading

            self._is_watching = True
            threading.Thread(target=self._watch_disk, daemon=True).start()

    def terminate(self) -> None:
        """Send SIGTERM to the launcher, or to what it runs where its own end kills that."""
        pids = [self._child]
        if self._launch["terminates_inside"]:
            pids = [each for each in _descendants(self._child) if each != self._child]
        for pid in pids or [self._child]:
            with suppress(OSError):
                os.kill(pid, signal.SIGTERM)

    def _become(self, parent: int, errors: int) -> None:
        """Replace this process by the launcher. Does not return."""
        launch, name = self._launch, self._launch["argv"][0]
        doing = "entering the cgroups of the sandbox failed"
        try:
            for group in launch["cgroups"]:
                _write_setting(Path(group["path"], "cgroup.procs"), "0")
            doing = "setting the limits of the sandbox failed"
            _die_with(parent)
            for limit, value in launch["rlimits"]:
                _set_limit(getattr(resource, limit), value)
            if launch["uses_landlock"]:
                restrict_scope()
            doing = f"{name} cannot be executed"
            for number in (signal.SIGPIPE, signal.SIGXFSZ):
                signal.signal(number, signal.SIG_DFL)  # the interpreter ignores these two
            for fd in launch["fds"]:
                os.set_inheritable(fd, True)  # noqa: FBT003 - the library's parameter
            os.execve(name, launch["argv"], launch["env"])  # noqa: S606 - what was decided
        except (OSError, ValueError) as exc:
            text = exc.strerror if isinstance(exc, OSError) else str(exc)
            os.write(errors, f"{doing}: {text}".encode("utf-8", "replace"))
        finally:
            os._exit(126)

    def _watch_disk(self) -> None:
        """Measure the folders until they have grown by too much, then wake the supervisor."""
        limit: int = self._launch["disk_bytes"]
        # What was written before the first measurement is part of the growth.
        before = self._grown_volumes()
        base, _ = _measure(self._folders)
        base -= max(0, before)
        pause_s = DISK_POLL_S
        while True:
            time.sleep(pause_s)
            started_s = time.monotonic()
            found, is_complete = _measure(self._folders)
            grown = found - base
            volumes = self._grown_volumes()
            if volumes > limit:
                grown += _deleted_bytes(_descendants(os.getpid()), self._folders)
            if not is_complete:  # a folder that the command made unreadable may hold anything
                grown = max(grown, volumes)
            if grown > limit:
                break
            pause_s = max(DISK_POLL_S, 5 * (time.monotonic() - started_s))
        size = f"{limit / (1 << 20):.0f} MB"
        self.limit_reason = f"it wrote more than {size} to the folders of the sandbox"
        with suppress(OSError):
            self._wake.send(b"d")

    def _grown_volumes(self) -> int:
        """Return by how much the fullest volume of the folders has grown since the start."""
        pairs = zip(self._folders, self._used_at_start, strict=True)
        return max((_used_bytes(each) - before for each, before in pairs), default=0)


def _die_with(parent: int) -> None:
    """Let this process be killed when the supervisor dies, also if that already happened."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(126)


def _set_limit(number: int, value: int) -> None:
    hard = resource.getrlimit(number)[1]
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(number, (value, value))


def restrict_scope() -> bool:
    """Forbid this process and its children abstract sockets and signals of others (Landlock).

    Returns False where the kernel has no such rules. They are no rules about files: those would
    forbid the launcher its mounts.
    """
    if sys.platform != "linux":
        return False
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    none = ctypes.c_void_p(None)
    version = libc.syscall(LANDLOCK_CREATE_RULESET, none, ctypes.c_size_t(0), LANDLOCK_VERSION)
    if version < LANDLOCK_SCOPES_SINCE:
        return False
    attributes = (ctypes.c_uint64 * 3)(0, 0, LANDLOCK_SCOPES)
    size = ctypes.c_size_t(ctypes.sizeof(attributes))
    ruleset = libc.syscall(LANDLOCK_CREATE_RULESET, ctypes.byref(attributes), size, 0)
    if ruleset < 0:
        return False
    libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if libc.syscall(LANDLOCK_RESTRICT_SELF, ruleset, 0) != 0:
        raise OSError(ctypes.get_errno(), "Landlock refused its rules")
    os.close(ruleset)
    return True


def clean_up(launch: dict[str, Any]) -> None:
    """Do for a command what its supervisor could not: remove what it left."""
    run_cleanup(launch)
    remove_cgroups(launch)


def run_cleanup(launch: dict[str, Any]) -> None:
    """Run the cleanup commands of a launch."""
    deadline = time.monotonic() + CLEANUP_S
    for words in launch["cleanup"]:
        _run_cleanup(words, launch["env"], deadline)


def remove_cgroups(launch: dict[str, Any]) -> None:
    """Kill what is in the cgroups of a launch, and remove them."""
    deadline = time.monotonic() + REMOVE_S
    for group in launch["cgroups"]:
        remove_cgroup(group["path"], deadline)


def _make_cgroup(path: str, settings: list[list[str]]) -> None:
    try:
        Path(path).mkdir(mode=0o755)
        for name, value in settings:
            file = Path(path, name)
            if name not in OPTIONAL_SETTINGS or file.exists():
                _write_setting(file, value)
    except OSError as exc:
        raise LaunchError(f"the cgroup {path} could not be made: {exc.strerror}") from exc


def _write_setting(file: Path, value: str) -> None:
    """Write to a file of the kernel, which exists or is an error."""
    fd = os.open(file, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, value.encode())
    finally:
        os.close(fd)


def remove_cgroup(path: str, deadline: float | None = None) -> bool:
    """Kill what is in a cgroup and remove it; return whether it is gone."""
    until = time.monotonic() + REMOVE_S if deadline is None else deadline
    kill = Path(path, "cgroup.kill")  # version 2: all at once
    if kill.exists():
        with suppress(OSError):
            _write_setting(kill, "1")
    while True:
        for pid in _cgroup_pids(path):
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        try:
            Path(path).rmdir()
        except FileNotFoundError:
            return True
        except OSError:
            if time.monotonic() > until:
                return False
            time.sleep(0.002)
        else:
            return True


def _cgroup_pids(path: str) -> list[int]:
    with suppress(OSError, ValueError):
        own = os.getpid()
        words = Path(path, "cgroup.procs").read_text().split()
        return [int(each) for each in words if int(each) not in {0, own}]
    return []


def _run_cleanup(words: list[str], env: dict[str, str], deadline: float) -> None:
    """Run one command to its end or the deadline, in a session that outlives this process."""
    null = os.devnull
    actions = [(os.POSIX_SPAWN_OPEN, each, null, os.O_RDWR, 0) for each in (0, 1, 2)]
    try:
        child = os.posix_spawn(words[0], words, env, file_actions=actions, setsid=True)
    except OSError:
        return  # the launcher is not installed any more: there is nothing to be removed by it
    while time.monotonic() < deadline:
        if os.waitpid(child, os.WNOHANG)[0]:
            return
        time.sleep(0.01)
    with suppress(OSError):
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _used_bytes(folder: str) -> int:
    try:
        found = os.statvfs(folder)
    except OSError:
        return 0
    return (found.f_blocks - found.f_bfree) * found.f_frsize


def _measure(folders: list[str]) -> tuple[int, bool]:
    """Return how many bytes the folders have, and whether all of them could be read."""
    total, is_complete = 0, True
    seen: set[tuple[int, int]] = set()
    waiting = list(folders)
    while waiting:
        try:
            for entry, is_folder in _entries(waiting.pop(), waiting):
                key = (entry.st_dev, entry.st_ino)
                if entry.st_nlink > 1 and not is_folder:
                    if key in seen:
                        continue
                    seen.add(key)
                total += max(entry.st_blocks * BLOCK_BYTES, ENTRY_BYTES)
        except FileNotFoundError:
            continue  # removed meanwhile
        except OSError:
            is_complete = False
    return total, is_complete


def _entries(folder: str, waiting: list[str]) -> Iterator[tuple[os.stat_result, bool]]:
    """Yield the entries of a folder; add the folders in it to `waiting`."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        with os.scandir(fd) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):
                    found = entry.stat(follow_symlinks=False)
                    is_folder = stat.S_ISDIR(found.st_mode)
                    if is_folder:
                        waiting.append(f"{folder}/{entry.name}")
                    yield found, is_folder
    finally:
        os.close(fd)


def _deleted_bytes(pids: list[int], folders: list[str]) -> int:
    """Return the size of the files that have no name any more but are open in a process."""
    devices = set()
    for each in folders:
        with suppress(OSError):
            devices.add(Path(each).stat().st_dev)
    sizes: dict[tuple[int, int], int] = {}
    for pid in pids:
        with suppress(OSError):
            for link in Path(f"/proc/{pid}/fd").iterdir():
                with suppress(OSError):
                    found = link.stat()
                    if found.st_nlink == 0 and found.st_dev in devices:
                        sizes[found.st_dev, found.st_ino] = found.st_blocks * BLOCK_BYTES
    return sum(sizes.values())


def _descendants(root: int) -> list[int]:
    """Return a process and everything below it, also in other process namespaces."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError, ValueError, IndexError):
                fields = (entry / "stat").read_bytes().rpartition(b")")[2].split()
                children.setdefault(int(fields[1]), []).append(int(entry.name))
    found, waiting = [root], [root]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found
