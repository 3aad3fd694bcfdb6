"""The approval service: one answer wins, others are refused with a reason; expiry; terminal."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from homarus.agent.approval_ports import ApprovalPorts, ApproverIdentity, requester_address
from homarus.agent.approval_service import ApprovalService
from homarus.core.bus import Bus
from homarus.core.errors import (
    AmbiguousApprovalError,
    ApprovalExpiredError,
    ApprovalResolvedError,
    ForeignApprovalError,
    RunSuspendedError,
    UnknownApprovalError,
    UserError,
)
from homarus.core.event import ApprovalRequested, ApprovalResolved
from homarus.core.message import Address
from homarus.policy.approvals import (
    ApprovalDecision,
    ApprovalQuestion,
    is_allowed_by_fallback,
)
from homarus.policy.exec_settings import ExecSettings
from homarus.policy.tool_call import ExecEvaluation
from homarus.store.approvals import ApprovalRecord
from homarus.store.journal import OutboxRecord
from homarus.testing.clock import FakeClock
from homarus.testing.memory_store import MemoryStore
from tests.approval_harness import (
    OWNER,
    make_approval_service,
    make_run_approvals,
    reachable_ports,
)
from tests.waiting import settle

QUESTION = ApprovalQuestion("exec", "Run it?", "ls", "digest-1", wire={"command": "ls"})


def make(**changes: Any) -> ApprovalService:
    return make_approval_service(MemoryStore().journal, **{"ports": reachable_ports()} | changes)


async def ask(service: ApprovalService, name: str = "") -> ApprovalRecord:
    return await service.request_external(
        {"command": "ls"},
        agent="main",
        session="s",
        requester="client",
        digest="d",
        record_id=name,
        timeout_ms=60_000,
    )


async def test_answer_is_found_by_prefix_and_refused_the_second_time() -> None:
    service = make()
    record = await ask(service)
    resolved = await service.resolve(f" {record.id[:8].upper()} ", "allow-once", OWNER)
    assert (resolved.state, resolved.decision, resolved.resolved_by) == (
        "allowed", "allow-once", "owner",
    )  # fmt: skip
    with pytest.raises(ApprovalResolvedError, match="already answered by owner: allow-once"):
        await service.resolve(record.id[:8], "deny", OWNER)
    assert not await service.list_pending()


async def test_answers_that_are_wrong_are_refused_with_a_reason() -> None:
    service = make()
    await ask(service, "abcd-1")
    await ask(service, "abcd-2")
    refused: list[tuple[type[Exception], str, Any, ApproverIdentity]] = [
        (UnknownApprovalError, "nope-1", "deny", OWNER),
        (UnknownApprovalError, "abc", "deny", OWNER),
        (UnknownApprovalError, "", "deny", OWNER),
        (AmbiguousApprovalError, "abcd", "deny", OWNER),
        (UserError, "abcd-1", "yes", OWNER),
        (ForeignApprovalError, "abcd-1", "deny", ApproverIdentity("x", lambda _one: False)),
    ]
    for error, name, decision, by in refused:
        with pytest.raises(error):
            await service.resolve(name, decision, by)
    with pytest.raises(UserError, match="exists already"):
        await ask(service, "abcd-1")
    assert len(await service.list_pending()) == 2


async def test_expired_approval_is_refused_and_the_waiter_gets_it() -> None:
    clock = FakeClock()
    service = make(clock=clock)
    record = await ask(service)
    await clock.advance(59)
    assert (await service.wait(record.id, 0)).state == "pending"
    await clock.advance(1)
    assert (await service.wait(record.id)).state == "expired"
    with pytest.raises(ApprovalExpiredError):
        await service.resolve(record.id, "allow-once", OWNER)
    assert clock.sleepers == 0, "no timer runs without an approval"


async def test_answer_at_the_moment_of_expiry_is_too_late() -> None:
    clock = FakeClock()
    service = make(clock=clock)
    record = await ask(service)
    clock.step(60)  # setting the wall clock expires nothing
    assert await service.list_pending() == [record]
    clock._elapsed_s += 60  # time passes, and the timer has not noticed it
    with pytest.raises(ApprovalExpiredError):
        await service.resolve(record.id, "allow-once", OWNER)


async def test_request_and_answer_are_published() -> None:
    bus = Bus()
    service = make(bus=bus)
    with bus.subscribe() as events:
        record = await ask(service)
        await service.resolve(record.id, "deny", OWNER)
        events.close()
        requested, resolved = [event.data async for event in events]
    assert isinstance(requested, ApprovalRequested) and requested.request == {"command": "ls"}
    assert resolved == ApprovalResolved(record.id, "denied", "deny", "owner")


async def test_prompts_and_notices_are_saved_with_the_record() -> None:
    def build(what: str) -> Callable[[ApprovalRecord], list[OutboxRecord]]:
        return lambda record: [
            OutboxRecord(f"{record.id}:{what}", "", Address("test", "1"), record.state, 0, 10)
        ]

    ports, store = ApprovalPorts(prompts=[build("ask")], notices=[build("end")]), MemoryStore()
    service = make_approval_service(store.journal, ports=ports)
    approvals = make_run_approvals(service, wait_s=0)
    with pytest.raises(RunSuspendedError):
        await approvals.request("c1", QUESTION)
    (record,) = await service.list_pending()
    assert requester_address(record) == Address("test", "42")
    await service.resolve(record.id, "deny", OWNER)
    sent = [(one.id.partition(":")[2], one.text) for one in await store.journal.outbox_records()]
    assert sent == [("ask", "pending"), ("end", "denied")]


@pytest.mark.parametrize(
    ("fallback", "matches", "is_allowed"),
    [("deny", ("safe",), False), ("allowlist", ("safe",), True), ("allowlist", ("",), False),
     ("full", ("",), True)],
)  # fmt: skip
async def test_unreachable_approver_is_answered_at_once(
    fallback: Any, matches: tuple[str, ...], *, is_allowed: bool
) -> None:
    found = ExecEvaluation(is_parsed=True, matches=matches)
    allows = is_allowed_by_fallback(ExecSettings(ask_fallback=fallback), found)
    approvals = make_run_approvals(make(ports=ApprovalPorts()))
    answer = await approvals.request("c1", replace(QUESTION, is_allowed_by_fallback=allows))
    assert answer.is_allowed == is_allowed
    assert is_allowed or "no approver can be reached" in answer.why
    assert not is_allowed_by_fallback(ExecSettings(ask_fallback="full"), None)


async def test_changed_call_is_refused_and_its_approval_cancelled() -> None:
    service = make()
    with pytest.raises(RunSuspendedError):
        await make_run_approvals(service, wait_s=0).request("c1", QUESTION)
    (record,) = await service.list_pending()
    resumed = make_run_approvals(service, resumed_calls=("c1",))
    answer = await resumed.request("c1", replace(QUESTION, digest="digest-2"))
    assert not answer.is_allowed and "is not what the approval" in answer.why
    assert resumed.pop_allowed("c1") is None
    with pytest.raises(ApprovalResolvedError, match="cancelled"):
        await service.resolve(record.id, "allow-once", OWNER)


async def test_id_of_a_call_that_is_used_again_asks_again() -> None:
    service = make()
    with pytest.raises(RunSuspendedError):
        await make_run_approvals(service, wait_s=0).request("c1", QUESTION)
    (record,) = await service.list_pending()
    await service.resolve(record.id, "allow-once", OWNER)
    resumed = make_run_approvals(service, resumed_calls=("c1",), wait_s=0)
    assert (await resumed.request("c1", QUESTION)).approval_id == record.id
    with pytest.raises(RunSuspendedError):
        await resumed.request("c1", QUESTION)
    assert len(await service.list_pending()) == 1


@pytest.mark.parametrize("error", [None, OSError("disk full")])
async def test_allow_always_is_saved_by_the_run_that_uses_it(error: Exception | None) -> None:
    saved: list[bool] = []

    def save() -> None:
        saved.append(True)
        if error:
            raise error

    service = make()
    question = replace(QUESTION, always="ls", allow_always=save)
    with pytest.raises(RunSuspendedError):
        await make_run_approvals(service, wait_s=0).request("c1", question)
    (record,) = await service.list_pending()
    await service.resolve(record.id, "allow-always", OWNER)
    assert not saved
    answer = await make_run_approvals(service, resumed_calls=("c1",)).request("c1", question)
    assert answer.decision == "allow-always" and saved == [True]


async def test_allow_always_is_refused_where_it_is_not_offered() -> None:
    service = make()
    with pytest.raises(RunSuspendedError):
        await make_run_approvals(service, wait_s=0).request("c1", QUESTION)
    (record,) = await service.list_pending()
    with pytest.raises(UserError, match="use allow-once or deny"):
        await service.resolve(record.id, "allow-always", OWNER)


class Person:
    """A person at the terminal, who answers when the test says so."""

    identity = ApproverIdentity("the person at the terminal")

    def __init__(self, answer: Callable[[], Awaitable[ApprovalDecision | None]]) -> None:
        self.asked, self.ended, self._answer = list[str](), list[str](), answer

    def is_reachable(self, record: ApprovalRecord) -> bool:
        return True

    async def ask(self, record: ApprovalRecord) -> ApprovalDecision | None:
        self.asked.append(record.id)
        try:
            return await self._answer()
        finally:
            self.ended.append(record.id)


async def test_person_at_the_terminal_answers_a_waiting_call() -> None:
    async def allow() -> ApprovalDecision | None:
        return "allow-once"

    person, ports = Person(allow), ApprovalPorts()
    remove = ports.register_approver(person)
    answer = await make_run_approvals(make(ports=ports)).request("c1", QUESTION)
    assert answer.is_allowed and answer.by == "the person at the terminal"
    assert person.asked == [answer.approval_id]
    remove()
    assert not (await make_run_approvals(make(ports=ports)).request("c1", QUESTION)).is_allowed


async def test_question_at_the_terminal_ends_with_another_answer() -> None:
    clock = FakeClock()

    async def wait() -> ApprovalDecision | None:
        await clock.sleep(1_000)
        return "allow-once"

    person, ports = Person(wait), ApprovalPorts()
    ports.register_approver(person)
    service = make(ports=ports, clock=clock)
    record = await ask(service)
    await settle()
    await service.resolve(record.id, "deny", OWNER)
    await settle()
    assert person.asked == person.ended == [record.id]
    assert (await service.get(record.id)).decision == "deny"


async def test_pending_approvals_are_asked_again_after_a_restart() -> None:
    store, clock = MemoryStore(), FakeClock()
    before = make_approval_service(store.journal, clock, ports=reachable_ports())
    record = await ask(before)
    before.close()

    async def deny() -> ApprovalDecision | None:
        return "deny"

    ports = ApprovalPorts()
    ports.register_approver(Person(deny))
    after = make_approval_service(store.journal, clock, ports=ports)
    await after.start()
    assert (await after.wait(record.id)).decision == "deny"
