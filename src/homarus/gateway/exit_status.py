"""The exit status of `homarus gateway run`, by which systemd decides whether to start it again."""

import errno
import socket
from typing import Final

from homarus.core.errors import DiskFullError, StateInUseError

WRONG_CONFIG: Final = 2  # a restart cannot fix it: the unit stays down until a person has
TRANSIENT: Final = 75  # EX_TEMPFAIL: the same start can succeed later

# Conditions of the machine that end without a change of the config.
_TRANSIENT_ERRNOS: Final = frozenset(
    {
        errno.EADDRINUSE, errno.EADDRNOTAVAIL, errno.EAGAIN, errno.EBUSY, errno.EDQUOT,
        errno.EHOSTUNREACH, errno.EINTR, errno.EIO, errno.EMFILE, errno.ENETDOWN,
        errno.ENETUNREACH, errno.ENFILE, errno.ENOBUFS, errno.ENODEV, errno.ENOLCK, errno.ENOMEM,
        errno.ENOSPC, errno.ENOTCONN, errno.EROFS, errno.ESTALE, errno.ETIMEDOUT,
    }
)  # fmt: skip


def is_transient(error: BaseException) -> bool:
    """Return whether the error, or what it was raised from, is a condition that passes."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, StateInUseError | DiskFullError | socket.gaierror | TimeoutError):
            return True
        if isinstance(seen, OSError) and seen.errno in _TRANSIENT_ERRNOS:
            return True
        seen = seen.__cause__ or seen.__context__
    return False
