"""Notify the person who asked for a restart once the gateway is back.

The note is saved before the restart. The next process sends it to the chat, and adds it as a notice
to the session. Sending it and removing it are one transaction, so that it is sent once.
"""

from collections.abc import Callable, Sequence
from typing import Final

from homarus.core.clock import Clock
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import NO_OUTBOX_CHANNELS, Address, Inbound
from homarus.core.text import one_line
from homarus.store.base import Store
from homarus.store.journal import OutboxRecord

_RECORD: Final = ("restart", "note")
_MAX_CHARS: Final = 500
_CONNECT_TIMEOUT_S: Final = 120.0  # how long the chat's account may need after the start
_POLL_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class RestartNotePorts:
    """How a note reaches its person: the running accounts, and the outbox."""

    store: Store
    clock: Clock
    get_accounts: Callable[[], Sequence[tuple[str, str]]]
    build_reply: Callable[[Inbound, str, str], Sequence[OutboxRecord]]
    on_enqueued: Callable[[], None]
    add_notice: Callable[[str, str, int], None]


async def save_restart_note(
    store: Store, session_key: str, chat: Address | None, text: str, at_ms: int
) -> None:
    """Save what a person is told after the restart; it replaces an earlier note."""
    to = chat if chat and chat.channel not in NO_OUTBOX_CHANNELS else None
    address = [to.channel, to.chat, to.account, to.thread] if to else None
    note = {"session": session_key, "text": one_line(text, _MAX_CHARS), "address": address}
    async with store.transaction() as transaction:
        transaction.put_record(*_RECORD, {**note, "atMs": at_ms})


async def remove_restart_note(store: Store) -> None:
    """Remove the note: there is no restart."""
    async with store.transaction() as transaction:
        transaction.delete_record(*_RECORD)


async def send_restart_note(ports: RestartNotePorts) -> None:
    """Send the note that an earlier process saved, once its chat is connected."""
    note = await ports.store.record(*_RECORD)
    if note is None:
        return
    text, address = str(note["text"]), note.get("address")
    ports.add_notice(str(note["session"]), text, ports.clock.now_ms())
    records: Sequence[OutboxRecord] = ()
    if isinstance(address, list):
        to = Address(*address)
        await _wait_for_account(ports, to)
        records = ports.build_reply(Inbound("", to, "", ""), f"restart:{note['atMs']}", text)
    async with ports.store.transaction() as transaction:
        transaction.delete_record(*_RECORD)
        transaction.enqueue(*records)
    if records:
        ports.on_enqueued()


async def _wait_for_account(ports: RestartNotePorts, to: Address) -> None:
    deadline_s = ports.clock.monotonic() + _CONNECT_TIMEOUT_S
    while (to.channel, to.account) not in ports.get_accounts():
        if ports.clock.monotonic() > deadline_s:
            return
        await ports.clock.sleep(_POLL_S)
