"""The lines typed in earlier chats, in a private and bounded file of the state directory."""

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from homarus.config.redaction import redact
from homarus.core.atomic_file import write_atomic
from homarus.core.private_files import FILE_MODE, make_private_dir
from homarus.core.text import repair_surrogates

FILE: Final = "chat-history.jsonl"
MAX_ENTRIES: Final = 1_000
MAX_ENTRY_CHARS: Final = 10_000
_MAX_BYTES: Final = 4_000_000
_APPEND: Final = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


class ChatHistoryFile:
    """One JSON string per line, the newest last.

    A file that cannot be read or written is no reason not to chat: it is ignored.
    """

    def __init__(self, state: Path) -> None:
        self._path = state / FILE

    def load(self) -> list[str]:
        """Return the entries, oldest first; a file that has grown too long is shortened."""
        try:
            with self._path.open("rb") as file:
                start = max(0, os.fstat(file.fileno()).st_size - _MAX_BYTES)
                file.seek(start)
                lines = file.read(_MAX_BYTES).splitlines()
        except OSError:
            return []
        found = [entry for line in lines if (entry := _decode(line))]
        if start or len(found) > 2 * MAX_ENTRIES:
            kept = "".join(f"{json.dumps(entry)}\n" for entry in found[-MAX_ENTRIES:])
            with suppress(OSError):
                write_atomic(self._path, kept.encode())
        return found[-MAX_ENTRIES:]

    def add(self, text: str) -> None:
        """Append an entry, unless it is long, starts with a blank or seems to have a secret."""
        text = repair_surrogates(text)
        if not text.strip() or text[0] == " " or len(text) > MAX_ENTRY_CHARS:
            return
        if redact(text) != text:
            return
        with suppress(OSError):
            make_private_dir(self._path.parent)
            descriptor = os.open(self._path, _APPEND, FILE_MODE)
            try:
                os.fchmod(descriptor, FILE_MODE)
                os.write(descriptor, f"{json.dumps(text)}\n".encode())
            finally:
                os.close(descriptor)


def _decode(line: bytes) -> str:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return ""
    return repair_surrogates(found) if isinstance(found, str) else ""
