"""Decode AWS's event stream from bytes in any split: frames of headers and a payload.

A frame consists of two lengths with their checksum, the headers, the payload, and a checksum of
all. A mismatch raises FrameError at once, because nothing behind it can be trusted. The buffer of
an incomplete frame is bounded.
"""

import struct
from collections.abc import Mapping
from typing import NamedTuple
from zlib import crc32

MAX_FRAME_BYTES = 16 * 1024 * 1024
MAX_HEADERS_BYTES = 128 * 1024
KEPT_HEADERS = 32

_PRELUDE = struct.Struct("!III")  # total length, header length, checksum of both
_CRC_BYTES = 4
_OVERHEAD = _PRELUDE.size + _CRC_BYTES
# The length of a header's value by its type; text and bytes have their own length field.
_SIZES = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
_BYTES, _TEXT = 6, 7


class FrameError(ValueError):
    """The bytes are not a valid frame."""


class EventStreamFrame(NamedTuple):
    """One event: its text headers and its payload."""

    headers: Mapping[str, str]
    payload: bytes


class FrameReader:
    """Decodes fed bytes into complete frames."""

    __slots__ = ("_headers", "_needed", "_rest")

    def __init__(self) -> None:
        self._rest = bytearray()  # an incomplete frame
        self._needed = _PRELUDE.size  # bytes needed before the next attempt to decode
        # Nearly all frames have the same few header blocks.
        self._headers: dict[bytes, Mapping[str, str]] = {}

    def feed(self, piece: bytes) -> list[EventStreamFrame]:
        """Return the frames that `piece` completed."""
        if self._rest:
            self._rest += piece
            if len(self._rest) < self._needed:
                return []
            piece = bytes(self._rest)
            self._rest.clear()
        frames: list[EventStreamFrame] = []
        start = 0
        self._needed = _PRELUDE.size
        while len(piece) - start >= _PRELUDE.size:
            size, headers_size = _lengths(piece, start)
            if len(piece) - start < size:
                self._needed = size
                break
            frames.append(self._frame(piece[start : start + size], headers_size))
            start += size
        self._rest += piece[start:]
        return frames

    def _frame(self, data: bytes, headers_size: int) -> EventStreamFrame:
        end = len(data) - _CRC_BYTES
        if crc32(memoryview(data)[:end]) != int.from_bytes(data[end:], "big"):
            raise FrameError("an event's checksum is wrong")
        payload_start = _PRELUDE.size + headers_size
        raw = data[_PRELUDE.size : payload_start]
        headers = self._headers.get(raw)
        if headers is None:
            if len(self._headers) >= KEPT_HEADERS:
                self._headers.clear()
            headers = self._headers[raw] = _headers(raw)
        return EventStreamFrame(headers, data[payload_start:end])


def _lengths(data: bytes, start: int) -> tuple[int, int]:
    size, headers_size, checksum = _PRELUDE.unpack_from(data, start)
    if crc32(data[start : start + 8]) != checksum:
        raise FrameError("this is not AWS's event stream")
    if headers_size > MAX_HEADERS_BYTES or not _OVERHEAD + headers_size <= size <= MAX_FRAME_BYTES:
        raise FrameError(f"an event of {size} bytes, {headers_size} of them headers")
    return size, headers_size


def _headers(raw: bytes) -> dict[str, str]:
    headers: dict[str, str] = {}
    at = 0
    try:
        while at < len(raw):
            name_end = at + 1 + raw[at]
            name, kind = raw[at + 1 : name_end].decode(), raw[name_end]
            at = name_end + 1
            if kind in {_BYTES, _TEXT}:
                size = int.from_bytes(raw[at : at + 2], "big")
                at += 2
            else:
                size = _SIZES[kind]
            if at + size > len(raw):
                raise FrameError("an event's headers are cut")
            if kind == _TEXT:
                headers[name] = raw[at : at + size].decode()
            at += size
    except (IndexError, KeyError, UnicodeDecodeError) as exc:
        raise FrameError("an event's headers cannot be read") from exc
    return headers
