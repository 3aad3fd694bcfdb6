"""Usage of model calls: of other programs' transcripts, of old databases, and of many calls."""

import json
import time
from pathlib import Path
from typing import Any

import apsw
import pytest

from homarus.core.message import Usage
from homarus.store.base import SessionRecord, TranscriptEntry, TranscriptHeader, UsageRecord
from homarus.store.schema import MIGRATIONS, migrate
from homarus.store.sqlite import SqliteStore, open_store
from homarus.store.usage import IMPORTED, UsageFilter, UsageTotal, transcript_usage
from tests.unit.store.test_mirror_transcripts import KEY, SAMPLE_ID, put_sample

AT_MS = 1_760_000_000_000
# The step that makes calls of what older versions have stored.
STEP = next(at for at, sql in enumerate(MIGRATIONS) if "CREATE TABLE spent_days" in sql)


def answer(entry_id: str, usage: Any, at_ms: int = AT_MS) -> TranscriptEntry:
    message = {"role": "assistant", "provider": "p", "model": "m", "usage": usage, "content": []}
    return TranscriptEntry(entry_id, None, "message", at_ms, {"message": message})


async def total(store: SqliteStore) -> UsageTotal:
    return (await store.usage_totals())[0]


async def test_answers_of_another_program_are_counted_once(tmp_path: Path) -> None:
    file = put_sample(tmp_path)
    async with open_store(tmp_path) as store:
        found = await total(store)
        assert (found.usage.input, found.usage.output, found.calls) == (51_717, 8, 4)
        (group,) = await store.usage_totals(("session", "session_id", "agent", "purpose"))
        assert group.group == {
            "session": KEY, "session_id": SAMPLE_ID, "agent": "main", "purpose": IMPORTED,
        }  # fmt: skip
        assert await total(store) == found
    async with open_store(tmp_path) as store:
        assert await total(store) == found
        line = json.loads(file.read_text().splitlines()[-1])
        line |= {"id": "feedbee1", "parentId": line["id"]}
        line["message"] |= {"role": "assistant", "usage": {"input": 7, "output": 1}}
        with file.open("a") as opened:
            opened.write(json.dumps(line) + "\n")
        assert (await total(store)).usage.input == found.usage.input + 7


async def test_own_answers_are_counted_by_their_calls_alone(tmp_path: Path) -> None:
    call = UsageRecord("r", "agent:main:a", "p", "m", AT_MS, Usage(5, 1), agent="main")
    async with open_store(tmp_path) as store:
        async with store.transaction() as transaction:
            transaction.open_transcript(TranscriptHeader("s1", "main", AT_MS))
            transaction.put_session(SessionRecord("agent:main:a", "main", "s1", AT_MS))
            transaction.append("s1", answer("a", {"input": 5, "output": 1}))
            transaction.add_usage(call)
        await store.flush()
        assert (await total(store)).usage == call.usage
    async with open_store(tmp_path) as store:
        assert (await total(store)).usage == call.usage


async def test_database_of_older_version_counts_answers_without_calls(tmp_path: Path) -> None:
    with apsw.Connection(str(tmp_path / "state.sqlite")) as db:
        migrate(db, tmp_path, MIGRATIONS[:STEP])
        db.execute(
            "INSERT INTO sessions VALUES (1, 'personal', 'owner', 'agent:main:a', 'main', 's1', 5,"
            ' 1, 0, 0, \'{"sessionId":"s1","updatedAt":5}\')'
        )
        db.execute(
            "INSERT INTO transcripts (team, user, session_id, agent, header, last_seq, leaf)"
            " VALUES ('personal', 'owner', 's1', 'main', '{}', 5, 'e5')"
        )
        usage = {"input": 5, "output": 1, "cacheRead": 2, "cost": {"total": 0.5}}
        hostile = {"input": 10**30, "output": "x", "cacheRead": -4, "cost": {"total": [1]}}
        texts = [
            json.dumps({"message": {"role": "assistant", "model": "m", "usage": usage}}),
            json.dumps({"message": {"role": "assistant", "model": "n", "usage": usage}}),
            json.dumps({"message": {"role": "assistant", "usage": hostile}}),
            '{"message": {"role": "assistant", "usage": ',
            json.dumps({"message": {"role": "user", "content": '"assistant" "usage"'}}),
        ]
        for number, text in enumerate(texts, 1):
            db.execute(
                "INSERT INTO entries VALUES ('personal', 'owner', 's1', ?1, 'e' || ?1, NULL,"
                " 'message', ?2, ?3)",
                (number, AT_MS + number * 3_600_000, text),
            )
        db.execute(  # the call of the first answer
            "INSERT INTO spent VALUES (1, 'personal', 'owner', ?, 'r', 'agent:main:a', 'p', 'm', 5,"
            " 1, 2, 0, 0, 0.5, '')",
            (AT_MS + 3_600_000 - 2_000,),
        )
    db.close()
    async with open_store(tmp_path, mirror=False) as store:
        calls = await store.usage_records()
        assert [(call.run, call.model, call.purpose) for call in calls] == [
            ("r", "m", ""), ("", "n", IMPORTED), ("", "unknown", IMPORTED),
        ]  # fmt: skip
        assert [call.session_id for call in calls] == ["s1"] * 3
        assert calls[1].usage == Usage(5, 1, 2, 0, 0, 0.5) and calls[1].agent == "main"
        assert calls[2].usage == Usage(1 << 40) and calls[0].agent == "main"
        assert (await total(store)).calls == 3


@pytest.mark.parametrize(
    "usage",
    [None, [], {}, {"input": 0, "output": -5}, {"input": "many", "cost": {"total": "much"}}],
)
def test_answer_without_usage_makes_no_record(usage: Any) -> None:
    found = transcript_usage([answer("a", usage)], agent="a", session="k", session_id="s")
    assert list(found) == []


def test_usage_of_a_hostile_transcript_is_bounded() -> None:
    usage = {"input": 10**40, "output": 1e300, "cost": {"total": 1e308}}
    (found,) = transcript_usage([answer("a", usage)], agent="a", session="k", session_id="s")
    assert found.usage == Usage(1 << 40, 1 << 40, cost=1e9)


@pytest.mark.slow
async def test_totals_of_a_million_calls_are_quick(tmp_path: Path) -> None:
    async with open_store(tmp_path, mirror=False) as store:
        first = UsageRecord("r", "agent:main:a", "p", "m", AT_MS, Usage(1))
        async with store.transaction() as transaction:
            transaction.add_usage(first)
    with apsw.Connection(str(tmp_path / "state.sqlite")) as db:
        db.execute(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 999999)"
            " INSERT INTO spent SELECT i + 1, 'personal', 'owner', ?1 + i * 60000, 'r' || i,"
            " 'agent:main:' || (i % 300), 'p', 'm' || (i % 3), 1, 1, 1, 1, 1, 0.1, '', 'main',"
            " 's' || (i % 300), 'irc', 'turn', 1 FROM n",
            (AT_MS,),
        )
        db.execute("DELETE FROM spent_days")
        db.execute(MIGRATIONS[STEP][MIGRATIONS[STEP].index("INSERT INTO spent_days") :])
        db.execute("DELETE FROM meta WHERE key = 'probe'")
    db.close()
    async with open_store(tmp_path, mirror=False) as store:
        started_s = time.perf_counter()
        days = await store.usage_totals(("day",), UsageFilter("2026-01-01", "2026-01-31"))
        one = await store.usage_totals(wanted=UsageFilter(session="agent:main:7"))
        calls = await store.usage_records(session="agent:main:a")
        took_s = time.perf_counter() - started_s
        assert len(days) == 31 and len(calls) == 1 and one[0].calls == 3_334
        assert took_s < 0.5
