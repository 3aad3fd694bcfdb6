"""Keep the keys of an account in one SQLite file: matrix-nio's tables, and three of our own.

Our table of room keys replaces the library's, which files a key under its session id alone: there
a member of a room could send us another member's session id first, and hide that one's key.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from nio.crypto import GroupSessionStore, InboundGroupSession
from nio.store import SqliteStore
from peewee import PeeweeException, SqliteDatabase

from homarus.channels.matrix.api import Object
from homarus.core.errors import StoreError
from homarus.core.fast_dataclass import dataclass
from homarus.core.private_files import FILE_MODE, create_private, make_private_dir

PICKLE_KEY: Final = "DEFAULT_KEY"  # the file is private; a key next to it would protect nothing
MAX_INDEXES: Final = 200_000
MAX_WAITING, MAX_WAITING_IN_ROOM = 2_000, 200
_TABLES: Final = """
CREATE TABLE IF NOT EXISTS room_keys (
    room TEXT, sender_key TEXT, session_id TEXT, signing_key TEXT, chain TEXT, pickle TEXT,
    PRIMARY KEY (room, sender_key, session_id)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS message_indexes (
    id INTEGER PRIMARY KEY, sender_key TEXT, session_id TEXT, message_index INTEGER, event_id TEXT,
    UNIQUE (sender_key, session_id, message_index)
);
CREATE TABLE IF NOT EXISTS unreadable (
    id INTEGER PRIMARY KEY, event_id TEXT UNIQUE, room TEXT, session_id TEXT, event TEXT,
    at_ms INTEGER, is_told INTEGER DEFAULT 0
);
"""


@dataclass(frozen=True, slots=True)
class UnreadableEvent:
    """An encrypted event whose key is missing."""

    event_id: str
    room: str
    session_id: str
    event: Object
    at_ms: int
    is_told: bool


class RoomKeys(GroupSessionStore):  # type: ignore[misc]  # the library has no types
    """The room keys in memory. A key never replaces one that reads more."""

    def add(self, session: InboundGroupSession) -> bool:
        known = self.get(session.room_id, session.sender_key, session.id)
        if known and known.first_known_index <= session.first_known_index:
            return False
        self[session.room_id][session.sender_key][session.id] = session
        return True

    def find(self, room: str, sender_key: str, session_id: str) -> list[InboundGroupSession]:
        """Return the room keys of a session; newer clients may leave the sender's key out.

        Then there may be several: a reader of a session can send its key as one of its own.
        """
        if sender_key:
            found = self.get(room, sender_key, session_id)
            return [found] if found else []
        return [one[session_id] for one in self[room].values() if session_id in one]


class KeyStore(SqliteStore):  # type: ignore[misc]  # the library has no types
    """The store of one device; room keys, indexes and unreadable events are of all devices."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for table in _TABLES.strip().split(";\n"):
            self.database.execute_sql(table)

    def close(self) -> None:
        self.database.close()

    # Room keys

    def save_inbound_group_session(self, session: InboundGroupSession) -> None:
        self.database.execute_sql(
            "REPLACE INTO room_keys VALUES (?, ?, ?, ?, ?, ?)",
            (
                session.room_id, session.sender_key, session.id, session.ed25519,
                json.dumps(session.forwarding_chain), session.pickle(PICKLE_KEY).decode(),
            ),
        )  # fmt: skip

    def load_inbound_group_sessions(self) -> RoomKeys:
        keys = RoomKeys()
        rows = self.database.execute_sql(
            "SELECT room, sender_key, signing_key, chain, pickle FROM room_keys"
        )
        for room, sender_key, signing_key, chain, pickle in rows:
            keys.add(
                InboundGroupSession.from_pickle(
                    pickle.encode(), signing_key, sender_key, room, PICKLE_KEY, json.loads(chain)
                )
            )
        return keys

    # Olm sessions

    def delete_sessions(self, ids: Iterable[str]) -> None:
        for each in ids:
            self.database.execute_sql("DELETE FROM olmsessions WHERE session_id = ?", (each,))

    # Indexes

    def note_index(self, sender_key: str, session_id: str, index: int, event_id: str) -> bool:
        """Note which event has an index of a session; False when that is another event."""
        place = (sender_key, session_id, index)
        with self.database.atomic():
            added = self.database.execute_sql(
                "INSERT OR IGNORE INTO message_indexes"
                " (sender_key, session_id, message_index, event_id) VALUES (?, ?, ?, ?)",
                (*place, event_id),
            )
            if added.rowcount:
                self.database.execute_sql(
                    "DELETE FROM message_indexes WHERE id <= ?", (added.lastrowid - MAX_INDEXES,)
                )
                return True
        ((known,),) = self.database.execute_sql(
            "SELECT event_id FROM message_indexes"
            " WHERE sender_key = ? AND session_id = ? AND message_index = ?",
            place,
        ).fetchall()
        return bool(known == event_id)

    # Unreadable events

    def add_unreadable(self, room: str, session_id: str, event: Object, at_ms: int) -> bool:
        """Keep an event; the oldest are dropped. False if it is kept already."""
        with self.database.atomic():
            added = self.database.execute_sql(
                "INSERT OR IGNORE INTO unreadable (event_id, room, session_id, event, at_ms)"
                " VALUES (?, ?, ?, ?, ?)",
                (event["event_id"], room, session_id, json.dumps(event), at_ms),
            )
            self.database.execute_sql(
                "DELETE FROM unreadable WHERE room = ? AND id NOT IN"
                " (SELECT id FROM unreadable WHERE room = ? ORDER BY id DESC LIMIT ?)",
                (room, room, MAX_WAITING_IN_ROOM),
            )
            self.database.execute_sql(
                "DELETE FROM unreadable WHERE id NOT IN"
                " (SELECT id FROM unreadable ORDER BY id DESC LIMIT ?)",
                (MAX_WAITING,),
            )
        return bool(added.rowcount)

    def unreadable(self) -> list[UnreadableEvent]:
        """Return the kept events, the oldest first."""
        rows = self.database.execute_sql(
            "SELECT event_id, room, session_id, event, at_ms, is_told FROM unreadable ORDER BY id"
        )
        return [
            UnreadableEvent(row[0], row[1], row[2], json.loads(row[3]), row[4], bool(row[5]))
            for row in rows
        ]

    def count_unreadable(self) -> int:
        ((count,),) = self.database.execute_sql("SELECT COUNT(*) FROM unreadable").fetchall()
        return int(count)

    def find_untold_rooms(self, first_ms: int, last_ms: int) -> list[str]:
        """Return the rooms with an event kept in this time that they were not told of."""
        rows = self.database.execute_sql(
            "SELECT room FROM unreadable WHERE NOT is_told AND at_ms BETWEEN ? AND ?"
            " GROUP BY room ORDER BY MIN(id)",
            (first_ms, last_ms),
        )
        return [room for (room,) in rows]

    def remove_unreadable_before(self, at_ms: int) -> None:
        """Forget the events that were kept before a time."""
        self.database.execute_sql("DELETE FROM unreadable WHERE at_ms < ?", (at_ms,))

    def mark_told(self, room: str) -> None:
        self.database.execute_sql("UPDATE unreadable SET is_told = 1 WHERE room = ?", (room,))

    def remove_unreadable(self, event_ids: Iterable[str], room: str | None = None) -> None:
        """Forget events; with a room, only those of it."""
        for each in event_ids:
            self.database.execute_sql(
                "DELETE FROM unreadable WHERE event_id = ? AND room = IFNULL(?, room)",
                (each, room),
            )


def open_store(file: Path, user: str, device: str) -> KeyStore:
    """Open the keys of a device, or create the file. Raises StoreError."""
    try:
        make_private_dir(file.parent)
        create_private(file)
        file.chmod(FILE_MODE)
        return KeyStore(user, device, str(file.parent), PICKLE_KEY, file.name)
    except (OSError, PeeweeException, ValueError) as exc:
        raise StoreError(
            f"cannot open the keys of Matrix in {file}: {exc}",
            fix="check the owner and permissions of the file, or restore it from a backup",
        ) from exc


def last_device(file: Path) -> tuple[str, str] | None:
    """Return the user and the device that a file is of; None when there is no file."""
    if not file.is_file():
        return None
    database = SqliteDatabase(str(file))
    try:
        rows: list[Any] = database.execute_sql(
            "SELECT user_id, device_id FROM accounts ORDER BY id DESC LIMIT 1"
        ).fetchall()
    except PeeweeException as exc:
        raise StoreError(f"{file} is no file of keys: {exc}") from exc
    finally:
        database.close()
    return (rows[0][0], rows[0][1]) if rows else None
