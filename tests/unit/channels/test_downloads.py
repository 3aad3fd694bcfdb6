"""Files of accepted messages: downloaded next to the reader, in the order of their chat."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import pytest

from homarus.channels.base import Channel
from homarus.channels.downloads import MAX_DOWNLOADS, MAX_WAITING, DownloadQueue, lacks_files
from homarus.channels.inbound import InboundPipeline, admit_all
from homarus.channels.media import NOT_FETCHED
from homarus.core.errors import DiskFullError
from homarus.core.message import Address, Inbound, Media
from homarus.store.journal import InboxRecord
from homarus.testing.clock import FakeClock
from homarus.testing.fakes import ListChannel
from homarus.testing.memory_store import MemoryStore
from tests.waiting import settle

GUARD_S = 30.0


def message(message_id: str, chat: str = "a", *refs: str) -> Inbound:
    media = tuple(Media("document", ref=ref) for ref in refs)
    return Inbound(message_id, Address("list", chat), "ann", message_id, media=media)


@dataclass
class Harness:
    """A pipeline with a queue of downloads, whose service gives a file when the test says so."""

    store: MemoryStore
    group: asyncio.TaskGroup
    connect_s: float = GUARD_S
    channel: ListChannel | None = field(default_factory=ListChannel)
    asked: list[str] = field(default_factory=list)
    given: dict[str, asyncio.Future[str]] = field(default_factory=dict)
    submitted: list[Inbound] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.reader = ListChannel()
        self.queue = DownloadQueue(
            self.group,
            self.store.journal,
            fetch=self._fetch,
            find_connected=lambda _channel, _account: self.channel,
            connect_s=self.connect_s,
        )
        self.pipeline = InboundPipeline(
            self.store.journal,
            FakeClock(),
            admit=admit_all(lambda one: f"agent:main:{one.address.chat}"),
            submit=self._submit,
            downloads=self.queue,
        )
        self.receive = self.pipeline.handler_for(self.reader)

    @property
    def answered(self) -> list[str]:
        return [one.id for one in self.submitted]

    def give(self, ref: str, problem: str = "") -> None:
        """Let the download of a file end."""
        self.given[ref].set_result(problem)

    async def recovered(self) -> list[InboxRecord]:
        return list(await self.store.journal.inbox_records("accepted"))

    async def _fetch(self, _channel: Channel, inbound: Inbound) -> Inbound:
        refs = [media.ref for media in inbound.media]
        self.asked += refs
        for ref in refs:
            self.given[ref] = asyncio.get_running_loop().create_future()
        problems = [await self.given[ref] for ref in refs]
        media = [
            replace(one, problem=problem) if problem else replace(one, path=f"/state/{one.ref}")
            for one, problem in zip(inbound.media, problems, strict=True)
        ]
        return replace(inbound, media=tuple(media))

    def _submit(self, _session: str, record: InboxRecord) -> None:
        assert record.inbound
        self.submitted.append(record.inbound)


@asynccontextmanager
async def on_stage(
    store: MemoryStore | None = None, connect_s: float = GUARD_S
) -> AsyncIterator[Harness]:
    async with asyncio.timeout(GUARD_S), asyncio.TaskGroup() as group:
        stage = Harness(store or MemoryStore(), group, connect_s)
        async with stage.pipeline.running():
            yield stage
        stage.pipeline.close()


async def test_download_delays_neither_reader_nor_other_chats() -> None:
    async with on_stage() as stage:
        await stage.receive(message("1", "a", "big"), {"offset": 1})
        await stage.receive(message("2", "b"), {"offset": 2})
        await settle()
        assert stage.asked == ["big"] and stage.answered == ["2"]
        assert await stage.receive.load_cursor() == {"offset": 2}
        (pending, _) = await stage.recovered()
        assert pending.inbound and lacks_files(pending.inbound)  # a kill loses nothing
        stage.give("big")
        await settle()
        assert stage.answered == ["2", "1"]
        (stored, _) = await stage.recovered()
        assert stored.inbound == stage.submitted[1] and not lacks_files(stored.inbound)
        assert stored.inbound.media[0].path == "/state/big"


async def test_download_keeps_order_of_chat() -> None:
    async with on_stage() as stage:
        await stage.receive(message("1", "a", "one"))
        await stage.receive(message("2"))
        await stage.receive(message("3", "a", "three"))
        await stage.receive(message("4"))
        await settle()
        assert stage.answered == [] and stage.asked == ["one"]
        stage.give("one")
        await settle()
        assert stage.answered == ["1", "2"] and stage.asked == ["one", "three"]
        stage.give("three")
        await settle()
        assert stage.answered == ["1", "2", "3", "4"]
        await stage.receive(message("5"))
        await settle()
        assert stage.answered[-1] == "5"  # nothing is left to wait for


async def test_download_runs_a_few_at_once_for_each_account() -> None:
    async with on_stage() as stage:
        for number in range(MAX_DOWNLOADS + 2):
            await stage.receive(message(str(number), f"chat {number}", f"f{number}"))
        other = message("x", "a", "other")
        await stage.receive(replace(other, address=Address("list", "a", "second")))
        await settle()
        assert len(stage.asked) == MAX_DOWNLOADS + 1 and "other" in stage.asked
        stage.give("f0")
        await settle()
        assert stage.asked[-1] == f"f{MAX_DOWNLOADS}"


async def test_download_reader_waits_while_too_many_wait() -> None:
    async with on_stage() as stage, asyncio.TaskGroup() as readers:
        for number in range(MAX_WAITING):
            await stage.receive(message(str(number), "a", f"f{number}"))
        reading = readers.create_task(read(stage, message("late", "b", "late")))
        await settle()
        assert not reading.done() and len(await stage.recovered()) == MAX_WAITING
        await stage.receive(message("free", "c"))  # one that waits for nothing
        await settle()
        assert stage.answered == ["free"]
        stage.give("f0")
        await settle()
        assert reading.done() and stage.asked[-1] == "late"


async def read(stage: Harness, inbound: Inbound) -> None:
    await stage.receive(inbound)


async def test_download_is_left_for_next_start_when_program_ends() -> None:
    store = MemoryStore()
    async with on_stage(store) as stage:
        await stage.receive(message("1", "a", "file"))
        await stage.receive(message("2"))
        await settle()
        stage.pipeline.close()
        await settle()
        assert stage.submitted == []
    async with on_stage(store) as stage:
        pending = await stage.recovered()
        complete = [stage.queue.complete([record]) for record in pending]
        assert all(complete)  # the second has no file, and waits for the first
        await settle()
        stage.give("file")
        await settle()
        (first, second) = [one.result()[0].inbound for one in complete if one]
        assert first and first.media[0].path == "/state/file" and second == message("2")
        assert stage.queue.complete([(await stage.recovered())[0]]) is None


async def test_download_after_restart_waits_for_login_of_account() -> None:
    store = MemoryStore()
    async with store as opened, on_stage(opened) as stage:
        pending = (await opened.journal.accept("s", message("1", "a", "f"), at_ms=1)).record
        stage.channel = None
        complete = stage.queue.complete([pending])
        assert complete
        await settle()
        stage.receive.mark_connected()  # of another account
        await settle()
        assert stage.asked == []
        stage.channel = ListChannel()
        stage.receive.mark_connected()
        await settle()
        stage.give("f")
        await settle()
        assert complete.done() and stage.asked == ["f"]


async def test_download_of_account_that_stays_away_ends_with_note() -> None:
    async with on_stage(connect_s=0.01) as stage:
        journal = stage.store.journal
        pending = (await journal.accept("s", message("1", "a", "f"), at_ms=1)).record
        stage.channel = None
        complete = stage.queue.complete([pending])
        assert complete
        (record,) = await complete
        assert record.inbound and record.inbound.media[0].problem == NOT_FETCHED
        assert stage.asked == [] and [one.inbound for one in await stage.recovered()] == [
            record.inbound
        ]


async def test_download_is_repeated_when_account_was_restarted() -> None:
    async with on_stage() as stage:
        await stage.receive(message("1", "a", "f"))
        await settle()
        stage.give("f", NOT_FETCHED)  # because the old connection was closed
        await settle()
        stage.give("f")
        await settle()
        assert stage.asked == ["f", "f"] and stage.submitted[0].media[0].path == "/state/f"


async def test_download_is_repeated_when_account_logged_in_again() -> None:
    async with on_stage() as stage:
        stage.channel = stage.reader
        await stage.receive(message("1", "a", "f"))
        await settle()
        stage.receive.mark_connected()  # the same account, after its connection was lost
        stage.give("f", NOT_FETCHED)
        await settle()
        stage.give("f")
        await settle()
        assert stage.asked == ["f", "f"] and stage.submitted[0].media[0].path == "/state/f"


async def test_download_failed_by_service_is_not_repeated() -> None:
    async with on_stage() as stage:
        stage.channel = stage.reader
        await stage.receive(message("1", "a", "f"))
        await settle()
        stage.give("f", NOT_FETCHED)
        await settle()
        assert stage.asked == ["f"] and stage.submitted[0].media[0].problem == NOT_FETCHED


async def test_download_that_cannot_be_stored_is_submitted_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with on_stage() as stage:

        async def full(_id: str, _inbound: Inbound) -> bool:
            raise DiskFullError("no room")

        monkeypatch.setattr(type(stage.store.journal), "set_message", lambda _self, *a: full(*a))
        await stage.receive(message("1", "a", "f"))
        await settle()
        stage.give("f")
        await settle()
        assert stage.submitted[0].media[0].path == "/state/f"


async def test_download_bug_delivers_message_and_those_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with on_stage() as stage:

        async def broken(_channel: Channel, _inbound: Inbound) -> Inbound:
            raise RuntimeError("a bug")

        monkeypatch.setattr(stage.queue, "_fetch", broken)
        await stage.receive(message("1", "a", "f"))
        await stage.receive(message("2"))
        await settle()
        assert stage.answered == ["1", "2"]
        await stage.receive(message("3"))
        await settle()
        assert stage.answered == ["1", "2", "3"]


async def test_download_complete_takes_records_of_one_run_together() -> None:
    async with on_stage() as stage:
        records = list[InboxRecord]()
        for inbound in (message("1", "a", "one"), message("2", "b", "two")):
            records.append((await stage.store.journal.accept("s", inbound, at_ms=1)).record)
        complete = stage.queue.complete(records)
        assert complete
        for ref in ("one", "two"):
            await settle()
            stage.give(ref)
        found: Sequence[InboxRecord] = await complete
        assert [one.id for one in found] == [one.id for one in records]
        assert not any(lacks_files(one.inbound) for one in found)


async def test_download_complete_is_cancelled_when_program_ends() -> None:
    async with on_stage() as stage:
        pending = (await stage.store.journal.accept("s", message("1", "a", "f"), at_ms=1)).record
        complete = stage.queue.complete([pending])
        assert complete
        await settle()
        stage.queue.close()
        assert complete.cancelled()
        late = stage.queue.complete([pending])
        assert late and late.cancelled()
