"""Sessions of OpenClaw 2026.9 are listed and continued, and its files are never changed."""

import json
import shutil
import tarfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from homarus.core.errors import StoreError
from homarus.core.message import Message, Text
from homarus.sessions.transcript import EntryTree, message_draft, messages_of
from homarus.store.backup import create_backup
from homarus.store.base import SessionRecord, Store
from homarus.store.openclaw_database import OpenClawDatabase
from homarus.store.sessions_file import count_sessions
from homarus.store.sqlite import open_store
from tests.openclaw_databases import (
    AT_MS,
    PACKED,
    AgentDatabase,
    agent_database,
    conversation,
    file_contents,
    make_state_database,
    message,
)

KEY = "agent:main:main"
OURS = ("state.sqlite", "state.lock")


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / ".openclaw"


@pytest.fixture
def theirs(state: Path) -> Iterator[AgentDatabase]:
    with closing(agent_database(state)) as database:
        database.put_session(KEY, "s1", thinkingLevel="off")
        database.put_events("s1", conversation("First question", "First answer"))
        yield database


def their_files(state: Path) -> dict[str, bytes]:
    return {name: data for name, data in file_contents(state).items() if not name.startswith(OURS)}


async def texts(store: Store, key: str = KEY) -> list[str]:
    """Return what a model would be sent of a session."""
    record = await store.session(key)
    assert record is not None
    entries = await store.entries(record.session_id)
    path = EntryTree(entries, await store.leaf(record.session_id)).path()
    return [each.text for each in messages_of(path)]


async def say(store: Store, text: str, at_ms: int = AT_MS + 50_000, key: str = KEY) -> None:
    """Continue a session as a run does."""
    record = await store.session(key)
    assert record is not None
    entry = message_draft(Message("user", (Text(text),), at_ms))
    parent = await store.leaf(record.session_id)
    async with store.transaction() as transaction:
        transaction.append(record.session_id, entry.at(f"o{at_ms}", parent, at_ms))
        data = {**record.data}
        transaction.put_session(SessionRecord(key, "main", record.session_id, at_ms, data))


async def test_session_of_openclaw_is_listed_and_read(state: Path, theirs: AgentDatabase) -> None:
    assert count_sessions(state) == 1
    async with open_store(state) as store:
        (record,) = await store.sessions()
        assert (record.key, record.session_id) == (KEY, "s1")
        assert record.data["thinkingLevel"] == "off"
        assert await texts(store) == ["First question", "First answer"]
        header = await store.header("s1")
        assert header is not None and (header.version, header.cwd) == (4, "/w")


async def test_continued_session_keeps_turns_and_openclaws_bytes(
    state: Path, theirs: AgentDatabase
) -> None:
    before = their_files(state)
    for number in range(2):
        async with open_store(state) as store:
            await say(store, f"Question {number}", AT_MS + 50_000 + number)
    async with open_store(state, read_only=True) as store:
        expected = ["First question", "First answer", "Question 0", "Question 1"]
        assert await texts(store) == expected
    assert their_files(state) == before
    assert not (state / "agents/main/sessions").exists()


async def test_turn_of_openclaw_follows_ours(state: Path, theirs: AgentDatabase) -> None:
    async with open_store(state) as store:
        await say(store, "Ours")
        theirs.put_events("s1", [message("m3", "m2", "user", "Theirs", 3)])
        theirs.put_session(KEY, "s1", AT_MS + 90_000)
        assert await texts(store) == ["First question", "First answer", "Ours", "Theirs"]
        await say(store, "Ours again", AT_MS + 95_000)
        theirs.put_events("s1", [message("m4", "m3", "user", "Theirs again", 4)])
        assert (await texts(store))[3:] == ["Theirs", "Ours again", "Theirs again"]


async def test_newer_entry_of_either_program_counts(state: Path, theirs: AgentDatabase) -> None:
    async with open_store(state) as store:
        await say(store, "Ours", AT_MS + 50_000)
        theirs.put_session(KEY, "s1", AT_MS + 40_000, label="older")
        record = await store.session(KEY)
        assert record is not None and "label" not in record.data
        theirs.put_session(KEY, "s2", AT_MS + 60_000, label="newer")
        record = await store.session(KEY)
        assert record is not None and record.session_id == "s2"
        assert record.data["label"] == "newer"


async def test_session_deleted_by_openclaw_stays_if_continued_here(
    state: Path, theirs: AgentDatabase
) -> None:
    theirs.put_session("agent:main:other", "s2")
    async with open_store(state) as store:
        await say(store, "Ours")
        theirs.db.execute("DELETE FROM session_nodes")
        assert [each.key for each in await store.sessions()] == [KEY]


async def test_session_deleted_here_stays_deleted(state: Path, theirs: AgentDatabase) -> None:
    async with open_store(state) as store, store.transaction() as transaction:
        transaction.delete_session(KEY)
    async with open_store(state) as store:
        assert not await store.sessions()
        theirs.put_session("agent:main:other", "s2")
        assert [each.key for each in await store.sessions()] == ["agent:main:other"]


async def test_extracted_and_compressed_transcripts_are_continued(
    state: Path, theirs: AgentDatabase
) -> None:
    theirs.put_session("agent:main:cold", "s2")
    theirs.put_cold("s2", conversation("Old question", "Old answer"), in_file=True)
    theirs.put_session("agent:main:long", "s3")
    theirs.put_events("s3", [message("m1", None, "user", "A question"), PACKED])
    async with open_store(state) as store:
        assert await texts(store, "agent:main:cold") == ["Old question", "Old answer"]
        found = await texts(store, "agent:main:long")
        assert found[0] == "A question" and found[1].startswith("The lamp is green.")


async def test_transcript_that_cannot_be_read_is_not_continued(
    state: Path, theirs: AgentDatabase
) -> None:
    theirs.put_session("agent:main:cold", "s2")
    theirs.put_cold("s2", conversation("a", "b"), in_file=True)
    shutil.rmtree(state / "agents/main/sessions/cold")
    async with open_store(state) as store:
        with pytest.raises(StoreError, match="cannot be read"):
            await store.session("agent:main:cold")
        assert len(await texts(store)) == 2
        assert len(await store.sessions()) == 2


async def test_reset_of_openclaw_ends_the_context(state: Path, theirs: AgentDatabase) -> None:
    reset = {"type": "reset", "id": "r1", "parentId": "m2", "reason": "new"}
    theirs.put_events("s1", [reset, message("m3", "r1", "user", "Fresh")])
    async with open_store(state) as store:
        assert await texts(store) == ["Fresh"]
        kept = {**reset, "id": "r2", "parentId": "m3", "firstKeptEntryId": "m3"}
        theirs.put_events("s1", [kept, message("m4", "r2", "user", "Fresher")])
        assert await texts(store) == ["Fresh", "Fresher"]


async def test_branch_that_openclaw_returned_to_is_followed(
    state: Path, theirs: AgentDatabase
) -> None:
    async with open_store(state) as store:
        assert len(await texts(store)) == 2
        theirs.put_events("s1", [message("b1", "m1", "assistant", "Another answer", 5)])
        assert await texts(store) == ["First question", "Another answer"]
        theirs.db.execute("UPDATE session_transcript_index_state SET leaf_event_id = 'm2'")
        assert await texts(store) == ["First question", "First answer"]


async def test_files_of_an_earlier_version_are_read_and_not_written(
    state: Path, theirs: AgentDatabase
) -> None:
    sessions = state / "agents/coder/sessions"
    sessions.mkdir(parents=True)
    (sessions / "sessions.json").write_text(
        '{"agent:coder:main": {"sessionId": "c1", "updatedAt": 5}}'
    )
    line = json.dumps(message("x1", None, "user", "Old"))
    (sessions / "c1.jsonl").write_text(line + "\n")
    before = their_files(state)
    async with open_store(state) as store:
        assert await texts(store, "agent:coder:main") == ["Old"]
        async with store.transaction() as transaction:
            transaction.put_session(SessionRecord("agent:coder:main", "coder", "c1", 9, {}))
    assert their_files(state) == before


def test_backup_contains_databases_and_changes_no_file(
    state: Path, theirs: AgentDatabase, tmp_path: Path
) -> None:
    before = file_contents(state)
    report = create_backup(tmp_path / "backup.tar.gz", {"state": state})
    assert file_contents(state) == before
    with tarfile.open(tmp_path / "backup.tar.gz") as archive:
        (name,) = (each for each in archive.getnames() if each.endswith("openclaw-agent.sqlite"))
        archive.extract(name, tmp_path, filter="data")
    with OpenClawDatabase(tmp_path / name) as database:
        assert [each.key for each in database.sessions()] == [KEY], report


async def test_damaged_database_of_openclaw_leaves_ours_working(
    state: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make_state_database(state, {})
    path = state / "agents/main/agent/openclaw-agent.sqlite"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"no database" * 500)
    async with open_store(state) as store:
        async with store.transaction() as transaction:
            transaction.put_session(SessionRecord(KEY, "main", "s1", 5, {}))
        assert [each.key for each in await store.sessions()] == [KEY]
    assert "cannot read the sessions of agent main" in caplog.text
