"""Intake: what a channel reads becomes ours to answer, once.

A message is in the journal before its service is told, and the service is told before it is
answered. One that was kept before is counted and goes no further; an id that comes with other
words is kept beside the first, parked, and said aloud. While nothing can be kept the channel gets
the error: it tells its service nothing, starts over after a while, and reads the message again.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TypeAlias

from homarus.channels.base import Acknowledge, Channel, Receive
from homarus.core.clock import Clock
from homarus.core.errors import StoreError
from homarus.core.faults import fault
from homarus.core.message import Inbound, Json
from homarus.core.tasks import contain
from homarus.core.value import dataclass
from homarus.store.journal import Acceptance, Accepted, Cursor, Journal

log = logging.getLogger(__name__)

Route: TypeAlias = Callable[[Inbound], str]
Put: TypeAlias = Callable[[str, Accepted], object]


class Intake:
    """Accepts for every channel. `route` says whose session it is, `put` begins the answer."""

    def __init__(self, journal: Journal, clock: Clock, *, route: Route, put: Put) -> None:
        self._journal, self._clock = journal, clock
        self._route, self._put = route, put
        self._group = asyncio.TaskGroup()  # of what is being kept
        self._closed = False

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Accept for as long as the block lasts; there is one in a life."""
        async with self._group:
            yield

    def receiver(self, channel: Channel) -> Receive:
        """What one channel is given to hand over with."""
        return _Receiver(self, f"{channel.name}:{channel.account}")

    def close(self) -> None:
        """Begin no more answers: what is kept from now on waits for the next start."""
        self._closed = True

    async def accept(
        self, inbound: Inbound, cursor: Cursor | None, acknowledge: Acknowledge | None
    ) -> None:
        """Keep a message, tell its service, and hand it on."""
        fault("intake.read")
        kept = self._keep(self._route(inbound), inbound, cursor)
        try:
            # A channel that is stopped meanwhile does not take the message with it: it would be
            # a duplicate when it is offered again, and so never be answered.
            await asyncio.shield(kept)
            fault("intake.accepted")
            if acknowledge:
                await acknowledge()
            fault("intake.acknowledged")
        finally:
            kept.add_done_callback(self._hand_on)  # whatever became of the telling

    async def cursor(self, name: str) -> Mapping[str, Json] | None:
        return await self._journal.cursor(name)

    def _keep(
        self, session: str, inbound: Inbound, cursor: Cursor | None
    ) -> asyncio.Future[Acceptance]:
        kept: asyncio.Future[Acceptance] = asyncio.get_running_loop().create_future()

        async def keep() -> None:
            try:
                at_ms = self._clock.now_ms()
                kept.set_result(
                    await self._journal.accept(session, inbound, at_ms=at_ms, cursor=cursor)
                )
            except StoreError as exc:
                kept.set_exception(exc)  # the channel's to deal with: no bug
            except asyncio.CancelledError:
                kept.cancel()
                raise

        name = f"keeping a message of {inbound.address.channel}"
        self._group.create_task(contain(name, keep, kept.set_exception), name=name)
        return kept

    def _hand_on(self, kept: asyncio.Future[Acceptance]) -> None:
        if kept.cancelled() or kept.exception():
            return
        acceptance = kept.result()
        row = acceptance.row
        match acceptance.kind:
            case "new" if not self._closed:
                self._put(row.session, row)
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


@dataclass(frozen=True, slots=True)
class _Receiver:
    """The intake, as one channel sees it; `name` is the channel's cursor."""

    intake: Intake
    name: str

    async def __call__(
        self,
        inbound: Inbound,
        cursor: Mapping[str, Json] | None = None,
        acknowledge: Acknowledge | None = None,
    ) -> None:
        read = None if cursor is None else Cursor(self.name, cursor)
        await self.intake.accept(inbound, read, acknowledge)

    async def cursor(self) -> Mapping[str, Json] | None:
        return await self.intake.cursor(self.name)
