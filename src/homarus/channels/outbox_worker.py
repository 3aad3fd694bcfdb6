"""Send the outbox records of one channel: in order per chat, chats concurrently, nothing twice.

A record is marked when its bytes are about to be written, and again after the service has answered.
A channel that reports that moment (SupportsMarkedSend) waits for its connection and its rate limit
before it; any other is marked before `send`. In between, the connection can break, the timeout can
pass or the process can die. Then the outcome is unknown, and the channel decides what follows:

- the service is idempotent: send again under the same key, while the service remembers it
  (`Capabilities.idempotent_s`); a message that starts a thread is not covered by such a key;
- the service supports lookup: query it, and send again if the message never arrived;
- neither: the record becomes *unknown* and is never sent again. Later records are still sent, as
  most of a reply is better than less of it; the chat is told with its next reply
  (supervisor.py).

After a temporary refusal the record is retried later, before the chat's other records. A permanent
refusal and an expired record make the record *dead*, which is logged; the rest is sent, and the
chat gets a notice about what expired. When the service refuses our credential, the channel stops
and its records stay pending.

Waits are measured by the monotonic clock. The times in the journal are corrected when the wall
clock was set, so that no step delays a retry or expires a record.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final, TypeAlias

from homarus.channels.base import (
    TTL_MS,
    Channel,
    Receipt,
    SupportsLookup,
    SupportsMarkedSend,
)
from homarus.core.clock import Clock, ClockStepDetector
from homarus.core.diagnostics import DeliveryAttempted, Diagnostics
from homarus.core.errors import (
    ChannelAuthError,
    ChannelError,
    LeaseLostError,
    SendError,
    StoreError,
)
from homarus.core.fast_dataclass import dataclass
from homarus.core.faults import fault_point
from homarus.core.message import Outbound
from homarus.core.retry import Backoff
from homarus.core.tasks import run_contained, task_group
from homarus.store.journal import Journal, Lease, OutboxRecord, OutboxState
from homarus.store.traces import DeliveryAttempt, add_attempt

log = logging.getLogger(__name__)

OnStateChange: TypeAlias = Callable[[OutboxRecord], object]

BACKOFF: Final = Backoff(first_s=1.0, max_s=300.0)
MIN_RETRY_AFTER_S, MAX_RETRY_AFTER_S = 1.0, 86_400.0  # the longest wait that a service may ask for
SEND_TIMEOUT_S: Final = 60.0  # timeout of one send
FILE_EXTRA_S: Final = 240.0  # added for a file: adapters give up before that
GRACE_S: Final = 3.0  # grace period at the end, for due records and again for sends under way
POLL_INTERVAL_S: Final = 30.0  # interval of polls without a wake-up
TOO_LATE: Final = "it could not be delivered in time"
UNCONFIRMED: Final = "it was being sent when the program stopped, and nobody heard the answer"
EXPIRED_NOTICE: Final = (
    "I could not deliver an earlier reply of mine in time, and I do not send it late. If you still"
    " need it, ask me again."
)
_NOTICE_SUFFIXES: Final = (":expired", ":notice")
MAX_CHATS_AT_ONCE: Final = 16  # chats of one channel that are sent to at once


@dataclass(frozen=True, slots=True)
class _SendOutcome:
    """The outcome of a record, or of one attempt to send it.

    `may_have_arrived`: the record is pending, and this attempt may have been delivered.
    """

    state: OutboxState
    why: str = ""
    receipt: str = ""
    thread: str = ""  # that the send created
    delay_s: float = 0.0  # of a pending one, until it is retried
    may_have_arrived: bool = False


@dataclass(frozen=True, slots=True)
class _ChatBackoff:
    """How long a chat is not sent to; the state of its record does not say."""

    failures: int
    until_s: float


class OutboxClock:
    """Correct the journal's times once per step of the wall clock; shared by all workers."""

    def __init__(self, journal: Journal, clock: Clock) -> None:
        self._journal, self._steps = journal, ClockStepDetector(clock)
        self._lock = asyncio.Lock()

    async def correct_times(self) -> bool:
        """Return whether the clock was set since the last call: then read the records again."""
        async with self._lock:  # none proceeds before the correction is stored
            step_ms = self._steps.take_step_ms()
            if step_ms:
                log.warning("the clock was set by %+d s: waiting replies are kept", step_ms // 1000)
                try:
                    await self._journal.shift_times(step_ms)
                except BaseException:
                    self._steps.restore(step_ms)
                    raise
            return bool(step_ms)


class OutboxWorker:
    """Send the pending records of one channel; `on_state_change` is called with every new state."""

    def __init__(
        self,
        channel: Channel,
        journal: Journal,
        clock: Clock,
        *,
        on_state_change: OnStateChange = lambda _record: None,
        backoff: Backoff = BACKOFF,
        send_timeout_s: float = SEND_TIMEOUT_S,
        file_extra_s: float = FILE_EXTRA_S,
        max_chats: int = MAX_CHATS_AT_ONCE,
        outbox_clock: OutboxClock | None = None,
        diagnostics: Diagnostics | None = None,
    ) -> None:
        self._diagnostics = diagnostics or Diagnostics()
        self._outbox_clock = outbox_clock or OutboxClock(journal, clock)
        self._channel, self._journal, self._clock = channel, journal, clock
        self._on_state_change, self._backoff, self._max_chats = on_state_change, backoff, max_chats
        self._send_timeout_s, self._file_extra_s = send_timeout_s, file_extra_s
        self._account_key = f"{channel.name}:{channel.account}"
        self._wake = asyncio.Event()
        self._stale = True  # there may be records that no poll has seen
        self._stopping = False
        self._refused: ChannelAuthError | None = None
        self._next_poll_at_s = 0.0  # when the next poll is due, by the monotonic clock
        self._due: deque[tuple[str, list[OutboxRecord]]] = deque()
        self._active: dict[str, asyncio.Task[None]] = {}
        self._missed: set[str] = set()  # busy chats for which a poll found more records
        self._backoffs: dict[str, _ChatBackoff] = {}
        self._retry_at_s: dict[str, float] = {}  # by record: monotonic, for those delayed by us
        self.pending_count = 0  # records at the last poll
        self._started_at_ms: dict[str, int] = {}  # by record: attempts that have not ended
        self._unwritten: dict[str, _SendOutcome] = {}  # by record: not journaled yet

    def wake(self) -> None:
        """Wake the worker: a record was enqueued."""
        self._stale = True
        self._wake.set()

    async def run(self) -> None:
        """Send until cancelled. Raises ChannelAuthError when the service refuses us.

        Whatever ends this, sends under way get a grace period: interrupted, their outcome would be
        unknown.
        """
        self._due.clear()
        self._active.clear()
        self._missed.clear()
        self._stale, self._stopping, self._refused = True, False, None
        async with task_group() as group:
            try:
                await self._work(group)
            except asyncio.CancelledError:
                await self._final_poll(group)
                raise
            finally:
                self._stopping = True
                await self._wait_for_sends()

    async def _work(self, group: asyncio.TaskGroup) -> None:
        while self._refused is None:
            self._wake.clear()
            if self._stale and not self._due:
                self._stale = False
                await self._poll()
            self._start(group)
            await self._wait()
        raise self._refused

    async def _final_poll(self, group: asyncio.TaskGroup) -> None:
        """Send what was enqueued just before the cancellation."""
        with suppress(StoreError):  # otherwise the cancellation would be lost
            if not self._due:
                await self._poll()
        self._start(group)
        await self._wait_for_sends()

    async def _wait_for_sends(self) -> None:
        if self._active:
            await asyncio.wait(self._active.values(), timeout=GRACE_S)

    async def _wait(self) -> None:
        """Wait until woken, or until the next poll is due."""
        if self._due:  # seen by this poll; sent to when the chat's task is done
            await self._wake.wait()
            return

        async def wake_later() -> None:
            await self._clock.sleep(max(0.0, self._next_poll_at_s - self._clock.monotonic()))
            self.wake()

        async with asyncio.TaskGroup() as group:
            timer = group.create_task(wake_later())
            await self._wake.wait()
            timer.cancel()

    async def _poll(self) -> None:
        """Start a task for each chat with a due record, and find when the next one is due."""
        channel = self._channel
        await self._outbox_clock.correct_times()
        records = await self._journal.outbox_records("pending", "sending", channel=channel.name)
        chats: dict[str, list[OutboxRecord]] = {}
        for record in records:
            if record.address.account == channel.account:
                chats.setdefault(record.address.chat, []).append(record)
        self._backoffs = {
            chat: chat_backoff for chat, chat_backoff in self._backoffs.items() if chat in chats
        }
        self.pending_count = sum(map(len, chats.values()))
        waiting = {record.id for record in records}
        self._retry_at_s = {id_: s for id_, s in self._retry_at_s.items() if id_ in waiting}
        next_s = POLL_INTERVAL_S
        for chat, chat_records in chats.items():
            if chat in self._active:
                self._missed.add(chat)
            elif (wait_s := self._wait_s(chat, chat_records[0])) > 0:
                next_s = min(next_s, wait_s)
            else:
                self._due.append((chat, chat_records))
        self._next_poll_at_s = self._clock.monotonic() + next_s

    def _wait_s(self, chat: str, first: OutboxRecord) -> float:
        chat_backoff = self._backoffs.get(chat)
        backoff_s = chat_backoff.until_s - self._clock.monotonic() if chat_backoff else 0.0
        expiry_s = (first.expires_ms - self._clock.now_ms()) / 1000
        return max(backoff_s, min(self._retry_wait_s(first), expiry_s))

    def _retry_wait_s(self, record: OutboxRecord) -> float:
        """Return how long a record waits for its retry, by the monotonic clock if it is ours."""
        retry_at_s = self._retry_at_s.get(record.id)
        if retry_at_s is not None:
            return retry_at_s - self._clock.monotonic()
        return (record.not_before_ms - self._clock.now_ms()) / 1000

    def _start(self, group: asyncio.TaskGroup) -> None:
        while self._due and len(self._active) < self._max_chats:
            chat, chat_records = self._due.popleft()
            name = f"delivery to {self._account_key}:{chat}"
            self._active[chat] = group.create_task(
                self._run_chat(name, chat, chat_records), name=name
            )

    async def _run_chat(self, name: str, chat: str, chat_records: Sequence[OutboxRecord]) -> None:
        has_more = True

        async def send_all() -> None:
            nonlocal has_more
            async with self._journal.lease(f"outbox:{self._account_key}:{chat}") as lease:
                for record in chat_records:
                    if await self._outbox_clock.correct_times():
                        return
                    if self._stopping or not await self._send_record(record, lease):
                        return
            self._backoffs.pop(chat, None)
            has_more = False

        try:
            await run_contained(name, send_all, lambda _exc: self._back_off(chat))
        finally:
            del self._active[chat]
            if has_more or chat in self._missed:
                self._missed.discard(chat)
                self._stale = True
            self._wake.set()

    def _back_off(self, chat: str) -> None:
        failures = self._backoffs[chat].failures + 1 if chat in self._backoffs else 1
        until_s = self._clock.monotonic() + self._backoff.delay_s(failures)
        self._backoffs[chat] = _ChatBackoff(failures, until_s)

    async def _send_record(self, record: OutboxRecord, lease: Lease) -> bool:
        """Send one record if it can be sent now; return whether the chat's next may follow."""
        if outcome := self._unwritten.get(record.id):
            return await self._record_outcome(record, lease, outcome, needs_mark=True)
        if record.extras.thread_from:  # also where an earlier attempt may have arrived
            record = await self._join_thread(record)
        if _first_uncertain_ms(record):
            try:
                outcome = await self._resolve(record)
            except (ChannelError, TimeoutError, OSError) as exc:
                self._refused = exc if isinstance(exc, ChannelAuthError) else self._refused
                self._look_up_later(record, str(exc) or "it took too long")
                return False
            if outcome:
                return await self._record_outcome(record, lease, outcome, needs_mark=True)
        if self._clock.now_ms() >= record.expires_ms:
            return await self._record_outcome(
                record, lease, _SendOutcome("dead", TOO_LATE), needs_mark=True
            )
        if self._retry_wait_s(record) > 0:
            return False
        return await self._send(record, lease)

    async def _join_thread(self, record: OutboxRecord) -> OutboxRecord:
        """Return the record with the thread that an earlier part of its reply created, if any."""
        first = await self._journal.outbox_record(record.extras.thread_from)
        thread = first.address.thread if first else None
        if not thread or record.address.thread:
            return record
        return replace(record, address=replace(record.address, thread=thread))

    async def _resolve(self, record: OutboxRecord) -> _SendOutcome | None:
        """Return the outcome of an earlier unconfirmed send, None when it must be retried."""
        channel = self._channel
        if self._is_repeatable(record) and self._clock.now_ms() < record.expires_ms:
            return None
        if isinstance(channel, SupportsLookup):
            message = replace(_outbound(record), started_ms=_first_uncertain_ms(record))
            try:
                async with asyncio.timeout(self._send_timeout_s):
                    receipt = await channel.look_up(message)
            except SendError as exc:
                if exc.retryable:
                    raise
                return _SendOutcome("unknown", f"{UNCONFIRMED}: {exc}")
            return _sent(receipt) if receipt else None
        return _SendOutcome("unknown", UNCONFIRMED)

    async def _send(self, record: OutboxRecord, lease: Lease) -> bool:
        channel, is_marked = self._channel, False
        self._started_at_ms[record.id] = self._clock.now_ms()

        async def mark() -> None:
            nonlocal is_marked
            if not is_marked:
                await self._mark(record, lease)
                is_marked = True
                fault_point("deliver.started")

        timeout_s = self._send_timeout_s + self._file_extra_s * bool(record.extras.media)
        try:
            if isinstance(channel, SupportsMarkedSend):
                async with asyncio.timeout(timeout_s):
                    receipt = await channel.send_marked(_outbound(record), mark)
            else:
                await mark()
                async with asyncio.timeout(timeout_s):
                    receipt = await channel.send(_outbound(record))
        except ChannelAuthError as exc:
            self._refused = exc
            outcome = _SendOutcome("pending", str(exc))
            return await self._record_outcome(record, lease, outcome, needs_mark=not is_marked)
        except SendError as exc:
            if record.extras.replaces and not exc.retryable:
                # The message to replace is gone: it is sent as a new message, and an earlier
                # attempt may have done so.
                extras = replace(record.extras, replaces="")
                return await self._send_record(replace(record, extras=extras), lease)
            retry = self._retry_later(record, str(exc), exc.after_s)
            outcome = retry if exc.retryable else _SendOutcome("dead", str(exc))
            return await self._record_outcome(record, lease, outcome, needs_mark=not is_marked)
        except (ChannelError, TimeoutError, OSError) as exc:
            why = str(exc) or "it took too long"
            if is_marked:
                return await self._mark_unknown(record, lease, why)
            outcome = self._retry_later(record, why)  # nothing was written
            return await self._record_outcome(record, lease, outcome, needs_mark=True)
        fault_point("deliver.answered")
        outcome = _sent(receipt)
        await self._record_outcome(record, lease, outcome, needs_mark=not is_marked)
        fault_point("deliver.ended")
        return True

    async def _mark(self, record: OutboxRecord, lease: Lease) -> None:
        """Mark a record as sending; when cancelled, it is not: nothing will be written."""
        try:
            async with self._journal.transaction() as transaction:
                transaction.send_started(record.id, lease, at_ms=self._clock.now_ms())
        except asyncio.CancelledError:
            with suppress(LeaseLostError):  # it was not marked yet
                async with self._journal.transaction() as transaction:
                    transaction.send_ended(
                        record.id,
                        lease,
                        "pending",
                        why=record.why,
                        not_before_ms=record.not_before_ms,
                    )
            raise

    def _is_repeatable(self, record: OutboxRecord) -> bool:
        """Return whether sending twice has the effect of once; an edit has."""
        if record.extras.replaces:
            return True
        capabilities = self._channel.capabilities
        memory_s = capabilities.idempotent_s
        if not capabilities.idempotent or memory_s is None:
            return capabilities.idempotent
        age_ms = self._clock.now_ms() - (_first_uncertain_ms(record) or self._clock.now_ms())
        return not record.extras.thread_title and 0 <= age_ms < memory_s * 1000

    async def _mark_unknown(self, record: OutboxRecord, lease: Lease, why: str) -> bool:
        """Record that the message may have arrived."""
        if self._is_repeatable(record):
            retry = self._retry_later(record, why)
            if self._channel.capabilities.idempotent_s is not None:
                retry = replace(retry, may_have_arrived=True)
            return await self._record_outcome(record, lease, retry)
        if isinstance(self._channel, SupportsLookup):
            self._look_up_later(record, why)  # a message still on its way is not found yet
            return False
        return await self._record_outcome(record, lease, _SendOutcome("unknown", why))

    def _look_up_later(self, record: OutboxRecord, why: str) -> None:
        log.warning("%s may have arrived, asking later: %s", self._describe(record), why)
        self._back_off(record.address.chat)

    def _retry_later(
        self, record: OutboxRecord, why: str, after_s: float | None = None
    ) -> _SendOutcome:
        retry, failures = self._channel.capabilities.retry, record.attempts + 1
        is_due_soon = not retry.only_rate_limits or after_s is not None
        if is_due_soon and failures < retry.attempts:  # journaled: a crash resets no backoff
            backoff = Backoff(retry.min_delay_s, max_s=retry.max_delay_s, jitter=retry.jitter)
            delay_s = backoff.delay_s(failures)
        else:
            delay_s = self._backoff.delay_s(failures)
        if after_s is not None:
            delay_s = min(max(MIN_RETRY_AFTER_S, after_s), MAX_RETRY_AFTER_S)
        return _SendOutcome("pending", why, delay_s=delay_s)

    async def _record_outcome(
        self, record: OutboxRecord, lease: Lease, outcome: _SendOutcome, *, needs_mark: bool = False
    ) -> bool:
        """Write the outcome to the journal.

        `needs_mark`: the record is not marked as being sent under this lease.
        """
        self._unwritten[record.id] = outcome
        now_ms = self._clock.now_ms()
        # One that an earlier process started has no time here.
        started_ms = self._started_at_ms.pop(record.id, 0) or record.started_ms or now_ms
        attempt_state = "unknown" if outcome.may_have_arrived else outcome.state
        attempt = DeliveryAttempt(started_ms, now_ms, attempt_state, outcome.why)
        if outcome.delay_s:
            self._retry_at_s[record.id] = self._clock.monotonic() + outcome.delay_s
        notices = _expiry_notice(record, now_ms) if outcome.why == TOO_LATE else []
        async with self._journal.transaction() as transaction:
            if needs_mark:
                transaction.send_started(record.id, lease, at_ms=started_ms)
            transaction.send_ended(
                record.id,
                lease,
                outcome.state,
                receipt=outcome.receipt,
                thread=outcome.thread,
                why=outcome.why,
                not_before_ms=now_ms + round(outcome.delay_s * 1000) if outcome.delay_s else 0,
                tries=add_attempt(record.tries, attempt),
            )
            transaction.enqueue(*notices)
        del self._unwritten[record.id]
        if notices:
            self.wake()
        if self._diagnostics.is_active:
            self._diagnostics.publish(
                DeliveryAttempted(
                    record.run, record.id, self._channel.name, outcome.state, started_ms, now_ms,
                    outcome.why,
                )
            )  # fmt: skip
        if outcome.state != "pending":
            self.pending_count = max(0, self.pending_count - 1)
        self._on_state_change(
            replace(record, state=outcome.state, receipt=outcome.receipt, why=outcome.why)
        )
        label, why = self._describe(record), outcome.why
        match outcome.state:
            case "dead":
                log.error("%s was given up: %s", label, why)
            case "unknown":
                log.error("%s may have arrived, it is not sent again: %s", label, why)
            case "pending":
                log.warning("%s did not go out, again later: %s", label, why)
        return outcome.state != "pending"

    def _describe(self, record: OutboxRecord) -> str:
        return f"parcel {record.id} to {self._account_key}:{record.address.chat}"


def _expiry_notice(record: OutboxRecord, at_ms: int) -> list[OutboxRecord]:
    """Return the notice for the chat of an expired reply.

    All parts of a reply have one id for it, and the journal drops an id that it has. A notice that
    expires too stays visible as a dead letter.
    """
    if record.id.endswith(_NOTICE_SUFFIXES):
        return []
    id_, expires_ms = f"{record.run}:expired", at_ms + TTL_MS
    return [OutboxRecord(id_, record.run, record.address, EXPIRED_NOTICE, at_ms, expires_ms)]


def _sent(receipt: Receipt) -> _SendOutcome:
    return _SendOutcome("sent", receipt=receipt.message_id, thread=receipt.thread_id)


def _first_uncertain_ms(record: OutboxRecord) -> int:
    """Return when the first attempt started that may have arrived; 0 if there is none."""
    starts = [each.started_ms for each in record.tries if each.state == "unknown"]
    if record.state == "sending":
        starts.append(max(1, record.started_ms or record.at_ms))
    return min(starts, default=0)


def _outbound(record: OutboxRecord) -> Outbound:
    return Outbound(record.address, record.text, record.id, record.extras)
