import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from homarus.channels.base import Channel, InboundHandler
from homarus.channels.inbound import (
    AdmitMessage,
    AdmittedMessage,
    InboundPipeline,
    RejectedMessage,
    admit_all,
)
from homarus.core import faults
from homarus.core.errors import DiskFullError
from homarus.core.message import Address, Inbound
from homarus.store.chat_records import ChatRecord
from homarus.store.journal import Acceptance, Cursor, InboxRecord, OutboxRecord
from homarus.testing.clock import FakeClock
from homarus.testing.fakes import ListChannel
from homarus.testing.memory_journal import MemoryJournal
from homarus.testing.memory_store import MemoryStore
from tests.waiting import settle

GUARD_S = 30.0


def message(message_id: str = "1", text: str = "hello") -> Inbound:
    return Inbound(message_id, Address("list", "chat"), "person", text)


@dataclass
class Harness:
    """An inbound pipeline over a journal in memory, and a record of what it did."""

    journal: MemoryJournal
    receive: InboundHandler
    pipeline: InboundPipeline
    submitted: list[InboxRecord] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    answers: list[asyncio.Future[None]] = field(default_factory=list)

    async def settle(self) -> None:
        await settle(20)


class GatedJournal(MemoryJournal):
    """A journal whose `accept` waits for the test, and can fail, also for one session."""

    gate: asyncio.Event
    full = False
    full_for = ""

    async def accept(
        self,
        session: str,
        inbound: Inbound,
        *,
        at_ms: int,
        cursor: Cursor | None = None,
        chat_records: Sequence[ChatRecord] = (),
    ) -> Acceptance:
        await self.gate.wait()
        if self.full or session == self.full_for:
            raise DiskFullError("no room")
        return await super().accept(
            session, inbound, at_ms=at_ms, cursor=cursor, chat_records=chat_records
        )


def gated(store: MemoryStore) -> GatedJournal:
    journal = GatedJournal.__new__(GatedJournal)
    journal.__dict__.update(store.journal.__dict__)
    journal.gate = asyncio.Event()
    return journal


@asynccontextmanager
async def on_stage(admit: AdmitMessage | None = None) -> AsyncIterator[Harness]:
    @asynccontextmanager
    async def stage() -> Any:
        async with MemoryStore() as store:
            journal = gated(store)
            journal.gate.set()
            rows: list[InboxRecord] = []
            events: list[str] = []

            answers: list[asyncio.Future[None]] = []

            def submit(session: str, row: InboxRecord) -> asyncio.Future[None] | None:
                assert session == row.session
                rows.append(row)
                events.append("put")
                return answers.pop(0) if answers else None

            pipeline = InboundPipeline(
                journal,
                FakeClock(),
                admit=admit or admit_all(lambda one: f"agent:main:{one.address.chat}"),
                submit=submit,
            )
            async with pipeline.running():
                yield Harness(
                    journal, pipeline.handler_for(ListChannel()), pipeline, rows, events, answers
                )

    async with asyncio.timeout(GUARD_S), stage() as made:
        yield made


async def test_inbound_message_is_in_journal_with_cursor_on_return() -> None:
    async with on_stage() as stage:
        assert await stage.receive.load_cursor() is None
        await stage.receive(message(), {"offset": 8})
        (row,) = await stage.journal.inbox_records("accepted")
        assert (row.session, row.message_id, row.inbound) == ("agent:main:chat", "1", message())
        assert await stage.receive.load_cursor() == {"offset": 8}
        await stage.settle()
        assert [one.id for one in stage.submitted] == [row.id]


async def test_inbound_acknowledge_is_called_after_accept_and_before_submit() -> None:
    async with on_stage() as stage:

        async def acknowledge() -> None:
            assert await stage.journal.inbox_records("accepted")
            await asyncio.sleep(0)
            stage.events.append("told")

        await stage.receive(message(), None, acknowledge)
        await stage.settle()
        assert stage.events == ["told", "put"]


async def test_inbound_hundred_duplicates_are_answered_once_and_counted() -> None:
    async with on_stage() as stage:
        for offset in range(100):
            await stage.receive(message(), {"offset": offset})
        await stage.settle()
        assert len(stage.submitted) == 1
        (row,) = await stage.journal.inbox_records()
        assert row.duplicates == 99
        assert await stage.receive.load_cursor() == {"offset": 99}  # or it would be read forever


async def test_inbound_concurrent_duplicates_are_answered_once() -> None:
    async with on_stage() as stage:
        async with asyncio.TaskGroup() as group:
            for _ in range(50):
                group.create_task(_receive(stage.receive, message()))
        await stage.settle()
        assert len(stage.submitted) == 1


async def test_inbound_same_id_with_other_text_is_parked_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        async with on_stage() as stage:
            await stage.receive(message(text="one"))
            await stage.receive(message(text="two"))
            await stage.settle()
            assert [row.preview for row in stage.submitted] == ["one"]
            (parked,) = await stage.journal.inbox_records("parked")
            assert parked.inbound and parked.inbound.text == "two"
    assert "with other words" in caplog.text and "inbox --stuck" in caplog.text


async def test_inbound_store_error_neither_acknowledges_nor_submits() -> None:
    async with on_stage() as stage:
        assert isinstance(stage.journal, GatedJournal)
        stage.journal.full = True

        async def acknowledge() -> None:
            stage.events.append("told")

        with pytest.raises(DiskFullError):
            await stage.receive(message(), {"offset": 2}, acknowledge)
        await stage.settle()
        assert stage.events == [] and await stage.receive.load_cursor() is None
        stage.journal.full = False
        await stage.receive(message(), {"offset": 2}, acknowledge)
        await stage.settle()
        assert stage.events == ["told", "put"]


async def test_inbound_cancelled_channel_does_not_lose_message_being_stored() -> None:
    async with on_stage() as stage:
        assert isinstance(stage.journal, GatedJournal)
        stage.journal.gate.clear()
        async with asyncio.TaskGroup() as group:
            reading = group.create_task(_receive(stage.receive, message()))
            await stage.settle()
            reading.cancel()
        assert stage.submitted == []
        stage.journal.gate.set()
        await stage.settle()
        assert len(stage.submitted) == 1
        await stage.receive(message())  # the service offers it again
        await stage.settle()
        assert len(stage.submitted) == 1


async def test_inbound_failed_acknowledge_still_submits() -> None:
    async with on_stage() as stage:

        async def acknowledge() -> None:
            raise ConnectionError("gone")

        with pytest.raises(ConnectionError):
            await stage.receive(message(), None, acknowledge)
        await stage.settle()
        assert len(stage.submitted) == 1


async def test_inbound_after_close_messages_wait_for_next_start() -> None:
    async with on_stage() as stage:
        stage.pipeline.close()
        await stage.receive(message())
        await stage.settle()
        assert stage.submitted == [] and len(await stage.journal.inbox_records("accepted")) == 1


@pytest.mark.parametrize(
    ("point", "kept", "told"),
    [("intake.read", 0, []), ("intake.accepted", 1, []), ("intake.acknowledged", 1, ["told"])],
)
async def test_inbound_fault_points_are_where_their_names_say(
    point: str, kept: int, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(faults, "_faults", faults.parse_faults(f"{point}:raise"))
    async with on_stage() as stage:

        async def acknowledge() -> None:
            stage.events.append("told")

        with pytest.raises(faults.InjectedFaultError):
            await stage.receive(message(), None, acknowledge)
        assert len(await stage.journal.inbox_records()) == kept
        assert stage.events == told  # and no run has started
        await stage.settle()
        assert len(stage.submitted) == kept  # a fault that is survived leaves nothing behind


async def _receive(
    receive: InboundHandler, inbound: Inbound, cursor: Mapping[str, Any] | None = None
) -> None:
    await receive(inbound, cursor)


async def admitting(
    verdict: AdmittedMessage | RejectedMessage, body: Callable[[Harness], Awaitable[None]]
) -> None:
    """Run as `on_stage`, with a fixed admission."""

    async def admit(_channel: Channel, _inbound: Inbound) -> AdmittedMessage | RejectedMessage:
        return verdict

    async with on_stage(admit) as made:
        await body(made)


async def test_inbound_ignored_message_moves_cursor_without_acknowledge() -> None:
    async def body(stage: Harness) -> None:
        told: list[str] = []

        async def acknowledge() -> None:
            told.append("told")

        await stage.receive(message(), {"offset": 8}, acknowledge)
        await stage.settle()
        assert await stage.receive.load_cursor() == {"offset": 8}
        assert not told and not await stage.journal.inbox_records() and not stage.submitted

    await admitting(RejectedMessage(), body)


LINE = ChatRecord("history", "chat", "line:1", 1, {"text": "Ann: hello"})


@pytest.mark.parametrize("cursor", [{"offset": 8}, None])
@pytest.mark.parametrize(
    "verdict",
    [
        RejectedMessage(chat_records=(LINE,)),
        AdmittedMessage((("agent:main:chat", message()),), chat_records=(LINE,)),
    ],
)
async def test_inbound_chat_records_are_stored_on_return(
    verdict: AdmittedMessage | RejectedMessage, cursor: dict[str, int] | None
) -> None:
    async def body(stage: Harness) -> None:
        await stage.receive(message(), cursor)
        assert list(await stage.journal.chat_records("history")) == [LINE]
        assert await stage.receive.load_cursor() == cursor

    await admitting(verdict, body)


async def test_inbound_pairing_notice_is_posted_once_with_cursor() -> None:
    parcel = OutboxRecord("pairing:1", "pairing", Address("svc", "c"), "who are you?", 1, 1 << 60)

    async def body(stage: Harness) -> None:
        for offset in (8, 9):
            await stage.receive(message(), {"offset": offset})
        (posted,) = await stage.journal.outbox_records()
        assert posted.text == "who are you?" and await stage.receive.load_cursor() == {"offset": 9}
        assert not await stage.journal.inbox_records()

    await admitting(RejectedMessage((parcel,)), body)


async def test_inbound_for_several_agents_is_stored_for_each_acked_once() -> None:
    welcomed: list[str] = []
    both = (("agent:a:main", message("1")), ("agent:b:main", replace(message("1"), copy_for="b")))
    taken = AdmittedMessage(both, on_accepted=lambda: welcomed.append("seen"))

    async def body(stage: Harness) -> None:
        for _ in range(3):
            await stage.receive(message(), {"offset": 8})
            await stage.settle()
        assert [row.session for row in stage.submitted] == ["agent:a:main", "agent:b:main"]
        assert welcomed == ["seen"] and await stage.receive.load_cursor() == {"offset": 8}

    await admitting(taken, body)


@pytest.mark.parametrize("in_turn", [False, True])
async def test_inbound_partly_stored_for_agents_is_answered_once_by_each(
    in_turn: bool,
) -> None:
    both = (("agent:a:main", message("1")), ("agent:b:main", replace(message("1"), copy_for="b")))

    async def body(stage: Harness) -> None:
        assert isinstance(stage.journal, GatedJournal)
        stage.journal.full_for = "agent:b:main"
        with pytest.raises(DiskFullError):
            await stage.receive(message(), {"offset": 8})
        await stage.settle()
        assert [row.session for row in stage.submitted] == ["agent:a:main"]
        assert await stage.receive.load_cursor() is None  # so that it is offered again
        stage.journal.full_for = ""
        await stage.receive(message(), {"offset": 8})
        await stage.settle()
        assert [row.session for row in stage.submitted] == ["agent:a:main", "agent:b:main"]

    await admitting(AdmittedMessage(both, in_turn=in_turn), body)


async def test_inbound_sequential_without_outcome_skips_no_agent() -> None:
    both = (("agent:a:main", message("1")), ("agent:b:main", replace(message("1"), copy_for="b")))

    async def body(stage: Harness) -> None:
        await stage.receive(message())
        await stage.settle()
        assert [row.session for row in stage.submitted] == ["agent:a:main", "agent:b:main"]

    await admitting(AdmittedMessage(both, in_turn=True), body)


async def test_inbound_sequential_runs_agents_one_after_another() -> None:
    both = (("agent:a:main", message("1")), ("agent:b:main", replace(message("1"), copy_for="b")))

    async def body(stage: Harness) -> None:
        answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        stage.answers.append(answered)
        await stage.receive(message())
        await stage.settle()
        assert [row.session for row in stage.submitted] == ["agent:a:main"]
        answered.set_result(None)
        await stage.settle()
        assert [row.session for row in stage.submitted] == ["agent:a:main", "agent:b:main"]

    await admitting(AdmittedMessage(both, in_turn=True), body)
