"""The Store seam: sessions, transcripts, small records and the journal, changed in atomic units.

What every store promises (tests/contract/test_store.py):

- reads see every unit whose `commit()` block ended before they began;
- a unit is applied whole or not at all, and is on disk when its block ends;
- transcript entries keep the order they were appended in and are never rewritten;
- `put_session` with `if_version` raises Conflict when the stored version is another (0: there
  is none yet); every put makes the version one larger, a change made from outside at least one;
- two holders never have the same lease at once, and a later token is a larger number;
- a full disk raises DiskFull and loses nothing that was committed before.

Rows carry a principal from day one: `scoped` narrows a store to one.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import field
from typing import Literal, Protocol

from homarus.core.message import Json, Usage
from homarus.core.principal import Principal
from homarus.core.value import dataclass
from homarus.store.journal import Journal, JournalUnit, Lease

SEARCHED = ("label", "displayName", "subject")


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """A session as it is stored.

    `data` is the whole entry as the original keeps it in `sessions.json` (`sessionId`,
    `updatedAt`, settings, token counts …), fields we do not know included. `version` is 0 until
    it is stored, then grows with every change of the record or, from outside, of its transcript.
    """

    key: str
    agent: str
    session_id: str
    updated_ms: int
    data: Mapping[str, Json] = field(default_factory=dict)
    version: int = 0


@dataclass(frozen=True, slots=True)
class Header:
    """A transcript's first line."""

    session_id: str
    agent: str
    at_ms: int
    cwd: str = ""
    version: int = 3
    parent_session: str | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a transcript: a node of a tree.

    `data` holds the fields beside `type`, `id`, `parentId` and `timestamp`. `seq` is the place
    in the order of appending, from 1; 0 until it is stored.
    """

    id: str
    parent: str | None
    type: str
    at_ms: int
    data: Mapping[str, Json]
    seq: int = 0


@dataclass(frozen=True, slots=True)
class Spent:
    """One call of a model: what it used and cost; `error` when it failed."""

    run: str
    session: str
    provider: str
    model: str
    at_ms: int
    usage: Usage = Usage()
    error: str = ""


class Unit(JournalUnit, Protocol):
    """Writes that happen together. Nothing is visible before the `commit()` block ends."""

    def put_session(self, record: SessionRecord, *, if_version: int | None = None) -> None: ...

    def delete_session(self, key: str) -> None: ...

    def open_transcript(self, header: Header) -> None:
        """Make the transcript if there is none with this session id."""
        ...

    def append(self, session_id: str, *entries: Entry) -> None:
        """Add entries in order; the last one becomes the leaf.

        NotFound when the transcript is not open, Conflict when an id is taken.
        """
        ...

    def set_leaf(self, session_id: str, entry_id: str | None) -> None:
        """Branch: the next entry will follow this one (None: the root). NotFound if it is not."""
        ...

    def archive(self, session_id: str, reason: Literal["reset", "deleted"], at_ms: int) -> None:
        """Its session moved on: it stays readable, and its file, if any, is put aside."""
        ...

    def add_spent(self, *calls: Spent) -> None:
        """Note calls of models. They are never changed."""
        ...

    def put_record(self, kind: str, id: str, data: Mapping[str, Json]) -> None: ...  # noqa: A002 - the word for it

    def delete_record(self, kind: str, id: str) -> None: ...  # noqa: A002 - the word for it


class Store(Protocol):
    """What must survive a restart. See the module's promises."""

    @property
    def journal(self) -> Journal:
        """Accepted messages and pending replies; units of the store write it too."""
        ...

    def commit(self) -> AbstractAsyncContextManager[Unit]: ...

    def lease(self, name: str) -> AbstractAsyncContextManager[Lease]: ...

    def scoped(self, principal: Principal) -> "Store": ...

    async def session(self, key: str) -> SessionRecord | None: ...

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
        """Newest first.

        `search` stands somewhere in the key, the session id, or the fields `SEARCHED` of the
        data, whatever its case; `where` names fields of the data and what they must be. `bare`
        records have no data: for who wants to know which there are, of thousands.
        """
        ...

    async def count_sessions(self, *, agent: str | None = None) -> int: ...

    async def spent(self, *, since_ms: int = 0, session: str | None = None) -> Sequence[Spent]:
        """The calls of models since then, in the order they were noted."""
        ...

    async def header(self, session_id: str) -> Header | None: ...

    async def entries(
        self, session_id: str, *, after: int = 0, limit: int | None = None, newest: bool = False
    ) -> Sequence[Entry]:
        """Entries with `seq` above `after`, in order.

        With `limit`, that many of them: the first, or the `newest`.
        """
        ...

    async def leaf(self, session_id: str) -> str | None:
        """The entry the next one will follow."""
        ...

    async def record(self, kind: str, id: str) -> Mapping[str, Json] | None: ...  # noqa: A002 - the word for it

    async def records(self, kind: str) -> Mapping[str, Mapping[str, Json]]: ...

    async def close(self) -> None: ...
