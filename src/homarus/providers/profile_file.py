"""Read and update `auth-profiles.json`.

An update is applied under a kernel lock to the file's current content and replaces it atomically,
mode 0600. Reading never writes: a damaged file is reported, and archived only when there is
something to write in its place. Until the file exists, the legacy files (`auth.json`,
`credentials/oauth.json`) are read instead, and the first update migrates them.
"""

import contextlib
import errno
import hashlib
import json
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field, replace
from pathlib import Path

from homarus.core.atomic_file import write_atomic
from homarus.core.errors import ConflictError, DiskFullError, StoreError
from homarus.core.fast_dataclass import dataclass
from homarus.core.file_lock import open_lock_file, wait_for_lock
from homarus.core.text import one_line
from homarus.providers.profiles import VERSION, Profiles, Raw, migrate_legacy_profiles, parse

FILE = "auth-profiles.json"
MAX_BYTES = 4 << 20
LOCK_WAIT_S = 10.0


class ProfileFile:
    """One `auth-profiles.json`, there or not."""

    def __init__(self, path: Path, legacy: Sequence[Path] = ()) -> None:
        self.path = path
        self._legacy = tuple(legacy)
        self._places = [os.fspath(each) for each in (path, *legacy)]  # checked in every turn
        self._stamp: tuple[object, ...] = ()
        self._read = Profiles()

    def read(self) -> Profiles:
        """Return the file's current content; it is parsed again only after a change."""
        stamp: tuple[object, ...] = _stamp_of(self._places[0])
        if not stamp:  # only then the legacy files count
            stamp = tuple(map(_stamp_of, self._places))
        if stamp != self._stamp:
            raw, found = self._load()
            parsed = parse(raw)
            told = (*found.warnings, *(f"{self.path}: {text}" for text in parsed.warnings))
            self._read = replace(parsed, warnings=told)
            self._stamp = stamp
        return self._read

    def update(self, change: Callable[[Raw], None]) -> None:
        """Let `change` modify the current content; an unchanged one is not written."""
        with self.locked():
            raw, found = self._load()
            try:
                before = _encoded(raw)
                change(raw)
                after = _encoded(raw)
            except RecursionError:
                raise StoreError(f"{self.path} was not changed: it is nested too deeply") from None
            if after == before:
                return
            version = raw.get("version")
            if version != VERSION:
                raise StoreError(
                    f"{self.path} has version {one_line(str(version), 20)}, not {VERSION}",
                    fix="it was written by another program: update this one, or move it away",
                )
            if found.refused:
                raise StoreError(f"{self.path} was not changed: {found.refused}")
            if len(after) > MAX_BYTES:
                raise StoreError(f"{self.path} was not changed: it would become too large")
            self._write(after, aside=found.is_damaged)

    @contextlib.contextmanager
    def locked(self, what: str = "", wait_s: float = LOCK_WAIT_S) -> Iterator[None]:
        """Hold the file's lock between processes; `what` names another lock next to it."""
        name = hashlib.sha256(what.encode("utf-8", "backslashreplace")).hexdigest()[:12]
        path = self._target().parent / f".auth-profiles{f'.{name}' if what else ''}.lock"
        descriptor = _open_lock(path)
        try:
            # Without locks on the file system, replacing the file is still atomic.
            if not wait_for_lock(descriptor, wait_s, is_optional=True):
                raise ConflictError(f"another process keeps {path} locked", fix="try again")
            yield
        finally:
            os.close(descriptor)

    def _target(self) -> Path:
        """Return the file behind a link: a linked file stays linked."""
        return Path(os.path.realpath(self.path))

    def _load(self) -> tuple[Raw, "_ProfileFileRead"]:
        found = _look(self.path)
        if found.tree is not None:
            found.tree.setdefault("version", VERSION)
            return found.tree, found
        raw: Raw = {"version": VERSION, "profiles": {}}
        if not os.path.lexists(self.path):
            for path in self._legacy:
                before = _look(path)
                found.warnings += before.warnings
                raw["profiles"] = {**migrate_legacy_profiles(before.tree or {}), **raw["profiles"]}
        return raw, found

    def _write(self, data: bytes, *, aside: bool) -> None:
        target = self._target()
        try:
            if aside:
                target.rename(_free_name(target))
            write_atomic(target, data)
        except OSError as exc:
            kind = DiskFullError if exc.errno in {errno.ENOSPC, errno.EDQUOT} else StoreError
            fix = (
                "make room and repeat" if kind is DiskFullError else "check who owns its directory"
            )
            raise kind(f"{self.path} was not changed: {exc.strerror or exc}", fix=fix) from exc


def _encoded(raw: Raw) -> bytes:
    # ASCII, so that a lone surrogate that was read can be written again.
    return (json.dumps(raw, indent=2) + "\n").encode("ascii")


def _stamp_of(path: str) -> tuple[int, ...]:
    try:
        found = os.stat(path)  # noqa: PTH116 - a Path costs more than the look
    except OSError:
        return ()
    times = (found.st_mtime_ns, found.st_ctime_ns)
    return (found.st_dev, found.st_ino, found.st_size, found.st_mode, *times)


@dataclass(slots=True)
class _ProfileFileRead:
    """The result of reading a file: an object, damage, a refusal, or nothing."""

    tree: Raw | None = None
    is_damaged: bool = False
    refused: str = ""
    warnings: list[str] = field(default_factory=list)


def _look(path: Path) -> _ProfileFileRead:
    found = _ProfileFileRead()
    try:
        data = _read_own(path, found.warnings)
        tree = json.loads(data.decode("utf-8-sig"))
    except FileNotFoundError:
        return found
    except OSError as exc:
        found.refused = exc.strerror or str(exc)
        found.warnings.append(f"{path} is not read: {found.refused}")
        return found
    except (ValueError, RecursionError):
        tree = None
    if isinstance(tree, dict):
        found.tree = tree
        found.is_damaged = not isinstance(tree.get("profiles", {}), dict)
    else:
        found.is_damaged = True
        found.warnings.append(f"{path} is not a JSON object: its credentials are not used")
    return found


def _read_own(path: Path, warnings: list[str]) -> bytes:
    """Return a regular file's bytes if its user owns it; links are followed, pipes are not read."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as opened:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        if os.geteuid() and found.st_uid not in {os.geteuid(), 0}:
            raise OSError(errno.EPERM, "it belongs to another user")
        if found.st_mode & 0o044:
            warnings.append(f"others on this machine can read {path}: chmod 600 {path}")
        data = opened.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise OSError(errno.EFBIG, "it is too large to be one")
    return data


def _open_lock(path: Path) -> int:
    try:
        _make_folder(path.parent)
        return open_lock_file(path)
    except OSError as exc:
        raise StoreError(
            f"cannot write in {path.parent}: {exc.strerror or exc}",
            fix="check its owner and permissions",
        ) from exc


def _make_folder(path: Path) -> None:
    if not path.is_dir():
        _make_folder(path.parent)
        path.mkdir(0o700, exist_ok=True)


def _free_name(target: Path) -> Path:
    """Return `….corrupt`, `….corrupt.2` and so on: earlier archives are kept."""
    name = f"{target.name}.corrupt"
    at = 1
    while os.path.lexists(target.with_name(name)):
        at += 1
        name = f"{target.name}.corrupt.{at}"
    return target.with_name(name)
