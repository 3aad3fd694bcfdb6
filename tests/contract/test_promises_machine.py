"""A state machine: any sequence of events in a session; no message is lost or answered twice.

People write, steer, and stop runs; the model answers at any time, tools are slow; approvals are
answered by one person or two at once, or expire; sub-agents are started, steered and stopped;
sessions write to each other; heartbeats run, and notices wait for them; the program is restarted,
or dies. Everything is real (session
control, run queue, run, approvals, sub-agents, exchanges, journal, transcript), except for the
model and the tools, which wait for the test. The model answers every nonce that it was not seen to
answer before, once, so that the outbox shows what was answered, and how often.
"""

import asyncio
import re
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, cast

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from homarus.agent.agent import Agent
from homarus.agent.approval_ports import ApproverIdentity
from homarus.agent.commands.context import CommandServices
from homarus.agent.exchange.loader import ExchangeLoader
from homarus.agent.reply.builder import make_reply_builder
from homarus.agent.run import RunOutcome
from homarus.agent.run_registry import RunRegistry
from homarus.agent.services import RunServices
from homarus.agent.session_tools import session_tools
from homarus.agent.spend_limit import SpendLimiter
from homarus.agent.subagents.loader import SubagentLoader
from homarus.agent.subagents.subagent_service import SubagentServices
from homarus.channels.registry import find_traits
from homarus.config import schema
from homarus.config.paths import Paths
from homarus.core.bus import Bus
from homarus.core.errors import ApprovalError, StoreError
from homarus.core.lanes import Lanes
from homarus.core.message import (
    NO_EXTRAS,
    NO_OUTBOX_CHANNELS,
    Address,
    Extras,
    HeartbeatOptions,
    Inbound,
    InputProvenance,
    Message,
    RunOptions,
    ToolCall,
    ToolResult,
)
from homarus.core.session_keys import announce_key
from homarus.core.watchdog import Watchdog
from homarus.plugins.hook_runner import Hooks
from homarus.policy.approvals import ApprovalDecision
from homarus.policy.tool_policy import PolicyRules, ToolRules
from homarus.providers.base import Delta, ModelRequest, Provider
from homarus.providers.catalog import ModelInfo
from homarus.providers.model_router import ModelRouter, ModelSelection
from homarus.sessions.control import SessionControl, SessionServices
from homarus.sessions.notices import Notices
from homarus.sessions.session import SessionRepository
from homarus.store.approvals import ApprovalRecord
from homarus.store.base import Store, Transaction
from homarus.store.exchanges import KIND as EXCHANGE
from homarus.store.journal import UNSETTLED, InboxRecord, OutboxRecord
from homarus.store.sqlite import open_store
from homarus.store.subagents import SubagentRecord, list_subagents
from homarus.testing.clock import FakeClock
from homarus.testing.fakes import assistant_message
from homarus.testing.memory_store import MemoryStore
from homarus.tools.builtin import sessions_spawn
from homarus.tools.registry import ToolRegistry
from homarus.tools.sources import ToolSourceContext
from homarus.tools.tool import Tool, ToolContext, tool
from tests.approval_harness import make_approval_service, reachable_ports

NONCE = re.compile(r"#\d+#")
EXCHANGED = re.compile(r"\[(?:Message of|Answer of|Your exchange with) the session")
NOTICES = re.compile(r"\A(?:System: [^\n]*\n+)+")
SETTLED = {"answered", "silent", "reported"}
TURNS = 60  # of the loop, after each step
USES = ["", "", "use:slow", "use:ask", "use:spawn", "use:spawn", "use:send", "use:send"]
NO_CONFIG = schema.Config()
MODES = st.sampled_from(["collect", "followup", "steer", "interrupt", "steer-backlog"])


def unpaired_calls(messages: Sequence[Message]) -> set[str]:
    """Return the calls whose results do not follow right after them."""
    unpaired, open_calls = set[str](), set[str]()
    for message in messages:
        if message.role == "tool":
            open_calls -= {p.call_id for p in message.parts if isinstance(p, ToolResult)}
            continue
        unpaired |= open_calls
        open_calls = {call.id for call in message.calls}
    return unpaired | open_calls


class Gate:
    """Makes callers wait until the test lets them continue, one by one or all."""

    def __init__(self) -> None:
        self.open = False
        self._waiting: list[asyncio.Future[None]] = []

    async def pass_through(self) -> None:
        if not self.open:
            place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(place)
            await place

    def let_one(self) -> None:
        while self._waiting:
            place = self._waiting.pop(0)
            if not place.done():
                place.set_result(None)
                return

    def let_all(self) -> None:
        self.open = True
        while self._waiting:
            self.let_one()


class Echo:
    """A model: first the tool that a message requests, then every unanswered nonce."""

    name = api = "scripted"

    def __init__(self, gate: Gate, calls: "Counter[str]") -> None:
        self._gate, self._calls = gate, calls

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta | Message]:
        await self._gate.pass_through()
        last = request.messages[-1]
        last_text = NOTICES.sub("", last.text)
        if last.role == "assistant" or unpaired_calls(request.messages):
            self._calls["invalid"] += 1
        is_question = last.role == "user" and not last_text.startswith("[A tool call that waited")
        wanted = re.search(r"use:(slow|ask|spawn|send)", last_text) if is_question else None
        if wanted:
            self._calls["made"] += 1
            yield assistant_message(self._call(wanted[1], self._calls["made"]))
            return
        question = next(m.text for m in reversed(request.messages) if m.role == "user")
        if (beat := NOTICES.sub("", question)).startswith("beat"):
            yield assistant_message("HEARTBEAT_OK" if "quiet" in beat else f"told {beat}")
            return
        if last.role == "user" and EXCHANGED.match(last_text):  # no chat gets this answer
            yield assistant_message("pong")
            return
        said = "".join(m.text for m in request.messages if m.role == "assistant")
        asked = [n for m in request.messages if m.role == "user" for n in NONCE.findall(m.text)]
        new = [nonce for nonce in dict.fromkeys(asked) if nonce not in said]
        yield assistant_message(f"re {' '.join(new)}" if new else "nothing new")

    def _call(self, name: str, number: int) -> ToolCall:
        if name == "send":  # to the other chat or to itself, with and without waiting
            other = {"sessionKey": f"agent:main:{number % 2}", "message": f"ping {number}"}
            args = {**other, "timeoutSeconds": (0, 30)[number % 3 > 0]}
            return ToolCall(f"call-{number}", "sessions_send", args)
        if name != "spawn":
            return ToolCall(f"call-{number}", name, {})
        use = ("", "use:slow", "use:ask")[number % 3]
        args = {
            "task": f"job {use}",
            "label": f"job {number}",
            "cleanup": ("keep", "delete")[number % 2],
        }
        return ToolCall(f"call-{number}", "sessions_spawn", args)

    async def close(self) -> None:
        """Do nothing: no connection is open."""


def _make_config(mode: str) -> schema.Config:
    return schema.Config.model_validate(
        {
            "messages": {"queue": {"mode": mode, "debounceMs": 0}},
            "tools": {"sessions": {"visibility": "agent"}},
            "session": {"agentToAgent": {"maxPingPongTurns": 2}},
        }
    )


class Life:
    """One process: from its start to its end, or its death."""

    def __init__(self, store: Store, group: asyncio.TaskGroup, world: "World") -> None:
        self.world = world
        self.models, self.tools, self.notices = Gate(), Gate(), Notices()
        clock = FakeClock(patient=False)
        sessions, lanes, hooks = SessionRepository(store, clock), Lanes(), Hooks()
        registry = self._make_registry()
        asks = PolicyRules(lists=(ToolRules(ask=("ask",)),))
        agent = Agent("main", "Ada", world.folder, model="p/m", rules=asks)
        self.approvals = make_approval_service(
            store.journal,
            world.clock,
            ports=reachable_ports(),
            resume_run=lambda key, run: self.control.resume_suspended(key, run),
            build_notice=lambda *notice: self.control.build_notice(*notice),
            spawn=lambda work, name: group.create_task(work, name=name),
        )
        services = RunServices(
            find_traits=find_traits,
            get_config=lambda: NO_CONFIG,  # making one takes as long as a run
            sessions=sessions,
            store=store,
            bus=Bus(),
            lanes=lanes,
            clock=world.clock,
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
                NO_CONFIG, session, inbound, thinking=thinking
            ),
            build_reply=self._pack,
            on_enqueued=lambda: None,
            on_unsettled=lambda ids: self.control.retry_unsettled(ids),
            start_task=group.create_task,
            on_run_end=lambda end: self.subagents.settling(end),
            notices=self.notices,
        )
        runs = RunRegistry(services)
        config = _make_config(world.mode)
        paths = Paths.find({"HOME": str(world.folder)})
        models = ModelRouter(config, {}, paths, clock)
        self.control: SessionControl[RunOutcome] = SessionControl(
            SessionServices(
                repository=sessions,
                store=store,
                paths=paths,
                clock=clock,
                group=group,
                lanes=lanes,
                hooks=hooks,
                get_config=lambda: config,
                get_models=lambda: models,
                get_agent=lambda _id: agent,
                start_run=runs.start,
                stop_run=runs.stop,
                mark_stopped_by=runs.mark_stopped_by,
                active_ids=runs.active_ids,
                build_reply=self._pack,
                on_enqueued=lambda: None,
                is_suspended=lambda outcome: outcome.status == "suspended",
                on_suspended=lambda outcome: self.approvals.on_suspended(
                    outcome.session_key, outcome.run_id, outcome.approvals
                ),
                on_suspended_stopped=lambda _key, runs: self.approvals.on_cancelled(runs),
                on_unanswered=lambda *given: self.subagents.settling_unanswered(*given),
                stop_children=lambda key: self.subagents.stop_children(key),
                release_notices=self.notices.release,
            )
        )
        get_children = partial(self._child_services, store, group, sessions, lanes, paths, config)
        self.subagents = SubagentLoader(store, get_children)
        self.exchanges = self._make_exchanges(store, group, hooks, config)

    def _make_exchanges(
        self, store: Store, group: asyncio.TaskGroup, hooks: Hooks, config: schema.Config
    ) -> ExchangeLoader:
        ports = SimpleNamespace(
            store=store,
            control=self.control,
            clock=self.world.clock,
            get_config=lambda: config,
            hooks=hooks,
            build_reply=self._pack,
            on_enqueued=lambda: None,
        )
        return ExchangeLoader(
            lambda: cast("CommandServices", ports),
            lambda: [("test", "default")],
            lambda work, name: group.create_task(work, name=name),
        )

    def _child_services(  # noqa: PLR0917 - the parts of this process
        self,
        store: Store,
        group: asyncio.TaskGroup,
        sessions: SessionRepository,
        lanes: Lanes,
        paths: Paths,
        config: schema.Config,
    ) -> SubagentServices:
        return SubagentServices(
            store=store,
            repository=sessions,
            control=self.control,
            clock=self.world.clock,
            lanes=lanes,
            paths=paths,
            get_config=lambda: config,
            check_model=str,
            spawn=lambda work, name: group.create_task(work, name=name),
            on_runs_cancelled=lambda _key, runs: self.approvals.on_cancelled(runs),
        )

    def _make_registry(self) -> ToolRegistry:
        source = ToolSourceContext("main", schema.Config(), lambda _key: schema.Config().tools)
        spawning = replace(source, get_subagents=lambda: self.subagents())
        writing = replace(source, get_exchanges=lambda: self.exchanges())
        return ToolRegistry(
            [
                self._slow(),
                self._ask(),
                *sessions_spawn.tools(spawning),
                *session_tools(writing),
            ]
        )

    async def _connect(self, _wish: ModelSelection) -> tuple[Provider, ModelInfo]:
        return Echo(self.models, self.world.calls), ModelInfo("p", "m")

    def _pack(
        self, inbound: Inbound, run: str, text: str, first: int = 0, extras: Extras = NO_EXTRAS
    ) -> list[OutboxRecord]:
        if run.startswith("exchange:") and inbound.address.channel in NO_OUTBOX_CHANNELS:
            return []  # the answer is for the other session
        return [OutboxRecord(f"{run}:{first}", run, inbound.address, text, 0, 10)]

    def _slow(self) -> Tool:
        @tool(group="test", name="slow")
        async def slow(ctx: ToolContext) -> str:
            """Take long, and leave a mark."""
            self.world.marks["begun"] += 1
            await self.tools.pass_through()
            return "done"

        return slow

    def _ask(self) -> Tool:
        @tool(group="test", name="ask")
        async def ask(ctx: ToolContext) -> str:
            """Run only when a person allowed it."""
            self.world.runs[ctx.call_id] += 1
            await self.tools.pass_through()
            return "done"

        return ask

    def let_go(self) -> None:
        for gate in (self.models, self.tools):
            gate.let_all()


class World:
    """What outlives a process: the disk, the people, and what happened."""

    def __init__(self, kind: Literal["memory", "sqlite"], folder: Path) -> None:
        self.kind, self.folder, self.mode = kind, folder, "collect"
        self.memory = MemoryStore()
        self.calls, self.marks, self.runs = Counter[str](), Counter[str](), Counter[str]()
        self.clock = FakeClock()
        self.sent = self.beats = 0

    @asynccontextmanager
    async def store(self) -> AsyncIterator[Store]:
        if self.kind == "memory":
            yield self.memory
        else:
            async with open_store(self.folder / "state", mirror=False) as store:
                yield store


class Cut:
    """A store whose process has died: nothing more is written."""

    def __init__(self, store: Store) -> None:
        self.dead = False
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Transaction]:
        async with self._store.transaction() as transaction:
            yield transaction
            if self.dead:
                raise StoreError("the process is dead")


class Promises(RuleBasedStateMachine):
    """The state machine; see the module."""

    kind: Literal["memory", "sqlite"] = "memory"

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.world = World(self.kind, Path(self.folder.name))
        self.loop = asyncio.Runner()
        self.known: dict[str, InboxRecord] = {}
        self.resolved: dict[str, ApprovalRecord] = {}
        self.ended: dict[str, SubagentRecord] = {}
        self.run(self._begin())

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        async def whole() -> None:
            await work
            for _ in range(TURNS):
                await asyncio.sleep(0)
            if self.kind == "sqlite":  # its writer is a thread
                await asyncio.sleep(0.002)

        self.loop.run(whole())

    async def _begin(self) -> None:
        self.stack = AsyncExitStack()
        store = await self.stack.enter_async_context(self.world.store())
        self.cut = Cut(store)
        self.group = asyncio.TaskGroup()
        await self.group.__aenter__()
        self.life = Life(cast("Store", self.cut), self.group, self.world)
        self.store = store
        await self.life.notices.load(store)
        await self.life.approvals.start()
        await self.life.control.recover()
        await self.life.notices.release_settled(store)
        await self.life.subagents.recover()
        await self.life.exchanges.recover()

    async def _end(self, *, dies: bool) -> None:
        self.cut.dead = dies
        self.life.control.close()
        self.life.approvals.close()
        for task in list(self.group._tasks):
            task.cancel()
        await self.group.__aexit__(None, None, None)
        await self.stack.aclose()

    @rule(chat=st.integers(0, 1), use=st.sampled_from(USES))
    def write(self, chat: int, use: str) -> None:
        """A person writes."""

        async def send() -> None:
            self.world.sent += 1
            name = f"m{self.world.sent}"
            key, address = f"agent:main:{chat}", Address("test", str(chat))
            text = f"#{self.world.sent}# {use}"
            inbound = Inbound(name, address, "ann", text, run_id=name)
            found = await self.life.control.accept(key, inbound)
            self.life.control.submit(key, found.record)

        self.run(send())

    @rule(chat=st.integers(0, 1), use=st.sampled_from(["quiet", "", "", "use:slow", "use:ask"]))
    def beat(self, chat: int, use: str) -> None:
        """A heartbeat is due, and something has happened."""

        async def send() -> None:
            self.world.beats += 1
            name, key = f"beat{self.world.beats}", f"agent:main:{chat}"
            await self.life.notices.save(cast("Store", self.cut), key, f"news-{name}-", 1)
            options = RunOptions(
                deliver_to=("test", str(chat), "default", ""),
                provenance=InputProvenance("internal_system"),
                lane="heartbeat",
                heartbeat=HeartbeatOptions(),
            )
            address = Address("heartbeat", key)
            inbound = Inbound(name, address, "owner", f"{name} {use}", options=options, run_id=name)
            found = await self.life.control.accept(key, inbound)
            self.life.control.submit(key, found.record)

        self.run(send())

    @rule(mode=MODES)
    def change_mode(self, mode: str) -> None:
        """Change what a message does to an active run."""
        self.world.mode = mode

    @rule(gate=st.sampled_from(["models", "models", "tools"]))
    def let_one(self, gate: str) -> None:
        """Let a model answer, or a tool end."""
        self._call(getattr(self.life, gate).let_one)

    @rule(decisions=st.lists(st.sampled_from(["allow-once", "deny"]), min_size=1, max_size=2))
    def answer(self, decisions: list[ApprovalDecision]) -> None:
        """One person answers the oldest approval, or two do at once: one of them wins."""

        async def each() -> None:
            service = self.life.approvals
            if not (pending := await service.list_pending()):
                return
            won = list[ApprovalRecord]()

            async def resolve(decision: ApprovalDecision, name: str) -> None:
                with suppress(ApprovalError):
                    won.append(
                        await service.resolve(pending[0].id, decision, ApproverIdentity(name))
                    )

            async with asyncio.TaskGroup() as people:
                for number, decision in enumerate(decisions):
                    people.create_task(resolve(decision, f"person {number}"))
            assert len(won) == 1
            with pytest.raises(ApprovalError):  # an answer cannot be repeated
                await service.resolve(pending[0].id, "allow-once", ApproverIdentity("late"))

        self.run(each())

    @rule(seconds=st.sampled_from([11, 11, 90_000]))
    def pass_time(self, seconds: int) -> None:
        """Let runs that wait suspend, or let approvals expire."""
        self.run(self.world.clock.advance(seconds))

    @rule(chat=st.integers(0, 1))
    def stop(self, chat: int) -> None:
        """A person stops the run of a chat."""
        self._call(lambda: self.life.control.stop_now(f"agent:main:{chat}"))

    @rule(chat=st.integers(0, 1))
    def stop_with_children(self, chat: int) -> None:
        """A person stops a chat and its sub-agents."""

        async def each() -> None:
            key = f"agent:main:{chat}"
            self.life.control.stop_now(key, by="stop-command")
            await self.life.control.stop_children(key)

        self.run(each())

    @rule(act=st.sampled_from(["steer", "kill", "stop"]))
    def change_child(self, act: str) -> None:
        """A person steers or kills the oldest sub-agent, or stops its run."""

        async def each() -> None:
            service = self.life.subagents()
            for child in (await service.find_all(active_only=True))[:1]:
                if act == "steer":
                    await service.steer(child.child_key, "do this instead")
                elif act == "kill":
                    assert await service.kill(child.child_key) == 1
                else:
                    self.life.control.stop_now(child.child_key)

        self.run(each())

    @rule(again=st.booleans())
    def decide(self, *, again: bool) -> None:
        """A person retries or discards what is parked."""

        async def each() -> None:
            journal = self.store.journal
            for row in await journal.inbox_records("parked"):
                if not again:
                    assert await journal.discard(row.id, at_ms=1, why="not needed")
                    continue
                assert await journal.retry(row.id, at_ms=1)
                found = await journal.inbox_record(row.id)
                assert found is not None
                self.life.control.submit(row.session, found)

        self.run(each())

    @rule(dies=st.booleans())
    def start_again(self, *, dies: bool) -> None:
        """End the program, in order or by a kill, and start it again."""

        async def again() -> None:
            await self._end(dies=dies)
            await self._begin()

        self.run(again())

    def _call(self, act: Callable[[], object]) -> None:
        async def called() -> None:
            act()

        self.run(called())

    @invariant()
    def what_is_settled_stays(self) -> None:
        async def look() -> None:
            for row in await self.store.journal.inbox_records():
                before = self.known.get(row.id)
                if before and before.state in SETTLED:
                    assert (row.state, row.reply, row.why) == (
                        before.state, before.reply, before.why,
                    )  # fmt: skip
                self.known[row.id] = row
            for child in await list_subagents(self.store):
                ended = self.ended.get(child.child_key)
                assert ended is None or ended == child, "it ends once"
                if not child.is_active:
                    self.ended[child.child_key] = child
            for approval in await self.store.journal.approvals():
                if resolved := self.resolved.get(approval.id):
                    assert replace(approval, used_ms=0) == replace(resolved, used_ms=0)
                    assert resolved.used_ms in (0, approval.used_ms)
                if approval.state != "pending":
                    self.resolved[approval.id] = approval

        self.loop.run(look())

    def teardown(self) -> None:
        """Let everything continue: every message has its outcome, and no answer was sent twice."""

        async def drain() -> None:
            for _ in range(4):  # a message that dies with the program three times is parked
                self.life.let_go()
                for step in range(400):
                    is_open = await self.store.records(EXCHANGE)
                    if not is_open and not await self.store.journal.inbox_records(*UNSETTLED):
                        return
                    if step % 20 == 10:
                        await self.world.clock.advance(90_000)
                    await asyncio.sleep(0.002)
                await self._end(dies=False)
                await self._begin()

        try:
            self.run(drain())
            self.loop.run(self._judge())
        finally:
            self.loop.run(self._end(dies=False))
            self.loop.close()
            self.folder.cleanup()

    async def _judge(self) -> None:
        rows = await self.store.journal.inbox_records()
        parcels = await self.store.journal.outbox_records()
        answers = Counter(n for parcel in parcels for n in NONCE.findall(parcel.text))
        self._judge_children(rows, await list_subagents(self.store))
        assert not await self.store.records(EXCHANGE), "every exchange has ended"
        self._judge_exchanges(rows, parcels)
        await self._judge_heartbeats(rows, parcels)
        rows = [row for row in rows if row.id.startswith("m")]
        assert len(rows) == self.world.sent, "none is lost"
        for row in rows:
            nonce = f"#{row.id.removeprefix('m')}#"
            assert row.state in {*SETTLED, "parked"}, row
            if row.state == "answered":
                assert answers[nonce] >= 1, f"{nonce} was answered, and nobody can see it"
            told = answers[nonce] - sum(f"“{nonce}" in parcel.text for parcel in parcels)
            assert told <= 1, f"{nonce} was answered {told} times"
        assert self.world.marks["begun"] <= self.world.calls["made"], "no call ran twice"
        assert not self.world.calls["invalid"], "every request has its results, and a question"
        sent = {parcel.id for parcel in parcels}
        by_call = {each.call_id: each for each in await self.store.journal.approvals()}
        for approval in by_call.values():
            assert approval.state != "pending", "every approval was answered or has expired"
            if approval.state == "expired":
                assert f"{approval.id}:expired:0" in sent, "the requester has a notice"
        for call_id, count in self.world.runs.items():
            assert count == 1, "no approved call ran twice"
            assert by_call[call_id].state == "allowed" and by_call[call_id].used_ms

    async def _judge_heartbeats(
        self, rows: Sequence[InboxRecord], parcels: Sequence[OutboxRecord]
    ) -> None:
        """Check that each heartbeat has ended, told its chat at most once, and lost no notice."""
        told = Counter(parcel.run for parcel in parcels)
        beats = [row for row in rows if row.id.startswith("beat")]
        assert len(beats) == self.world.beats
        for row in beats:
            assert row.state in SETTLED, row
            is_alert = row.state == "answered" and not row.why
            assert told[row.id] == int(is_alert), row
        seen = list[str]()
        for chat in range(2):
            if record := await self.store.session(f"agent:main:{chat}"):
                seen += [str(entry.data) for entry in await self.store.entries(record.session_id)]
        pending = [str(data) for data in (await self.store.records("notice")).values()]
        for number in range(1, self.world.beats + 1):
            news = f"news-beat{number}-"
            assert any(news in text for text in (*seen, *pending)), "no notice is lost"

    def _judge_exchanges(
        self, rows: Sequence[InboxRecord], parcels: Sequence[OutboxRecord]
    ) -> None:
        """Check that no step of an exchange was left out, and that a chat was told at most once."""
        steps: dict[str, list[str]] = {}
        for row in rows:
            if row.id.startswith("exchange:"):
                exchange, _, step = row.id.rpartition(":")
                steps.setdefault(exchange, []).append(step)
                assert row.state in {*SETTLED, "parked"}, row
        for taken in steps.values():
            turns = [step for step in taken if step != "announce"]
            assert turns == [str(step) for step in range(len(turns))] and len(turns) <= 3, taken
            assert taken in (turns, [*turns, "announce"])
        told = Counter(
            parcel.id for parcel in parcels if parcel.run.partition(":")[0] == "exchange"
        )
        assert all(count == 1 for count in told.values())
        assert {name.removesuffix(":announce:0") for name in told} <= steps.keys()

    def _judge_children(self, rows: Sequence[InboxRecord], left: Sequence[SubagentRecord]) -> None:
        """Check that every sub-agent has ended, and that its end was announced once, or not."""
        news = Counter(row.message_id for row in rows if row.message_id.startswith("announce:"))
        self.ended |= {one.child_key: one for one in left}
        for child in self.ended.values():
            assert not child.is_active, child
            name = announce_key(child.child_key, child.run_id)
            assert news.pop(name, 0) == int(not child.unannounced), child
        assert all(count == 1 for count in news.values())
        started = {row.session for row in rows if row.message_id.startswith("spawn:")}
        assert started >= self.ended.keys(), "every record has its task"


class OnDisk(Promises):
    """The same, with SQLite."""

    kind = "sqlite"


@pytest.mark.parametrize(("machine", "examples"), [(Promises, 60), (OnDisk, 15)])
def test_no_message_is_lost_or_answered_twice(machine: type[Promises], examples: int) -> None:
    rules = settings(
        max_examples=examples,
        stateful_step_count=25,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(machine, settings=rules)
