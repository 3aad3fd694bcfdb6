"""Copy a file of a source to a new place, completely or not at all, and never over another one."""

import errno
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Final, TypeAlias

from homarus.core.atomic_file import sync_folder
from homarus.core.fast_dataclass import dataclass
from homarus.core.faults import fault_point
from homarus.core.private_files import make_private_dir, open_private
from homarus.importing.source_tree import RefusedSourceError

# Returns the path behind links, and raises UserError for one inside the source.
CheckTarget: TypeAlias = Callable[[Path], Path]
_PIECE_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class FileDigest:
    """The SHA-256 of a file, and when it was written."""

    sha256: str
    mtime_ns: int


def digest(file: BinaryIO) -> FileDigest:
    """Read a file of the source from its start. Raises RefusedSourceError."""
    try:
        file.seek(0)
        return FileDigest(_sha256(file), os.fstat(file.fileno()).st_mtime_ns)
    except OSError as exc:
        raise RefusedSourceError(exc.strerror or "cannot be read") from exc


def _sha256(file: BinaryIO) -> str:
    found = hashlib.sha256()
    while piece := file.read(_PIECE_BYTES):
        found.update(piece)
    return found.hexdigest()


def has_content(path: Path, sha256: str) -> bool:
    """Return whether a file of the target has exactly this content."""
    try:
        with path.open("rb") as file:
            return _sha256(file) == sha256
    except OSError:
        return False


def copy_new(file: BinaryIO, found: FileDigest, target: Path) -> None:
    """Copy an open file with its time to a path that is free. Raises OSError.

    After a crash the target is complete or missing; the temporary file next to it is replaced by
    the next attempt.
    """
    make_private_dir(target.parent)
    temporary = target.with_name(f".{found.sha256[:16]}.tmp")
    temporary.unlink(missing_ok=True)
    file.seek(0)
    with open_private(temporary, "xb") as writing:
        while piece := file.read(_PIECE_BYTES):
            writing.write(piece)
        writing.flush()
        os.fsync(writing.fileno())
        os.utime(writing.fileno(), ns=(found.mtime_ns, found.mtime_ns))
    fault_point("import.file")
    if os.path.lexists(target):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target))
    temporary.rename(target)
    sync_folder(target.parent)


def beside(target: Path, sha256: str) -> Path:
    """Return the name of a copy that differs from the file at `target`."""
    return target.with_name(f"{target.stem}.imported-{sha256[:8]}{target.suffix}")
