"""Accept inbound messages into the journal, once each, or ignore them.

Access control and routing are the admission pipeline's (admission.py). An admitted message is in
the journal before its service is acknowledged, and acknowledged before it is answered. A duplicate
is counted and dropped; an id that comes with another text is stored next to the first, parked, and
logged. An ignored message moves only the cursor, and perhaps sends its sender a pairing notice or
becomes context in its group. The files of an accepted one are downloaded before it is submitted,
while the reader goes on.
While nothing can be stored, the channel gets the error: it acknowledges nothing, is restarted after
a backoff, and reads the message again.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

from homarus.channels.base import Acknowledge, Channel, InboundHandler
from homarus.channels.downloads import DownloadQueue
from homarus.core.channel_event import ButtonPressed, ChatEvent, InboundEvent
from homarus.core.clock import Clock
from homarus.core.errors import StoreError
from homarus.core.fast_dataclass import dataclass
from homarus.core.faults import fault_point
from homarus.core.message import Inbound, Json
from homarus.core.tasks import run_contained
from homarus.store.chat_records import ChatRecord
from homarus.store.journal import Acceptance, Cursor, InboxRecord, Journal, OutboxRecord

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AdmittedMessage:
    """An admitted message, as it is stored for each of its sessions.

    `in_turn`: each session runs after the previous one has answered. `on_accepted` is called when
    the message is new. `chat_records` are stored with it.
    """

    messages: tuple[tuple[str, Inbound], ...]
    in_turn: bool = False
    on_accepted: Callable[[], object] | None = None
    chat_records: tuple[ChatRecord, ...] = ()


@dataclass(frozen=True, slots=True)
class RejectedMessage:
    """A rejected message; `notices` is what its sender gets, `chat_records` what is remembered."""

    notices: tuple[OutboxRecord, ...] = ()
    chat_records: tuple[ChatRecord, ...] = ()


AdmitMessage: TypeAlias = Callable[[Channel, Inbound], Awaitable[AdmittedMessage | RejectedMessage]]
# Records an event and stores the cursor in one transaction.
RecordEvent: TypeAlias = Callable[[ChatEvent, Cursor | None], Awaitable[None]]
# Done when it is answered; None if the caller is not notified.
SubmitAccepted: TypeAlias = "Callable[[str, InboxRecord], asyncio.Future[Any] | None]"


def admit_all(route: Callable[[Inbound], str]) -> AdmitMessage:
    """Return an admission that admits every sender, to the session that `route` returns."""

    async def admit(_channel: Channel, inbound: Inbound) -> AdmittedMessage | RejectedMessage:
        return AdmittedMessage(((route(inbound), inbound),))

    return admit


class InboundPipeline:
    """Accept messages of all channels. `admit` decides, `submit` submits what is accepted.

    `record_event` records edits, reactions and the like; without it they are ignored.
    `downloads` fetches their files before; without it, they are submitted without files.
    """

    def __init__(
        self,
        journal: Journal,
        clock: Clock,
        *,
        admit: AdmitMessage,
        submit: SubmitAccepted,
        on_enqueued: Callable[[], object] = lambda: None,
        record_event: RecordEvent | None = None,
        downloads: DownloadQueue | None = None,
    ) -> None:
        self._journal, self._clock, self._downloads = journal, clock, downloads
        self._record_event = record_event
        self._admit, self._submit, self._on_enqueued = admit, submit, on_enqueued
        self.last_ms: dict[str, int] = {}  # when each channel read something
        self._group = asyncio.TaskGroup()  # messages being stored
        self._closed = False

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Accept messages while the block lasts; it can be entered once."""
        async with self._group:
            yield

    def handler_for(
        self, channel: Channel, on_connected: Callable[[], None] = lambda: None
    ) -> InboundHandler:
        """Return the handler of one channel; `on_connected` is called after its login."""

        def mark_connected() -> None:
            on_connected()
            if self._downloads:
                self._downloads.on_connected()

        return _AccountInboundHandler(
            self, channel, f"{channel.name}:{channel.account}", mark_connected
        )

    def close(self) -> None:
        """Submit nothing more: what is accepted from now on waits for the next start."""
        self._closed = True
        if self._downloads:
            self._downloads.close()

    async def accept(
        self,
        channel: Channel,
        inbound: Inbound,
        cursor: Cursor | None,
        acknowledge: Acknowledge | None,
    ) -> None:
        """Store a message, acknowledge it, and submit it."""
        fault_point("intake.read")
        admitted = await self._admit(channel, inbound)
        if isinstance(admitted, RejectedMessage):
            await self.reject(admitted, cursor)
            return
        if self._downloads:
            await self._downloads.wait_for_room(inbound)
        accepted = list[Acceptance]()
        stored = self._store(admitted, cursor, accepted)
        try:
            # A channel that is stopped meanwhile must not cancel the message: stored and not
            # submitted, it would be a duplicate when offered again, and never be answered.
            await asyncio.shield(stored)
            fault_point("intake.accepted")
            if acknowledge:
                await acknowledge()
            fault_point("intake.acknowledged")
        finally:
            # Also after a failed acknowledgement or a failed copy for another session.
            stored.add_done_callback(lambda _done: self._submit_new(channel, admitted, accepted))

    async def accept_event(self, event: ChatEvent, cursor: Cursor | None) -> None:
        """Record an event, and store the cursor with it."""
        if self._record_event:
            await self._record_event(event, cursor)
        else:
            await self.reject(RejectedMessage(), cursor)

    async def cursor(self, name: str) -> Mapping[str, Json] | None:
        return await self._journal.cursor(name)

    def record_activity(self, name: str) -> None:
        """Record that a channel has read something."""
        self.last_ms[name] = self._clock.now_ms()

    async def reject(self, rejected: RejectedMessage, cursor: Cursor | None) -> None:
        """Store only the cursor, what the sender gets and what is remembered of the chat."""
        if cursor is None and not rejected.notices and not rejected.chat_records:
            return
        async with self._journal.transaction() as transaction:
            if cursor:
                transaction.save_cursor(cursor)
            transaction.enqueue(*rejected.notices)
            transaction.put_chat_records(*rejected.chat_records)
        if rejected.notices:
            self._on_enqueued()

    def _store(
        self, admitted: AdmittedMessage, cursor: Cursor | None, accepted: list[Acceptance]
    ) -> asyncio.Future[None]:
        """Store the message in a task of its own; `accepted` grows with each session.

        If one copy is stored and the next is not, the first is a duplicate when the message is
        offered again, and still has to be submitted.
        """
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def store_message() -> None:
            try:
                await self._accept(admitted, cursor, accepted)
                stored.set_result(None)
            except StoreError as exc:
                stored.set_exception(exc)  # for the channel to handle: no bug
            except asyncio.CancelledError:
                stored.cancel()
                raise

        name = f"keeping a message of {admitted.messages[0][1].address.channel}"
        self._group.create_task(run_contained(name, store_message, stored.set_exception), name=name)
        return stored

    async def _accept(
        self, admitted: AdmittedMessage, cursor: Cursor | None, accepted: list[Acceptance]
    ) -> None:
        """Store it for each session; the cursor moves with the last."""
        *others, last = admitted.messages
        at_ms = self._clock.now_ms()
        for session, inbound in others:
            accepted.append(await self._journal.accept(session, inbound, at_ms=at_ms))
        remembered = admitted.chat_records
        accepted.append(
            await self._journal.accept(*last, at_ms=at_ms, cursor=cursor, chat_records=remembered)
        )

    def _submit_new(
        self, channel: Channel, admitted: AdmittedMessage, accepted: Sequence[Acceptance]
    ) -> None:
        new = [acceptance.record for acceptance in accepted if self._is_new(acceptance)]
        if not new:
            return
        if admitted.on_accepted:
            admitted.on_accepted()
        submit = self._submit_in_turn if admitted.in_turn else self._submit_each
        if self._downloads:
            self._downloads.add(new, channel, submit)
        else:
            submit(new)

    def _submit_each(self, accepted: Sequence[InboxRecord]) -> None:
        for record in accepted:
            self._submit(record.session, record)

    def _submit_in_turn(self, accepted: Sequence[InboxRecord]) -> None:
        """Submit one after another; the next start submits what is left at the end."""
        if accepted and not self._closed:
            first, *others = accepted
            answered = self._submit(first.session, first)
            if answered:
                answered.add_done_callback(lambda _done: self._submit_in_turn(others))
            else:
                self._submit_in_turn(others)

    def _is_new(self, acceptance: Acceptance) -> bool:
        record = acceptance.record
        match acceptance.kind:
            case "new":
                return not self._closed
            case "duplicate":
                log.info(
                    "message %s of %s came again (%d): not answered twice",
                    record.message_id,
                    record.channel,
                    record.duplicates,
                )
            case "conflict":
                log.warning(
                    "a message of %s is parked: %s; see homarus inbox --stuck",
                    record.channel,
                    record.why,
                )
        return False


@dataclass(frozen=True, slots=True)
class _AccountInboundHandler:
    """The handler of one channel; `name` is the name of its cursor."""

    pipeline: InboundPipeline
    channel: Channel
    name: str
    mark_connected: Callable[[], None]

    async def __call__(
        self,
        event: InboundEvent,
        cursor: Mapping[str, Json] | None = None,
        acknowledge: Acknowledge | None = None,
    ) -> None:
        new_cursor = None if cursor is None else Cursor(self.name, cursor)
        self.pipeline.record_activity(self.name)
        if isinstance(event, ButtonPressed):
            event = event.to_message()
        if isinstance(event, Inbound):
            await self.pipeline.accept(self.channel, event, new_cursor, acknowledge)
        else:
            await self.pipeline.accept_event(event, new_cursor)

    async def load_cursor(self) -> Mapping[str, Json] | None:
        return await self.pipeline.cursor(self.name)

    async def save_cursor(self, cursor: Mapping[str, Json]) -> None:
        await self.pipeline.reject(RejectedMessage(), Cursor(self.name, cursor))
