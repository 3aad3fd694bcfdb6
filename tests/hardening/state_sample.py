"""A state directory with conversations and a journal, and copies of it with flipped bytes."""

import random
import shutil
from pathlib import Path

from homarus.core.message import Address, Inbound
from homarus.store.base import SessionRecord, TranscriptEntry, TranscriptHeader, UsageRecord
from homarus.store.journal import OutboxRecord
from homarus.store.sqlite import SqliteStore, open_store

SESSIONS = 6
ENTRIES = 40
MESSAGES = 60
AT_MS = 1_790_000_000_000


def key(number: int) -> str:
    return f"agent:main:chat-{number}"


def session_id(number: int) -> str:
    return f"{number:08x}-0000-4000-8000-000000000000"


def entry(number: int, place: int) -> TranscriptEntry:
    parent = f"{number:04x}{place - 1:04x}" if place else None
    message = {"role": "user" if place % 2 == 0 else "assistant", "content": f"{place} " * 60}
    return TranscriptEntry(
        f"{number:04x}{place:04x}", parent, "message", AT_MS + place, {"message": message}
    )


async def fill_state(state: Path) -> None:
    """Write conversations with their files, settled and open messages, sent and pending replies."""
    async with open_store(state) as store:
        for number in range(SESSIONS):
            async with store.transaction() as transaction:
                transaction.open_transcript(TranscriptHeader(session_id(number), "main", AT_MS))
                record = SessionRecord(key(number), "main", session_id(number), AT_MS)
                transaction.put_session(record)
        for place in range(ENTRIES):
            async with store.transaction() as transaction:
                for number in range(SESSIONS):
                    transaction.append(session_id(number), entry(number, place))
        await _fill_journal(store)
        await store.flush()


async def _fill_journal(store: SqliteStore) -> None:
    chat = Address("telegram", "42")
    for number in range(MESSAGES):
        inbound = Inbound(f"m{number}", chat, "ann", f"hello {number}", run_id=f"run-{number}")
        await store.journal.accept(key(0), inbound, at_ms=AT_MS + number)
        async with store.lease("x") as lease, store.transaction() as transaction:
            if number % 20:
                transaction.mark_running([f"run-{number}"], lease, run=f"run-{number}")
                transaction.settle([f"run-{number}"], lease, "answered", at_ms=AT_MS + number)
                reply = OutboxRecord(
                    f"run-{number}:0", f"run-{number}", chat, "hi", AT_MS, AT_MS * 2
                )
                transaction.enqueue(reply)
            if number % 20 > 1:
                transaction.send_started(f"run-{number}:0", lease)
                transaction.send_ended(f"run-{number}:0", lease, "sent", receipt=str(number))
            usage = UsageRecord(f"run-{number}", key(0), "p", "m", AT_MS)
            transaction.add_usage(usage)
            transaction.put_record("cursor", f"telegram:{number % 5}", {"offset": number})


def flip_byte(state: Path, copy: Path, seed: int) -> int:
    """Copy a state directory with one byte of its database changed, and return its place."""
    shutil.copytree(state, copy)
    rng, database = random.Random(seed), copy / "state.sqlite"
    data = bytearray(database.read_bytes())
    place = rng.randrange(len(data))
    data[place] ^= 1 << rng.randrange(8) if rng.random() < 0.5 else rng.randrange(1, 256)
    database.write_bytes(data)
    return place


async def use_store(store: SqliteStore) -> None:
    """Do with every conversation what a chat and `/new` do, and with every open message."""
    for number in range(SESSIONS):
        record = await store.session(key(number))
        assert record is not None, f"session {number} is gone"
        assert record.session_id == session_id(number)
        leaf = await store.leaf(record.session_id)
        added = TranscriptEntry(f"ffff{number:04x}", leaf, "message", AT_MS, {"message": {}})
        async with store.transaction() as transaction:
            transaction.append(record.session_id, added)
            transaction.put_session(record, if_version=record.version)
    last = await store.session(key(SESSIONS - 1))
    assert last is not None
    async with store.transaction() as transaction:  # /new
        transaction.archive(last.session_id, "reset", AT_MS)
        transaction.open_transcript(TranscriptHeader("new-session", "main", AT_MS))
        transaction.put_session(SessionRecord(last.key, "main", "new-session", AT_MS))
        transaction.append("new-session", entry(99, 0))
    async with store.lease("x") as lease:
        for message in await store.journal.inbox_records("accepted", "running"):
            async with store.transaction() as transaction:
                transaction.mark_running([message.id], lease, run=message.id)
                transaction.settle([message.id], lease, "answered", at_ms=AT_MS)
        for reply in await store.journal.outbox_records("pending", "sending"):
            async with store.transaction() as transaction:
                transaction.send_started(reply.id, lease)
                transaction.send_ended(reply.id, lease, "sent")
    await store.journal.accept(key(0), Inbound("n", Address("x", "y"), "s", "t"), at_ms=AT_MS)
    await store.flush()


async def read_entries(store: SqliteStore, number: int) -> list[TranscriptEntry]:
    return list(await store.entries(session_id(number)))
