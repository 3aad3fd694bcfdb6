"""Replace one folder by another one: a reader finds the old one or the new one.

Linux and macOS can exchange two folders in one step. Where the file system cannot, the old folder
is moved away first; what is interrupted then is completed by `installer.recover`.
"""

import ctypes
import os
import sys
from pathlib import Path
from typing import Final

_EXCHANGE: Final = 2  # RENAME_EXCHANGE of Linux and RENAME_SWAP of macOS
_HERE: Final = -100  # AT_FDCWD


def exchange_folders(one: Path, other: Path) -> bool:
    """Exchange two folders in one step; return False where that is not possible."""
    library = ctypes.CDLL(None, use_errno=True)
    first, second = os.fsencode(one), os.fsencode(other)
    try:
        if sys.platform == "darwin":
            return bool(library.renamex_np(first, second, _EXCHANGE) == 0)
        return bool(library.renameat2(_HERE, first, _HERE, second, _EXCHANGE) == 0)
    except AttributeError:  # a C library without the function
        return False
