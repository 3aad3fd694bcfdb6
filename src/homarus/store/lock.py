"""Lock a state directory for one process; the kernel releases the lock when its holder dies."""

import os
from contextlib import suppress
from pathlib import Path

from homarus.core.errors import StateInUseError, StoreError
from homarus.core.file_lock import open_lock_file, try_lock, wait_for_lock
from homarus.store.state_paths import LOCK, make_private_dir

WAIT_S = 1.0  # a command may hold the lock for a moment, to look or to import changed files


class StateLock:
    """A lock that is held from construction until `release`."""

    def __init__(self, state: Path) -> None:
        path = state / LOCK
        try:
            make_private_dir(state)
            self._fd = open_lock_file(path)
        except OSError as exc:
            raise StoreError(
                f"cannot write in the state directory {state}: {exc.strerror}",
                fix="check its owner and permissions, or set OPENCLAW_STATE_DIR",
            ) from exc
        try:
            is_locked = wait_for_lock(self._fd, WAIT_S)
        except OSError as exc:
            os.close(self._fd)
            raise StoreError(f"cannot lock {path}: {exc.strerror}") from exc
        if not is_locked:
            holder = os.pread(self._fd, 32, 0).decode("ascii", "replace").strip()
            os.close(self._fd)
            who = f"process {holder}" if holder.isdigit() else "another process"
            raise StateInUseError(
                f"{who} uses the state directory {state}",
                fix="stop it first, or set OPENCLAW_STATE_DIR to another directory",
            )
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        if self._fd >= 0:
            with suppress(OSError):  # a disk that became read-only
                os.ftruncate(self._fd, 0)  # `lock_holder_pid` need not try the lock any more
            os.close(self._fd)
            self._fd = -1


def lock_holder_pid(state: Path) -> int:
    """Return the id of the process that holds the lock; 0 when there is none."""
    try:
        fd = os.open(state / LOCK, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return 0
    try:
        text = os.pread(fd, 32, 0).decode("ascii", "replace").strip()
        if not text.isdigit() or not _lives(int(text)):
            return 0  # without trying the lock, which would keep another process from taking it
        return 0 if try_lock(fd, is_shared=True) else int(text)
    except OSError:
        return 0
    finally:
        os.close(fd)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True
