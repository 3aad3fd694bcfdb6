"""A window of lines: the right ones, in bounded memory."""

import io
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homarus.core.errors import ToolError
from homarus.tools.line_window import read_window

pieces = st.sampled_from([b"\n", b"a", b"bc", b"\r\n", b"d" * 7])


@given(
    data=st.lists(pieces, max_size=30).map(b"".join),
    offset=st.integers(1, 12),
    max_lines=st.integers(1, 12),
    max_bytes=st.integers(1, 40),
)
def test_read_window_is_slice_of_lines_that_fits(
    data: bytes, offset: int, max_lines: int, max_bytes: int
) -> None:
    lines = io.BytesIO(data).readlines()
    rest = lines[offset - 1 :]
    if offset > 1 and not rest:
        with pytest.raises(ToolError, match=f"the file has {len(lines)} lines"):
            read_window(io.BytesIO(data), offset, max_lines, max_bytes)
        return
    got = read_window(io.BytesIO(data), offset, max_lines, max_bytes)
    if got.cut:
        assert len(rest[0]) > max_bytes
        assert (got.data, got.lines) == (rest[0][:max_bytes], 1)
    else:
        assert got.data == b"".join(rest[: got.lines])
        assert len(got.data) <= max_bytes and got.lines <= max_lines
        full = rest[: got.lines + 1]
        assert got.lines in (max_lines, len(rest)) or len(b"".join(full)) > max_bytes
    assert got.more == len(rest) - got.lines and got.counted


def test_read_window_huge_file_uses_bounded_memory(tmp_path: Path) -> None:
    path = tmp_path / "big"
    with path.open("wb") as file:
        for _ in range(64):
            file.write(b"x" * 1_000_000)
        file.write(b"\nlast\n")
    tracemalloc.start()
    with path.open("rb") as file:
        first = read_window(file, 1, 10, 1000)
    with path.open("rb") as file:
        second = read_window(file, 2, 10, 1000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (first.cut, first.more, second.data) == (True, 1, b"last\n")
    assert peak < 8_000_000
