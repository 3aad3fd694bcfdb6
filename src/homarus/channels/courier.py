"""Send the outbox records of one channel: in order per chat, chats concurrently, nothing twice.

A record is marked before the send and again after the service has answered. In between, the
connection can break, the timeout can pass or the process can die. Then the outcome is unknown, and
the channel decides what follows:

- the service is idempotent: send again under the same key;
- the service supports lookup: query it, and send again if the message never arrived;
- neither: the record becomes *unknown* and is never sent again. Later records are still sent, as
  most of a reply is better than less of it; the chat is told with its next reply
  (supervisor.py).

After a temporary refusal the record is retried later, before the chat's other records. A permanent
refusal and an expired record make the record *dead*, which is logged; the rest is sent. When the
service refuses our credential, the channel stops and its records stay pending.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final, TypeAlias

from homarus.channels.base import Channel, LooksUp
from homarus.core.clock import Clock
from homarus.core.errors import ChannelAuthFailed, ChannelError, SendFailed, StoreError
from homarus.core.faults import fault
from homarus.core.message import Outbound
from homarus.core.retry import Backoff
from homarus.core.tasks import contain, task_group
from homarus.core.value import dataclass
from homarus.store.journal import Journal, Lease, Parcel, ParcelState

log = logging.getLogger(__name__)

Ended: TypeAlias = Callable[[Parcel], object]

BACKOFF: Final = Backoff(first_s=1.0, most_s=300.0)
LEAST_S, MOST_S = 1.0, 86_400.0  # the longest wait that a service may ask for
SEND_S: Final = 60.0  # timeout of one send
FILE_S: Final = 240.0  # added for a file: adapters give up before that
GRACE_S: Final = 3.0  # grace period at the end, for due records and again for sends under way
LOOK_S: Final = 30.0  # interval of polls without a wake-up
TOO_LATE: Final = "it could not be delivered in time"
UNHEARD: Final = "it was being sent when the program stopped, and nobody heard the answer"
WIDTH: Final = 16  # chats of one channel that are sent to at once


@dataclass(frozen=True, slots=True)
class _End:
    """The outcome of a record, or of one attempt to send it."""

    state: ParcelState
    why: str = ""
    receipt: str = ""
    not_before_ms: int = 0


@dataclass(frozen=True, slots=True)
class _Rest:
    """How long a chat is not sent to; the state of its record does not say."""

    failures: int
    until_s: float


class Courier:
    """Send the pending records of one channel; `ended` is called with every new state."""

    def __init__(
        self,
        channel: Channel,
        journal: Journal,
        clock: Clock,
        *,
        ended: Ended = lambda _parcel: None,
        backoff: Backoff = BACKOFF,
        send_s: float = SEND_S,
        file_s: float = FILE_S,
        width: int = WIDTH,
    ) -> None:
        self._channel, self._journal, self._clock = channel, journal, clock
        self._ended, self._backoff, self._width = ended, backoff, width
        self._send_s, self._file_s = send_s, file_s
        self._place = f"{channel.name}:{channel.account}"
        self._wake = asyncio.Event()
        self._stale = True  # there may be records that no poll has seen
        self._stopping = False
        self._refused: ChannelAuthFailed | None = None
        self._look_at_s = 0.0  # when the next poll is due, by the monotonic clock
        self._due: deque[tuple[str, list[Parcel]]] = deque()
        self._live: dict[str, asyncio.Task[None]] = {}
        self._missed: set[str] = set()  # busy chats for which a poll found more records
        self._rests: dict[str, _Rest] = {}
        self.owed = 0  # records at the last poll
        self._unwritten: dict[str, _End] = {}  # by record: not journaled yet

    def nudge(self) -> None:
        """Wake the worker: a record was enqueued."""
        self._stale = True
        self._wake.set()

    async def run(self) -> None:
        """Send until cancelled. Raises ChannelAuthFailedError when the service refuses us.

        Whatever ends this, sends under way get a grace period: interrupted, their outcome would be
        unknown.
        """
        self._due.clear()
        self._live.clear()
        self._missed.clear()
        self._stale, self._stopping, self._refused = True, False, None
        async with task_group() as group:
            try:
                await self._work(group)
            except asyncio.CancelledError:
                await self._last_look(group)
                raise
            finally:
                self._stopping = True
                await self._live_ended()

    async def _work(self, group: asyncio.TaskGroup) -> None:
        while self._refused is None:
            self._wake.clear()
            if self._stale and not self._due:
                self._stale = False
                await self._look()
            self._start(group)
            await self._wait()
        raise self._refused

    async def _last_look(self, group: asyncio.TaskGroup) -> None:
        """Send what was enqueued just before the cancellation."""
        with suppress(StoreError):  # otherwise the cancellation would be lost
            if not self._due:
                await self._look()
        self._start(group)
        await self._live_ended()

    async def _live_ended(self) -> None:
        if self._live:
            await asyncio.wait(self._live.values(), timeout=GRACE_S)

    async def _wait(self) -> None:
        """Wait until woken, or until the next poll is due."""
        if self._due:  # seen by this poll; sent to when the chat's task is done
            await self._wake.wait()
            return

        async def ring() -> None:
            await self._clock.sleep(max(0.0, self._look_at_s - self._clock.monotonic()))
            self.nudge()

        async with asyncio.TaskGroup() as group:
            alarm = group.create_task(ring())
            await self._wake.wait()
            alarm.cancel()

    async def _look(self) -> None:
        """Start a task for each chat with a due record, and find when the next one is due."""
        channel = self._channel
        found = await self._journal.parcels("pending", "sending", channel=channel.name)
        chats: dict[str, list[Parcel]] = {}
        for parcel in found:
            if parcel.address.account == channel.account:
                chats.setdefault(parcel.address.chat, []).append(parcel)
        self._rests = {chat: rest for chat, rest in self._rests.items() if chat in chats}
        self.owed = sum(map(len, chats.values()))
        next_s = LOOK_S
        for chat, parcels in chats.items():
            if chat in self._live:
                self._missed.add(chat)
            elif (wait_s := self._wait_s(chat, parcels[0])) > 0:
                next_s = min(next_s, wait_s)
            else:
                self._due.append((chat, parcels))
        self._look_at_s = self._clock.monotonic() + next_s

    def _wait_s(self, chat: str, first: Parcel) -> float:
        rest = self._rests.get(chat)
        rest_s = rest.until_s - self._clock.monotonic() if rest else 0.0
        due_ms = min(first.not_before_ms, first.expires_ms)
        return max(rest_s, (due_ms - self._clock.now_ms()) / 1000)

    def _start(self, group: asyncio.TaskGroup) -> None:
        while self._due and len(self._live) < self._width:
            chat, parcels = self._due.popleft()
            name = f"delivery to {self._place}:{chat}"
            self._live[chat] = group.create_task(self._visit(name, chat, parcels), name=name)

    async def _visit(self, name: str, chat: str, parcels: Sequence[Parcel]) -> None:
        left = True

        async def carry() -> None:
            nonlocal left
            async with self._journal.lease(f"outbox:{self._place}:{chat}") as lease:
                for parcel in parcels:
                    if self._stopping or not await self._carry(parcel, lease):
                        return
            self._rests.pop(chat, None)
            left = False

        try:
            await contain(name, carry, lambda _exc: self._rest(chat))
        finally:
            del self._live[chat]
            if left or chat in self._missed:
                self._missed.discard(chat)
                self._stale = True
            self._wake.set()

    def _rest(self, chat: str) -> None:
        failures = self._rests[chat].failures + 1 if chat in self._rests else 1
        until_s = self._clock.monotonic() + self._backoff.delay_s(failures)
        self._rests[chat] = _Rest(failures, until_s)

    async def _carry(self, parcel: Parcel, lease: Lease) -> bool:
        """Send one record if it can be sent now; return whether the chat's next may follow."""
        if end := self._unwritten.get(parcel.id):
            return await self._end(parcel, lease, end, take=True)
        if parcel.state == "sending":
            try:
                end = await self._resolve(parcel)
            except (ChannelError, TimeoutError, OSError) as exc:
                self._refused = exc if isinstance(exc, ChannelAuthFailed) else self._refused
                self._ask_later(parcel, str(exc) or "it took too long")
                return False
            if end:
                return await self._end(parcel, lease, end, take=True)
        now_ms = self._clock.now_ms()
        if now_ms >= parcel.expires_ms:
            return await self._end(parcel, lease, _End("dead", TOO_LATE), take=True)
        if parcel.not_before_ms > now_ms:
            return False
        return await self._send(parcel, lease)

    async def _resolve(self, parcel: Parcel) -> _End | None:
        """Return the outcome of an earlier unconfirmed send, None when it must be retried."""
        channel = self._channel
        if self._is_same_twice(parcel) and self._clock.now_ms() < parcel.expires_ms:
            return None
        if isinstance(channel, LooksUp):
            async with asyncio.timeout(self._send_s):
                receipt = await channel.look_up(_outbound(parcel))
            return _End("sent", receipt=receipt.message_id) if receipt else None
        return _End("unknown", UNHEARD)

    async def _send(self, parcel: Parcel, lease: Lease) -> bool:
        async with self._journal.commit() as unit:
            unit.send_started(parcel.id, lease)
        fault("deliver.started")
        try:
            async with asyncio.timeout(self._send_s + self._file_s * bool(parcel.extras.media)):
                receipt = await self._channel.send(_outbound(parcel))
        except ChannelAuthFailed as exc:
            self._refused = exc
            return await self._end(parcel, lease, _End("pending", str(exc)))
        except SendFailed as exc:
            if parcel.extras.replaces and not exc.retryable:
                # The message to replace is gone: it is sent as a new message, and an earlier
                # attempt may have done so.
                extras = replace(parcel.extras, replaces="")
                return await self._carry(replace(parcel, extras=extras), lease)
            again = self._later(parcel, str(exc), exc.after_s)
            return await self._end(
                parcel, lease, again if exc.retryable else _End("dead", str(exc))
            )
        except (ChannelError, TimeoutError, OSError) as exc:
            return await self._doubt(parcel, lease, str(exc) or "it took too long")
        fault("deliver.answered")
        await self._end(parcel, lease, _End("sent", receipt=receipt.message_id))
        fault("deliver.ended")
        return True

    def _is_same_twice(self, parcel: Parcel) -> bool:
        """Return whether sending twice has the effect of once; an edit has."""
        return self._channel.capabilities.idempotent or bool(parcel.extras.replaces)

    async def _doubt(self, parcel: Parcel, lease: Lease, why: str) -> bool:
        """Record that the message may have arrived."""
        if self._is_same_twice(parcel):
            return await self._end(parcel, lease, self._later(parcel, why))
        if isinstance(self._channel, LooksUp):
            self._ask_later(parcel, why)  # a message still on its way is not found yet
            return False
        return await self._end(parcel, lease, _End("unknown", why))

    def _ask_later(self, parcel: Parcel, why: str) -> None:
        log.warning("%s may have arrived, asking later: %s", self._told(parcel), why)
        self._rest(parcel.address.chat)

    def _later(self, parcel: Parcel, why: str, after_s: float | None = None) -> _End:
        rules, failures = self._channel.capabilities.retry, parcel.attempts + 1
        if failures < rules.attempts:  # journaled: a crash resets no backoff
            soon = Backoff(rules.least_s, most_s=rules.most_s, jitter=rules.jitter)
            delay_s = soon.delay_s(failures)
        else:
            delay_s = self._backoff.delay_s(failures)
        if after_s is not None:
            delay_s = min(max(LEAST_S, after_s), MOST_S)
        return _End("pending", why, not_before_ms=self._clock.now_ms() + round(delay_s * 1000))

    async def _end(self, parcel: Parcel, lease: Lease, end: _End, *, take: bool = False) -> bool:
        """Write the outcome to the journal; `take` if the record is not marked by this lease."""
        self._unwritten[parcel.id] = end
        async with self._journal.commit() as unit:
            if take:
                unit.send_started(parcel.id, lease)
            unit.send_ended(
                parcel.id,
                lease,
                end.state,
                receipt=end.receipt,
                why=end.why,
                not_before_ms=end.not_before_ms,
            )
        del self._unwritten[parcel.id]
        if end.state != "pending":
            self.owed = max(0, self.owed - 1)
        self._ended(replace(parcel, state=end.state, receipt=end.receipt, why=end.why))
        told, why = self._told(parcel), end.why
        match end.state:
            case "dead":
                log.error("%s was given up: %s", told, why)
            case "unknown":
                log.error("%s may have arrived, it is not sent again: %s", told, why)
            case "pending":
                log.warning("%s did not go out, again later: %s", told, why)
        return end.state != "pending"

    def _told(self, parcel: Parcel) -> str:
        return f"parcel {parcel.id} to {self._place}:{parcel.address.chat}"


def _outbound(parcel: Parcel) -> Outbound:
    return Outbound(parcel.address, parcel.text, parcel.id, parcel.extras)
