"""A run queue whose runs end when the test says so."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from homarus.core.message import (
    Address,
    HeartbeatOptions,
    Image,
    Inbound,
    InputProvenance,
    RunOptions,
)
from homarus.sessions.levels import QueueMode
from homarus.sessions.queue_policy import QueueSettings
from homarus.sessions.run_queue import RunQueue
from homarus.store.journal import InboxRecord
from homarus.testing.clock import FakeClock
from tests.waiting import settle

HEARTBEAT = RunOptions(provenance=InputProvenance("internal_system"), heartbeat=HeartbeatOptions())
ONE_SECOND = QueueSettings()
AT_ONCE = QueueSettings(mode="followup", debounce_ms=0)


def record(
    text: str, *, chat: str = "1", images: int = 0, options: RunOptions | None = None
) -> InboxRecord:
    pictures = tuple(Image(f"{text}{n}", "image/png") for n in range(images))
    inbound = Inbound(
        text,
        Address("test", chat),
        "ann",
        text,
        pictures,
        options=options or RunOptions(),
        run_id=text,
    )
    return InboxRecord(text, "s", "test", "default", text, "ann", text, 1, inbound=inbound)


def ids(records: Sequence[InboxRecord]) -> list[str]:
    return [each.id for each in records]


@dataclass(slots=True)
class Run:
    """A run that ends, and checks for steering, when the test says so."""

    session: str
    records: Sequence[InboxRecord]
    text: str
    steering: list[InboxRecord] = field(default_factory=list)
    end: asyncio.Event = field(default_factory=asyncio.Event)
    fails: bool = False
    aborted: bool = False

    @property
    def name(self) -> str:
        return self.records[0].id

    @property
    def answers(self) -> list[str]:
        return [*ids(self.records), *(each.id for each in self.steering if each.id)]


class Harness:
    """A run queue, the runs it started, and the messages it settled."""

    def __init__(self, group: asyncio.TaskGroup, rule: QueueSettings = AT_ONCE) -> None:
        self.clock = FakeClock()
        self.rule = rule
        self.runs: list[Run] = []
        self.active: dict[str, Run] = {}
        self.settled: list[tuple[str, str]] = []
        self.settle_fails = False
        self.queue: RunQueue[str] = RunQueue(
            self.start,
            group,
            self.clock,
            settings=lambda _session, _row: self.rule,
            interrupt=self.interrupt,
            settle=self.settle,
            preempt=self.interrupt,
        )

    async def start(self, session: str, records: Sequence[InboxRecord], text: str) -> str:
        run = Run(session, records, text)
        assert session not in self.active, "two runs at once"
        self.active[session] = run
        self.runs.append(run)
        try:
            await run.end.wait()
            if run.fails:
                raise ZeroDivisionError
            return f"aborted {run.name}" if run.aborted else run.name
        finally:
            del self.active[session]

    def interrupt(self, session: str) -> None:
        if (run := self.active.get(session)) is None:
            return
        run.aborted = True
        run.end.set()

    async def settle(self, records: Sequence[InboxRecord], reason: str) -> None:
        await asyncio.sleep(0)
        if self.settle_fails:
            raise OSError("no room")
        self.settled += [(each.id, reason) for each in records]

    def submit_text(
        self, text: str, mode: QueueMode | None = None, **more: object
    ) -> "ResultFuture":
        chat, images = str(more.get("chat", "1")), int(str(more.get("images", 0)))
        rule = replace(self.rule, mode=mode) if mode else None
        return self.queue.submit("s", record(text, chat=chat, images=images), rule)

    def pop_steering(self, session: str = "s") -> list[InboxRecord]:
        steering = self.queue.take_steering(session)
        self.active[session].steering += steering
        return steering

    async def finish(self, session: str = "s") -> None:
        await settle()
        self.active[session].end.set()
        await settle()

    async def finish_all(self) -> None:
        for _ in range(200):
            await self.clock.advance(60)
            if not self.active:
                return
            for run in list(self.active.values()):
                run.end.set()
        raise AssertionError("it never comes to rest")


ResultFuture = asyncio.Future[str]


@asynccontextmanager
async def open_harness(rule: QueueSettings = AT_ONCE) -> AsyncIterator[Harness]:
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        yield Harness(group, rule)
