import asyncio
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import apsw
import pytest

from homarus.core.errors import CorruptDataError, DiskFullError, StateInUseError, StoreError
from homarus.core.file_lock import open_lock_file, try_lock
from homarus.store import schema
from homarus.store.base import SessionRecord, TranscriptEntry, TranscriptHeader
from homarus.store.lock import lock_holder_pid
from homarus.store.sqlite import check_database, open_store


def record(key: str = "agent:main:main", **data: object) -> SessionRecord:
    return SessionRecord(key, "main", "s1", 5, data)


async def fill(state: Path) -> None:
    async with open_store(state) as store, store.transaction() as transaction:
        transaction.put_session(record(label="kept"))


async def label(state: Path, *, read_only: bool = False) -> object:
    async with open_store(state, read_only=read_only) as store:
        found = await store.session("agent:main:main")
        return found and found.data.get("label")


async def test_store_committed_data_is_there_after_restart(tmp_path: Path) -> None:
    await fill(tmp_path)
    assert await label(tmp_path) == "kept"


async def test_store_files_are_private(tmp_path: Path) -> None:
    state = tmp_path / "new" / "state"
    await fill(state)
    assert stat.S_IMODE(state.stat().st_mode) == 0o700
    for path in state.rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


async def test_store_second_open_raises_with_holder(tmp_path: Path) -> None:
    async with open_store(tmp_path):
        with pytest.raises(StateInUseError, match=f"process {os.getpid()} uses") as caught:
            open_store(tmp_path)
        assert "OPENCLAW_STATE_DIR" in caught.value.fix
    async with open_store(tmp_path):
        pass


async def test_store_lock_is_released_when_process_dies(tmp_path: Path) -> None:
    hold = (
        "import sys, time; from pathlib import Path; from homarus.store.lock import StateLock;"
        "lock = StateLock(Path(sys.argv[1])); print('held', flush=True); time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", hold, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None and child.stdout.readline() == "held\n"
        with pytest.raises(StateInUseError, match=f"process {child.pid} uses"):
            open_store(tmp_path)
        child.kill()
    await fill(tmp_path)


async def test_store_open_waits_for_lock_that_is_held_for_a_moment(tmp_path: Path) -> None:
    (tmp_path / "state.lock").write_text(f"{os.getpid()}\n")  # as a killed process leaves it
    descriptor = open_lock_file(tmp_path / "state.lock")
    assert try_lock(descriptor, is_shared=True)  # as `lock_holder_pid` does
    timer = threading.Timer(0.05, os.close, (descriptor,))
    timer.start()
    await fill(tmp_path)
    timer.join()
    assert lock_holder_pid(tmp_path) == 0 and not (tmp_path / "state.lock").read_text()


async def test_store_read_without_mirror_does_not_take_the_lock(tmp_path: Path) -> None:
    await fill(tmp_path)
    index = next(tmp_path.glob("agents/*/sessions/sessions.json"))
    os.utime(index, ns=(1, 1))  # changed by another program, so that a plain read imports it
    taken = tmp_path / "state.lock"
    taken.unlink()
    async with open_store(tmp_path, mirror=False, read_only=True):
        assert not taken.exists()
    async with open_store(tmp_path, read_only=True):
        assert taken.exists()


async def test_store_killed_process_loses_no_committed_data(tmp_path: Path) -> None:
    write = """
import asyncio, os, signal, sys
from pathlib import Path
from homarus.store.base import TranscriptEntry, TranscriptHeader
from homarus.store.sqlite import open_store
async def main():
    async with open_store(Path(sys.argv[1])) as store:
        async with store.transaction() as transaction:
            transaction.open_transcript(TranscriptHeader("s1", "main", 5, "/w"))
        for n in range(40):
            async with store.transaction() as transaction:
                entry = TranscriptEntry(f"{n:08x}", None, "custom", 5, {"n": n})
                transaction.append("s1", entry)
        os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", write, str(tmp_path)], check=False)
    assert done.returncode == -9
    async with open_store(tmp_path) as store:
        assert [one.data["n"] for one in await store.entries("s1")] == list(range(40))
        await store.flush()
    file = tmp_path / "agents/main/sessions/s1.jsonl"
    assert len(file.read_text().splitlines()) == 41


def test_store_unwritable_directory_raises_with_fix(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="state directory") as caught:
        open_store(tmp_path / "file" / "state")
    assert caught.value.fix


def test_store_link_as_database_or_lock_is_not_followed(tmp_path: Path) -> None:
    for name in ("state.sqlite", "state.lock"):
        state = tmp_path / name.replace(".", "-")
        state.mkdir()
        target = tmp_path / "target"
        target.write_text("mine")
        (state / name).symlink_to(target)
        with pytest.raises(StoreError, match="cannot write"):
            open_store(state)
        assert target.read_text() == "mine"


async def test_store_damaged_database_is_kept_and_replaced(tmp_path: Path) -> None:
    database, garbage = tmp_path / "state.sqlite", b"this is not a database" * 500
    database.write_bytes(garbage)
    with pytest.raises(CorruptDataError, match=r"state\.sqlite is damaged") as caught:
        open_store(tmp_path, read_only=True)
    assert "homarus doctor" in caught.value.fix
    with pytest.raises(CorruptDataError):
        check_database(database)
    await fill(tmp_path)
    assert await label(tmp_path) == "kept"
    check_database(database)
    (kept,) = tmp_path.glob("state.sqlite.damaged-*")
    assert kept.read_bytes() == garbage


def test_store_damaged_page_is_found_by_check_and_by_read(tmp_path: Path) -> None:
    async def many() -> None:
        async with open_store(tmp_path, mirror=False) as store, store.transaction() as transaction:
            transaction.open_transcript(TranscriptHeader("s1", "main", 5))
            transaction.append("s1", *(TranscriptEntry(f"{n:08x}", None, "m", 5, {"x": "y" * 500})
                                for n in range(400)))  # fmt: skip

    asyncio.run(many())
    path = tmp_path / "state.sqlite"
    check_database(path)
    data = bytearray(path.read_bytes())
    data[20_000:60_000] = b"\xaa" * 40_000
    path.write_bytes(data)
    with pytest.raises(CorruptDataError, match="damaged"):
        check_database(path)

    async def read() -> None:
        async with open_store(tmp_path, read_only=True) as store:
            with pytest.raises(CorruptDataError, match="damaged"):
                await store.entries("s1")

    asyncio.run(read())


async def test_store_newer_schema_is_refused(tmp_path: Path) -> None:
    await fill(tmp_path)
    with apsw.Connection(str(tmp_path / "state.sqlite")) as db:
        db.execute("UPDATE meta SET value = 99 WHERE key = 'schema'")
    for read_only in (False, True):
        with pytest.raises(StoreError, match="schema 99, of a newer Homarus") as caught:
            open_store(tmp_path, read_only=read_only)
        assert "upgrade" in caught.value.fix


def test_store_failed_migration_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    db = apsw.Connection(str(path))
    schema.migrate(db, path, ("CREATE TABLE a (x)",))
    bad = ("CREATE TABLE a (x)", "CREATE TABLE b (x); INSERT INTO nowhere VALUES (1)")
    with pytest.raises(apsw.SQLError):
        schema.migrate(db, path, bad)
    tables = {row[0] for row in db.execute("SELECT name FROM sqlite_schema")}
    assert "a" in tables and "b" not in tables
    assert schema.check_version(db, path) == 1
    schema.migrate(db, path, (bad[0], "CREATE TABLE b (x)"))
    assert schema.check_version(db, path, bad) == 2


async def test_store_read_only_takes_no_lock_and_creates_nothing(tmp_path: Path) -> None:
    state = tmp_path / "state"
    async with open_store(state, read_only=True) as empty:
        assert list(await empty.sessions()) == []
        assert await empty.session("agent:main:main") is None
    assert not state.exists()
    async with open_store(state) as store:
        async with store.transaction() as transaction:
            transaction.put_session(record(label="live"))
        async with open_store(state, read_only=True) as beside:
            assert [found.data["label"] for found in await beside.sessions()] == ["live"]
            with pytest.raises(StoreError, match="reading only"):
                async with beside.transaction() as transaction:
                    transaction.put_record("job", "1", {})


async def test_store_empty_file_is_empty_database(tmp_path: Path) -> None:
    (tmp_path / "state.sqlite").touch()
    assert await label(tmp_path, read_only=True) is None
    assert (tmp_path / "state.sqlite").stat().st_size == 0
    assert await label(tmp_path) is None


async def test_store_read_only_without_database_shows_files(tmp_path: Path) -> None:
    home = tmp_path / "agents/main/sessions"
    home.mkdir(parents=True)
    (home / "sessions.json").write_text(
        '{"agent:main:main": {"sessionId": "x1", "updatedAt": 7, "label": "theirs"}}'
    )
    assert await label(tmp_path, read_only=True) == "theirs"


async def test_store_closed_raises(tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        pass
    await store.close()
    with pytest.raises(StoreError, match="closed"):
        await store.record("a", "b")
    with pytest.raises(StoreError, match="closed"):
        async with store.transaction() as transaction:
            transaction.put_record("a", "b", {})
    with pytest.raises(StoreError, match="closed"):
        await store.entries("s1")


async def test_store_full_disk_refuses_writes_and_keeps_data(tmp_path: Path) -> None:
    async with open_store(tmp_path, mirror=False) as store:
        async with store.transaction() as transaction:
            transaction.put_record("a", "1", {"kept": True})
        writer = store._engine.writer
        assert writer is not None
        await writer.run(lambda db: db.execute("PRAGMA max_page_count = 20").fetchall())
        with pytest.raises(DiskFullError):
            async with store.transaction() as transaction:
                transaction.put_record("a", "2", {"x": "y" * 1_000_000})
        await writer.run(lambda db: db.execute("PRAGMA max_page_count = 999999").fetchall())
        async with store.transaction() as transaction:
            transaction.put_record("a", "2", {"x": "y" * 1_000_000})
        assert sorted(await store.records("a")) == ["1", "2"]


async def test_store_invalid_ids_are_refused_before_writing(tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        for bad in (
            SessionRecord("k", "../main", "s1", 5),
            SessionRecord("k", "main", "../s1", 5),
        ):
            with pytest.raises(StoreError, match="not a"):
                async with store.transaction() as transaction:
                    transaction.put_session(bad)
        with pytest.raises(StoreError, match="not a"):
            async with store.transaction() as transaction:
                transaction.open_transcript(TranscriptHeader("../x", "main", 5))


def test_store_tokens_grow_across_restarts(tmp_path: Path) -> None:
    async def token() -> int:
        async with open_store(tmp_path) as store, store.lease("x") as lease:
            return lease.token

    first, second = asyncio.run(token()), asyncio.run(token())
    assert second > first


async def test_store_commit_is_synced_to_disk(tmp_path: Path) -> None:
    def settings(db: apsw.Connection) -> list[object]:
        return [db.execute(f"PRAGMA {name}").get for name in ("journal_mode", "synchronous")]

    async with open_store(tmp_path) as store:
        writer = store._engine.writer
        assert writer is not None
        assert await writer.run(settings) == ["wal", 2]
