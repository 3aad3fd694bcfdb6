"""AWS's event stream, read from bytes; botocore is the oracle."""

import struct
import time
from itertools import pairwise
from zlib import crc32

import pytest
from botocore.eventstream import EventStreamBuffer, ParserError
from hypothesis import given
from hypothesis import strategies as st

from homarus.providers.eventstream import MAX_FRAME_BYTES, EventStreamFrame, FrameError, FrameReader
from homarus.testing.model_server.bedrock import event, frame

names = st.text(st.characters(codec="ascii", exclude_characters="\0"), min_size=1, max_size=9)
values = st.text(st.characters(codec="utf-8"), max_size=9)
frames = st.builds(frame, st.dictionaries(names, values, max_size=3), st.binary(max_size=40))


def as_botocore_reads(data: bytes) -> list[EventStreamFrame]:
    buffer = EventStreamBuffer()
    buffer.add_data(data)
    return [EventStreamFrame(dict(each.headers), each.payload) for each in buffer]


def read(data: bytes, cuts: list[int]) -> list[EventStreamFrame]:
    reader = FrameReader()
    edges = [0, *sorted({cut % (len(data) + 1) for cut in cuts}), len(data)]
    return [one for start, end in pairwise(edges) for one in reader.feed(data[start:end])]


@given(st.lists(frames, max_size=5).map(b"".join), st.lists(st.integers(0, 9999), max_size=20))
def test_frames_in_any_split_match_botocore(data: bytes, cuts: list[int]) -> None:
    assert read(data, cuts) == as_botocore_reads(data)


def test_frames_byte_by_byte_are_equal() -> None:
    data = event("messageStart", role="assistant") + event("contentBlockDelta", delta={"text": "é"})
    reader = FrameReader()
    got = [one for at in range(len(data)) for one in reader.feed(data[at : at + 1])]
    assert [one.headers[":event-type"] for one in got] == ["messageStart", "contentBlockDelta"]


@given(frames, st.integers(0, 200), st.integers(1, 255))
def test_flipped_bit_raises_frame_error(data: bytes, place: int, bits: int) -> None:
    spoiled = bytearray(data)
    spoiled[place % len(data)] ^= bits
    try:
        got = read(bytes(spoiled), [])
    except FrameError:
        return
    assert got == [], "what claims to be longer than it is never comes to its end"


@given(st.binary(max_size=100))
def test_any_bytes_are_frames_or_frame_error(data: bytes) -> None:
    try:
        ours: list[EventStreamFrame] | None = read(data, [])
    except FrameError:
        ours = None
    try:
        theirs: list[EventStreamFrame] | None = as_botocore_reads(data)
    except ParserError:
        theirs = None
    assert ours == theirs


def framed(headers: bytes, payload: bytes = b"{}") -> bytes:
    lengths = struct.pack("!II", 16 + len(headers) + len(payload), len(headers))
    data = lengths + struct.pack("!I", crc32(lengths)) + headers + payload
    return data + struct.pack("!I", crc32(data))


def test_header_types_are_skipped_and_text_kept() -> None:
    raw = b"".join(
        b"\x01%c%c%b" % (letter, kind, value)
        for letter, kind, value in [
            (ord("a"), 0, b""),
            (ord("b"), 1, b""),
            (ord("c"), 2, b"1"),
            (ord("d"), 3, b"12"),
            (ord("e"), 4, b"1234"),
            (ord("f"), 5, b"12345678"),
            (ord("g"), 6, b"\0\x03abc"),
            (ord("h"), 7, b"\0\x02hi"),
            (ord("i"), 8, b"12345678"),
            (ord("j"), 9, b"1234567812345678"),
        ]
    )
    assert FrameReader().feed(framed(raw)) == [EventStreamFrame({"h": "hi"}, b"{}")]
    assert as_botocore_reads(framed(raw))[0].headers["h"] == "hi"


@pytest.mark.parametrize(
    "raw",
    [b"\x05ab", b"\x01a", b"\x01a\x07\0", b"\x01a\x07\0\x05hi", b"\x01a\x63", b"\x01\xff\x00"],
)
def test_unreadable_headers_raise_frame_error(raw: bytes) -> None:
    with pytest.raises(FrameError):
        FrameReader().feed(framed(raw))


@pytest.mark.parametrize("size", [0, 15, MAX_FRAME_BYTES + 1, 2**32 - 1])
def test_impossible_frame_size_is_refused_before_buffering(size: int) -> None:
    lengths = struct.pack("!II", size, 0)
    with pytest.raises(FrameError):
        FrameReader().feed(lengths + struct.pack("!I", crc32(lengths)))


def test_large_frame_in_small_pieces_costs_linear_time() -> None:
    data = frame({":event-type": "x"}, b"x" * 4_000_000)
    reader = FrameReader()
    start = time.process_time()
    got = [one for at in range(0, len(data), 64) for one in reader.feed(data[at : at + 64])]
    assert len(got[0].payload) == 4_000_000
    assert time.process_time() - start < 1


def test_header_cache_is_bounded() -> None:
    reader = FrameReader()
    for n in range(1000):
        reader.feed(frame({"n": str(n)}, b""))
    assert len(reader._headers) <= 32
