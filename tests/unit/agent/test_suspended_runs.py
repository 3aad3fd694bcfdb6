"""Runs that wait for an approval: suspended without a lane, resumed by the answer."""

from pathlib import Path

import pytest

from homarus.core.errors import ApprovalError
from homarus.plugins.values import HookContext
from homarus.policy.approvals import ApprovalDecision
from homarus.sessions.backlog import list_backlog
from homarus.sessions.transcript import compaction
from homarus.testing.clock import FakeClock
from homarus.testing.fakes import assistant_message
from homarus.testing.memory_store import MemoryStore
from tests.approval_harness import OWNER
from tests.unit.agent.suspended_harness import KEY, call, open_program
from tests.waiting import settle, until


async def test_call_answered_in_time_runs_in_the_same_attempt(tmp_path: Path) -> None:
    script = (assistant_message(call("act")), assistant_message("done"))
    async with open_program(tmp_path, *script) as program:
        outcome = await program.send("please")
        record = await program.pending()
        assert not program.acted and program.lanes.holders("main") == ()
        await program.approvals.resolve(record.id[:8], "allow-once", OWNER)
        assert (await outcome).text == "done" and program.acted == {"it": 1}
        stored = await program.approvals.get(record.id)
        assert stored.used_ms and stored.resolved_by == "owner"
        row = await program.store.journal.inbox_record("m1")
        assert row and row.attempts == 1
    assert not program.model.problems


async def test_unanswered_call_suspends_and_the_answer_resumes_it(tmp_path: Path) -> None:
    script = (assistant_message(call("act")), assistant_message("done"))
    async with open_program(tmp_path, *script) as program:
        outcome = await program.send("please")
        record = await program.suspended()
        assert (await program.states()) == {"m1": "suspended"} and not outcome.done()
        assert not program.control.is_busy(KEY) and await program.texts() == []
        await program.approvals.resolve(record.id, "allow-once", OWNER)
        assert (await outcome).text == "done" and program.acted == {"it": 1}
        assert (await program.states()) == {"m1": "answered"}
        assert await program.texts() == ["done"]
        row = await program.store.journal.inbox_record("m1")
        assert row and row.attempts == 1
    assert not program.model.problems


@pytest.mark.parametrize("decision", ["allow-once", "deny"])
async def test_suspended_run_resumes_after_other_turns(
    tmp_path: Path, decision: ApprovalDecision
) -> None:
    script = (
        assistant_message(call("act")),
        assistant_message("hello"),
        assistant_message("it is done"),
        assistant_message("later"),
    )
    async with open_program(tmp_path, *script) as program:
        first = await program.send("please")
        record = await program.suspended()
        assert (await (await program.send("hi"))).text == "hello"
        waiting = program.model.requests[1].messages
        assert f"waits for approval {record.id}" in waiting[2].text or any(
            record.id in str(message) for message in waiting
        )
        await program.approvals.resolve(record.id, decision, OWNER)
        assert (await first).text == "it is done"
        assert program.acted == ({"it": 1} if decision == "allow-once" else {})
        last = program.model.requests[2].messages
        result = "did it" if decision == "allow-once" else "denied it"
        assert result in str(last[2]) and last[-1].role == "user" and "please" in last[-1].text
        assert (await (await program.send("and now?"))).text == "later"
        assert (await program.states()) == {"m1": "answered", "m2": "answered", "m3": "answered"}
    assert not program.model.problems


async def test_restart_keeps_the_approval_and_executes_nothing(tmp_path: Path) -> None:
    store, clock = MemoryStore(), FakeClock()
    async with open_program(
        tmp_path, assistant_message(call("act")), store=store, clock=clock
    ) as program:
        await program.send("please")
        record = await program.suspended()
    async with open_program(
        tmp_path, assistant_message("done"), store=store, clock=clock
    ) as program:
        await settle()
        assert not program.acted and program.control.has_suspended(KEY)
        await program.approvals.resolve(record.id, "allow-once", OWNER)
        await until(lambda: not program.control.has_suspended(KEY))
        await until(lambda: program.acted == {"it": 1})
        while (await program.states()) != {"m1": "answered"}:
            await settle()
    assert not program.model.problems


async def test_answer_before_a_restart_runs_after_it(tmp_path: Path) -> None:
    store, clock = MemoryStore(), FakeClock()
    async with open_program(
        tmp_path, assistant_message(call("act")), store=store, clock=clock
    ) as program:
        await program.send("please")
        record = await program.suspended()
        await store.journal.resolve_approval(
            record.id, "allowed", decision="allow-once", by="x", at_ms=clock.now_ms()
        )
    async with open_program(
        tmp_path, assistant_message("done"), store=store, clock=clock
    ) as program:
        while (await program.states()) != {"m1": "answered"}:
            await settle()
        assert program.acted == {"it": 1}


async def test_expired_approval_notifies_and_answers_the_message(tmp_path: Path) -> None:
    script = (assistant_message(call("act")), assistant_message("I could not."))
    async with open_program(tmp_path, *script) as program:
        outcome = await program.send("please")
        record = await program.suspended()
        await program.clock.advance(86_400)
        assert (await outcome).text == "I could not." and not program.acted
        assert "expired" in str(program.model.requests[1].messages[-1])
        notice, answer = await program.texts()
        assert record.id[:8] in notice and "expired" in notice and answer == "I could not."
        with pytest.raises(ApprovalError, match="has expired"):
            await program.approvals.resolve(record.id, "allow-once", OWNER)
        await settle()
        assert program.clock.sleepers == 0


async def test_stop_cancels_a_suspended_run_and_its_approval(tmp_path: Path) -> None:
    async with open_program(tmp_path, assistant_message(call("act"))) as program:
        outcome = await program.send("please")
        record = await program.suspended()
        assert await program.control.stop_and_wait(KEY) == ("m1",)
        assert outcome.cancelled()
        while (await program.states()) != {"m1": "reported"}:
            await settle()
        with pytest.raises(ApprovalError, match="was cancelled"):
            await program.approvals.resolve(record.id, "allow-once", OWNER)
        await settle()
        assert not program.acted and await program.texts() == []


async def test_stop_during_the_wait_cancels_the_approval(tmp_path: Path) -> None:
    async with open_program(tmp_path, assistant_message(call("act"))) as program:
        await program.send("please")
        record = await program.pending()
        await program.control.stop_and_wait(KEY)
        assert (await program.approvals.get(record.id)).state == "cancelled"
        assert (await program.states()) == {"m1": "reported"}
        assert not await program.approvals.list_pending()


async def test_other_calls_of_the_group_end_and_serial_ones_wait(tmp_path: Path) -> None:
    calls = (call("act", "c1", "a"), call("note", "c2", "b"), call("last", "c3", "c"))
    script = (assistant_message(*calls), assistant_message("done"))
    async with open_program(tmp_path, *script) as program:
        outcome = await program.send("please")
        record = await program.suspended()
        assert program.acted == {"b": 1}
        await program.approvals.resolve(record.id, "allow-once", OWNER)
        assert (await outcome).text == "done"
        assert program.acted == {"a": 1, "b": 1, "c": 1}
    assert not program.model.problems


async def test_late_serial_calls_run_after_other_turns(tmp_path: Path) -> None:
    calls = (call("act", "c1", "a"), call("last", "c2", "b"))
    script = (assistant_message(*calls), assistant_message("hi"), assistant_message("done"))
    async with open_program(tmp_path, *script) as program:
        outcome = await program.send("please")
        record = await program.suspended()
        await (await program.send("hi"))
        await program.approvals.resolve(record.id, "allow-once", OWNER)
        assert (await outcome).text == "done" and program.acted == {"a": 1, "b": 1}
    assert not program.model.problems


async def test_two_calls_are_answered_one_after_the_other(tmp_path: Path) -> None:
    calls = (call("act", "c1", "a"), call("act", "c2", "b"))
    script = (assistant_message(*calls), assistant_message("done"))
    async with open_program(tmp_path, *script) as program:
        outcome = await program.send("please")
        await program.suspended()
        first, second = await program.approvals.list_pending()
        await program.approvals.resolve(first.id, "allow-once", OWNER)
        await until(lambda: program.acted == {"a": 1})
        await program.suspended()
        assert len(await program.store.journal.approvals()) == 2
        await program.approvals.resolve(second.id, "deny", OWNER)
        assert (await outcome).text == "done" and program.acted == {"a": 1}
    assert not program.model.problems


async def test_reset_cancels_a_suspended_run_and_its_approval(tmp_path: Path) -> None:
    async with open_program(tmp_path, assistant_message(call("act"))) as program:
        await program.send("please")
        record = await program.suspended()
        old_id = (await program.control.load(KEY)).session_id
        session = await program.control.reset(KEY, HookContext())
        while (await program.states()) != {"m1": "reported"}:
            await settle()
        assert session.session_id != old_id and not program.control.has_suspended(KEY)
        assert (await program.approvals.get(record.id)).state == "cancelled"


async def test_inbox_list_shows_suspended_messages(tmp_path: Path) -> None:
    async with open_program(tmp_path, assistant_message(call("act"))) as program:
        await program.send("please")
        await program.suspended()
        backlog = await list_backlog(program.store.journal, program.clock.now_ms())
        assert [one["state"] for one in backlog["messages"]] == ["suspended"]
        stuck = await list_backlog(program.store.journal, program.clock.now_ms(), stuck=True)
        assert stuck["messages"] == []


async def test_answer_while_the_run_suspends_is_not_lost(tmp_path: Path) -> None:
    script = (assistant_message(call("act")), assistant_message("done"))
    async with open_program(tmp_path, *script) as program:
        outcome = await program.send("please")
        record = await program.pending()
        await settle()
        # The wait ends and the answer arrives in the same turn of the event loop.
        for _deadline, _order, waking in program.clock._sleepers:
            if not waking.done() and _deadline < 60:
                waking.set_result(None)
        await program.approvals.resolve(record.id, "allow-once", OWNER)
        assert (await outcome).text == "done" and program.acted == {"it": 1}


async def test_run_whose_call_was_summarised_gets_the_result_in_its_note(tmp_path: Path) -> None:
    script = (assistant_message(call("act")), assistant_message("hi"), assistant_message("done"))
    async with open_program(tmp_path, *script) as program:
        first = await program.send("please")
        record = await program.suspended()
        await (await program.send("hello"))
        session = await program.control.load(KEY)
        path = await session.path()
        last = [entry.id for entry in path if entry.type == "message"][-1]
        await session.apply_compaction(compaction("short", last, 10), {}, lambda *_writes: None)
        await program.approvals.resolve(record.id, "allow-once", OWNER)
        assert (await first).text == "done" and program.acted == {"it": 1}
        note = program.model.requests[2].messages[-1]
        assert note.role == "user" and "did it" in note.text and "please" in note.text
    assert not program.model.problems
