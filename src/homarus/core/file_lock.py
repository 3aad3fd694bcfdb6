"""Lock files against other processes; the kernel releases a lock when its holder dies.

    with file_lock(state / ".lock", timeout_s=5):
        ...

The locks are advisory: they only exclude processes that take them too. They belong to an open
file, so two threads that each open the file exclude each other as well.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_POLL_S: Final = 0.005
_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


@contextmanager
def file_lock(path: Path, timeout_s: float, *, is_optional: bool = False) -> Iterator[None]:
    """Hold the lock of a file, which is created with mode 0600.

    Raises TimeoutError when another process holds it for longer than `timeout_s`, and OSError
    when the file cannot be opened. With `is_optional`, a file system without locks is no error.
    """
    descriptor = open_lock_file(path)
    try:
        if not wait_for_lock(descriptor, timeout_s, is_optional=is_optional):
            raise TimeoutError("another program holds it")
        yield
    finally:
        os.close(descriptor)


def open_lock_file(path: Path) -> int:
    """Open or create a lock file with mode 0600; return its descriptor. Raises OSError."""
    return os.open(path, _FLAGS, 0o600)


def wait_for_lock(descriptor: int, timeout_s: float, *, is_optional: bool = False) -> bool:
    """Lock an open file; return False when another process still holds it after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not try_lock(descriptor, is_optional=is_optional):
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)
    return True


def try_lock(descriptor: int, *, is_shared: bool = False, is_optional: bool = False) -> bool:
    """Lock an open file without waiting; return False when another process holds it.

    Raises OSError on a file system without locks; with `is_optional`, it returns True there.
    """
    kind = fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):  # EACCES: NFS says so for a lock that is held
        return False
    except OSError:
        if not is_optional:
            raise
    return True
