"""Prune old sessions and bound archived files."""

import asyncio
import json
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homarus.config.load import load_config
from homarus.config.paths import Paths
from homarus.config.schema import MaintenanceConfig
from homarus.core.clock import Clock
from homarus.core.lanes import Lanes
from homarus.core.message import Address, Inbound, Usage, user_message
from homarus.sessions.maintenance import (
    BACKUPS,
    KEPT_MS,
    MaintenanceServices,
    RetentionRules,
    SessionMaintenance,
    over_budget,
    plan_pruning,
    retention_rules,
)
from homarus.sessions.session import Session, SessionRepository
from homarus.store.base import SessionRecord, Store, UsageRecord
from homarus.store.sqlite import SqliteStore, open_store
from homarus.testing.clock import START_MS, FakeClock
from homarus.tools.trash import make_batch

DAY_MS = 86_400_000
records = st.lists(
    st.builds(
        lambda number, at_ms: SessionRecord(f"agent:main:{number}", "main", str(number), at_ms),
        st.integers(0, 500),
        st.integers(0, 100 * DAY_MS),
    ),
    unique_by=lambda record: record.key,
)


def never(_record: SessionRecord) -> bool:
    return False


@given(records, st.integers(1, 20))
def test_pruning_plan_keeps_recent_sessions_within_maximum(
    found: list[SessionRecord], most: int
) -> None:
    rules, now_ms = RetentionRules(max_entries=most), 100 * DAY_MS
    made = plan_pruning(found, now_ms, rules, never)
    gone = {record.key for record in (*made.old, *made.over)}
    left = [record for record in found if record.key not in gone]
    assert len(gone) == len(made.old) + len(made.over)
    assert len(left) <= most
    assert all(
        not one.updated_ms or now_ms - one.updated_ms <= rules.prune_after_ms for one in left
    )
    newest = max((record.updated_ms for record in made.over), default=0)
    assert all(record.updated_ms >= newest for record in left) or not made.over


@given(records)
def test_pruning_plan_keeps_protected_sessions(found: list[SessionRecord]) -> None:
    assert (
        plan_pruning(found, 200 * DAY_MS, RetentionRules(max_entries=1), lambda _one: True).old
        == ()
    )


@given(st.lists(st.tuples(st.text(), st.integers(0, 100), st.floats(0, 10))), st.integers(0, 500))
def test_over_budget_removes_oldest_files_only(
    files: list[tuple[str, int, float]], budget: int
) -> None:
    gone = over_budget(files, budget)
    in_order = sorted(files, key=lambda file: file[2])
    assert list(gone) == [name for name, _, _ in in_order[: len(gone)]]
    assert sum(size for _, size, _ in in_order[len(gone) :]) <= budget or len(gone) == len(files)
    if gone:
        assert sum(size for _, size, _ in in_order[len(gone) - 1 :]) > budget


def test_retention_rules_parse_every_config_form() -> None:
    assert retention_rules(MaintenanceConfig()) == RetentionRules()
    given = {"mode": "enforce", "pruneAfter": 7, "maxEntries": 3, "rotateBytes": "1kb"}
    assert retention_rules(MaintenanceConfig.model_validate(given)) == RetentionRules(
        "enforce", 7 * DAY_MS, 3, 1024
    )
    assert (
        retention_rules(MaintenanceConfig.model_validate({"pruneDays": 2})).prune_after_ms
        == 2 * DAY_MS
    )
    assert (
        retention_rules(MaintenanceConfig.model_validate({"pruneAfter": "36h"})).prune_after_ms
        == 129_600_000
    )


class Program:
    """A store with maintenance services and a fake clock."""

    def __init__(self, folder: Path, store: SqliteStore, **rules: Any) -> None:
        env = {"HOME": str(folder), "OPENCLAW_STATE_DIR": str(folder)}
        config = {"session": {"maintenance": rules}}
        (folder / "openclaw.json").write_text(json.dumps(config), encoding="utf-8")
        self.paths = Paths.find(env)
        self.loaded = load_config(self.paths, env)
        self.files, self.time = store, FakeClock()
        self.store: Store = store
        self.clock: Clock = self.time
        self.lanes, self.sessions = Lanes(), SessionRepository(store, self.time)
        self.busy = set[str]()

    def services(self) -> MaintenanceServices:
        return MaintenanceServices(
            get_config=lambda: self.loaded.config,
            paths=self.paths,
            store=self.store,
            repository=self.sessions,
            clock=self.clock,
            lanes=self.lanes,
            is_busy=self.busy.__contains__,
        )

    async def put(self, name: str, days: int) -> None:
        """Store a session with a message, last used so many days ago."""
        at_ms = START_MS - days * DAY_MS
        session = await Session.load(self.store, FakeClock(at_ms), f"agent:main:{name}", "main")
        await session.append(user_message("hello", at_ms=at_ms))

    async def names(self) -> set[str]:
        return {record.key.split(":")[-1] for record in await self.store.sessions()}


@asynccontextmanager
async def played(folder: Path, **rules: Any) -> AsyncIterator[Program]:
    async with open_store(folder) as store:
        yield Program(folder, store, **rules)


async def test_maintenance_in_warn_mode_only_logs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with played(tmp_path) as program:
        await program.put("old", 40)
        with caplog.at_level(logging.WARNING):
            await SessionMaintenance(program.services()).run_once()
        assert await program.names() == {"old"}
        assert "1 sessions unused for long" in caplog.text and "enforce" in caplog.text


async def test_maintenance_enforced_prunes_and_keeps_transcripts(tmp_path: Path) -> None:
    async with played(tmp_path, mode="enforce") as program:
        for name, days in {"main": 90, "old": 40, "busy": 40, "new": 1}.items():
            await program.put(name, days)
        program.busy = {"agent:main:busy"}
        old = await program.store.session("agent:main:old")
        assert old is not None
        await SessionMaintenance(program.services()).run_once()
        assert await program.names() == {"main", "busy", "new"}
        assert len(await program.store.entries(old.session_id)) == 1
        await program.files.flush()
        (kept,) = program.paths.sessions_dir("main").glob("*.jsonl.deleted.*")
        assert old.session_id in kept.name


async def test_maintenance_over_maximum_keeps_newest(tmp_path: Path) -> None:
    async with played(tmp_path, mode="enforce", maxEntries=2) as program:
        for number in range(6):
            await program.put(f"s{number}", number)
        await SessionMaintenance(program.services()).run_once()
        assert await program.names() == {"s0", "s1"}


async def test_maintenance_keeps_session_used_meanwhile(tmp_path: Path) -> None:
    lane = "session:agent:main:old"
    async with played(tmp_path, mode="enforce") as program:
        await program.put("old", 40)
        async with asyncio.timeout(60), asyncio.TaskGroup() as group, program.lanes.enter(lane):
            group.create_task(SessionMaintenance(program.services()).run_once())
            while not program.lanes.depth(lane):  # noqa: ASYNC110 - no event is set
                await asyncio.sleep(0.001)
            session = await program.sessions.load("agent:main:old", "main")
            await session.update(label="needed")
        assert await program.names() == {"old"}


async def test_maintenance_removes_archived_files_over_budget(tmp_path: Path) -> None:
    async with played(tmp_path, mode="enforce") as program:
        folder = program.paths.sessions_dir("main")
        folder.mkdir(parents=True)
        names = [f"{n}.jsonl.reset.2027-01-0{n}T00-00-00.000Z" for n in (1, 2, 3)]
        for age, name in enumerate(names):
            (folder / name).write_bytes(b"x" * 100)
            os.utime(folder / name, (1_000 + age, 1_000 + age))
        (folder / "live.jsonl").write_bytes(b"x" * 1_000)
        await SessionMaintenance(program.services(), archive_bytes=200).run_once()
        assert sorted(file.name for file in folder.glob("*.jsonl*")) == [*names[1:], "live.jsonl"]


async def test_maintenance_rotates_large_index(tmp_path: Path) -> None:
    async with played(tmp_path, mode="enforce", rotateBytes=10) as program:
        await program.put("a", 0)
        await program.files.flush()
        index = program.paths.sessions_dir("main") / "sessions.json"
        text = index.read_text()
        for _ in range(BACKUPS + 2):
            await program.time.advance(1)
            await SessionMaintenance(program.services()).run_once()
        copies = list(index.parent.glob("sessions.json.bak.*"))
        assert len(copies) == BACKUPS and all(copy.read_text() == text for copy in copies)
        assert await program.names() == {"a"} and index.read_text() == text


async def test_maintenance_prunes_sandboxes(tmp_path: Path) -> None:
    pruned = list[int]()

    async def prune(now_ms: int) -> None:
        pruned.append(now_ms)

    async with played(tmp_path) as program:
        services = replace(program.services(), prune_sandboxes=prune)
        await SessionMaintenance(services).run_once()
        assert pruned == [program.clock.now_ms()]


async def test_maintenance_prunes_old_trash_of_workspaces(tmp_path: Path) -> None:
    async with played(tmp_path) as program:
        trash = tmp_path / "workspace" / ".trash"
        old, new = (make_batch(START_MS / 1000 - days * 86_400) for days in (31, 29))
        for name in (old, new):
            (trash / name).mkdir(parents=True)
            (trash / name / "file").write_text("x")
        await SessionMaintenance(program.services()).run_once()
        assert [path.name for path in trash.iterdir()] == [new]


async def test_maintenance_prunes_old_settled_messages_only(tmp_path: Path) -> None:
    async with played(tmp_path) as program:
        journal, now_ms = program.store.journal, program.clock.now_ms()
        for name, at_ms in (("old", now_ms - KEPT_MS - 1), ("new", now_ms)):
            inbound = Inbound(name, Address("test", "1"), "ann", "hi", run_id=name)
            await journal.accept("agent:main:main", inbound, at_ms=0)
            async with journal.lease("x") as lease, journal.transaction() as unit:
                unit.settle([name], lease, "answered", at_ms=at_ms)
        await SessionMaintenance(program.services()).run_once()
        assert await journal.inbox_record("old") is None
        assert await journal.inbox_record("new") is not None


@pytest.mark.parametrize(("retention", "left"), [("30d", 1), (False, 2), (100, 2)])
async def test_maintenance_prunes_old_model_calls_and_keeps_totals(
    tmp_path: Path, retention: str | int | bool, left: int
) -> None:
    async with played(tmp_path, usageRetention=retention) as program:
        now_ms = program.clock.now_ms()
        async with program.store.transaction() as transaction:
            for days in (40, 1):
                at_ms = now_ms - days * 86_400_000
                transaction.add_usage(UsageRecord("r", "k", "p", "m", at_ms, Usage(1)))
        await SessionMaintenance(program.services()).run_once()
        assert len(await program.store.usage_records()) == left
        assert (await program.store.usage_totals())[0].calls == 2
