"""The run queue of each session: a message starts a run, steers the active one, or waits.

Everything in it is in the journal as well, so that a crash loses nothing. The queue decides what
happens to a message, by the rules of `queue_policy`:

- one run per session at a time, in the order of arrival;
- the future that `submit` returns is done when the run that answers has ended, and cancelled when
  no run will answer;
- a steering message must come from the chat that the active run replies to, and merged messages
  from one chat with the same run options: every reply goes where its question came from. The cap
  counts per chat too;
- a message that arrives after the loop's last check for steering gets a run of its own;
- before the first run, a debounce may wait for more messages of a person: they are merged into
  one question, whatever the mode;
- messages dropped by the cap (`old`, `new`), or superseded by a newer one of the same chat
  (`interrupt`), are settled as reported. With `summarize` a line of each goes into the next
  question of its chat, and it is settled with that;
- a message that no person wrote (the result of a sub-agent, a message of another session) steers or
  waits, is never merged with others, and neither the cap nor a newer message drops it;
- a message of a program that must have its own answer waits for its own run, in the same way;
- a heartbeat is stopped at once when a person's message arrives, or waits until no message does;
- `steer-backlog` is given to the active run and answered by its own run, which alone settles it;
- a run that ends suspended leaves its messages with `hold`: the session goes on with others, and
  their futures get the outcome of the run that `resume` starts for them.

A run that raises is a bug: its futures fail, and the next message gets its run.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import field, replace
from functools import partial
from itertools import takewhile
from typing import Final, Generic, TypeAlias, TypeVar

from homarus.core.clock import Clock
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Address, Inbound, RunOptions
from homarus.core.tasks import run_contained
from homarus.sessions.envelope import attributed_text, indent, sender_label
from homarus.sessions.queue_policy import (
    QueueSettings,
    apply_cap,
    collect_prompt,
    recent_summary_lines,
    summary_line,
    summary_prompt,
)
from homarus.store.journal import InboxRecord

log = logging.getLogger(__name__)

OutcomeT = TypeVar("OutcomeT")
# The session key, the inbox records a run answers (the first names it), and the text of its
# question when that is not the first record's own. The images are those of all records.
StartRun: TypeAlias = Callable[[str, Sequence[InboxRecord], str], Awaitable[OutcomeT]]

_STEERING: Final = ("steer", "steer-backlog")
QUEUE_FULL = "too many messages were waiting (queue cap {cap}, drop {drop})"
PREEMPTED: Final = "preempted"  # of a heartbeat: a person's message goes first
SUPERSEDED = "a newer message took its place (queue mode interrupt)"


@dataclass(frozen=True, slots=True)
class QueuePlace:
    """How a message came to its run: the mode it waited by, "idle" if the session was free.

    `submitted_s` is when it was submitted, by the monotonic clock; `messages` is the number of
    messages that were merged.
    """

    mode: str
    submitted_s: float
    messages: int


@dataclass(slots=True)
class _QueuedMessages(Generic[OutcomeT]):
    """Messages that are answered together, and the future of their outcome."""

    records: tuple[InboxRecord, ...]
    future: asyncio.Future[OutcomeT]
    settings: QueueSettings = field(default_factory=QueueSettings)
    at_s: float = 0.0
    has_waited: bool = False  # for the run that was active when it came
    was_steered: bool = False  # given to the active run, with `steer-backlog`
    is_resumed: bool = False  # started before: the cap does not drop it
    summary: str = ""  # the summary of a dropped one
    is_debouncing: bool = False  # waits for more messages of its sender

    @property
    def inbound(self) -> Inbound:
        found = self.records[0].inbound
        assert found is not None  # noqa: S101 - a record that is not settled has its message
        return found

    @property
    def chat(self) -> Address:
        return self.inbound.address

    @property
    def is_internal(self) -> bool:
        return self.inbound.is_internal

    @property
    def is_heartbeat(self) -> bool:
        return self.inbound.is_heartbeat

    @property
    def is_kept(self) -> bool:
        """Whether neither the cap nor a newer message drops it."""
        return self.is_internal or self.inbound.needs_own_run

    def can_steer(self, answered: "_QueuedMessages[OutcomeT]") -> bool:
        """Return whether a run for the other message can answer this one: as it has to be sent.

        Settings for commands hold for the run of their message alone, and so does a skill that it
        invokes.
        """
        own, other = self.inbound.options, answered.inbound.options
        if own.skill or own.client or other.client:
            return False
        is_prompted = own.extra_system_prompt not in ("", other.extra_system_prompt)
        is_judged_alike = _exec_options(own) == _exec_options(other)
        return own.deliver_to == other.deliver_to and not is_prompted and is_judged_alike

    @property
    def route(self) -> tuple[Address, RunOptions]:
        return self.inbound.address, self.inbound.options


def _exec_options(options: RunOptions) -> tuple[str | None, ...]:
    return options.exec_host, options.exec_security, options.exec_ask, options.elevated


@dataclass(slots=True)
class _ActiveRun(Generic[OutcomeT]):
    """The active run, or the one about to start."""

    items: list[_QueuedMessages[OutcomeT]]
    records: tuple[InboxRecord, ...]
    text: str
    has_started: bool = False
    is_dropped: bool = False
    is_preempted: bool = False  # it is stopped as soon as it has started

    @property
    def chat(self) -> Address:
        return self.items[0].chat

    @property
    def is_startable(self) -> bool:
        return not self.has_started and not self.is_dropped

    @property
    def is_heartbeat(self) -> bool:
        return bool(self.items) and self.items[0].is_heartbeat

    def open_futures(self) -> list[asyncio.Future[OutcomeT]]:
        return [item.future for item in self.items if not item.future.done()]


@dataclass(slots=True)
class _SessionQueue(Generic[OutcomeT]):
    """A session with an active run or queued messages."""

    active: _ActiveRun[OutcomeT] | None = None
    waiting: list[_QueuedMessages[OutcomeT]] = field(default_factory=list)
    overflow: dict[Address, list[_QueuedMessages[OutcomeT]]] = field(default_factory=dict)
    wake: asyncio.Future[None] | None = None  # while it debounces

    @property
    def is_debouncing(self) -> bool:
        return self.active is None and bool(self.waiting) and self.waiting[0].is_debouncing

    def items_of(self, chat: Address) -> list[_QueuedMessages[OutcomeT]]:
        return [item for item in self.waiting if item.chat == chat]

    def all_items(self) -> list[_QueuedMessages[OutcomeT]]:
        return [*(item for some in self.overflow.values() for item in some), *self.waiting]

    def sort(self) -> None:
        """Move heartbeats behind the messages: none waits for a heartbeat."""
        self.waiting.sort(key=lambda item: item.is_heartbeat)

    def notify(self) -> None:
        """Make the debounce check again whether there is anything to wait for."""
        if self.wake and not self.wake.done():
            self.wake.set_result(None)


class RunQueue(Generic[OutcomeT]):
    """Decides what a new message does to its session.

    `settings` returns the queue settings of a message whose session is busy. `interrupt` stops the
    active run of a session for a newer message, `preempt` for one that must not wait for it: both
    must be possible as soon as `start` was called. `settle` records
    in the journal that messages are reported, and the reason. `is_suspended` says whether the
    outcome of a run is that it waits for an approval; then `on_suspended` is called with it as
    soon as it can be resumed.
    """

    def __init__(
        self,
        start: StartRun[OutcomeT],
        group: asyncio.TaskGroup,
        clock: Clock,
        *,
        settings: Callable[[str, InboxRecord], QueueSettings],
        interrupt: Callable[[str], object],
        settle: Callable[[Sequence[InboxRecord], str], Awaitable[None]],
        is_suspended: Callable[[OutcomeT], bool] = lambda _outcome: False,
        on_suspended: Callable[[OutcomeT], None] = lambda _outcome: None,
        preempt: Callable[[str], object] = lambda _session: None,
    ) -> None:
        self._group: asyncio.TaskGroup = group
        self._start, self._clock, self._preempt = start, clock, preempt
        self._settings, self._interrupt, self._settle = settings, interrupt, settle
        self._is_suspended, self._on_suspended = is_suspended, on_suspended
        self._queues: dict[str, _SessionQueue[OutcomeT]] = {}
        self._suspended: dict[str, dict[str, _QueuedMessages[OutcomeT]]] = {}  # session → run → …
        self._closed = False

    def submit(
        self,
        session: str,
        record: InboxRecord,
        inline: QueueSettings | None = None,
        *,
        debounce_ms: int = 0,
    ) -> asyncio.Future[OutcomeT]:
        """Queue a message; the future is done when the run that answers it has ended.

        An idle session waits `debounce_ms` for more messages before its run starts.
        """
        item = self._make_item((record,))
        queue = self._queues.get(session)
        if debounce_ms and (queue is None or queue.is_debouncing):
            item.is_debouncing = True
            item.settings = QueueSettings(mode="collect", debounce_ms=debounce_ms)
        if queue is None or self._closed:
            self._start_queue(session, item)
            return item.future
        if item.is_debouncing:
            queue.waiting.append(item)
            return item.future
        item.settings, item.has_waited = inline or self._settings(session, record), True
        if self._preempt_heartbeat(session, queue, item):
            item.settings = replace(item.settings, debounce_ms=debounce_ms)
        if item.is_internal and item.settings.mode not in _STEERING:
            item.settings = replace(item.settings, mode="followup")
        if item.settings.mode == "interrupt":
            self._supersede(session, queue, item)
        else:
            self._add(queue, item)
        return item.future

    def start_run(self, session: str, records: Sequence[InboxRecord]) -> asyncio.Future[OutcomeT]:
        """Resume the messages of an earlier run as one run, whatever the mode."""
        item = self._make_item(tuple(records))
        item.settings, item.is_resumed = QueueSettings(mode="followup", debounce_ms=0), True
        queue = self._queues.get(session)
        if queue is None or self._closed:
            self._start_queue(session, item)
        else:
            self._preempt_heartbeat(session, queue, item)
            queue.waiting.append(item)
        return item.future

    def hold(self, session: str, records: Sequence[InboxRecord]) -> asyncio.Future[OutcomeT]:
        """Keep the messages of a suspended run until it is resumed; the first names the run."""
        item = self._make_item(tuple(records))
        self._suspended.setdefault(session, {})[records[0].id] = item
        return item.future

    def resume(self, session: str, run: str, records: Sequence[InboxRecord]) -> None:
        """Start a suspended run again, once; its futures get the outcome of the new run."""
        item = self._pop_suspended(session, run)
        if item:
            result = self.start_run(session, records)
            result.add_done_callback(partial(copy_result, item.future))

    def suspended(self, session: str) -> tuple[str, ...]:
        """Return the names of the suspended runs of a session."""
        return tuple(self._suspended.get(session, ()))

    def cancel_suspended(self, session: str, run_id: str | None = None) -> tuple[InboxRecord, ...]:
        """Cancel suspended runs, or one; the caller settles what is returned."""
        runs = [run for run in self.suspended(session) if run_id in (None, run)]
        items = [item for run in runs if (item := self._pop_suspended(session, run))]
        for item in items:
            item.future.cancel()
        return _records(items)

    def _pop_suspended(self, session: str, run: str) -> _QueuedMessages[OutcomeT] | None:
        runs = self._suspended.get(session, {})
        item = runs.pop(run, None)
        if not runs:
            self._suspended.pop(session, None)
        return item

    def take_steering(self, session: str) -> list[InboxRecord]:
        """Return the messages that steer the active run; it calls this after each tool call.

        The run settles them from now on. A record without an id is of `steer-backlog`: its text is
        given to the run, and a run of its own answers it.
        """
        queue = self._queues.get(session)
        if queue is None or queue.active is None:
            return []
        active, steering = queue.active, list[InboxRecord]()
        for item in queue.items_of(active.chat):
            if not item.can_steer(active.items[0]):
                continue
            if item.settings.mode == "steer":
                queue.waiting.remove(item)
                active.items.append(item)
                steering += item.records
            elif item.settings.mode == "steer-backlog" and not item.was_steered:
                item.was_steered = True
                steering += [replace(record, id="") for record in item.records]
        return steering

    def cancel_pending(self, session: str, run_id: str | None = None) -> tuple[InboxRecord, ...]:
        """Cancel queued messages, or one; the caller settles what is returned."""
        queue = self._queues.get(session)
        if queue is None:
            return ()
        removed = [item for item in queue.all_items() if run_id in (None, item.records[0].id)]
        self._remove(queue, removed)
        if (
            queue.active
            and queue.active.is_startable
            and run_id in (None, queue.active.records[0].id)
        ):
            queue.active.is_dropped = True
            removed = [*queue.active.items, *removed]
        for item in removed:
            item.future.cancel()
        queue.notify()
        return _records(removed)

    def close(self) -> None:
        """Start nothing more: queued messages stay in the journal, for the next start."""
        self._closed = True
        for queue in self._queues.values():
            self._abandon(queue)
        for session in list(self._suspended):
            self.cancel_suspended(session)

    def pending(self, session: str) -> tuple[InboxRecord, ...]:
        """Return the messages without a run, oldest first."""
        queue = self._queues.get(session)
        return _records(queue.all_items()) if queue else ()

    def active_place(self, session: str) -> QueuePlace | None:
        """Return how the messages of the active run of a session came to it."""
        queue = self._queues.get(session)
        if queue is None or queue.active is None or not queue.active.items:
            return None
        first = queue.active.items[0]
        mode = first.settings.mode if first.has_waited or first.is_debouncing else "idle"
        return QueuePlace(mode, first.at_s, len(queue.active.records))

    def depth(self, session: str | None = None) -> int:
        """Return how many messages wait, in one session or in all."""
        names = self._queues if session is None else (session,)
        return sum(len(self.pending(name)) for name in names)

    def _make_item(self, records: tuple[InboxRecord, ...]) -> _QueuedMessages[OutcomeT]:
        return _QueuedMessages(records, make_result_future(), at_s=self._clock.monotonic())

    # A message for a session with an active run

    def _add(self, queue: _SessionQueue[OutcomeT], item: _QueuedMessages[OutcomeT]) -> None:
        """Queue a message, if the cap allows it."""
        rule = item.settings
        others = [one for one in queue.items_of(item.chat) if not (one.is_resumed or one.is_kept)]
        if item.is_kept:
            queue.waiting.append(item)
            return
        decision = apply_cap(others, rule.cap, rule.drop)
        reason = QUEUE_FULL.format(cap=rule.cap, drop=rule.drop)
        if not decision.is_accepted:
            self._settle_items([item], reason)
            return
        self._remove(queue, decision.dropped)
        if rule.drop == "summarize":
            overflow = queue.overflow.setdefault(item.chat, []) if decision.dropped else []
            overflow.extend(_shrink(each) for each in decision.dropped)
        else:
            self._settle_items(decision.dropped, reason)
        queue.waiting.append(item)

    def _preempt_heartbeat(
        self, session: str, queue: _SessionQueue[OutcomeT], item: _QueuedMessages[OutcomeT]
    ) -> bool:
        """Stop a heartbeat for a person's message; return whether there was one."""
        active = queue.active
        if item.is_internal or active is None or not active.is_heartbeat:
            return False
        if active.has_started:
            self._preempt(session)
        elif active.records[0].entry:  # of an earlier process: its run settles what it left
            active.is_preempted = True
        elif active.is_startable:
            active.is_dropped = True
            self._settle_items(active.items, PREEMPTED)
        return True

    def _supersede(
        self, session: str, queue: _SessionQueue[OutcomeT], item: _QueuedMessages[OutcomeT]
    ) -> None:
        """Put a message first, in place of earlier ones of the same chat."""
        waiting = [one for one in queue.items_of(item.chat) if not one.is_kept]
        older = [*queue.overflow.get(item.chat, ()), *waiting]
        self._remove(queue, older)
        queue.waiting.insert(0, item)
        if queue.active and queue.active.is_startable and not queue.active.items[0].is_kept:
            queue.active.is_dropped = True
            older = [*queue.active.items, *older]
        elif queue.active and queue.active.has_started:
            self._interrupt(session)
        self._settle_items(older, SUPERSEDED)
        queue.notify()

    def _remove(
        self, queue: _SessionQueue[OutcomeT], removed: Iterable[_QueuedMessages[OutcomeT]]
    ) -> None:
        removed_ids = {id(item) for item in removed}
        queue.waiting[:] = [item for item in queue.waiting if id(item) not in removed_ids]
        for chat, items in list(queue.overflow.items()):
            items[:] = [item for item in items if id(item) not in removed_ids]
            if not items:
                del queue.overflow[chat]

    def _settle_items(self, items: Sequence[_QueuedMessages[OutcomeT]], reason: str) -> None:
        """Settle messages that no run will answer, then cancel their futures."""
        if not items:
            return
        records = _records(items)

        async def settle() -> None:
            await run_contained(
                "settling", lambda: self._settle(records, reason), lambda _exc: None
            )

        def cancel() -> None:
            for item in items:
                item.future.cancel()

        self._spawn(settle, f"settle {records[0].session}", cancel)

    # Runs

    def _start_queue(self, session: str, item: _QueuedMessages[OutcomeT]) -> None:
        """Start with a message whose session is idle."""
        if self._closed:
            item.future.cancel()  # it stays in the journal, for the next start
            return
        queue = (
            _SessionQueue(None, [item])
            if item.is_debouncing
            else _SessionQueue(_ActiveRun([item], item.records, ""))
        )
        self._queues[session] = queue
        drain, end = partial(self._drain, session, queue), partial(self._end, session, queue)
        self._spawn(drain, f"run {session}", end)

    async def _drain(self, session: str, queue: _SessionQueue[OutcomeT]) -> None:
        """Start run after run, until the queue is empty."""
        try:
            if queue.active is None:
                await self._debounce(queue)
                queue.active = self._next(queue)
            while queue.active:
                if not queue.active.is_dropped:
                    await self._run(session, queue.active)
                queue.active = None
                if queue.waiting or queue.overflow:
                    await self._debounce(queue)
                    queue.active = self._next(queue)
        finally:
            self._end(session, queue)

    def _end(self, session: str, queue: _SessionQueue[OutcomeT]) -> None:
        """Remove an empty queue; or, when the program ends, leave its messages in the journal."""
        if self._queues.get(session) is queue:
            del self._queues[session]
        self._abandon(queue)
        for future in queue.active.open_futures() if queue.active else ():
            future.cancel()

    async def _run(self, session: str, active: _ActiveRun[OutcomeT]) -> None:
        """Start one run and wait; its futures are done or cancelled in any case."""

        async def run() -> None:
            outcome = await self._start(session, active.records, active.text)
            if self._is_suspended(outcome):
                self._hold_active(session, active)
                self._on_suspended(outcome)
            for future in active.open_futures():
                future.set_result(outcome)

        def failed(exc: Exception) -> None:
            for future in active.open_futures():
                future.set_exception(exc)

        active.has_started = True
        if active.is_preempted:
            asyncio.get_running_loop().call_soon(self._preempt, session)
        try:
            await run_contained(f"run {session}", run, failed)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            log.warning("run %s ended by a cancellation nobody asked for", session)
        finally:
            for future in active.open_futures():
                future.cancel()

    def _hold_active(self, session: str, active: _ActiveRun[OutcomeT]) -> None:
        """Keep the messages of a run that ended suspended; nothing waits for it any more."""
        futures, records, active.items = active.open_futures(), _records(active.items), []
        if self._closed:
            for future in futures:
                future.cancel()  # the next start finds them in the journal
            return
        outcome = self.hold(session, records)
        for future in futures:
            outcome.add_done_callback(partial(copy_result, future))

    def _next(self, queue: _SessionQueue[OutcomeT]) -> _ActiveRun[OutcomeT] | None:
        """Return the next run: one message, or several that are merged."""
        if not queue.waiting:
            chat = next(iter(queue.overflow), None)
            overflow = queue.overflow.pop(chat) if chat else []
            return (
                _ActiveRun(overflow, _records(overflow), _summary(overflow)) if overflow else None
            )
        queue.sort()
        first = queue.waiting[0]
        items = [first]
        if first.settings.mode == "collect" and not first.inbound.options.skill:
            items = list(
                takewhile(
                    lambda one: one.settings.mode == "collect" and one.route == first.route,
                    queue.waiting,
                )
            )
        del queue.waiting[: len(items)]
        is_alone = first.inbound.needs_own_run
        overflow = [] if is_alone else queue.overflow.pop(first.chat, [])
        return _ActiveRun(
            [*items, *overflow], _records([*items, *overflow]), _question(items, overflow)
        )

    async def _debounce(self, queue: _SessionQueue[OutcomeT]) -> None:
        """Wait until no message has come for the debounce time, or the cap is reached."""
        while (wait_s := self._wait_s(queue)) > 0:
            queue.wake = asyncio.get_running_loop().create_future()
            timer = self._group.create_task(self._wake_after(wait_s, queue.wake), name="debounce")
            try:
                await queue.wake
            finally:
                timer.cancel()
                queue.wake = None

    def _wait_s(self, queue: _SessionQueue[OutcomeT]) -> float:
        queue.sort()
        if not queue.waiting or queue.waiting[0].settings.mode == "interrupt":
            return 0.0
        first = queue.waiting[0]
        if len(same := queue.items_of(first.chat)) >= first.settings.cap:
            return 0.0
        newest = same[-1]
        return newest.at_s + newest.settings.debounce_ms / 1000 - self._clock.monotonic()

    async def _wake_after(self, wait_s: float, wake: asyncio.Future[None]) -> None:
        await self._clock.sleep(wait_s)
        if not wake.done():
            wake.set_result(None)

    def _abandon(self, queue: _SessionQueue[OutcomeT]) -> None:
        for item in queue.all_items():
            item.future.cancel()
        queue.waiting.clear()
        queue.overflow.clear()
        queue.notify()

    def _spawn(
        self, run: Callable[[], Awaitable[None]], name: str, on_end: Callable[[], None]
    ) -> None:
        """Start a task; `on_end` is called even when the program is ending and it cannot start."""

        async def work() -> None:
            await run()

        coroutine = work()
        try:
            task = self._group.create_task(coroutine, name=name)
        except RuntimeError:
            coroutine.close()
            on_end()
        else:
            task.add_done_callback(lambda _task: on_end())


def _records(items: Iterable[_QueuedMessages[OutcomeT]]) -> tuple[InboxRecord, ...]:
    return tuple(record for item in items for record in item.records)


def _shrink(item: _QueuedMessages[OutcomeT]) -> _QueuedMessages[OutcomeT]:
    """Replace a dropped message by its summary line; its images go."""
    inbound = item.inbound
    pictures = len(inbound.images)
    note = f" [{pictures} picture{'' if pictures == 1 else 's'}]" if pictures else ""
    shrunk = replace(inbound, text="", images=(), media=())
    records = tuple(replace(record, inbound=shrunk) for record in item.records)
    sender = "" if inbound.metadata.kind == "direct" else f"{sender_label(inbound)}: "
    return replace(item, records=records, summary=sender + summary_line(inbound.text) + note)


def _summary(overflow: Sequence[_QueuedMessages[OutcomeT]]) -> str:
    """Return the text about dropped messages, with the lines of the newest."""
    lines = [item.summary for item in overflow if item.summary]
    cap = overflow[-1].settings.cap if overflow else 0
    return summary_prompt(len(overflow), recent_summary_lines(lines, cap))


def _texts_of(items: Sequence[_QueuedMessages[OutcomeT]]) -> list[str]:
    """Return the text of each message, with the sender's name when there are several."""
    messages = [item.inbound for item in items]
    if len({message.sender for message in messages}) == 1:
        return [
            attributed_text(message)
            for message in messages
            if message.text.strip() or not message.media
        ]
    return [f"{sender_label(message)}: {indent(attributed_text(message))}" for message in messages]


def _question(
    items: Sequence[_QueuedMessages[OutcomeT]], overflow: Sequence[_QueuedMessages[OutcomeT]]
) -> str:
    """Return the text of a merged question; "" when it is the first record's own."""
    if len(items) > 1 and all(item.is_debouncing for item in items) and not overflow:
        return "\n".join(_texts_of(items))
    if len(items) > 1:
        return collect_prompt(_texts_of(items), _summary(overflow))
    if overflow:
        return f"{_summary(overflow)}\n\n{items[0].inbound.text}"
    return ""


def copy_result(result: "asyncio.Future[OutcomeT]", run: "asyncio.Future[OutcomeT]") -> None:
    """Give a future the outcome of a run."""
    if result.done():
        return
    if run.cancelled():
        result.cancel()
    elif error := run.exception():
        result.set_exception(error)
    else:
        result.set_result(run.result())


def make_result_future() -> "asyncio.Future[OutcomeT]":
    """Return a future whose exception counts as retrieved: it was logged when it happened."""
    future: asyncio.Future[OutcomeT] = asyncio.get_running_loop().create_future()
    future.add_done_callback(lambda done: done.cancelled() or done.exception())
    return future
