"""`subagents/runs.json`: written from the records, and read when another program wrote it."""

import json
from pathlib import Path
from typing import Any

import pytest

from homarus.core.message import Address, Inbound
from homarus.store.sqlite import SqliteStore, open_store
from homarus.store.subagents import (
    KIND,
    SubagentRecord,
    delete_subagent,
    find_subagent,
    list_subagents,
    put_subagent,
)
from homarus.store.subagents_file import decode_run, encode_run, runs_path

PARENT = "agent:main:main"
CHILD = "agent:main:subagent:11111111-aaaa-4bbb-8ccc-222222222222"
OTHER = "agent:main:subagent:33333333-aaaa-4bbb-8ccc-444444444444"


def record(child: str = CHILD, **fields: Any) -> SubagentRecord:
    origin = Inbound("", Address("telegram", "42", "work", "7"), "", "")
    given: dict[str, Any] = {"created_ms": 1_000, "started_ms": 1_100, "origin": origin, **fields}
    return SubagentRecord(child, f"run-{child[-4:]}", PARENT, "Count the lamps", **given)


def entry(child: str = OTHER, **fields: Any) -> dict[str, Any]:
    """Return a run as OpenClaw writes it."""
    run = {
        "runId": f"run-{child[-4:]}",
        "childSessionKey": child,
        "requesterSessionKey": PARENT,
        "requesterDisplayKey": "main",
        "task": "Look at the lamp",
        "cleanup": "keep",
        "createdAt": 2_000,
        "startedAt": 2_100,
        "archiveAtMs": 3_602_000,
        "cleanupHandled": False,
    }
    return {**run, **fields}


ENDED: dict[str, Any] = {
    "endedAt": 2_500,
    "outcome": {"status": "ok"},
    "cleanupHandled": True,
    "cleanupCompletedAt": 2_600,
}


def write(state: Path, *entries: dict[str, Any], version: int = 2) -> Path:
    path = runs_path(state)
    path.parent.mkdir(exist_ok=True)
    runs = {each["runId"]: each for each in entries}
    path.write_text(json.dumps({"version": version, "runs": runs}), encoding="utf-8")
    return path


def read(state: Path) -> dict[str, Any]:
    tree = json.loads(runs_path(state).read_text(encoding="utf-8"))
    assert tree["version"] == 2
    runs: dict[str, Any] = tree["runs"]
    return runs


async def save(store: SqliteStore, *records: SubagentRecord) -> None:
    async with store.transaction() as transaction:
        for each in records:
            put_subagent(transaction, each)
    await store.flush()


async def test_runs_file_is_written_behind_in_openclaws_format(tmp_path: Path) -> None:
    done = record(
        label="lamps",
        model="mock/mock-1",
        status="done",
        ended_ms=9_000,
        archive_ms=3_609_000,
        total_tokens=120,
    )
    async with open_store(tmp_path) as store:
        await save(store, done, record(OTHER, status="killed", ended_ms=8_000, unannounced="x"))
    runs = read(tmp_path)
    assert runs["run-2222"] == {
        "runId": "run-2222",
        "childSessionKey": CHILD,
        "requesterSessionKey": PARENT,
        "requesterOrigin": {
            "channel": "telegram",
            "to": "42",
            "accountId": "work",
            "threadId": "7",
        },
        "requesterDisplayKey": PARENT,
        "task": "Count the lamps",
        "cleanup": "keep",
        "label": "lamps",
        "model": "mock/mock-1",
        "runTimeoutSeconds": 0,
        "createdAt": 1_000,
        "startedAt": 1_100,
        "endedAt": 9_000,
        "outcome": {"status": "ok"},
        "archiveAtMs": 3_609_000,
        "cleanupHandled": True,
        "cleanupCompletedAt": 9_000,
    }
    assert runs["run-4444"]["suppressAnnounceReason"] == "killed"
    assert runs_path(tmp_path).stat().st_mode & 0o777 == 0o600


async def test_runs_file_without_subagents_is_not_created(tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        async with store.transaction() as transaction:
            transaction.put_record("restart", "note", {})
        assert await list_subagents(store) == []
    assert not runs_path(tmp_path).parent.exists()


async def test_runs_file_of_openclaw_is_imported_once(tmp_path: Path) -> None:
    write(tmp_path, entry(CHILD, label="lamps"), entry(OTHER, **ENDED, descendants=3))
    async with open_store(tmp_path) as store:
        running, ended = await list_subagents(store)
        assert (running.child_key, running.label) == (CHILD, "lamps")
        assert running.is_active, "the start of the program ends it as interrupted"
        assert (ended.child_key, ended.status, ended.ended_ms) == (OTHER, "done", 2_500)
        async with store.transaction() as transaction:
            delete_subagent(transaction, OTHER)
    async with open_store(tmp_path) as store:
        assert [one.child_key for one in await list_subagents(store)] == [CHILD]
    assert list(read(tmp_path)) == ["run-2222"]


async def test_runs_file_of_version_1_is_imported(tmp_path: Path) -> None:
    old = entry(
        OTHER,
        requesterChannel="telegram",
        requesterAccountId="work",
        endedAt=2_500,
        outcome={"status": "error", "error": "boom"},
        announceHandled=True,
        announceCompletedAt=2_600,
    )
    write(tmp_path, old, version=1)
    async with open_store(tmp_path) as store:
        [found] = await list_subagents(store)
        await store.flush()
    assert (found.status, found.error) == ("failed", "boom")
    assert found.origin.address == Address("telegram", "", "work")
    written = read(tmp_path)["run-4444"]
    assert written["requesterOrigin"] == {"channel": "telegram", "accountId": "work"}
    assert not written.keys() & {"announceHandled", "announceCompletedAt", "requesterChannel"}


async def test_runs_file_changed_by_hand_is_noticed_by_the_next_list(tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        await save(store, record(), record(OTHER, status="done", ended_ms=2_000))
        changed = read(tmp_path)
        del changed["run-4444"]
        changed["run-2222"] |= {"label": "renamed", "endedAt": 5, "outcome": {"status": "ok"}}
        third = OTHER.replace("4444", "5555")
        write(tmp_path, *changed.values(), entry(third))
        found, added = await list_subagents(store)
        assert found.label == "renamed" and found.is_active, "it runs here: that counts"
        assert (added.child_key, added.status) == (third, "interrupted"), "it runs nowhere"
        await store.flush()
    assert "outcome" not in read(tmp_path)["run-2222"]


async def test_runs_file_end_that_openclaw_wrote_is_taken_at_start(tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        await save(store, record())
    write(tmp_path, entry(CHILD, **ENDED))
    async with open_store(tmp_path) as store:
        found = await find_subagent(store, CHILD)
    assert found is not None and (found.status, found.ended_ms) == ("done", 2_500)
    assert found.task == "Count the lamps", "everything else is ours"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 3, "runs": {}}', '{"version": 2}'])
async def test_runs_file_that_is_unreadable_is_written_again(text: str, tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        await save(store, record())
        runs_path(tmp_path).write_text(text, encoding="utf-8")
        assert len(await list_subagents(store)) == 1
        await save(store, record(OTHER))
    assert sorted(read(tmp_path)) == ["run-2222", "run-4444"]


async def test_runs_file_that_cannot_be_written_fails_no_commit(tmp_path: Path) -> None:
    (tmp_path / "subagents").write_text("a file, and no folder")
    async with open_store(tmp_path) as store:
        await save(store, record())
        assert await store.record(KIND, CHILD) is not None
        assert len(await list_subagents(store)) == 1


async def test_runs_file_is_behind_after_a_crash_and_written_at_start(tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        await save(store, record())
    # A commit whose file was not written.
    async with open_store(tmp_path, mirror=False) as store, store.transaction() as transaction:
        put_subagent(transaction, record(status="done", ended_ms=9_000))
    async with open_store(tmp_path) as store:
        await store.flush()
    assert read(tmp_path)["run-2222"]["outcome"] == {"status": "ok"}


async def test_runs_file_is_not_written_next_to_openclaws_databases(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "openclaw.sqlite").touch()
    async with open_store(tmp_path) as store:
        await save(store, record())
        assert len(await list_subagents(store)) == 1
    assert not runs_path(tmp_path).exists()


@pytest.mark.parametrize(
    "status", ["running", "done", "failed", "timed_out", "interrupted", "unknown", "killed"]
)
def test_run_entry_keeps_every_status(status: Any) -> None:
    given = record(status=status, ended_ms=0 if status == "running" else 9_000)
    found = decode_run(encode_run(given))
    assert found is not None and found.status == status


def test_run_entry_keeps_fields_of_other_programs() -> None:
    found = decode_run(entry(**ENDED, announceRetryCount=2, spawnMode="run"))
    assert found is not None
    assert encode_run(found) | {"announceRetryCount": 2, "spawnMode": "run"} == encode_run(found)


@pytest.mark.parametrize(
    "fields", [{"childSessionKey": "agent:main:main"}, {"runId": ""}, {"requesterSessionKey": 3}]
)
def test_run_entry_that_is_no_subagent_is_ignored(fields: dict[str, Any]) -> None:
    assert decode_run(entry(**fields)) is None
