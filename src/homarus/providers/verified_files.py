"""Check downloaded files against their SHA-256, and again only after they changed.

A record in a hidden file next to them has the size, the modification time and the inode that a
file had when it was checked: while these are the same, its content is not read again.
"""

import hashlib
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from homarus.core.atomic_file import temporary_name, write_synced
from homarus.core.errors import CorruptDataError

_MAX_RECORD_BYTES: Final = 1 << 20


def record_path(file: Path) -> Path:
    """Return the path of the record of a file."""
    return file.with_name(f".{file.name}.sha256")


def verify_file(file: Path, sha256: str, *, fix: str) -> None:
    """Raise CorruptDataError for a file with another content.

    Without a `sha256`, the first check records the content, and later ones compare with it.
    Raises OSError when the file cannot be read.
    """
    before = _stamp(file)
    record = _read(record_path(file))
    wanted = sha256 or str(record.get("sha256") or "")
    if wanted and record == {**before, "sha256": wanted}:
        return
    found = hash_file(file)
    if wanted and found != wanted:
        raise CorruptDataError(f"{file} is not the file that was downloaded", fix=fix)
    if _stamp(file) == before:  # else it changed meanwhile: it is checked at the next use
        record_verified(file, found)


def record_verified(file: Path, sha256: str) -> None:
    """Record that a file has been checked."""
    content = json.dumps({**_stamp(file), "sha256": sha256})
    temporary = file.with_name(temporary_name())  # of its own: two processes may download at once
    with suppress(OSError):  # a folder that cannot be written: it is checked at each use
        try:
            write_synced(temporary, content.encode())
            temporary.replace(record_path(file))
        finally:
            temporary.unlink(missing_ok=True)


def hash_file(file: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal digits."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _stamp(file: Path) -> dict[str, int]:
    found = os.stat(file)  # noqa: PTH116 - the target of a link, whose content is used
    return {"size": found.st_size, "mtimeNs": found.st_mtime_ns, "inode": found.st_ino}


def _read(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            record = json.loads(file.read(_MAX_RECORD_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}
