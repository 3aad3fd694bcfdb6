"""Connections that subscribed to changes of sessions, and the events sent to them.

A subscriber gets `sessions.changed` when a run of a session starts or ends, when a client's message
is queued behind one, when a chat command was answered and when a method changed the session, and
`session.message` for every new message of its transcript by a user or the agent. Nothing is read
while there is no subscriber.
"""

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence

from homarus.core.message import Json
from homarus.core.session_keys import agent_id_of
from homarus.gateway.history import show_entry
from homarus.store.base import Store, TranscriptEntry

MAX_KEYS_PER_CLIENT = 200
_MAX_CURSORS = 1_000
_SENT_ROLES = frozenset({"user", "assistant"})
_MAX_MESSAGES = 50  # sent after one event

RowLoader = Callable[[str], Awaitable[dict[str, Json] | None]]


class SessionSubscriptions:
    """Send the changes of sessions to their subscribers. `send` sends an event to one of them."""

    def __init__(
        self,
        send: Callable[[str, str, Json], None],
        *,
        load_row: RowLoader,
        get_store: Callable[[], Store],
        now_ms: Callable[[], int],
        add_key: Callable[[str, dict[str, Json]], None],
    ) -> None:
        self._send, self._load_row, self._get_store = send, load_row, get_store
        self._now_ms, self._add_key = now_ms, add_key
        self._all: set[str] = set()  # connections that receive the events of every session
        self._keys: dict[str, set[str]] = {}  # connection → sessions whose messages it receives
        self._since_ms = 0  # the first subscription of those that exist
        # Session id → the last entry that was sent.
        self._cursors: OrderedDict[str, int] = OrderedDict()

    def add(self, conn_id: str, key: str | None = None) -> bool:
        """Subscribe a connection to every session, or to the messages of one.

        Returns False when the connection has too many sessions already.
        """
        if not self._all and not self._keys:
            self._since_ms = self._now_ms()
            self._cursors.clear()
        if key is None:
            self._all.add(conn_id)
            return True
        keys = self._keys.setdefault(conn_id, set())
        if key not in keys and len(keys) >= MAX_KEYS_PER_CLIENT:
            return False
        keys.add(key)
        return True

    def remove(self, conn_id: str, key: str | None = None) -> None:
        """End a subscription."""
        if key is None:
            self._all.discard(conn_id)
        elif conn_id in self._keys:
            self._keys[conn_id].discard(key)
            if not self._keys[conn_id]:
                del self._keys[conn_id]

    def leave(self, conn_id: str) -> None:
        """Remove a connection that ended."""
        self._all.discard(conn_id)
        self._keys.pop(conn_id, None)

    def is_followed(self, key: str) -> bool:
        """Return whether a connection subscribed to this session."""
        return bool(self._all) or any(key in keys for keys in self._keys.values())

    async def send_change(self, key: str, **fields: Json) -> None:
        """Send `sessions.changed` with these fields and the session's row."""
        if not self._all:
            return
        payload: dict[str, Json] = {
            "sessionKey": key,
            "agentId": agent_id_of(key),
            **fields,
            "ts": self._now_ms(),
            "session": await self._load_row(key),
        }
        for conn_id in tuple(self._all):
            self._send(conn_id, "sessions.changed", payload)

    async def send_messages(self, key: str, run_id: str, *, only_path: bool = False) -> None:
        """Send `session.message` for the messages of a session that were not sent yet.

        With `only_path`, those that are on a branch are left out.
        """
        if not self.is_followed(key):
            return
        row = await self._load_row(key)
        session_id = row.get("sessionId") if row else None
        if not isinstance(session_id, str):
            return
        last_seq = self._cursors.get(session_id, 0)
        entries = await self._get_store().entries(
            session_id, after=last_seq, limit=_MAX_MESSAGES, newest=True
        )
        if entries:
            self._cursors[session_id] = entries[-1].seq
            self._cursors.move_to_end(session_id)
            if len(self._cursors) > _MAX_CURSORS:
                self._cursors.popitem(last=False)
        if only_path:
            entries = _on_path(entries, await self._get_store().leaf(session_id))
        receivers = self._all | {conn for conn, keys in self._keys.items() if key in keys}
        for entry in entries:
            message = show_entry(entry)
            is_old = not last_seq and entry.at_ms < self._since_ms
            if is_old or message is None or message["role"] not in _SENT_ROLES:
                continue
            self._add_key(key, message)
            run: dict[str, Json] = {"runId": run_id} if message["role"] == "assistant" else {}
            message["__openclaw"] = {"id": entry.id, "seq": entry.seq, **run}
            payload: dict[str, Json] = {
                "sessionKey": key,
                "agentId": agent_id_of(key),
                "message": message,
                "messageId": entry.id,
                "messageSeq": entry.seq,
                "session": row,
            }
            for conn_id in receivers:
                self._send(conn_id, "session.message", payload)


def _on_path(entries: Sequence[TranscriptEntry], leaf: str | None) -> list[TranscriptEntry]:
    """Return the entries that the leaf follows, itself included."""
    by_id, kept = {entry.id: entry for entry in entries}, set[str]()
    while leaf is not None and leaf in by_id:
        kept.add(leaf)
        leaf = by_id[leaf].parent
    return [entry for entry in entries if entry.id in kept]
