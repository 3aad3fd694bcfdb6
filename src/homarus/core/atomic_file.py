"""Replace small files atomically: a reader sees the old content or the new, never a part of it."""

import os
import re
import secrets
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

# Names that `temporary_name` makes, and those of the store, with the id of their process.
_TEMPORARY: Final = re.compile(r"\.[0-9a-f]{16}\.tmp|sessions\.json\.\d+\.tmp")
_SKIPPED_FOLDERS: Final = frozenset({".git", "node_modules", ".venv"})
_MAX_ENTRIES: Final = 100_000
_STARTED_S: Final = time.time()
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def write_atomic(path: Path, data: bytes) -> None:
    """Replace the file atomically, with mode 0600, and fsync it before returning.

    Raises OSError. Only one writer may run at a time: a temporary file that an earlier writer
    left behind is deleted.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        write_synced(temporary, data)
        temporary.replace(path)
        sync_folder(path.parent)
    except OSError:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def write_synced(path: Path, data: bytes) -> None:
    """Write a new file with mode 0600, deleting an older one of that name, and fsync it."""
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, _NEW, 0o600), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Fsync a folder, so that a rename in it survives a power failure."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def temporary_name() -> str:
    """Return the name of a file that is written next to another one and then replaces it."""
    return f".{secrets.token_hex(8)}.tmp"


def remove_leftovers(folders: Iterable[Path], before_s: float = _STARTED_S) -> int:
    """Delete temporary files that a crash left in these folders; return their number.

    `before_s` is when this process started: later ones are in use. Links are not followed.
    """
    removed = 0
    for path in _temporary_files(folders):
        with suppress(OSError):
            status = path.lstat()
            if stat.S_ISREG(status.st_mode) and status.st_mtime < before_s:
                path.unlink()
                removed += 1
    return removed


def _temporary_files(folders: Iterable[Path]) -> Iterator[Path]:
    seen = 0
    for top in folders:
        for folder, names, files in os.walk(top):
            names[:] = [name for name in names if name not in _SKIPPED_FOLDERS]
            seen += len(names) + len(files)
            if seen > _MAX_ENTRIES:
                return
            yield from (Path(folder, name) for name in files if _TEMPORARY.fullmatch(name))
