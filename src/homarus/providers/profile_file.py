"""Read and update `auth-profiles.json`.

An update is applied under a kernel lock to the file's current content and replaces it atomically,
mode 0600. Reading never writes: a damaged file is reported, and archived only when there is
something to write in its place. Until the file exists, the legacy files (`auth.json`,
`credentials/oauth.json`) are read instead, and the first update migrates them.

A file may have a base: the profiles in OpenClaw's databases, which are read and never written. The
file's profiles and orders override those of the base; `null` hides one that was removed here.
"""

import contextlib
import errno
import hashlib
import json
import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from homarus.core.atomic_file import write_atomic
from homarus.core.errors import ConflictError, DiskFullError, StateInUseError, StoreError
from homarus.core.fast_dataclass import dataclass
from homarus.core.file_lock import open_lock_file, wait_for_lock
from homarus.core.text import one_line
from homarus.providers.profiles import VERSION, Profiles, Raw, migrate_legacy_profiles, parse

if TYPE_CHECKING:
    from homarus.config.openclaw_credentials import OpenClawProfiles

FILE = "auth-profiles.json"
MAX_BYTES = 4 << 20
LOCK_WAIT_S = 10.0


class ProfileFile:
    """One `auth-profiles.json`, there or not."""

    def __init__(
        self, path: Path, legacy: Sequence[Path] = (), base: "OpenClawProfiles | None" = None
    ) -> None:
        self.path = path
        self._base = _ProfileBase(base) if base else None
        self._legacy = tuple(legacy)
        self._place = os.fspath(path)  # checked in every turn, as are the legacy files without it
        self._legacy_places = [os.fspath(each) for each in legacy]
        self._stamp: tuple[object, ...] = ()
        self._read = Profiles()
        self.base_places: Mapping[str, str] = {}  # which database has a profile of the base

    def read(self) -> Profiles:
        """Return the file's current content; it is parsed again only after a change."""
        stamp: tuple[object, ...] = _stamp_of(self._place)
        if not stamp:  # only then the legacy files count
            stamp = ((), *map(_stamp_of, self._legacy_places))
        if self._base:
            stamp = (*stamp, self._base.refresh())
        if stamp != self._stamp:
            raw, found = self._load()
            parsed = parse(self._base.merge(raw) if self._base else raw)
            self.base_places = self._base.places_below(raw) if self._base else {}
            told = (*found.warnings, *(f"{self.path}: {text}" for text in parsed.warnings))
            if self.base_error:
                told = (*told, f"OpenClaw's credentials are not used: {self.base_error}")
            self._read = replace(parsed, warnings=told)
            self._stamp = stamp
        return self._read

    @property
    def base_error(self) -> StoreError | None:
        """The reason why OpenClaw's profiles could not be read."""
        return self._base.error if self._base else None

    def is_in_base(self, profile_id: str) -> bool:
        """Return whether OpenClaw's databases have a profile, overridden here or not."""
        return self._base is not None and profile_id in self._base.places

    def update(self, change: Callable[[Raw], None]) -> None:
        """Let `change` modify the current content; an unchanged one is not written."""
        with self.locked():
            raw, found = self._load()
            try:
                if self._base:
                    self._base.refresh()
                tree = self._base.merge(raw) if self._base else raw
                before = _encoded(tree)
                change(tree)
                after = _encoded(tree)
            except RecursionError:
                raise StoreError(f"{self.path} was not changed: it is nested too deeply") from None
            if after == before:
                return
            if self._base:
                raw = self._base.split(raw, tree)
                after = _encoded(raw)
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


class _ProfileBase:
    """The profiles and orders below those of a file, read again only after a change."""

    def __init__(self, source: "OpenClawProfiles") -> None:
        self._source = source
        self._stamp: object = None
        self._trees: Mapping[str, Raw] = {name: {} for name in _OVERRIDDEN}
        self.places: Mapping[str, str] = {}  # profile → database
        self.error: StoreError | None = None

    def refresh(self) -> object:
        """Read the databases if they were written; return the stamp of what was read."""
        stamp = self._source.stamp()
        if stamp == self._stamp:
            return stamp
        try:
            layers, self.error = self._source.load(), None
        except StateInUseError as exc:
            if self._stamp and not self.error:
                return self._stamp  # OpenClaw writes all the time: as they were before
            layers, self.error = [], exc
        except StoreError as exc:
            layers, self.error = [], exc
        trees: dict[str, Raw] = {name: {} for name in _OVERRIDDEN}
        places: dict[str, str] = {}
        for path, tree in layers:
            places = {**dict.fromkeys(_inner(tree, "profiles"), path), **places}
            for name in _OVERRIDDEN:
                trees[name] = {**_inner(tree, name), **trees[name]}
        self._trees, self.places, self._stamp = trees, places, stamp
        return stamp

    def places_below(self, raw: Raw) -> dict[str, str]:
        """Return which database has a profile that a file does not have."""
        own = _inner(raw, "profiles")
        return {id_: path for id_, path in self.places.items() if id_ not in own}

    def merge(self, raw: Raw) -> Raw:
        """Return a file's object with what it does not override, without what it hides."""
        merged = json.loads(json.dumps(raw))  # a change must not reach the object it came from
        for name, base in self._trees.items():
            both = {**json.loads(json.dumps(base)), **_inner(merged, name)}
            merged[name] = {key: value for key, value in both.items() if value is not None}
        return {name: value for name, value in merged.items() if value or name != "order"}

    def split(self, raw: Raw, merged: Raw) -> Raw:
        """Return what the file has to have, so that `merge` returns what was changed."""
        changed = dict(merged)
        for name, base in self._trees.items():
            own, wanted = _inner(raw, name), _inner(merged, name)
            kept = {
                key: value for key, value in wanted.items() if key in own or base.get(key) != value
            }
            hidden = [key for key in (*base, *own) if key not in wanted]
            hidden = [key for key in hidden if key in base or own[key] is None]
            changed[name] = {**kept, **dict.fromkeys(hidden)}
        return {name: value for name, value in changed.items() if value or name != "order"}


_OVERRIDDEN = ("profiles", "order")


def _inner(tree: Raw, name: str) -> Raw:
    inner = tree.get(name)
    return inner if isinstance(inner, dict) else {}


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
