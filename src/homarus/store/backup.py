"""Back up a state directory, its config and its workspaces to one file, and restore it.

The file is a compressed tar archive with mode 0600, as it contains credentials. Its last member is
`manifest.json`: the SHA-256 of every other member, and where it came from. Databases are copied
through SQLite, so that a backup of a running gateway is consistent. A restore checks the complete
archive before it changes anything, and keeps what was there.
"""

import gzip
import hashlib
import json
import os
import shutil
import stat
import tarfile
import tempfile
import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import field
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import IO, Any, Final

import apsw

from homarus import __version__
from homarus.core.errors import CorruptDataError, StoreError, UserError
from homarus.core.fast_dataclass import dataclass
from homarus.store.damage import find_damage
from homarus.store.state_paths import DATABASE, LOCK, make_private_dir

FORMAT: Final = 1
MANIFEST: Final = "manifest.json"
STATE: Final = "state"  # the root of the state directory in an archive
_SQLITE: Final = ".sqlite"
_BLOCK_BYTES: Final = 1 << 20
_SPOOL_BYTES: Final = 16 << 20
_MAX_MANIFEST_BYTES: Final = 256 << 20
# Of the state directory: what another process owns, what can be made again, and earlier damage.
_SKIPPED_NAMES: Final = frozenset({LOCK, "gateway.json", "logs", "cache"})
_SKIPPED_ENDS: Final = ("-wal", "-shm", "-journal", ".tmp", ".lock")
_SKIPPED_STARTS: Final = ("state.sqlite.", ".repair-", ".restoring-")


@dataclass(slots=True)
class BackupReport:
    """What an archive holds; `skipped` are links and special files, which no archive has."""

    path: Path
    created_at: str = ""
    roots: dict[str, str] = field(default_factory=dict)
    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)

    @property
    def size_bytes(self) -> int:
        return sum(int(entry["size"]) for entry in self.files.values())


def create_backup(target: Path, roots: Mapping[str, Path]) -> BackupReport:
    """Write an archive of these folders and files, by name. Raises UserError if it exists."""
    report = BackupReport(target, datetime.now(UTC).isoformat(timespec="seconds"))
    partial = target.with_name(f"{target.name}.partial")
    if target.exists():
        raise UserError(f"{target} is there already", fix="choose another name with --output")
    partial.unlink(missing_ok=True)
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            with tarfile.open(fileobj=file, mode="w:gz", format=tarfile.PAX_FORMAT) as archive:
                for name, path in roots.items():
                    report.roots[name] = str(path)
                    _add_root(archive, name, path, report, {target, partial})
                _add_manifest(archive, report)
            file.flush()
            os.fsync(file.fileno())
        partial.rename(target)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    return report


def _add_root(
    archive: tarfile.TarFile, name: str, root: Path, report: BackupReport, own: set[Path]
) -> None:
    if root.is_file():
        _add_file(archive, f"{name}/{root.name}", root, report)
        return
    for folder, folders, files in os.walk(root):
        relative = Path(folder).relative_to(root)
        if name == STATE and relative == Path():
            folders[:] = [one for one in folders if not _is_skipped(one)]
        folders.sort()
        for one in sorted(files):
            path = Path(folder, one)
            member = str(PurePosixPath(name, relative, one))
            if path.absolute() in own or (name == STATE and _is_skipped(one)):
                continue
            _add_file(archive, member, path, report)
        report.skipped += [
            str(Path(folder, one)) for one in folders if Path(folder, one).is_symlink()
        ]


def _is_skipped(name: str) -> bool:
    return (
        name in _SKIPPED_NAMES or name.endswith(_SKIPPED_ENDS) or (name.startswith(_SKIPPED_STARTS))
    )


def _add_file(archive: tarfile.TarFile, member: str, path: Path, report: BackupReport) -> None:
    with ExitStack() as opened:
        try:
            if path.suffix == _SQLITE and not path.is_symlink():
                source = opened.enter_context(_database_copy(path))
                mode = 0o600
            else:
                source = opened.enter_context(_regular_file(path))
                mode = stat.S_IMODE(os.fstat(source.fileno()).st_mode)
        except FileNotFoundError:  # deleted since it was listed
            return
        except CorruptDataError:
            if path.name == DATABASE:
                raise
            report.skipped.append(str(path))  # an index, which is made again
            return
        except OSError as exc:
            if not path.is_symlink() and path.is_file():
                raise StoreError(f"{path} cannot be read: {exc.strerror}") from exc
            report.skipped.append(str(path))
            return
        spool = opened.enter_context(tempfile.SpooledTemporaryFile(_SPOOL_BYTES))
        digest, size = _copy(source, spool)
        spool.seek(0)
        info = tarfile.TarInfo(member)
        info.size, info.mode, info.mtime = size, mode, int(path.stat().st_mtime)
        archive.addfile(info, spool)
    report.files[member] = {"size": size, "sha256": digest, "mode": mode}


@contextmanager
def _regular_file(path: Path) -> Iterator[IO[bytes]]:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(f"{path} is not a regular file")
        yield file


@contextmanager
def _database_copy(path: Path) -> Iterator[IO[bytes]]:
    """Yield a consistent copy of a database that another process may be writing."""
    with tempfile.TemporaryDirectory(prefix="homarus-backup-") as folder:
        copy = Path(folder, DATABASE)
        try:
            source = _open_source(path)
            target = apsw.Connection(str(copy))
            try:
                source.set_busy_timeout(5_000)
                with target.backup("main", source, "main") as backup:
                    while not backup.done:
                        backup.step(1_000)
                target.execute("PRAGMA journal_mode = DELETE").fetchall()
                damage = find_damage(target, None) if path.name == DATABASE else ""
            finally:
                target.close()
                source.close()
        except apsw.Error as exc:
            damage = str(exc)
        if damage:
            raise CorruptDataError(f"{path} is damaged: {damage}", fix="run `homarus doctor --fix`")
        with copy.open("rb") as file:
            yield file


def _open_source(path: Path) -> apsw.Connection:
    if not path.name.startswith("openclaw"):
        return apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    from homarus.config.openclaw_snapshot import open_snapshot

    return open_snapshot(path)


def _copy(source: IO[bytes], target: IO[bytes] | None) -> tuple[str, int]:
    """Return the digest and size of a stream, copied to `target` if there is one."""
    digest, size = hashlib.sha256(), 0
    while block := source.read(_BLOCK_BYTES):
        digest.update(block)
        if target:
            target.write(block)
        size += len(block)
    return digest.hexdigest(), size


def _add_manifest(archive: tarfile.TarFile, report: BackupReport) -> None:
    manifest = {
        "format": FORMAT,
        "program": f"homarus {__version__}",
        "createdAt": report.created_at,
        "roots": report.roots,
        "files": report.files,
    }
    data = json.dumps(manifest, ensure_ascii=False, indent=1).encode("utf-8", "surrogateescape")
    info = tarfile.TarInfo(MANIFEST)
    info.size, info.mode, info.mtime = len(data), 0o600, int(time.time())
    with tempfile.SpooledTemporaryFile(_SPOOL_BYTES) as spool:
        spool.write(data)
        spool.seek(0)
        archive.addfile(info, spool)


# Verify and restore


def verify_backup(path: Path) -> BackupReport:
    """Read a complete archive. Raises CorruptDataError when anything does not match."""
    with tempfile.TemporaryDirectory(prefix="homarus-verify-") as folder:
        return _extract(path, Path(folder), only=f"{STATE}/{DATABASE}")


def _extract(path: Path, target: Path, *, only: str = "") -> BackupReport:
    """Check every member against the manifest, and write all of them, or only one, to a folder."""
    found: dict[str, dict[str, Any]] = {}
    manifest: dict[str, Any] | None = None
    try:
        with gzip.open(path) as stream, tarfile.open(fileobj=stream, mode="r|") as archive:
            for member in archive:
                source = archive.extractfile(member) if member.isreg() else None
                if source is None or manifest is not None or not _is_safe(member.name):
                    raise _broken(path, f"{member.name!r} must not be in it")
                if member.name == MANIFEST:
                    manifest = json.loads(source.read(_MAX_MANIFEST_BYTES))
                    continue
                if member.name in found:
                    raise _broken(path, f"{member.name!r} is in it twice")
                found[member.name] = _write_member(source, member, target, only)
            while stream.read(_BLOCK_BYTES):  # to the end, where the checksum is
                pass
    except (tarfile.TarError, OSError, EOFError, ValueError, zlib.error) as exc:
        if isinstance(exc, FileNotFoundError) and not path.exists():
            raise UserError(f"there is no file {path}") from exc
        raise _broken(path, str(exc)) from exc
    return _match(path, manifest, found, target)


def _match(
    path: Path, manifest: Mapping[str, Any] | None, found: dict[str, dict[str, Any]], target: Path
) -> BackupReport:
    if manifest is None or not isinstance(manifest.get("files"), dict):
        raise _broken(path, "it has no manifest, so it is not complete")
    if manifest.get("format") != FORMAT:
        raise StoreError(
            f"{path} has format {manifest.get('format')}; this program knows {FORMAT}",
            fix="use the version of homarus that made it",
        )
    listed: dict[str, dict[str, Any]] = manifest["files"]
    for name in sorted(listed.keys() | found.keys()):
        if found.get(name) != listed.get(name):
            state = "differs" if name in found and name in listed else "is missing or added"
            raise _broken(path, f"{name} {state}")
    database = target / STATE / DATABASE
    if database.exists():
        db = apsw.Connection(str(database))
        try:
            damage = find_damage(db, None)
        finally:
            db.close()
        if damage:
            raise _broken(path, f"its database: {damage}")
    roots = {str(k): str(v) for k, v in dict(manifest.get("roots", {})).items()}
    return BackupReport(path, str(manifest.get("createdAt", "")), roots, found)


def _write_member(
    source: IO[bytes], member: tarfile.TarInfo, target: Path, only: str
) -> dict[str, Any]:
    mode = member.mode & 0o700  # for the owner alone, whatever it was
    if only and member.name != only:
        digest, size = _copy(source, None)
    else:
        file = target / member.name
        make_private_dir(file.parent)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(file, flags, mode | 0o600), "wb") as out:
            digest, size = _copy(source, out)
            out.flush()
            os.fsync(out.fileno())
    return {"size": size, "sha256": digest, "mode": member.mode}


def _is_safe(name: str) -> bool:
    parts = name.split("/")
    return (
        not name.startswith("/")
        and "\0" not in name
        and "\\" not in name
        and all(part not in {"", ".", ".."} for part in parts)
        and (len(parts) > 1 or name == MANIFEST)
    )


def _broken(path: Path, problem: str) -> CorruptDataError:
    return CorruptDataError(f"{path} is not a complete backup: {problem}", fix="use another backup")


@dataclass(slots=True)
class RestoreReport:
    """Where each root was restored to, and where what was there before is kept."""

    restored: dict[str, Path] = field(default_factory=dict)
    kept: list[Path] = field(default_factory=list)


def restore_backup(path: Path, state: Path, places: Mapping[str, Path]) -> RestoreReport:
    """Restore an archive; nothing is changed unless all of it matches its manifest.

    `state` must be locked by the caller. `places` says where the other roots go; one without a
    place stays in the folder `restored` of the state directory.
    """
    at = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    make_private_dir(state.parent)
    making = state.with_name(f"{state.name}.restoring-{at}")
    making.mkdir(0o700)
    report = RestoreReport()
    try:
        found = _extract(path, making)
    except BaseException:
        shutil.rmtree(making, ignore_errors=True)
        raise
    new_state = making / STATE
    make_private_dir(new_state)
    for name in found.roots:
        source = making / name
        if name == STATE or not source.exists():
            continue
        place = places.get(name)
        if place is None:
            place = new_state / "restored" / name
            report.restored[name] = state / "restored" / name
        else:
            report.restored[name] = place
        if name == "config":
            source = next(source.iterdir())  # a single file
        _put(source, place, at, report)
    report.restored[STATE] = state
    _put(new_state, state, at, report)
    shutil.rmtree(making)  # nothing is left in it
    return report


def _put(source: Path, place: Path, at: str, report: RestoreReport) -> None:
    """Move a file or folder to its place; what is there is kept under another name."""
    make_private_dir(place.parent)
    if place.exists() or place.is_symlink():
        kept = place.with_name(f"{place.name}.before-restore-{at}")
        place.rename(kept)
        report.kept.append(kept)
    source.rename(place)
