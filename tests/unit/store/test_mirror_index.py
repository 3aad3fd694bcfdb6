"""sessions.json: written behind, merged when others wrote."""

import asyncio
import json
import logging
import os
import shutil
import stat
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from homarus.core.message import Json
from homarus.store.base import SessionRecord
from homarus.store.sqlite import SqliteStore, open_store

SAMPLES = Path(__file__).parents[2] / "data/samples"


@asynccontextmanager
async def with_store(state: Path) -> AsyncIterator[SqliteStore]:
    async with open_store(state) as store:
        yield store


def index(state: Path, agent: str = "main") -> Path:
    return state / "agents" / agent / "sessions/sessions.json"


def read(state: Path, agent: str = "main") -> dict[str, dict[str, Json]]:
    found: dict[str, dict[str, Json]] = json.loads(index(state, agent).read_text())
    return found


def theirs(state: Path, value: Json, agent: str = "main") -> None:
    index(state, agent).parent.mkdir(parents=True, exist_ok=True)
    index(state, agent).write_text(value if isinstance(value, str) else json.dumps(value))


async def put(store: SqliteStore, key: str, at_ms: int = 5, **data: Json) -> None:
    agent = key.split(":")[1]
    async with store.transaction() as transaction:
        transaction.put_session(SessionRecord(key, agent, f"id-{key.split(':')[2]}", at_ms, data))


async def fields(store: SqliteStore, key: str, name: str) -> Json:
    record = await store.session(key)
    return record.data.get(name) if record else "gone"


async def test_index_file_written_is_openclaws_map_pretty_and_private(tmp_path: Path) -> None:
    async with with_store(tmp_path) as store:
        await put(store, "agent:main:b", 7, label="é", nested={"a": [1]})
        await put(store, "agent:main:a", 8)
    file = str(index(tmp_path).parent)
    expected = {
        "agent:main:b": {
            "label": "é",
            "nested": {"a": [1]},
            "sessionId": "id-b",
            "updatedAt": 7,
            "sessionFile": f"{file}/id-b.jsonl",
        },
        "agent:main:a": {
            "sessionId": "id-a",
            "updatedAt": 8,
            "sessionFile": f"{file}/id-a.jsonl",
        },
    }
    assert index(tmp_path).read_text() == json.dumps(expected, indent=2, ensure_ascii=False) + "\n"
    assert stat.S_IMODE(index(tmp_path).stat().st_mode) == 0o600
    assert [path.name for path in index(tmp_path).parent.iterdir()] == ["sessions.json"]


async def test_index_file_of_openclaw_is_imported_and_keeps_every_field(
    tmp_path: Path,
) -> None:
    index(tmp_path).parent.mkdir(parents=True)
    shutil.copy(SAMPLES / "sessions.json", index(tmp_path))
    before = read(tmp_path)
    async with with_store(tmp_path) as store:
        found = {record.key: record for record in await store.sessions()}
        assert {key: dict(record.data) for key, record in found.items()} == before
        chat = found["agent:main:cap-chat"]
        assert chat.updated_ms == 1794724647390
        async with store.transaction() as transaction:
            transaction.put_session(SessionRecord(chat.key, "main", chat.session_id, 1794724647999,
                                           {**chat.data, "label": "new"}))  # fmt: skip
    after = read(tmp_path)
    assert list(after) == list(before)
    changed = after["agent:main:cap-chat"]
    assert changed.pop("label") == "new" and changed.pop("updatedAt") == 1794724647999
    # The sample's own folder is not ours: its file now lies in this state directory.
    assert changed.pop("sessionFile").startswith(str(tmp_path))
    for name in ("label", "updatedAt", "sessionFile"):
        del before["agent:main:cap-chat"][name]
    assert after == before


async def test_index_file_only_read_is_not_rewritten(tmp_path: Path) -> None:
    theirs(tmp_path, '{"agent:main:x":{"sessionId":"x","updatedAt":3}}')
    before = index(tmp_path).stat()
    async with with_store(tmp_path) as store:
        assert await fields(store, "agent:main:x", "updatedAt") == 3
    after = index(tmp_path).stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


async def test_index_import_takes_new_and_newer_entries_only(tmp_path: Path) -> None:
    async with with_store(tmp_path) as store:
        for name in ("older", "newer", "same", "edited"):
            await put(store, f"agent:main:{name}", 100, label="ours")
        await store.flush()
        value = read(tmp_path)
        value["agent:main:older"] |= {"updatedAt": 99, "label": "theirs"}
        value["agent:main:newer"] |= {"updatedAt": 101, "label": "theirs", "odd": {"a": 1}}
        value["agent:main:edited"] |= {"label": "theirs"}
        value["agent:main:new"] = {"sessionId": "n", "updatedAt": 1, "label": "theirs"}
        theirs(tmp_path, value)
        for name, expected in (
            ("older", "ours"),
            ("newer", "theirs"),
            ("same", "ours"),
            ("edited", "theirs"),
            ("new", "theirs"),
        ):
            assert await fields(store, f"agent:main:{name}", "label") == expected, name
        assert await fields(store, "agent:main:newer", "odd") == {"a": 1}


async def test_index_import_tie_keeps_unwritten_own_entry(tmp_path: Path) -> None:
    async with with_store(tmp_path) as store:
        await put(store, "agent:main:a", 100, label="old")
        await store.flush()
        await put(store, "agent:main:a", 100, label="ours")
        value = {"agent:main:a": {"sessionId": "id-a", "updatedAt": 100, "label": "theirs"}}
        theirs(tmp_path, value)
        assert await fields(store, "agent:main:a", "label") == "ours"
    assert read(tmp_path)["agent:main:a"]["label"] == "ours"


async def test_index_import_removed_entry_is_deleted_unless_changed(tmp_path: Path) -> None:
    async with with_store(tmp_path) as store:
        for name in ("a", "b", "c"):
            await put(store, f"agent:main:{name}")
        await store.flush()
        await put(store, "agent:main:b", 6)  # newer than what the file has
        await put(store, "agent:main:d")  # the file never had it
        theirs(tmp_path, {"agent:main:c": {"sessionId": "id-c", "updatedAt": 5}})
        assert [await fields(store, f"agent:main:{name}", "updatedAt") for name in "abcd"] == [
            "gone", 6, 5, 5,
        ]  # fmt: skip
    assert sorted(read(tmp_path)) == ["agent:main:b", "agent:main:c", "agent:main:d"]


async def test_index_file_missing_is_written_again(tmp_path: Path) -> None:
    async with with_store(tmp_path) as store:
        await put(store, "agent:main:a")
        await store.flush()
        index(tmp_path).unlink()
        assert await fields(store, "agent:main:a", "updatedAt") == 5
    assert list(read(tmp_path)) == ["agent:main:a"]


async def test_index_file_edited_between_runs_is_imported(tmp_path: Path) -> None:
    async with with_store(tmp_path) as store:
        await put(store, "agent:main:a")
        await put(store, "agent:main:b")
    theirs(tmp_path, {"agent:main:b": {**read(tmp_path)["agent:main:b"], "label": "theirs"}})
    async with with_store(tmp_path) as store:
        assert [record.key for record in await store.sessions()] == ["agent:main:b"]
        assert await fields(store, "agent:main:b", "label") == "theirs"


async def test_index_file_deleted_session_is_removed_and_stays_away(tmp_path: Path) -> None:
    async with with_store(tmp_path) as store:
        await put(store, "agent:main:a")
        await put(store, "agent:main:b")
        await store.flush()
        async with store.transaction() as transaction:
            transaction.delete_session("agent:main:a")
        old = read(tmp_path)
        theirs(tmp_path, {**old, "agent:main:c": {"sessionId": "c", "updatedAt": 1}})
        assert await store.session("agent:main:a") is None
    assert sorted(read(tmp_path)) == ["agent:main:b", "agent:main:c"]
    async with with_store(tmp_path) as store:
        keys = {record.key for record in await store.sessions()}
        assert keys == {"agent:main:b", "agent:main:c"}


async def test_index_file_unwritten_after_crash_is_written_at_start(tmp_path: Path) -> None:
    async def first(store: SqliteStore) -> None:
        await put(store, "agent:main:a")
        await put(store, "agent:main:b")

    async with with_store(tmp_path) as store:
        await first(store)

    async def unwritten() -> None:  # commits that no file was told of
        async with open_store(tmp_path, mirror=False) as store:
            await put(store, "agent:main:c")
            async with store.transaction() as transaction:
                transaction.delete_session("agent:main:a")

    await unwritten()
    assert sorted(read(tmp_path)) == ["agent:main:a", "agent:main:b"]

    async def again(store: SqliteStore) -> None:
        await store.flush()
        assert sorted(read(tmp_path)) == ["agent:main:b", "agent:main:c"]

    async with with_store(tmp_path) as store:
        await again(store)


@pytest.mark.parametrize("broken", ["{", "[", "", "null", "5", '{"a": {"sessionId"', "\0\0\0"])
async def test_index_file_broken_keeps_sessions_and_a_copy(
    tmp_path: Path, broken: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        async with with_store(tmp_path) as store:
            await put(store, "agent:main:a")
            await store.flush()
            theirs(tmp_path, broken)
            assert await fields(store, "agent:main:a", "updatedAt") == 5
    assert list(read(tmp_path)) == ["agent:main:a"]
    copies = list(index(tmp_path).parent.glob("sessions.json.corrupt.*"))
    if broken.strip("\0"):
        assert [copy.read_text() for copy in copies] == [broken]
        assert "not readable" in caplog.text
    else:
        assert not copies


async def test_index_file_broken_and_foreign_is_not_touched(tmp_path: Path) -> None:
    theirs(tmp_path, "{broken")

    async def body(store: SqliteStore) -> None:
        assert list(await store.sessions()) == []
        assert list(await store.sessions()) == []

    async with with_store(tmp_path) as store:
        await body(store)
    async with with_store(tmp_path) as store:
        await body(store)
    assert index(tmp_path).read_text() == "{broken"
    assert len(list(index(tmp_path).parent.glob("*.corrupt.*"))) == 1


async def test_index_file_with_comments_and_trailing_commas_is_read(tmp_path: Path) -> None:
    theirs(tmp_path, "{ // mine\n 'agent:main:x': {sessionId: 'x', updatedAt: 3,}, }")
    async with with_store(tmp_path) as store:
        assert await fields(store, "agent:main:x", "updatedAt") == 3


async def test_index_import_odd_entries_are_kept_or_copied(tmp_path: Path) -> None:
    odd: dict[str, Json] = {
        "agent:main:text": "text",
        "agent:main:none": {},
        "agent:main:evil": {"sessionId": "../../etc/passwd", "updatedAt": "soon"},
        "agent:main:big": {"sessionId": "x", "updatedAt": 1e300},
        "agent:main:iso": {"sessionId": "y", "updatedAt": "2026-04-15T10:01:00Z"},
        "agent:main:half": {"sessionId": "z", "updatedAt": 1, "label": "\ud800"},
    }
    theirs(tmp_path, odd)
    async with with_store(tmp_path) as store:
        found = {record.key: record for record in await store.sessions()}
        assert set(found) == set(odd) - {"agent:main:text"}
        assert found["agent:main:evil"].session_id == ""
        assert found["agent:main:iso"].updated_ms == 1776247260000
        assert found["agent:main:half"].data["label"] == "\ufffd"
        await put(store, "agent:main:new")
    assert read(tmp_path)["agent:main:evil"]["sessionId"] == "../../etc/passwd"
    (copy,) = index(tmp_path).parent.glob("sessions.json.corrupt.*")
    assert json.loads(copy.read_text())["agent:main:text"] == "text"


async def test_index_file_is_separate_for_each_agent(tmp_path: Path) -> None:
    theirs(tmp_path, {"agent:ops:x": {"sessionId": "x", "updatedAt": 3}}, "ops")
    async with with_store(tmp_path) as store:
        await put(store, "agent:main:a")
        keys = [record.key for record in await store.sessions(agent="ops")]
        assert keys == ["agent:ops:x"]
    assert list(read(tmp_path)) == ["agent:main:a"]
    assert list(read(tmp_path, "ops")) == ["agent:ops:x"]


async def test_index_file_unwritable_directory_does_not_fail_a_turn(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    async with with_store(tmp_path) as store:
        monkeypatch.setattr(os, "fdopen", refuse)
        await put(store, "agent:main:a")
        await store.flush()
        await store.flush()
        assert await fields(store, "agent:main:a", "updatedAt") == 5
        monkeypatch.undo()
    assert caplog.text.count("Permission denied") == 1
    assert list(read(tmp_path)) == ["agent:main:a"]


async def test_index_file_hundred_sessions_are_written_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes = 0
    real = Path.replace

    def counted(self: Path, target: Path) -> Path:
        nonlocal writes
        writes += 1
        return real(self, target)

    monkeypatch.setattr("homarus.store.file_mirror.INDEX_DELAY_S", 600.0)
    monkeypatch.setattr(Path, "replace", counted)
    async with with_store(tmp_path) as store:
        for n in range(100):
            await put(store, f"agent:main:k{n}")
    assert writes == 1
    assert len(read(tmp_path)) == 100


async def test_index_read_cancelled_keeps_file_thread_working(tmp_path: Path) -> None:
    async with with_store(tmp_path) as store:
        mirror = store._mirror
        assert mirror is not None
        busy = threading.Event()

        def hold() -> None:
            busy.wait(10)

        mirror._ask(hold)
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(store.sessions())
            await asyncio.sleep(0)
            waiting.cancel()
        busy.set()
        await put(store, "agent:main:a")
        assert [record.key for record in await store.sessions()] == ["agent:main:a"]
    assert "agent:main:a" in read(tmp_path)
