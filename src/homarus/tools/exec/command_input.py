"""The input of a running command: written without blocking, bounded."""

import asyncio
import os
from contextlib import suppress

from homarus.core.errors import ToolError

MAX_PENDING_BYTES = 1_000_000  # that the command has not read yet
_END_OF_TRANSMISSION = b"\x04"  # a terminal's end of file, at the start of a line


class CommandInput:
    """The writing end of a command's input: a pipe, or its terminal. Owns the descriptor."""

    def __init__(self, fd: int, *, is_terminal: bool = False) -> None:
        os.set_blocking(fd, False)
        self._fd, self._is_terminal = fd, is_terminal
        self._pending = bytearray()
        self._is_ending = self._is_closed = self._is_watched = False

    def write(self, data: bytes, *, eof: bool = False) -> None:
        """Send data, and with `eof` the end of the input. Raises ToolError."""
        if self._is_closed or self._is_ending:
            raise ToolError("the input of the command is closed")
        if len(self._pending) + len(data) > MAX_PENDING_BYTES:
            raise ToolError(
                f"the command has not read {len(self._pending)} bytes of its input yet",
                fix="poll it, and write more when it goes on",
            )
        self._pending += data + (_END_OF_TRANSMISSION if eof and self._is_terminal else b"")
        self._is_ending = eof and not self._is_terminal
        self._flush()

    def close(self) -> None:
        """Close the descriptor; what was not written is lost."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._is_watched:
            asyncio.get_running_loop().remove_writer(self._fd)
        with suppress(OSError):
            os.close(self._fd)

    def _flush(self) -> None:
        try:
            while self._pending:
                del self._pending[: os.write(self._fd, self._pending)]
        except BlockingIOError:
            if not self._is_watched:
                self._is_watched = True
                asyncio.get_running_loop().add_writer(self._fd, self._flush)
            return
        except OSError:  # the command has closed its input or has ended
            self.close()
            return
        if self._is_watched:
            self._is_watched = False
            asyncio.get_running_loop().remove_writer(self._fd)
        if self._is_ending:
            self.close()
