"""System notices (OpenClaw's system events): lines before the next message of a session.

A notice that a job, a webhook or a client leaves is stored as a record, in the transaction of what
caused it, and deleted in the transaction that saves the message which it was prepended to. Others,
such as the end of a background command, are lost when the process ends.

A run claims the notices of its session before it saves its message, so that no other message gets
them. Those of a heartbeat stay stored, under the name of its run, until the heartbeat ends: one
that a person's message preempts, or that fails, gives them back.
"""

import logging
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Final, Literal, TypeAlias, cast, get_args
from uuid import uuid4

from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json
from homarus.core.text import one_line
from homarus.store.base import Store, Transaction
from homarus.store.journal import UNSETTLED

log = logging.getLogger(__name__)

MAX_NOTICES = 20  # of one session
MAX_SESSIONS = 200  # sessions
MAX_NOTICE_CHARS = 2_000
RECORD_KIND: Final = "notice"
WakeMode: TypeAlias = Literal["now", "next-heartbeat", "next-message"]
_WAKE_MODES: Final[frozenset[str]] = frozenset(get_args(WakeMode))


@dataclass(frozen=True, slots=True)
class Notice:
    """One line for the next message of a session.

    `id` names its record, "" if it has none. `source` is what left it: `cron:<job id>`,
    `hook:<name>`, `chat`, `exec`, "" for others. With the wake mode `now`, a heartbeat takes
    it up at once; with `next-message`, it alone starts none.
    """

    text: str
    at_ms: int
    id: str = ""
    source: str = ""
    wake_mode: WakeMode = "next-heartbeat"


@dataclass(frozen=True, slots=True)
class PlannedNotice:
    """A notice that a transaction stores: call `write` in it, and `publish` once it is committed.

    What the queue has no room for is deleted in the same transaction. A repetition of the last
    pending notice is neither stored nor added.
    """

    notices: "Notices"
    session_key: str
    notice: Notice
    is_repeated: bool = False

    def write(self, transaction: Transaction) -> None:
        """Store the notice."""
        if self.is_repeated:
            return
        transaction.put_record(RECORD_KIND, self.notice.id, _encode(self.session_key, self.notice))
        surplus = (old.id for old in self.notices.find_surplus(self.session_key))
        for id_ in (*surplus, *self.notices.take_dropped()):
            transaction.delete_record(RECORD_KIND, id_)

    def publish(self) -> None:
        """Add the stored notice to the queue of its session."""
        if not self.is_repeated:
            self.notices.enqueue(self.session_key, self.notice)


@dataclass(frozen=True, slots=True)
class ClaimedNotices:
    """The notices that one run prepends to its message.

    `dropped` are the records of notices that had no room, and that are deleted with the first save.
    """

    session_key: str
    notices: tuple[Notice, ...] = ()
    dropped: tuple[str, ...] = ()

    def delete(self, transaction: Transaction) -> None:
        """Delete their records: the message that has them is saved in the same transaction."""
        for id_ in (*self.dropped, *(notice.id for notice in self._stored())):
            transaction.delete_record(RECORD_KIND, id_)

    def hold(self, transaction: Transaction, run: str) -> None:
        """Store that a heartbeat's run has them: they are pending again when it is settled."""
        for id_ in self.dropped:
            transaction.delete_record(RECORD_KIND, id_)
        for notice in self._stored():
            data = _encode(self.session_key, notice)
            transaction.put_record(RECORD_KIND, notice.id, {**data, "run": run})

    def _stored(self) -> Iterator[Notice]:
        return (notice for notice in self.notices if notice.id)


NO_NOTICES: Final = ClaimedNotices("")


class Notices:
    """Pending notices by session, bounded in number."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[str, deque[Notice]] = OrderedDict()
        self._held: dict[str, ClaimedNotices] = {}  # by the run of a heartbeat
        self._dropped: set[str] = set()  # records that the next transaction deletes

    def add(self, session_key: str, text: str, at_ms: int, source: str = "") -> None:
        """Add a notice that is not stored; a repetition of the last one is ignored."""
        self.enqueue(session_key, Notice(_one_line(text), at_ms, source=source))

    def plan(
        self,
        session_key: str,
        text: str,
        at_ms: int,
        *,
        source: str = "",
        wake_mode: WakeMode = "next-heartbeat",
    ) -> PlannedNotice:
        """Return a notice for the caller to store in a transaction of its own."""
        notice = Notice(_one_line(text), at_ms, str(uuid4()), source, wake_mode)
        pending = self.pending(session_key)
        is_repeated = bool(pending) and pending[-1].text == notice.text
        return PlannedNotice(self, session_key, notice, is_repeated)

    async def save(
        self,
        store: Store,
        session_key: str,
        text: str,
        at_ms: int,
        *,
        source: str = "",
        wake_mode: WakeMode = "next-heartbeat",
    ) -> None:
        """Store a notice in a transaction of its own, and add it."""
        planned = self.plan(session_key, text, at_ms, source=source, wake_mode=wake_mode)
        async with store.transaction() as transaction:
            planned.write(transaction)
        planned.publish()

    async def load(self, store: Store) -> None:
        """Add the notices that an earlier process stored, oldest first.

        Those of a heartbeat that has not ended stay with it.
        """
        found = sorted(
            (await store.records(RECORD_KIND)).items(), key=lambda item: int(item[1].get("at", 0))
        )
        open_runs = frozenset[str]()
        if any("run" in data for _, data in found):
            records = await store.journal.inbox_records(*UNSETTLED)
            open_runs = frozenset(record.id for record in records)
        for id_, data in found:
            key, notice, run = str(data.get("session")), _decode(id_, data), str(data.get("run"))
            if run in open_runs:
                held = self._held.get(run, ClaimedNotices(key))
                self._held[run] = ClaimedNotices(key, (*held.notices, notice))
            else:
                self.enqueue(key, notice)
        if self._dropped:
            async with store.transaction() as transaction:
                for id_ in self.take_dropped():
                    transaction.delete_record(RECORD_KIND, id_)

    def enqueue(self, session_key: str, notice: Notice) -> None:
        """Add a notice to the queue; one that is not stored and repeats the last is ignored.

        One is dropped if there is no room: several may have been stored at once.
        """
        waiting = self._waiting.setdefault(session_key, deque(maxlen=MAX_NOTICES))
        if notice.id or not waiting or waiting[-1].text != notice.text:
            if len(waiting) == MAX_NOTICES:
                (oldest,) = _least_important(waiting, 1)
                waiting.remove(oldest)
                self._drop(oldest, f"{session_key} has {MAX_NOTICES} notices")
            waiting.append(notice)
        self._waiting.move_to_end(session_key)
        while len(self._waiting) > MAX_SESSIONS:
            key, others = self._waiting.popitem(last=False)
            for other in others:
                self._drop(other, f"{MAX_SESSIONS} later sessions than {key} have notices")

    def _drop(self, notice: Notice, reason: str) -> None:
        if notice.id:
            log.warning("%s: that of %s is dropped", reason, notice.source or "a client")
            self._dropped.add(notice.id)

    def take_dropped(self) -> tuple[str, ...]:
        """Return the records of notices that had no room, for a transaction that deletes them."""
        taken = tuple(self._dropped)
        self._dropped.clear()
        return taken

    def find_surplus(self, session_key: str) -> tuple[Notice, ...]:
        """Return the stored notices that the next one pushes out of the queue."""
        waiting = self.pending(session_key)
        surplus = _least_important(waiting, max(0, len(waiting) - MAX_NOTICES + 1))
        return tuple(old for old in surplus if old.id)

    def sessions(self) -> tuple[str, ...]:
        """Return the sessions that have pending notices."""
        return tuple(self._waiting)

    def pending(self, session_key: str) -> tuple[Notice, ...]:
        """Return the notices of a session."""
        return tuple(self._waiting.get(session_key, ()))

    def may_wake(self, session_key: str) -> bool:
        """Return whether a session has notices that a heartbeat relays."""
        return any(one.wake_mode != "next-message" for one in self.pending(session_key))

    def claim(self, session_key: str) -> ClaimedNotices:
        """Return and remove the notices of a session, for a message that is about to be saved."""
        notices = tuple(self._waiting.pop(session_key, ()))
        return ClaimedNotices(session_key, notices, self.take_dropped())

    def restore(self, claimed: ClaimedNotices) -> None:
        """Add notices again, before newer ones: the message that claimed them was not saved."""
        newer = self.claim(claimed.session_key)
        self._dropped.update(claimed.dropped, newer.dropped)
        for notice in (*claimed.notices, *newer.notices):
            self.enqueue(claimed.session_key, notice)

    def set_held(self, run: str, claimed: ClaimedNotices) -> None:
        """Keep the notices that the run of a heartbeat has, until it ends."""
        if claimed.notices:
            self._held[run] = claimed

    def find_held(self, run: str) -> ClaimedNotices | None:
        """Return the notices that the run of a heartbeat has."""
        return self._held.get(run)

    def release(self, run: str) -> None:
        """Make the notices of a heartbeat pending again: it ends without having relayed them."""
        if claimed := self._held.pop(run, None):
            self.restore(claimed)

    async def release_settled(self, store: Store) -> None:
        """Release the notices of heartbeats that have ended without a run."""
        if self._held:
            records = await store.journal.inbox_records(*UNSETTLED)
            for run in self._held.keys() - {record.id for record in records}:
                self.release(run)

    def drop_held(self, run: str) -> None:
        """Forget the notices that the run of a heartbeat has had: it has ended."""
        self._held.pop(run, None)


def _least_important(waiting: Iterable[Notice], count: int) -> list[Notice]:
    """Return those to drop first: the oldest of a chat, whose reactions are many, then others."""
    return sorted(waiting, key=lambda notice: notice.wake_mode != "next-message")[:count]


def is_external(notice: Notice) -> bool:
    """Return whether an outside program or a person without rights wrote the text."""
    return notice.source.startswith(("hook:", "chat:"))


def prepend_notices(notices: tuple[Notice, ...], text: str) -> str:
    """Return a message after notices, each on a line with its time."""
    lines = [_line(notice) for notice in notices]
    if lines and text:
        lines.append("")
    return "\n".join([*lines, text] if text else lines)


def _one_line(text: str) -> str:
    """Return the text of a notice in one line, so that it cannot imitate a message."""
    return one_line(text, MAX_NOTICE_CHARS)


def _line(notice: Notice) -> str:
    at = datetime.fromtimestamp(notice.at_ms / 1000, UTC).astimezone()
    return f"System: [{at:%Y-%m-%d %H:%M:%S %Z}] {notice.text}"


def _encode(session_key: str, notice: Notice) -> dict[str, Json]:
    return {
        "session": session_key,
        "text": notice.text,
        "at": notice.at_ms,
        "source": notice.source,
        "wakeMode": notice.wake_mode,
    }


def _decode(id_: str, data: Mapping[str, Json]) -> Notice:
    stored = str(data.get("wakeMode"))
    mode = cast("WakeMode", stored) if stored in _WAKE_MODES else "next-heartbeat"
    return Notice(
        str(data.get("text", "")), int(data.get("at", 0)), id_, str(data.get("source", "")), mode
    )
