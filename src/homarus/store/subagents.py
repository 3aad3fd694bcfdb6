"""Records of sub-agents: who asked for one, for what, and how it ended.

A record is stored under the key of the child's session, in the transaction that creates the session
and accepts the task as its first message. It ends in the transaction that settles the message which
it `awaits`: the status changes once, from running to one of the others.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Final, Literal, TypeAlias, get_args

from homarus.core.errors import CorruptDataError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Address, Inbound, Json
from homarus.core.session_keys import agent_id_of
from homarus.store.base import Store, Transaction
from homarus.store.journal_codec import decode_inbound, encode_inbound

SubagentStatus: TypeAlias = Literal[
    "running", "done", "failed", "timed_out", "interrupted", "unknown", "killed"
]
SUBAGENT_STATUSES: Final = get_args(SubagentStatus)
Cleanup: TypeAlias = Literal["delete", "keep"]
KIND: Final = "subagent"
_NO_ORIGIN: Final = Inbound("", Address("", ""), "", "")


@dataclass(frozen=True, slots=True)
class SubagentRecord:
    """A sub-agent, running or ended.

    `run_id` names it for clients, and stays. `awaits` is the id of the message whose outcome ends
    it: its task, a message that steered it, or the result of a sub-agent of its own. `origin` is
    the message that its parent was answering, without its text: the sender, the authority and the
    chat that the child works for. `display_key` is the requester's key as people see it.
    `timeout_s` 0 means no deadline. `is_sandboxed`: it must run in a sandbox. `archive_ms` is when
    its session is archived, 0 before it has ended. `unannounced` says why its end was not announced
    to its parent. `total_tokens` includes what was read from a cache.
    """

    child_key: str
    run_id: str
    requester_key: str
    task: str
    created_ms: int
    awaits: str = ""
    origin: Inbound = _NO_ORIGIN
    display_key: str = ""
    cleanup: Cleanup = "keep"
    label: str = ""
    model: str = ""
    thinking: str = ""
    timeout_s: float = 0.0
    depth: int = 1
    is_sandboxed: bool = False
    session_id: str = ""
    status: SubagentStatus = "running"
    error: str = ""
    result: str = ""
    started_ms: int = 0
    ended_ms: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: int = 0
    cost: float = 0.0
    archive_ms: int = 0
    unannounced: str = ""
    extra: Mapping[str, Json] = field(default_factory=dict)

    @property
    def is_active(self) -> bool:
        """Whether it has not ended."""
        return self.status == "running"

    @property
    def agent(self) -> str:
        """The agent that works on the task."""
        return agent_id_of(self.child_key)

    @property
    def name(self) -> str:
        """What people call it: its label, else its task."""
        return self.label or self.task

    @property
    def runtime_ms(self) -> int:
        """How long it took; 0 while it runs."""
        return max(0, self.ended_ms - (self.started_ms or self.created_ms)) if self.ended_ms else 0


# Stored keys by attribute; those of OpenClaw's `subagents/runs.json` where it has one.
_KEYS: Final = {
    "child_key": "childSessionKey",
    "run_id": "runId",
    "requester_key": "requesterSessionKey",
    "task": "task",
    "created_ms": "createdAt",
    "awaits": "awaits",
    "display_key": "requesterDisplayKey",
    "cleanup": "cleanup",
    "label": "label",
    "model": "model",
    "thinking": "thinking",
    "timeout_s": "runTimeoutSeconds",
    "depth": "depth",
    "is_sandboxed": "sandboxed",
    "session_id": "sessionId",
    "status": "status",
    "error": "error",
    "result": "result",
    "started_ms": "startedAt",
    "ended_ms": "endedAt",
    "input_tokens": "inputTokens",
    "output_tokens": "outputTokens",
    "total_tokens": "totalTokens",
    "cost": "cost",
    "archive_ms": "archiveAtMs",
    "unannounced": "suppressAnnounceReason",
    "extra": "extra",
}
_NAMES: Final = {key: name for name, key in _KEYS.items()}


def encode_subagent(record: SubagentRecord) -> dict[str, Json]:
    """Return the record as JSON, without what has no value."""
    data = {key: getattr(record, name) for name, key in _KEYS.items()}
    return {
        **{key: value for key, value in data.items() if value not in ("", 0, None, {}, False)},
        "origin": encode_inbound(record.origin),
    }


def decode_subagent(data: Mapping[str, Json]) -> SubagentRecord:
    """Return the record that `encode_subagent` wrote. Raises CorruptDataError for another value."""
    try:
        fields: dict[str, Any] = {
            _NAMES[key]: value for key, value in data.items() if key in _NAMES
        }
        record = SubagentRecord(**fields, origin=decode_inbound(data["origin"]))
    except (KeyError, TypeError) as exc:
        raise CorruptDataError(
            "the record of a sub-agent cannot be read", fix="run `homarus doctor`"
        ) from exc
    if record.status not in SUBAGENT_STATUSES:
        raise CorruptDataError(f"a sub-agent has the unknown status {record.status!r}")
    return record


async def find_subagent(store: Store, child_key: str) -> SubagentRecord | None:
    """Return the record of a child's session."""
    data = await store.record(KIND, child_key)
    return decode_subagent(data) if data is not None else None


async def list_subagents(
    store: Store, *, requester: str | None = None, active_only: bool = False
) -> list[SubagentRecord]:
    """Return the records that are stored, oldest first; of one requester, or only the active."""
    found = [decode_subagent(data) for data in (await store.records(KIND)).values()]
    wanted = [
        one
        for one in found
        if requester in (None, one.requester_key) and (one.is_active or not active_only)
    ]
    return sorted(wanted, key=lambda one: (one.created_ms, one.child_key))


def put_subagent(transaction: Transaction, record: SubagentRecord) -> None:
    """Store a record in a transaction."""
    transaction.put_record(KIND, record.child_key, encode_subagent(record))


def delete_subagent(transaction: Transaction, child_key: str) -> None:
    """Delete a record in a transaction."""
    transaction.delete_record(KIND, child_key)
