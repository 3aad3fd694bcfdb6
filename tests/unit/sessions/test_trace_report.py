"""The report on a run, from journals in every state, without a program."""

from typing import Any

import pytest

from homarus.core.errors import UserError
from homarus.core.message import Address, Inbound
from homarus.sessions.trace_report import find_traced, report_trace
from homarus.store.journal import InboxState, OutboxRecord
from homarus.store.traces import TraceRecord
from homarus.testing.memory_store import MemoryStore

KEY = "agent:main:main"
CHAT = Address("telegram", "42")
SECRET = "sk-abcdefghijklmnopqrstuvwx0123456789"


async def accept(store: MemoryStore, name: str, at_ms: int = 1_000) -> None:
    inbound = Inbound(name, CHAT, "ann", f"about {name}", run_id=name, matched_by="default")
    await store.journal.accept(KEY, inbound, at_ms=at_ms)


async def begin(store: MemoryStore, *names: str, times: int = 1) -> Any:
    for _ in range(times):
        async with store.journal.lease(f"session:{KEY}") as lease, store.transaction() as unit:
            unit.mark_running(names, lease, run=names[0])
    return lease


async def report(store: MemoryStore, name: str, live: Any = None) -> dict[str, Any]:
    return await report_trace(store, await find_traced(store, name), 9_000, live)


def hop(found: dict[str, Any], name: str) -> dict[str, Any]:
    (one,) = [each for each in found["hops"] if each["name"] == name]
    return dict(one)


async def test_report_of_waiting_message_says_so() -> None:
    async with MemoryStore() as store:
        await accept(store, "m1")
        await store.journal.accept(
            KEY, Inbound("m1", CHAT, "ann", "about m1", run_id="m1"), at_ms=1_500
        )
        found = await report(store, "m1")
        assert found["state"] == "accepted" and found["now"] == "waits for its run"
        accepted = hop(found, "accepted")
        assert accepted["duplicates"] == 1 and accepted["dedupeKey"] == "telegram:default:m1"
        assert hop(found, "routed")["why"] == "default"


@pytest.mark.parametrize(
    ("state", "text"), [("parked", "homarus inbox retry"), ("suspended", "waits for an approval")]
)
async def test_report_of_stopped_run_says_what_it_waits_for(state: InboxState, text: str) -> None:
    async with MemoryStore() as store:
        await accept(store, "m1")
        lease = await begin(store, "m1")
        data = {"outcome": "suspended", "times": {"started": 1_001, "settled": 1_200}, "steps": []}
        async with store.journal.transaction() as unit:
            unit.add_trace(TraceRecord("m1", KEY, lease.token, 1_001, data))
            if state == "parked":
                unit.settle(["m1"], lease, "parked", at_ms=2_000, why=f"refused {SECRET}")
            else:
                unit.suspend(["m1"], lease)
        found = await report(store, "m1")
        assert found["state"] == state and text in found["now"]
        assert found["attempts"][0]["outcome"] == "suspended" and SECRET not in str(found)
        assert bool(hop(found, "settled")["at"]) == (state == "parked")


async def test_report_counts_interrupted_attempts_before_the_answer() -> None:
    async with MemoryStore() as store:
        await accept(store, "m1")
        lease = await begin(store, "m1", times=3)
        assert (await report(store, "m1"))["interrupted"] == 3
        live = {"times": {"started": 1, "leased": 2}, "steps": [], "totals": {}}
        assert (await report(store, "m1", live))["interrupted"] == 2
        async with store.journal.transaction() as unit:
            data = {"outcome": "answered", "times": {"started": 5_000, "settled": 6_000}}
            unit.add_trace(TraceRecord("m1", KEY, lease.token, 5_000, data))
            unit.settle(["m1"], lease, "answered", at_ms=6_000)
        found = await report(store, "m1")
        assert found["interrupted"] == 2 and found["state"] == "answered"


async def test_message_that_joined_a_run_shows_that_run() -> None:
    async with MemoryStore() as store:
        await accept(store, "m1")
        await accept(store, "m2", 1_100)
        await begin(store, "m1", "m2")
        found = await report(store, "m2")
        assert found["runId"] == "m1" and found["message"]["joined"] == "m1"


async def test_pending_reply_is_named_until_it_is_sent() -> None:
    async with MemoryStore() as store:
        await accept(store, "m1")
        lease = await begin(store, "m1")
        async with store.journal.transaction() as unit:
            unit.settle(["m1"], lease, "answered", at_ms=2_000)
            unit.enqueue(OutboxRecord("m1:0", "m1", CHAT, "a reply", 2_000, 9_999))
        found = await report(store, "m1:0")  # by the id of the reply
        assert found["runId"] == "m1" and "1 of 1" in found["now"]
        assert not hop(found, "delivered")["at"]


async def test_start_of_an_id_is_enough_if_it_is_unique() -> None:
    async with MemoryStore() as store:
        await accept(store, "abcd-1")
        await accept(store, "abcd-2")
        await accept(store, "wxyz-1")
        assert (await find_traced(store, "wxyz")).run == "wxyz-1"
        assert (await find_traced(store, "last")).run == "wxyz-1"
        with pytest.raises(UserError, match="could be 2"):
            await find_traced(store, "abcd")
        with pytest.raises(UserError):
            await find_traced(store, "wxy")


async def test_damaged_trace_leaves_the_rest_of_the_report() -> None:
    async with MemoryStore() as store:
        await accept(store, "m1")
        lease = await begin(store, "m1")
        async with store.journal.transaction() as unit:
            unit.add_trace(TraceRecord("m1", KEY, lease.token, 1_001, {}))
            unit.settle(["m1"], lease, "answered", at_ms=2_000)
        found = await report(store, "m1")
        assert found["attempts"][0]["outcome"] == "unreadable" and found["state"] == "answered"
        assert hop(found, "accepted")["at"] == 1_000 and hop(found, "settled")["at"] == 2_000
