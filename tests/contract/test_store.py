"""What every store guarantees (store/base.py)."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from homarus.core.errors import ConflictError, LeaseLostError, NotFoundError
from homarus.core.message import Address, Inbound, Usage
from homarus.core.principal import Principal
from homarus.store.audit import AuditAnchor, AuditEntry
from homarus.store.base import (
    SessionRecord,
    SessionRevision,
    Store,
    TranscriptEntry,
    TranscriptHeader,
    UsageRecord,
)
from homarus.store.journal import Lease, OutboxRecord
from homarus.store.slots import SlotRecord
from homarus.store.sqlite import open_store
from homarus.store.usage import USAGE_FIELDS, UsageFilter, local_day
from homarus.testing.memory_store import MemoryStore
from tests.contract.leases import check_cancelled_holder_releases, check_that_one_holds

Run = Callable[[], AbstractAsyncContextManager[Store]]

HEADER = TranscriptHeader("s1", "main", 1_000, "/w")


@pytest.fixture(params=["sqlite", "memory"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    @asynccontextmanager
    async def go() -> AsyncIterator[Store]:
        if request.param == "memory":
            async with MemoryStore() as store:
                yield store
        else:
            async with open_store(tmp_path) as opened:
                yield opened

    return go


def record(key: str = "agent:main:main", at_ms: int = 5, **data: object) -> SessionRecord:
    agent = key.split(":")[1]
    return SessionRecord(key, agent, "s1", at_ms, data)


def entry(entry_id: str, parent: str | None = None, text: str = "hi") -> TranscriptEntry:
    message = {"role": "user", "content": text, "timestamp": 7}
    return TranscriptEntry(entry_id, parent, "message", 7, {"message": message})


async def write(store: Store, *entries: TranscriptEntry) -> None:
    async with store.transaction() as transaction:
        transaction.open_transcript(HEADER)
        transaction.append("s1", *entries)


async def test_session_committed_is_read_with_every_field(run: Run) -> None:
    async with run() as store:
        async with store.transaction() as transaction:
            transaction.put_session(record(label="x", odd={"a": [1, None, "é😀"]}))
        found = await store.session("agent:main:main")
        assert found is not None
        assert (found.key, found.agent, found.session_id) == ("agent:main:main", "main", "s1")
        assert (found.updated_ms, found.version) == (5, 1)
        assert found.data["label"] == "x" and found.data["odd"] == {"a": [1, None, "é😀"]}
        assert found.data["sessionId"] == "s1" and found.data["updatedAt"] == 5


async def test_store_absent_items_read_as_nothing(run: Run) -> None:
    async with run() as store:
        assert await store.session("agent:main:main") is None
        assert await store.revision("agent:main:main") is None
        assert await store.header("s1") is None
        assert await store.leaf("s1") is None
        assert list(await store.entries("s1")) == []
        assert await store.record("job", "1") is None
        assert dict(await store.records("job")) == {}
        assert list(await store.sessions()) == []


async def test_transaction_is_invisible_before_end(run: Run) -> None:
    async with run() as store:
        async with store.transaction() as transaction:
            transaction.put_session(record())
            transaction.put_record("job", "1", {"a": 1})
            assert await store.session("agent:main:main") is None
            assert await store.record("job", "1") is None
        assert await store.record("job", "1") == {"a": 1}


async def test_transaction_that_raises_changes_nothing(run: Run) -> None:
    async with run() as store:

        async def fail() -> None:
            async with store.transaction() as transaction:
                transaction.put_session(record())
                raise RuntimeError("no")

        with pytest.raises(RuntimeError, match="no"):
            await fail()
        assert await store.session("agent:main:main") is None


async def test_transaction_with_failing_step_is_rolled_back(run: Run) -> None:
    async with run() as store:

        async def fail() -> None:
            async with store.transaction() as transaction:
                transaction.put_session(record())
                transaction.put_record("job", "1", {})
                transaction.append("missing", entry("a"))

        with pytest.raises(NotFoundError):
            await fail()
        assert await store.session("agent:main:main") is None
        assert await store.record("job", "1") is None


async def test_transactions_in_parallel_fail_alone(run: Run) -> None:
    async with run() as store:
        failed = []

        async def one(n: int) -> None:
            try:
                async with store.transaction() as transaction:
                    transaction.put_record("n", str(n), {"n": n})
                    if n % 3 == 0:
                        transaction.set_leaf("missing", None)
            except NotFoundError:
                failed.append(n)

        async with asyncio.TaskGroup() as group:
            for n in range(30):
                group.create_task(one(n))
        assert sorted(failed) == list(range(0, 30, 3))
        expected = {str(n): {"n": n} for n in range(30) if n % 3}
        assert dict(await store.records("n")) == expected


async def test_entries_keep_order_and_are_numbered_from_one(run: Run) -> None:
    async with run() as store:
        await write(store, entry("a"), entry("b", "a"))
        await write(store, entry("c", "b"))
        found = await store.entries("s1")
        assert [(one.id, one.parent, one.seq) for one in found] == [
            ("a", None, 1),
            ("b", "a", 2),
            ("c", "b", 3),
        ]
        assert found[0] == TranscriptEntry("a", None, "message", 7, entry("a").data, 1)
        assert [one.id for one in await store.entries("s1", after=1)] == ["b", "c"]
        assert list(await store.entries("s1", after=3)) == []


async def test_entries_limit_reads_from_either_end(run: Run) -> None:
    async with run() as store:
        await write(store, *(entry(f"{n:08x}", f"{n - 1:08x}" if n else None) for n in range(500)))

        async def seqs(**asked: Any) -> list[int]:
            return [one.seq for one in await store.entries("s1", **asked)]

        assert await seqs(limit=3) == [1, 2, 3]
        assert await seqs(limit=3, after=498) == [499, 500]
        assert await seqs(limit=3, newest=True) == [498, 499, 500]
        assert await seqs(limit=3, after=499, newest=True) == [500]
        assert await seqs(limit=9_999, newest=True) == list(range(1, 501))
        assert await seqs(limit=0) == []
        assert list(await store.entries("s2", limit=3, newest=True)) == []


async def test_entries_long_transcript_is_read_completely(run: Run) -> None:
    async with run() as store:
        await write(store, *(entry(f"{n:08x}", f"{n - 1:08x}" if n else None) for n in range(1500)))
        assert [one.seq for one in await store.entries("s1")] == list(range(1, 1501))


async def test_leaf_follows_appends_and_branches(run: Run) -> None:
    async with run() as store:
        await write(store, entry("a"), entry("b", "a"))
        assert await store.leaf("s1") == "b"
        async with store.transaction() as transaction:
            transaction.set_leaf("s1", "a")
        assert await store.leaf("s1") == "a"
        await write(store, entry("c", "a"))
        assert await store.leaf("s1") == "c"
        async with store.transaction() as transaction:
            transaction.set_leaf("s1", None)
        assert await store.leaf("s1") is None
        with pytest.raises(NotFoundError):
            async with store.transaction() as transaction:
                transaction.set_leaf("s1", "zz")


async def test_revision_follows_record_and_leaf(run: Run) -> None:
    async with run() as store:
        key = "agent:main:main"
        async with store.transaction() as transaction:
            transaction.put_session(record())
        assert await store.revision(key) == SessionRevision(1, "s1", None)
        await write(store, entry("a"))
        assert await store.revision(key) == SessionRevision(1, "s1", "a")
        async with store.transaction() as transaction:
            transaction.put_session(record(label="x"))
            transaction.set_leaf("s1", None)
        assert await store.revision(key) == SessionRevision(2, "s1", None)
        async with store.transaction() as transaction:
            transaction.delete_session(key)
        assert await store.revision(key) is None


async def test_append_taken_entry_id_raises_conflict(run: Run) -> None:
    async with run() as store:
        await write(store, entry("a"))
        with pytest.raises(ConflictError):
            await write(store, entry("b", "a"), entry("a", "b"))
        assert [one.id for one in await store.entries("s1")] == ["a"]
        assert await store.leaf("s1") == "a"


async def test_open_transcript_again_changes_nothing(run: Run) -> None:
    async with run() as store:
        await write(store, entry("a"))
        async with store.transaction() as transaction:
            transaction.open_transcript(TranscriptHeader("s1", "main", 9_999, "/elsewhere"))
        assert await store.header("s1") == HEADER
        assert await store.leaf("s1") == "a"


async def test_header_keeps_parent_session(run: Run) -> None:
    async with run() as store:
        header = TranscriptHeader("s2", "ops", 1_234, "/x", parent_session="s1")
        async with store.transaction() as transaction:
            transaction.open_transcript(header)
        assert await store.header("s2") == header


async def test_archived_transcript_can_be_read(run: Run) -> None:
    async with run() as store:
        await write(store, entry("a"))
        async with store.transaction() as transaction:
            transaction.archive("s1", "reset", 5_000)
        assert [one.id for one in await store.entries("s1")] == ["a"]


async def test_put_session_stale_version_raises_conflict(run: Run) -> None:
    async with run() as store:
        async with store.transaction() as transaction:
            transaction.put_session(record(n=1), if_version=0)
        async with store.transaction() as transaction:
            transaction.put_session(record(n=2), if_version=1)
        for stale in (0, 1, 3):
            with pytest.raises(ConflictError):
                async with store.transaction() as transaction:
                    transaction.put_session(record(n=3), if_version=stale)
        async with store.transaction() as transaction:
            transaction.put_session(record(n=4))
        found = await store.session("agent:main:main")
        assert found is not None and found.data["n"] == 4 and found.version == 3


async def test_put_session_two_writers_of_one_version_one_wins(run: Run) -> None:
    async with run() as store:
        outcomes = []

        async def one(n: int) -> None:
            try:
                async with store.transaction() as transaction:
                    transaction.put_session(record(n=n), if_version=0)
                outcomes.append("won")
            except ConflictError:
                outcomes.append("lost")

        async with asyncio.TaskGroup() as group:
            for n in range(5):
                group.create_task(one(n))
        assert sorted(outcomes) == ["lost"] * 4 + ["won"]


async def test_deleted_session_is_gone_and_key_is_free(run: Run) -> None:
    async with run() as store:
        async with store.transaction() as transaction:
            transaction.put_session(record(n=1))
        async with store.transaction() as transaction:
            transaction.delete_session("agent:main:main")
            transaction.delete_session("agent:main:never")
        assert await store.session("agent:main:main") is None
        assert list(await store.sessions()) == []
        async with store.transaction() as transaction:
            transaction.put_session(record(n=2), if_version=0)
        found = await store.session("agent:main:main")
        assert found is not None and found.version == 1


async def test_put_session_with_same_skills_keeps_them(run: Run) -> None:
    skills = {"prompt": "a list", "version": 1}
    async with run() as store:
        for version in range(3):
            async with store.transaction() as transaction:
                transaction.put_session(
                    record(n=version, skillsSnapshot=skills),
                    if_version=version,
                    has_same_skills=version > 0,
                )
        found = await store.session("agent:main:main")
        assert found is not None and found.data["skillsSnapshot"] == skills
        async with store.transaction() as transaction:
            transaction.put_session(record(n=3))
        found = await store.session("agent:main:main")
        assert found is not None and "skillsSnapshot" not in found.data


async def test_sessions_are_listed_newest_first(run: Run) -> None:
    async with run() as store:
        async with store.transaction() as transaction:
            for n, key in enumerate(["agent:main:a", "agent:ops:b", "agent:main:c"]):
                transaction.put_session(record(key, 10 + n))
        keys = [found.key for found in await store.sessions()]
        assert keys == ["agent:main:c", "agent:ops:b", "agent:main:a"]
        assert [found.key for found in await store.sessions(agent="main", limit=1)] == keys[:1]
        assert [found.key for found in await store.sessions(since_ms=11)] == keys[:2]


async def test_sessions_are_found_by_search_and_fields(run: Run) -> None:
    async with run() as store:
        async with store.transaction() as transaction:
            transaction.put_session(record("agent:main:a", 10, label="Tax % return", spawnedBy="x"))
            transaction.put_session(
                replace(record("agent:main:b", 11, subject="garden"), session_id="s2")
            )
            transaction.put_session(record("agent:ops:c", 12, label=7, spawnedBy="x"))

        async def keys(**asked: Any) -> list[str]:
            return [found.key for found in await store.sessions(**asked)]

        assert await keys(session_id="s2") == ["agent:main:b"]
        assert await keys(search="TAX %") == ["agent:main:a"]
        assert await keys(search="GARD") == ["agent:main:b"]
        assert await keys(search="ops:c") == ["agent:ops:c"]
        assert await keys(search="S2") == ["agent:main:b"]
        assert await keys(search="' OR 1=1 --") == []
        assert await keys(where={"spawnedBy": "x"}) == ["agent:ops:c", "agent:main:a"]
        assert await keys(where={"spawnedBy": "x"}, limit=1) == ["agent:ops:c"]
        assert await keys(where={"label": "Tax % return"}, agent="ops") == []
        bare = await store.sessions(bare=True)
        assert [(one.key, one.data) for one in bare][:1] == [("agent:ops:c", {})]
        assert await store.count_sessions() == 3
        assert await store.count_sessions(agent="main") == 2
        assert await store.count_sessions(agent="nobody") == 0


async def test_records_are_stored_by_kind_and_id(run: Run) -> None:
    async with run() as store:
        async with store.transaction() as transaction:
            transaction.put_record("job", "2", {"b": 2})
            transaction.put_record("job", "1", {"a": 1})
            transaction.put_record("pairing", "1", {"c": 3})
        async with store.transaction() as transaction:
            transaction.put_record("job", "1", {"a": "new"})
            transaction.delete_record("pairing", "1")
        assert await store.records("job") == {"1": {"a": "new"}, "2": {"b": 2}}
        assert list(await store.records("job")) == ["1", "2"]
        assert await store.record("pairing", "1") is None


async def test_store_scopes_are_isolated(run: Run) -> None:
    async with run() as store:
        ann = store.scoped(Principal("acme", "ann"))
        bob = store.scoped(Principal("acme", "bob"))
        for n, scope in enumerate((store, ann, bob)):
            async with scope.transaction() as transaction:
                transaction.put_session(record(n=n))
                transaction.open_transcript(HEADER)
                transaction.append("s1", entry("a", text=str(n)))
                transaction.put_record("job", "1", {"n": n})
        async with ann.transaction() as transaction:
            transaction.delete_session("agent:main:main")
        assert await ann.session("agent:main:main") is None
        for n, scope in ((0, store), (2, bob)):
            found = await scope.session("agent:main:main")
            assert found is not None and found.data["n"] == n
            assert await scope.record("job", "1") == {"n": n}
            assert (await scope.entries("s1"))[0].data["message"]["content"] == str(n)
            assert len(await scope.sessions()) == 1


async def test_reply_outcome_and_outbox_records_commit_together(run: Run) -> None:
    async with run() as store:
        chat = Address("telegram", "42")
        await write(store, entry("a"))
        row = (await store.journal.accept("k", Inbound("m1", chat, "ann", "hi"), at_ms=1)).record

        async def answer(lease: Lease, reply: TranscriptEntry) -> None:
            async with store.transaction() as transaction:
                transaction.append("s1", reply)
                transaction.settle([row.id], lease, "answered", at_ms=2, reply=reply.id)
                transaction.enqueue(OutboxRecord("p1", row.id, chat, "ho", 2, 3))

        async with store.lease("session:k") as lease:
            async with store.transaction() as transaction:
                transaction.mark_running([row.id], lease, run=row.id)
            with pytest.raises(ConflictError):  # the transcript refuses: nothing was answered
                await answer(lease, entry("a"))
            assert [one.state for one in await store.journal.inbox_records()] == ["running"]
            with pytest.raises(LeaseLostError):  # the journal refuses: nothing was said
                await answer(replace(lease, token=lease.token - 1), entry("b", "a"))
            assert [one.id for one in await store.entries("s1")] == ["a"]
            assert await store.leaf("s1") == "a"
            assert list(await store.journal.outbox_records()) == []
            await answer(lease, entry("b", "a"))
        assert [one.state for one in await store.journal.inbox_records()] == ["answered"]
        assert [one.id for one in await store.journal.outbox_records()] == ["p1"]
        assert await store.leaf("s1") == "b"


async def test_lease_has_one_holder_and_growing_tokens(run: Run) -> None:
    async with run() as store:
        await check_that_one_holds(store.lease)


async def test_lease_of_cancelled_holder_is_released(run: Run) -> None:
    async with run() as store:
        await check_cancelled_holder_releases(store.lease, 5)


async def test_values_read_are_copies(run: Run) -> None:
    async with run() as store:
        data = {"list": [1]}
        async with store.transaction() as transaction:
            transaction.put_record("job", "1", data)
        data["list"].append(2)
        assert await store.record("job", "1") == {"list": [1]}


async def test_store_unstorable_text_round_trips(run: Run) -> None:
    async with run() as store:
        odd = 'nul \0, quote ", break \u2028, emoji 😀, half \ud83d'
        await write(store, entry("a", text=odd))
        (found,) = await store.entries("s1")
        assert found.data["message"]["content"] == odd.replace("\ud83d", "\ufffd")
        async with store.transaction() as transaction:
            transaction.put_record("job", "1", {"x": float("nan"), "y": [float("inf"), 1.5]})
        assert await store.record("job", "1") == {"x": None, "y": [None, 1.5]}


async def test_usage_records_keep_order_and_are_found_by_time_and_session(run: Run) -> None:
    calls = [
        UsageRecord("r1", "agent:main:a", "p", "m", 10, Usage(1, 2, 3, 4, 5, 0.5)),
        UsageRecord("r1", "agent:main:a", "p", "m", 11, error="busy \ud800"),
        UsageRecord("r2", "agent:main:b", "q", "n", 20),
    ]
    async with run() as store:
        async with store.transaction() as transaction:
            transaction.add_usage(*calls)
        assert [call.run for call in await store.usage_records()] == ["r1", "r1", "r2"]
        assert (await store.usage_records())[0] == calls[0]
        assert await store.usage_records(since_ms=12) == calls[2:]
        assert [call.at_ms for call in await store.usage_records(session="agent:main:a")] == [
            10,
            11,
        ]
        assert await store.scoped(Principal("other", "one")).usage_records() == []


async def test_usage_totals_are_grouped_and_outlive_pruned_calls(run: Run) -> None:
    day_ms, first = 86_400_000, 1_760_000_000_000
    calls = [
        UsageRecord("r1", "agent:a:x", "p", "m", first, Usage(1, 2, 3, 4, 5, 0.5), agent="a",
                    session_id="s1", channel="irc", purpose="turn"),
        UsageRecord("r1", "agent:a:x", "p", "m", first, error="busy", agent="a",
                    session_id="s1", channel="irc", purpose="turn"),
        UsageRecord("r2", "agent:b:y", "p", "n", first + 3 * day_ms, Usage(10), agent="b",
                    session_id="s2", purpose="imported", is_priced=False),
    ]  # fmt: skip
    async with run() as store:
        assert await store.usage_totals() == await store.usage_totals(("day",)) == []
        async with store.transaction() as transaction:
            transaction.add_usage(*calls)
        before = await store.usage_totals(USAGE_FIELDS)
        assert [total.group["session_id"] for total in before] == ["s1", "s2"]
        assert before[0].usage == calls[0].usage
        assert (before[0].calls, before[0].failed, before[0].unpriced) == (2, 1, 0)
        assert (before[1].calls, before[1].failed, before[1].unpriced) == (1, 0, 1)
        by_agent = await store.usage_totals(("agent",), UsageFilter(agent="b"))
        assert [total.group for total in by_agent] == [{"agent": "b"}]
        assert (await store.usage_totals(wanted=UsageFilter(session="agent:a:x")))[0].calls == 2
        last = local_day(first + 3 * day_ms)
        assert (await store.usage_totals((), UsageFilter(first_day=last)))[0].usage.input == 10
        assert (await store.usage_totals((), UsageFilter(last_day=last)))[0].calls == 3
        assert await store.prune_usage(first + 1) == 2
        assert await store.usage_records() == calls[2:]
        assert await store.usage_totals(USAGE_FIELDS) == before


async def test_usage_record_gets_the_conversation_of_its_session(run: Run) -> None:
    async with run() as store:
        async with store.transaction() as transaction:
            transaction.put_session(SessionRecord("agent:main:a", "main", "s-now", 1))
        async with store.transaction() as transaction:
            transaction.add_usage(UsageRecord("r", "agent:main:a", "p", "m", 1, Usage(1)))
        assert [call.session_id for call in await store.usage_records()] == ["s-now"]


async def test_audit_entries_are_chained_in_order_and_filtered(run: Run) -> None:
    async with run() as store:
        entries = [
            AuditEntry(10, "decision", "main", "agent:main:main", "exec", {"action": "allow"}),
            AuditEntry(20, "execution", "main", "agent:main:main", "exec", {"exitCode": 0}),
            AuditEntry(30, "config", "work", data={"changed": ["a"]}),
        ]
        async with store.transaction() as transaction:
            transaction.add_audit(*entries[:2])
        async with store.transaction() as transaction:
            transaction.add_audit(entries[2])
            transaction.add_audit()
        found = await store.audit_entries()
        assert [entry.seq for entry in found] == [1, 2, 3]
        assert [replace(e, seq=0, previous="", hash="") for e in found] == entries
        assert found[0].previous == "" and found[1].previous == found[0].hash
        assert [e.seq for e in await store.audit_entries(since_ms=20)] == [2, 3]
        assert [e.seq for e in await store.audit_entries(agent="main", limit=1)] == [2]
        assert [e.seq for e in await store.audit_entries(tool="exec", kind="decision")] == [1]
        assert [e.seq for e in await store.audit_entries(before_seq=3, limit=1)] == [2]
        assert await store.audit_entries(before_seq=1) == []
        last = AuditAnchor(3, found[2].hash)
        assert await store.audit_anchor() == last == (await store.check_audit()).anchor
        assert (await store.audit_anchor(1)).hash == found[0].hash
        assert (await store.audit_anchor(9)).seq == 0
        assert (await store.check_audit(file=last)).problem == ""
        assert "cut off" in (await store.check_audit(file=AuditAnchor(4, "x"))).problem
        assert "rewritten" in (await store.check_audit(file=AuditAnchor(2, "x"))).problem


async def test_audit_of_failed_transaction_is_not_stored(run: Run) -> None:
    async with run() as store:

        async def fail() -> None:
            async with store.transaction() as transaction:
                transaction.add_audit(AuditEntry(1, "config"))
                transaction.append("absent", entry("a"))

        with pytest.raises(NotFoundError):
            await fail()
        assert await store.audit_entries() == []
        assert (await store.audit_anchor()).seq == 0


async def test_audit_log_of_another_principal_is_its_own(run: Run) -> None:
    async with run() as store:
        other = store.scoped(Principal("t", "u"))
        for each in (store, other):
            async with each.transaction() as transaction:
                transaction.add_audit(AuditEntry(1, "config"))
        one, two = [(await each.audit_entries())[0] for each in (store, other)]
        assert (one.seq, two.seq) == (1, 1) and one.hash != two.hash
        assert (await other.check_audit()).problem == ""


async def test_audit_entry_is_bounded_and_without_secrets(run: Run) -> None:
    key = "sk-" + "a1" * 20
    deep: dict[str, Any] = {"a": {"b": {"c": {"d": {"e": "x"}}}}}
    data = {"text": f"use {key} now", "long": "x" * 50_000, "odd": "\ud800\0", "deep": deep}
    async with run() as store:
        async with store.transaction() as transaction:
            transaction.add_audit(AuditEntry(1, "decision", "main", f"k {key}", "exec", data))
        (found,) = await store.audit_entries()
        assert key not in str(found) and len(str(found.data)) < 2_000
        assert found.data["text"] == "use *** now"
        assert (await store.check_audit()).problem == ""
        huge = {f"field {number}": "y" * 500 for number in range(40)}
        async with store.transaction() as transaction:
            transaction.add_audit(AuditEntry(1, "decision", data=huge))
        assert len(str((await store.audit_entries())[1].data)) < 5_000


SLOT = SlotRecord("job-1", 60_000, run_id="r1", started_ms=60_005)


async def claim(store: Store, *slots: SlotRecord) -> None:
    async with store.transaction() as transaction:
        for one in slots:
            transaction.claim_slot(one)


async def test_slot_claimed_twice_conflicts_and_changes_nothing(run: Run) -> None:
    async with run() as store:
        await claim(store, SLOT)

        async def claim_again() -> None:
            async with store.transaction() as transaction:
                transaction.put_record("n", "1", {})
                transaction.claim_slot(replace(SLOT, run_id="r2"))

        with pytest.raises(ConflictError, match="job-1"):
            await claim_again()
        assert await store.record("n", "1") is None
        assert [one.run_id for one in await store.slots(job="job-1")] == ["r1"]
        await claim(store, replace(SLOT, job="job-2"), replace(SLOT, slot_ms=60_001))
        assert len(await store.slots()) == 3


async def test_slot_ends_once_with_every_field(run: Run) -> None:
    ended = replace(
        SLOT, trigger="catch-up", state="error", reason="it failed", attempt=2, ended_ms=61_000,
        session_key="agent:main:cron:job-1", session_id="s", summary="é😀", model="m",
        provider="p", usage=Usage(1, 2, 3, 4), next_run_ms=120_000, count=3, until_ms=62_000,
    )  # fmt: skip
    async with run() as store:
        await claim(store, SLOT)
        assert [one.is_running for one in await store.slots("running")] == [True]
        async with store.transaction() as transaction:
            transaction.end_slot(ended)
        found = await store.slot("job-1", 60_000)
        assert found == replace(ended, place=found.place if found else 0)
        assert list(await store.slots("running")) == []

        async def end_again() -> None:
            async with store.transaction() as transaction:
                transaction.end_slot(replace(ended, state="ok"))

        with pytest.raises(ConflictError):
            await end_again()
        assert (await store.slots("error", "ok"))[0].state == "error"


async def test_slots_are_listed_in_order_and_limited_to_newest(run: Run) -> None:
    async with run() as store:
        assert await store.slot("job-1", 1) is None
        await claim(store, *(replace(SLOT, slot_ms=n, state="skipped") for n in (5, 3, 9)))
        assert [one.slot_ms for one in await store.slots()] == [5, 3, 9]
        assert [one.slot_ms for one in await store.slots(limit=2)] == [3, 9]


async def test_prune_slots_keeps_newest_and_running_ones(run: Run) -> None:
    async with run() as store:
        old = [replace(SLOT, slot_ms=n, state="ok", ended_ms=n) for n in range(10)]
        other = replace(SLOT, job="job-2", state="ok", ended_ms=1)
        gone = [replace(SLOT, job="gone", slot_ms=n, state="ok", ended_ms=n) for n in (7, 8)]
        await claim(store, replace(SLOT, slot_ms=-1), *old, other, gone[0])
        await claim(store, replace(gone[0], job="removed"), *gone[1:])
        async with store.transaction() as transaction:
            transaction.prune_slots(5, 8, ["job-1", "job-2"])
        left = [(one.job, one.slot_ms) for one in await store.slots()]
        assert left == [("job-1", -1), ("job-1", 8), ("job-1", 9), ("job-2", 60_000), ("gone", 8)]
