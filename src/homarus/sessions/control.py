"""The one entry point to sessions: accept and submit messages, stop, reset, inspect, recover.

The gateway's methods, the channels, the command line and the chat commands use `SessionControl`.
A message is written to the journal first (`accept`) and then interpreted (`submit`): a command is
executed at once, next to whatever runs; anything else goes to the run queue of its session. What
gets no run of its own is settled here.

Agents, runs and commands belong to a higher layer: `SessionServices` brings them as functions.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    nullcontext,
)
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import Generic, Protocol, TypeAlias, TypeVar

from homarus.config.agent_settings import agent_ids, default_agent_id, resolve_agent_settings
from homarus.config.paths import Paths
from homarus.config.schema import Config
from homarus.core.clock import Clock
from homarus.core.diagnostics import Diagnostics, MessageQueued
from homarus.core.errors import StoreError, UnavailableError
from homarus.core.fast_dataclass import dataclass
from homarus.core.lanes import HEARTBEAT_LANE, NESTED_LANE, Lanes
from homarus.core.message import Inbound, Message, StoppedBy, Text, redirect_reply
from homarus.core.session_keys import DEFAULT_MAIN, agent_id_of, canonical_key, global_key
from homarus.core.tasks import run_contained
from homarus.plugins.hook_runner import Hooks
from homarus.plugins.values import HookContext
from homarus.providers.model_router import ModelRouter, ModelSelection
from homarus.sessions.directives import QueueDirective
from homarus.sessions.queue_policy import QueueSettings, inbound_debounce_ms, resolve_queue_settings
from homarus.sessions.recovery import recover, resume_or_park
from homarus.sessions.run_queue import (
    PREEMPTED,
    QueuePlace,
    RunQueue,
    StartRun,
    copy_result,
    make_result_future,
)
from homarus.sessions.send_policy import is_muted
from homarus.sessions.session import Session, SessionRepository
from homarus.store.base import Store, Transaction
from homarus.store.journal import (
    UNSETTLED,
    Acceptance,
    InboxRecord,
    JournalTransaction,
    Lease,
    OutboxRecord,
)

log = logging.getLogger(__name__)

ABORTED = "aborted"
RETRY_S = 5.0  # before messages are resumed whose outcome could not be saved
STOP_TIMEOUT_S = 10.0
PARKED_NOTICE = (
    "I did not finish your message “{preview}”, and set it aside: {reason}. "
    "Send it again, or retry it with `homarus inbox retry`."
)
_LOOP_TURNS = 5  # of the event loop, until a run that was submitted just now can be stopped

OutcomeT = TypeVar("OutcomeT")


@dataclass(frozen=True, slots=True)
class InterpretedMessage(Generic[OutcomeT]):
    """A message after its commands and directives were parsed.

    `record` is what a run gets of it, `queue` the queue settings it asks for. With `execute`, that
    answers it at once; when it returns a record, a run answers the rest.
    """

    record: InboxRecord
    queue: QueueDirective | None = None
    execute: Callable[[], Awaitable[OutcomeT | InboxRecord]] | None = None


def as_plain_message(_key: str, record: InboxRecord) -> InterpretedMessage[OutcomeT]:
    """Treat the message as text, without looking for commands or directives."""
    return InterpretedMessage(record)


class SessionAgent(Protocol):
    """What sessions need to know of the agent that answers them."""

    @property
    def id(self) -> str: ...

    @property
    def workspace(self) -> Path: ...

    @property
    def model(self) -> str | None: ...

    @property
    def fallbacks(self) -> tuple[str, ...]: ...


# (session key, ids of messages, reason) → entered around the transaction that settles them
OnUnanswered: TypeAlias = Callable[
    [str, Sequence[str], str], AbstractAsyncContextManager[Callable[[Transaction], None]]
]
# Records that were read from the journal → the same with their files
CompleteFiles: TypeAlias = (
    "Callable[[Sequence[InboxRecord]], asyncio.Future[Sequence[InboxRecord]] | None]"
)


def ignore_unanswered(
    _key: str, _ids: Sequence[str], _reason: str
) -> AbstractAsyncContextManager[Callable[[Transaction], None]]:
    """Add nothing to the transaction."""
    return nullcontext(lambda _transaction: None)


async def stop_no_children(_key: str) -> int:
    """Return that a session has no sub-agents."""
    return 0


async def ignore_parked() -> None:
    """Do nothing more about parked messages."""


@dataclass(frozen=True, slots=True)
class SessionServices(Generic[OutcomeT]):
    """What `SessionControl` is given from outside.

    `stop_run` stops the active run of a session and returns its id; `mark_stopped_by` must be
    called before it. `build_reply` turns a text for a message's sender into outbox records, and
    `on_enqueued` is called once they are saved. `is_suspended` says whether the outcome of a run is
    that it waits for an approval. `on_suspended` gets that outcome as soon as the run can be
    resumed, `on_suspended_stopped` the suspended runs that a person stopped. `on_unanswered` adds
    writes to the transaction that settles messages of a session without a run. `stop_children`
    stops the sub-agents of a session, and returns how many it stopped. `on_parked` is called after
    messages may have been parked while the program runs. `release_notices` makes the notices
    pending again that a heartbeat had which gets no run. `complete_files` returns a future of
    records of an earlier process with the files that they lack, None when they lack none.
    """

    repository: SessionRepository
    store: Store
    paths: Paths
    clock: Clock
    group: asyncio.TaskGroup
    lanes: Lanes
    hooks: Hooks
    get_config: Callable[[], Config]
    get_models: Callable[[], ModelRouter]
    get_agent: Callable[[str], SessionAgent]
    start_run: StartRun[OutcomeT]
    stop_run: Callable[[str, str | None], tuple[str, ...]]
    mark_stopped_by: Callable[[str, str | None, StoppedBy], None]
    active_ids: Callable[[str | None], tuple[str, ...]]
    build_reply: Callable[[Inbound, str, str], Sequence[OutboxRecord]]
    on_enqueued: Callable[[], None]
    interpret: Callable[[str, InboxRecord], InterpretedMessage[OutcomeT]] = as_plain_message
    is_suspended: Callable[[OutcomeT], bool] = lambda _outcome: False
    on_suspended: Callable[[OutcomeT], None] = lambda _outcome: None
    on_suspended_stopped: Callable[[str, Sequence[str]], None] = lambda _key, _runs: None
    on_unanswered: OnUnanswered = ignore_unanswered
    stop_children: Callable[[str], Awaitable[int]] = stop_no_children
    on_parked: Callable[[], Awaitable[None]] = ignore_parked
    release_notices: Callable[[str], None] = lambda _run: None
    complete_files: CompleteFiles = lambda _records: None
    diagnostics: Diagnostics = field(default_factory=Diagnostics)


@dataclass(frozen=True, slots=True)
class SessionStatus:
    """A session and the model that would answer it."""

    key: str
    agent: str
    model: str
    reason: str
    note: str
    session_id: str
    messages: int
    context_tokens: int
    window: int
    workspace: str


class SessionControl(Generic[OutcomeT]):
    """Everything that can be done to a session from outside of its runs."""

    def __init__(self, services: SessionServices[OutcomeT]) -> None:
        self._services, self._journal = services, services.store.journal
        self._clock, self._closed, self.is_shutting_down = services.clock, False, False
        self._group: asyncio.TaskGroup = services.group
        self._retries: set[asyncio.Task[None]] = set()
        self._pending: dict[str, dict[str, asyncio.Future[OutcomeT]]] = {}  # key → message id → …
        self._queue = RunQueue(
            services.start_run,
            services.group,
            services.clock,
            settings=self._settings,
            interrupt=self._interrupt,
            settle=self._settle_unanswered,
            is_suspended=services.is_suspended,
            on_suspended=services.on_suspended,
            preempt=self._preempt,
        )

    # Sessions

    def resolve_key(self, name: str | None = None, agent: str | None = None) -> str:
        """Return the stored key of a named session, or of an agent's main session.

        Raises UnknownNameError when there is no such agent.
        """
        config = self._services.get_config()
        found = resolve_agent_settings(
            config, self._services.paths, agent or default_agent_id(config)
        ).id
        if config.session.scope == "global" and (name or "").strip().lower() in {"", DEFAULT_MAIN}:
            return global_key(found)
        return canonical_key(name, found, agents=agent_ids(config))

    async def load(self, key: str) -> Session:
        """Return a session; one that was never used is new."""
        agent = self._services.get_agent(agent_id_of(key))
        return await self._services.repository.load(key, agent.id, cwd=str(agent.workspace))

    async def status(self, key: str) -> SessionStatus:
        """Describe a session and the model that would answer it."""
        session, agent = await self.load(key), self._services.get_agent(agent_id_of(key))
        models, ref = self._services.get_models(), session.model or agent.model
        choice = None if ref else await models.default_model()
        _, model = await models.connect(
            ModelSelection(agent.id, ref, agent.fallbacks, exact=session.model is not None)
        )
        reason = "set for this session" if session.model else "configured"
        return SessionStatus(
            key=session.key,
            agent=agent.id,
            model=model.ref,
            reason=choice.why if choice else reason,
            note=model.note,
            session_id=session.session_id,
            messages=len(session.messages),
            context_tokens=session.context_tokens,
            window=model.window,
            workspace=str(agent.workspace),
        )

    # Messages

    async def accept(self, key: str, inbound: Inbound) -> Acceptance:
        """Write a message to the journal; a duplicate is recognised and not run again."""
        return await self._journal.accept(key, inbound, at_ms=self._clock.now_ms())

    def submit(self, key: str, record: InboxRecord) -> asyncio.Future[OutcomeT]:
        """Have an accepted message answered; the future is done when its run has ended."""
        message = self._services.interpret(key, record)
        if message.execute:
            return self._execute(key, message.execute)
        return self._enqueue(key, message)

    def submit_stored(self, key: str, record: InboxRecord) -> asyncio.Future[OutcomeT]:
        """Have a message answered that was read from the journal, with the files it lacks."""
        waiting = self._services.complete_files([record])
        if waiting is None:
            return self.submit(key, record)
        return self._when_complete(waiting, lambda found: self.submit(key, found[0]))

    def submit_next(self, key: str, record: InboxRecord) -> asyncio.Future[OutcomeT]:
        """Have an accepted message answered by a run of its own, whatever the queue mode is."""
        return self._track(key, record.id, self._queue.start_run(key, [record]))

    async def ask(self, key: str, inbound: Inbound) -> OutcomeT:
        """Accept and submit a message, and wait for the outcome of its run."""
        return await self.submit(key, (await self.accept(key, inbound)).record)

    def take_steering(self, key: str) -> Sequence[InboxRecord]:
        """Return the messages that steer the active run of a session."""
        return self._queue.take_steering(key)

    def queue_depth(self, key: str) -> int:
        """Return how many messages of a session wait for a run."""
        return self._queue.depth(key)

    def active_place(self, key: str) -> QueuePlace | None:
        """Return how the messages of the active run of a session came to it."""
        return self._queue.active_place(key)

    def active_runs(self, key: str | None = None) -> tuple[str, ...]:
        """Return the ids of the active runs, of one session or of all."""
        return self._services.active_ids(key)

    def is_busy(self, key: str) -> bool:
        """Return whether a session has an active run, or messages that wait for one."""
        return bool(self.active_runs(key) or self.queue_depth(key))

    @property
    def is_closed(self) -> bool:
        """Whether nothing more is started: the program ends."""
        return self._closed

    def find_pending(self, key: str, message_id: str) -> asyncio.Future[OutcomeT] | None:
        """Return the future of a message that waits for its run, or for the end of it."""
        return self._pending.get(key, {}).get(message_id)

    async def inject(self, key: str, text: str) -> tuple[str, Message]:
        """Add an assistant message that no model wrote; return its entry's id and itself."""
        message = Message("assistant", (Text(text),), self._clock.now_ms())
        session = await self.load(key)
        await session.append(message)
        assert session.leaf is not None  # noqa: S101 - it has at least this message
        return session.leaf, message

    # Stop and reset

    def stop_now(
        self, key: str, run_id: str | None = None, *, by: StoppedBy | None = None
    ) -> tuple[str, ...]:
        """Stop the active run and cancel what is queued, or one run; return the runs' ids.

        `by` says how a person asked for it; the transcript records it.
        """
        if by:
            self._services.mark_stopped_by(key, run_id, by)
        dropped = self._queue.cancel_pending(key, run_id)
        if dropped:
            name = f"drop {key}"
            settle = partial(self._settle_unanswered, dropped, ABORTED)
            self._group.create_task(run_contained(name, settle, lambda _exc: None), name=name)
        runs = [run for run in self._queue.suspended(key) if run_id in (None, run)]
        suspended = self._queue.cancel_suspended(key, run_id)
        if runs:
            name, settle = f"drop {key}", partial(self._settle_suspended, key, runs)
            self._group.create_task(run_contained(name, settle, lambda _exc: None), name=name)
        ids = (record.id for record in (*dropped, *suspended))
        return (*self._services.stop_run(key, run_id), *ids)

    def _interrupt(self, key: str) -> None:
        """Stop the active run because a newer message goes first."""
        self._services.mark_stopped_by(key, None, "interrupt")
        self._services.stop_run(key, None)

    def _preempt(self, key: str) -> None:
        """Stop a heartbeat because a message must not wait for it."""
        self._services.mark_stopped_by(key, None, "preempt")
        self._services.stop_run(key, None)

    def _release_notices(self, records: Sequence[InboxRecord]) -> None:
        """Make the notices pending again that heartbeats had which get no run."""
        for record in records:
            if record.inbound and record.inbound.is_heartbeat:
                self._services.release_notices(record.id)

    async def stop(
        self, key: str, run_id: str | None = None, *, by: StoppedBy | None = None
    ) -> tuple[str, ...]:
        """Stop a session's runs, or one, those that are only about to start too."""
        pending = {id_ for id_ in self._pending.get(key, ()) if run_id in (None, id_)}
        stopped = dict.fromkeys(self.stop_now(key, run_id, by=by))
        for _ in range(_LOOP_TURNS):
            if pending <= stopped.keys():
                return tuple(stopped)
            await asyncio.sleep(0)
            stopped |= dict.fromkeys(self.stop_now(key, run_id, by=by))
        # What is left was given to the active run as steering.
        for active in self.active_runs(key):
            stopped |= dict.fromkeys(self.stop_now(key, active, by=by))
        return tuple(stopped)

    async def stop_children(self, key: str) -> int:
        """Stop the sub-agents of a session, and theirs; return how many were stopped."""
        return await self._services.stop_children(key)

    async def stop_and_wait(self, key: str, *, by: StoppedBy | None = None) -> tuple[str, ...]:
        """Stop a session's runs and wait for their outcomes; return their ids.

        Raises UnavailableError when they do not end in time.
        """
        stopped = await self.stop(key, by=by)
        pending = self._pending.get(key, {}).values()
        if pending and (await asyncio.wait(pending, timeout=STOP_TIMEOUT_S))[1]:
            raise _still_running()
        return stopped

    @asynccontextmanager
    async def exclusive(self, key: str, *, by: StoppedBy | None = None) -> AsyncIterator[None]:
        """Stop a session's runs, and let none start until the block ends.

        A run that was stopped has saved everything when the block starts. Raises UnavailableError
        when that takes too long.
        """
        await self.stop_and_wait(key, by=by)
        async with AsyncExitStack() as lane:
            try:
                async with asyncio.timeout(STOP_TIMEOUT_S):
                    await lane.enter_async_context(self._services.lanes.enter(f"session:{key}"))
            except TimeoutError:
                raise _still_running() from None
            yield

    async def reset(
        self, key: str, where: HookContext, *, by: StoppedBy | None = None, only_used: bool = False
    ) -> Session:
        """Stop a session's runs and start a new transcript; the old one is archived.

        `where` is the context for hooks. With `only_used`, a session without messages is unchanged.
        """
        async with self.exclusive(key, by=by):
            session = await self.load(key)
            if session.is_used or not only_used:
                count = len(session.messages)
                await self._services.hooks.session_end(where, session.session_id, count)
                await session.reset()
            return session

    # Suspended runs

    def has_suspended(self, key: str) -> bool:
        """Return whether a run of the session waits for an approval."""
        return bool(self.suspended_runs(key))

    def suspended_runs(self, key: str) -> tuple[str, ...]:
        """Return the ids of the session's runs that wait for an approval."""
        return self._queue.suspended(key)

    def resume_suspended(self, key: str, run: str) -> None:
        """Start a suspended run again; one that is not suspended is ignored."""
        if self._closed or run not in self._queue.suspended(key):
            return
        name = f"resume {run}"
        self._spawn(run_contained(name, lambda: self._resume_suspended(key, run), _ignore), name)

    async def _resume_suspended(self, key: str, run: str) -> None:
        try:
            found = await self._journal.inbox_records("suspended", session=key)
        except StoreError as exc:
            log.warning("run %s could not be resumed yet: %s", run, exc)
            await self._clock.sleep(RETRY_S)
            self.resume_suspended(key, run)
            return
        records = [self._reinterpret(key, record) for record in found if record.run == run]
        if records:
            self._queue.resume(key, run, sorted(records, key=lambda record: record.id != run))
        else:  # settled or taken over by another run meanwhile
            self._queue.cancel_suspended(key, run)

    def _reinterpret(self, key: str, record: InboxRecord) -> InboxRecord:
        """Return the message of a run as it was when it started: with its directives parsed."""
        message = self._services.interpret(key, record).record
        # A plain text may also be the answer to a question that was asked since.
        is_answer = message.inbound is not None and bool(message.inbound.metadata.approval)
        return record if is_answer else message

    async def _settle_suspended(self, key: str, runs: Sequence[str]) -> None:
        """Settle suspended runs as aborted, and cancel their approvals."""
        found = await self._journal.inbox_records("suspended", session=key)
        await self._settle_unanswered([one for one in found if one.run in runs], ABORTED)
        self._services.on_suspended_stopped(key, runs)

    def _hold(self, key: str, records: Sequence[InboxRecord]) -> None:
        """Keep the messages of a run that an earlier process left suspended."""
        self._track(key, records[0].id, self._queue.hold(key, records))

    # Start and end of the process

    async def recover(self) -> list[tuple[InboxRecord, asyncio.Future[OutcomeT]]]:
        """Resume what an earlier process accepted and did not settle."""
        found = await recover(
            self._journal, self._clock, self._resume, self._hold, self._build_parked_notice
        )
        self._services.on_enqueued()
        return found

    def retry_unsettled(self, ids: Sequence[str]) -> None:
        """Resume messages, after a while, whose outcome could not be saved."""
        if self._closed:
            return
        name = "return to messages"
        work = run_contained(name, lambda: self._retry(ids), lambda _exc: self.retry_unsettled(ids))
        if task := self._spawn(work, name):
            self._retries.add(task)
            task.add_done_callback(self._retries.discard)

    def begin_shutdown(self) -> None:
        """Have runs and commands that are cancelled from now on not count as attempts.

        Call it before a clean stop cancels them. When a failure ends the program it is not called:
        one of them may be what broke the program.
        """
        self.is_shutting_down = True

    def close(self) -> None:
        """Start nothing more: what is accepted from now on waits for the next start."""
        self._closed = True
        self._queue.close()
        for task in self._retries:
            task.cancel()

    def _resume(
        self, key: str, records: Sequence[InboxRecord]
    ) -> tuple[InboxRecord, asyncio.Future[OutcomeT]]:
        """Resume messages; those whose files were not downloaded, as soon as they are."""
        is_begun = bool(records[0].entry)
        waiting = None if is_begun else self._services.complete_files(records)
        if waiting is None:
            return self._resume_complete(key, records)
        resume = partial(self._resume_complete, key)
        return records[0], self._when_complete(waiting, lambda found: resume(found)[1])

    def _when_complete(
        self,
        waiting: "asyncio.Future[Sequence[InboxRecord]]",
        start: Callable[[Sequence[InboxRecord]], asyncio.Future[OutcomeT]],
    ) -> asyncio.Future[OutcomeT]:
        """Start what answers records once they have their files, and return its outcome."""
        result: asyncio.Future[OutcomeT] = make_result_future()

        def go_on(found: "asyncio.Future[Sequence[InboxRecord]]") -> None:
            if found.cancelled() or self._closed:
                result.cancel()  # they stay in the journal, for the next start
            else:
                start(found.result()).add_done_callback(partial(copy_result, result))

        waiting.add_done_callback(go_on)
        return result

    def _resume_complete(
        self, key: str, records: Sequence[InboxRecord]
    ) -> tuple[InboxRecord, asyncio.Future[OutcomeT]]:
        messages = [self._services.interpret(key, record) for record in records]
        if messages[0].execute and not records[0].entry:
            return records[0], self._execute(key, messages[0].execute)
        result = self._queue.start_run(key, [one.record for one in messages])
        return records[0], self._track(key, records[0].id, result)

    async def _retry(self, ids: Sequence[str]) -> None:
        await self._clock.sleep(RETRY_S)
        found = [await self._journal.inbox_record(message_id) for message_id in ids]
        records = [record for record in found if record and record.state in UNSETTLED]
        _, summary = await resume_or_park(
            self._journal, self._clock, self._resume, self._build_parked_notice, records
        )
        self._services.on_enqueued()
        if summary:
            log.warning("after a failure of the disk: %s", summary)
            await self._services.on_parked()

    def _enqueue(self, key: str, message: InterpretedMessage[OutcomeT]) -> asyncio.Future[OutcomeT]:
        record, inbound = message.record, self._services.get_config().messages.inbound
        inline = self._settings(key, record, message.queue) if message.queue else None
        result = self._queue.submit(
            key, record, inline, debounce_ms=inbound_debounce_ms(inbound, record)
        )
        if self._services.diagnostics.is_active:
            source, depth = _source_of(record), self._queue.depth(key)
            event = MessageQueued(key, record.channel, source, depth)
            self._services.diagnostics.publish(event)
        return self._track(key, record.id, result)

    def _track(
        self, key: str, message_id: str, result: asyncio.Future[OutcomeT]
    ) -> asyncio.Future[OutcomeT]:
        """Track a queued message or a run until it has its outcome."""
        if result.done():
            return result
        self._pending.setdefault(key, {})[message_id] = result
        result.add_done_callback(lambda _done: self._untrack(key, message_id, result))
        return result

    def _untrack(self, key: str, message_id: str, result: asyncio.Future[OutcomeT]) -> None:
        pending = self._pending.get(key, {})
        if pending.get(message_id) is result:
            del pending[message_id]
        if not pending:
            self._pending.pop(key, None)

    def _execute(
        self, key: str, execute: Callable[[], Awaitable[OutcomeT | InboxRecord]]
    ) -> asyncio.Future[OutcomeT]:
        """Execute a command next to the runs; the future is done when it is answered."""
        result: asyncio.Future[OutcomeT] = make_result_future()
        if self._closed:
            result.cancel()  # it stays in the journal, for the next start
            return result

        async def work() -> None:
            outcome = await execute()
            if isinstance(outcome, InboxRecord):
                rest = self._enqueue(key, InterpretedMessage(outcome))
                rest.add_done_callback(partial(copy_result, result))
            elif not result.done():  # the caller may have stopped waiting
                result.set_result(outcome)

        def ended(task: asyncio.Task[None]) -> None:
            if task.cancelled():
                result.cancel()

        command = run_contained(f"command in {key}", work, partial(_fail, result))
        if task := self._spawn(command, f"command {key}"):
            task.add_done_callback(ended)
        else:
            result.cancel()
        return result

    def _spawn(self, work: Coroutine[None, None, None], name: str) -> asyncio.Task[None] | None:
        """Start a task; None when the program is ending."""
        try:
            return self._group.create_task(work, name=name)
        except RuntimeError:
            work.close()
            return None

    def _settings(
        self, key: str, record: InboxRecord, inline: QueueDirective | None = None
    ) -> QueueSettings:
        inbound = record.inbound
        if inbound and (
            inbound.needs_own_run or inbound.options.lane in {NESTED_LANE, HEARTBEAT_LANE}
        ):
            # Of a program or a session that waits for the answer, or a heartbeat: it neither
            # steers nor stops the run under way.
            return QueueSettings(mode="followup", debounce_ms=0)
        entry = self._services.repository.entry(key)
        config = self._services.get_config().messages.queue
        return resolve_queue_settings(config, channel=record.channel, entry=entry, inline=inline)

    async def _settle_unanswered(self, records: Sequence[InboxRecord], reason: str) -> None:
        """Settle messages that get no run of their own, and report the reason to their senders."""
        if not records:
            return
        self._release_notices(records)
        ids = [record.id for record in records]
        # No run works on these: there is no need to wait until the session's run has ended.
        async with (
            self._services.on_unanswered(records[0].session, ids, reason) as write_end,
            self._journal.lease("inbox") as lease,
            self._services.store.transaction() as transaction,
        ):
            # These may have been started under an earlier lease.
            for record in (record for record in records if record.was_started):
                transaction.mark_running([record.id], lease, run=record.run or record.id)
            self._report(transaction, records, lease, reason)
            write_end(transaction)
            runs = [record.run for record in records if record.state == "suspended"]
            if runs:
                transaction.cancel_approvals(runs, at_ms=self._clock.now_ms())
        self._services.on_enqueued()

    def _report(
        self,
        transaction: JournalTransaction,
        records: Sequence[InboxRecord],
        lease: Lease,
        reason: str,
    ) -> None:
        ids, now_ms = [record.id for record in records], self._clock.now_ms()
        if reason == PREEMPTED:  # they are heartbeats, which no person waits for
            transaction.settle(ids, lease, "silent", at_ms=now_ms, why=reason)
            return
        transaction.settle(ids, lease, "reported", at_ms=now_ms, why=reason)
        if reason == ABORTED:
            return  # the sender stopped it
        for record in records:
            inbound = record.inbound and redirect_reply(record.inbound)
            if inbound and not self._is_muted(record.session, inbound):
                text = f"I did not get to your message “{record.preview}”: {reason}."
                transaction.enqueue(*self._services.build_reply(inbound, record.id, text))

    def _build_parked_notice(
        self, record: InboxRecord, name: str, reason: str
    ) -> Sequence[OutboxRecord]:
        """Return what tells a sender that a message was parked; `name` is unique to the notice."""
        text = PARKED_NOTICE.format(preview=record.preview, reason=reason)
        return self.build_notice(record, name, text)

    def build_notice(self, record: InboxRecord, name: str, text: str) -> Sequence[OutboxRecord]:
        """Return a message to the sender of an inbox record; `name` is unique to the notice."""
        inbound = record.inbound and redirect_reply(record.inbound)
        if inbound is None or self._is_muted(record.session, inbound):
            return ()
        return self._services.build_reply(inbound, name, text)

    def _is_muted(self, key: str, inbound: Inbound) -> bool:
        """Return whether the send policy forbids replies to this chat."""
        rules = self._services.get_config().session.send_policy
        return is_muted(rules, key, self._services.repository.entry(key), inbound)


def _source_of(record: InboxRecord) -> str:
    """Return who wrote a message: a person, a session of ours, or the program."""
    inbound = record.inbound
    if inbound is None or not inbound.is_internal:
        return "person"
    return "heartbeat" if inbound.is_heartbeat else "internal"


def _ignore(_exc: Exception) -> None:
    """Do nothing more about an error: it was logged."""


def _still_running() -> UnavailableError:
    return UnavailableError("the answer being made did not stop yet", fix="try again in a moment")


def _fail(result: "asyncio.Future[OutcomeT]", error: BaseException) -> None:
    if not result.done():
        result.set_exception(error)
