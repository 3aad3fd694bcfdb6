"""A reply is marked as sending only when its bytes are handed to the connection.

Before that it waits for the connection, its turn in the rate limit, a login or a free socket. A
kill in any of these waits leaves it pending: it is sent after the restart, and never written off.
"""

import asyncio
import random
import shutil
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from homarus.channels.base import (
    BeforeWrite,
    Capabilities,
    Channel,
    ChannelContext,
    InboundHandler,
    Receipt,
)
from homarus.channels.irc.connection import IrcTimings
from homarus.channels.matrix import create as create_matrix
from homarus.channels.matrix.settings import MatrixSettings
from homarus.channels.outbox_worker import OutboxWorker
from homarus.channels.service_client import ServiceClient
from homarus.channels.telegram import create as create_telegram
from homarus.channels.telegram.settings import TelegramSettings
from homarus.core.clock import SystemClock
from homarus.core.errors import ChannelError, SendError
from homarus.core.message import Address, Outbound
from homarus.core.retry import Backoff
from homarus.store.journal import OutboxRecord
from homarus.store.sqlite import SqliteStore, open_store
from homarus.testing.clock import FakeClock
from homarus.testing.memory_store import MemoryStore
from tests.unit.channels.irc_server import Desk, Server, channel, running, serving
from tests.waiting import settle, until

SEED = 20261116
LINES = 6
SLOW = IrcTimings(burst=1, every_s=0.02, ready_s=30.0)


class WaitingChannel:
    """A channel whose sends wait for `ready` before they write."""

    name, account = "svc", "default"
    capabilities = Capabilities()

    def __init__(self, failure: Exception | None = None) -> None:
        self.ready, self.failure = asyncio.Event(), failure
        self.waiting = 0
        self.written: list[str] = []

    async def run(self, receive: InboundHandler) -> None:
        """Receive nothing."""

    async def send(self, message: Outbound) -> Receipt:
        raise AssertionError("the worker reports no handover")

    async def send_marked(self, message: Outbound, before_write: BeforeWrite) -> Receipt:
        self.waiting += 1
        await self.ready.wait()
        if self.failure:
            raise self.failure
        await before_write()
        await before_write()  # a call that was refused and takes another form
        self.written.append(message.key)
        return Receipt("m1")


def record(id_: str, address: Address, text: str = "hi") -> OutboxRecord:
    now_ms = SystemClock().now_ms()
    return OutboxRecord(id_, "run", address, text, now_ms, now_ms + 3_600_000)


@asynccontextmanager
async def worker_of(channel: Channel, store: MemoryStore | SqliteStore) -> AsyncIterator[None]:
    worker = OutboxWorker(channel, store.journal, SystemClock(), backoff=Backoff(0.05, max_s=0.1))
    async with asyncio.TaskGroup() as group:
        task = group.create_task(worker.run())
        yield
        task.cancel()


async def test_record_stays_pending_until_channel_writes() -> None:
    service = WaitingChannel()
    async with MemoryStore() as store:
        async with store.journal.transaction() as transaction:
            transaction.enqueue(record("1", Address("svc", "a")))
        async with worker_of(service, store):
            await until(lambda: service.waiting)
            await settle()
            (waiting,) = await store.journal.outbox_records()
            assert (waiting.state, waiting.attempts) == ("pending", 0)
            service.ready.set()
            await until(lambda: service.written)
        (sent,) = await store.journal.outbox_records()
        assert (sent.state, sent.attempts, sent.receipt) == ("sent", 1, "m1")


@pytest.mark.parametrize(
    "failure", [ChannelError("broke"), ConnectionResetError(), SendError("no", retryable=True)]
)
async def test_failure_before_write_is_retried_not_unknown(failure: Exception) -> None:
    service = WaitingChannel(failure)
    service.ready.set()
    async with MemoryStore() as store:
        async with store.journal.transaction() as transaction:
            transaction.enqueue(record("1", Address("svc", "a")))
        clock = FakeClock(SystemClock().now_ms())
        worker = OutboxWorker(service, store.journal, clock)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(worker.run())
            await until(lambda: service.waiting)
            service.failure = None
            await settle()
            await clock.advance(5)
            await until(lambda: service.written)
            task.cancel()
        assert service.written == ["1"]


async def test_timeout_before_write_is_retried_not_unknown() -> None:
    service = WaitingChannel()
    async with MemoryStore() as store:
        async with store.journal.transaction() as transaction:
            transaction.enqueue(record("1", Address("svc", "a")))
        worker = OutboxWorker(service, store.journal, SystemClock(), send_timeout_s=0.01)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(worker.run())
            while not (await store.journal.outbox_records())[0].attempts:
                await settle()
            task.cancel()
        (waiting,) = await store.journal.outbox_records()
        assert waiting.state == "pending" and not service.written


async def test_cancel_while_marking_leaves_record_pending() -> None:
    """The mark may be on disk when the worker is stopped, although nothing was written."""
    service = WaitingChannel()
    service.ready.set()
    async with MemoryStore() as store:
        async with store.journal.transaction() as transaction:
            transaction.enqueue(record("1", Address("svc", "a")))
        journal, commits = store.journal, 0
        plain = journal.transaction

        @asynccontextmanager
        async def cancelled_after_commit() -> AsyncIterator[object]:
            nonlocal commits
            async with plain() as transaction:
                yield transaction
            commits += 1
            if commits == 1:  # as the database writer does: the commit is not undone
                raise asyncio.CancelledError

        journal.transaction = cancelled_after_commit  # type: ignore[assignment] # a fault
        worker = OutboxWorker(service, journal, SystemClock())
        async with asyncio.TaskGroup() as group:
            task = group.create_task(worker.run())
            await until(lambda: commits > 1)
            task.cancel()
        (waiting,) = await store.journal.outbox_records()
        assert waiting.state in {"pending", "sent"}


async def copies_of_a_long_irc_answer(folder: Path, moments: random.Random) -> tuple[Path, Server]:
    """Send a long answer, and return the state as a kill at a random moment leaves it."""
    async with serving() as server, open_store(folder / "state") as store:
        to = Address("irc", "bob")
        async with store.transaction() as transaction:
            transaction.enqueue(*(record(f"run:{n}", to, f"line {n}") for n in range(LINES)))
        account = channel(server, pace=SLOW)
        async with running(account, Desk()), worker_of(account, store):
            await asyncio.sleep(moments.uniform(0.0, LINES * SLOW.every_s))
            shutil.copytree(folder / "state", folder / "killed")
            written = [line for line in server.said if line.startswith("PRIVMSG")]
    server.said = written
    return folder / "killed", server


@pytest.mark.parametrize("trial", range(8))
async def test_irc_kill_during_long_answer_loses_no_line(tmp_path: Path, trial: int) -> None:
    moments = random.Random(SEED + trial)
    state, before = await copies_of_a_long_irc_answer(tmp_path, moments)
    async with serving() as server, open_store(state) as store:
        account = channel(server)
        async with running(account, Desk()), worker_of(account, store):
            while any(r.state in {"pending", "sending"} for r in await outbox(store)):
                await settle()
        records = await outbox(store)
    unknown = [r.text for r in records if r.state == "unknown"]
    lines = [line.removeprefix("PRIVMSG bob :") for line in [*before.said, *server.said]]
    lines = [line for line in lines if line.startswith("line")]
    assert len(lines) == len(set(lines)), "nothing came twice"
    # At most the one line whose confirmation was outstanding has no known outcome.
    assert len(unknown) <= 1
    assert set(lines) >= {f"line {n}" for n in range(LINES)} - set(unknown)


async def outbox(store: SqliteStore) -> list[OutboxRecord]:
    return list(await store.journal.outbox_records())


async def test_irc_lines_behind_rate_limit_are_pending(tmp_path: Path) -> None:
    pace = IrcTimings(burst=1, every_s=3_600.0, ready_s=30.0)
    async with serving() as server, open_store(tmp_path) as store:
        to = Address("irc", "bob")
        async with store.transaction() as transaction:
            transaction.enqueue(*(record(f"run:{n}", to, f"line {n}") for n in range(3)))
        account = channel(server, pace=pace)
        async with running(account, Desk()), worker_of(account, store):
            await server.heard("PRIVMSG bob :line 0")
            while (await outbox(store))[0].state != "sent":
                await settle()
            await settle()
            assert [r.state for r in await outbox(store)] == ["sent", "pending", "pending"]


@pytest.mark.parametrize("name", ["telegram", "matrix"])
async def test_http_channel_record_is_pending_while_it_connects(tmp_path: Path, name: str) -> None:
    """The listener's queue is full: the connection is neither accepted nor refused."""
    with socket.socket() as listener, socket.socket() as first, socket.socket() as second:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for filler in (first, second):
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        context = ChannelContext(name, "default", SystemClock(), state=tmp_path)
        service: Channel
        if name == "telegram":
            told = {"botToken": "1:x", "apiRoot": url}
            service = create_telegram(context, TelegramSettings.read(told))
        else:
            login = {"homeserver": url, "userId": "@bot:test", "accessToken": "t"}
            service = create_matrix(context, MatrixSettings.read(login))
        async with MemoryStore() as store:
            async with store.journal.transaction() as transaction:
                chat = "1" if name == "telegram" else "!room:test"
                transaction.enqueue(record("1", Address(name, chat)))
            async with worker_of(service, store):
                await asyncio.sleep(0.1)
                (waiting,) = await store.journal.outbox_records()
                assert waiting.state == "pending"


async def test_service_client_reports_write_after_connecting() -> None:
    steps: list[str] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        steps.append("connected")
        await reader.readuntil(b"\r\n\r\n")
        steps.append("request")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        await writer.drain()
        writer.close()

    async def before_write() -> None:
        await until(lambda: steps)
        steps.append("before write")

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        client = ServiceClient("svc", f"http://127.0.0.1:{port}")
        await client.send_json("POST", "/x", {}, before_write=before_write)
        await client.close()
    assert steps == ["connected", "before write", "request"]


async def test_service_client_unreachable_reports_no_write() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        client = ServiceClient("svc", f"http://127.0.0.1:{taken.getsockname()[1]}")

        async def before_write() -> None:
            raise AssertionError("nothing is written")

        with pytest.raises(SendError) as caught:
            await client.send_json("POST", "/x", {}, before_write=before_write)
        assert caught.value.retryable
        await client.close()
