"""Recognise that a file was written, by its `stat` fields."""

import os
import stat
from pathlib import Path

from homarus.core.fast_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class FileStamp:
    """The `stat` fields of a file: while they are the same, the file was not written."""

    size: int
    mtime_ns: int
    inode: int


def stat_stamp(path: str | Path) -> FileStamp | None:
    """Return the file's stamp, or None when it is not a regular file. Links are not followed."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    if not stat.S_ISREG(found.st_mode):
        return None
    return FileStamp(found.st_size, found.st_mtime_ns, found.st_ino)
