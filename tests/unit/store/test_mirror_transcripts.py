"""Transcript files: written behind, taken in when others wrote, repaired when torn."""

import errno
import json
import logging
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from homarus.core.message import Json
from homarus.store.base import SessionRecord, TranscriptEntry, TranscriptHeader
from homarus.store.sqlite import SqliteStore, open_store

SAMPLES = Path(__file__).parents[2] / "data/samples"
SAMPLE_ID = "8136150e-1a5d-4101-acfa-93b2c4a7b496"
KEY = "agent:main:cap-tool"


@asynccontextmanager
async def with_store(state: Path) -> AsyncIterator[SqliteStore]:
    async with open_store(state) as store:
        yield store


def home(state: Path) -> Path:
    return state / "agents/main/sessions"


def entry(entry_id: str, parent: str | None = None, text: str = "hi") -> TranscriptEntry:
    message = {"role": "user", "content": text, "timestamp": 7}
    return TranscriptEntry(entry_id, parent, "message", 1794724639496, {"message": message})


async def write(store: SqliteStore, *entries: TranscriptEntry, session_id: str = "s1") -> None:
    async with store.transaction() as transaction:
        transaction.open_transcript(TranscriptHeader(session_id, "main", 1794724639000, "/w"))
        transaction.put_session(SessionRecord("agent:main:main", "main", session_id, 5))
        transaction.append(session_id, *entries)
    await store.flush()


def foreign(entry_id: str, parent: str | None, **more: Json) -> str:
    at = "2026-11-15T06:37:20.000Z"
    data = {"type": "message", "id": entry_id, "parentId": parent, "timestamp": at, **more}
    return json.dumps(data) + "\n"


def put_sample(state: Path, data: bytes | None = None) -> Path:
    """The original's folder: sessions.json and one transcript."""
    home(state).mkdir(parents=True)
    shutil.copy(SAMPLES / "sessions.json", home(state) / "sessions.json")
    file = home(state) / f"{SAMPLE_ID}.jsonl"
    file.write_bytes((SAMPLES / "transcript-tool.jsonl").read_bytes() if data is None else data)
    return file


async def ids(store: SqliteStore, session_id: str = "s1") -> list[str]:
    return [one.id for one in await store.entries(session_id)]


async def test_transcript_file_is_written_in_openclaws_format(tmp_path: Path) -> None:
    async with with_store(tmp_path) as store:
        await write(store, entry("a", text="héllo"), entry("b", "a"))
    assert (home(tmp_path) / "s1.jsonl").read_text() == (
        '{"type":"session","version":3,"id":"s1","timestamp":"2026-11-15T06:37:19.000Z","cwd":"/w"}\n'
        '{"type":"message","id":"a","parentId":null,"timestamp":"2026-11-15T06:37:19.496Z",'
        '"message":{"role":"user","content":"héllo","timestamp":7}}\n'
        '{"type":"message","id":"b","parentId":"a","timestamp":"2026-11-15T06:37:19.496Z",'
        '"message":{"role":"user","content":"hi","timestamp":7}}\n'
    )


async def test_transcript_file_entries_are_appended_as_added_and_at_close(tmp_path: Path) -> None:
    async with with_store(tmp_path) as store:
        await write(store, entry("a"))
        await write(store, entry("b", "a"))
        async with store.transaction() as transaction:
            transaction.append("s1", entry("c", "b"))
    lines = (home(tmp_path) / "s1.jsonl").read_text().splitlines()
    assert [json.loads(line)["id"] for line in lines] == ["s1", "a", "b", "c"]


async def test_transcript_of_openclaw_is_continued_and_keeps_first_bytes(tmp_path: Path) -> None:
    file = put_sample(tmp_path)
    before = file.read_bytes()
    async with with_store(tmp_path) as store:
        record = await store.session(KEY)
        assert record is not None and record.session_id == SAMPLE_ID
        assert record.data["skillsSnapshot"]["version"] == 0
        found = await store.entries(SAMPLE_ID)
        assert len(found) == before.count(b"\n") - 1
        leaf = await store.leaf(SAMPLE_ID)
        assert leaf == found[-1].id == "0d0682d1"
        header = await store.header(SAMPLE_ID)
        assert header is not None and header.cwd == "/home/user/.openclaw/workspace"
        async with store.transaction() as transaction:
            transaction.append(SAMPLE_ID, entry("99999999", leaf))
    after = file.read_bytes()
    assert after.startswith(before)
    assert json.loads(after[len(before) :])["parentId"] == "0d0682d1"
    assert not list(home(tmp_path).glob("*.corrupt"))


async def test_transcript_file_unchanged_is_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_sample(tmp_path)
    async with with_store(tmp_path) as store:
        await store.session(KEY)

    def refuse(*_: object) -> None:
        raise AssertionError("read again")

    monkeypatch.setattr("homarus.store.transcript_file.scan_transcript", refuse)
    async with with_store(tmp_path) as store:
        assert await store.session(KEY)
        assert len(await store.entries(SAMPLE_ID)) == 11


async def test_transcript_file_foreign_append_is_imported(tmp_path: Path) -> None:
    async with with_store(tmp_path) as store:
        await write(store, entry("a"))
        before = await store.session("agent:main:main")
        with (home(tmp_path) / "s1.jsonl").open("a") as file:
            file.write(foreign("x", "a") + foreign("y", "x", extra=1))
        after = await store.session("agent:main:main")
        assert before is not None and after is not None and after.version > before.version
        assert await ids(store) == ["a", "x", "y"]
        assert await store.leaf("s1") == "y"
        await write(store, entry("b", "y"))
    lines = (home(tmp_path) / "s1.jsonl").read_text().splitlines()
    assert [json.loads(line)["id"] for line in lines] == ["s1", "a", "x", "y", "b"]
    assert json.loads(lines[3])["extra"] == 1


async def test_transcript_file_own_unwritten_entries_follow_foreign_ones(tmp_path: Path) -> None:
    async with with_store(tmp_path) as store:
        await write(store, entry("a"))
        with (home(tmp_path) / "s1.jsonl").open("a") as file:
            file.write(foreign("x", "a"))
        async with store.transaction() as transaction:
            transaction.append("s1", entry("b", "a"))
        assert await ids(store) == ["a", "b", "x"]
        assert await store.leaf("s1") == "b"
    lines = (home(tmp_path) / "s1.jsonl").read_text().splitlines()
    assert [json.loads(line)["id"] for line in lines] == ["s1", "a", "x", "b"]


async def test_transcript_file_edited_line_is_imported(tmp_path: Path) -> None:
    async with with_store(tmp_path) as store:
        await write(store, entry("a", text="my password is hunter2"), entry("b", "a"))
        file = home(tmp_path) / "s1.jsonl"
        file.write_text(file.read_text().replace("hunter2", "*******"))
        found = await store.entries("s1")
        assert found[0].data["message"]["content"] == "my password is *******"
        assert [one.id for one in found] == ["a", "b"]
        assert await store.leaf("s1") == "b"
    assert "hunter2" not in (home(tmp_path) / "s1.jsonl").read_text()


async def test_transcript_file_missing_is_written_again(tmp_path: Path) -> None:
    async with with_store(tmp_path) as store:
        await write(store, entry("a"), entry("b", "a"))
        file = home(tmp_path) / "s1.jsonl"
        before = file.read_bytes()
        file.unlink()
        assert await ids(store) == ["a", "b"]
        await store.flush()
        assert file.read_bytes() == before


@pytest.mark.parametrize("lost", [1, 2, *range(20, 500, 37)])
async def test_transcript_file_truncated_gets_its_end_back(tmp_path: Path, lost: int) -> None:
    file = home(tmp_path) / "s1.jsonl"
    async with with_store(tmp_path) as store:
        await write(store, entry("a"), entry("b", "a"), entry("c", "b"), entry("d", "c"))
    os.truncate(file, file.stat().st_size - lost)
    async with with_store(tmp_path) as store:
        assert await ids(store) == ["a", "b", "c", "d"]
        assert await store.leaf("s1") == "d"
    seen = []
    for line in file.read_bytes().splitlines():
        try:
            seen.append(json.loads(line)["id"])
        except ValueError:
            continue
    assert seen == ["s1", "a", "b", "c", "d"]


TOOL = (SAMPLES / "transcript-tool.jsonl").read_bytes()
LAST_THREE = sum(len(line) for line in TOOL.splitlines(keepends=True)[-3:])


@pytest.mark.parametrize("lost", [1, 2, *range(40, LAST_THREE, 41), LAST_THREE])
async def test_transcript_file_cut_in_last_three_lines_opens(tmp_path: Path, lost: int) -> None:
    data = TOOL[:-lost]
    whole = [json.loads(line)["id"] for line in TOOL.splitlines()[1:]]
    torn = data.rpartition(b"\n")[2] if lost > 1 else b""  # a missing newline costs nothing
    kept = whole[: data.count(b"\n") - 1 + (lost == 1)]
    file = put_sample(tmp_path, data)
    aside = file.with_name(file.name + ".corrupt")
    async with with_store(tmp_path) as store:
        assert await store.session(KEY)
        assert await ids(store, SAMPLE_ID) == kept
        assert sum(repair.bad for repair in store.repairs) == bool(torn)
        assert file.read_bytes() == data  # reading changes nothing
        async with store.transaction() as transaction:
            transaction.append(SAMPLE_ID, entry("99999999", kept[-1]))
    assert aside.exists() == bool(torn)
    assert not torn or aside.read_bytes() == torn + b"\n"
    after = file.read_bytes()
    assert after.startswith(data)
    assert json.loads(after.splitlines()[-1])["id"] == "99999999"
    assert len(after.splitlines()) == len(kept) + 2 + bool(torn)
    async with with_store(tmp_path) as store:
        assert await ids(store, SAMPLE_ID) == [*kept, "99999999"]
        assert store.repairs == ()
    assert not torn or aside.read_bytes() == torn + b"\n"


async def test_transcript_file_bad_lines_are_quarantined_and_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = (SAMPLES / "transcript-tool.jsonl").read_bytes().splitlines(keepends=True)
    bad = [b"not json\n", b"\xff\xfe\n", b'{"type":"message","id":"q","x":"\0"}\n']
    file = put_sample(tmp_path, b"".join([*data[:5], *bad, *data[5:]]))
    aside = file.with_name(file.name + ".corrupt")

    async def body(store: SqliteStore) -> None:
        assert len(await ids(store, SAMPLE_ID)) == 11
        (repair,) = store.repairs
        assert (repair.path, repair.bad, repair.kept) == (file, 3, 11)

    with caplog.at_level(logging.WARNING):
        async with with_store(tmp_path) as store:
            await body(store)
    assert len([rec for rec in caplog.records if "unreadable" in rec.getMessage()]) == 1
    assert aside.read_bytes() == b"".join(bad)
    async with with_store(tmp_path) as store:
        with file.open("a") as more:
            more.write(foreign("x", None) + "also bad\n")
        assert len(await ids(store, SAMPLE_ID)) == 12
        assert [repair.bad for repair in store.repairs] == [1]
    assert aside.read_bytes() == b"".join(bad) + b"also bad\n"


async def test_transcript_file_partial_foreign_line_is_read_when_complete(
    tmp_path: Path,
) -> None:
    async with with_store(tmp_path) as store:
        await write(store, entry("a"))
        line = foreign("x", "a")
        with (home(tmp_path) / "s1.jsonl").open("a") as file:
            file.write(line[:20])
            file.flush()
            assert await ids(store) == ["a"]
            file.write(line[20:])
        assert await ids(store) == ["a", "x"]


async def test_transcript_file_short_write_is_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real = os.write

    def full(fd: int, data: bytes) -> int:
        if len(data) > 100:
            return real(fd, data[:60])
        raise OSError(errno.ENOSPC, "No space left on device")

    async with with_store(tmp_path) as store:
        await write(store, entry("a"))
        file = home(tmp_path) / "s1.jsonl"
        before = file.read_bytes()
        monkeypatch.setattr(os, "write", full)
        await write(store, entry("b", "a"))
        monkeypatch.setattr(os, "write", real)
        assert file.read_bytes() == before  # no half line stays
        assert "No space left" in caplog.text
        await store.flush()
    lines = (home(tmp_path) / "s1.jsonl").read_text().splitlines()
    assert [json.loads(line)["id"] for line in lines] == ["s1", "a", "b"]


async def test_transcript_file_own_half_line_after_crash_is_completed(tmp_path: Path) -> None:
    file = home(tmp_path) / "s1.jsonl"
    async with with_store(tmp_path) as store:
        await write(store, entry("a"))
    first = file.read_bytes()

    shutil.copytree(tmp_path, tmp_path / "copy")
    async with with_store(tmp_path / "copy") as store:
        await write(store, entry("b", "a"), entry("c", "b"))
    whole = (home(tmp_path / "copy") / "s1.jsonl").read_bytes()
    async with with_store(tmp_path) as store:
        async with store.transaction() as transaction:
            transaction.append("s1", entry("b", "a"), entry("c", "b"))
        file.write_bytes(whole[: len(first) + 40])  # what a killed process left there
        assert await ids(store) == ["a", "b", "c"]
    assert file.read_bytes() == whole
    assert not file.with_name(file.name + ".corrupt").exists()


async def test_transcript_file_link_is_neither_read_nor_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    secret = tmp_path / "secret"
    secret.write_text(foreign("x", None))
    home(tmp_path).mkdir(parents=True)
    (home(tmp_path) / "s1.jsonl").symlink_to(secret)
    async with with_store(tmp_path) as store:
        await write(store, entry("a"))
        assert await ids(store) == ["a"]
    assert secret.read_text() == foreign("x", None)
    assert "is behind" in caplog.text


async def test_transcript_file_pipe_does_not_hang(tmp_path: Path) -> None:
    home(tmp_path).mkdir(parents=True)
    os.mkfifo(home(tmp_path) / "s1.jsonl")
    async with with_store(tmp_path) as store:
        await write(store, entry("a"))
        assert await ids(store) == ["a"]


async def test_session_file_outside_sessions_directory_is_not_touched(tmp_path: Path) -> None:
    outside = tmp_path / "outside.jsonl"
    outside.write_text("mine\n")
    home(tmp_path).mkdir(parents=True)
    (home(tmp_path) / "sessions.json").write_text(
        json.dumps(
            {"agent:main:main": {"sessionId": "s1", "updatedAt": 1, "sessionFile": str(outside)}}
        )
    )
    async with with_store(tmp_path) as store:
        assert await ids(store) == []
        await write(store, entry("a"))
    assert outside.read_text() == "mine\n"
    assert (home(tmp_path) / "s1.jsonl").exists()


async def test_transcript_file_of_topic_is_continued_under_its_name(tmp_path: Path) -> None:
    home(tmp_path).mkdir(parents=True)
    topic = home(tmp_path) / "s1-topic-42.jsonl"
    topic.write_text('{"type":"session","version":3,"id":"s1"}\n' + foreign("a", None))
    (home(tmp_path) / "sessions.json").write_text(
        json.dumps(
            {"agent:main:main": {"sessionId": "s1", "updatedAt": 1, "sessionFile": str(topic)}}
        )
    )
    async with with_store(tmp_path) as store:
        record = await store.session("agent:main:main")
        assert record is not None and await ids(store) == ["a"]
        async with store.transaction() as transaction:
            transaction.put_session(record)
            transaction.append("s1", entry("b", "a"))
    assert len(topic.read_text().splitlines()) == 3
    assert not (home(tmp_path) / "s1.jsonl").exists()
    index = json.loads((home(tmp_path) / "sessions.json").read_text())
    assert index["agent:main:main"]["sessionFile"] == str(topic)


async def test_transcript_archived_file_is_renamed_with_all_entries(tmp_path: Path) -> None:
    async with with_store(tmp_path) as store:
        await write(store, entry("a"))
        async with store.transaction() as transaction:
            transaction.append("s1", entry("b", "a"))
            transaction.archive("s1", "reset", 1794724639496)
        await store.flush()
        assert await ids(store) == ["a", "b"]
        await store.flush()
    names = sorted(path.name for path in home(tmp_path).glob("s1*"))
    assert names == ["s1.jsonl.reset.2026-11-15T06-37-19.496Z"]
    assert len((home(tmp_path) / names[0]).read_text().splitlines()) == 3
    async with with_store(tmp_path) as store:
        assert await ids(store) == ["a", "b"]
    assert sorted(path.name for path in home(tmp_path).glob("s1*")) == names


async def test_transcript_file_bare_role_rows_are_read_and_continued(tmp_path: Path) -> None:
    home(tmp_path).mkdir(parents=True)
    at = "2026-04-15T10:01:00Z"
    rows = [{"role": role, "content": role, "timestamp": at} for role in ("user", "assistant")]
    (home(tmp_path) / "abc123.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (home(tmp_path) / "sessions.json").write_text(
        json.dumps([{"id": "abc123", "name": "refactor", "created_at": at, "updated_at": at}])
    )
    async with with_store(tmp_path) as store:
        (record,) = await store.sessions()
        assert record.key == "agent:main:abc123"
        assert record.data["displayName"] == "refactor"
        found = await store.entries("abc123")
        assert [one.data["message"]["role"] for one in found] == ["user", "assistant"]
        async with store.transaction() as transaction:
            transaction.append("abc123", entry("b", found[-1].id))
    async with with_store(tmp_path) as store:
        assert len(await store.entries("abc123")) == 3


async def test_transcript_of_other_principal_has_no_files(tmp_path: Path) -> None:
    from homarus.core.principal import Principal

    async with with_store(tmp_path) as store:
        async with store.scoped(Principal("acme", "ann")).transaction() as transaction:
            transaction.open_transcript(TranscriptHeader("s1", "main", 5))
            transaction.put_session(SessionRecord("agent:main:main", "main", "s1", 5))
            transaction.append("s1", entry("a"))
        await store.flush()
    assert not home(tmp_path).exists()


async def test_transcript_file_known_state_can_be_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("homarus.store.transcript_file._KEPT_VIEWS", 1)

    async def body(store: SqliteStore) -> None:
        parents: dict[str, str | None] = {"s1": None, "s2": None, "s3": None}
        for number in range(4):
            for name, parent in parents.items():
                async with store.transaction() as transaction:
                    transaction.open_transcript(TranscriptHeader(name, "main", 1794724639000, "/w"))
                    transaction.put_session(SessionRecord(f"agent:main:{name}", "main", name, 5))
                    transaction.append(name, entry(f"{name}-{number}", parent))
                parents[name] = f"{name}-{number}"
                if number % 2:
                    await store.flush()
        for name in parents:
            assert len(await ids(store, name)) == 4

    async with with_store(tmp_path) as store:
        await body(store)
    for name in ("s1", "s2", "s3"):
        lines = (home(tmp_path) / f"{name}.jsonl").read_text().splitlines()
        assert [json.loads(line)["id"] for line in lines] == [
            name, *(f"{name}-{number}" for number in range(4))
        ]  # fmt: skip
