"""Cgroups for sandboxed commands: find where they can be made, and remove what a crash left.

On version 1 every controller has its own tree, and only root may make folders in it. On version 2
a folder works if its parent passes the controllers on: that of our own cgroup, which a service
manager has delegated to us, or one above it.
"""

import os
import re
import secrets
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

from homarus.core.fast_dataclass import dataclass
from homarus.tools.exec.sandbox_launcher import remove_cgroup
from homarus.tools.sandbox.base import ControlGroup, SandboxLimits

PREFIX: Final = "homarus-"
_CONTROLLERS: Final = ("pids", "memory", "cpu")
_PERIOD_US: Final = 100_000
_NAME: Final = re.compile(rf"{PREFIX}(\d+)-(\d+)-[a-z0-9-]+")  # process id, its start, the rest


@dataclass(frozen=True, slots=True)
class CgroupParents:
    """Where the cgroups of commands are made, by controller; on version 2 always the same."""

    pids: str = ""
    memory: str = ""
    cpu: str = ""
    is_unified: bool = False

    @property
    def limits_all(self) -> bool:
        """Whether the processes and the memory of a command can be limited together."""
        return bool(self.pids and self.memory)

    @property
    def folders(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(each for each in (self.pids, self.memory, self.cpu) if each))


def find_parents(root: Path = Path("/proc/self")) -> CgroupParents:
    """Return where we may make cgroups; empty where we may not. `root` has our mounts."""
    try:
        mounts = (root / "mountinfo").read_text(errors="surrogateescape").splitlines()
        own = (root / "cgroup").read_text(errors="surrogateescape").splitlines()
    except OSError:
        return CgroupParents()
    parents = _find_unified(mounts, own)
    return parents if parents.limits_all else _find_separate(mounts, own)


def make_groups(
    parents: CgroupParents, name: str, limits: SandboxLimits
) -> tuple[ControlGroup, ...]:
    """Return the cgroups of one command, with a name that no other command has."""
    folder = f"{PREFIX}{os.getpid()}-{_start_time(os.getpid())}-{name}-{secrets.token_hex(4)}"
    settings = _unified_settings if parents.is_unified else partial(_separate_settings, parents)
    groups: dict[str, list[tuple[str, str]]] = {}
    for parent, *pair in settings(limits):
        path = f"{parent or parents.pids}/{folder}"
        groups.setdefault(path, []).append((pair[0], pair[1]))
    return tuple(ControlGroup(path, tuple(pairs)) for path, pairs in groups.items())


def remove_leftovers(parents: CgroupParents | None = None) -> list[str]:
    """Remove the cgroups of gateways that do not run any more; return their paths.

    A supervisor removes its cgroups also when the gateway was killed. This is for the case that
    the supervisor was killed, too, or the machine went down without its cgroups.
    """
    removed = []
    for path in _find_own(parents or find_parents()):
        match = _NAME.fullmatch(path.name)
        if match and _start_time(int(match[1])) == int(match[2]):
            continue  # of a gateway that runs
        if remove_cgroup(str(path)):
            removed.append(str(path))
    return removed


def remove_groups(name: str, parents: CgroupParents | None = None) -> None:
    """End what runs in the cgroups of a sandbox and remove them, whichever gateway made them."""
    for path in _find_own(parents or find_parents()):
        match = _NAME.fullmatch(path.name)
        rest = path.name.removeprefix(f"{PREFIX}{match[1]}-{match[2]}-") if match else ""
        if rest.rpartition("-")[0] == name:
            remove_cgroup(str(path))


def _find_own(parents: CgroupParents) -> Iterator[Path]:
    for folder in parents.folders:
        try:
            entries = sorted(Path(folder).iterdir())
        except OSError:
            continue
        for path in entries:
            if path.name.startswith(PREFIX) and path.is_dir() and not path.is_symlink():
                yield path


def _start_time(pid: int) -> int:
    """Return when a process started, in ticks since the machine did; 0 when there is none."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return int(fields[19])
    except (OSError, ValueError, IndexError):
        return 0


def _unified_settings(limits: SandboxLimits) -> Iterator[tuple[str, str, str]]:
    """Yield the files to write; a folder without any limit is still made, to be killed as one."""
    yield "", "pids.max", str(limits.pids or "max")
    if limits.memory_bytes:
        yield "", "memory.max", str(limits.memory_bytes)
        yield "", "memory.swap.max", str(limits.swap_bytes) if limits.swap_bytes >= 0 else "max"
        yield "", "memory.oom.group", "1"
    if limits.cpus:
        yield "", "cpu.max", f"{round(limits.cpus * _PERIOD_US)} {_PERIOD_US}"


def _separate_settings(
    parents: CgroupParents, limits: SandboxLimits
) -> Iterator[tuple[str, str, str]]:
    if parents.pids:
        yield parents.pids, "pids.max", str(limits.pids or "max")
    if parents.memory and limits.memory_bytes:
        yield parents.memory, "memory.limit_in_bytes", str(limits.memory_bytes)
        has_swap = Path(parents.memory, "memory.memsw.limit_in_bytes").exists()
        if has_swap and limits.swap_bytes >= 0:
            total = limits.memory_bytes + limits.swap_bytes
            yield parents.memory, "memory.memsw.limit_in_bytes", str(total)
    if parents.cpu and limits.cpus:
        yield parents.cpu, "cpu.cfs_period_us", str(_PERIOD_US)
        yield parents.cpu, "cpu.cfs_quota_us", str(round(limits.cpus * _PERIOD_US))


def _find_separate(mounts: list[str], own: list[str]) -> CgroupParents:
    """Return the folders of version 1: our own in each tree, else its top."""
    found = {}
    for controller in _CONTROLLERS:
        place = _own_path(own, controller)
        for root, mount in _find_mounts(mounts, "cgroup", controller):
            candidates = [_join(mount, root, place), mount]
            if usable := next((each for each in candidates if _is_writable(each)), None):
                found[controller] = usable
                break
    if "cpu" in found and not Path(found["cpu"], "cpu.cfs_quota_us").exists():
        # The top of a tree has no such file; a folder in it has, if the kernel supports it.
        found["cpu"] = found["cpu"] if _has_quota(found["cpu"]) else ""
    return CgroupParents(found.get("pids", ""), found.get("memory", ""), found.get("cpu", ""))


def _has_quota(folder: str) -> bool:
    try:
        return any(Path(each, "cpu.cfs_quota_us").exists() for each in Path(folder).iterdir())
    except OSError:
        return False


def _find_unified(mounts: list[str], own: list[str]) -> CgroupParents:
    place = _own_path(own, "")
    for root, mount in _find_mounts(mounts, "cgroup2", ""):
        folder = Path(_join(mount, root, place))
        for candidate in (folder, *folder.parents):
            passed = _passed_on(candidate)
            if {"pids", "memory"} <= passed and _is_writable(str(candidate)):
                path = str(candidate)
                return CgroupParents(path, path, path if "cpu" in passed else "", is_unified=True)
            if str(candidate) == mount:
                break
    return CgroupParents()


def _passed_on(folder: Path) -> set[str]:
    try:
        return set((folder / "cgroup.subtree_control").read_text().split())
    except OSError:
        return set()


def _own_path(own: list[str], controller: str) -> str:
    """Return our place in a tree, from lines like `4:memory:/user.slice`."""
    for line in own:
        _, names, path = line.split(":", 2)
        if (not names and not controller) or (controller and controller in names.split(",")):
            return path
    return "/"


def _find_mounts(mounts: list[str], kind: str, controller: str) -> Iterator[tuple[str, str]]:
    """Yield root and mount point of the trees of a kind."""
    for line in mounts:
        before, _, after = line.partition(" - ")
        fields, rest = before.split(), after.split()
        if len(fields) < 5 or len(rest) < 3 or rest[0] != kind:
            continue
        if not controller or controller in rest[2].split(","):
            yield fields[3], fields[4]


def _join(mount: str, root: str, place: str) -> str:
    """Return where our place is seen: the mount may show a part of the tree only."""
    if root != "/" and (place == root or place.startswith(f"{root}/")):
        place = place.removeprefix(root)
    return f"{mount}/{place.strip('/')}".rstrip("/")


def _is_writable(folder: str) -> bool:
    return os.access(folder, os.W_OK) and os.access(f"{folder}/cgroup.procs", os.W_OK)
