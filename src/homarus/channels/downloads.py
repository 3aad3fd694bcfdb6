"""Download the files of accepted messages, next to the reader of their account.

    queue.add(records, channel, deliver)    # deliver(records), when their files are here

A message is in the journal before its files are fetched: the service may be told that we have it,
and the reader goes on with other chats. Then its record gets the files and it is submitted. What
follows in its chat waits for it. A message that an earlier process left without its files gets them
when its account is connected again; one whose account stays away goes on with a note instead.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import field, replace
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from homarus.channels.base import Channel
from homarus.core.errors import StoreError
from homarus.core.fast_dataclass import dataclass
from homarus.core.faults import fault_point
from homarus.core.message import Address, Inbound
from homarus.core.tasks import run_contained
from homarus.store.journal import InboxRecord, Journal

if TYPE_CHECKING:
    from homarus.channels.media import FetchFiles

log = logging.getLogger(__name__)

MAX_DOWNLOADS: Final = 4  # messages of one account whose files are fetched at once
MAX_WAITING: Final = 32  # messages of one account, beyond which its reader waits
_TRIES: Final = 3  # to fetch the files of a message whose account is restarted meanwhile
CONNECT_S: Final = 60.0  # how long files wait for their account to be connected

# Called with the records once their files are here, with none when the program ends before.
DeliverRecords: TypeAlias = Callable[[Sequence[InboxRecord]], object]
# The connected account of a channel name and account id.
FindConnected: TypeAlias = Callable[[str, str], Channel | None]


def lacks_files(inbound: Inbound | None) -> bool:
    """Return whether a message has files that are still to be downloaded."""
    return inbound is not None and any(
        not media.path and not media.problem for media in inbound.media
    )


@dataclass(frozen=True, slots=True)
class _WaitingMessage:
    """The records of one message, of one session each."""

    records: Sequence[InboxRecord]
    channel: Channel | None  # that read it, None after a restart
    deliver: DeliverRecords


@dataclass(slots=True)
class _AccountQueue:
    """What waits for files of one account."""

    downloads: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_DOWNLOADS))
    waiting: int = 0
    has_room: asyncio.Event = field(default_factory=asyncio.Event)


class DownloadQueue:
    """Download files in tasks of the program's group, in the order of each chat."""

    def __init__(
        self,
        group: asyncio.TaskGroup,
        journal: Journal,
        *,
        fetch: "FetchFiles",
        find_connected: FindConnected,
        connect_s: float = CONNECT_S,
    ) -> None:
        self._group: asyncio.TaskGroup = group
        self._journal = journal
        self._fetch, self._find_connected, self._connect_s = fetch, find_connected, connect_s
        self._accounts: dict[tuple[str, str], _AccountQueue] = {}
        self._chats: dict[Address, deque[_WaitingMessage]] = {}
        self._tasks: dict[Address, asyncio.Task[None]] = {}
        self._connected = asyncio.Event()  # set, and replaced, with each login
        self._logins = 0
        self._closed = False

    async def wait_for_room(self, inbound: Inbound) -> None:
        """Wait while too many messages of the account wait, if this one would wait as well."""
        account = self._account(inbound.address)
        while self._must_wait(inbound) and account.waiting >= MAX_WAITING:
            account.has_room.clear()
            await account.has_room.wait()

    def add(
        self, records: Sequence[InboxRecord], channel: Channel | None, deliver: DeliverRecords
    ) -> None:
        """Deliver the records of a message when it has its files, after those before it."""
        inbound = records[0].inbound
        if inbound is None or not self._must_wait(inbound):
            deliver(records)
        elif self._closed:
            deliver(())
        else:
            address = inbound.address
            self._account(address).waiting += 1
            self._chats.setdefault(address, deque()).append(
                _WaitingMessage(records, channel, deliver)
            )
            if address not in self._tasks:
                self._start(address)

    def complete(
        self, records: Sequence[InboxRecord]
    ) -> "asyncio.Future[Sequence[InboxRecord]] | None":
        """Return a future of the records with their files; None when they wait for nothing.

        It is cancelled when the program ends.
        """
        if not any(self._must_wait(record.inbound) for record in records):
            return None
        complete: asyncio.Future[Sequence[InboxRecord]]
        complete = asyncio.get_running_loop().create_future()
        left, found = [*records], list[InboxRecord]()

        def go_on(got: Sequence[InboxRecord]) -> None:
            found.extend(got)
            if complete.done():
                return
            if not got:
                complete.cancel()
            elif left:
                self.add([left.pop(0)], None, go_on)
            else:
                complete.set_result(found)

        self.add([left.pop(0)], None, go_on)
        return complete

    def on_connected(self) -> None:
        """Let files be fetched that wait for the login of their account."""
        self._logins += 1
        self._connected.set()
        self._connected = asyncio.Event()

    def close(self) -> None:
        """Stop: messages without their files are left for the next start."""
        self._closed = True
        for task in self._tasks.values():
            task.cancel()
        waiting = [message for chat in self._chats.values() for message in chat]
        self._chats.clear()
        for message in waiting:
            message.deliver(())

    def _must_wait(self, inbound: Inbound | None) -> bool:
        return inbound is not None and (lacks_files(inbound) or inbound.address in self._chats)

    def _account(self, address: Address) -> _AccountQueue:
        return self._accounts.setdefault((address.channel, address.account), _AccountQueue())

    def _start(self, address: Address) -> None:
        name = f"files of {address.channel}"
        work = run_contained(name, partial(self._run, address), partial(self._skip, address))
        try:
            self._tasks[address] = self._group.create_task(work, name=name)
        except RuntimeError:  # the program is ending
            work.close()
            self.close()

    async def _run(self, address: Address) -> None:
        """Complete and deliver the messages of a chat, one after another."""
        while address in self._chats:
            self._deliver(address, await self._complete(self._chats[address][0]))
        del self._tasks[address]

    def _skip(self, address: Address, _exc: Exception) -> None:
        """After a bug, deliver the message as it is, and go on with the next."""
        if address in self._chats:
            self._deliver(address, self._chats[address][0].records)
        if address in self._chats:
            self._start(address)
        else:
            del self._tasks[address]

    def _deliver(self, address: Address, records: Sequence[InboxRecord]) -> None:
        account, chat = self._account(address), self._chats[address]
        message = chat.popleft()
        if not chat:
            del self._chats[address]
        account.waiting -= 1
        account.has_room.set()
        message.deliver(records)

    async def _complete(self, message: _WaitingMessage) -> Sequence[InboxRecord]:
        inbound = message.records[0].inbound
        if inbound is None or not lacks_files(inbound):
            return message.records
        async with self._account(inbound.address).downloads:
            complete = await self._download(inbound, message.channel)
        fault_point("media.fetched")
        return [await self._store(record, complete) for record in message.records]

    async def _download(self, inbound: Inbound, channel: Channel | None) -> Inbound:
        """Fetch the files; again when the account was restarted meanwhile."""
        from homarus.channels.media import NOT_FETCHED, mark_missing

        address, complete = inbound.address, mark_missing(inbound)
        for _ in range(_TRIES):
            try:
                async with asyncio.timeout(self._connect_s):
                    channel = channel or await self._wait_connected(address)
            except TimeoutError:
                log.warning("files were not fetched: %s is not connected", address.channel)
                break
            logins = self._logins
            complete = await self._fetch(channel, inbound)
            failed = any(media.problem == NOT_FETCHED for media in complete.media)
            connected = self._find_connected(address.channel, address.account)
            if not failed or (connected is channel and logins == self._logins):
                break
            channel = None
        return complete

    async def _wait_connected(self, address: Address) -> Channel:
        while (channel := self._find_connected(address.channel, address.account)) is None:
            await self._connected.wait()
        return channel

    async def _store(self, record: InboxRecord, complete: Inbound) -> InboxRecord:
        """Store the record with its files; it is submitted with them in any case."""
        inbound = record.inbound
        assert inbound is not None  # noqa: S101 - it was accepted just now, or is to be resumed
        with_files = replace(inbound, media=complete.media, images=complete.images)
        try:
            await self._journal.set_message(record.id, with_files)
        except StoreError as exc:
            log.warning("the files of message %s are not stored with it: %s", record.id, exc)
        return replace(record, inbound=with_files)
