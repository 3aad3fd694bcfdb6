"""An approval service on any journal, for tests of runs and of the service itself."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from homarus.agent.approval_ports import ApprovalPorts, ApproverIdentity
from homarus.agent.approval_service import ApprovalService, ApprovalServices
from homarus.agent.run_approvals import RunApprovals
from homarus.core.bus import Bus
from homarus.core.clock import Clock
from homarus.core.lanes import Lanes
from homarus.core.message import Address, Inbound
from homarus.store.audit import AuditLog
from homarus.store.journal import InboxRecord, Journal, OutboxRecord
from homarus.testing.clock import FakeClock
from homarus.testing.memory_store import MemoryStore

OWNER = ApproverIdentity("owner")
INBOUND = Inbound("7", Address("test", "42"), "ann", "please do")
DAY_S = 86_400.0


def spawn(work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
    """Start a task on the running loop; the service or the loop of a test cancels it."""
    return asyncio.Task(work, name=name)


def reachable_ports() -> ApprovalPorts:
    """Return ports with an approver who is always connected."""
    ports = ApprovalPorts()
    ports.reach.append(lambda _record: True)
    return ports


def build_notice(record: InboxRecord, name: str, text: str) -> Sequence[OutboxRecord]:
    return [OutboxRecord(name, name, Address("test", "42"), text, 0, 10)]


def make_approval_service(
    journal: Journal,
    clock: Clock | None = None,
    *,
    ports: ApprovalPorts | None = None,
    bus: Bus | None = None,
    resume_run: Callable[[str, str], None] = lambda _session, _run: None,
    expiry_s: float = DAY_S,
    **changes: Any,
) -> ApprovalService:
    """Return a service; without `ports`, no approver can be reached."""
    services: dict[str, Any] = {
        "journal": journal,
        "bus": bus or Bus(),
        "clock": clock or FakeClock(),
        "spawn": spawn,
        "ports": ports or ApprovalPorts(),
        "build_notice": build_notice,
        "on_enqueued": lambda: None,
        "resume_run": resume_run,
        "get_expiry_s": lambda: expiry_s,
        "audit": AuditLog(),
    }
    return ApprovalService(ApprovalServices(**services | changes))


def make_run_approvals(service: ApprovalService | None = None, **changes: Any) -> RunApprovals:
    """Return the approvals of a run that was not suspended before."""
    given: dict[str, Any] = {
        "agent": "main",
        "session": "agent:main:main",
        "runs": ("r1",),
        "inbound": INBOUND,
        "place": Lanes()._open("main"),
        "resumed_calls": (),
        "check_lease": lambda _transaction: None,
        "wait_s": 10.0,
    }
    return RunApprovals(service or make_approval_service(MemoryStore().journal), **given | changes)
