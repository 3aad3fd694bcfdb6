"""Decode server-sent events from bytes in any split.

Only an event's data is kept: every vendor repeats the other fields in it. Split UTF-8, CR, LF and
CRLF, a byte order mark, comments and one-byte pieces all give the same events; the buffer of an
incomplete event is bounded.
"""

MAX_EVENT_BYTES = 16 * 1024 * 1024

_BOM = b"\xef\xbb\xbf"
_IN_JSON = (b" ", b"\t", b"}", b"]", b'"')


def _one_event(piece: bytes) -> int:
    """Return where the data starts if the piece is one event of one data line; else -1."""
    start = piece.find(b"\n") + 1 if piece.startswith(b"event: ") else 0
    last = len(piece) - 2
    if piece.startswith(b"data: ", start) and piece.find(b"\n", start) == last:
        return start + 6 if piece.endswith(b"\n") and b"\r" not in piece else -1
    return -1


class EventTooLongError(ValueError):
    """An event exceeds the size limit."""


class EventReader:
    """Decodes fed bytes into the data of complete events."""

    __slots__ = ("_after_cr", "_begun", "_data", "_held", "_max_bytes", "_rest")

    def __init__(self, max_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max_bytes = max_bytes
        self._rest = bytearray()  # an incomplete line
        self._data: list[bytes] = []  # the data lines of an incomplete event
        self._held = 0
        self._begun = False
        self._after_cr = False

    def feed(self, piece: bytes) -> list[str]:
        """Return the data of the events that `piece` completed."""
        if self._begun and not self._rest and not self._data:
            start = _one_event(piece)  # the shape of nearly all pieces
            if start > 0:
                return [piece[start:-2].decode("utf-8", "replace")]
        if self._after_cr or b"\r" in piece:
            piece = self._with_plain_ends(piece)
        if b"\n" not in piece:
            self._rest += piece
            self._check()
            return []
        if self._rest:
            self._rest += piece
            piece = bytes(self._rest)
            self._rest.clear()
        lines = piece.split(b"\n")
        self._rest += lines.pop()
        if not self._begun:
            self._begun = True
            lines[0] = lines[0].removeprefix(_BOM)
        events = []
        for line in lines:
            if line:
                self._take(line)
            elif self._data:
                events.append(self._event())
        self._check()
        return events

    def end(self) -> list[str]:
        """Return what the stream's end leaves without its closing blank line."""
        line = bytes(self._rest)
        self._rest.clear()
        if line:
            self._take(line if self._begun else line.removeprefix(_BOM))
        return [self._event()] if self._data else []

    def _take(self, line: bytes) -> None:
        if line.startswith(b"data:"):
            data = line[6:] if line[5:6] == b" " else line[5:]
        elif line.startswith(b"error:"):  # llama.cpp's field for an error inside a stream
            data = b'{"error":' + line[6:] + b"}"
        elif line == b"data":
            data = b""
        elif line.startswith((b"{", b"[{")) or (self._data and line.startswith(_IN_JSON)):
            data = line  # Google's errors inside a stream: bare JSON, over several lines
        else:
            return
        self._data.append(data)
        self._held += len(data)

    def _event(self) -> str:
        data = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
        self._data.clear()
        self._held = 0
        return data.decode("utf-8", "replace")

    def _check(self) -> None:
        if len(self._rest) + self._held > self._max_bytes:
            self._rest.clear()
            self._data.clear()
            raise EventTooLongError(f"an event is longer than {self._max_bytes} bytes")

    def _with_plain_ends(self, piece: bytes) -> bytes:
        if self._after_cr and piece.startswith(b"\n"):
            piece = piece[1:]
            self._after_cr = False
        if piece:
            self._after_cr = piece.endswith(b"\r")
        return piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
