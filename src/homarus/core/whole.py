"""Small files that are replaced whole: who reads one sees the old or the new, never half of it."""

import os
from contextlib import suppress
from pathlib import Path


def replace_whole(path: Path, data: bytes) -> None:
    """Put bytes in a file's place, for its owner alone; on disk when this returns, or OSError.

    For one writer at a time: what another left half done, because it died, is thrown away.
    """
    half = path.with_name(f".{path.name}.tmp")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        half.unlink(missing_ok=True)
        with os.fdopen(os.open(half, flags, 0o600), "wb") as opened:
            opened.write(data)
            opened.flush()
            os.fsync(opened.fileno())
        half.replace(path)
        _sync(path.parent)
    except OSError:
        with suppress(OSError):
            half.unlink(missing_ok=True)
        raise


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
