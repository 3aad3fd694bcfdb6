"""Replace small files atomically: a reader sees the old content or the new, never a part of it."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

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
