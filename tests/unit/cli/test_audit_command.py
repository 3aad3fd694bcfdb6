"""`homarus audit`: rows by time, agent, tool and kind; edits are found."""

import asyncio
import json
from pathlib import Path

import apsw
import pytest
from click.testing import CliRunner, Result

from homarus.cli.audit import command, parse_since_ms
from homarus.config.change_log import log_change
from homarus.core.errors import UserError
from homarus.core.message import Json
from homarus.store.audit import AuditEntry
from homarus.store.lock import StateLock
from homarus.store.sqlite import open_store


@pytest.fixture
def state(home: Path) -> Path:
    return home / ".openclaw"


def run(*args: str) -> Result:
    return CliRunner().invoke(command, args, standalone_mode=False)


def verify(*args: str) -> Result:
    return CliRunner().invoke(command, ("verify", *args))


def fill(state: Path) -> None:
    key = "agent:main:main"
    ran: dict[str, Json] = {"outcome": "done", "durationMs": 7, "exitCode": 1, "digest": "ab" * 32}
    asked: dict[str, Json] = {"action": "ask", "rule": "taint", "reason": "it\x1b[2J read a page"}
    entries = [
        AuditEntry(1_000, "decision", "main", key, "exec", asked),
        AuditEntry(2_000, "execution", "main", key, "exec", ran),
        AuditEntry(3_000, "decision", "work", "agent:work:main", "read", {"action": "allow"}),
    ]

    async def main() -> None:
        async with open_store(state, mirror=False) as store, store.transaction() as transaction:
            transaction.add_audit(*entries)

    asyncio.run(main())


def seqs(*args: str) -> list[int]:
    return [row["seq"] for row in json.loads(run("--json", *args).output)]


def test_audit_without_database_has_no_rows(state: Path) -> None:
    assert run().output == "No rows.\n"
    assert verify().exit_code == 0 and not (state / "state.sqlite").exists()


def test_audit_prints_one_printable_line_for_each_row(state: Path) -> None:
    fill(state)
    lines = run().output.splitlines()
    assert len(lines) == 3 and all(line.isprintable() for line in lines)
    assert "ask by taint" in lines[0] and "done in 7 ms, exit 1 (abababababab)" in lines[1]


def test_audit_filters_rows(state: Path) -> None:
    fill(state)
    assert seqs() == [1, 2, 3]
    assert seqs("--agent", "work") == [3]
    assert seqs("--tool", "exec") == [1, 2]
    assert seqs("--kind", "decision", "--limit", "1") == [3]
    assert seqs("--since", "1970-01-01T00:00:02+00:00") == [2, 3]
    assert seqs("--since", "1h") == []


def test_audit_shows_changes_that_wait_for_the_gateway(state: Path) -> None:
    log_change(state, "config", changed=["tools.deny"])
    lock = StateLock(state)
    try:
        (row,) = json.loads(run("--json").output)
    finally:
        lock.release()
    assert (row["seq"], row["data"]["changed"]) == (0, ["tools.deny"])
    assert seqs() == [1] == seqs("--kind", "config")
    assert seqs("--tool", "exec") == []


def test_audit_verify_prints_an_anchor_and_checks_one(state: Path) -> None:
    fill(state)
    done = verify()
    assert done.exit_code == 0
    text, anchor = done.output.splitlines()
    assert text == "3 rows, none was changed." and anchor.startswith("3:")
    assert verify("--anchor", anchor).exit_code == 0
    assert verify("--anchor", f"2:{anchor[2:]}").exit_code == 1
    assert isinstance(verify("--anchor", "x").exception, UserError)


def test_audit_verify_finds_an_edit_and_doctor_too(state: Path) -> None:
    from homarus.cli.doctor import command as doctor

    fill(state)
    db = apsw.Connection(str(state / "state.sqlite"))
    db.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)
    db.execute("UPDATE audit SET tool = 'ls' WHERE seq = 2")
    db.close()
    found = verify("--json")
    assert found.exit_code == 1 and "row 2 was edited" in json.loads(found.output)["problem"]
    told = CliRunner().invoke(doctor, ["--json"], standalone_mode=False).output
    rows = [row for row in json.loads(told)["findings"] if row["about"] == "audit"]
    assert [(row["state"], row["fix"]) for row in rows] == [("bad", "homarus audit verify")]


def test_since_is_a_duration_or_a_date() -> None:
    assert parse_since_ms("2h", 10_000_000) == 10_000_000 - 7_200_000
    assert parse_since_ms("1970-01-01T00:00:01+00:00", 5) == 1_000
    with pytest.raises(UserError, match="no time"):
        parse_since_ms("yesterday", 5)
