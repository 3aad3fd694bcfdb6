"""The Journal seam: accepted messages, the state of their runs, and replies that must be sent.

An accepted message is an inbox record, and ends in exactly one recorded outcome:

    accepted → running ⇄ suspended → answered | silent | reported | parked

A suspended one waits for an approval: no run works on it until the approval is answered, expires
or is cancelled.

A reply that a channel must send is an outbox record:

    pending → sending → sent | unknown | dead

What every journal guarantees (tests/contract/test_journal.py):

- one message id of one channel and account is accepted once; the same again counts as a
  duplicate, and the same id with another text is stored in addition, parked;
- a transaction is applied completely or not at all, and is on disk when its block ends;
- a record that was started under a lease changes only under that lease, or under a later one that
  started it again: anything else raises LeaseLostError and changes nothing;
- a settled record is never started or settled again, except a parked one that a person retries;
- inbox records are returned in the order they were accepted, outbox records of a chat in the
  order they were enqueued, chat records in the order they were put;
- a pending approval is answered, expires or is cancelled exactly once; an allowed one is used at
  most once, before it expires, for the digest it was given for, in the transaction that records
  the start of its call.

`run` names the run that answers: the id of its first message. Messages that joined the run later
(steered, collected) carry the same `run`.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Literal, Protocol, TypeAlias

from homarus.core.fast_dataclass import dataclass
from homarus.core.message import NO_EXTRAS, Address, Extras, Inbound, Json
from homarus.store.approvals import ApprovalRecord, ApprovalState
from homarus.store.chat_records import ChatRecord, ChatRecordKind
from homarus.store.traces import BacklogCount, DeliveryAttempt, TraceRecord

InboxState: TypeAlias = Literal[
    "accepted", "running", "suspended", "answered", "silent", "reported", "parked"
]
SettledState: TypeAlias = Literal["answered", "silent", "reported", "parked"]
OutboxState: TypeAlias = Literal["pending", "sending", "sent", "unknown", "dead"]

OPEN: tuple[InboxState, ...] = ("accepted", "running")
UNSETTLED: tuple[InboxState, ...] = (*OPEN, "suspended")
PREVIEW_CHARS = 120
# Listed with the started calls of a run: blocks of an answer are in the outbox, and the answer is
# not in the transcript. A run that resumes with it must announce that its answer starts again.
UNFINISHED_ANSWER = "homarus:unfinished-answer"


@dataclass(frozen=True, slots=True)
class Lease:
    """The exclusive right to work on something. Writes made under it carry `token`."""

    name: str
    token: int


@dataclass(frozen=True, slots=True)
class InboxRecord:
    """An accepted inbound message and its state.

    `inbound` is stored until the record is settled (a parked one keeps it); `preview` is the start
    of its text, in one line. `entry` is its question in the transcript of `session_id`, "" before
    there is one; `reply` is the entry that answered. `attempts` counts how often it was started,
    except by attempts that a clean stop of the program cancelled, or that were suspended.
    """

    id: str
    session: str
    channel: str
    account: str
    message_id: str
    sender: str
    preview: str
    at_ms: int
    state: InboxState = "accepted"
    inbound: Inbound | None = None
    run: str = ""
    session_id: str = ""
    entry: str = ""
    reply: str = ""
    why: str = ""
    attempts: int = 0
    duplicates: int = 0
    settled_ms: int = 0
    place: int = 0

    @property
    def was_started(self) -> bool:
        """Return whether a run or a command has worked on it since a person last retried it."""
        return self.state in ("running", "suspended") or self.attempts > 0


@dataclass(frozen=True, slots=True)
class Acceptance:
    """The result of accepting a message.

    `new`: it was stored. `duplicate`: `record` is the one accepted before. `conflict`: the id was
    used with another text; `record` holds this message, parked.
    """

    kind: Literal["new", "duplicate", "conflict"]
    record: InboxRecord


@dataclass(frozen=True, slots=True)
class Cursor:
    """How far a channel has read, stored in the transaction that accepts what it read."""

    name: str
    data: Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class OutboxRecord:
    """One message for a channel to send. `id` is its idempotency key; parts have one each.

    `receipt` is the service's own id for it, once it is known. `tries` are the newest attempts that
    ended, `started_ms` is when the last one started.
    """

    id: str
    run: str
    address: Address
    text: str
    at_ms: int
    expires_ms: int
    state: OutboxState = "pending"
    receipt: str = ""
    why: str = ""
    attempts: int = 0
    not_before_ms: int = 0
    place: int = 0
    extras: Extras = NO_EXTRAS
    tries: tuple[DeliveryAttempt, ...] = ()
    started_ms: int = 0


class BuildReply(Protocol):
    """Split a reply to the sender of a message into outbox records, numbered from `first`.

    Returns none where the chat gets no reply.
    """

    def __call__(
        self, inbound: Inbound, run: str, text: str, first: int = 0, extras: Extras = NO_EXTRAS
    ) -> Sequence[OutboxRecord]: ...


class JournalTransaction(Protocol):
    """Journal writes that commit together.

    Raises LeaseLostError when a lease does not cover one.
    """

    def accept(self, session: str, inbound: Inbound, *, at_ms: int) -> None:
        """Store a message as `Journal.accept` does, together with the rest of the transaction.

        Raises ConflictError when the message or its run id was accepted before.
        """
        ...

    def mark_running(
        self,
        ids: Sequence[str],
        lease: Lease,
        *,
        run: str,
        session_id: str = "",
        entry: str = "",
    ) -> None:
        """Mark records as running under this lease. Without `entry` they keep the one they have.

        Suspended ones too.
        """
        ...

    def check_lease(self, ids: Sequence[str], lease: Lease) -> None:
        """Change nothing, but fail the transaction unless these are running under this lease."""
        ...

    def cancel_attempt(self, ids: Sequence[str], lease: Lease) -> None:
        """Take back the count of the attempt under this lease, once: it was stopped cleanly.

        The records stay running; those that are not running under this lease are ignored.
        """
        ...

    def suspend(self, ids: Sequence[str], lease: Lease) -> None:
        """Mark running records as suspended; the attempt under this lease does not count."""
        ...

    def add_approval(self, record: ApprovalRecord) -> None:
        """Store a pending approval. Raises ConflictError when its id is in use."""
        ...

    def use_approval(self, id: str, digest: str, *, at_ms: int) -> None:  # noqa: A002 - the word for it
        """Mark an allowed approval as used, in the transaction that records the call's start.

        Raises ConflictError unless it is allowed, not used, not expired, and for this digest.
        """
        ...

    def cancel_approvals(self, runs: Sequence[str], *, at_ms: int) -> None:
        """Cancel the pending approvals of these runs."""
        ...

    def settle(
        self,
        ids: Sequence[str],
        lease: Lease,
        state: SettledState,
        *,
        at_ms: int,
        why: str = "",
        reply: str = "",
    ) -> None:
        """Record the one outcome of these messages. Accepted ones may be settled too.

        The calls of their run are deleted with the last of its messages that may be retried, as a
        parked one may: a retry must know which calls were started.
        """
        ...

    def call_started(self, run: str, lease: Lease, call_id: str) -> None:
        """Record that a tool call is about to start; from now on its outcome may be unknown."""
        ...

    def call_ended(self, run: str, lease: Lease, call_id: str) -> None:
        """Delete a started call: its result is in the transcript. Unknown calls are ignored."""
        ...

    def enqueue(self, *records: OutboxRecord) -> None:
        """Append records to the outbox, in this order. One whose id is there already is ignored."""
        ...

    def save_cursor(self, cursor: Cursor) -> None:
        """Save how far a channel has read when the last thing it read is not accepted."""
        ...

    def put_chat_records(self, *records: ChatRecord) -> None:
        """Write what is remembered of chats; a record without data is deleted."""
        ...

    def send_started(self, record_id: str, lease: Lease, *, at_ms: int = 0) -> None:
        """Change pending or sending to sending: from now on it may have been delivered."""
        ...

    def send_ended(
        self,
        record_id: str,
        lease: Lease,
        state: OutboxState,
        *,
        receipt: str = "",
        thread: str = "",
        why: str = "",
        not_before_ms: int = 0,
        tries: Sequence[DeliveryAttempt] = (),
    ) -> None:
        """Record the result of a sending record; `pending` with `not_before_ms` is a retry.

        `tries` replaces the attempts of the record, unless there are none; `thread` is the thread
        that the send created, and becomes that of the record's address.
        """
        ...

    def add_trace(self, record: TraceRecord) -> None:
        """Store the trace of an attempt at a run; a second one of the attempt replaces it."""
        ...


class Journal(Protocol):
    """The inbox and outbox. The module's docstring says what every journal guarantees."""

    async def accept(
        self,
        session: str,
        inbound: Inbound,
        *,
        at_ms: int,
        cursor: Cursor | None = None,
        chat_records: Sequence[ChatRecord] = (),
    ) -> Acceptance:
        """Store a message durably, before this returns.

        `inbound.run_id` becomes the record's id; without it, the record gets a new one. The cursor
        and the chat records are written in the same transaction, also for a duplicate.
        """
        ...

    async def set_message(self, id: str, inbound: Inbound) -> bool:  # noqa: A002 - the word for it
        """Store the message of an accepted record again, with the files that it has by now.

        Returns False and changes nothing when a run was started on it, or when it is settled.
        """
        ...

    async def chat_records(
        self, kind: ChatRecordKind, chat: str | None = None
    ) -> Sequence[ChatRecord]:
        """Return what is remembered of a chat, or of all, in the order it was put."""
        ...

    async def cursor(self, name: str) -> Mapping[str, Json] | None:
        """Return how far a channel has read."""
        ...

    def transaction(self) -> AbstractAsyncContextManager[JournalTransaction]: ...

    def lease(self, name: str) -> AbstractAsyncContextManager[Lease]: ...

    async def inbox_record(self, id: str) -> InboxRecord | None: ...  # noqa: A002 - the word for it

    async def inbox_records(
        self, *states: InboxState, session: str | None = None, limit: int | None = None
    ) -> Sequence[InboxRecord]:
        """Return records of these states or of all, oldest first; with `limit`, the newest ones."""
        ...

    async def open_calls(self, run: str) -> frozenset[str]:
        """Return the tool calls of a run that were started and have no result."""
        ...

    async def outbox_record(self, id: str) -> OutboxRecord | None: ...  # noqa: A002 - the word for it

    async def outbox_records(
        self,
        *states: OutboxState,
        channel: str | None = None,
        run: str | None = None,
        limit: int | None = None,
    ) -> Sequence[OutboxRecord]:
        """Return outbox records of these states or of all, in order; with `limit`, the first.

        With `run`, those whose id starts with its name and a colon.
        """
        ...

    async def traces(
        self, *, run: str | None = None, session: str | None = None, limit: int | None = None
    ) -> Sequence[TraceRecord]:
        """Return the traces of a run, of a session or of all, oldest first; with `limit`, newest.

        A trace that cannot be read has no data.
        """
        ...

    async def backlog(self) -> Sequence[BacklogCount]:
        """Count what is not settled, not delivered or not answered, by state.

        That is accepted, running, suspended and parked messages, pending, sending, unknown and
        dead outbox records, and pending approvals.
        """
        ...

    async def approval(self, id: str) -> ApprovalRecord | None: ...  # noqa: A002 - the word for it

    async def approvals(
        self, *states: ApprovalState, session: str | None = None, limit: int | None = None
    ) -> Sequence[ApprovalRecord]:
        """Return approvals of these states or of all, oldest first; with `limit`, the newest."""
        ...

    async def find_approval(self, run: str, call_id: str) -> ApprovalRecord | None:
        """Return the newest approval of a call of a run."""
        ...

    async def resolve_approval(
        self,
        id: str,  # noqa: A002 - the word for it
        state: ApprovalState,
        *,
        decision: str = "",
        by: str = "",
        at_ms: int,
        outbox: Sequence[OutboxRecord] = (),
    ) -> ApprovalRecord | None:
        """Answer, expire or cancel a pending approval, and enqueue records with it.

        Returns None and changes nothing when it is not pending, when an answer comes after the
        expiry, or when it is expired before that time.
        """
        ...

    async def retry(self, id: str, *, at_ms: int) -> bool:  # noqa: A002 - the word for it
        """Make a parked message accepted, or a dead or unknown record pending.

        Else return False.
        """
        ...

    async def discard(self, id: str, *, at_ms: int, why: str) -> bool:  # noqa: A002 - the word for it
        """Report a parked message, or delete a dead or unknown outbox record; else return False."""
        ...

    async def shift_times(self, step_ms: int) -> None:
        """Correct the times of unsent outbox records after the wall clock was set by `step_ms`.

        After a step forwards they expire later, after one backwards they are retried earlier: no
        record is given up or delayed by a step. A record enqueued since is affected only so too.
        """
        ...

    async def prune(self, before_ms: int, *, approvals_before_ms: int = 0) -> int:
        """Delete what was settled or sent before a time, except parked records; and old traces.

        Approvals have a time of their own. Old chat records go too, and all but the newest
        `MAX_CHAT_RECORDS`. Return the count without the traces and the chat records.
        """
        ...
