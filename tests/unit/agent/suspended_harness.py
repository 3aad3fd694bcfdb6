"""A program whose tool `act` asks for approval: session control, runs and approvals on a store."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
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
from homarus.config.paths import Paths
from homarus.core.bus import Bus
from homarus.core.lanes import Lanes
from homarus.core.message import NO_EXTRAS, Address, Extras, Inbound, Message, ToolCall, ToolResult
from homarus.core.watchdog import Watchdog
from homarus.plugins.hook_runner import Hooks
from homarus.policy.tool_policy import PolicyRules, ToolRules
from homarus.providers.base import Delta, ModelRequest, Provider
from homarus.providers.catalog import ModelInfo
from homarus.providers.model_router import ModelRouter, ModelSelection
from homarus.sessions.control import SessionControl, SessionServices
from homarus.sessions.session import SessionRepository
from homarus.store.approvals import ApprovalRecord
from homarus.store.base import Store
from homarus.store.journal import OutboxRecord
from homarus.testing.clock import FakeClock
from homarus.testing.memory_store import MemoryStore
from homarus.tools.registry import ToolRegistry
from homarus.tools.tool import Tool, ToolContext, tool
from tests.approval_harness import make_approval_service, reachable_ports
from tests.waiting import settle, until

KEY = "agent:main:main"
CONFIG = schema.Config()


class CheckingProvider:
    """A model that answers from a list, and checks that every call has its result after it."""

    name = api = "scripted"

    def __init__(self, script: list[Message]) -> None:
        self.script, self.requests, self.problems = script, list[ModelRequest](), list[str]()

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta | Message]:
        self.requests.append(request)
        open_calls = list[str]()
        for message in request.messages:
            if message.role == "tool":
                results = [p.call_id for p in message.parts if isinstance(p, ToolResult)]
                if any(call_id not in open_calls for call_id in results):
                    self.problems.append(f"a result without a call: {results}")
                open_calls = [call_id for call_id in open_calls if call_id not in results]
                continue
            if open_calls:
                self.problems.append(f"calls without a result: {open_calls}")
            open_calls = [call.id for call in message.calls]
        if open_calls or request.messages[-1].role == "assistant":
            self.problems.append("the request does not end with a question or a result")
        yield self.script.pop(0)

    async def close(self) -> None:
        """Do nothing: no connection is open."""


class Program:
    """One process on a store; `acted` counts what the tools did, by what they were told."""

    def __init__(self, folder: Path, store: Store, clock: FakeClock, **given: Any) -> None:
        self.folder, self.store, self.clock = folder, store, clock
        self.model = CheckingProvider(given.get("script", []))
        self.ports: ApprovalPorts = given.get("ports") or reachable_ports()
        self.acted: Counter[str] = given.get("acted") or Counter()
        self.gate: Callable[[str], Any] = lambda _what: asyncio.sleep(0)
        self.bus, self.lanes = Bus(), Lanes({"main": 1})
        self.sent = 0

    def open(self, group: asyncio.TaskGroup) -> None:
        store, clock, hooks = self.store, self.clock, Hooks()
        sessions = SessionRepository(store, clock)
        rules = PolicyRules(lists=(ToolRules(ask=("act*",)),))
        agent = Agent("main", "Ada", self.folder, model="p/m", rules=rules)
        registry = ToolRegistry([self._tool("act"), self._tool("note"), self._tool("last", True)])
        self.approvals = make_approval_service(
            store.journal,
            clock,
            ports=self.ports,
            bus=self.bus,
            resume_run=lambda key, run: self.control.resume_suspended(key, run),
            build_notice=lambda *notice: self.control.build_notice(*notice),
            spawn=lambda work, name: group.create_task(work, name=name),
        )
        runs = RunRegistry(
            RunServices(
                find_traits=find_traits,
                sessions=sessions,
                store=store,
                bus=self.bus,
                lanes=self.lanes,
                clock=clock,
                hooks=hooks,
                watchdog=Watchdog(),
                spend_limiter=SpendLimiter(store, schema.SpendConfig, clock.now_ms, str),
                get_agent=lambda _id: agent,
                get_tools=lambda _agent: registry,
                connect=self._connect,
                get_approvals=lambda: self.approvals,
                pop_steering=lambda key: self.control.take_steering(key),
                format_message=lambda _key, inbound: inbound.text,
                make_builder=lambda session, inbound, thinking, _new: make_reply_builder(
                    CONFIG, session, inbound, thinking=thinking
                ),
                build_reply=self.build_reply,
                on_enqueued=lambda: None,
                on_unsettled=lambda ids: self.control.retry_unsettled(ids),
                start_task=group.create_task,
                get_config=lambda: CONFIG,
            )
        )
        paths = Paths.find({"HOME": str(self.folder)})
        models = ModelRouter(CONFIG, {}, paths, clock)
        self.control: SessionControl[RunOutcome] = SessionControl(
            SessionServices(
                repository=sessions,
                store=store,
                paths=paths,
                clock=clock,
                group=group,
                lanes=self.lanes,
                hooks=hooks,
                get_config=lambda: CONFIG,
                get_models=lambda: models,
                get_agent=lambda _id: agent,
                start_run=runs.start,
                stop_run=runs.stop,
                mark_stopped_by=runs.mark_stopped_by,
                active_ids=runs.active_ids,
                build_reply=self.build_reply,
                on_enqueued=lambda: None,
                is_suspended=lambda outcome: outcome.status == "suspended",
                on_suspended=lambda outcome: self.approvals.on_suspended(
                    outcome.session_key, outcome.run_id, outcome.approvals
                ),
                on_suspended_stopped=lambda _key, runs: self.approvals.on_cancelled(runs),
            )
        )

    def _tool(self, called: str, serial: bool = False) -> Tool:
        @tool(group="test", name=called, serial=serial)
        async def act(ctx: ToolContext, what: str = "it") -> str:
            """Do something."""
            self.acted[what] += 1
            await self.gate(what)
            return f"did {what}"

        return act

    async def _connect(self, _wish: ModelSelection) -> tuple[Provider, ModelInfo]:
        return self.model, ModelInfo("p", "m")

    def build_reply(
        self, inbound: Inbound, run: str, text: str, first: int = 0, extras: Extras = NO_EXTRAS
    ) -> list[OutboxRecord]:
        return [OutboxRecord(f"{run}:{first}", run, inbound.address, text, 0, 10)]

    async def send(self, text: str, name: str = "") -> "asyncio.Future[RunOutcome]":
        """Send a message; the future has the outcome of the run that answers it."""
        self.sent += 1
        name = name or f"m{self.sent}"
        inbound = Inbound(name, Address("test", "1"), "ann", text, run_id=name)
        return self.control.submit(KEY, (await self.control.accept(KEY, inbound)).record)

    async def pending(self) -> ApprovalRecord:
        """Wait until one approval is pending, and return it."""
        while not (found := await self.approvals.list_pending()):
            await settle(1)
        return found[-1]

    async def suspended(self) -> ApprovalRecord:
        """Wait until the run with the pending approval is suspended."""
        record = await self.pending()
        await settle()
        await self.clock.advance(11)
        await until(lambda: self.control.has_suspended(KEY))
        return record

    async def states(self) -> dict[str, str]:
        return {one.id: one.state for one in await self.store.journal.inbox_records()}

    async def texts(self) -> list[str]:
        return [one.text for one in await self.store.journal.outbox_records()]


@asynccontextmanager
async def open_program(
    folder: Path, *script: Message, store: Store | None = None, **given: Any
) -> AsyncIterator[Program]:
    """Run a program until the block ends; what is active then is cancelled."""
    store, clock = store or MemoryStore(), given.pop("clock", None) or FakeClock()
    program = Program(folder, store, clock, script=list(script), **given)
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        program.open(group)
        await program.approvals.start()
        await program.control.recover()
        yield program
        program.control.close()
        program.approvals.close()
        for task in list(group._tasks):
            task.cancel()


def call(name: str, call_id: str = "c1", what: str = "it") -> ToolCall:
    return ToolCall(call_id, name, {"what": what})
