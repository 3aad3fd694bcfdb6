import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from homarus.agent.reply.error_text import error_text
from homarus.agent.reply.wording import EMPTY
from homarus.agent.run import RunOutcome
from homarus.agent.run_journal import RunJournal
from homarus.config import schema
from homarus.core.errors import (
    LeaseLostError,
    OverloadedError,
    RunCrashedError,
    RunStuckError,
    ToolLoopError,
    UnknownNameError,
)
from homarus.core.event import RunEnded, TextAdded
from homarus.core.message import (
    NO_EXTRAS,
    Address,
    Extras,
    Inbound,
    Message,
    Outbound,
    RunOptions,
    ToolCall,
    ToolResult,
)
from homarus.memory.view import audience_of, folder_of
from homarus.plugins.hooks import hook
from homarus.plugins.values import Refusal
from homarus.providers.base import Delta, ModelRequest, Provider, TextDelta
from homarus.providers.catalog import ModelInfo
from homarus.providers.model_router import ModelSelection
from homarus.store.journal import InboxRecord, Lease, OutboxRecord
from homarus.testing.fakes import Hang, ScriptedProvider, assistant_message
from tests.unit.agent.harness import KEY, Harness, make_interrupted_record, message


def test_run_answer_is_saved_and_becomes_outcome(tmp_path: Path) -> None:
    harness = Harness(tmp_path, assistant_message("hello"))
    outcome = harness.run(message())
    assert (outcome.status, outcome.text, outcome.run_id) == ("answered", "hello", "r1")
    assert harness.messages() == [("user", "hi"), ("assistant", "hello")]
    assert harness.ended == [RunEnded()]
    assert (harness.record().state, harness.replies(), harness.enqueued) == (
        "answered",
        ["hello"],
        1,
    )


def test_run_silent_answer_is_settled_without_outbox_record(tmp_path: Path) -> None:
    harness = Harness(tmp_path, assistant_message("NO_REPLY"))
    harness.run(message())
    assert (harness.record().state, harness.replies()) == ("silent", [])


def test_run_empty_answer_sends_notice(tmp_path: Path) -> None:
    harness = Harness(tmp_path, assistant_message(""))
    harness.run(message())
    assert (harness.record().state, harness.replies()) == ("answered", [EMPTY])


def test_run_tool_works_in_agent_workspace(tmp_path: Path) -> None:
    call = ToolCall("c", "write", {"path": "a.txt", "content": "x"})
    harness = Harness(tmp_path, assistant_message(call), assistant_message("done"))
    assert harness.run(message()).text == "done"
    assert (tmp_path / "a.txt").read_text() == "x"


def test_run_provider_error_becomes_reported_outcome(tmp_path: Path) -> None:
    harness = Harness(tmp_path, OverloadedError("busy", fix="wait"))
    outcome = harness.run(message())
    assert outcome.status == "failed" and isinstance(outcome.error, OverloadedError)
    assert harness.messages()[0] == ("user", "hi")
    assert harness.ended[0].error == "busy (wait)"
    assert (harness.record().state, harness.record().why) == ("reported", "busy (wait)")
    assert harness.replies() == [error_text(outcome.error)]


def test_run_stopped_saves_partial_answer(tmp_path: Path) -> None:
    harness = Harness(tmp_path, Hang())
    outcome = harness.run(message(), meanwhile=lambda: harness.runs.stop(KEY, "r1"))
    assert outcome.status == "aborted" and harness.ended[0].aborted
    assert harness.messages()[-1] == ("assistant", "I was saying")
    assert harness.runs.active_ids() == ()
    assert (harness.record().state, harness.record().why, harness.replies()) == (
        "reported",
        "aborted",
        [],
    )


def test_run_deadline_of_message_ends_run(tmp_path: Path) -> None:
    harness = Harness(tmp_path, Hang())
    outcome = harness.run(message(options=RunOptions(timeout_s=0.02)))
    assert outcome.error is not None and "deadline" in outcome.error.message


def test_run_unexpected_exception_becomes_reported_outcome(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(ScriptedProvider):
        async def stream(self, request: ModelRequest) -> AsyncIterator[Delta | Message]:
            for number in (0,):
                yield TextDelta(str(1 / number))

    harness = Harness(tmp_path)
    harness.provider = Broken([])
    outcome = harness.run(message())
    assert isinstance(outcome.error, RunCrashedError) and "ZeroDivisionError" in caplog.text
    assert harness.record().state == "reported" and harness.replies() == [error_text(outcome.error)]


def test_run_cancelled_by_shutdown_is_resumed_later(tmp_path: Path) -> None:
    harness = Harness(tmp_path, Hang(), assistant_message("whole"))

    async def main() -> None:
        record = await harness.accept(message())
        with harness.bus.subscribe() as events:
            async with asyncio.TaskGroup() as group:
                task = group.create_task(harness.runs.start(KEY, [record]))
                async for event in events:
                    if isinstance(event.data, TextAdded):
                        break
                task.cancel()
        (left,) = await harness.store.journal.inbox_records("running")
        assert left.entry and left.attempts == 1
        await harness.runs.start(KEY, [left])

    asyncio.run(main())
    assert harness.messages() == [("user", "hi"), ("assistant", "whole")]
    assert (harness.record().state, harness.record().attempts) == ("answered", 2)


def test_run_resumed_runs_call_that_was_not_started(tmp_path: Path) -> None:
    harness = Harness(tmp_path, assistant_message("done"))
    call = ToolCall("c", "write", {"path": "a.txt", "content": "x"})
    record = make_interrupted_record(harness, assistant_message(call))
    outcome = asyncio.run(harness.runs.start(KEY, [record]))
    assert outcome.text == "done" and (tmp_path / "a.txt").read_text() == "x"
    assert [role for role, _ in harness.messages()] == ["user", "assistant", "tool", "assistant"]


def test_run_resumed_does_not_repeat_started_call(tmp_path: Path) -> None:
    harness = Harness(tmp_path, assistant_message("done"))
    call = ToolCall("c", "write", {"path": "a.txt", "content": "x"})
    record = make_interrupted_record(harness, assistant_message(call), started=["c"])
    asyncio.run(harness.runs.start(KEY, [record]))
    assert not (tmp_path / "a.txt").exists()
    assert isinstance(harness.provider, ScriptedProvider)
    (steering,) = harness.provider.requests[0].messages[-1].parts
    assert isinstance(steering, ToolResult) and "interrupted" in steering.text
    assert asyncio.run(harness.store.journal.open_calls("r1")) == frozenset()


def test_run_started_call_is_known_to_retry_of_merged_message(
    tmp_path: Path,
) -> None:
    harness = Harness(tmp_path, assistant_message("done"))
    call = ToolCall("c", "write", {"path": "a.txt", "content": "x"})
    first = make_interrupted_record(harness, assistant_message(call), started=["c"])

    async def part() -> tuple[InboxRecord, Lease]:
        """The run answered two messages; the first is parked, then discarded."""
        journal = harness.store.journal
        second = await harness.accept(replace(message("more"), id="2", run_id="r2"))
        async with journal.lease(f"session:{KEY}") as lease, journal.transaction() as transaction:
            place = {"session_id": first.session_id, "entry": first.entry}
            transaction.mark_running([first.id, second.id], lease, run=first.id, **place)
            transaction.settle([first.id], lease, "parked", at_ms=2)
        assert await journal.discard(first.id, at_ms=3, why="w")
        found = await journal.inbox_record(second.id)
        assert found is not None
        return found, lease

    record, lease = asyncio.run(part())
    journal = RunJournal(harness.services, [record], lease)

    async def die() -> None:
        """The run is resumed, and the program ends before it does anything."""
        session = await harness.sessions.load(KEY, "main")
        assert await journal.open_calls() == {"c"}
        assert (
            await session.resume_turn([record.entry], extra_writes=journal.mark_running(session))
            is not None
        )

    asyncio.run(die())
    asyncio.run(harness.runs.start(KEY, [harness.record("r2")]))
    assert not (tmp_path / "a.txt").exists()
    assert harness.record("r2").state == "answered"


def test_run_resumed_after_session_reset_reports_unavailable(tmp_path: Path) -> None:
    harness = Harness(tmp_path, assistant_message("never"))
    record = make_interrupted_record(harness)

    async def reset() -> None:
        await (await harness.sessions.load(KEY, "main")).reset()

    asyncio.run(reset())
    outcome = asyncio.run(harness.runs.start(KEY, [record]))
    assert outcome.error is not None and harness.record().state == "reported"


def test_run_steering_message_is_settled_with_run(tmp_path: Path) -> None:
    harness = Harness(tmp_path, assistant_message("first"), assistant_message("second"))

    async def main() -> None:
        record = await harness.accept(message())
        more = Inbound("2", Address("test", "1"), "ann", "and?", run_id="r2")
        harness.steering = [await harness.accept(more)]
        await harness.runs.start(KEY, [record])

    asyncio.run(main())
    assert harness.messages() == [
        ("user", "hi"),
        ("assistant", "first"),
        ("user", "and?"),
        ("assistant", "second"),
    ]
    records = [harness.record("r1"), harness.record("r2")]
    assert {record.state for record in records} == {"answered"} and {
        record.run for record in records
    } == {"r1"}
    assert records[0].reply == records[1].reply != "" and records[0].entry != records[1].entry
    assert harness.replies() == ["first", "second"]


def test_run_answer_is_sent_before_silent_steered_reply(tmp_path: Path) -> None:
    harness = Harness(tmp_path, assistant_message("at eight"), assistant_message("NO_REPLY"))

    async def main() -> None:
        record = await harness.accept(message())
        harness.steering = [await harness.accept(replace(message("thanks"), id="2", run_id="r2"))]
        await harness.runs.start(KEY, [record])

    asyncio.run(main())
    assert harness.replies() == ["at eight"]
    assert [harness.record(id_).state for id_ in ("r1", "r2")] == ["answered", "answered"]


def test_run_stopped_settles_unsaved_steering_message(tmp_path: Path) -> None:
    harness = Harness(tmp_path, assistant_message("first"), assistant_message("second"))

    def stop() -> None:
        harness.store.commit_s = 0.05  # the stop comes before the commit is done
        harness.runs.stop(KEY)

    async def main() -> RunOutcome:
        record = await harness.accept(message())
        harness.steering = [await harness.accept(replace(message("and?"), id="2", run_id="r2"))]
        harness.on_steered = stop
        return await harness.runs.start(KEY, [record])

    assert asyncio.run(main()).status == "aborted"
    assert [harness.record(id_).state for id_ in ("r1", "r2")] == ["reported", "reported"]
    assert harness.record("r2").run == "r1"


def test_run_settle_failure_calls_on_unsettled(tmp_path: Path) -> None:
    harness = Harness(tmp_path, assistant_message("first"), assistant_message("second"))

    async def main() -> None:
        record = await harness.accept(message())
        harness.store.fails = True
        await harness.runs.start(KEY, [record])

    asyncio.run(main())
    assert harness.unsettled == ["r1"] and harness.record().state == "accepted"
    harness.store.fails = False
    asyncio.run(harness.runs.start(KEY, [harness.record()]))
    assert harness.record().state == "answered" and harness.replies() == ["first"]


def test_run_calls_hooks_in_order(tmp_path: Path) -> None:
    seen: list[str] = []

    class Watcher:
        @hook
        def before_agent_start(self, prompt: str) -> str:
            return f"(asked: {prompt})"

        @hook
        def before_tool_call(self, call: ToolCall) -> Refusal | None:
            return Refusal("not today") if call.name == "write" else None

        @hook
        async def message_sending(self, outbound: Outbound) -> str:
            return outbound.text.upper()

        @hook
        def agent_end(self, error: str) -> None:
            seen.append(f"end {error}")

        @hook
        def message_received(self, inbound: Inbound) -> None:
            seen.append(inbound.text)

        @hook
        def session_start(self, session_id: str) -> None:
            seen.append("session" if session_id else "")

    call = ToolCall("c", "write", {"path": "a.txt", "content": "x"})
    harness = Harness(tmp_path, assistant_message(call), assistant_message("done"))
    harness.hooks.register(Watcher(), "watcher")
    assert harness.run(message()).status == "answered"
    assert not (tmp_path / "a.txt").exists() and harness.replies() == ["DONE"]
    assert harness.messages()[0] == ("user", "(asked: hi)\n\nhi")
    assert seen == ["hi", "session", "end "] and harness.hooks.failures == ()


def test_run_hook_refusing_one_block_keeps_the_others(tmp_path: Path) -> None:
    seen: list[str] = []

    class Censor:
        @hook
        def message_sending(self, outbound: Outbound) -> Refusal | None:
            seen.append(outbound.text)
            return Refusal("not this") if outbound.text == "a b" else None

    def build_reply(
        inbound: Inbound, run: str, text: str, first: int = 0, extras: Extras = NO_EXTRAS
    ) -> list[OutboxRecord]:
        parts = enumerate(text.split(), first)
        return [
            OutboxRecord(f"{run}:{at}", run, inbound.address, part, 0, 10) for at, part in parts
        ]

    harness = Harness(
        tmp_path, assistant_message("a b", ToolCall("c", "ls", {})), assistant_message("c d")
    )
    harness.replace_services(build_reply=build_reply)
    harness.hooks.register(Censor(), "censor")
    assert harness.run(message()).status == "answered"
    assert harness.replies() == ["c", "d"]
    assert seen == ["a b", "c d"]  # complete, before they are split


def test_run_stop_while_settling_has_no_effect(tmp_path: Path) -> None:
    class Stopper:
        @hook
        def message_sending(self) -> None:
            harness.runs.stop(KEY)

    harness = Harness(tmp_path, OverloadedError("busy"))
    harness.hooks.register(Stopper(), "stopper")
    outcome = harness.run(message())
    assert isinstance(outcome.error, OverloadedError) and harness.hooks.failures == ()
    assert harness.record().state == "reported" and harness.replies() == [error_text(outcome.error)]


def test_run_that_lost_its_lease_writes_nothing(tmp_path: Path) -> None:
    harness = Harness(tmp_path, assistant_message("late"))

    async def connect(selection: ModelSelection) -> tuple[Provider, ModelInfo]:
        """Another run settles the message while this one connects its model."""
        async with harness.store.journal.transaction() as transaction:
            transaction.settle(["r1"], Lease("", 2**62), "reported", at_ms=2, why="by another")
        return harness.provider, ModelInfo("p", "m")

    harness.replace_services(connect=connect)
    outcome = harness.run(message())
    assert isinstance(outcome.error, LeaseLostError)
    assert (harness.record().why, harness.messages(), harness.replies()) == ("by another", [], [])


def test_run_ignoring_cancellation_is_abandoned_and_frees_lane(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Deaf(ScriptedProvider):
        async def stream(self, request: ModelRequest) -> AsyncIterator[Delta | Message]:
            if self.requests:
                yield assistant_message("heard")
                return
            self.requests.append(request)
            for _ in range(2):
                with suppress(asyncio.CancelledError):
                    await asyncio.Event().wait()
            yield assistant_message("too late")

    harness = Harness(tmp_path)
    harness.provider = Deaf([])

    async def main() -> tuple[RunOutcome, RunOutcome]:
        first = await harness.accept(message(options=RunOptions(timeout_s=0.5)))
        again = Inbound("2", Address("test", "1"), "ann", "again", run_id="r2")
        second = await harness.accept(again)
        stuck = await harness.runs.start(KEY, [first])
        answered = await harness.runs.start(KEY, [second])
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()  # lets the abandoned task end
            await asyncio.wait([task])
        return stuck, answered

    stuck, answered = asyncio.run(main())
    assert isinstance(stuck.error, RunStuckError) and answered.status == "answered"
    assert harness.record().state == "reported" and "stream" in caplog.text
    assert ("assistant", "too late") not in harness.messages()


def test_run_model_option_overrides_session_and_agent(tmp_path: Path) -> None:
    harness = Harness(tmp_path, assistant_message("a"), assistant_message("b"))
    harness.run(message())
    harness.run(message(options=RunOptions(model="q/n")))
    assert [selection.ref for selection in harness.selections] == ["p/m", "q/n"]


def test_run_thinking_defaults_to_model_and_is_validated(tmp_path: Path) -> None:
    harness = Harness(tmp_path, assistant_message("a"))
    harness.run(message())
    assert isinstance(harness.provider, ScriptedProvider)
    assert harness.provider.requests[0].thinking == "low"
    assert isinstance(
        harness.run(message(options=RunOptions(thinking="odd"))).error, UnknownNameError
    )


def test_run_overflow_compacts_and_continues(tmp_path: Path) -> None:
    """The window is small: old turns are summarised before the request is sent."""
    long = "word " * 2_300
    harness = Harness(
        tmp_path,
        assistant_message("one"),
        assistant_message("notes of it"),
        assistant_message("two"),
        assistant_message("three"),
    )
    harness.window = 9_000
    harness.agent = replace(
        harness.agent,
        compaction=schema.CompactionConfig.model_validate({"memoryFlush": {"enabled": False}}),
    )
    for number, text in enumerate((f"the code is 4711. {long}", long, "and now?")):
        inbound = Inbound(str(number), Address("test", "1"), "ann", text, run_id=f"r{number}")
        outcome = harness.run(inbound)
        assert outcome.status == "answered", outcome.error
    assert outcome.text == "three"
    first = harness.messages()[0]
    assert first[0] == "user" and "4711" in first[1] and "notes of it" in first[1]
    assert isinstance(harness.provider, ScriptedProvider)
    assert [len(request.tools) > 0 for request in harness.provider.requests] == [
        True, False, True, True,
    ]  # fmt: skip


def test_run_memory_flush_is_hidden_and_precedes_compaction(
    tmp_path: Path,
) -> None:
    note = ToolCall("n", "write", {"path": "memory/today.md", "content": "the code is 4711"})
    harness = Harness(
        tmp_path,
        assistant_message("one"),
        assistant_message(note),
        assistant_message("NO_REPLY"),
        assistant_message("two"),
    )
    harness.window = 12_000
    words = "word " * 3_800
    for name, text in (("r1", words), ("r2", "and now?")):
        assert harness.run(Inbound(name, Address("t", "1"), "ann", text, run_id=name)).error is None
    assert (tmp_path / "memory/today.md").read_text() == "the code is 4711"
    assert [role for role, _ in harness.messages()] == ["user", "assistant", "user", "assistant"]
    assert harness.sessions.entry(KEY)["memoryFlushCompactionCount"] == 0


@pytest.mark.parametrize("key", [KEY, "agent:main:test:group:7"])
def test_run_memory_flush_uses_folder_of_session(tmp_path: Path, key: str) -> None:
    harness = Harness(
        tmp_path, assistant_message("one"), assistant_message("NO_REPLY"), assistant_message("two")
    )
    harness.key, harness.window = key, 12_000
    for name, text in (("r1", "word " * 3_800), ("r2", "and now?")):
        assert harness.run(Inbound(name, Address("t", "1"), "ann", text, run_id=name)).error is None
    assert isinstance(harness.provider, ScriptedProvider)
    asked = harness.provider.requests[1].messages[-1].text
    assert f" {folder_of(audience_of(key))}/20" in asked
    assert f"`## Session: {key.removeprefix('agent:main:')}`" in asked


def test_run_repeating_tool_calls_is_ended(tmp_path: Path) -> None:
    call = ToolCall("c", "read", {"path": "none.txt"})
    same = [assistant_message(replace(call, id=f"c{number}")) for number in range(40)]
    harness = Harness(tmp_path, *same)
    outcome = harness.run(message())
    assert isinstance(outcome.error, ToolLoopError)
    assert harness.record().state == "reported" and harness.replies() == [error_text(outcome.error)]


def test_run_every_model_call_leaves_usage_record(tmp_path: Path) -> None:
    call = ToolCall("c", "ls", {})
    harness = Harness(tmp_path, assistant_message(call), OverloadedError("busy"))
    harness.run(message())
    records = asyncio.run(harness.store.usage_records())
    assert [(record.run, record.session, record.provider, record.error) for record in records] == [
        ("r1", KEY, "scripted", ""),
        ("r1", KEY, "p", "busy"),
    ]
