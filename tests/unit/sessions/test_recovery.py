"""Recover messages that an earlier process left."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from homarus.core.message import Address, Inbound
from homarus.sessions.recovery import MAX_AGE_MS, MAX_ATTEMPTS, plan_recovery, recover
from homarus.store.journal import InboxRecord
from homarus.testing.clock import FakeClock
from homarus.testing.memory_store import MemoryStore

KEY = "agent:main:main"


def row(id_: str, **fields: Any) -> InboxRecord:
    inbound = Inbound(id_, Address("test", "1"), "ann", "hi", run_id=id_)
    made = InboxRecord(id_, KEY, "test", "default", id_, "ann", "hi", 0, inbound=inbound)
    return replace(made, **fields)


def ids(runs: Sequence[Sequence[InboxRecord]]) -> list[list[str]]:
    return [[one.id for one in rows] for rows in runs]


def test_recovery_plan_keeps_arrival_order() -> None:
    assert ids(plan_recovery([row("a"), row("b")], 0).runs) == [["a"], ["b"]]


def test_recovery_plan_groups_messages_by_run() -> None:
    rows = [row("steered", run="main"), row("main", run="main"), row("other")]
    assert ids(plan_recovery(rows, 0).runs) == [["main", "steered"], ["other"]]


def test_recovery_plan_puts_started_runs_first() -> None:
    rows = [row("new"), row("begun", entry="e1")]
    assert ids(plan_recovery(rows, 0).runs) == [["begun"], ["new"]]


def test_recovery_plan_parks_message_started_too_often() -> None:
    found = plan_recovery([row("a", attempts=MAX_ATTEMPTS), row("b", attempts=MAX_ATTEMPTS - 1)], 0)
    assert ids(found.runs) == [["b"]] and [one.id for one, _ in found.parked] == ["a"]


def test_recovery_plan_parks_unstarted_day_old_message() -> None:
    rows = [row("old"), row("begun", attempts=1)]
    found = plan_recovery(rows, MAX_AGE_MS + 1)
    assert ids(found.runs) == [["begun"]] and found.parked[0][0].id == "old"


async def test_recover_logs_one_summary_line(caplog: pytest.LogCaptureFixture) -> None:
    clock, begun = FakeClock(), list[list[str]]()

    def begin(_key: str, rows: Sequence[InboxRecord]) -> int:
        begun.append([one.id for one in rows])
        return len(begun)

    with caplog.at_level(logging.INFO):
        store = MemoryStore()
        now_ms, journal = clock.now_ms(), store.journal
        for name, at_ms in (("old", now_ms - MAX_AGE_MS - 1), ("new", now_ms)):
            inbound = Inbound(name, Address("test", "1"), "ann", "hi", run_id=name)
            await journal.accept(KEY, inbound, at_ms=at_ms)
        assert await recover(journal, clock, begin, begin, lambda _record, _name, _why: ()) == [1]
        (parked,) = await journal.inbox_records("parked")
        assert parked.id == "old" and "day" in parked.why and parked.inbound is not None
    assert begun == [["new"]]
    assert "0 runs go on, 1 messages are begun, 1 parked" in caplog.text
