"""SessionControl: accept, submit, stop, reset and recover messages of sessions."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from homarus.config.paths import Paths
from homarus.config.schema import Config
from homarus.core.errors import DiskFullError, UnavailableError, UnknownNameError
from homarus.core.lanes import Lanes
from homarus.core.message import Address, Inbound, user_message
from homarus.core.tasks import task_group
from homarus.plugins.hook_runner import Hooks
from homarus.plugins.values import HookContext
from homarus.providers.model_router import ModelRouter
from homarus.sessions import control
from homarus.sessions.control import (
    ABORTED,
    RETRY_S,
    InterpretedMessage,
    SessionControl,
    SessionServices,
    as_plain_message,
)
from homarus.sessions.session import SessionRepository
from homarus.store.journal import InboxRecord, Lease, OutboxRecord
from homarus.testing.clock import FakeClock
from homarus.testing.memory_store import MemoryStore
from tests.waiting import settle

KEY, OTHER = "agent:main:main", "agent:main:other"


def message(name: str) -> Inbound:
    return Inbound(name, Address("test", "1"), "ann", f"text of {name}", run_id=name)


class FakeAgent:
    """The agent of every session."""

    def __init__(self, workspace: Path) -> None:
        self.id, self.workspace = "main", workspace
        self.model: str | None = "mock/mock-1"
        self.fallbacks: tuple[str, ...] = ()


class Harness:
    """A SessionControl with runs that last until `go` is set."""

    def __init__(
        self, group: asyncio.TaskGroup, *, commands: bool = False, **queue: object
    ) -> None:
        self.store, self.clock, self.lanes = MemoryStore(), FakeClock(), Lanes()
        self.go, self.started, self.wakes = asyncio.Event(), list[list[str]](), 0
        self.active: dict[str, str] = {}  # session key → run id
        self.stopped_by: list[tuple[str | None, str]] = []
        self.can_stop = False
        # The files that are being fetched, by the message that waits for them.
        self.files: dict[str, asyncio.Future[Sequence[InboxRecord]]] = {}
        config: dict[str, object] = {"messages": {"queue": queue}}
        self.config = Config.model_validate(config)
        paths = Paths.find({"HOME": "/nowhere"})
        self.control: SessionControl[str] = SessionControl(
            SessionServices(
                repository=SessionRepository(self.store, self.clock),
                store=self.store,
                paths=paths,
                clock=self.clock,
                group=group,
                lanes=self.lanes,
                hooks=Hooks(),
                get_config=lambda: self.config,
                get_models=lambda: ModelRouter(self.config, {}, paths, self.clock),
                get_agent=lambda _agent: FakeAgent(paths.state),
                start_run=self.start,
                stop_run=self.stop,
                mark_stopped_by=lambda _key, run, by: self.stopped_by.append((run, by)),
                active_ids=lambda key: tuple(
                    run for at, run in self.active.items() if key in (None, at)
                ),
                build_reply=lambda to, run, text: [
                    OutboxRecord(f"{run}:0", run, to.address, text, 0, 10)
                ],
                on_enqueued=self.wake,
                interpret=self.interpret if commands else as_plain_message,
                complete_files=self.complete_files,
            )
        )

    def mute(self) -> None:
        """Deny replies to every chat."""
        self.config = Config.model_validate(
            {
                "messages": self.config.model_dump(by_alias=True, exclude_unset=True)["messages"],
                "session": {"sendPolicy": {"default": "deny"}},
            }
        )

    def stop(self, key: str, run_id: str | None) -> tuple[str, ...]:
        active = self.active.get(key)
        if active is None or run_id not in (None, active) or not self.can_stop:
            return ()
        self.go.set()
        return (active,)

    def interpret(self, _key: str, record: InboxRecord) -> InterpretedMessage[str]:
        """Answer `obey` at once, leave `then` for a run, raise a bug for `break`."""
        started_record = replace(record, run=record.id, attempts=1)

        async def obey() -> str | InboxRecord:
            if record.id == "break":
                raise ZeroDivisionError
            return started_record if record.id == "then" else f"obeyed {record.id}"

        is_command = record.id in {"obey", "obey2", "then", "break"}
        return InterpretedMessage(record, execute=obey if is_command else None)

    def complete_files(
        self, records: Sequence[InboxRecord]
    ) -> "asyncio.Future[Sequence[InboxRecord]] | None":
        return next((self.files[one.id] for one in records if one.id in self.files), None)

    def wake(self) -> None:
        self.wakes += 1

    async def start(self, key: str, records: Sequence[InboxRecord], _text: str) -> str:
        self.started.append([record.id for record in records])
        self.active[key] = records[0].id
        async with self.lanes.enter(f"session:{key}"):
            await self.go.wait()
        del self.active[key]
        return "done"

    async def submit(self, name: str) -> asyncio.Future[str]:
        return self.control.submit(KEY, (await self.control.accept(KEY, message(name))).record)


def run(
    body: Callable[[Harness], Awaitable[None]], *, commands: bool = False, **rules: object
) -> None:
    async def main() -> None:
        async with asyncio.timeout(60), task_group() as group:
            await body(Harness(group, commands=commands, **rules))

    asyncio.run(main())


def test_submit_over_cap_is_reported_to_its_sender() -> None:
    async def body(harness: Harness) -> None:
        first = await harness.submit("a")
        await harness.submit("b")
        refused = await harness.submit("c")
        await asyncio.wait([refused])
        found = await harness.store.journal.inbox_record("c")
        assert found and found.state == "reported" and "queue cap 1" in found.why
        (parcel,) = await harness.store.journal.outbox_records()
        assert "text of c" in parcel.text and harness.wakes
        harness.control.close()
        harness.go.set()
        assert await first == "done"

    run(body, cap=1, drop="new", mode="followup")


def test_submit_over_cap_in_muted_chat_sends_no_report() -> None:
    async def body(harness: Harness) -> None:
        harness.mute()
        await harness.submit("a")
        await harness.submit("b")
        await asyncio.wait([await harness.submit("c")])
        found = await harness.store.journal.inbox_record("c")
        assert found and found.state == "reported" and "queue cap 1" in found.why
        assert await harness.store.journal.outbox_records() == []
        harness.control.close()
        harness.go.set()

    run(body, cap=1, drop="new", mode="followup")


def test_stop_queued_message_settles_it_without_a_reply() -> None:
    async def body(harness: Harness) -> None:
        await harness.submit("a")
        waiting = await harness.submit("b")
        assert harness.control.stop_now(KEY, "b") == ("b",)
        await asyncio.wait([waiting])
        await settle(50)
        found = await harness.store.journal.inbox_record("b")
        assert found and (found.state, found.why) == ("reported", ABORTED)
        assert await harness.store.journal.outbox_records() == []
        harness.go.set()

    run(body, mode="followup")


def test_stop_retried_message_in_queue_settles_it() -> None:
    async def body(harness: Harness) -> None:
        await harness.submit("a")
        journal = harness.store.journal
        parked = await journal.accept(KEY, replace(message("a"), text="other words"), at_ms=1)
        assert parked.kind == "conflict" and await journal.retry(parked.record.id, at_ms=2)
        again = await journal.inbox_record(parked.record.id)
        assert again
        waiting = harness.control.submit(KEY, again)
        assert harness.control.stop_now(KEY, again.id) == (again.id,)
        await asyncio.wait([waiting])
        await settle(50)
        found = await journal.inbox_record(again.id)
        assert found and (found.state, found.why) == ("reported", ABORTED)
        harness.go.set()

    run(body, mode="followup")


def test_stop_started_message_does_not_wait_for_session_lease() -> None:
    async def body(harness: Harness) -> None:
        first, journal = await harness.submit("a"), harness.store.journal
        rest = await harness.submit("then")
        async with journal.lease(f"session:{KEY}"):  # as a live run has
            await settle(50)
            assert harness.control.stop_now(KEY, "then") == ("then",)
            await asyncio.wait([rest])
            await settle(50)
            assert [record.id for record in await journal.inbox_records("reported")] == ["then"]
        harness.go.set()
        assert await first == "done"

    run(body, commands=True, mode="followup")


def test_stop_when_journal_fails_leaves_message_open(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def body(harness: Harness) -> None:
        first = await harness.submit("a")
        waiting = await harness.submit("b")

        def refuse() -> object:
            raise DiskFullError("no room")

        monkeypatch.setattr(harness.store, "transaction", refuse)
        assert harness.control.stop_now(KEY, "b") == ("b",)
        await asyncio.wait([waiting])
        await settle(50)
        harness.go.set()
        assert await first == "done"
        found = await harness.store.journal.inbox_record("b")
        assert found and found.state == "accepted", "the next start takes it up"

    run(body, mode="followup")
    assert "no room" in caplog.text


def test_command_future_cancelled_by_caller_breaks_nothing() -> None:
    async def body(harness: Harness) -> None:
        for name in ("obey", "break"):
            (await harness.submit(name)).cancel()
            await settle(50)
        assert await (await harness.submit("obey2")) == "obeyed obey2"

    run(body, commands=True)


def test_recover_accepted_message_starts_a_run() -> None:
    async def body(harness: Harness) -> None:
        await harness.store.journal.accept(KEY, message("old"), at_ms=harness.clock.now_ms())
        ((record, outcome),) = await harness.control.recover()
        harness.go.set()
        assert (record.id, await outcome, harness.started) == ("old", "done", [["old"]])

    run(body)


def test_recover_message_without_its_files_runs_when_they_are_here() -> None:
    async def body(harness: Harness) -> None:
        harness.files["old"] = asyncio.get_running_loop().create_future()
        for name in ("old", "other"):
            await harness.store.journal.accept(KEY, message(name), at_ms=harness.clock.now_ms())
        ((record, outcome), _) = await harness.control.recover()
        harness.go.set()
        await settle(50)
        assert (record.id, harness.started) == ("old", [["other"]]) and not outcome.done()
        harness.files["old"].set_result([replace(record, preview="with its file")])
        assert (await outcome, harness.started[1:]) == ("done", [["old"]])

    run(body)


def test_recover_message_without_its_files_stays_when_program_ends() -> None:
    async def body(harness: Harness) -> None:
        harness.files["old"] = asyncio.get_running_loop().create_future()
        await harness.store.journal.accept(KEY, message("old"), at_ms=harness.clock.now_ms())
        ((_, outcome),) = await harness.control.recover()
        harness.files["old"].cancel()
        await asyncio.wait([outcome])
        assert outcome.cancelled() and not harness.started
        (record,) = await harness.store.journal.inbox_records("accepted")
        assert record.id == "old"

    run(body)


def test_submit_stored_waits_for_files_of_message() -> None:
    async def body(harness: Harness) -> None:
        harness.files["old"] = asyncio.get_running_loop().create_future()
        record = (await harness.control.accept(KEY, message("old"))).record
        plain = (await harness.control.accept(KEY, message("plain"))).record
        outcome = harness.control.submit_stored(KEY, record)
        harness.go.set()
        assert await harness.control.submit_stored(KEY, plain) == "done"
        assert not outcome.done()
        harness.files["old"].set_result([record])
        assert await outcome == "done"

    run(body)


def test_command_during_run_executes_and_queues_the_rest() -> None:
    async def body(harness: Harness) -> None:
        await harness.submit("live")
        await asyncio.sleep(0)
        assert await (await harness.submit("obey")) == "obeyed obey"
        rest = await harness.submit("then")
        harness.go.set()
        while not rest.done():
            await harness.clock.advance(2)
        assert harness.started == [["live"], ["then"]] and harness.control.queue_depth(KEY) == 0

    run(body, commands=True)


def test_command_that_raises_fails_only_its_future() -> None:
    async def body(harness: Harness) -> None:
        broken = await harness.submit("break")
        await asyncio.wait([broken])
        assert isinstance(broken.exception(), ZeroDivisionError)
        assert await (await harness.submit("obey")) == "obeyed obey"

    run(body, commands=True)


def test_command_after_close_stays_in_the_journal() -> None:
    async def body(harness: Harness) -> None:
        harness.control.close()
        assert (await harness.submit("obey")).cancelled()
        (record,) = await harness.store.journal.inbox_records("accepted")
        assert record.id == "obey"

    run(body, commands=True)


def test_recover_started_run_is_not_executed_as_command() -> None:
    async def body(harness: Harness) -> None:
        journal = harness.store.journal
        for name in ("obey", "then"):
            record = (await harness.control.accept(KEY, message(name))).record
            async with (
                journal.lease(f"session:{KEY}") as lease,
                journal.transaction() as transaction,
            ):
                entry = "e1" if name == "then" else ""
                transaction.mark_running(
                    [record.id], lease, run=record.id, session_id="s", entry=entry
                )
        harness.go.set()
        found = await harness.control.recover()
        assert [await promise for _, promise in found] == ["done", "obeyed obey"]
        assert harness.started == [["then"]]

    run(body, commands=True)


def test_retry_unsettled_after_delay_resumes_open_messages() -> None:
    async def body(harness: Harness) -> None:
        record = (await harness.control.accept(KEY, message("a"))).record
        settled = (await harness.control.accept(KEY, message("b"))).record
        async with harness.store.journal.transaction() as transaction:
            transaction.settle([settled.id], Lease("", 0), "silent", at_ms=1)
        harness.control.retry_unsettled([record.id, settled.id, "nobody"])
        await settle(50)
        assert harness.started == []
        await harness.clock.advance(RETRY_S)
        await settle(50)
        assert harness.started == [["a"]]
        harness.control.retry_unsettled([record.id])
        harness.control.close()  # nothing is waited for any more
        harness.go.set()

    run(body)


def test_stop_of_active_run_records_who_stopped_it() -> None:
    async def body(harness: Harness) -> None:
        harness.can_stop = True
        outcome = await harness.submit("a")
        await settle(50)
        assert harness.control.is_busy(KEY) and harness.control.active_runs() == ("a",)
        assert await harness.control.stop_and_wait(KEY, by="rpc") == ("a",)
        assert harness.stopped_by[0] == (None, "rpc") and await outcome == "done"
        assert not harness.control.is_busy(KEY)

    run(body)


def test_reset_of_used_session_stops_run_and_starts_transcript() -> None:
    async def body(harness: Harness) -> None:
        harness.can_stop = True
        session = await harness.control.load(KEY)
        await session.append(user_message("hi"))
        before = session.session_id
        outcome = await harness.submit("a")
        await settle(50)
        reset = await harness.control.reset(
            KEY, HookContext(session_key=KEY), by="rpc", only_used=True
        )
        assert outcome.done() and reset.session_id != before and reset.messages == []
        again = await harness.control.reset(KEY, HookContext(session_key=KEY), only_used=True)
        assert again.session_id == reset.session_id, "there was nothing to reset"

    run(body)


def test_reset_while_run_does_not_stop_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "STOP_TIMEOUT_S", 0.01)

    async def body(harness: Harness) -> None:
        session = await harness.control.load(KEY)
        await session.append(user_message("hi"))
        await harness.submit("a")
        await settle(50)
        with pytest.raises(UnavailableError, match="did not stop yet"):
            await harness.control.reset(KEY, HookContext(session_key=KEY))
        async with harness.lanes.enter(f"session:{OTHER}"):
            with pytest.raises(UnavailableError, match="did not stop yet"):
                await harness.control.reset(OTHER, HookContext(session_key=OTHER))
        assert (await harness.control.load(KEY)).session_id == session.session_id
        harness.go.set()

    run(body)


def test_inject_adds_assistant_message_to_transcript() -> None:
    async def body(harness: Harness) -> None:
        entry_id, message = await harness.control.inject(KEY, "note")
        session = await harness.control.load(KEY)
        assert session.leaf == entry_id and session.messages == [message]

    run(body)


def test_ask_waits_for_the_outcome_of_its_run() -> None:
    async def body(harness: Harness) -> None:
        harness.go.set()
        assert await harness.control.ask(KEY, message("a")) == "done"

    run(body)


def test_resolve_key_defaults_to_main_session_of_agent() -> None:
    async def body(harness: Harness) -> None:
        assert harness.control.resolve_key() == KEY
        assert harness.control.resolve_key("Notes") == "agent:main:notes"
        with pytest.raises(UnknownNameError):
            harness.control.resolve_key(agent="nobody")

    run(body)
