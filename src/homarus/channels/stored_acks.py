"""Remember in the journal which ack reactions are to be removed, so that a restart forgets none.

The record of a reaction is written with its message. This process removes its own reactions when
their reply was delivered (live_replies.py); those that an earlier process left are looked at with
each reply that is delivered, until there are none. A kill after a reaction was removed leaves a
record that removes it once more, which does nothing.
"""

from typing import Final, TypeAlias

from homarus.core.clock import Clock
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Address, Inbound
from homarus.store.chat_records import ChatRecord, chat_key
from homarus.store.journal import UNSETTLED, InboxRecord, Journal

MessageRef: TypeAlias = tuple[Address, str]

_MAX_SEARCHED: Final = 200  # messages of a session, the newest, in which one is looked for


@dataclass(frozen=True, slots=True)
class _LeftAck:
    """A reaction that an earlier process left, and the session of its message."""

    ref: MessageRef
    session: str


class StoredAcks:
    """The reactions of all chats that are to be removed."""

    def __init__(self, journal: Journal, clock: Clock) -> None:
        self._journal, self._clock = journal, clock
        self._left: list[_LeftAck] | None = None  # None: not loaded yet
        self._own: set[MessageRef] = set()  # written by this process before that

    def encode(self, inbound: Inbound, session: str) -> ChatRecord:
        """Return the record of a reaction to a message."""
        address = inbound.address
        if self._left is None:
            self._own.add((address, inbound.id))
        to = [address.channel, address.chat, address.account, address.thread]
        data = {"to": to, "session": session}
        return ChatRecord("ack", chat_key(address), inbound.id, self._clock.now_ms(), data)

    async def forget(self, ref: MessageRef) -> None:
        """Delete the record of a reaction that was removed."""
        address, message_id = ref
        async with self._journal.transaction() as transaction:
            transaction.put_chat_records(ChatRecord("ack", chat_key(address), message_id))

    async def take_answered(self) -> list[MessageRef]:
        """Return the messages of an earlier process whose replies are delivered by now."""
        if self._left is None:
            stored = await self._journal.chat_records("ack")
            found = (_decode(record) for record in stored)
            self._left = [one for one in found if one and one.ref not in self._own]
            self._own.clear()
        answered = list[MessageRef]()
        for ack in [*self._left]:
            state = await self._find_state(ack)
            if state == "waits" or ack not in self._left:
                continue
            self._left.remove(ack)
            if state == "answered":
                answered.append(ack.ref)
        return answered

    async def _find_state(self, ack: _LeftAck) -> str:
        """Return whether a message waits for its reply, is answered, or gets no reply."""
        rows = await self._journal.inbox_records(session=ack.session, limit=_MAX_SEARCHED)
        row = next((row for row in rows if _is_of(row, ack.ref)), None)
        if row is None or row.state in {"silent", "parked"}:
            return "gone"
        if row.state in UNSETTLED:
            return "waits"
        replies = await self._journal.outbox_records("pending", "sending", run=row.run or row.id)
        return "waits" if replies else "answered"


def _is_of(row: InboxRecord, ref: MessageRef) -> bool:
    address, message_id = ref
    is_same = row.message_id == message_id or row.message_id.startswith(f"{message_id}@")
    return is_same and (row.channel, row.account) == (address.channel, address.account)


def _decode(record: ChatRecord) -> _LeftAck | None:
    data = record.data or {}
    match data.get("to"):
        case [str(channel), str(chat), str(account), str() | None as thread]:
            address = Address(channel, chat, account, thread)
            return _LeftAck((address, record.id), str(data.get("session", "")))
    return None
