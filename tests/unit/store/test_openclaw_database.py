"""The session databases of OpenClaw 2026.9: everything is read, nothing is changed."""

import hashlib
import json
import shutil
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

from homarus.config import openclaw_snapshot
from homarus.core.errors import CorruptDataError, StoreError
from homarus.store import openclaw_database
from homarus.store.openclaw_database import OpenClawDatabase, find_databases, is_sqlite_home
from tests.openclaw_databases import (
    AT_MS,
    PACKED,
    PACKED_SHA256,
    AgentDatabase,
    agent_database,
    conversation,
    file_contents,
    make_state_database,
    message,
)

KEY = "agent:main:main"


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / ".openclaw"


def test_sessions_are_listed_newest_first_without_computed_fields(state: Path) -> None:
    with closing(agent_database(state)) as theirs:
        theirs.put_session(KEY, "s1", AT_MS, thinkingLevel="off", skillsSnapshot={"prompt": "x"})
        theirs.put_session("agent:main:explicit:other", "s2", AT_MS + 1)
        theirs.put_session("agent:main:bad", "../etc/passwd")
        theirs.db.execute("INSERT INTO session_nodes VALUES ('agent:main:odd', 's3', '[', 1, 1)")
    with OpenClawDatabase(theirs.path) as database:
        found = database.sessions()
    assert [(each.key, each.session_id) for each in found] == [
        ("agent:main:explicit:other", "s2"),
        (KEY, "s1"),
    ]
    assert found[1].data == {"sessionId": "s1", "updatedAt": AT_MS, "thinkingLevel": "off"}


def test_transcript_with_compressed_event_is_read_with_leaf(state: Path) -> None:
    with closing(agent_database(state)) as theirs:
        theirs.put_session(KEY, "s1")
        theirs.put_events("s1", [message("m1", None, "user", "A question"), PACKED])
    with OpenClawDatabase(theirs.path) as database:
        found = database.transcript("s1")
        assert database.transcript("unknown") is None
    assert found is not None and found.leaf == "m2"
    kinds = [json.loads(line)["type"] for line in found.lines]
    assert kinds == ["session", "message", "message"]
    assert hashlib.sha256(found.lines[2].encode()).hexdigest() == PACKED_SHA256


@pytest.mark.parametrize("in_file", [True, False])
def test_transcript_extracted_by_openclaw_is_read(state: Path, in_file: bool) -> None:
    with closing(agent_database(state)) as theirs:
        theirs.put_cold("s1", conversation("Old question", "Old answer"), in_file=in_file)
    with OpenClawDatabase(theirs.path) as database:
        found = database.transcript("s1")
    assert found is not None and found.leaf == "m2" and len(found.lines) == 3
    assert "Old answer" in found.lines[2]


def test_extracted_transcript_changed_or_missing_is_refused(state: Path) -> None:
    with closing(agent_database(state)) as theirs:
        theirs.put_cold("s1", conversation("a", "b"), in_file=True)
    (archive,) = (state / "agents/main/sessions/cold").iterdir()
    archive.write_bytes(archive.read_bytes() + b"x")
    with OpenClawDatabase(theirs.path) as database:
        with pytest.raises(CorruptDataError, match="was changed"):
            database.transcript("s1")
        archive.unlink()
        with pytest.raises(StoreError, match="cannot be read"):
            database.transcript("s1")


def test_event_that_is_damaged_is_reported(state: Path) -> None:
    with closing(agent_database(state)) as theirs:
        theirs.put_events("s1", [PACKED[:200]], leaf="m2")
    problem = pytest.raises(CorruptDataError, match="an event cannot be decompressed")
    with OpenClawDatabase(theirs.path) as database, problem:
        database.transcript("s1")


def test_database_being_written_is_read_and_stays_unchanged(state: Path) -> None:
    theirs = agent_database(state)
    theirs.put_session(KEY, "s1")
    before = file_contents(state)
    name = "agents/main/agent/openclaw-agent.sqlite"
    assert before[f"{name}-wal"] and f"{name}-shm" in before
    with closing(theirs), OpenClawDatabase(theirs.path) as database:
        assert [each.key for each in database.sessions()] == [KEY]
        assert file_contents(state) == before
        theirs.put_session("agent:main:new", "s2", AT_MS + 5)
        assert [each.session_id for each in database.sessions()] == ["s2", "s1"]
        theirs.db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        theirs.put_session("agent:main:newer", "s3", AT_MS + 6)
        assert [each.session_id for each in database.sessions()] == ["s3", "s2", "s1"]


def test_log_left_by_a_killed_process_is_read_and_kept(state: Path, tmp_path: Path) -> None:
    theirs = agent_database(state)
    theirs.put_session(KEY, "s1")
    shutil.copytree(state, tmp_path / "copy")
    theirs.close()
    copy = tmp_path / "copy"
    (copy / "agents/main/agent/openclaw-agent.sqlite-shm").unlink()
    before = file_contents(copy)
    with OpenClawDatabase(find_databases(copy)["main"]) as database:
        assert [each.key for each in database.sessions()] == [KEY]
    assert file_contents(copy) == before


def test_closed_database_is_read_in_place_without_new_files(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(agent_database(state)) as theirs:
        theirs.put_session(KEY, "s1")
    before = file_contents(state)
    monkeypatch.setattr(openclaw_snapshot, "_open_copy", None)
    folder = theirs.path.parent
    folder.chmod(0o500)
    try:
        with OpenClawDatabase(theirs.path) as database:
            assert len(database.sessions()) == 1
            assert file_contents(state) == before
    finally:
        folder.chmod(0o700)


def test_copy_of_database_has_no_name_while_it_is_read(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    theirs = agent_database(state)
    theirs.put_session(KEY, "s1")
    with closing(theirs), OpenClawDatabase(theirs.path) as database:
        assert database.sessions()
        assert database.transcript("s1") is None
        assert not list(temporary.iterdir())


def test_database_read_again_when_written_during_read(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(agent_database(state)) as theirs:
        theirs.put_session(KEY, "s1")
    seen: list[int] = []
    real = openclaw_database._session_rows

    def rows(db: apsw.Connection, path: Path) -> list[tuple[Any, ...]]:
        found = real(db, path)
        if not seen:
            with closing(AgentDatabase(path)) as other:
                other.put_session("agent:main:new", "s2")
        seen.append(len(found))
        return found

    monkeypatch.setattr(openclaw_database, "_session_rows", rows)
    with OpenClawDatabase(theirs.path) as database:
        assert len(database.sessions()) == 2
    assert seen == [1, 2]


def test_database_of_unknown_format_is_refused_with_its_version(tmp_path: Path) -> None:
    path = tmp_path / "openclaw-agent.sqlite"
    tables = "CREATE TABLE session_nodes (session_key TEXT); PRAGMA user_version = 99;"
    AgentDatabase(path, tables=tables).close()
    with OpenClawDatabase(path) as database, pytest.raises(StoreError, match="version 99"):
        database.sessions()
    path.write_bytes(b"no database" * 100)
    with OpenClawDatabase(path) as database, pytest.raises(CorruptDataError):
        database.sessions()


def test_databases_are_found_by_folder_and_by_list_of_openclaw(state: Path, tmp_path: Path) -> None:
    assert not is_sqlite_home(state) and not find_databases(state)
    agent_database(state).close()
    elsewhere = tmp_path / "elsewhere" / "openclaw-agent.sqlite"
    AgentDatabase(elsewhere).close()
    shutil.rmtree(state / "state")
    listed = {"coder": str(elsewhere), "gone": "agents/gone/x.sqlite", "../bad": str(elsewhere),
              "main": "/moved/from/here/openclaw-agent.sqlite"}  # fmt: skip
    make_state_database(state, listed)
    (state / "agents" / "UPPER").symlink_to(elsewhere.parent)
    assert is_sqlite_home(state)
    main = state / "agents/main/agent/openclaw-agent.sqlite"
    assert find_databases(state) == {"main": main, "coder": elsewhere}
