"""Where messages come in, and what is said of those that get no run."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from homarus.config.paths import Paths
from homarus.config.schema import Config
from homarus.core.errors import DiskFull
from homarus.core.lanes import Lanes
from homarus.core.message import Address, Inbound
from homarus.core.tasks import task_group
from homarus.plugins.caller import Hooks
from homarus.providers.models import Models
from homarus.sessions.control import (
    ABORTED,
    RETRY_S,
    InterpretedMessage,
    SessionControl,
    SessionServices,
    as_plain_message,
)
from homarus.sessions.session import Sessions
from homarus.store.journal import Accepted, Lease, Parcel
from homarus.testing.clock import FakeClock
from homarus.testing.memory_store import MemoryStore

KEY = "agent:main:main"


def message(name: str) -> Inbound:
    return Inbound(name, Address("test", "1"), "ann", f"words of {name}", run_id=name)


class FakeAgent:
    """The agent of every session."""

    def __init__(self, workspace: Path) -> None:
        self.id, self.workspace = "main", workspace
        self.model: str | None = "mock/mock-1"
        self.fallbacks: tuple[str, ...] = ()


class Harness:
    """A SessionControl with runs that last until `go` is set."""

    def __init__(self, group: asyncio.TaskGroup, *, hear: bool = False, **queue: object) -> None:
        self.store, self.clock, self.lanes = MemoryStore(), FakeClock(), Lanes()
        self.go, self.begun, self.nudges = asyncio.Event(), list[list[str]](), 0
        self.active: dict[str, str] = {}  # session key → run id
        self.stopped_by: list[tuple[str | None, str]] = []
        config: dict[str, object] = {"messages": {"queue": queue}}
        self.config = Config.model_validate(config)
        paths = Paths.find({"HOME": "/nowhere"})
        self.control: SessionControl[str] = SessionControl(
            SessionServices(
                repository=Sessions(self.store, self.clock),
                store=self.store,
                paths=paths,
                clock=self.clock,
                group=group,
                lanes=self.lanes,
                hooks=Hooks(),
                get_config=lambda: self.config,
                get_models=lambda: Models(self.config, {}, paths, self.clock),
                get_agent=lambda _agent: FakeAgent(paths.state),
                start_run=self.start,
                stop_run=self.stop,
                mark_stopped_by=lambda _key, run, by: self.stopped_by.append((run, by)),
                active_ids=lambda key: tuple(
                    run for at, run in self.active.items() if key in (None, at)
                ),
                build_reply=lambda to, run, text: [
                    Parcel(f"{run}:0", run, to.address, text, 0, 10)
                ],
                on_enqueued=self.nudge,
                interpret=self.interpret if hear else as_plain_message,
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
        return ()

    def interpret(self, _key: str, row: Accepted) -> InterpretedMessage[str]:
        """Answer `obey` at once, leave `then` for a run, raise a bug for `break`."""
        begun = replace(row, run=row.id, attempts=1)

        async def obey() -> str | Accepted:
            if row.id == "break":
                raise ZeroDivisionError
            return begun if row.id == "then" else f"obeyed {row.id}"

        is_command = row.id in {"obey", "obey2", "then", "break"}
        return InterpretedMessage(row, execute=obey if is_command else None)

    def nudge(self) -> None:
        self.nudges += 1

    async def start(self, _key: str, rows: Sequence[Accepted], _text: str) -> str:
        self.begun.append([row.id for row in rows])
        await self.go.wait()
        return "done"

    async def put(self, name: str) -> asyncio.Future[str]:
        return self.control.submit(KEY, (await self.control.accept(KEY, message(name))).row)


async def settle() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


def run(body: Callable[[Harness], Awaitable[None]], *, hear: bool = False, **rules: object) -> None:
    async def main() -> None:
        async with asyncio.timeout(60), task_group() as group:
            await body(Harness(group, hear=hear, **rules))

    asyncio.run(main())


def test_a_message_that_found_no_room_is_reported_and_its_sender_told() -> None:
    async def body(desk: Harness) -> None:
        first = await desk.put("a")
        await desk.put("b")
        refused = await desk.put("c")
        await asyncio.wait([refused])
        found = await desk.store.journal.accepted("c")
        assert found and found.state == "reported" and "queue cap 1" in found.why
        (parcel,) = await desk.store.journal.parcels()
        assert "words of c" in parcel.text and desk.nudges
        desk.control.close()
        desk.go.set()
        assert await first == "done"

    run(body, cap=1, drop="new", mode="followup")


def test_where_nothing_may_be_said_it_is_reported_without_a_word() -> None:
    async def body(desk: Harness) -> None:
        desk.mute()
        await desk.put("a")
        await desk.put("b")
        await asyncio.wait([await desk.put("c")])
        found = await desk.store.journal.accepted("c")
        assert found and found.state == "reported" and "queue cap 1" in found.why
        assert await desk.store.journal.parcels() == []
        desk.control.close()
        desk.go.set()

    run(body, cap=1, drop="new", mode="followup")


def test_what_a_person_stops_is_settled_without_a_word() -> None:
    async def body(desk: Harness) -> None:
        await desk.put("a")
        waiting = await desk.put("b")
        assert desk.control.stop_now(KEY, "b") == ("b",)
        await asyncio.wait([waiting])
        await settle()
        found = await desk.store.journal.accepted("b")
        assert found and (found.state, found.why) == ("reported", ABORTED)
        assert await desk.store.journal.parcels() == []
        desk.go.set()

    run(body, mode="followup")


def test_a_message_that_was_retried_can_be_stopped_while_it_waits() -> None:
    async def body(desk: Harness) -> None:
        await desk.put("a")
        journal = desk.store.journal
        parked = await journal.accept(KEY, replace(message("a"), text="other words"), at_ms=1)
        assert parked.kind == "conflict" and await journal.retry(parked.row.id, at_ms=2)
        again = await journal.accepted(parked.row.id)
        assert again
        waiting = desk.control.submit(KEY, again)
        assert desk.control.stop_now(KEY, again.id) == (again.id,)
        await asyncio.wait([waiting])
        await settle()
        found = await journal.accepted(again.id)
        assert found and (found.state, found.why) == ("reported", ABORTED)
        desk.go.set()

    run(body, mode="followup")


def test_a_message_that_was_begun_is_given_up_without_waiting_for_the_live_run() -> None:
    async def body(desk: Harness) -> None:
        first, journal = await desk.put("a"), desk.store.journal
        rest = await desk.put("then")
        async with journal.lease(f"session:{KEY}"):  # as a live run has
            await settle()
            assert desk.control.stop_now(KEY, "then") == ("then",)
            await asyncio.wait([rest])
            await settle()
            assert [row.id for row in await journal.rows("reported")] == ["then"]
        desk.go.set()
        assert await first == "done"

    run(body, hear=True, mode="followup")


def test_a_stop_that_cannot_be_written_down_ends_nothing_else(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def body(desk: Harness) -> None:
        first = await desk.put("a")
        waiting = await desk.put("b")

        def refuse() -> object:
            raise DiskFull("no room")

        monkeypatch.setattr(desk.store.journal, "commit", refuse)
        assert desk.control.stop_now(KEY, "b") == ("b",)
        await asyncio.wait([waiting])
        await settle()
        desk.go.set()
        assert await first == "done"
        found = await desk.store.journal.accepted("b")
        assert found and found.state == "accepted", "the next start takes it up"

    run(body, mode="followup")
    assert "no room" in caplog.text


def test_who_stops_waiting_for_a_command_does_not_break_it() -> None:
    async def body(desk: Harness) -> None:
        for name in ("obey", "break"):
            (await desk.put(name)).cancel()
            await settle()
        assert await (await desk.put("obey2")) == "obeyed obey2"

    run(body, hear=True)


def test_what_an_earlier_process_left_is_begun_again() -> None:
    async def body(desk: Harness) -> None:
        await desk.store.journal.accept(KEY, message("old"), at_ms=desk.clock.now_ms())
        ((row, outcome),) = await desk.control.recover()
        desk.go.set()
        assert (row.id, await outcome, desk.begun) == ("old", "done", [["old"]])

    run(body)


def test_a_command_is_obeyed_while_a_run_goes_on_and_the_rest_of_it_lines_up() -> None:
    async def body(desk: Harness) -> None:
        await desk.put("live")
        await asyncio.sleep(0)
        assert await (await desk.put("obey")) == "obeyed obey"
        rest = await desk.put("then")
        desk.go.set()
        while not rest.done():
            await desk.clock.advance(2)
        assert desk.begun == [["live"], ["then"]] and desk.control.queue_depth(KEY) == 0

    run(body, hear=True)


def test_a_command_that_breaks_fails_its_promise_and_no_other() -> None:
    async def body(desk: Harness) -> None:
        broken = await desk.put("break")
        await asyncio.wait([broken])
        assert isinstance(broken.exception(), ZeroDivisionError)
        assert await (await desk.put("obey")) == "obeyed obey"

    run(body, hear=True)


def test_after_the_end_a_command_waits_for_the_next_start() -> None:
    async def body(desk: Harness) -> None:
        desk.control.close()
        assert (await desk.put("obey")).cancelled()
        (row,) = await desk.store.journal.rows("accepted")
        assert row.id == "obey"

    run(body, hear=True)


def test_what_was_begun_as_a_run_goes_on_as_one_whatever_it_says() -> None:
    async def body(desk: Harness) -> None:
        journal = desk.store.journal
        for name in ("obey", "then"):
            row = (await desk.control.accept(KEY, message(name))).row
            async with journal.lease(f"session:{KEY}") as lease, journal.commit() as unit:
                entry = "e1" if name == "then" else ""
                unit.start([row.id], lease, run=row.id, session_id="s", entry=entry)
        desk.go.set()
        found = await desk.control.recover()
        assert [await promise for _, promise in found] == ["done", "obeyed obey"]
        assert desk.begun == [["then"]]

    run(body, hear=True)


def test_messages_whose_end_nobody_could_write_down_are_come_back_to() -> None:
    async def body(desk: Harness) -> None:
        row = (await desk.control.accept(KEY, message("a"))).row
        settled = (await desk.control.accept(KEY, message("b"))).row
        async with desk.store.journal.commit() as unit:
            unit.settle([settled.id], Lease("", 0), "silent", at_ms=1)
        desk.control.retry_unsettled([row.id, settled.id, "nobody"])
        await settle()
        assert desk.begun == []
        await desk.clock.advance(RETRY_S)
        await settle()
        assert desk.begun == [["a"]]
        desk.control.retry_unsettled([row.id])
        desk.control.close()  # nothing is waited for any more
        desk.go.set()

    run(body)
