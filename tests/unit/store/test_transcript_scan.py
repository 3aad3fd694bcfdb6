import io
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homarus.core.message import Json
from homarus.store.transcript_scan import TranscriptScan, scan_transcript

SAMPLES = Path(__file__).parents[2] / "data/samples"
HEADER = {"type": "session", "version": 3, "id": "s1", "timestamp": "2026-01-01T00:00:00.000Z"}


def entry(entry_id: object, parent: object = None, **more: Json) -> dict[str, Json]:
    at = "2026-01-01T00:00:01.000Z"
    return {"type": "message", "id": entry_id, "parentId": parent, "timestamp": at, **more}


def lines(*values: Json) -> bytes:
    return b"".join(
        (value if isinstance(value, bytes) else json.dumps(value).encode()) + b"\n"
        for value in values
    )


def read(data: bytes, **limits: int) -> TranscriptScan:
    return scan_transcript(io.BytesIO(data), **limits)


def ids(result: TranscriptScan) -> list[str]:
    return [found.entry.id for found in result.found]


def parents(result: TranscriptScan) -> list[str | None]:
    return [found.entry.parent for found in result.found]


@pytest.mark.parametrize("name", ["transcript-agent", "transcript-chat", "transcript-tool"])
def test_scan_openclaws_files_keeps_every_entry(name: str) -> None:
    data = (SAMPLES / f"{name}.jsonl").read_bytes()
    result = read(data)
    raw = data.decode().splitlines()
    assert result.header == raw[0]
    assert [found.text for found in result.found] == raw[1:]
    assert not result.bad and not result.torn and result.end == len(data)
    assert parents(result) == [None, *ids(result)[:-1]]
    assert all(found.entry.at_ms > 1_794_000_000_000 for found in result.found)


def test_scan_file_cut_in_last_three_lines_keeps_complete_lines() -> None:
    data = (SAMPLES / "transcript-tool.jsonl").read_bytes()
    whole = ids(read(data))
    starts = [0]
    for line in data.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for cut in range(starts[-4], len(data) + 1):
        result = read(data[:cut])
        complete = sum(end <= cut or end == cut + 1 for end in starts[2:])
        assert ids(result) == whole[:complete], cut
        half = data[max(start for start in starts if start <= cut) : cut]
        only_newline_missing = cut + 1 in starts
        if half and not only_newline_missing:
            assert result.bad == [half]
            assert result.end == cut - len(half)
        else:
            assert result.bad == []
            assert result.end == cut
        assert result.torn == bool(half)


@pytest.mark.parametrize(
    "bad",
    [
        b"garbage",
        b'{"type":"message","id":"x"',
        b"\xff\xfe{}",
        b'{"type":"message","id":"x","n":"\xc3("}',
        b"[1,2]",
        b'"text"',
        b"5",
        b"{}",
        b'{"type":5,"id":"x"}',
        b'{"type":"","id":"x"}',
        b"[" * 100_000,
        b'{"a":\0}',
        b'{"type":"message","id":"x","text":"a\0b"}',
        b'{"type":"session","id":"another"}',
    ],
)
def test_scan_bad_line_is_returned_and_rest_is_kept(bad: bytes) -> None:
    result = read(lines(HEADER, entry("a"), bad, entry("b", "a")))
    assert ids(result) == ["a", "b"]
    assert parents(result) == [None, "a"]
    assert result.bad == [bad]


def test_scan_lost_line_is_bridged() -> None:
    result = read(lines(HEADER, entry("a"), b"lost", entry("c", "b"), entry("d", "c")))
    assert parents(result) == [None, "a", "c"]


def test_scan_blank_lines_nuls_and_crlf_are_ignored() -> None:
    one, two = json.dumps(entry("a")).encode(), json.dumps(entry("b", "a")).encode()
    data = b"\xef\xbb\xbf" + lines(HEADER) + b"\n\0\0\0" + one + b"\r\n  \n" + b"\0" * 50 + two
    result = read(data + b"\n" + b"\0" * 100)
    assert ids(result) == ["a", "b"]
    assert result.bad == []


def test_scan_bad_header_is_bad_line() -> None:
    result = read(lines(b'{"type":"session","vers', entry("a")))
    assert (result.header, ids(result), len(result.bad)) == ("", ["a"], 1)


def test_scan_half_surrogates_stay_in_line_and_are_replaced_in_value() -> None:
    raw = (
        b'{"type":"message","id":"a","parentId":null,"message":{"role":"user","content":"\\ud83d"}}'
    )
    result = read(lines(HEADER, raw))
    assert result.found[0].text == raw.decode()
    assert result.found[0].entry.data["message"]["content"] == "\ufffd"


def test_scan_repeated_id_is_bad_line_unless_line_is_same() -> None:
    again = json.dumps(entry("a", None, x=2)).encode()
    result = read(lines(HEADER, entry("a"), entry("a"), again, entry("b", "a")))
    assert ids(result) == ["a", "b"]
    assert result.bad == [again]


def test_scan_cycles_and_missing_parents_are_relinked() -> None:
    result = read(lines(HEADER, entry("a", "c"), entry("b", "b"), entry("c", "b"), entry("d", 7)))
    assert parents(result) == [None, "a", "b", "c"]


def test_scan_second_root_stays_root() -> None:
    assert parents(read(lines(HEADER, entry("a"), entry("b", None)))) == [None, None]


def test_scan_line_of_ten_megabytes_is_read() -> None:
    big = entry("a", None, message={"role": "user", "content": "x" * 10_000_000})
    result = read(lines(HEADER, big, entry("b", "a")))
    assert ids(result) == ["a", "b"]


def test_scan_line_over_limit_is_not_read() -> None:
    big = json.dumps(entry("a", None, x="y" * 5_000)).encode()
    data = lines(HEADER, big, entry("b"))
    result = read(data, max_line_bytes=1_000)
    assert ids(result) == ["b"]
    assert result.bad == [big[:1_000]]
    assert result.end == len(data)


def test_scan_version_1_file_gets_stable_ids() -> None:
    at = "2026-01-01T00:00:01.000Z"
    old = lines(
        {"type": "session", "id": "s1", "timestamp": at, "cwd": "/w"},
        {"type": "message", "timestamp": at, "message": {"role": "user", "content": "one"}},
        {"type": "message", "timestamp": at, "message": {"role": "user", "content": "one"}},
        {"type": "compaction", "timestamp": at, "summary": "s", "firstKeptEntryIndex": 2},
    )
    result = read(old)
    assert len(set(ids(result))) == 3
    assert all(len(entry_id) == 8 for entry_id in ids(result))
    assert parents(result) == [None, *ids(result)[:-1]]
    assert result.found[2].entry.data == {"summary": "s", "firstKeptEntryId": ids(result)[1]}
    assert json.loads(result.found[0].text)["id"] == ids(result)[0]
    longer = read(old + lines(entry("new", ids(result)[-1])))
    assert ids(longer) == [*ids(result), "new"]


def test_scan_version_2_header_is_accepted() -> None:
    assert read(lines({**HEADER, "version": 2}, entry("a"))).header


def test_scan_bare_role_rows_become_messages() -> None:
    at = "2026-04-15T10:01:00Z"
    rows = [
        {"role": "user", "content": "How?", "timestamp": at},
        {"role": "tool", "name": "read_file", "input": {"path": "/x"}, "timestamp": at},
        {"role": "tool_result", "name": "read_file", "content": "text", "timestamp": at},
        {"role": "assistant", "content": {"parts": 1}, "timestamp": at},
    ]
    result = read(lines(*rows))
    messages = [found.entry.data["message"] for found in result.found]
    assert [message["role"] for message in messages] == [
        "user", "assistant", "toolResult", "assistant",
    ]  # fmt: skip
    assert messages[0]["content"] == [{"type": "text", "text": "How?"}]
    call = messages[1]["content"][0]
    assert (call["name"], call["arguments"]) == ("read_file", {"path": "/x"})
    assert messages[2]["toolCallId"] == call["id"]
    assert messages[3]["content"] == [{"type": "text", "text": '{"parts":1}'}]
    assert all(found.entry.at_ms == 1776247260000 for found in result.found)
    assert parents(result) == [None, *ids(result)[:-1]]
    assert ids(read(lines(*rows))) == ids(result)


@given(st.lists(st.binary(max_size=30) | st.just(json.dumps(entry("a")).encode()), max_size=6))
def test_scan_any_bytes_never_raises(pieces: list[bytes]) -> None:
    data = b"\n".join(pieces)
    result = read(data)
    assert 0 <= result.end <= len(data)


@given(st.recursive(
    st.none() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(["type", "id", "parentId", "role", "timestamp", "message", "name"]), inner
    ),
))  # fmt: skip
def test_scan_any_json_never_raises(value: Json) -> None:
    read(lines(HEADER, value, entry("a")))
