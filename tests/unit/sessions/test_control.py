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

    def interpret(self, _key: str, row: InboxRecord) -> InterpretedMessage[str]:
        """Answer `obey` at once, leave `then` for a run, raise a bug for `break`."""
        begun = replace(row, run=row.id, attempts=1)

        async def obey() -> str | InboxRecord:
            if row.id == "break":
                raise ZeroDivisionError
            return begun if row.id == "then" else f"obeyed {row.id}"

        is_command = row.id in {"obey", "obey2", "then", "break"}
        return InterpretedMessage(row, execute=obey if is_command else None)

    def wake(self) -> None:
        self.wakes += 1

    async def start(self, key: str, rows: Sequence[InboxRecord], _text: str) -> str:
        self.started.append([row.id for row in rows])
        self.active[key] = rows[0].id
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
    async def body(it: Harness) -> None:
        first = await it.submit("a")
        await it.submit("b")
        refused = await it.submit("c")
        await asyncio.wait([refused])
        found = await it.store.journal.inbox_record("c")
        assert found and found.state == "reported" and "queue cap 1" in found.why
        (parcel,) = await it.store.journal.outbox_records()
        assert "text of c" in parcel.text and it.wakes
        it.control.close()
        it.go.set()
        assert await first == "done"

    run(body, cap=1, drop="new", mode="followup")


def test_submit_over_cap_in_muted_chat_sends_no_report() -> None:
    async def body(it: Harness) -> None:
        it.mute()
        await it.submit("a")
        await it.submit("b")
        await asyncio.wait([await it.submit("c")])
        found = await it.store.journal.inbox_record("c")
        assert found and found.state == "reported" and "queue cap 1" in found.why
        assert await it.store.journal.outbox_records() == []
        it.control.close()
        it.go.set()

    run(body, cap=1, drop="new", mode="followup")


def test_stop_queued_message_settles_it_without_a_reply() -> None:
    async def body(it: Harness) -> None:
        await it.submit("a")
        waiting = await it.submit("b")
        assert it.control.stop_now(KEY, "b") == ("b",)
        await asyncio.wait([waiting])
        await settle(50)
        found = await it.store.journal.inbox_record("b")
        assert found and (found.state, found.why) == ("reported", ABORTED)
        assert await it.store.journal.outbox_records() == []
        it.go.set()

    run(body, mode="followup")


def test_stop_retried_message_in_queue_settles_it() -> None:
    async def body(it: Harness) -> None:
        await it.submit("a")
        journal = it.store.journal
        parked = await journal.accept(KEY, replace(message("a"), text="other words"), at_ms=1)
        assert parked.kind == "conflict" and await journal.retry(parked.record.id, at_ms=2)
        again = await journal.inbox_record(parked.record.id)
        assert again
        waiting = it.control.submit(KEY, again)
        assert it.control.stop_now(KEY, again.id) == (again.id,)
        await asyncio.wait([waiting])
        await settle(50)
        found = await journal.inbox_record(again.id)
        assert found and (found.state, found.why) == ("reported", ABORTED)
        it.go.set()

    run(body, mode="followup")


def test_stop_started_message_does_not_wait_for_session_lease() -> None:
    async def body(it: Harness) -> None:
        first, journal = await it.submit("a"), it.store.journal
        rest = await it.submit("then")
        async with journal.lease(f"session:{KEY}"):  # as a live run has
            await settle(50)
            assert it.control.stop_now(KEY, "then") == ("then",)
            await asyncio.wait([rest])
            await settle(50)
            assert [row.id for row in await journal.inbox_records("reported")] == ["then"]
        it.go.set()
        assert await first == "done"

    run(body, commands=True, mode="followup")


def test_stop_when_journal_fails_leaves_message_open(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def body(it: Harness) -> None:
        first = await it.submit("a")
        waiting = await it.submit("b")

        def refuse() -> object:
            raise DiskFullError("no room")

        monkeypatch.setattr(it.store.journal, "transaction", refuse)
        assert it.control.stop_now(KEY, "b") == ("b",)
        await asyncio.wait([waiting])
        await settle(50)
        it.go.set()
        assert await first == "done"
        found = await it.store.journal.inbox_record("b")
        assert found and found.state == "accepted", "the next start takes it up"

    run(body, mode="followup")
    assert "no room" in caplog.text


def test_command_future_cancelled_by_caller_breaks_nothing() -> None:
    async def body(it: Harness) -> None:
        for name in ("obey", "break"):
            (await it.submit(name)).cancel()
            await settle(50)
        assert await (await it.submit("obey2")) == "obeyed obey2"

    run(body, commands=True)


def test_recover_accepted_message_starts_a_run() -> None:
    async def body(it: Harness) -> None:
        await it.store.journal.accept(KEY, message("old"), at_ms=it.clock.now_ms())
        ((row, outcome),) = await it.control.recover()
        it.go.set()
        assert (row.id, await outcome, it.started) == ("old", "done", [["old"]])

    run(body)


def test_command_during_run_executes_and_queues_the_rest() -> None:
    async def body(it: Harness) -> None:
        await it.submit("live")
        await asyncio.sleep(0)
        assert await (await it.submit("obey")) == "obeyed obey"
        rest = await it.submit("then")
        it.go.set()
        while not rest.done():
            await it.clock.advance(2)
        assert it.started == [["live"], ["then"]] and it.control.queue_depth(KEY) == 0

    run(body, commands=True)


def test_command_that_raises_fails_only_its_future() -> None:
    async def body(it: Harness) -> None:
        broken = await it.submit("break")
        await asyncio.wait([broken])
        assert isinstance(broken.exception(), ZeroDivisionError)
        assert await (await it.submit("obey")) == "obeyed obey"

    run(body, commands=True)


def test_command_after_close_stays_in_the_journal() -> None:
    async def body(it: Harness) -> None:
        it.control.close()
        assert (await it.submit("obey")).cancelled()
        (row,) = await it.store.journal.inbox_records("accepted")
        assert row.id == "obey"

    run(body, commands=True)


def test_recover_started_run_is_not_executed_as_command() -> None:
    async def body(it: Harness) -> None:
        journal = it.store.journal
        for name in ("obey", "then"):
            row = (await it.control.accept(KEY, message(name))).record
            async with journal.lease(f"session:{KEY}") as lease, journal.transaction() as unit:
                entry = "e1" if name == "then" else ""
                unit.mark_running([row.id], lease, run=row.id, session_id="s", entry=entry)
        it.go.set()
        found = await it.control.recover()
        assert [await promise for _, promise in found] == ["done", "obeyed obey"]
        assert it.started == [["then"]]

    run(body, commands=True)


def test_retry_unsettled_after_delay_resumes_open_messages() -> None:
    async def body(it: Harness) -> None:
        row = (await it.control.accept(KEY, message("a"))).record
        settled = (await it.control.accept(KEY, message("b"))).record
        async with it.store.journal.transaction() as unit:
            unit.settle([settled.id], Lease("", 0), "silent", at_ms=1)
        it.control.retry_unsettled([row.id, settled.id, "nobody"])
        await settle(50)
        assert it.started == []
        await it.clock.advance(RETRY_S)
        await settle(50)
        assert it.started == [["a"]]
        it.control.retry_unsettled([row.id])
        it.control.close()  # nothing is waited for any more
        it.go.set()

    run(body)


def test_stop_of_active_run_records_who_stopped_it() -> None:
    async def body(it: Harness) -> None:
        it.can_stop = True
        outcome = await it.submit("a")
        await settle(50)
        assert it.control.is_busy(KEY) and it.control.active_runs() == ("a",)
        assert await it.control.stop_and_wait(KEY, by="rpc") == ("a",)
        assert it.stopped_by[0] == (None, "rpc") and await outcome == "done"
        assert not it.control.is_busy(KEY)

    run(body)


def test_reset_of_used_session_stops_run_and_starts_transcript() -> None:
    async def body(it: Harness) -> None:
        it.can_stop = True
        session = await it.control.load(KEY)
        await session.append(user_message("hi"))
        before = session.session_id
        outcome = await it.submit("a")
        await settle(50)
        reset = await it.control.reset(KEY, HookContext(session_key=KEY), by="rpc", only_used=True)
        assert outcome.done() and reset.session_id != before and reset.messages == []
        again = await it.control.reset(KEY, HookContext(session_key=KEY), only_used=True)
        assert again.session_id == reset.session_id, "there was nothing to reset"

    run(body)


def test_reset_while_run_does_not_stop_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "STOP_TIMEOUT_S", 0.01)

    async def body(it: Harness) -> None:
        session = await it.control.load(KEY)
        await session.append(user_message("hi"))
        await it.submit("a")
        await settle(50)
        with pytest.raises(UnavailableError, match="did not stop yet"):
            await it.control.reset(KEY, HookContext(session_key=KEY))
        async with it.lanes.enter(f"session:{OTHER}"):
            with pytest.raises(UnavailableError, match="did not stop yet"):
                await it.control.reset(OTHER, HookContext(session_key=OTHER))
        assert (await it.control.load(KEY)).session_id == session.session_id
        it.go.set()

    run(body)


def test_inject_adds_assistant_message_to_transcript() -> None:
    async def body(it: Harness) -> None:
        entry_id, message = await it.control.inject(KEY, "note")
        session = await it.control.load(KEY)
        assert session.leaf == entry_id and session.messages == [message]

    run(body)


def test_ask_waits_for_the_outcome_of_its_run() -> None:
    async def body(it: Harness) -> None:
        it.go.set()
        assert await it.control.ask(KEY, message("a")) == "done"

    run(body)


def test_resolve_key_defaults_to_main_session_of_agent() -> None:
    async def body(it: Harness) -> None:
        assert it.control.resolve_key() == KEY
        assert it.control.resolve_key("Notes") == "agent:main:notes"
        with pytest.raises(UnknownNameError):
            it.control.resolve_key(agent="nobody")

    run(body)
