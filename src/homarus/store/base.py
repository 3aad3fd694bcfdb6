"""The Store seam: sessions, transcripts, small records and the journal, changed in transactions.

What every store guarantees (tests/contract/test_store.py):

- reads see every transaction whose `transaction()` block ended before they began;
- a transaction is applied completely or not at all, and is on disk when its block ends;
- transcript entries keep the order they were appended in and are never rewritten;
- `put_session` with `if_version` raises ConflictError when the stored version differs (0: there
  is none yet); every put adds one to the version, a change made from outside at least one;
- two holders never have the same lease at once, and a later token is a larger number;
- a slot of a job is claimed once, and ends once: ConflictError otherwise;
- entries of the audit log are chained by their hashes, in the order of their transactions;
- a full disk raises DiskFullError and loses nothing that was committed before.

Every row carries a principal; `scoped` narrows a store to one of them.
"""

from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from dataclasses import field
from typing import TYPE_CHECKING, Final, Literal, Protocol

from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json, Usage
from homarus.core.principal import Principal
from homarus.store.audit import AuditAnchor, AuditCheck, AuditEntry
from homarus.store.journal import Journal, JournalTransaction, Lease
from homarus.store.slots import SlotRecord, SlotState

if TYPE_CHECKING:
    from homarus.store.usage import UsageField, UsageFilter, UsageTotal

SEARCHED = ("label", "displayName", "subject", "origin.label")
# The list of skills in a session's entry. It is large, and changes hardly ever.
SKILLS_FIELD: Final = "skillsSnapshot"


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """A session as it is stored.

    `data` is the complete entry as OpenClaw keeps it in `sessions.json` (`sessionId`,
    `updatedAt`, settings, token counts …), including fields we do not know. `version` is 0 until
    it is stored, then grows with every change of the record or, from outside, of its transcript.
    """

    key: str
    agent: str
    session_id: str
    updated_ms: int
    data: Mapping[str, Json] = field(default_factory=dict)
    version: int = 0


@dataclass(frozen=True, slots=True)
class SessionRevision:
    """What shows whether a session changed: its version, its transcript, and the leaf of that."""

    version: int
    session_id: str
    leaf: str | None


@dataclass(frozen=True, slots=True)
class TranscriptHeader:
    """The first line of a transcript."""

    session_id: str
    agent: str
    at_ms: int
    cwd: str = ""
    version: int = 3
    parent_session: str | None = None


@dataclass(frozen=True, slots=True)
class TranscriptEntry:
    """One entry of a transcript, a node of its tree.

    `data` holds the fields other than `type`, `id`, `parentId` and `timestamp`. `seq` is the
    position in the order of appending, from 1; 0 until it is stored.
    """

    id: str
    parent: str | None
    type: str
    at_ms: int
    data: Mapping[str, Json]
    seq: int = 0


@dataclass(frozen=True, slots=True)
class UsageRecord:
    """The tokens and cost of one model call; `error` is set when the call failed.

    `purpose` is what the call was for, `channel` where its message came from. The store fills in
    the id of the conversation that the session has, if `session_id` is "". `is_priced` is False
    for tokens whose price is not known.
    """

    run: str
    session: str
    provider: str
    model: str
    at_ms: int
    usage: Usage = Usage()
    error: str = ""
    agent: str = ""
    session_id: str = ""
    channel: str = ""
    purpose: str = ""
    is_priced: bool = True


class Transaction(JournalTransaction, Protocol):
    """Writes that are committed together, when the `transaction()` block ends."""

    def put_session(
        self,
        record: SessionRecord,
        *,
        if_version: int | None = None,
        has_same_skills: bool = False,
    ) -> None:
        """Write a session; `has_same_skills`: its list of skills is the one of that version.

        Then the list need not be written again.
        """
        ...

    def delete_session(self, key: str) -> None: ...

    def open_transcript(self, header: TranscriptHeader) -> None:
        """Create the transcript unless there is one with this session id."""
        ...

    def append(self, session_id: str, *entries: TranscriptEntry) -> None:
        """Append entries in order; the last one becomes the leaf.

        Raises NotFoundError when the transcript is not open, ConflictError when an id is taken.
        """
        ...

    def set_leaf(self, session_id: str, entry_id: str | None) -> None:
        """Make the next entry follow this one (None: the root).

        Raises NotFoundError if it is absent.
        """
        ...

    def archive(self, session_id: str, reason: Literal["reset", "deleted"], at_ms: int) -> None:
        """Archive the transcript: it stays readable, and its file, if any, is renamed."""
        ...

    def add_usage(self, *calls: UsageRecord) -> None:
        """Record the usage of model calls. These records are never changed."""
        ...

    def add_audit(self, *entries: AuditEntry) -> None:
        """Append entries to the audit log. They are never changed or deleted."""
        ...

    def put_record(self, kind: str, id: str, data: Mapping[str, Json]) -> None: ...  # noqa: A002 - the word for it

    def delete_record(self, kind: str, id: str) -> None: ...  # noqa: A002 - the word for it

    def claim_slot(self, record: SlotRecord) -> None:
        """Insert a slot: one that runs, or one that was skipped.

        Raises ConflictError when the job has a slot at this time already.
        """
        ...

    def end_slot(self, record: SlotRecord) -> None:
        """Write the end of a running slot. Raises ConflictError unless it is running."""
        ...

    def prune_slots(self, max_per_job: int, before_ms: int, jobs: Collection[str]) -> None:
        """Delete ended slots: of each job all but the newest, and those that ended before a time.

        The newest slot of each of these jobs stays.
        """
        ...


class Store(Protocol):
    """Durable state. The module's docstring says what every store guarantees."""

    @property
    def journal(self) -> Journal:
        """The inbox and the outbox; transactions of the store can write to them too."""
        ...

    def transaction(self) -> AbstractAsyncContextManager[Transaction]: ...

    def lease(self, name: str) -> AbstractAsyncContextManager[Lease]: ...

    def scoped(self, principal: Principal) -> "Store": ...

    async def session(self, key: str) -> SessionRecord | None: ...

    async def revision(self, key: str) -> SessionRevision | None:
        """Return which revision of a session is stored; None when there is no such session."""
        ...

    async def sessions(
        self,
        *,
        agent: str | None = None,
        since_ms: int = 0,
        limit: int | None = None,
        session_id: str | None = None,
        search: str = "",
        where: Mapping[str, str] | None = None,
        bare: bool = False,
    ) -> Sequence[SessionRecord]:
        """Return session records, newest first.

        `search` is a part of the key, the session id, or the fields `SEARCHED` of the data, in any
        case; `where` maps fields of the data to required values. `bare` records have no data, which
        makes listing thousands of them cheap.
        """
        ...

    async def count_sessions(self, *, agent: str | None = None) -> int: ...

    async def usage_records(
        self, *, since_ms: int = 0, session: str | None = None
    ) -> Sequence[UsageRecord]:
        """Return usage records since a time, in the order they were added."""
        ...

    async def usage_totals(
        self, by: Sequence["UsageField"] = (), wanted: "UsageFilter | None" = None
    ) -> Sequence["UsageTotal"]:
        """Return sums of usage records by these fields, ordered by them; without, one of all.

        They include records that were pruned, and answers in transcripts of other programs.
        """
        ...

    async def prune_usage(self, before_ms: int) -> int:
        """Delete usage records that are older, and return how many; totals stay the same."""
        ...

    async def audit_entries(
        self,
        *,
        since_ms: int = 0,
        agent: str | None = None,
        tool: str | None = None,
        kind: str | None = None,
        before_seq: int | None = None,
        limit: int | None = None,
    ) -> Sequence[AuditEntry]:
        """Return the newest entries of the audit log that match, oldest first.

        With `before_seq`, of those with a lower number.
        """
        ...

    async def audit_anchor(self, seq: int = 0) -> AuditAnchor:
        """Return number and hash of an entry of the audit log, of the last one for 0."""
        ...

    async def check_audit(self, **anchors: AuditAnchor) -> AuditCheck:
        """Check that no entry of the audit log was changed, removed or moved.

        `anchors` are rows that the log must have, by the name of the place that they come from.
        """
        ...

    async def header(self, session_id: str) -> TranscriptHeader | None: ...

    async def entries(
        self, session_id: str, *, after: int = 0, limit: int | None = None, newest: bool = False
    ) -> Sequence[TranscriptEntry]:
        """Return entries with `seq` above `after`, in order.

        With `limit`, return that many of them: the first, or the `newest`.
        """
        ...

    async def leaf(self, session_id: str) -> str | None:
        """Return the id of the entry that the next one will follow."""
        ...

    def probe_disk(self) -> "Future[None]":
        """Start a small durable write, for a health check; the future has its outcome.

        It may never be done: a dead disk can block a write without an error.
        """
        ...

    async def record(self, kind: str, id: str) -> Mapping[str, Json] | None: ...  # noqa: A002 - the word for it

    async def records(self, kind: str) -> Mapping[str, Mapping[str, Json]]: ...

    async def slot(self, job: str, slot_ms: int) -> SlotRecord | None: ...

    async def slots(
        self, *states: SlotState, job: str | None = None, limit: int | None = None
    ) -> Sequence[SlotRecord]:
        """Return slots of these states or of all, in the order they were claimed.

        With `limit`, the newest ones.
        """
        ...

    async def close(self) -> None: ...
