"""Where the log is, and how its file is opened: safely, and for its owner alone.

The log is in the state directory. OpenClaw's is in a temporary folder that all users of the
machine share, where another user may have planted a link, a pipe or a file of their own; it is
only read, and only while there is no log of ours.
"""

import os
import re
import stat
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from homarus.core.private_files import FILE_MODE, FOLDER_MODE, make_private_dir

if TYPE_CHECKING:
    from homarus.config.schema import Config

MAX_AGE_DAYS: Final = 7
_DAY: Final = "openclaw-%Y-%m-%d.log"
_NAME: Final = re.compile(r"openclaw-\d{4}-\d\d-\d\d\.log")
_SAFE: Final = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def log_file(config: "Config", logs: Path) -> Path:
    """Return the file to write to now: `logging.file`, or today's file in the folder `logs`."""
    if config.logging.file:
        return Path(config.logging.file).expanduser()
    return logs / time.strftime(_DAY)


def find_log_file(config: "Config", logs: Path) -> Path:
    """Return the file to read: the newest of ours, else the newest that OpenClaw wrote."""
    ours = log_file(config, logs)
    if config.logging.file:
        return ours
    shared = Path(tempfile.gettempdir())
    folders = (logs, shared / "openclaw", shared / f"openclaw-{os.getuid()}")
    return next((newest for folder in folders if (newest := _find_newest(folder))), ours)


def open_log_to_append(file: Path, *, is_own_folder: bool) -> IO[str]:
    """Open the log, created with mode 0600. Raises OSError; it never waits for another process.

    A folder that is only for logs is closed to other users, and old logs in it are deleted.
    """
    make_private_dir(file.parent)
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | _SAFE, FILE_MODE)
    try:
        _check(descriptor)
        if is_own_folder:
            _protect(file.parent, descriptor)
            _remove_old(file.parent)
        return os.fdopen(descriptor, "a", encoding="utf-8")
    except BaseException:
        os.close(descriptor)
        raise


def open_log_to_read(file: Path) -> IO[bytes]:
    """Open a log that is a regular file of this user. Raises OSError."""
    descriptor = os.open(file, os.O_RDONLY | _SAFE)
    try:
        _check(descriptor)
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def _check(descriptor: int) -> None:
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_nlink > 1:
        raise PermissionError(1, "it is not a file of this user alone")


def _find_newest(folder: Path) -> Path | None:
    """Return the newest log in a folder that can be read safely."""
    with suppress(OSError):
        for name in sorted(filter(_NAME.fullmatch, os.listdir(folder)), reverse=True):  # noqa: PTH208 - names
            with suppress(OSError), open_log_to_read(folder / name):
                return folder / name
    return None


def _protect(folder: Path, descriptor: int) -> None:
    """Close to others what an earlier program left open to them."""
    with suppress(OSError):
        if os.fstat(descriptor).st_mode & 0o077:
            os.fchmod(descriptor, FILE_MODE)
        if folder.stat().st_mode & 0o077:
            folder.chmod(FOLDER_MODE)


def _remove_old(folder: Path) -> None:
    oldest = time.strftime(_DAY, time.localtime(time.time() - MAX_AGE_DAYS * 86_400))
    with suppress(OSError):
        for name in filter(_NAME.fullmatch, os.listdir(folder)):  # noqa: PTH208 - names
            if name < oldest:
                (folder / name).unlink()
