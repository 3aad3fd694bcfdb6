"""Edits of the audit log are found, whatever part of it they hit."""

import json
import stat
from pathlib import Path

import apsw
import pytest

from homarus.config.change_log import FILE, changes_by, log_change
from homarus.core.errors import DiskFullError, StoreError
from homarus.store.audit import ANCHOR_EVERY, AuditEntry, AuditLog
from homarus.store.audit_anchor import ANCHOR_FILE, load_anchor, save_anchor
from homarus.store.audit_changes import import_changes, pending_changes
from homarus.store.sqlite import open_store
from homarus.testing.memory_store import MemoryStore


async def fill(folder: Path, count: int = 5, *, anchor: bool = False) -> None:
    async with open_store(folder, mirror=False) as store:
        for number in range(count):
            async with store.transaction() as transaction:
                transaction.add_audit(AuditEntry(number, "decision", "main", data={"n": number}))
        if anchor:
            await save_anchor(store, folder)


async def check(folder: Path) -> str:
    async with open_store(folder, mirror=False) as store:
        anchors = {ANCHOR_FILE: load_anchor(folder)}
        return (await store.check_audit(**anchors)).problem


def edit(folder: Path, *statements: str) -> None:
    db = apsw.Connection(str(folder / "state.sqlite"))
    db.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)  # as a person with the file can
    for statement in statements:
        db.execute(statement)
    db.close()


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("UPDATE audit SET json = '{\"n\":9}' WHERE seq = 3", "row 3 was edited"),
        ("UPDATE audit SET json = '{\"n\": 2}' WHERE seq = 3", "row 3 was edited"),
        ("UPDATE audit SET at_ms = 9 WHERE seq = 5", "row 5 was edited"),
        ("UPDATE audit SET agent = 'x' WHERE seq = 1", "row 1 was edited"),
        ("UPDATE audit SET hash = 'x' WHERE seq = 2", "row 2 was edited"),
        ("UPDATE audit SET previous = 'x' WHERE seq = 2", "row 2 does not follow row 1"),
        ("DELETE FROM audit WHERE seq = 3", "row 3 is missing"),
        ("DELETE FROM audit WHERE seq = 1", "row 1 is missing"),
        ("DELETE FROM audit WHERE seq > 3", "cut off"),
        ("DELETE FROM audit", "cut off"),
        ("UPDATE audit SET seq = seq * 10", "row 1 is missing"),
    ],
)
async def test_audit_edit_is_found(tmp_path: Path, statement: str, problem: str) -> None:
    await fill(tmp_path)
    assert await check(tmp_path) == ""
    edit(tmp_path, statement)
    assert problem in await check(tmp_path)


async def test_audit_rows_that_swap_places_are_found(tmp_path: Path) -> None:
    await fill(tmp_path)
    swap = (
        "UPDATE audit SET seq = 99 WHERE seq = 2",
        "UPDATE audit SET seq = 2 WHERE seq = 3",
        "UPDATE audit SET seq = 3 WHERE seq = 99",
    )
    edit(tmp_path, *swap)
    assert "row 2 does not follow" in await check(tmp_path)


async def test_audit_tail_cut_with_its_count_is_found_by_anchor_file(tmp_path: Path) -> None:
    await fill(tmp_path, anchor=True)
    file = tmp_path / ANCHOR_FILE
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    cut = ("DELETE FROM audit WHERE seq > 3", "DELETE FROM meta WHERE key LIKE 'audit:%'")
    edit(tmp_path, *cut)
    assert f"{ANCHOR_FILE} has row 5, the log ends at 3" in await check(tmp_path)
    before = file.read_bytes()
    await fill(tmp_path, 4, anchor=True)  # new rows take the numbers of those that were cut off
    assert file.read_bytes() == before
    assert "rewritten" in await check(tmp_path)


async def test_audit_rows_after_a_cut_do_not_hide_it(tmp_path: Path) -> None:
    await fill(tmp_path)
    edit(tmp_path, "DELETE FROM audit WHERE seq > 3")
    await fill(tmp_path, 1)
    assert "row 4 is missing" in await check(tmp_path)


async def test_audit_table_refuses_changes_and_deletions(tmp_path: Path) -> None:
    await fill(tmp_path, 1)
    db = apsw.Connection(str(tmp_path / "state.sqlite"))
    for statement in ("UPDATE audit SET kind = 'x'", "DELETE FROM audit"):
        with pytest.raises(apsw.ConstraintError, match="audit log are not"):
            db.execute(statement)
    db.close()


async def test_audit_log_survives_a_repair_of_the_database(tmp_path: Path) -> None:
    from homarus.store.repair import repair_offline
    from homarus.store.state_paths import StatePaths

    await fill(tmp_path)
    repair_offline(StatePaths(tmp_path), "for the test")
    assert await check(tmp_path) == ""
    async with open_store(tmp_path, mirror=False) as store:
        assert (await store.audit_anchor()).seq == 5


async def test_audit_log_stores_pending_entries_once_in_order() -> None:
    store = MemoryStore()
    log = AuditLog(store)
    log.record(AuditEntry(1, "decision"))

    def fail() -> None:
        with log.storing() as rows:
            raise DiskFullError(f"no room for {len(rows)}")

    with pytest.raises(StoreError, match="for 1"):
        fail()
    await log.write(AuditEntry(2, "config"))
    await log.write()
    assert [entry.at_ms for entry in await store.audit_entries()] == [1, 2]


async def test_audit_log_without_store_records_nothing() -> None:
    log = AuditLog()
    log.record(AuditEntry(1, "decision"))
    await log.write()
    with log.storing() as rows:
        assert rows == ()


async def test_audit_log_reports_stored_rows_now_and_then() -> None:
    calls: list[int] = []
    log = AuditLog(MemoryStore(), lambda: calls.append(1))
    await log.write(*[AuditEntry(1, "decision")] * (ANCHOR_EVERY - 1))
    assert calls == []
    await log.write(AuditEntry(1, "decision"))
    assert calls == [1]


async def test_changes_of_other_processes_are_imported_once(tmp_path: Path) -> None:
    with changes_by("client\ncli"):
        log_change(tmp_path, "config", changed=["tools.deny"])
    log_change(tmp_path, "pairing", sender="telegram:42", agent="work")
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600
    assert [entry.seq for entry in pending_changes(tmp_path)] == [0, 0]
    store = MemoryStore()
    kept = (tmp_path / FILE).read_bytes()
    assert await import_changes(store, tmp_path) == 2
    assert not (tmp_path / FILE).exists() and pending_changes(tmp_path) == []
    first, second = await store.audit_entries()
    assert (first.kind, first.data["by"], first.data["target"]) == (
        "config",
        "client cli",
        "config",
    )
    assert (second.agent, second.data["sender"]) == ("work", "telegram:42")
    # A crash between the commit and the deletion of the file.
    (tmp_path / f"{FILE}.taken").write_bytes(kept)
    assert await import_changes(store, tmp_path) == 0
    assert await import_changes(store, tmp_path) == 0


async def test_malformed_lines_of_the_change_file_are_skipped(tmp_path: Path) -> None:
    good = json.dumps({"id": "1", "atMs": "x", "target": "config"})
    (tmp_path / FILE).write_text(f"{{torn\n[]\n{good}\n\n{{}}\n\xff", encoding="latin-1")
    store = MemoryStore()
    assert await import_changes(store, tmp_path) == 1
    assert [entry.at_ms for entry in await store.audit_entries()] == [0]


def test_change_that_cannot_be_recorded_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "target").touch()
    (tmp_path / FILE).symlink_to(tmp_path / "target")
    log_change(tmp_path, "config")
    assert (tmp_path / "target").read_bytes() == b"" and "not in the audit log" in caplog.text


def test_huge_change_is_cut(tmp_path: Path) -> None:
    log_change(tmp_path, "config", changed=["x" * 100_000])
    (entry,) = pending_changes(tmp_path)
    assert len(str(entry.data)) < 3_000
