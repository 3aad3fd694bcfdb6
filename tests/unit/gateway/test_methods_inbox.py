"""inbox.*: what is owed, and a person's word on it; `/queue` in a chat."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from homarus.core.errors import InvalidRequestError
from homarus.core.message import Address, Inbound
from homarus.store.journal import OutboxRecord
from homarus.testing.fakes import Hang
from tests.unit.gateway.app_harness import Harness, answer, world

KEY = "agent:main:main"
CHAT = Address("mock", "chat 7")


@asynccontextmanager
async def run(folder: Path, *script: Any) -> AsyncIterator[Harness]:
    async with asyncio.timeout(60), world(folder, script) as it:
        yield it


async def park(it: Harness, run_id: str, text: str = "help\u202e me") -> None:
    """A message that a person must decide on."""
    journal = it.app.store.journal
    inbound = Inbound(run_id, CHAT, "ann\x1b[2J", text, run_id=run_id)
    row = (await journal.accept(KEY, inbound, at_ms=it.app.clock.now_ms())).record
    async with journal.lease(f"session:{KEY}") as lease, journal.transaction() as unit:
        unit.mark_running([row.id], lease, run=row.id)
        unit.settle([row.id], lease, "parked", at_ms=1, why="it kills\nthe program")


async def lose(it: Harness, parcel_id: str) -> None:
    """A reply of which nobody knows whether it arrived."""
    journal, now_ms = it.app.store.journal, it.app.clock.now_ms()
    async with journal.transaction() as unit:
        unit.enqueue(OutboxRecord(parcel_id, "r", CHAT, "the\nreply", now_ms, now_ms + 1_000_000))
    async with journal.lease("send:mock") as lease:
        async with journal.transaction() as unit:
            unit.send_started(parcel_id, lease)
        async with journal.transaction() as unit:
            unit.send_ended(parcel_id, lease, "unknown", why="no word came back")


async def test_inbox_list_shows_waiting_running_and_stuck_records(tmp_path: Path) -> None:
    async with run(tmp_path, Hang()) as it:
        assert (await it.ask("inbox.list"))["messages"] == []
        await park(it, "p1")
        await lose(it, "r:0")
        await it.ask("chat.send", sessionKey="main", message="hi", idempotencyKey="live")
        await it.asked(1)
        every = await it.ask("inbox.list", None, "read")
        stuck = await it.ask("inbox.list", {"stuck": True}, "read")
        assert [(one["id"], one["state"]) for one in every["messages"]] == [
            ("p1", "parked"),
            ("live", "running"),
        ]
        assert [one["id"] for one in stuck["messages"]] == ["p1"]
        assert stuck["parcels"] == every["parcels"]
        shown = stuck["messages"][0]
        assert (shown["preview"], shown["sender"]) == ("help\\u{202e} me", "ann\\u{1b}[2J")
        assert (shown["why"], shown["sessionKey"]) == ("it kills the program", KEY)
        parcel = stuck["parcels"][0]
        assert (parcel["id"], parcel["state"], parcel["preview"]) == ("r:0", "unknown", "the reply")
        assert (parcel["chat"], parcel["why"]) == ("chat 7", "no word came back")


async def test_inbox_retry_of_parked_message_answers_it(tmp_path: Path) -> None:
    async with run(tmp_path, answer("Here I am")) as it:
        await park(it, "p1")
        told = await it.ask("inbox.retry", {"id": "p1"}, "write")
        assert told == {"ok": True, "id": "p1", "kind": "message", "sessionKey": KEY}
        await it.ended("p1")
        row = await it.app.store.journal.inbox_record("p1")
        assert row and row.state == "answered"
        with pytest.raises(InvalidRequestError, match="nothing that is stuck"):
            await it.ask("inbox.retry", id="p1")


async def test_inbox_retry_of_lost_outbox_record_makes_it_due(tmp_path: Path) -> None:
    async with run(tmp_path) as it:
        await lose(it, "r:0")
        assert (await it.ask("inbox.retry", id="r:0"))["kind"] == "parcel"
        parcel = await it.app.store.journal.outbox_record("r:0")
        assert parcel and parcel.state == "pending"


async def test_inbox_discard_removes_the_record(tmp_path: Path) -> None:
    async with run(tmp_path) as it:
        await park(it, "p1")
        await lose(it, "r:0")
        for name in ("p1", "r:0"):
            with pytest.raises(InvalidRequestError, match="missing scope"):
                await it.ask("inbox.discard", {"id": name}, "write")
            assert await it.ask("inbox.discard", id=name) == {"ok": True, "id": name}
        left = await it.ask("inbox.list")
        assert (left["messages"], left["parcels"]) == ([], [])
        row = await it.app.store.journal.inbox_record("p1")
        assert row and (row.state, row.why) == ("reported", "discarded by a person")


@pytest.mark.parametrize("verb", ["retry", "discard"])
@pytest.mark.parametrize("name", ["nobody", "\x00", "'; --", "x" * 1_024])
async def test_inbox_unknown_id_is_an_error(tmp_path: Path, verb: str, name: str) -> None:
    async with run(tmp_path) as it:
        with pytest.raises(InvalidRequestError, match="nothing that is stuck"):
            await it.ask(f"inbox.{verb}", id=name)


async def test_queue_command_changes_the_session_and_replies(tmp_path: Path) -> None:
    async with run(tmp_path) as it:
        for run_id, text, told in (
            ("a", "/queue", "Queue: collect debounce:1000ms cap:20 drop:summarize"),
            ("b", "/queue steer cap:3", "(set for this session)"),
            ("c", "/queue nonsense", "does not understand 'nonsense'"),
        ):
            await it.send(text, run_id)
            event = it.gateway.chats(run_id)[-1]
            said = event.get("errorMessage") or event["message"]["content"][0]["text"]
            assert told in said
        data = (await it.app.control.load(KEY)).record.data
        assert (data["queueMode"], data["queueCap"]) == ("steer", 3)


async def test_queue_mode_interrupt_replaces_the_active_run(
    tmp_path: Path,
) -> None:
    async with run(tmp_path, Hang(), answer("at once")) as it:
        await it.send("/queue interrupt", "q")
        await it.ask("chat.send", sessionKey="main", message="one", idempotencyKey="a")
        await it.asked(1)
        await it.ask("chat.send", sessionKey="main", message="two", idempotencyKey="b")
        await it.ended("b")
        rows = await it.app.store.journal.inbox_records()
        states = {row.id: row.state for row in rows}
        assert states == {"q": "answered", "a": "reported", "b": "answered"}
        assert it.gateway.chats("a")[-1]["state"] == "aborted"


async def test_health_reports_loop_lag_and_fails_after_a_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with run(tmp_path) as it:
        fine = await it.ask("health")
        assert fine["ok"] and fine["loop"]["stalls"] == 0
        monkeypatch.setattr(type(it.gateway.monitor), "is_stalled", property(lambda _self: True))
        assert (await it.ask("health"))["ok"] is False, "not the one that is kept"
        status = await it.ask("status")
        assert status["lanes"]["main"] == {"active": 0, "waiting": 0, "width": 4}
        assert "lagP99Ms" in status["loop"]
