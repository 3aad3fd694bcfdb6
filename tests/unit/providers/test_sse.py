"""Decoding server-sent events from bytes."""

from collections import deque
from itertools import pairwise, repeat

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai._streaming import SSEDecoder

from homarus.providers.sse import EventReader, EventTooLongError


def events(*pieces: bytes) -> list[str]:
    reader = EventReader()
    return [event for piece in pieces for event in reader.feed(piece)] + reader.end()


def test_event_ends_with_blank_line() -> None:
    assert events(b"data: a\n\ndata: b\n\n") == ["a", "b"]


def test_event_data_drops_one_space_after_colon() -> None:
    assert events(b"data:a\n\ndata:  b\n\ndata:\n\n") == ["a", " b", ""]


def test_event_data_of_several_lines_is_joined() -> None:
    assert events(b"data: {\ndata: }\n\n") == ["{\n}"]


def test_comments_and_other_fields_are_ignored() -> None:
    stream = b": hello\n\nevent: ping\nid: 1\nretry: 5\n\n: x\ndata: a\n: y\n\ndatax: no\n\n"
    assert events(stream) == ["a"]


@pytest.mark.parametrize(
    ("piece", "read"),
    [
        (b"event: x\ndata: a\n\n", ["a"]),
        (b"event: x\r\ndata: a\r\n\r\n", ["a"]),
        (b"event: x\ndata: a\ndata: b\n\n", ["a\nb"]),
        (b"event: x\ndata: a\n\ndata: b\n\n", ["a", "b"]),
        (b"event: data: x\n\n", []),
        (b"event: x\n\ndata: a\n\n", ["a"]),
        (b"event: x\ndata: a\n", ["a"]),
        (b"event: x\ndata: a\nx", ["a"]),
        (b"event: x\rdata: a\n\n", ["a"]),
        (b"data: a\rdata: b\n\n", ["a\nb"]),
        (b"event: x\ndata: a\rdata: b\n\n", ["a\nb"]),
        (b"data: a\nx", ["a"]),
        (b"data: \n\n", [""]),
    ],
)
def test_piece_that_looks_like_one_event_is_read_normally(piece: bytes, read: list[str]) -> None:
    assert events(b": begun\n\n", piece) == read
    assert events(b": begun\n\n", *(piece[i : i + 1] for i in range(len(piece)))) == read


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_line_ends_of_every_kind_work_when_split(end: bytes) -> None:
    stream = b"data: a\n\n: c\n\ndata: b\ndata: c\n\n".replace(b"\n", end)
    assert events(stream) == ["a", "b\nc"]
    assert events(*(stream[i : i + 1] for i in range(len(stream)))) == ["a", "b\nc"]


def test_byte_order_mark_dropped_only_at_start() -> None:
    mark = "\ufeff".encode()
    assert events(mark + b"data: a\n\ndata: " + mark + b"\n\n") == ["a", "\ufeff"]
    assert events(mark[:1], mark[1:] + b"data: a", b"\n\n") == ["a"]


def test_split_utf8_is_joined_and_broken_utf8_replaced() -> None:
    data = "data: 🦞 é\n\n".encode()
    for cut in range(len(data)):
        assert events(data[:cut], data[cut:]) == ["🦞 é"]
    assert events(b"data: \xff\xfe!\n\n") == ["\ufffd\ufffd!"]


def test_unfinished_event_is_returned_at_end() -> None:
    assert events(b"data: [DONE]") == ["[DONE]"]
    assert events(b"data: a\n") == ["a"]


def test_llama_cpp_error_field_is_read_as_error() -> None:
    assert events(b'error: {"code":500}\n\n') == ['{"error": {"code":500}}']


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
def test_bare_json_error_over_lines_is_read_as_event(end: bytes) -> None:
    failure = b'[{\n  "error": {\n    "code": 500\n  }\n}\n]'
    for bare in (failure, failure[1:-2]):
        stream = (b"data: a\n\n" + bare).replace(b"\n", end or b"\n") + end
        want = ["a", bare.decode()]
        assert events(stream) == want
        assert events(*(stream[i : i + 1] for i in range(len(stream)))) == want
    assert events(b" x\n}\n\nid: {\n\n") == []


@pytest.mark.parametrize("piece", [b"x" * 7, b"data: xxxx\n"])
def test_endless_event_is_refused_and_released(piece: bytes) -> None:
    reader = EventReader(max_bytes=1000)
    with pytest.raises(EventTooLongError, match="1000 bytes"):
        deque(map(reader.feed, repeat(piece, 1000)))
    assert len(reader._rest) == 0
    assert reader._data == []


def test_many_short_events_never_reach_limit() -> None:
    reader = EventReader(max_bytes=20)
    assert sum(len(reader.feed(b"data: 0123456789\n\n")) for _ in range(100)) == 100


lines = st.sampled_from(
    [b"", b"data: a", b"data:b", b": c", b"event: e", b"data: \xc3\xa9", b"data", b"data: ", b"x"]
)


@given(
    st.lists(st.tuples(lines, st.sampled_from([b"\n", b"\r\n", b"\r"]))),
    st.lists(st.integers(0, 200)),
)
def test_any_stream_in_any_split_matches_sdk(
    stream: list[tuple[bytes, bytes]], cuts: list[int]
) -> None:
    data = b"".join(line + end for line, end in stream) + b"\n\n"
    edges = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    pieces = [data[a:b] for a, b in pairwise(edges)]
    # The SDK also gives events that hold no data; those say nothing.
    theirs = [event.data for event in SSEDecoder().iter_bytes(iter([data]))]
    ours = events(*pieces)
    assert [event for event in ours if event] == [event for event in theirs if event]
