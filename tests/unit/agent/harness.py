"""A run registry on a store in memory and a scripted model, for tests of runs."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from homarus.agent.agent import Agent
from homarus.agent.approval_ports import ApprovalPorts
from homarus.agent.reply.builder import make_reply_builder
from homarus.agent.run import RunOutcome
from homarus.agent.run_registry import RunRegistry
from homarus.agent.services import RunServices
from homarus.agent.spend_limit import SpendLimiter
from homarus.channels.registry import find_traits
from homarus.config import schema
from homarus.core.bus import Bus
from homarus.core.errors import (
    DiskFullError,
    ProviderError,
)
from homarus.core.event import RunEnded
from homarus.core.lanes import Lanes
from homarus.core.message import (
    NO_EXTRAS,
    Address,
    Extras,
    Inbound,
    Message,
    RunOptions,
    user_message,
)
from homarus.core.watchdog import Watchdog
from homarus.plugins.hook_runner import Hooks
from homarus.providers.base import Provider
from homarus.providers.catalog import ModelInfo
from homarus.providers.model_router import ModelSelection
from homarus.sessions.session import SessionRepository
from homarus.store.base import Transaction
from homarus.store.journal import InboxRecord, OutboxRecord
from homarus.testing.clock import FakeClock
from homarus.testing.fakes import Hang, ScriptedProvider
from homarus.testing.memory_store import MemoryStore
from homarus.tools.builtin import files
from homarus.tools.registry import ToolRegistry
from tests.approval_harness import make_approval_service

KEY = "agent:main:main"


def message(text: str = "hi", options: RunOptions | None = None) -> Inbound:
    return Inbound(
        "1", Address("test", "1"), "ann", text, options=options or RunOptions(), run_id="r1"
    )


class SlowStore(MemoryStore):
    """A store whose commits are slow, or fail."""

    commit_s = 0.0
    fails = False

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Transaction]:
        async with super().transaction() as transaction:
            yield transaction
            if self.fails:
                raise DiskFullError("no room to write", fix="free some")
            if self.commit_s:
                await asyncio.sleep(self.commit_s)


class Harness:
    """A run registry on a store in memory and a scripted model."""

    def __init__(self, folder: Path, *script: Message | ProviderError | Hang) -> None:
        self.provider: Provider = ScriptedProvider(script)
        self.clock = clock = FakeClock(patient=False)
        self.bus, self.store = Bus(), SlowStore()
        self.sessions = SessionRepository(self.store, clock)
        self.steering: list[InboxRecord] = []
        self.on_steered: Callable[[], None] = lambda: None
        self.window, self.hooks = 200_000, Hooks()
        self.agent = Agent("main", "Ada", folder, model="p/m", timeout_s=5.0)
        self.config = schema.Config()
        self.key, self.enqueued = KEY, 0
        self.unsettled: list[str] = []
        self.late_work: list[Coroutine[None, None, None]] = []  # what no run waits for
        self.selections: list[ModelSelection] = []
        self.approval_ports = ApprovalPorts()
        self.approvals = make_approval_service(
            self.store.journal, clock, ports=self.approval_ports, bus=self.bus
        )
        self.services = RunServices(
            find_traits=find_traits,
            sessions=self.sessions,
            store=self.store,
            bus=self.bus,
            lanes=Lanes(),
            clock=clock,
            hooks=self.hooks,
            watchdog=Watchdog(),
            spend_limiter=SpendLimiter(self.store, schema.SpendConfig, clock.now_ms, str),
            get_agent=lambda _id: self.agent,
            get_tools=lambda _agent: ToolRegistry.from_modules(files),
            connect=self.connect,
            get_approvals=lambda: self.approvals,
            pop_steering=self.steer,
            format_message=lambda _key, inbound: inbound.text,
            make_builder=lambda session, inbound, thinking, _new: make_reply_builder(
                schema.Config(), session, inbound, thinking=thinking
            ),
            build_reply=self.build_reply,
            on_enqueued=self.count_enqueued,
            on_unsettled=self.unsettled.extend,
            start_task=self.late_work.append,
            get_config=lambda: self.config,
            grace_s=0.05,
        )
        self.runs = RunRegistry(self.services)

    def replace_services(self, **changes: Any) -> None:
        self.services = replace(self.services, **changes)
        self.runs = RunRegistry(self.services)

    def steer(self, _key: str) -> list[InboxRecord]:
        steering, self.steering = self.steering, []
        if steering:
            self.on_steered()
        return steering

    def build_reply(
        self, inbound: Inbound, run: str, text: str, first: int = 0, extras: Extras = NO_EXTRAS
    ) -> list[OutboxRecord]:
        return [OutboxRecord(f"{run}:{first}", run, inbound.address, text, 0, 10, extras=extras)]

    def count_enqueued(self) -> None:
        self.enqueued += 1

    async def accept(self, inbound: Inbound) -> InboxRecord:
        return (await self.store.journal.accept(self.key, inbound, at_ms=1)).record

    def record(self, id_: str = "r1") -> InboxRecord:
        found = asyncio.run(self.store.journal.inbox_record(id_))
        assert found is not None
        return found

    def replies(self) -> list[str]:
        return [parcel.text for parcel in asyncio.run(self.store.journal.outbox_records())]

    async def connect(self, selection: ModelSelection) -> tuple[Provider, ModelInfo]:
        self.selections.append(selection)
        return self.provider, ModelInfo("p", "m", reasoning=True, window=self.window)

    def run(self, inbound: Inbound, meanwhile: Callable[[], object] = lambda: None) -> RunOutcome:
        async def main() -> RunOutcome:
            with self.bus.subscribe() as events:
                asyncio.get_running_loop().call_later(0.02, meanwhile)
                try:
                    return await self.runs.start(self.key, [await self.accept(inbound)])
                finally:
                    for work in self.late_work:
                        await work
                    self.late_work.clear()
                    events.close()
                    all_data = [event.data async for event in events]
                    self.ended = [data for data in all_data if isinstance(data, RunEnded)]

        return asyncio.run(main())

    def messages(self) -> list[tuple[str, str]]:
        async def main() -> list[tuple[str, str]]:
            session = await self.sessions.load(KEY, "main")
            return [(m.role, m.text) for m in session.messages]

        return asyncio.run(main())


def make_interrupted_record(
    harness: Harness, *messages: Message, started: Sequence[str] = ()
) -> InboxRecord:
    """Return the inbox record of a run that was killed after it had saved these messages."""

    async def main() -> InboxRecord:
        record = await harness.accept(message())
        session = await harness.sessions.load(KEY, "main")
        async with harness.store.journal.lease(f"session:{KEY}") as lease:
            await session.start_turn(
                user_message("hi"),
                provider="p",
                model="m",
                extra_writes=lambda transaction, entries: transaction.mark_running(
                    [record.id], lease, run=record.id, session_id=session.session_id,
                    entry=entries[-1].id,
                ),
            )  # fmt: skip
            if messages:
                await session.append(*messages)
            async with harness.store.journal.transaction() as transaction:
                for call_id in started:
                    transaction.call_started(record.id, lease, call_id)
        harness.sessions = SessionRepository(harness.store, FakeClock(patient=False))
        found = await harness.store.journal.inbox_record(record.id)
        assert found is not None
        return found

    return asyncio.run(main())
