"""Rows 19 and 20: torn, damaged or malicious transcript files, one session for each damage."""

import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from homarus.core.message import Json
from homarus.store.sqlite import SqliteStore, open_store

AT = "2026-11-15T06:37:20.000Z"
WHOLE = 6  # entries of an undamaged transcript


def line(value: Mapping[str, Json]) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode() + b"\n"


def transcript(session_id: str) -> list[bytes]:
    """Return a header and WHOLE entries, each following the one before it."""
    lines = [line({"type": "session", "version": 3, "id": session_id, "timestamp": AT, "cwd": "/"})]
    for n in range(WHOLE):
        message = {"role": "user", "content": f"wörd {n}", "timestamp": n}
        parent = f"e{n - 1}" if n else None
        head = {"type": "message", "id": f"e{n}", "parentId": parent, "timestamp": AT}
        lines.append(line({**head, "message": message}))
    return lines


def put(state: Path, files: Mapping[str, bytes]) -> Path:
    """Write a directory as another program leaves it: an index, and one file for each session."""
    folder = state / "agents/main/sessions"
    folder.mkdir(parents=True)
    index = {f"agent:main:{name}": {"sessionId": name, "updatedAt": 5} for name in files}
    (folder / "sessions.json").write_text(json.dumps(index))
    for name, data in files.items():
        (folder / f"{name}.jsonl").write_bytes(data)
    return folder


async def read_all(
    state: Path, names: Sequence[str]
) -> tuple[dict[str, list[str]], dict[str, int]]:
    """Return the ids that each session keeps, and the bad lines that each repair counted."""
    async with open_store(state) as store:
        kept = {name: await ids(store, name) for name in names}
        return kept, {repair.path.stem: repair.bad for repair in store.repairs}


async def ids(store: SqliteStore, name: str) -> list[str]:
    assert await store.session(f"agent:main:{name}") is not None
    return [entry.id for entry in await store.entries(name)]


async def test_row_19_transcript_torn_at_any_byte_of_last_three_lines(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    whole = b"".join(transcript("cut"))
    start = len(b"".join(transcript("cut")[:-3]))
    cuts = {f"cut-{at}": whole[:at].replace(b'"cut"', f'"cut-{at}"'.encode(), 1)
            for at in range(start, len(whole) + 1)}  # fmt: skip
    assert len(cuts) > 300
    folder = put(tmp_path, cuts)
    with caplog.at_level(logging.WARNING):
        kept, repairs = await read_all(tmp_path, list(cuts))
    for name, data in cuts.items():
        lines = data.split(b"\n")
        # A line that only lost its end of line is whole.
        lost = lines[-1] if lines[-1] and not lines[-1].endswith(b"}}") else b""
        count = len([one for one in lines if one]) - 1 - bool(lost)
        assert kept[name] == [f"e{n}" for n in range(count)], name
        aside = folder / f"{name}.jsonl.corrupt"
        assert (repairs.get(name, 0), aside.exists()) == (bool(lost), bool(lost)), name
        if lost:
            assert aside.read_bytes() == lost + b"\n", name
        assert (folder / f"{name}.jsonl").read_bytes().startswith(data), name
    said = [record for record in caplog.records if "1 unreadable line(s)" in record.message]
    assert len(said) == len(repairs) > 280
    assert await read_all(tmp_path, list(cuts)) == (kept, {}), "a second start finds nothing new"


def damaged(name: str, at: int, bad: bytes) -> tuple[str, bytes]:
    lines = transcript(name)
    return name, b"".join([*lines[:at], bad + b"\n", *lines[at + 1 :]])


async def test_row_20_transcript_with_bad_header_nuls_huge_line_or_bytes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    head = {"type": "message", "id": "e2", "parentId": "e1", "timestamp": AT}
    huge = {**head, "message": {"role": "user", "content": "x" * (10 << 20), "timestamp": 2}}
    half = {**head, "message": {"role": "user", "content": "half \ud83d", "timestamp": 2}}
    harms = dict([
        damaged("header", 0, b'{"type":"session","version":'),
        damaged("binary-header", 0, b"\xff\xfe\x00garbage"),
        damaged("nul-line", 3, b"\0" * 4096),
        damaged("nul-head", 3, b"\0" * 512 + transcript("x")[3].rstrip()),
        damaged("huge", 3, line(huge).rstrip()),
        damaged("utf-8", 3, transcript("x")[3].rstrip().replace(b"w\xc3\xb6rd", b"w\xc3rd")),
        damaged("half", 3, json.dumps(half).encode()),
    ])  # fmt: skip
    folder = put(tmp_path, harms)
    with caplog.at_level(logging.WARNING):
        kept, repairs = await read_all(tmp_path, list(harms))
    every = [f"e{n}" for n in range(WHOLE)]
    without = [id_ for id_ in every if id_ != "e2"]
    lost = {"nul-line": without, "utf-8": without}
    assert kept == {name: lost.get(name, every) for name in harms}
    # Padding is no line, and half a character is kept in the line: neither is put aside.
    assert repairs == {"header": 1, "binary-header": 1, "utf-8": 1}
    for name, data in harms.items():
        assert (folder / f"{name}.jsonl").read_bytes() == data, f"{name}: the file is as it was"
        aside = folder / f"{name}.jsonl.corrupt"
        assert aside.exists() == (name in repairs)
    assert sum("1 unreadable line(s)" in record.message for record in caplog.records) == 3
    assert await read_all(tmp_path, list(harms)) == (kept, {}), "a second start finds nothing new"
