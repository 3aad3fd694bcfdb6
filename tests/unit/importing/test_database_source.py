"""Homes of OpenClaw 2026.9, whose sessions, jobs and credentials are in SQLite."""

import asyncio
import json
from contextlib import closing
from pathlib import Path

import pytest

from homarus.core.errors import UserError
from homarus.core.message import Json
from homarus.store.sqlite import open_store
from tests.openclaw_databases import (
    AgentDatabase,
    agent_database,
    conversation,
    file_contents,
    make_state_database,
    put_profiles,
    put_senders,
)
from tests.unit.importing.source_homes import (
    JOB,
    PROFILE,
    notes,
    outcomes,
    read_target,
    run_import,
    write,
)

_STATE_TABLES = """
CREATE TABLE cron_jobs (store_key TEXT NOT NULL, job_id TEXT NOT NULL, job_json TEXT NOT NULL,
  state_json TEXT NOT NULL DEFAULT '{}', sort_order INTEGER NOT NULL DEFAULT 0) STRICT;
CREATE TABLE secret_store_entries (scope_kind TEXT NOT NULL, name TEXT NOT NULL,
  value TEXT NOT NULL, kind TEXT NOT NULL, deleted_at_ms INTEGER) STRICT;
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Return a home with something of every kind in its databases, and an open log."""
    state = tmp_path / "old/.openclaw"
    with closing(agent_database(state)) as agent:
        agent.put_session("agent:main:main", "s-1", model="gpt-x")
        agent.put_events("s-1", conversation("Question", "Answer"))
        agent.put_session("agent:main:telegram:direct:7", "s-2")
        agent.put_cold("s-2", conversation("Cold question", "Cold answer"), in_file=True)
        agent.put_events("s-0", conversation("Earlier"))
        agent.db.execute("INSERT INTO session_windows VALUES ('s-0', 'agent:main:main', 5)")
        agent.db.execute("INSERT INTO session_windows VALUES ('s-1', 'agent:main:main', 6)")
    put_profiles(state, {"openai:own": PROFILE}, {"openai": ["openai:own"]}, agent="main")
    fill_state(state)
    entry: dict[str, Json] = {"workspace": "/elsewhere/.openclaw/workspace"}
    write(state / "openclaw.json", {"agents": {"entries": {"main": entry}}})
    write(state / "workspace/MEMORY.md", "# Memory\n")
    return state


def fill_state(state: Path) -> None:
    with closing(AgentDatabase(state / "state/openclaw.sqlite")) as database:
        database.db.execute(_STATE_TABLES).fetchall()
        managed = {**JOB, "id": "job-2", "declarationKey": "heartbeat:main"}
        for number, job in enumerate([JOB, managed]):
            database.db.execute(
                "INSERT INTO cron_jobs VALUES ('k', ?, ?, '{\"nextRunAtMs\": 9}', ?)",
                (str(job["id"]), json.dumps({**job, "state": {}}), number),
            )
        for name, kind in (("FROM_STORE", "env"), ("HIDDEN", "secret")):
            database.db.execute(
                "INSERT INTO secret_store_entries VALUES ('team', ?, 'value-of-it', ?, NULL)",
                (name, kind),
            )
    put_senders(state, "7")
    put_senders(state, "8", account="work")
    put_profiles(state, {"anthropic:default": {**PROFILE, "key": "shared"}})


def message_texts(home: Path, key: str) -> list[Json]:
    stored = read_target(home)["sessions"][key][3]
    contents = [json.loads(body)["content"] for _, _, body in stored]
    return [one if isinstance(one, str) else one[0]["text"] for one in contents]


def test_database_home_is_imported_and_stays_byte_equal(home: Path, source: Path) -> None:
    before = file_contents(source)
    report = run_import(home, source)
    assert file_contents(source) == before
    assert message_texts(home, "agent:main:main") == ["Question", "Answer"]
    assert message_texts(home, "agent:main:telegram:direct:7") == ["Cold question", "Cold answer"]
    assert outcomes(report, "sessions") == {"source": 2, "imported": 2, "after": 2}
    assert outcomes(report, "transcripts") == {"source": 1, "imported": 1, "after": 1}
    assert outcomes(report, "memory") == {"source": 1, "imported": 1, "after": 1}
    assert outcomes(report, "cronJobs") == {"source": 2, "imported": 1, "skipped": 1, "after": 1}
    assert outcomes(report, "credentials") == {
        "source": 4, "imported": 3, "skipped": 1, "after": 3,
    }  # fmt: skip
    assert outcomes(report, "approvedSenders") == {"source": 2, "imported": 2, "after": 2}
    assert report.messages == 4


def test_database_home_fills_the_files_of_the_target(home: Path, source: Path) -> None:
    report = run_import(home, source)
    state = home / ".openclaw"
    jobs = json.loads((state / "cron/jobs.json").read_text())["jobs"]
    assert [(job["id"], job["state"]) for job in jobs] == [("job-1", {"nextRunAtMs": 9})]
    profiles = json.loads((state / "agents/main/agent/auth-profiles.json").read_text())
    assert profiles["profiles"].keys() == {"openai:own", "anthropic:default"}
    assert profiles["order"] == {"openai": ["openai:own"]}
    allowed = json.loads((state / "credentials/telegram-work-allowFrom.json").read_text())
    assert allowed["allowFrom"] == ["8"]
    assert (state / ".env").read_text() == 'FROM_STORE="value-of-it"\n'
    assert "secret HIDDEN: not imported" in notes(report)
    assert "value-of-it" not in json.dumps(report.as_json())
    old = (state / "agents/main/sessions/s-0.jsonl").read_text()
    assert '"Earlier"' in old


def test_second_import_of_a_database_home_adds_nothing(home: Path, source: Path) -> None:
    run_import(home, source)
    first = read_target(home)
    report = run_import(home, source)
    assert read_target(home) == first
    assert not any(one.added for one in report.counts.values())


def test_database_with_an_open_log_is_read(home: Path, source: Path) -> None:
    with closing(AgentDatabase(source / "agents/main/agent/openclaw-agent.sqlite")) as running:
        running.put_session("agent:main:new", "s-9")
        running.put_events("s-9", conversation("Just now"))
        before = file_contents(source)
        run_import(home, source)
        assert file_contents(source) == before
    assert message_texts(home, "agent:main:new") == ["Just now"]


def test_leaf_of_a_database_transcript_is_kept(home: Path, source: Path) -> None:
    with closing(AgentDatabase(source / "agents/main/agent/openclaw-agent.sqlite")) as database:
        database.put_session("agent:main:branch", "s-8")
        database.put_events("s-8", conversation("a", "b", "c"), leaf="m1")
    run_import(home, source)

    async def leaf() -> str | None:
        async with open_store(home / ".openclaw") as store:
            return await store.leaf("s-8")

    assert asyncio.run(leaf()) == "m1"


def test_database_outside_the_source_is_not_read(home: Path, source: Path, tmp_path: Path) -> None:
    with closing(AgentDatabase(tmp_path / "away/openclaw-agent.sqlite")) as away:
        away.put_session("agent:spy:main", "s-spy")
    make_state_database(source, {"spy": str(away.path)})
    report = run_import(home, source)
    assert "agent:spy:main" not in read_target(home)["sessions"]
    assert "skipped: this database is outside the source" in notes(report)


def test_damaged_database_is_named_and_the_rest_imported(home: Path, source: Path) -> None:
    file = source / "agents/main/agent/openclaw-agent.sqlite"
    file.write_bytes(b"no database" * 500)
    report = run_import(home, source)
    assert outcomes(report, "cronJobs")["imported"] == 1
    assert outcomes(report, "sessions")["skipped"] == 1
    assert "openclaw-agent.sqlite: skipped:" in notes(report)


def test_import_into_a_database_home_is_refused(home: Path, source: Path) -> None:
    make_state_database(home / ".openclaw", {})
    with pytest.raises(UserError, match="is a home of OpenClaw") as refused:
        run_import(home, source)
    assert "OPENCLAW_STATE_DIR" in refused.value.fix
