"""The list of skills of a session: one entry for readers, apart from the row on disk."""

import json
import os
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw

from homarus.core.message import Json, user_message
from homarus.sessions.session import Session, SessionRepository
from homarus.store.base import SKILLS_FIELD, SessionRecord
from homarus.store.session_skills import join_entry, join_text, split_entry
from homarus.store.sqlite import SqliteStore, open_store
from homarus.store.transcript_codec import dump_json
from homarus.testing.clock import FakeClock

KEY = "agent:main:main"
SKILLS: dict[str, Json] = {"prompt": "<available_skills>\né\n</available_skills>", "version": 3}


def row(state: Path, key: str = KEY) -> dict[str, Any]:
    """Return the text of a session's row, without what is stored apart."""
    with closing(apsw.Connection(str(state / "state.sqlite"))) as db:
        (found,) = db.execute("SELECT json FROM sessions WHERE key = ?", (key,))
    entry: dict[str, Any] = json.loads(found[0])
    return entry


def index(state: Path) -> Path:
    return state / "agents/main/sessions/sessions.json"


async def start(store: SqliteStore, key: str = KEY) -> Session:
    """Save a first question, with the list that its run has taken."""
    session = await SessionRepository(store, FakeClock()).load(key, "main")
    await ask(session, **{SKILLS_FIELD: SKILLS})
    return session


async def ask(session: Session, **fields: Json) -> None:
    question = user_message("hi", at_ms=8)
    await session.start_turn(question, provider="mock", model="m", extra_fields=fields)


async def stored(store: SqliteStore, key: str = KEY) -> Json:
    record = await store.session(key)
    return record.data.get(SKILLS_FIELD) if record else "gone"


async def test_turn_keeps_skills_out_of_row_and_in_entry(tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        session = await start(store)
        await ask(session)
        await session.update(label="x")
        assert session.record.data[SKILLS_FIELD] == await stored(store) == SKILLS
        (listed,) = await store.sessions()
        assert listed.data[SKILLS_FIELD] == SKILLS
        (bare,) = await store.sessions(bare=True)
        assert bare.data == {}
        assert await store.records(SKILLS_FIELD) == {KEY: SKILLS}
    assert SKILLS_FIELD not in row(tmp_path)
    assert json.loads(index(tmp_path).read_text())[KEY][SKILLS_FIELD] == SKILLS


async def test_changed_skills_replace_stored_ones(tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        session = await start(store)
        await ask(session, **{SKILLS_FIELD: {"prompt": "", "version": 4}})
        assert await stored(store) == {"prompt": "", "version": 4}
        await session.update(**{SKILLS_FIELD: None})
        assert await stored(store) is None
        assert await store.records(SKILLS_FIELD) == {}


async def test_reset_or_deleted_session_leaves_no_skills(tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        await (await start(store)).reset()
        assert await stored(store) is None
        await start(store, "agent:main:other")
        assert await store.records(SKILLS_FIELD) == {"agent:main:other": SKILLS}
        repository = SessionRepository(store, FakeClock())
        assert await repository.delete("agent:main:other", 9)
        assert await store.records(SKILLS_FIELD) == {}
        assert not (await repository.load("agent:main:other", "main")).record.data.get(SKILLS_FIELD)


async def test_row_of_earlier_version_is_read_and_split_when_written(tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        await start(store)
    entry = row(tmp_path) | {SKILLS_FIELD: SKILLS}
    with closing(apsw.Connection(str(tmp_path / "state.sqlite"))) as db:
        db.execute("DELETE FROM records WHERE kind = ?", (SKILLS_FIELD,))
        db.execute("UPDATE sessions SET json = ?", (dump_json(entry, pretty=True),))
    async with open_store(tmp_path) as store:
        assert await stored(store) == SKILLS
        await ask(await SessionRepository(store, FakeClock()).load(KEY, "main"))
        assert await stored(store) == SKILLS
        assert await store.records(SKILLS_FIELD) == {KEY: SKILLS}
    assert SKILLS_FIELD not in row(tmp_path)


async def test_sessions_file_of_others_brings_and_removes_skills(tmp_path: Path) -> None:
    theirs = {"sessionId": "s1", "updatedAt": 5, SKILLS_FIELD: SKILLS, "label": "x"}
    index(tmp_path).parent.mkdir(parents=True)
    index(tmp_path).write_text(json.dumps({KEY: theirs, "agent:main:b": theirs}))
    async with open_store(tmp_path) as store:
        assert await stored(store) == SKILLS
        newer = {"sessionId": "s1", "updatedAt": 6, "label": "y"}
        index(tmp_path).write_text(json.dumps({KEY: newer}))
        assert await stored(store) is None
        assert await stored(store, "agent:main:b") == "gone"
        assert await store.records(SKILLS_FIELD) == {}


async def test_sessions_file_read_again_changes_no_session(tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        await start(store)
    async with open_store(tmp_path) as store:
        before = await store.revision(KEY)
        written = json.loads(index(tmp_path).read_text())
        index(tmp_path).write_text(json.dumps(written))  # as another program formats it
        os.utime(index(tmp_path), ns=(1, 1))
        assert await store.revision(KEY) == before
        assert await stored(store) == SKILLS


async def test_skills_that_are_no_map_stay_in_row(tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        async with store.transaction() as transaction:
            data: dict[str, Json] = {SKILLS_FIELD: "odd"}
            transaction.put_session(SessionRecord(KEY, "main", "s1", 5, data))
        assert await stored(store) == "odd"
        assert await store.records(SKILLS_FIELD) == {}


def test_joined_text_is_text_of_joined_entry() -> None:
    entry: dict[str, Json] = {"label": f'a "{SKILLS_FIELD}"', "n": {"a": [1]}, SKILLS_FIELD: SKILLS}
    for each in (entry, {**entry, "label": "plain"}):
        rest, skills = split_entry(each)
        texts = dump_json(rest, pretty=True), dump_json(skills, pretty=True)
        assert json.loads(join_text(*texts)) == join_entry(*texts) == each
    assert join_text(*texts) == dump_json(each, pretty=True)


def test_list_in_row_is_newer_than_stored_one() -> None:
    own = dump_json({SKILLS_FIELD: {"version": 2}})
    assert join_entry(own, dump_json(SKILLS)) == {SKILLS_FIELD: {"version": 2}}
    assert json.loads(join_text(own, dump_json(SKILLS))) == {SKILLS_FIELD: {"version": 2}}
