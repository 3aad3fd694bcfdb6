"""Lock a state directory for one process; the kernel releases the lock when its holder dies."""

import errno
import fcntl
import os
from pathlib import Path

from homarus.core.errors import InUse, StoreError
from homarus.store.place import LOCK, make_folder


class StateLock:
    """A lock that is held from construction until `release`."""

    def __init__(self, state: Path) -> None:
        path = state / LOCK
        try:
            make_folder(state)
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        except OSError as exc:
            raise StoreError(
                f"cannot write in the state directory {state}: {exc.strerror}",
                fix="check its owner and permissions, or set OPENCLAW_STATE_DIR",
            ) from exc
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as exc:
            holder = os.pread(self._fd, 32, 0).decode("ascii", "replace").strip()
            os.close(self._fd)
            if exc.errno not in {errno.EWOULDBLOCK, errno.EACCES}:
                raise StoreError(f"cannot lock {path}: {exc.strerror}") from exc
            who = f"process {holder}" if holder.isdigit() else "another process"
            raise InUse(
                f"{who} uses the state directory {state}",
                fix="stop it first, or set OPENCLAW_STATE_DIR to another directory",
            ) from exc
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def holder(state: Path) -> int:
    """Return the id of the process that holds the lock; 0 when there is none."""
    try:
        fd = os.open(state / LOCK, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return 0
    try:
        text = os.pread(fd, 32, 0).decode("ascii", "replace").strip()
        if not text.isdigit() or not _lives(int(text)):
            return 0  # and the lock is not even touched, so that nobody is kept from taking it
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return int(text)
    except OSError:
        return 0
    finally:
        os.close(fd)
    return 0


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True
