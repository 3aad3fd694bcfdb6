"""Find the program that a name means, open it and hash it.

A name without `/` is looked up in the absolute folders of PATH. The file stays open: the descriptor
that was hashed is the one to execute. The hash of an unchanged file is remembered by its device,
inode, size and times.
"""

import hashlib
import os
import re
import stat
import time
from collections import OrderedDict
from itertools import pairwise
from typing import Final, TypeAlias

from homarus.core.fast_dataclass import dataclass

MAX_BYTES: Final = 1 << 30
_MAX_CACHED: Final = 512
_SETTLED_NS: Final = 2_000_000_000  # a file that changes again so soon may keep its times
_OPEN: Final = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)
FileKey: TypeAlias = tuple[int, int, int, int, int]

_hashes: OrderedDict[FileKey, tuple[str, bool]] = OrderedDict()


@dataclass(frozen=True, slots=True)
class HashedFile:
    """An open file and the hash of its content. `fd` is the descriptor that was hashed."""

    path: str
    fd: int
    key: FileKey  # device, inode, size, mtime_ns, ctime_ns
    sha256: str
    is_script: bool  # starts with #!


@dataclass(frozen=True, slots=True)
class Executable:
    """The program of a simple command.

    `name` is as written, `path` where it was found, `file` the real file. `is_looked_up`: a name
    without `/`, found in a folder of PATH that is trusted. `in_workspace`: the agent can change it.
    `script` is the file that an interpreter is given to run.
    """

    name: str
    path: str
    file: HashedFile
    is_looked_up: bool
    in_workspace: bool
    script: HashedFile | None = None

    @property
    def real_path(self) -> str:
        return self.file.path

    @property
    def sha256(self) -> str:
        return self.file.sha256

    @property
    def fd(self) -> int:
        return self.file.fd

    @property
    def files(self) -> tuple[HashedFile, ...]:
        return (self.file,) if self.script is None else (self.file, self.script)


def file_key(found: os.stat_result) -> FileKey:
    """Return what identifies the content of a file."""
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def find_program(name: str, folder: str, path: str) -> str | None:
    """Return the path of the program that a name means in a folder; None when there is none."""
    if "/" in name:
        found = os.path.join(folder, name)  # noqa: PTH118 - pathlib would drop `./` and `//`
        return found if _is_program(found) else None
    for each in path.split(":"):
        if each.startswith("/") and _is_program(found := f"{each.rstrip('/')}/{name}"):
            return found
    return None


def is_trusted_dir(folder: str, workspace: str) -> bool:
    """Return whether bare names may mean programs of a folder: others cannot write to it."""
    if is_beneath(real_path(folder), workspace):
        return False
    try:
        found = os.stat(folder)  # noqa: PTH116 - called for every program of a command
    except OSError:
        return False
    return not found.st_mode & stat.S_IWOTH and found.st_uid in (0, os.geteuid())


def real_path(path: str) -> str:
    """Return the path without links."""
    return os.path.realpath(path)


def is_beneath(path: str, folder: str) -> bool:
    """Return whether a path is a folder or lies in it."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def open_file(path: str, *, dir_fd: int | None = None) -> int:
    """Open a regular file to hash and execute it. Raises OSError."""
    fd = os.open(path, _OPEN, dir_fd=dir_fd)
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode) or found.st_size > MAX_BYTES:
        os.close(fd)
        raise OSError(f"{path} is not a file that can be hashed")
    return fd


def cached_hash(fd: int) -> tuple[FileKey, tuple[str, bool]] | None:
    """Return what `hash_file` returned for the same unchanged file, None if it is not known."""
    key = file_key(os.fstat(fd))
    if (known := _hashes.get(key)) is None:
        return None
    _hashes.move_to_end(key)
    return key, known


def hash_file(fd: int) -> tuple[FileKey, tuple[str, bool]]:
    """Read an open file and return its key, its hash, and whether it starts with #!.

    Raises OSError when it changes meanwhile.
    """
    key = file_key(os.fstat(fd))
    digest, place, start = hashlib.sha256(), 0, b""
    while chunk := os.pread(fd, 1 << 20, place):
        start = start or chunk[:2]
        digest.update(chunk)
        place += len(chunk)
        if place > key[2]:
            raise OSError("the file changes while it is read")
    if file_key(os.fstat(fd)) != key:
        raise OSError("the file changes while it is read")
    known = digest.hexdigest(), start == b"#!"
    if time.time_ns() - key[4] > _SETTLED_NS:
        _hashes[key] = known
        while len(_hashes) > _MAX_CACHED:
            _hashes.popitem(last=False)
    return key, known


_VERSION: Final = re.compile(r"[-\d.]+\Z")
# Interpreters, and their options that take the next word as their value.
_INTERPRETERS: Final[dict[str, frozenset[str]]] = {
    "python": frozenset(("-W", "-X", "-Q", "--check-hash-based-pycs")),
    "pypy": frozenset(("-W", "-X", "--jit")),
    "node": frozenset(("-r", "--require", "--import", "--loader", "--experimental-loader")),
    "nodejs": frozenset(("-r", "--require", "--import", "--loader", "--experimental-loader")),
    "bun": frozenset(("-r", "--preload")),
    "deno": frozenset(("-c", "--config")),
    "ruby": frozenset(("-r", "-I", "-C", "-E")),
    "perl": frozenset(("-I", "-M", "-m")),
    "php": frozenset(("-c", "-d")),
    "lua": frozenset(("-l",)),
    "Rscript": frozenset(),
    "tclsh": frozenset(),
    **dict.fromkeys(("sh", "bash", "dash", "ash", "zsh", "ksh", "fish"), frozenset(("-o", "+o"))),
}
_SCRIPT_OPTIONS: Final = frozenset(("-f", "--file", "-Mfile", "--rcfile", "--init-file"))
_FILE_PROGRAMS: Final = frozenset(("awk", "gawk", "mawk", "sed", "make", "gmake"))
_SUBCOMMANDS: Final = frozenset(("run", "test", "exec"))


def program_name(executable_path: str) -> str:
    """Return the name of a program without its version: `python` for /usr/bin/python3.11."""
    name = executable_path.rstrip("/").rpartition("/")[2]
    return _VERSION.sub("", name) or name


def find_script(names: frozenset[str], args: tuple[str, ...]) -> str | None:
    """Return the file that an interpreter with these arguments runs, None when it is no file.

    `names` are those of the program: as written, as found, and of the real file.
    """
    if names & _FILE_PROGRAMS:
        return next((value for option, value in pairwise(args) if option in _SCRIPT_OPTIONS), None)
    known = next((each for each in names if each in _INTERPRETERS), None)
    if known is None:
        return None
    takes_value, rest = _INTERPRETERS[known], iter(args)
    for each in rest:
        if each == "--":
            return next(rest, None)
        if each in takes_value:
            next(rest, None)
        elif known in ("bun", "deno") and each in _SUBCOMMANDS:
            continue
        elif each == "-" or each[:1] not in "-+":
            return None if each == "-" else each
    return None


def _is_program(path: str) -> bool:
    try:
        # Most folders of PATH have no such file, for which this raises nothing.
        if not os.access(path, os.X_OK):
            return False
        return stat.S_ISREG(os.stat(path).st_mode)  # noqa: PTH116 - called for every program
    except (OSError, ValueError):
        return False
