"""`auth-profiles.json`: the file that holds an agent's credentials, in the original's format.

`ProfileFile` reads it into values and changes it under a lock that the kernel releases; a change
is made to what stands in the file at that moment and replaces it in one step, mode 0600. Fields
nobody here knows stay. Reading never writes: a damaged file is told of, and set aside only when
there is something to write in its place. Until the file exists, its forerunners (`auth.json`,
`credentials/oauth.json`) are read instead, and the first change carries them over.
"""

import contextlib
import errno
import fcntl
import hashlib
import json
import math
import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from homarus.config.refs import normalize_provider_id
from homarus.core.errors import Conflict, DiskFull, StoreError
from homarus.core.message import Json
from homarus.core.text import one_line
from homarus.providers.rotation import Kind, Slot, Usage

FILE = "auth-profiles.json"
VERSION = 1
MAX_BYTES = 4 << 20
MAX_ID_CHARS = 200
MAX_TIME_MS = 8_640_000_000_000_000  # the last one a JavaScript date can hold
LOCK_WAIT_S = 10.0
_LOCK_STEP_S = 0.005

Raw: TypeAlias = dict[str, Json]
# Where each kind keeps its secret, and where it says that the secret is kept elsewhere.
SECRET_FIELDS: Mapping[Kind, tuple[str, str]] = {
    "api_key": ("key", "keyFrom"),
    "token": ("token", "tokenFrom"),
    "oauth": ("access", ""),
}


@dataclass(frozen=True, slots=True)
class Profile:
    """One credential. `secret` is the key or token itself, or `${NAME}`."""

    id: str
    provider: str
    kind: Kind
    secret: str = field(default="", repr=False)
    kept: Mapping[str, Json] | None = None
    refresh: str = field(default="", repr=False)
    expires_ms: int = 0
    email: str = ""
    client_id: str = ""
    token_url: str = ""


@dataclass(frozen=True, slots=True)
class Profiles:
    """What one file says, and what is wrong with it."""

    profiles: Mapping[str, Profile] = field(default_factory=dict)
    order: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    last_good: Mapping[str, str] = field(default_factory=dict)
    usage: Mapping[Slot, Usage] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


class ProfileFile:
    """One `auth-profiles.json`, there or not."""

    def __init__(self, path: Path, legacy: Sequence[Path] = ()) -> None:
        self.path = path
        self._legacy = tuple(legacy)
        self._stamp: tuple[object, ...] = ()
        self._read = Profiles()

    def read(self) -> Profiles:
        """What it says now; parsed again only when somebody wrote it."""
        stamp = tuple(map(_stamp_of, (self.path, *self._legacy)))
        if stamp != self._stamp:
            raw, found = self._load()
            parsed = parse(raw)
            told = (*found.warnings, *(f"{self.path}: {text}" for text in parsed.warnings))
            self._read = Profiles(
                parsed.profiles, parsed.order, parsed.last_good, parsed.usage, told
            )
            self._stamp = stamp
        return self._read

    def update(self, change: Callable[[Raw], None]) -> None:
        """Let `change` alter what stands there now; nothing altered, nothing written."""
        with self.locked():
            raw, found = self._load()
            before = _encoded(raw)
            change(raw)
            after = _encoded(raw)
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
            self._write(after, aside=found.is_damaged)

    @contextlib.contextmanager
    def locked(self, what: str = "", wait_s: float = LOCK_WAIT_S) -> Iterator[None]:
        """Be the only process that changes the file, or that does `what` for it."""
        mark = f".{hashlib.sha256(what.encode()).hexdigest()[:12]}" if what else ""
        path = self._target().parent / f".auth-profiles{mark}.lock"
        deadline = time.monotonic() + wait_s
        descriptor = _open_lock(path)
        try:
            while not _lock(descriptor):
                if time.monotonic() > deadline:
                    raise Conflict(f"another process keeps {path} locked", fix="try again")
                time.sleep(_LOCK_STEP_S)
            yield
        finally:
            os.close(descriptor)

    def _target(self) -> Path:
        """The file itself when `path` is a link to it: a linked file stays linked."""
        return Path(os.path.realpath(self.path))

    def _load(self) -> tuple[Raw, "_Found"]:
        found = _look(self.path)
        if found.tree is not None:
            found.tree.setdefault("version", VERSION)
            return found.tree, found
        raw: Raw = {"version": VERSION, "profiles": {}}
        if not os.path.lexists(self.path):
            for path in self._legacy:
                before = _look(path)
                found.warnings += before.warnings
                raw["profiles"] = {**carried_over(before.tree or {}), **raw["profiles"]}
        return raw, found

    def _write(self, data: bytes, *, aside: bool) -> None:
        target = self._target()
        temporary = target.with_name(f".{FILE}.tmp")
        try:
            if aside:
                target.rename(_free_name(target))
            temporary.unlink(missing_ok=True)  # of a process that died with the lock
            _write_through(temporary, data)
            temporary.replace(target)
            _sync(target.parent)
        except OSError as exc:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            kind = DiskFull if exc.errno in {errno.ENOSPC, errno.EDQUOT} else StoreError
            fix = "make room and repeat" if kind is DiskFull else "check who owns its directory"
            raise kind(f"{self.path} was not changed: {exc.strerror or exc}", fix=fix) from exc


def parse(raw: Mapping[str, Json]) -> Profiles:
    """The values in a file's object; what has the wrong shape is left out and told of."""
    profiles: dict[str, Profile] = {}
    warnings: list[str] = []
    for id_, entry in _object(raw.get("profiles")).items():
        profile, wrong = _profile(id_, entry)
        if profile:
            profiles[id_] = profile
        else:
            warnings.append(f"profile {one_line(id_)!r} is not used: {wrong}")
    if not isinstance(raw.get("profiles", {}), dict):
        warnings.append("profiles is not an object")
    if raw.get("version", VERSION) != VERSION:
        warnings.append(f"its version is not {VERSION}; it is read as far as it is understood")
    order = {
        normalize_provider_id(provider): tuple(id_ for id_ in ids if isinstance(id_, str))
        for provider, ids in _object(raw.get("order")).items()
        if isinstance(ids, list)
    }
    last_good = {
        normalize_provider_id(provider): id_
        for provider, id_ in _object(raw.get("lastGood")).items()
        if isinstance(id_, str)
    }
    usage: dict[Slot, Usage] = {}
    for id_, stats in _object(raw.get("usageStats")).items():
        usage[id_, ""] = _usage(stats)
        for model, of_model in _object(_object(stats).get("models")).items():
            usage[id_, model] = _usage(of_model)
    return Profiles(profiles, order, last_good, usage, tuple(warnings))


def _profile(id_: str, entry: Json) -> tuple[Profile | None, str]:
    """A profile, or what is wrong with it."""
    if not isinstance(entry, dict):
        return None, "it is not an object"
    if not id_ or len(id_) > MAX_ID_CHARS:
        return None, "that is no name for one"
    kind = next((kind for kind in SECRET_FIELDS if kind == entry.get("type")), None)
    if kind is None:
        return None, "its type is not api_key, token or oauth"
    provider = normalize_provider_id(_text(entry.get("provider")))
    if not provider:
        return None, "it names no provider"
    where, elsewhere = SECRET_FIELDS[kind]
    kept = entry.get(elsewhere)
    profile = Profile(
        id=id_,
        provider=provider,
        kind=kind,
        secret=_text(entry.get(where)).strip(),
        kept=kept if isinstance(kept, dict) else None,
        refresh=_text(entry.get("refresh")).strip(),
        expires_ms=_time_ms(entry.get("expires")),
        email=_text(entry.get("email")),
        client_id=_text(entry.get("clientId")),
        token_url=_text(entry.get("tokenUrl")),
    )
    return profile, ""


def _usage(stats: Json) -> Usage:
    stats = _object(stats)
    counts = _object(stats.get("failureCounts"))
    return Usage(
        last_used_ms=_time_ms(stats.get("lastUsed")),
        cooldown_until_ms=_time_ms(stats.get("cooldownUntil")),
        disabled_until_ms=_time_ms(stats.get("disabledUntil")),
        disabled_reason=_text(stats.get("disabledReason")),
        error_count=_count(stats.get("errorCount")),
        failure_counts={name: n for name, value in counts.items() if (n := _count(value))},
        last_failure_ms=_time_ms(stats.get("lastFailureAt")),
    )


def carried_over(tree: Mapping[str, Json]) -> Raw:
    """The profiles of a forerunner: one credential per provider, not always with its type."""
    found: Raw = {}
    for provider, entry in tree.items():
        if not isinstance(entry, dict) or not provider:
            continue
        told = entry.get("type") or entry.get("mode")
        kind = told or (
            "oauth" if "access" in entry else "token" if "token" in entry else "api_key"
        )
        name = normalize_provider_id(_text(entry.get("provider")) or provider)
        found[f"{name}:default"] = {**entry, "type": kind, "provider": name}
    return found


def put_profile(raw: Raw, id_: str, fields: Mapping[str, Json]) -> None:
    """Set a profile's fields; None takes one away; others it has stay while its type does."""
    profiles = _inner(raw, "profiles")
    old = _object(profiles.get(id_))
    kept = old if old.get("type") == fields.get("type", old.get("type")) else {}
    profiles[id_] = {name: value for name, value in {**kept, **fields}.items() if value is not None}


def put_usage(raw: Raw, slot: Slot, usage: Usage) -> None:
    """Write how a credential fared; a profile that is gone meanwhile gets nothing."""
    id_, model = slot
    if id_ not in _object(raw.get("profiles")):
        return
    stats = _inner(_inner(raw, "usageStats"), id_)
    if model:
        stats = _inner(_inner(stats, "models"), model)
    said = {
        "lastUsed": usage.last_used_ms,
        "cooldownUntil": usage.cooldown_until_ms,
        "disabledUntil": usage.disabled_until_ms,
        "disabledReason": usage.disabled_reason,
        "errorCount": usage.error_count,
        "failureCounts": dict(usage.failure_counts),
        "lastFailureAt": usage.last_failure_ms,
    }
    for name, value in said.items():
        if value or name == "errorCount":
            stats[name] = value
        else:
            stats.pop(name, None)
    if model and usage == Usage():
        del _inner(_inner(raw, "usageStats"), id_)["models"][model]


def put_last_good(raw: Raw, provider: str, id_: str) -> None:
    """Note which credential of a provider worked last."""
    if id_ in _object(raw.get("profiles")):
        _inner(raw, "lastGood")[provider] = id_


def put_order(raw: Raw, provider: str, ids: Sequence[str] | None) -> None:
    """Set the order of a provider's credentials, or with None forget it."""
    order = _inner(raw, "order")
    for name in [name for name in order if normalize_provider_id(name) == provider]:
        del order[name]
    if ids is not None:
        order[provider] = list(ids)
    elif not order:
        del raw["order"]


def _inner(raw: Raw, name: str) -> Raw:
    """The object under a name, made when there is none."""
    if not isinstance(raw.get(name), dict):
        raw[name] = {}
    inner: Raw = raw[name]
    return inner


def _object(value: Json) -> Raw:
    return value if isinstance(value, dict) else {}


def _text(value: Json) -> str:
    return value if isinstance(value, str) else ""


def _number(value: Json, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return 0
    return min(int(value), most) if value > 0 else 0


def _time_ms(value: Json) -> int:
    return _number(value, MAX_TIME_MS)


def _count(value: Json) -> int:
    return _number(value, 1_000_000)


def _encoded(raw: Raw) -> bytes:
    # ASCII, so that half of a surrogate pair that came in can go out again.
    return (json.dumps(raw, indent=2) + "\n").encode("ascii")


def _stamp_of(path: Path) -> tuple[int, ...]:
    try:
        found = path.stat()
    except OSError:
        return ()
    times = (found.st_mtime_ns, found.st_ctime_ns)
    return (found.st_dev, found.st_ino, found.st_size, found.st_mode, *times)


@dataclass(slots=True)
class _Found:
    """What a look at a file brought: an object, damage, a refusal, or nothing."""

    tree: Raw | None = None
    is_damaged: bool = False
    refused: str = ""
    warnings: list[str] = field(default_factory=list)


def _look(path: Path) -> _Found:
    found = _Found()
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
    """A regular file's bytes, if it is its user's own; links are followed, pipes not waited for."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as opened:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        if found.st_uid not in {os.geteuid(), 0}:
            raise OSError(errno.EPERM, "it belongs to another user")
        if found.st_mode & 0o044:
            warnings.append(f"others on this machine can read {path}: chmod 600 {path}")
        data = opened.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise OSError(errno.EFBIG, "it is too large to be one")
    return data


def _open_lock(path: Path) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        _make_folder(path.parent)
        return os.open(path, flags, 0o600)
    except OSError as exc:
        raise StoreError(
            f"cannot write in {path.parent}: {exc.strerror or exc}",
            fix="check its owner and permissions",
        ) from exc


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks: the step that replaces the file still is one
        return True
    return True


def _make_folder(path: Path) -> None:
    """A folder, and those above it, for their owner alone."""
    if not path.is_dir():
        _make_folder(path.parent)
        path.mkdir(0o700, exist_ok=True)


def _free_name(target: Path) -> Path:
    """`….corrupt`, or `….corrupt.2` and on: what was set aside before is kept."""
    name = f"{target.name}.corrupt"
    at = 1
    while os.path.lexists(target.with_name(name)):
        at += 1
        name = f"{target.name}.corrupt.{at}"
    return target.with_name(name)


def _write_through(path: Path, data: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, 0o600), "wb") as opened:
        opened.write(data)
        opened.flush()
        os.fsync(opened.fileno())


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
