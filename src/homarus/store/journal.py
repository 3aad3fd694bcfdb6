"""The Journal seam: what was accepted, what is being done about it, and what is still owed.

An accepted message is a row, and ends in exactly one recorded outcome:

    accepted → running → answered | silent | reported | parked

A reply that a channel must carry is a parcel:

    pending → sending → sent | unknown | dead

What every journal promises (tests/contract/test_journal.py):

- one message id of one channel and account is accepted once; the same again counts as a
  duplicate, and the same id with other words is kept beside it, parked;
- a unit is applied whole or not at all, and is on disk when its block ends;
- a row that was started under a lease changes only under that lease, or under a later one that
  started it again: anything else raises LeaseLost and changes nothing;
- a settled row is never started or settled again, except a parked one that a person retries;
- rows come back in the order they were accepted, parcels of a chat in the order they were posted.

`run` names the run that answers: the id of its first message. What came later and was taken along
(steered, collected) carries the same `run`.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Literal, Protocol, TypeAlias

from homarus.core.message import NO_EXTRAS, Address, Extras, Inbound, Json
from homarus.core.value import dataclass

State: TypeAlias = Literal["accepted", "running", "answered", "silent", "reported", "parked"]
Settled: TypeAlias = Literal["answered", "silent", "reported", "parked"]
ParcelState: TypeAlias = Literal["pending", "sending", "sent", "unknown", "dead"]

OPEN: tuple[State, ...] = ("accepted", "running")
PREVIEW_CHARS = 120


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to work on something, alone. Writes made under it carry `token`."""

    name: str
    token: int


@dataclass(frozen=True, slots=True)
class Accepted:
    """A message that is ours to answer.

    `inbound` is kept until the row is settled (a parked one keeps it); `preview` is the start of
    its text, in one line. `entry` is its question in the transcript of `session_id`, "" before
    there is one; `reply` is the entry that answered. `attempts` counts how often it was started.
    """

    id: str
    session: str
    channel: str
    account: str
    message_id: str
    sender: str
    preview: str
    at_ms: int
    state: State = "accepted"
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


@dataclass(frozen=True, slots=True)
class Acceptance:
    """What became of a message that was offered.

    `new`: it is ours now. `duplicate`: `row` is the one accepted before. `conflict`: the id was
    used for other words; `row` holds these, parked.
    """

    kind: Literal["new", "duplicate", "conflict"]
    row: Accepted


@dataclass(frozen=True, slots=True)
class Cursor:
    """How far a channel has read, stored in the commit that accepts what it read."""

    name: str
    data: Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class Parcel:
    """One message for a channel to carry. `id` is its idempotency key; parts have one each.

    `receipt` is the service's own id for it, once it is known.
    """

    id: str
    run: str
    address: Address
    text: str
    at_ms: int
    expires_ms: int
    state: ParcelState = "pending"
    receipt: str = ""
    why: str = ""
    attempts: int = 0
    not_before_ms: int = 0
    place: int = 0
    extras: Extras = NO_EXTRAS


class BuildReply(Protocol):
    """Split a reply to the sender of a message into outbox records, numbered from `first`.

    Returns none where the chat gets no reply.
    """

    def __call__(
        self, inbound: Inbound, run: str, text: str, first: int = 0, extras: Extras = NO_EXTRAS
    ) -> Sequence[Parcel]: ...


class JournalUnit(Protocol):
    """Journal writes that happen together. LeaseLost when one of them is not ours to make."""

    def start(
        self,
        ids: Sequence[str],
        lease: Lease,
        *,
        run: str,
        session_id: str = "",
        entry: str = "",
    ) -> None:
        """They are worked on now, under this lease. Without `entry` the one they have stays."""
        ...

    def hold(self, ids: Sequence[str], lease: Lease) -> None:
        """Change nothing, but fail the unit unless these are running under this lease."""
        ...

    def settle(
        self,
        ids: Sequence[str],
        lease: Lease,
        state: Settled,
        *,
        at_ms: int,
        why: str = "",
        reply: str = "",
    ) -> None:
        """Their one outcome. Accepted rows may be settled too.

        The calls of their run go with the last of its messages that may be tried again, as a
        parked one may: a retry must know what was begun.
        """
        ...

    def call_started(self, run: str, lease: Lease, call_id: str) -> None:
        """A tool is about to begin; from now on its outcome may be unknown."""
        ...

    def call_ended(self, run: str, lease: Lease, call_id: str) -> None:
        """Its result stands in the transcript. A call that was never started is no mistake."""
        ...

    def post(self, *parcels: Parcel) -> None:
        """Hand parcels to the outbox, in this order. One whose id is there already is left."""
        ...

    def read_to(self, cursor: Cursor) -> None:
        """A channel has read so far, and what it read last is not ours to answer."""
        ...

    def send_started(self, parcel_id: str, lease: Lease) -> None:
        """Pending or sending → sending: from now on it may have arrived."""
        ...

    def send_ended(
        self,
        parcel_id: str,
        lease: Lease,
        state: ParcelState,
        *,
        receipt: str = "",
        why: str = "",
        not_before_ms: int = 0,
    ) -> None:
        """What became of it; `pending` with `not_before_ms` is another try. Only from sending."""
        ...


class Journal(Protocol):
    """See the module's promises."""

    async def accept(
        self, session: str, inbound: Inbound, *, at_ms: int, cursor: Cursor | None = None
    ) -> Acceptance:
        """Take a message in; on disk when this returns.

        `inbound.run_id` becomes the row's id, else it gets one of its own.
        """
        ...

    async def cursor(self, name: str) -> Mapping[str, Json] | None:
        """How far a channel had read."""
        ...

    def commit(self) -> AbstractAsyncContextManager[JournalUnit]: ...

    def lease(self, name: str) -> AbstractAsyncContextManager[Lease]: ...

    async def accepted(self, id: str) -> Accepted | None: ...  # noqa: A002 - the word for it

    async def rows(
        self, *states: State, session: str | None = None, limit: int | None = None
    ) -> Sequence[Accepted]:
        """Oldest first, of these states or of all. With `limit`, the newest that many."""
        ...

    async def calls(self, run: str) -> frozenset[str]:
        """The tool calls of a run that were started and have no result."""
        ...

    async def parcel(self, id: str) -> Parcel | None: ...  # noqa: A002 - the word for it

    async def parcels(
        self, *states: ParcelState, channel: str | None = None, limit: int | None = None
    ) -> Sequence[Parcel]:
        """In the order they were posted, of these states or of all. With `limit`, the first."""
        ...

    async def retry(self, id: str, *, at_ms: int) -> bool:  # noqa: A002 - the word for it
        """A parked message is accepted again, a dead or unknown parcel pending; else False."""
        ...

    async def discard(self, id: str, *, at_ms: int, why: str) -> bool:  # noqa: A002 - the word for it
        """A parked message is reported, a dead or unknown parcel leaves the list; else False."""
        ...

    async def prune(self, before_ms: int) -> int:
        """Forget what was settled or sent before; how much that was. Parked rows stay."""
        ...
