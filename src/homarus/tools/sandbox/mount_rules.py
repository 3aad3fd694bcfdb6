"""Which folders of this machine may be seen in a sandbox, and where."""

import os
import posixpath
import stat
from collections.abc import Iterable
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from homarus.core.errors import SandboxError
from homarus.tools.sandbox.base import Mount, SandboxSpec

# Inside the state directory only these may be mounted, and what is in them.
_SHARED_IN_STATE: Final = (
    "workspace*",
    "media",
    "skills",
    "canvas",
    "agents/*/workspace*",
    "sandboxes/[!.]*",
    "sandboxes/.data/*/tmp",
    "sandboxes/.data/.scratch/*/probe-*",
)
# Files of a home that hold credentials; a folder that contains one is not mounted either.
CREDENTIALS: Final = (
    ".ssh",
    ".gnupg",
    ".aws",
    ".azure",
    ".kube",
    ".docker",
    ".netrc",
    ".pgpass",
    ".password-store",
    ".git-credentials",
    ".npmrc",
    ".pypirc",
    ".config/gcloud",
    ".config/gh",
    ".config/containers",
    ".local/share/keyrings",
    ".local/share/containers",
    ".mozilla",
)
# The kernel, devices, sockets of services, and what decides who may log in.
_SYSTEM: Final = ("/proc", "/sys", "/dev", "/run", "/var/run", "/boot")
_SYSTEM_SECRETS: Final = (
    "/etc/shadow",
    "/etc/gshadow",
    "/etc/ssh",
    "/etc/ssl/private",
    "/etc/sudoers",
    "/var/lib/docker",
    "/var/lib/containers",
)
_RESERVED: Final = (
    "/proc",
    "/dev",
    "/sys",
    "/run",
    "/etc",
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/boot",
)


def open_mount(source: Path, protected: Iterable[Path]) -> int:
    """Return a descriptor of a folder or file that may be mounted. Raises SandboxError.

    What is mounted is what the descriptor refers to: a link that another command puts in its place
    meanwhile is not followed.
    """
    try:
        fd = os.open(source, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except (OSError, ValueError) as exc:
        reason = getattr(exc, "strerror", "") or str(exc)
        raise SandboxError(
            f"{source} cannot be mounted in the sandbox: {reason}", fix="name a folder that exists"
        ) from exc
    try:
        mode = os.fstat(fd).st_mode
        if stat.S_ISLNK(mode):
            raise SandboxError(f"{source} is a link", fix="name the folder that it leads to")
        if not stat.S_ISDIR(mode) and not stat.S_ISREG(mode):
            raise SandboxError(
                f"{source} is a socket or a device, which no sandbox is given",
                fix="mount folders and plain files only",
            )
        check_source(Path(f"/proc/self/fd/{fd}").readlink(), protected)
    except BaseException:
        os.close(fd)
        raise
    return fd


def check_source(source: Path, protected: Iterable[Path]) -> None:
    """Raise SandboxError for a folder with files that no command in a sandbox may see.

    `source` is a real path; `protected` are state directories.
    """
    for state in protected:
        if _is_beneath(state, source):
            raise _refusal(source, f"the state directory {state}")
        if _is_beneath(source, state) and not _is_shared(source.relative_to(state)):
            raise _refusal(source, "what the gateway keeps in its state directory")
    for each in _SYSTEM:
        if _is_beneath(source, each) or _is_beneath(each, source):
            raise _refusal(source, f"{each}, with devices or sockets of this machine")
    home = os.path.expanduser("~")  # noqa: PTH111 - text is compared
    for each in (*_SYSTEM_SECRETS, *(f"{home}/{name}" for name in CREDENTIALS)):
        if _is_beneath(source, each) or (_is_beneath(each, source) and os.path.lexists(each)):
            raise _refusal(source, f"the credentials in {each}")


def check_target(mount: Mount, spec: SandboxSpec) -> None:
    """Raise SandboxError unless a mount may be seen at its target."""
    target = mount.target
    is_same = not mount.is_writable and str(mount.source) == target
    _check_place(target, ("/usr",) if is_same else ())
    if target in (spec.workdir, "/tmp") or _is_beneath(spec.workdir, target):  # noqa: S108 - inside
        raise SandboxError(
            f"{target} is the place of the sandbox's own folder", fix="mount it at another path"
        )


def check_workdir(workdir: str) -> None:
    """Raise SandboxError unless the workspace may be seen at this path."""
    _check_place(workdir, ())
    if _is_beneath(workdir, "/tmp") or _is_beneath("/tmp", workdir):  # noqa: S108 - inside
        raise SandboxError(
            f"{workdir} in the sandbox is no place for the workspace", fix="use /workspace"
        )


def _check_place(target: str, allowed: tuple[str, ...]) -> None:
    is_plain = target.startswith("/") and posixpath.normpath(target) == target
    if not is_plain or target == "/" or "\0" in target or target.startswith("//"):
        raise SandboxError(
            f"{target!r} is no place for a mount in a sandbox", fix="use an absolute path"
        )
    for each in _RESERVED:
        if _is_beneath(target, each) and each not in allowed:
            raise SandboxError(
                f"{target} in the sandbox belongs to the system", fix="mount it at another path"
            )


def make_mount_point(mount: Mount, spec: SandboxSpec) -> None:
    """Make the place of a mount that is inside a folder of the sandbox, without following links.

    The launcher would follow a link that a command has left there, and make folders outside.
    Raises SandboxError.
    """
    for target, folder in ((spec.workdir, spec.workspace), ("/tmp", spec.tmp)):  # noqa: S108 - inside
        if mount.target.startswith(f"{target}/"):
            names = mount.target.removeprefix(f"{target}/").split("/")
            try:
                _make_place(folder, names, is_folder=mount.source.is_dir())
            except OSError as exc:
                raise SandboxError(
                    f"{mount.target} in the sandbox is no place for a mount: {exc.strerror}",
                    fix="remove the file or link that is there",
                ) from exc
            return


def _make_place(folder: Path, names: list[str], *, is_folder: bool) -> None:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(os.path.realpath(folder), flags | os.O_DIRECTORY)
    try:
        for number, name in enumerate(names):
            if number == len(names) - 1 and not is_folder:
                os.close(os.open(name, flags | os.O_CREAT | os.O_NONBLOCK, 0o600, dir_fd=fd))
                return
            with suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=fd)
            below = os.open(name, flags | os.O_DIRECTORY, dir_fd=fd)
            os.close(fd)
            fd = below
    finally:
        os.close(fd)


def find_state_dirs(scratch: Path) -> tuple[Path, ...]:
    """Return the state directories that no mount may show: ours, of `scratch`, and the default."""
    found = []
    for folder in scratch.parents:
        names = ("openclaw.json", "state.sqlite", "state.lock")
        is_state = any((folder / name).exists() for name in names)
        if is_state or (folder / "sandboxes") in (scratch, *scratch.parents):
            found.append(folder)
    with suppress(RuntimeError):
        found.append(Path.home() / ".openclaw")
    return tuple(dict.fromkeys(Path(os.path.realpath(each)) for each in found))


def _is_shared(path: Path) -> bool:
    return any(
        fnmatchcase("/".join(path.parts[: pattern.count("/") + 1]), pattern)
        for pattern in _SHARED_IN_STATE
    )


def _is_beneath(path: str | Path, folder: str | Path) -> bool:
    top = str(folder).rstrip("/")
    return f"{path}/".startswith(f"{top}/")


def _refusal(source: Path, what: str) -> SandboxError:
    return SandboxError(
        f"{source} is not mounted in a sandbox: commands would see {what}",
        fix="name a folder below it that has nothing of this",
    )
