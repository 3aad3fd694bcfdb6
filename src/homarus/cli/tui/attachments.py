"""Files that are sent with a message, read from this machine."""

import base64
import mimetypes
import os
import shlex
import stat
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from homarus.cli.tui.outbox import OutgoingFile
from homarus.core.errors import UserError
from homarus.core.mime import HEAD_BYTES, sniff_image_mime
from homarus.core.text import one_line

MAX_BYTES: Final = 15_000_000
MAX_FILES: Final = 20
_MAX_PATH_CHARS: Final = 4_096


def find_path(text: str) -> Path | None:
    """Return the file that a pasted line names; None if it is anything else.

    Terminals paste a file that is dropped on them as a path, quoted or with escaped blanks.
    """
    text = text.strip()
    if not text or "\n" in text or len(text) > _MAX_PATH_CHARS:
        return None
    if text.startswith("file://"):
        text = unquote(urlsplit(text).path)
    elif not text.startswith(("/", "~/", "./", "../", "'", '"')):
        return None
    else:
        try:
            words = shlex.split(text)
        except ValueError:
            return None
        text = words[0] if len(words) == 1 else text
    if not text.startswith(("/", "~/", "./", "../")):
        return None
    try:
        path = Path(text).expanduser()
        return path if path.is_file() else None
    except (OSError, RuntimeError, ValueError):
        return None


def expand(text: str) -> Path:
    """Return the path that a person typed, with its home folder."""
    path = Path(text)
    try:
        return path.expanduser()
    except RuntimeError:  # a user that does not exist
        return path


def read_file(path: Path) -> OutgoingFile:
    """Read a file; raises UserError for one that cannot be sent."""
    name = one_line(path.name, 120)
    try:
        # A named pipe would be waited for; it is found out without opening it for long.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise UserError(f"{name} is no file", fix="name a file, not a folder or a device")
            data = file.read(MAX_BYTES + 1)
    except OSError as exc:
        raise UserError(
            f"{name} cannot be read: {exc.strerror or exc}", fix="check the path"
        ) from exc
    if len(data) > MAX_BYTES:
        limit = f"{MAX_BYTES // 1_000_000} MB"
        raise UserError(f"{name} has more than {limit}", fix="send a smaller file")
    mime = sniff_image_mime(data[:HEAD_BYTES]) or mimetypes.guess_type(path.name)[0] or ""
    content = base64.b64encode(data).decode("ascii")
    return OutgoingFile(name, mime or "application/octet-stream", content, len(data))


def format_size(size: int) -> str:
    """Format a size for people: `12 kB`."""
    if size < 1_000:
        return f"{size} B"
    return f"{size / 1_000:.0f} kB" if size < 1_000_000 else f"{size / 1_000_000:.1f} MB"
