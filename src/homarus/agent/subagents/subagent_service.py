"""The sub-agents of the program: start, end, announce, steer, stop, archive, recover.

What belongs together is one transaction: a start (the record, the child's session, its task as an
accepted message) and an end (the record, the outcome of the child's message, the announcement as
an accepted message of the parent). So a crash leaves all of it or nothing, and the journal resumes
what was accepted. Nothing is kept in memory of a sub-agent: the records are in the store, and a
lock orders their changes.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from uuid import uuid4

from homarus.agent.run import RunOutcome
from homarus.agent.subagents import spawn_rules
from homarus.agent.subagents.messages import (
    announcement_id,
    derive_id,
    make_announcement,
    make_steering,
    make_task,
)
from homarus.agent.subagents.spawn_rules import ChildModel
from homarus.agent.subagents.texts import announcement_text, context_text, task_text
from homarus.config.paths import Paths
from homarus.config.schema import Config
from homarus.core.clock import Clock
from homarus.core.errors import ProviderTimeoutError, SpawnRefusedError, UserError
from homarus.core.fast_dataclass import dataclass, replace
from homarus.core.faults import fault_point
from homarus.core.lanes import Lanes
from homarus.core.message import Address, Inbound, Json, Usage
from homarus.core.session_keys import (
    agent_id_of,
    check_key,
    is_subagent,
    key_without_agent,
    spawn_depth,
)
from homarus.core.tasks import run_contained
from homarus.core.text import one_line
from homarus.policy.tool_call import CallerFacts, TaintSource
from homarus.sessions.control import ABORTED, SessionControl
from homarus.sessions.run_end import RunEnd, WriteEnd, write_nothing
from homarus.sessions.session import FALLBACKS_FIELD, MAX_LABEL_CHARS, SessionRepository
from homarus.store.base import SessionRecord, Store, Transaction, UsageRecord
from homarus.store.journal import UNSETTLED
from homarus.store.subagents import (
    SubagentRecord,
    SubagentStatus,
    delete_subagent,
    find_subagent,
    list_subagents,
    put_subagent,
)
from homarus.store.transcript_codec import dump_json
from homarus.tools.subagent_port import SpawnRequest
from homarus.tools.tool import ToolContext

if TYPE_CHECKING:  # imported by the first call
    from homarus.agent.subagents.control import SubagentControl

log = logging.getLogger(__name__)

NOTE: Final = "The result comes to you as a message when the sub-agent ends; do not poll for it."
KILLED: Final = "killed"  # why an end is not announced: who stopped it knows
_MAX_STEER_CHARS: Final = 4_000
_MAX_ERROR_CHARS: Final = 300
# Starts a task; returns None when the program is ending.
Spawn: TypeAlias = Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None] | None]


@dataclass(frozen=True, slots=True)
class SubagentServices:
    """What the service is given from outside.

    `check_model` returns the full reference of a model that a person or a model names, and raises
    UserError for one that cannot be used. `on_changed` is called after each change of a record.
    `on_runs_cancelled` gets the runs of a session whose approvals were cancelled.
    """

    store: Store
    repository: SessionRepository
    control: SessionControl[RunOutcome]
    clock: Clock
    lanes: Lanes
    paths: Paths
    get_config: Callable[[], Config]
    check_model: Callable[[str], str]
    spawn: Spawn
    on_runs_cancelled: Callable[[str, Sequence[str]], None] = lambda _key, _runs: None
    on_changed: Callable[[SubagentRecord], None] = lambda _record: None


@dataclass(frozen=True, slots=True)
class SpawnSource:
    """The session that starts a sub-agent, and for whom it works.

    `inbound` is the message that it answers, `caller` who makes the call. The same `seed` starts
    one sub-agent, however often it is used.
    """

    key: str
    inbound: Inbound
    caller: CallerFacts
    seed: str
    taint: tuple[TaintSource, ...] = ()


@dataclass(frozen=True, slots=True)
class StartedSubagent:
    """A sub-agent that was started, now or by the same call before."""

    child_key: str
    run_id: str
    model: ChildModel = ChildModel()


class SubagentService:
    """Everything that is done with sub-agents. Built on first use, by `SubagentLoader`."""

    def __init__(self, services: SubagentServices) -> None:
        self._services, self._store = services, services.store
        self._clock, self._journal = services.clock, services.store.journal
        self._lock = asyncio.Lock()  # held around every change of a record, before any lease
        self._announcing = asyncio.Lock()  # keeps the order of announcements
        self.has_ended = False  # whether `sweep` has something to do, now or later
        self._control: SubagentControl | None = None

    @property
    def control(self) -> "SubagentControl":
        """What lists, messages and stops sub-agents for people, models and programs."""
        if self._control is None:
            from homarus.agent.subagents.control import SubagentControl

            self._control = SubagentControl(self, self._services)
        return self._control

    # Start

    async def spawn(self, ctx: ToolContext, request: SpawnRequest) -> Mapping[str, Json]:
        """Start a sub-agent for a tool call; return what the model reads."""
        caller = ctx.caller
        inbound = ctx.inbound or Inbound("", ctx.here or Address("agent", ""), caller.sender, "")
        seed = [ctx.session_key, ctx.run_id, ctx.call_id or str(uuid4())]
        seed += [request.task, request.label, request.agent_id]
        source = SpawnSource(ctx.session_key, inbound, caller, dump_json(seed), ctx.get_taint())
        try:
            started = await self.start(source, request)
        except SpawnRefusedError as exc:
            return {"status": "forbidden", "error": str(exc)}
        except UserError as exc:
            return {"status": "error", "error": str(exc)}
        return describe_start(started)

    async def start(self, source: SpawnSource, request: SpawnRequest) -> StartedSubagent:
        """Start a sub-agent. Raises SpawnRefusedError, and UserError for a wrong argument."""
        config, agent = self._services.get_config(), agent_id_of(source.key)
        child_id = derive_id(source.seed)
        target = spawn_rules.find_target(config, agent, request.agent_id)
        child_key, run_id = check_key(f"agent:{target}:subagent:{child_id}"), derive_id(child_id)
        async with self._lock:
            if await self._journal.inbox_record(run_id):  # by the same call, before a crash
                return StartedSubagent(child_key, run_id)
            record, model = await self._make_record(source, request, child_key, run_id)
            try:
                await self._save_start(record, model, source.taint)
            except asyncio.CancelledError:  # its run ends, which does not undo the commit
                self._start(partial(self._submit, child_key, run_id), f"start {child_key}")
                raise
        fault_point("subagent.spawned")
        self._services.on_changed(record)
        self._start(partial(self._submit, child_key, run_id), f"start {child_key}")
        return StartedSubagent(child_key, run_id, model)

    async def _make_record(
        self, source: SpawnSource, request: SpawnRequest, child_key: str, run_id: str
    ) -> tuple[SubagentRecord, ChildModel]:
        config, target = self._services.get_config(), agent_id_of(child_key)
        entry = await self._entry(source.key)
        depth = spawn_depth(source.key, entry.get("spawnDepth"))
        spawn_rules.check_depth(config, depth)
        active = await list_subagents(self._store, requester=source.key, active_only=True)
        spawn_rules.check_children(config, len(active))
        must_sandbox = spawn_rules.check_sandbox(
            config, source.key, child_key, source.caller, request.sandbox
        )
        is_same_agent = target == agent_id_of(source.key)
        model = spawn_rules.choose_model(
            config,
            target,
            request.model,
            _model_of(entry) if is_same_agent else "",
            self._services.check_model,
        )
        inherited = entry.get("thinkingLevel") if is_same_agent else None
        thinking = spawn_rules.choose_thinking(
            config, target, request.thinking, inherited if isinstance(inherited, str) else ""
        )
        now_ms = self._clock.now_ms()
        record = SubagentRecord(
            child_key,
            run_id,
            source.key,
            request.task,
            now_ms,
            awaits=run_id,
            origin=spawn_rules.make_origin(source.inbound, source.caller),
            display_key=key_without_agent(source.key) or source.key,
            cleanup=request.cleanup,
            label=one_line(request.label, MAX_LABEL_CHARS),
            model=model.ref,
            thinking=thinking,
            timeout_s=request.timeout_s,
            depth=depth + 1,
            is_sandboxed=must_sandbox,
            session_id=str(uuid4()),
            started_ms=now_ms,
        )
        return record, model

    async def _save_start(
        self, record: SubagentRecord, model: ChildModel, taint: Sequence[TaintSource]
    ) -> None:
        """Save the record, the child's session and its task, in one transaction."""
        session = SessionRecord(
            record.child_key,
            record.agent,
            record.session_id,
            record.created_ms,
            await self._child_entry(record, model.fallbacks),
        )
        limit = self._services.get_config().agents.defaults.subagents.max_spawn_depth
        text, prompt = task_text(record, limit), self._prompt(record)
        async with self._store.transaction() as transaction:
            transaction.put_session(session, if_version=0)
            put_subagent(transaction, record)
            task = make_task(record, text, prompt, taint)
            transaction.accept(record.child_key, task, at_ms=record.created_ms)

    async def _child_entry(
        self, record: SubagentRecord, fallbacks: Sequence[str]
    ) -> dict[str, Json]:
        fields: dict[str, Json] = {
            "chatType": "direct",
            "spawnedBy": record.requester_key,
            "spawnDepth": record.depth,
            **spawn_rules.inherited_fields(await self._entry(record.requester_key)),
        }
        if record.label and not await self._store.sessions(where={"label": record.label}, limit=1):
            fields["label"] = record.label  # no two sessions have the same
        if record.model:
            provider, _, name = record.model.partition("/")
            fields |= {"providerOverride": provider, "modelOverride": name}
            if fallbacks:
                fields[FALLBACKS_FIELD] = list(fallbacks)
        if record.thinking:
            fields["thinkingLevel"] = record.thinking
        return fields

    def _prompt(self, record: SubagentRecord) -> str:
        limit = self._services.get_config().agents.defaults.subagents.max_spawn_depth
        return context_text(record, may_spawn=record.depth < limit)

    async def _entry(self, key: str) -> Mapping[str, Json]:
        return await self._services.repository.data(key) or {}

    # End

    @asynccontextmanager
    async def settling(self, end: RunEnd) -> AsyncIterator[WriteEnd]:
        """Add the end of a sub-agent to the transaction that settles the message it awaits.

        One that has answered while sub-agents of its own still work has not ended: their results
        come to it as messages, and the answer to the last of them is its result.
        """
        async with self._lock:
            record = await find_subagent(self._store, end.session_key)
            if record is None or not record.is_active or record.awaits not in end.ids:
                yield write_nothing
                return
            children = await list_subagents(
                self._store, requester=record.child_key, active_only=True
            )
            if end.reply is not None and children:
                waiting = replace(record, awaits="")
                yield lambda transaction: put_subagent(transaction, waiting)
                return
            ended = await self._end(record, *_outcome(end), usage=end.usage)
            write, ended = await self._plan_end(ended, end.taint)
            yield write
        self._after_end(ended, has_children=bool(children))

    async def _end(
        self,
        record: SubagentRecord,
        status: SubagentStatus,
        error: str = "",
        result: str = "",
        *,
        usage: Sequence[UsageRecord] = (),
    ) -> SubagentRecord:
        """Return the record with its end, and what its session has used."""
        calls = [*await self._store.usage_records(session=record.child_key), *usage]
        total = sum((call.usage for call in calls), Usage())
        session = await self._store.session(record.child_key)
        now_ms = self._clock.now_ms()
        minutes = self._services.get_config().agents.defaults.subagents.archive_after_minutes
        return replace(
            record,
            status=status,
            error=one_line(error, _MAX_ERROR_CHARS),
            result=result,
            awaits="",
            ended_ms=now_ms,
            archive_ms=now_ms + minutes * 60_000,
            session_id=session.session_id if session else record.session_id,
            input_tokens=total.input,
            output_tokens=total.output,
            total_tokens=total.input + total.output + total.cache_read + total.cache_write,
            cost=total.cost,
        )

    async def _plan_end(
        self, ended: SubagentRecord, taint: Sequence[TaintSource] = (), *, unannounced: str = ""
    ) -> tuple[WriteEnd, SubagentRecord]:
        """Return what writes an end and its announcement, and the record as it is written.

        A parent that is a sub-agent itself awaits the announcement from then on.
        """
        parent: SubagentRecord | None = None
        if is_subagent(ended.requester_key):
            parent = await find_subagent(self._store, ended.requester_key)
            if parent is None or not parent.is_active:
                unannounced = "requester-ended"
            elif not parent.awaits:  # it waits for nothing else
                unannounced = ""
        ended = replace(ended, unannounced=unannounced)
        if unannounced:
            return lambda transaction: put_subagent(transaction, ended), ended
        siblings = await self.find_all(ended.requester_key, active_only=True)
        more = sum(1 for one in siblings if one.child_key != ended.child_key)
        text = announcement_text(ended, taint, str(self.transcript_path(ended)), more=more)
        announcement = make_announcement(ended, text)
        waiting = parent and replace(parent, awaits=announcement.run_id)

        def write(transaction: Transaction) -> None:
            put_subagent(transaction, ended)
            transaction.accept(ended.requester_key, announcement, at_ms=ended.ended_ms)
            if waiting:
                put_subagent(transaction, waiting)

        return write, ended

    def _after_end(self, ended: SubagentRecord, *, has_children: bool = False) -> None:
        """Do what follows the transaction of an end; after a crash, `recover` does it."""
        fault_point("subagent.ended")
        self._services.on_changed(ended)
        if not ended.unannounced:
            self._start(partial(self._announce, ended), f"announce {ended.child_key}")
        if has_children:
            self._start(
                partial(self._kill_children, ended.child_key), f"stop children {ended.child_key}"
            )
        self.has_ended = True
        if ended.cleanup == "delete":
            self._start(partial(self._archive_if_due, ended), f"archive {ended.child_key}")

    async def _announce(self, ended: SubagentRecord) -> None:
        async with self._announcing:
            await self._submit(ended.requester_key, announcement_id(ended))

    async def _submit(self, key: str, message_id: str) -> None:
        """Have an accepted message answered, unless that was done before."""
        row = await self._journal.inbox_record(message_id)
        if row is not None and row.state == "accepted":
            self._services.control.submit(key, row)

    def transcript_path(self, record: SubagentRecord) -> Path:
        """Return the file of a child's transcript."""
        return self._services.paths.sessions_dir(record.agent) / f"{record.session_id}.jsonl"

    # Control

    async def find(self, child_key: str) -> SubagentRecord | None:
        """Return the record of a child's session."""
        return await find_subagent(self._store, child_key)

    async def find_all(
        self, requester: str | None = None, *, active_only: bool = False
    ) -> list[SubagentRecord]:
        """Return the sub-agents of a session or of all, oldest first; archived ones are gone."""
        return await list_subagents(self._store, requester=requester, active_only=active_only)

    async def descendants(self, key: str, *, active_only: bool = False) -> list[SubagentRecord]:
        """Return the sub-agents of a session, and theirs, parents first."""
        found = await self.find_all()
        tree, keys = list[SubagentRecord](), {key}
        while level := [one for one in found if one.requester_key in keys and one not in tree]:
            tree += level
            keys = {one.child_key for one in level}
        return [one for one in tree if one.is_active or not active_only]

    async def kill(self, child_key: str, *, reason: str = KILLED) -> int:
        """Stop a sub-agent and those that it started; return how many were stopped.

        Its end is recorded before its run has stopped, and not announced: who stops it knows. Only
        a parent that waits for nothing else is told.
        """
        record = await self.find(child_key)
        killed = int(record is not None and await self._kill(record, reason))
        return killed + await self._kill_children(child_key)

    async def kill_all(self, requester: str, *, reason: str = KILLED) -> int:
        """Stop every sub-agent of a session, and theirs; return how many were stopped."""
        return await self._kill_children(requester, reason)

    async def _kill_children(self, key: str, reason: str = KILLED) -> int:
        async with self._lock:  # one that is being started now is stopped too
            children = await self.descendants(key, active_only=True)
        return sum([await self._kill(child, reason) for child in children])

    async def _kill(self, found: SubagentRecord, reason: str) -> bool:
        async with self._lock:
            record = await self.find(found.child_key)
            if record is None or not record.is_active:
                return False
            ended = await self._end(record, "killed", reason if reason != KILLED else "")
            write, ended = await self._plan_end(ended, unannounced=KILLED)
            runs = await self._settle_awaited(record, write, why=ABORTED)
        self._services.on_runs_cancelled(record.child_key, runs)
        self._after_end(ended)
        await self._services.control.stop(record.child_key, by="stop-command")
        return True

    async def steer(self, child_key: str, text: str, *, message_id: str = "") -> SubagentRecord:
        """Stop what a sub-agent does, and have it go on with this message.

        The old message is settled, and the new one accepted, in one transaction. The same
        `message_id` steers once. Raises UserError.
        """
        text = text.strip()
        if not 1 <= len(text) <= _MAX_STEER_CHARS:
            raise UserError(f"a message has 1 to {_MAX_STEER_CHARS} characters", fix="shorten it")
        message_id = message_id or str(uuid4())
        async with self._lock:
            record = await self.find(child_key)
            if record is not None and record.awaits == message_id:  # before a crash
                return record
            if record is None or not record.is_active:
                raise UserError("this sub-agent has ended", fix="start another one")
            # A message that has no answer yet leaves the model's context when its run is stopped.
            prompt = f"{self._prompt(record)}\nYour task: {record.task}"
            now_ms = self._clock.now_ms()
            steering = make_steering(record, message_id, text, prompt, now_ms)
            steered = replace(record, awaits=message_id)

            def write(transaction: Transaction) -> None:
                put_subagent(transaction, steered)
                transaction.accept(child_key, steering, at_ms=now_ms)

            runs = await self._settle_awaited(record, write, why="steered")
        fault_point("subagent.steered")
        self._services.on_runs_cancelled(child_key, runs)
        self._services.on_changed(steered)
        control = self._services.control
        for run in {*control.active_runs(child_key), *control.suspended_runs(child_key)}:
            control.stop_now(child_key, run, by="stop-command")
        if row := await self._journal.inbox_record(message_id):
            control.submit_next(child_key, row)
        return steered

    async def _settle_awaited(
        self, record: SubagentRecord, write: WriteEnd, *, why: str
    ) -> tuple[str, ...]:
        """Settle the message that a sub-agent awaits, with other writes; return its runs.

        The run that works on it loses its lease by that, and can write nothing more.
        """
        row = await self._journal.inbox_record(record.awaits) if record.awaits else None
        is_open = row is not None and row.state in UNSETTLED
        run = (row.run if row else "") or record.awaits
        async with (
            self._journal.lease("inbox") as lease,
            self._store.transaction() as transaction,
        ):
            if is_open:
                now_ms = self._clock.now_ms()
                transaction.mark_running([record.awaits], lease, run=run)
                transaction.settle([record.awaits], lease, "reported", at_ms=now_ms, why=why)
                transaction.cancel_approvals([run], at_ms=now_ms)
            write(transaction)
        return (run,) if is_open else ()

    # Start of the program, archive

    async def recover(self) -> None:
        """Report what an earlier process left without an end, and archive what is due.

        A child whose message is in the journal goes on with it. One whose message was set aside, or
        is not there (as of an imported record), was interrupted.
        """
        records = await self.find_all()
        active = {one.child_key: one for one in records if one.is_active}
        for record in active.values():
            if is_subagent(record.requester_key) and record.requester_key not in active:
                await self._kill(record, "the session that started it has ended")
            elif (reason := await self._find_interruption(record, active)) is not None:
                await self._interrupt(record, reason)
        self.has_ended = any(not one.is_active for one in records)
        if any(not one.is_active and one.cleanup == "delete" for one in records):
            self._start(self.sweep, "archive sub-agents")

    async def _find_interruption(
        self, record: SubagentRecord, active: Mapping[str, SubagentRecord]
    ) -> str | None:
        """Return why a sub-agent does not go on; None when it does."""
        if record.awaits:
            row = await self._journal.inbox_record(record.awaits)
            if row is not None and row.state in UNSETTLED:
                return None
            return row.why if row is not None else "its task is not in the journal"
        if any(one.requester_key == record.child_key for one in active.values()):
            return None
        return "its own sub-agents are gone"

    async def _interrupt(self, found: SubagentRecord, reason: str) -> None:
        async with self._lock:
            record = await self.find(found.child_key)
            if record is None or not record.is_active or record.awaits != found.awaits:
                return
            ended = await self._end(record, "interrupted", reason)
            write, ended = await self._plan_end(ended)
            async with self._store.transaction() as transaction:
                write(transaction)
        self._after_end(ended)

    async def sweep(self) -> None:
        """Archive the ended sub-agents that are due."""
        for record in await self.find_all():
            if not record.is_active:
                await self._archive_if_due(record)
        self.has_ended = any(not one.is_active for one in await self.find_all())

    async def _archive_if_due(self, record: SubagentRecord) -> None:
        """Archive a session, with its record; with `cleanup: delete`, the session at once."""
        is_due = record.archive_ms <= self._clock.now_ms()
        if not is_due and record.cleanup == "keep":
            return
        key = record.child_key
        async with self._services.lanes.enter(f"session:{key}"):
            if self._services.control.is_busy(key) and not is_due:
                return

            def write(transaction: Transaction) -> None:
                if is_due:
                    delete_subagent(transaction, key)

            now_ms, repository = self._clock.now_ms(), self._services.repository
            if not await repository.delete(key, now_ms, extra_writes=write) and is_due:
                async with self._store.transaction() as transaction:
                    write(transaction)
        fault_point("subagent.archived")

    def _start(self, work: Callable[[], Awaitable[object]], name: str) -> asyncio.Task[None] | None:
        async def run() -> None:
            await work()

        def failed(exc: Exception) -> None:
            log.warning("%s: %s", name, exc)

        return self._services.spawn(run_contained(name, run, failed), name)


def describe_start(started: StartedSubagent) -> dict[str, Json]:
    """Return OpenClaw's result fields of a sub-agent that was started."""
    model = started.model
    return {
        "status": "accepted",
        "childSessionKey": started.child_key,
        "runId": started.run_id,
        "note": NOTE,
        **({"modelApplied": model.is_applied} if model.is_applied or model.warning else {}),
        **({"warning": model.warning} if model.warning else {}),
    }


def _model_of(entry: Mapping[str, Json]) -> str:
    provider, model = entry.get("providerOverride"), entry.get("modelOverride")
    if not isinstance(model, str) or not model:
        return ""
    return f"{provider}/{model}" if isinstance(provider, str) and provider else model


def _outcome(end: RunEnd) -> tuple[SubagentStatus, str, str]:
    """Return status, error and result of a run: only a complete answer is a result."""
    if end.reply is not None:
        from homarus.agent.reply.reply_cleaner import clean_message  # with the first answer

        origin = end.reply.origin
        if origin is None or origin.stop == "stop":
            return "done", "", clean_message(end.reply).text
        if origin.stop == "length":
            return "failed", "its answer was cut off at the length limit of the model", ""
        return "interrupted", origin.error or f"its answer broke off ({origin.stop})", ""
    if isinstance(end.error, ProviderTimeoutError):
        return "timed_out", str(end.error), ""
    if end.error is not None:
        return "failed", str(end.error), ""
    return ("killed", "", "") if end.reason == ABORTED else ("interrupted", end.reason, "")
