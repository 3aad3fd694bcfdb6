"""Create files and folders for their owner alone, whatever the umask of the process is.

Every file and folder that this program creates comes from here, from `atomic_file` or from an
`os.open` with a mode: `open`, `write_text` and `mkdir` without one leave the mode to the umask.
"""

import os
from pathlib import Path
from typing import IO, Any, Literal

FILE_MODE = 0o600
FOLDER_MODE = 0o700


def make_private_dir(path: Path) -> None:
    """Create a folder and its parents with mode 0700; folders that exist keep theirs."""
    try:
        path.mkdir(FOLDER_MODE)
    except FileExistsError:
        if not path.is_dir():
            raise
    except FileNotFoundError:
        make_private_dir(path.parent)
        make_private_dir(path)


def open_private(path: Path, mode: Literal["wb", "xb", "w+b", "w", "x"]) -> IO[Any]:
    """Open a file for writing, text as UTF-8; a new one has mode 0600. Links are not followed."""
    encoding = None if "b" in mode else "utf-8"
    return open(path, mode, encoding=encoding, opener=_open)


def _open(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, FILE_MODE)


def create_private(path: Path) -> None:
    """Create an empty file with mode 0600 for a library that would use the umask."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE))
