"""Intake: what a channel reads becomes ours to answer, once, or is left alone.

Who is heard and where it belongs is the porter's to say (porter.py). A message that is let in is
in the journal before its service is told, and the service is told before it is answered. One that
was kept before is counted and goes no further; an id that comes with other words is kept beside
the first, parked, and said aloud. One that is left alone leaves only the place where its channel
goes on reading, and what its sender is told: nobody learns that it was read. While nothing can be
kept the channel gets the error: it tells its service nothing, starts over after a while, and reads
the message again.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

from homarus.channels.base import Acknowledge, Channel, Receive
from homarus.core.clock import Clock
from homarus.core.errors import StoreError
from homarus.core.faults import fault
from homarus.core.message import Inbound, Json
from homarus.core.tasks import contain
from homarus.core.value import dataclass
from homarus.store.journal import Acceptance, Accepted, Cursor, Journal, Parcel

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Taken:
    """A message that is let in: as it is kept for each session it belongs to.

    `in_turn`: the second session hears it when the first has answered. `welcome` is called when
    it is new.
    """

    messages: tuple[tuple[str, Inbound], ...]
    in_turn: bool = False
    welcome: Callable[[], object] | None = None


@dataclass(frozen=True, slots=True)
class Left:
    """A message that is left alone; `parcels` is what its sender is told."""

    parcels: tuple[Parcel, ...] = ()


Admit: TypeAlias = Callable[[Channel, Inbound], Awaitable[Taken | Left]]
# Done when it is answered; None where nobody tells.
Put: TypeAlias = "Callable[[str, Accepted], asyncio.Future[Any] | None]"


def by_route(route: Callable[[Inbound], str]) -> Admit:
    """Everybody is let in, to the session that `route` says: for programs of their own."""

    async def admit(_channel: Channel, inbound: Inbound) -> Taken | Left:
        return Taken(((route(inbound), inbound),))

    return admit


class Intake:
    """Accepts for every channel. `admit` says who is let in, `put` begins the answer."""

    def __init__(
        self,
        journal: Journal,
        clock: Clock,
        *,
        admit: Admit,
        put: Put,
        posted: Callable[[], object] = lambda: None,
    ) -> None:
        self._journal, self._clock = journal, clock
        self._admit, self._put, self._posted = admit, put, posted
        self.last_ms: dict[str, int] = {}  # when each channel read something
        self._group = asyncio.TaskGroup()  # of what is being kept
        self._closed = False

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Accept for as long as the block lasts; there is one in a life."""
        async with self._group:
            yield

    def receiver(self, channel: Channel, connected: Callable[[], None] = lambda: None) -> Receive:
        """What one channel is given to hand over with; `connected`: it was let in."""
        return _Receiver(self, channel, f"{channel.name}:{channel.account}", connected)

    def close(self) -> None:
        """Begin no more answers: what is kept from now on waits for the next start."""
        self._closed = True

    async def accept(
        self,
        channel: Channel,
        inbound: Inbound,
        cursor: Cursor | None,
        acknowledge: Acknowledge | None,
    ) -> None:
        """Keep a message, tell its service, and hand it on."""
        fault("intake.read")
        admitted = await self._admit(channel, inbound)
        if isinstance(admitted, Left):
            await self.leave(admitted, cursor)
            return
        rows = list[Acceptance]()
        kept = self._keep(admitted, cursor, rows)
        try:
            # A channel that is stopped meanwhile does not take the message with it: it would be
            # a duplicate when it is offered again, and so never be answered.
            await asyncio.shield(kept)
            fault("intake.accepted")
            if acknowledge:
                await acknowledge()
            fault("intake.acknowledged")
        finally:
            # Whatever became of the telling, and of the copies for other sessions.
            kept.add_done_callback(lambda _done: self._hand_on(admitted, rows))

    async def cursor(self, name: str) -> Mapping[str, Json] | None:
        return await self._journal.cursor(name)

    def note(self, name: str) -> None:
        """A channel has read something."""
        self.last_ms[name] = self._clock.now_ms()

    async def leave(self, left: Left, cursor: Cursor | None) -> None:
        """Keep nothing but how far a channel has read, and what somebody is told."""
        if cursor is None and not left.parcels:
            return
        async with self._journal.commit() as unit:
            if cursor:
                unit.read_to(cursor)
            unit.post(*left.parcels)
        if left.parcels:
            self._posted()

    def _keep(
        self, taken: Taken, cursor: Cursor | None, rows: list[Acceptance]
    ) -> asyncio.Future[None]:
        """Keep it, in a task of its own; `rows` grows as it is kept for one session after another.

        One of them may be kept and the next not: that one would be a duplicate, too, when the
        message is offered again.
        """
        kept: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def keep() -> None:
            try:
                await self._accept(taken, cursor, rows)
                kept.set_result(None)
            except StoreError as exc:
                kept.set_exception(exc)  # the channel's to deal with: no bug
            except asyncio.CancelledError:
                kept.cancel()
                raise

        name = f"keeping a message of {taken.messages[0][1].address.channel}"
        self._group.create_task(contain(name, keep, kept.set_exception), name=name)
        return kept

    async def _accept(self, taken: Taken, cursor: Cursor | None, rows: list[Acceptance]) -> None:
        """Keep it for each session. The channel has read on when it is kept for the last."""
        *others, last = taken.messages
        at_ms = self._clock.now_ms()
        for session, inbound in others:
            rows.append(await self._journal.accept(session, inbound, at_ms=at_ms))
        rows.append(await self._journal.accept(*last, at_ms=at_ms, cursor=cursor))

    def _hand_on(self, taken: Taken, rows: Sequence[Acceptance]) -> None:
        new = [one.row for one in rows if self._is_new(one)]
        if new and taken.welcome:
            taken.welcome()
        if taken.in_turn:
            self._put_in_turn(new)
        else:
            for row in new:
                self._put(row.session, row)

    def _put_in_turn(self, rows: Sequence[Accepted]) -> None:
        """One after the other; what is left at the end of the program is the next start's."""
        if rows and not self._closed:
            first, *others = rows
            answered = self._put(first.session, first)
            if answered:
                answered.add_done_callback(lambda _done: self._put_in_turn(others))
            else:
                self._put_in_turn(others)

    def _is_new(self, acceptance: Acceptance) -> bool:
        row = acceptance.row
        match acceptance.kind:
            case "new":
                return not self._closed
            case "duplicate":
                log.info(
                    "message %s of %s came again (%d): not answered twice",
                    row.message_id,
                    row.channel,
                    row.duplicates,
                )
            case "conflict":
                log.warning(
                    "a message of %s is parked: %s; see homarus inbox --stuck", row.channel, row.why
                )
        return False


@dataclass(frozen=True, slots=True)
class _Receiver:
    """The intake, as one channel sees it; `name` is the channel's cursor."""

    intake: Intake
    channel: Channel
    name: str
    connected: Callable[[], None]

    async def __call__(
        self,
        inbound: Inbound,
        cursor: Mapping[str, Json] | None = None,
        acknowledge: Acknowledge | None = None,
    ) -> None:
        read = None if cursor is None else Cursor(self.name, cursor)
        self.intake.note(self.name)
        await self.intake.accept(self.channel, inbound, read, acknowledge)

    async def cursor(self) -> Mapping[str, Json] | None:
        return await self.intake.cursor(self.name)

    async def read_to(self, cursor: Mapping[str, Json]) -> None:
        await self.intake.leave(Left(), Cursor(self.name, cursor))
